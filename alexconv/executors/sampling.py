"""When to stop sampling: once the median is known well enough, or the time is used up."""

from collections.abc import Callable, Mapping
from time import perf_counter

from alexconv.records.statistics import CONFIDENCE, FEWEST_FOR_INTERVAL, SETTLED, settled
from alexconv.records.store import Record

Samples = dict[str, list[float]]  # milliseconds per batch, by figure: kernel, kernel_cold, h2d, d2h, total

FEWEST_SAMPLES, MOST_SAMPLES = 10, 50
PATIENCE, FEWEST_AT_ALL = 5, 3  # at PATIENCE times the time, FEWEST_AT_ALL samples are enough


def repeat(once: Callable[[], Mapping[str, float]], seconds: float) -> Samples:
    """Samples of the figures that each call of ``once`` returns, for about ``seconds``, at most MOST_SAMPLES.

    Stops from FEWEST_SAMPLES on as soon as the medians of all figures are settled.  When the time is used up,
    FEWEST_AT_ALL samples are enough if they are settled, else FEWEST_FOR_INTERVAL; after PATIENCE times as long,
    FEWEST_AT_ALL in any case.
    """
    runs: list[Mapping[str, float]] = []
    samples: Samples = {}
    start = perf_counter()
    while len(runs) < MOST_SAMPLES:
        spent = perf_counter() - start
        if len(runs) >= fewest(seconds, spent, all(map(settled, samples.values()))):
            break
        runs.append(once())
        samples = {name: [run[name] for run in runs] for name in runs[0]}
    return samples


def fewest(seconds: float, spent: float, is_settled: bool) -> int:
    """The number of samples that suffices after ``spent`` seconds."""
    if spent > PATIENCE * seconds or (spent > seconds and is_settled):
        return FEWEST_AT_ALL
    if spent > seconds:
        return FEWEST_FOR_INTERVAL
    return FEWEST_SAMPLES if is_settled else MOST_SAMPLES


def stopping_rule(seconds: float) -> Record:
    """The stopping rule for the header of a run."""
    return {
        "seconds_per_figure": seconds,
        "most_samples": MOST_SAMPLES,
        "settled": {"interval_within": SETTLED, "confidence": CONFIDENCE},
        "fewest_samples": {
            "settled": FEWEST_SAMPLES,
            "time_up": FEWEST_FOR_INTERVAL,
            "time_up_and_settled": FEWEST_AT_ALL,
            f"time_up_{PATIENCE}_times": FEWEST_AT_ALL,
        },
    }
