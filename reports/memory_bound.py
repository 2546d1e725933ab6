"""The tables of docs/memory-bound.md: layers bound by memory beside cuDNN, and beside what a copy takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path

import numpy as np

from alexconv.kernels.ladder import RUNGS
from alexconv.precisions import PRECISIONS
from alexconv.records.statistics import faster
from alexconv.records.store import Record, Records, read
from alexconv.reports.elements import MISSING, Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source
from alexconv.reports.networks import Beside, microseconds, pairs, shape
from alexconv.shapes import Conv

SHOWN = {"depthwise": 128, "first-last": 32}  # workloads, and the batch of their table of layers
PREDICTED = 0.85  # of the card's copy rate, for depthwise layers, before one was measured
SUMMARY = ("workload", "N", "class", "layers", "geometric mean", "not slower", "worst")
LAYERS = (
    "layer",
    "shape",
    "class",
    "MB",
    "at 85 %, µs",
    "NCHW, µs",
    "NHWC, µs",
    "of the copy rate",
    "cuDNN, µs",
    "than cuDNN",
    "rung",
)


def copy_rate(records: Records) -> float:
    """Bytes per second that a copy within the device reads and writes, measured in the same run."""
    return float(next(h["copy_bytes_per_s"] for h in records.headers.values() if h["type"] == "ceilings"))


def layer_bytes(conv: Conv, N: int, precision: str) -> int:
    """Bytes of a layer's input and output, each moved once."""
    values = N * (conv.C * conv.H * conv.W + conv.M * conv.E * conv.F)
    return values * np.dtype(PRECISIONS[precision].dtype).itemsize


def summary_part(beside: Sequence[Beside]) -> str:
    """Ratios of each workload, N and class."""
    groups: dict[tuple[str, int, str], list[float]] = {}
    for pair in beside:
        groups.setdefault((pair.workload, pair.N, pair.precision), []).append(pair.ratio)
    rows: list[tuple[Cell, ...]] = [
        (
            *group,
            len(ratios),
            faster(exp(-fsum(map(log, ratios)) / len(ratios))),
            f"{sum(ratio <= 1 for ratio in ratios) / len(ratios):.0%}",
            faster(1 / max(ratios)),
        )
        for group, ratios in groups.items()
    ]
    return "\n".join(markdown_table(SUMMARY, rows)) if rows else NOT_MEASURED


@dataclass(frozen=True)
class Layer:
    """A layer beside cuDNN, and the records of the run that both are from."""

    pair: Beside
    records: Records


def layers_of(files: Sequence[Path]) -> list[Layer]:
    """The layers of SHOWN's workloads, each from the last file that has it with cuDNN."""
    last: dict[tuple[str, int, int, str], Layer] = {}
    for file in files:
        records = read([file])
        for pair in pairs(records):
            if pair.workload in SHOWN:
                last[pair.workload, pair.N, pair.layer, pair.precision] = Layer(pair, records)
    return [last[key] for key in sorted(last, key=in_order)]


def in_order(key: tuple[str, int, int, str]) -> tuple[int, int, int, int]:
    """Sorting key: workloads and classes in the order of their tables."""
    workload, N, layer, precision = key
    return list(SHOWN).index(workload), N, layer, list(PRECISIONS).index(precision)


def layer_rows(layers: Sequence[Layer]) -> Iterator[tuple[Cell, ...]]:
    """Layers: what their bytes take, what the rungs of each layout and cuDNN take."""
    for layer in layers:
        pair, records = layer.pair, layer.records
        rate = copy_rate(records)
        moved, us = layer_bytes(pair.conv, pair.N, pair.precision), microseconds(pair.ours)
        yield (
            pair.layer,
            shape(pair.conv),
            pair.precision,
            f"{moved / 1e6:.0f}",
            f"{1e6 * moved / (PREDICTED * rate):.1f}",
            *(shortest(records, pair, layout) for layout in ("nchw", "nhwc")),
            f"{1e6 * moved / us / rate:.0%}",
            f"{microseconds(pair.peer):.1f}",
            Faster(1 / pair.ratio),
            f"`{pair.ours['point']['rung']}`",
        )


def shortest(records: Records, pair: Beside, layout: str) -> str:
    """The shortest time of a layer's rungs of a layout, in microseconds."""
    times = [microseconds(record) for record in records.points if of_layout(record, pair, layout)]
    return f"{min(times):.1f}" if times else MISSING


def of_layout(record: Record, pair: Beside, layout: str) -> bool:
    """Whether a record is of a rung of a layout, on a pair's layer, N and class."""
    point, rung = record["point"], RUNGS.get(record["point"]["rung"])
    place = pair.workload, pair.layer, pair.N, pair.precision, layout
    return (
        record["status"] == "ok"
        and rung is not None
        and (point["workload"], point.get("layer"), point["N"], rung.precision, rung.layout) == place
    )


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's parts by their keys; a layer's figures are of one run."""
    layers, records = layers_of(files), read(list(files))
    tables = {
        f"memory-bound-{name}": "\n".join(markdown_table(LAYERS, list(layer_rows(shown))))
        for name, N in SHOWN.items()
        if (shown := [layer for layer in layers if (layer.pair.workload, layer.pair.N) == (name, N)])
    }
    rates = sorted({f"{copy_rate(layer.records) / 1e12:.2f}" for layer in layers})
    measured = [record for record in records.points if record["status"] == "ok"]
    copied = f"A copy within the device: {' and '.join(rates)} TB/s.  {source(records, measured, files)}"
    return {"memory-bound-summary": f"{summary_part([layer.pair for layer in layers])}\n\n{copied}", **tables}
