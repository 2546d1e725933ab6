"""Medians of raw samples with a confidence interval that assumes no distribution."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, floor, fsum, log10
from statistics import median
from zlib import crc32

import numpy as np
import numpy.typing as npt

from alexconv.records.store import Record

CONFIDENCE = 0.95
FEWEST_FOR_INTERVAL = 6  # samples: with fewer, not even all enclose the median with this confidence
NOISY = 0.1  # an interval wider than this share of the median is worth a flag
RESAMPLES = 400  # of each side of a ratio; every pair gives a ratio
SETTLED = 0.01  # of the median: with both ends of its interval this near, more samples would change little


@dataclass(frozen=True)
class Summary:
    """Median of the samples, and the order statistics around it that enclose the true median."""

    median: float
    low: float
    high: float
    count: int

    @property
    def noisy(self) -> bool:
        """Whether the interval is wide compared with the median."""
        return self.high - self.low > NOISY * self.median


def settled(samples: Sequence[float]) -> bool:
    """Whether both ends of the median's interval are within SETTLED of it; with few samples, whether all are.

    Stopping when this first holds covers the true median a little less often than CONFIDENCE says.
    """
    summary = summarize(samples)
    return max(summary.high - summary.median, summary.median - summary.low) <= SETTLED * summary.median


def summarize(samples: Sequence[float]) -> Summary:
    """Median and the interval of order statistics whose binomial coverage is at least CONFIDENCE.

    With fewer than six samples no interval reaches it: then it spans them all.  Raises ValueError for no samples.
    (Interval: Conover, Practical Nonparametric Statistics, section 3.2.)
    """
    if not samples:
        raise ValueError("no samples to summarize")
    ordered, n = sorted(samples), len(samples)
    outside = 0
    for rank in range(n // 2 + 1):
        outside += comb(n, rank)  # of 2^n, the cases with at most `rank` samples below the true median
        if 2 * outside / 2**n > 1 - CONFIDENCE:
            break
    rank = max(rank - 1, 0)
    return Summary(median(ordered), ordered[rank], ordered[n - 1 - rank], n)


@dataclass(frozen=True)
class Ratio:
    """One time over another, and its confidence interval as far as the samples tell.

    Variation from run to run and from card to card is not in the samples.
    """

    value: float
    low: float
    high: float

    def inverse(self) -> "Ratio":
        """The inverse ratio, with its interval."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)


def faster(ratio: float, digits: int = 3) -> str:
    """A time over ours in words, to some significant digits: ``2.29× faster``, ``1.18× slower``, ``as fast``."""
    factor, word = (ratio, "faster") if ratio >= 1 else (1 / ratio, "slower")
    rounded = float(f"{factor:.{digits}g}")
    text = f"{rounded:,.{max(0, digits - 1 - floor(log10(rounded)))}f}"
    return f"{text}× {word}" if rounded > 1 else "as fast"


def faster_between(ratio: Ratio) -> str:
    """The interval of such a ratio: ``2.287 to 2.295× faster``, or both ends in words where they differ."""
    low, high = ratio.low, ratio.high
    if low < 1 and high <= 1:
        low, high = high, low
    first, last = (faster(end, 4) for end in (low, high))
    number, _, word = first.partition("× ")
    return f"{number} to {last}" if word and last.endswith(word) else f"{first} to {last}"


def ratio_of(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Ratio:
    """The ratio of two sums of medians, such as over a network's layers, each with its own samples.

    The interval is the percentile bootstrap's.  Raises ValueError for a figure without samples.
    (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.)
    """
    value = fsum(summarize(samples).median for samples in ours) / fsum(summarize(samples).median for samples in theirs)
    above, below = (sum(_resampled_medians(tuple(samples)) for samples in side) for side in (ours, theirs))
    ratios = np.divide.outer(above, below).reshape(-1)
    outside = int(ratios.size * (1 - CONFIDENCE) / 2)
    low, high = outside, ratios.size - 1 - outside
    ratios.partition((low, high))
    return Ratio(value, float(ratios[low]), float(ratios[high]))


@lru_cache(maxsize=8192)
def _resampled_medians(samples: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """Medians of resamples, drawn with replacement; the same for the same samples.

    With fewer than FEWEST_FOR_INTERVAL samples any may be the median: a single one is drawn.
    """
    draw = np.random.default_rng(crc32(repr(samples).encode()))
    drawn = len(samples) if len(samples) >= FEWEST_FOR_INTERVAL else 1
    return np.asarray(np.median(draw.choice(samples, (RESAMPLES, drawn)), axis=1))


def summed(values: Sequence[float | None]) -> float | None:
    """The sum, or None if there are no values or one is missing."""
    known = [value for value in values if value is not None]
    return fsum(known) if known and len(known) == len(values) else None


def median_of(record: Record, figure: str) -> float | None:
    """Median of a figure's samples in ms; ``copies`` is both directions.  None for a point that is not ok."""
    samples = record.get("samples", {}) if record["status"] == "ok" else {}
    if figure == "copies":
        parts = [median_of(record, name) for name in ("h2d", "d2h")]
        return None if None in parts else fsum(part for part in parts if part is not None)
    return summarize(samples[figure]).median if samples.get(figure) else None
