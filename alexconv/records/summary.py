"""Rows of the result tables: per layer and in total, from records alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from math import fsum, inf, isnan

from alexconv.kernels.ladder import ALL_DIRECTIONS, Ladder
from alexconv.records.labels import changed_in, label_with, particulars
from alexconv.records.statistics import median_of
from alexconv.records.store import Record


@dataclass(frozen=True)
class Row:
    """One line of a result table: a layer, or all layers of a rung (``layer`` None).  Times in ms per batch.

    ``serial`` and ``blas`` are the CPU's times for the same batch, on one core and on all.  A figure that was not
    measured, or whose point failed its check, is None; a sum over layers is None if any layer's is.
    """

    workload: str
    N: int
    rung: str
    transfer: str
    layer: int | None
    kernel: float | None
    copies: float | None
    total: float | None
    serial: float | None
    error: float | None
    tolerance: float | None
    status: str
    reason: str | None
    blas: float | None = None
    componentwise: float | None = None  # error over the sums of |x| |w|

    def speedup(self, figure: str, base: str = "serial") -> float | None:
        """Time of the CPU, ``serial`` or ``blas``, over the named figure, or None."""
        own, cpu = getattr(self, figure), getattr(self, base)
        return cpu / own if cpu and own else None


def label(record: Record) -> str:
    """The rung of a record, with the constants that differ from its defaults, and what is particular of its point."""
    name = label_with(record["point"]["rung"], changed_in(record))
    return name + particulars(record["point"], name)


def row(record: Record) -> Row:
    """The row of one record."""
    point, error = record["point"], record.get("error", {})
    return Row(
        point["workload"],
        point["N"],
        label(record),
        point["transfer"],
        point["layer"],
        kernel=median_of(record, "kernel"),
        copies=median_of(record, "copies"),
        total=median_of(record, "total"),
        serial=record.get("cpu", {}).get("serial_ms"),
        error=float(error["scaled"]) if error else None,
        tolerance=error.get("tolerance"),
        status=record["status"],
        reason=record["reason"],
        blas=record.get("cpu", {}).get("blas_ms"),
        componentwise=float(error["componentwise"]) if "componentwise" in error else None,
    )


def rows(records: Iterable[Record], ladder: Ladder = ALL_DIRECTIONS) -> list[Row]:
    """Rows by workload, N, rung and transfer: the layers in order, then their sum where there are several."""
    places = {name: place for place, name in enumerate(ladder.named)}

    def group(row: Row) -> tuple[str, int, int, str, str]:
        name = row.rung.partition(" ")[0]
        return row.workload, row.N, places.get(name, len(places)), row.rung, row.transfer

    table: list[Row] = []
    for _, group_rows in groupby(sorted(map(row, records), key=lambda r: (*group(r), r.layer or 0)), key=group):
        layers = list(group_rows)
        table += layers
        if len(layers) > 1:
            table.append(all_layers(layers))
    return table


def rank(error: float) -> float:
    """The error, infinite for NaN, which compares with nothing."""
    return inf if isnan(error) else error


def all_layers(layers: list[Row]) -> Row:
    """The sum over a rung's layers."""

    def total(figure: str) -> float | None:
        values = [getattr(row, figure) for row in layers]
        return None if None in values else fsum(values)

    first, statuses = layers[0], {row.status for row in layers}
    worst = max(layers, key=lambda row: rank(row.error / row.tolerance if row.error and row.tolerance else 0.0))
    return Row(
        first.workload,
        first.N,
        first.rung,
        first.transfer,
        None,
        kernel=total("kernel"),
        copies=total("copies"),
        total=total("total"),
        serial=total("serial"),
        error=worst.error,
        tolerance=worst.tolerance,
        status=statuses.pop() if len(statuses) == 1 else "not all ok",
        reason=None,
        blas=total("blas"),
        componentwise=max(
            (row.componentwise for row in layers if row.componentwise is not None), key=rank, default=None
        ),
    )
