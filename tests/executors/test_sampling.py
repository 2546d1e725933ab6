"""Samples stop when the median is known well enough, or when the time is used up."""

from itertools import cycle

import pytest

from alexconv.executors import sampling
from alexconv.executors.sampling import FEWEST_AT_ALL, FEWEST_SAMPLES, MOST_SAMPLES, PATIENCE, repeat, stopping_rule
from alexconv.records.statistics import FEWEST_FOR_INTERVAL, SETTLED


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when a sample takes time."""
    now = [0.0]
    monkeypatch.setattr(sampling, "perf_counter", lambda: now[0])
    return now


def taken(clock, seconds_each, budget, **figures):
    """How many samples are taken of figures whose values repeat in a cycle."""
    values = {name: cycle(times) for name, times in figures.items()}

    def once():
        clock[0] += seconds_each
        return {name: next(times) for name, times in values.items()}

    counts = {len(samples) for samples in repeat(once, budget).values()}
    assert len(counts) == 1
    return counts.pop()


NOISY, STEADY = (1.0, 1.1, 0.9, 1.05), (1.0, 1.0 + SETTLED / 2)


def test_steady_figures_stop_early_and_noisy_ones_do_not(clock):
    assert taken(clock, 0.001, 1.0, kernel=STEADY) == FEWEST_SAMPLES
    assert taken(clock, 0.001, 1.0, kernel=NOISY) == MOST_SAMPLES
    assert taken(clock, 0.001, 1.0, kernel=STEADY, kernel_cold=NOISY) == MOST_SAMPLES


def test_sampling_stops_as_soon_as_noise_settles(clock):
    bad_start = (2.0, *STEADY * 30)
    assert taken(clock, 0.001, 1.0, kernel=bad_start) == FEWEST_SAMPLES
    worse_start = (2.0,) * 3 + STEADY * 30
    assert FEWEST_SAMPLES < taken(clock, 0.001, 1.0, kernel=worse_start) < MOST_SAMPLES


def test_unsettled_sampling_stops_when_its_time_is_up(clock):
    assert taken(clock, 1 / 16, 1.0, kernel=NOISY) == 17
    assert taken(clock, 0.5, 1.0, kernel=NOISY) == FEWEST_FOR_INTERVAL
    assert taken(clock, 0.5, 1.0, kernel=STEADY) == FEWEST_AT_ALL, "with all of them near the median"
    assert taken(clock, 0.5, 1.0, kernel=STEADY, kernel_cold=NOISY) == FEWEST_FOR_INTERVAL
    assert taken(clock, 0.25, 1.0, kernel=STEADY) == 5, "the first after the time is used up"
    assert taken(clock, 100.0, 1.0, kernel=NOISY) == FEWEST_AT_ALL, "too slow to wait for an interval"
    assert taken(clock, 0.0, 0.0, kernel=NOISY) == MOST_SAMPLES, "no time is used up yet"
    assert taken(clock, 0.01, 0.0, kernel=NOISY) == FEWEST_AT_ALL


def test_the_stopping_rule_is_described_with_its_numbers():
    rule = stopping_rule(0.2)
    assert rule["seconds_per_figure"] == 0.2
    assert rule["settled"] == {"interval_within": SETTLED, "confidence": 0.95}
    assert rule["fewest_samples"] == {
        "settled": FEWEST_SAMPLES,
        "time_up": FEWEST_FOR_INTERVAL,
        "time_up_and_settled": FEWEST_AT_ALL,
        f"time_up_{PATIENCE}_times": FEWEST_AT_ALL,
    }
