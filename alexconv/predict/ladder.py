"""The ladder's predicted and measured times on a network, as data for tables and figures."""

from dataclasses import dataclass
from math import inf

from alexconv.kernels.ladder import LADDER, Ladder
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
    predicted: Records,
    measured: Records | None = None,
    workload: str = "alexnet",
    N: int = 128,
    ladder: Ladder = LADDER,
) -> list[PredictedTime]:
    """Each rung on each layer of a network, in the ladder's order, as far as there are predictions.

    Of several sets of constants, the one measured as fastest counts, or else the one predicted as fastest.
    """
    times = {name: median_ms(record) for name, record in measured_points(measured, ladder).items()} if measured else {}
    best: dict[tuple[str, int], PredictedTime] = {}
    for name, record in predictions_in(predicted).items():
        point = record["point"]
        if (point["workload"], point["N"]) == (workload, N) and point["rung"] in ladder.named:
            time = predicted_time(record, times.get(name))
            key = time.rung, time.layer
            best[key] = min(best.get(key, time), time, key=slowness)
    order = {rung: number for number, rung in enumerate(ladder.named)}
    return sorted(best.values(), key=lambda time: (order[time.rung], time.layer))


def predicted_time(record: Record, measured: float | None) -> PredictedTime:
    """The time of a record of type ``prediction``."""
    point, launches = record["point"], record.get("launches", [])
    low, high = record.get("band_ms", (None, None))
    return PredictedTime(
        rung=point["rung"],
        layer=point["layer"],
        constants=point["constants"],
        predicted=record.get("ms"),
        band=None if low is None else (low, high),
        limit=max(launches, key=lambda launch: launch["ms"])["limit"] if launches else None,
        launches=tuple((launch["entry"], launch["ms"]) for launch in launches),
        reason=record.get("reason"),
        measured=measured,
    )


def slowness(time: PredictedTime) -> tuple[bool, float]:
    """Sorting key: measured ones first, then the faster."""
    return time.measured is None, time.measured or time.predicted or inf
