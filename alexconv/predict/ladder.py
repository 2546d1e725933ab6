"""The ladder's predicted and measured times on a network, as data for tables and figures."""

from dataclasses import dataclass
from math import inf

from alexconv.kernels.ladder import RUNGS
from alexconv.predict.accuracy import measured_points, median_ms, predictions_in
from alexconv.records.store import Record, Records


@dataclass(frozen=True)
class PredictedTime:
    """A rung on a layer: milliseconds of its kernels as predicted, with the band of nine in ten measured times.

    ``limit`` is the busiest unit of its longest launch; ``launches`` are entry points with their milliseconds.  If the
    model refuses the rung, ``reason`` says why and these are empty.  ``measured`` is the median on a GPU, None if none
    is on record.
    """

    rung: str
    layer: int
    constants: dict[str, int]
    predicted: float | None
    band: tuple[float, float] | None
    limit: str | None
    launches: tuple[tuple[str, float], ...]
    reason: str | None
    measured: float | None


def predicted_ladder(
    predicted: Records, measured: Records | None = None, workload: str = "alexnet", N: int = 128
) -> list[PredictedTime]:
    """Each rung on each layer of a network, in the ladder's order, as far as there are predictions.

    Of several sets of constants, the one measured as fastest counts, or else the one predicted as fastest.
    """
    times = {name: median_ms(record) for name, record in measured_points(measured).items()} if measured else {}
    best: dict[tuple[str, int], PredictedTime] = {}
    for name, record in predictions_in(predicted).items():
        point = record["point"]
        if (point["workload"], point["N"]) == (workload, N) and point["rung"] in RUNGS:
            found = predicted_time(record, times.get(name))
            key = found.rung, found.layer
            best[key] = min(best.get(key, found), found, key=slowness)
    order = {rung: number for number, rung in enumerate(RUNGS)}
    return sorted(best.values(), key=lambda each: (order[each.rung], each.layer))


def predicted_time(record: Record, measured: float | None) -> PredictedTime:
    """The time of a record of type ``prediction``."""
    point, launches = record["point"], record.get("launches", [])
    low, high = record.get("band_ms", (None, None))
    return PredictedTime(
        point["rung"],
        point["layer"],
        point["constants"],
        record.get("ms"),
        None if low is None else (low, high),
        max(launches, key=lambda launch: launch["ms"])["limit"] if launches else None,
        tuple((launch["entry"], launch["ms"]) for launch in launches),
        record.get("reason"),
        measured,
    )


def slowness(each: PredictedTime) -> tuple[bool, float]:
    """Sorting key: measured ones first, then the faster."""
    return each.measured is None, each.measured or each.predicted or inf
