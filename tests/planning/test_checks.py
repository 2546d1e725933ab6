"""The checks pass roundings and nothing else (promise 4)."""

import math

import numpy as np
import pytest

from alexconv.planning.checks import PRECISIONS, MaxError, exact_inputs
from alexconv.shapes import WORKLOADS, Conv

CONV = Conv(C=6, H=9, W=11, M=3, R=3, S=2, U=2)


def patches(conv: Conv, x: np.ndarray) -> np.ndarray:
    """``[N][E][F][C][R][S]``"""
    windows = np.lib.stride_tricks.sliding_window_view(x, (conv.R, conv.S), axis=(2, 3))
    return windows[:, :, :: conv.U, :: conv.U].transpose(0, 2, 3, 1, 4, 5)


def measured(conv: Conv, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> MaxError:
    windows = patches(conv, x.astype(np.float64))
    reference = np.einsum("nefcrs,mcrs->nmef", windows, w.astype(np.float64))
    error = MaxError()
    norms = np.sqrt((windows**2).sum(axis=(3, 4, 5))), np.sqrt((w.astype(np.float64) ** 2).sum(axis=(1, 2, 3)))
    error.add(y, reference.astype(np.float32), *(values.astype(np.float32) for values in norms))
    return error


def inputs(conv: Conv, N: int = 2) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    return tuple(generator.uniform(-1, 1, shape).astype(np.float32) for shape in (conv.x_shape(N), conv.w_shape()))


def summed(conv: Conv, x: np.ndarray, w: np.ndarray, dtype: type) -> np.ndarray:
    """Output with every product added one after the other in ``dtype``."""
    windows = patches(conv, x.astype(dtype)).reshape(len(x), conv.E, conv.F, -1)
    y = np.zeros(conv.y_shape(len(x)), dtype)
    for k, taps in enumerate(w.astype(dtype).reshape(conv.M, -1).T):
        y += windows[:, None, :, :, k] * taps[:, None, None]
    return y


@pytest.mark.parametrize(("name", "dtype"), [("fp32", np.float32), ("half", np.float16)])
@pytest.mark.parametrize("conv", [CONV, Conv(C=384, H=5, W=5, M=4, R=3, S=3)], ids=["small", "K=3456"])
def test_sums_in_the_class_pass(name, dtype, conv):
    x, w = inputs(conv)
    assert measured(conv, x, w, summed(conv, x, w, dtype)).passes(PRECISIONS[name].tolerance(conv.K))


def test_fp32_is_not_passed_by_half_arithmetic():
    x, w = inputs(CONV)
    assert not measured(CONV, x, w, summed(CONV, x, w, np.float16)).passes(PRECISIONS["fp32"].tolerance(CONV.K))


@pytest.mark.parametrize("layer", range(1, 6))
def test_the_fp32_tolerance_is_below_a_typical_tap(layer):
    conv = WORKLOADS["alexnet"].layer(layer)
    typical_tap = 0.25 / (conv.K / 3)  # mean |x w| over the mean product of norms, for uniform values
    assert PRECISIONS["fp32"].tolerance(conv.K) < typical_tap / 50


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_value_that_is_not_a_number_fails(value):
    x, w = inputs(CONV)
    y = summed(CONV, x, w, np.float32)
    y[1, 2, 3, 4] = value
    assert not measured(CONV, x, w, y).passes(PRECISIONS["fp32"].tolerance(CONV.K))


def test_a_nan_in_an_early_block_is_not_forgotten():
    one, nan = np.ones((1, 1, 1, 1), np.float32), np.full((1, 1, 1, 1), np.nan, np.float32)
    error = MaxError()
    for y in (nan, one):
        error.add(y, one, np.ones((1, 1, 1), np.float32), np.ones(1, np.float32))
    assert not error.passes(1.0)


def test_an_output_of_an_empty_patch_must_be_zero():
    nothing = np.zeros((1, 1, 1), np.float32), np.ones(1, np.float32)
    zero, wrong = np.zeros((1, 1, 1, 1), np.float32), np.full((1, 1, 1, 1), 1e-6, np.float32)
    good, bad = MaxError(), MaxError()
    good.add(zero, zero, *nothing)
    bad.add(wrong, zero, *nothing)
    assert good.passes(1e-7) and not bad.passes(1e-7)


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("conv", [CONV, WORKLOADS["alexnet"].layer(4)], ids=["small", "K=3456"])
def test_exact_inputs_are_exact_in_the_class(name, conv):
    precision = PRECISIONS[name]
    x, w = exact_inputs(conv, 1, precision, seed=3)
    largest = np.abs(x).max() * np.abs(w).sum(axis=(1, 2, 3))
    assert (largest <= precision.exact_integer).all()
    assert (x == np.round(x)).all() and (w == np.round(w)).all()
    assert x.any() and (np.abs(w).sum(axis=(1, 2, 3)) > 0).all()
