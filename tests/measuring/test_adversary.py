"""The search for the worst data: what it tries, that rungs withstand it, and that it finds a planted weakness."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rung_runs import run_once, whole

from alexconv.cpu_reference.reference import reference
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring import adversary
from alexconv.measuring.adversary import Target
from alexconv.precisions import ANY, PRECISIONS, WALK
from alexconv.shapes import Conv

CONV = Conv(C=4, H=5, W=7, M=3, R=3, S=2)
FLOAT, HALF = np.dtype("float32"), np.dtype("float16")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from((FLOAT, HALF)), changes=st.integers(0, 20))
def test_trials_are_finite_values_of_their_type(seed, dtype, changes):
    generator = np.random.default_rng(seed)
    trial = adversary.first_trial(CONV, 2, generator)
    for _ in range(changes):
        trial = adversary.changed(trial, CONV, 2, adversary.SPREAD[dtype], generator)
    x, w = adversary.arrays(trial, CONV, 2, dtype)
    assert (x.shape, w.shape) == (CONV.x_shape(2), CONV.w_shape())
    assert all(np.isfinite(values).all() and (values.astype(dtype) == values).all() for values in (x, w))
    np.testing.assert_array_equal(adversary.arrays(trial, CONV, 2, dtype)[0], x)
    assert trial.kind == (ANY if trial.significands == "repeated" else WALK)


def result_of(run, precision="fp32", trials=200, dtype=FLOAT):
    return adversary.search(Target(run, CONV, 2, PRECISIONS[precision], dtype), trials)


def test_rounding_the_exact_result_withstands_the_search():
    result = result_of(lambda x, w: reference(CONV, x, w))
    assert (result.trials, result.ratio) == (200, 0)


def in_fp16_with_one_exponent(x, w):
    """Products in fp16, with one scale for all inputs and one for all filters."""

    def halves(values):
        largest = np.abs(values).max()
        factor = 1.0 if largest == 0 else 2.0 ** (14 - np.ceil(np.log2(largest)))
        return ((values * factor).astype(np.float16) / factor).astype(np.float32)

    with np.errstate(all="ignore"):
        return reference(CONV, halves(x), halves(w))


def test_one_exponent_for_all_values_does_not_withstand_it():
    result = result_of(in_fp16_with_one_exponent, "tf32")
    assert result.ratio > 1
    assert result.trial.described()["powers"] or result.trial.singles
    uniform = adversary.first_trial(CONV, 2, np.random.default_rng(0))
    target = Target(in_fp16_with_one_exponent, CONV, 2, PRECISIONS["tf32"], FLOAT)
    assert adversary.judged(target, uniform)[0] < 1, "on uniform data it is within the class"
    assert adversary.judged(target, result.trial)[0] == result.ratio


def test_an_output_that_is_nan_breaks_any_bound():
    def spoilt(x, w):
        y = reference(CONV, x, w)
        y[0, 0, 0, 0] = np.nan
        return y

    result = result_of(spoilt, trials=3)
    assert (result.ratio, result.misplaced) == (float("inf"), 1)


@pytest.mark.parametrize("name", ["direct-register", "direct-half", "mma-half"])
def test_rungs_withstand_the_search(name):
    rung, executor = RUNGS[name], choose_executor("host")
    cut, dtype = whole(rung, CONV, 2), np.dtype(rung.dtype)

    def run(x, w):
        return run_once(executor, x, w, cut).astype(np.float32)

    result = adversary.search(Target(run, CONV, 2, PRECISIONS[rung.precision], dtype), 20)
    assert 0 < result.ratio <= 1, replace(result, trial=None)
