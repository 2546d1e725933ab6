"""How many samples a figure gets: until its median is known well enough, or its time is used up."""

from collections.abc import Callable, Mapping
from time import perf_counter

from alexconv.executors.interface import Samples
from alexconv.records.statistics import CONFIDENCE, FEWEST_FOR_INTERVAL, SETTLED, settled
from alexconv.records.store import Record

FEWEST_SAMPLES, MOST_SAMPLES = 10, 50
PATIENCE, FEWEST_AT_ALL = 5, 3  # figures that take so many times their time end with so many samples


def repeat(once: Callable[[], Mapping[str, float]], seconds: float) -> Samples:
    """Samples of the figures that one call takes, in about so many seconds, and MOST_SAMPLES at most.

    From FEWEST_SAMPLES on the first at which the median of every figure is settled is the last.  When the time is used
    up, FEWEST_FOR_INTERVAL samples are enough, and after PATIENCE times as long FEWEST_AT_ALL.
    """
    runs: list[Mapping[str, float]] = []
    samples: Samples = {}
    start = perf_counter()
    while len(runs) < MOST_SAMPLES:
        spent = perf_counter() - start
        if len(runs) >= FEWEST_SAMPLES and all(map(settled, samples.values())):
            break
        if len(runs) >= FEWEST_FOR_INTERVAL and spent > seconds:
            break
        if len(runs) >= FEWEST_AT_ALL and spent > PATIENCE * seconds:
            break
        runs.append(once())
        samples = {name: [run[name] for run in runs] for name in runs[0]}
    return samples


def stopping_rule(seconds: float) -> Record:
    """The rule as the header of a run says it."""
    return {
        "seconds_per_figure": seconds,
        "most_samples": MOST_SAMPLES,
        "settled": {"from_samples": FEWEST_SAMPLES, "interval_within": SETTLED, "confidence": CONFIDENCE},
        "fewest_samples": {"after_seconds": FEWEST_FOR_INTERVAL, f"after_{PATIENCE}_times_as_long": FEWEST_AT_ALL},
    }
