"""Predicted and measured times compared: errors by family, held out and not."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean, median

from alexconv.data import UNIFORM
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.predict.predictions import TYPE
from alexconv.predict.split import held_out
from alexconv.records.labels import data_of
from alexconv.records.statistics import summarize
from alexconv.records.store import Record, Records, digest

NEARLY_BEST = 0.02  # over the shortest measured time
TRANSFER = "pageable"  # the kernels alone are the same under every transfer


@dataclass(frozen=True)
class Pair:
    """A point's predicted and measured milliseconds; ``predicted`` is None where the model refuses the rung."""

    point: Record
    family: str  # of its rung
    predicted: float | None
    measured: float
    reason: str | None = None

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        assert self.predicted is not None
        return self.predicted / self.measured

    @property
    def held_out(self) -> bool:
        """Whether the point is held out of the model's development."""
        return held_out(self.point["workload"], self.point["layer"], self.family)


def measured_points(records: Records, ladder: Ladder = LADDER) -> dict[str, Record]:
    """The records of points that were timed in one piece on uniform data, of rungs that the ladder has, by computation.

    If a point was measured several times, the last one counts.  Predictions do not depend on data, but times do.
    """
    timed_records = {}
    for record in records.latest():
        point = record["point"]
        timed = record["status"] == "ok" and record.get("samples", {}).get("kernel") and record.get("pieces") == 1
        known = point["rung"] in ladder.named and isinstance(point["layer"], int)
        usual = point["transfer"] == TRANSFER and data_of(record) == UNIFORM
        if timed and known and usual:
            timed_records[identity(planned_point(record))] = record
    return timed_records


def devices_in(records: Records, ladder: Ladder = LADDER) -> set[str]:
    """The names of the GPUs on which those points were timed."""
    keys = {str(record.get("device")) for record in measured_points(records, ladder).values()}
    return {str(records.headers[key].get("name")) for key in keys if key in records.headers}


def planned_point(record: Record) -> Record:
    """The axes of a record's point, with the constants that were used."""
    return {**record["point"], "constants": record.get("planned_constants") or record["point"]["constants"]}


def identity(point: Record) -> str:
    """Two points with the same value are the same computation."""
    return digest([point[axis] for axis in ("workload", "layer", "N", "rung", "constants")])


def predictions_in(records: Records) -> dict[str, Record]:
    """The last prediction of each point."""
    return by_computation(header for header in records.headers.values() if header["type"] == TYPE)


def by_computation(predictions: Iterable[Record]) -> dict[str, Record]:
    """Predictions by what is computed; the last of several."""
    return {identity(record["point"]): record for record in predictions}


def pairs(measured: Records, known: Mapping[str, Record], ladder: Ladder = LADDER) -> list[Pair]:
    """Every measured point that has a prediction."""
    comparisons = []
    for name, record in measured_points(measured, ladder).items():
        if name in known:
            point, prediction = planned_point(record), known[name]
            family = ladder.named[point["rung"]].family
            comparisons.append(Pair(point, family, prediction.get("ms"), median_ms(record), prediction.get("reason")))
    return comparisons


def median_ms(record: Record) -> float:
    """The median of the kernels' hot times."""
    return summarize(record["samples"]["kernel"]).median


Group = tuple[str, Callable[[Pair], bool]]


def groups(comparisons: Sequence[Pair]) -> list[Group]:
    """The groups of the tables: everything, families, batch sizes."""

    def of_family(name: str) -> Group:
        return name, lambda pair: pair.family == name

    def of_batch(N: int) -> Group:
        return f"N = {N}", lambda pair: pair.point["N"] == N

    study = ("single", "multi", "tiles", "shared", "gemm")
    families = dict.fromkeys([*(rung.family for rung in LADDER), *(pair.family for pair in comparisons)])
    present_families = [name for name in families if any(pair.family == name for pair in comparisons)]
    batches = sorted({pair.point["N"] for pair in comparisons})
    return [
        ("all", lambda pair: True),
        ("study and LeNet rungs", lambda pair: pair.family in study),
        *map(of_family, present_families),
        *map(of_batch, batches),
    ]


def table(comparisons: Sequence[Pair]) -> Iterator[str]:
    """Lines of a Markdown table: a row per group, points held out and others apart."""
    yield "| points | held out | n | refused | mean error % | median | largest | Spearman |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name, belongs in groups(comparisons):
        for held in (False, True):
            chosen = [pair for pair in comparisons if belongs(pair) and pair.held_out == held]
            if chosen:
                yield _row(name, "yes" if held else "no", chosen)


def _row(name: str, held: str, chosen: Sequence[Pair]) -> str:
    predicted = [pair for pair in chosen if pair.predicted is not None]
    refused = len(chosen) - len(predicted)
    if not predicted:
        return f"| {name} | {held} | 0 | {refused} | - | - | - | - |"
    errors = [100 * abs(pair.ratio - 1) for pair in predicted]
    worst = predicted[errors.index(max(errors))]
    rank = spearman([pair.ratio * pair.measured for pair in predicted], [pair.measured for pair in predicted])
    largest = f"{max(errors):.0f} ({_label(worst)})"
    rho = "-" if isnan(rank) else f"{rank:.3f}"
    mean = fmean(errors)
    return f"| {name} | {held} | {len(predicted)} | {refused} | {mean:.1f} | {median(errors):.1f} | {largest} | {rho} |"


def _label(pair: Pair) -> str:
    return f"{pair.point['rung']}, {pair.point['workload']} {pair.point['layer']}, N = {pair.point['N']}"


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation of two sequences without ties; nan for fewer than three numbers."""
    n = len(a)
    if n < 3:
        return nan
    distance = sum((x - y) ** 2 for x, y in zip(_ranks(a), _ranks(b), strict=True))
    return 1 - 6 * distance / (n * (n * n - 1))


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda k: values[k])
    ranks = [0] * len(values)
    for rank, k in enumerate(order):
        ranks[k] = rank
    return ranks


def picks(comparisons: Iterable[Pair]) -> tuple[int, int]:
    """How often the constants predicted as fastest for a rung, layer and N are nearly the best.

    Returns that, and out of how many: only cases with three or more sets of constants count.
    """
    sets: dict[tuple[object, ...], list[Pair]] = {}
    for pair in comparisons:
        if pair.predicted is not None:
            sets.setdefault(tuple(pair.point[axis] for axis in ("workload", "layer", "N", "rung")), []).append(pair)
    large = [group for group in sets.values() if len(group) >= 3]
    good = sum(
        min(group, key=lambda pair: pair.predicted or nan).measured
        <= (1 + NEARLY_BEST) * min(pair.measured for pair in group)
        for group in large
    )
    return good, len(large)
