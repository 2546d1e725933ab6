"""Medians with an interval that assumes no distribution, and when it is narrow enough."""

from math import comb

import numpy as np
import pytest

from alexconv.records.statistics import CONFIDENCE, SETTLED, settled, summarize


@pytest.mark.parametrize(("count", "rank"), [(6, 0), (9, 1), (10, 1), (20, 5), (50, 17)])
def test_the_interval_matches_binomial_tables(count, rank):
    summary = summarize(list(range(count)))
    assert (summary.low, summary.high) == (rank, count - 1 - rank)
    outside = 2 * sum(comb(count, below) for below in range(rank + 1)) / 2**count
    next_outside = 2 * sum(comb(count, below) for below in range(rank + 2)) / 2**count
    assert outside <= 1 - CONFIDENCE < next_outside


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    samples = np.random.default_rng(1).lognormal(size=(2000, 15))
    covered = [summary.low <= 1 <= summary.high for summary in map(summarize, samples.tolist())]
    assert np.mean(covered) >= CONFIDENCE


@pytest.mark.parametrize("count", [1023, 1024, 5000])
def test_thousands_of_samples_have_an_interval(count):
    summary = summarize(list(range(count)))
    half = (summary.high - summary.low) / 2
    assert half == pytest.approx(1.96 * count**0.5 / 2, rel=0.05)


def test_few_samples_span_their_interval():
    summary = summarize([3.0, 1.0, 2.0])
    assert (summary.median, summary.low, summary.high) == (2.0, 1.0, 3.0)
    assert settled([1.0, 1.0 + SETTLED / 2, 1.0])
    assert not settled([1.0, 1.0, 1.0 + 2 * SETTLED])


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("side", [-1, 1])
def test_samples_are_settled_when_both_ends_are_near_the_median(side, inside):
    far = 1 + side * SETTLED * (0.99 if inside else 1.01)
    assert settled([1.0] * 6 + [far] * 4) == inside


def test_a_few_stragglers_do_not_unsettle():
    assert settled([1.0] * 9 + [5.0])
    assert not settled([1.0] * 8 + [5.0] * 2)
