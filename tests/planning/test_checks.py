"""The checks pass roundings and nothing else (promise 4)."""

import gc
import math
import weakref
from dataclasses import replace

import numpy as np
import pytest

from alexconv.cpu_reference.reference import reference
from alexconv.planning import checks
from alexconv.planning.checks import Expected, MaxError, exact_batch, exact_inputs, exact_integers
from alexconv.precisions import ANY, PRECISIONS, TILE, USUAL, WALK, Bound
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
    error.add(y, Expected(reference.astype(np.float32), *(values.astype(np.float32) for values in norms)))
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


def test_half_arithmetic_fails_the_fp32_check():
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
        error.add(y, Expected(one, np.ones((1, 1, 1), np.float32), np.ones(1, np.float32)))
    assert not error.passes(1.0)


def test_an_output_of_an_empty_patch_must_be_zero():
    nothing = np.zeros((1, 1, 1), np.float32), np.ones(1, np.float32)
    zero, wrong = np.zeros((1, 1, 1, 1), np.float32), np.full((1, 1, 1, 1), 1e-6, np.float32)
    good, bad = MaxError(), MaxError()
    good.add(zero, Expected(zero, *nothing))
    bad.add(wrong, Expected(zero, *nothing))
    assert good.passes(1e-7) and not bad.passes(1e-7)


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("conv", [CONV, WORKLOADS["alexnet"].layer(4)], ids=["small", "K=3456"])
def test_exact_inputs_are_exact_in_the_class(name, conv):
    exact = PRECISIONS[name].exact
    x, w = exact_inputs(conv, 3, PRECISIONS[name], seed=3)
    powers = [np.resize(steps, len(values)) for steps, values in zip(exact.powers, (x, w), strict=True)]
    unscaled = [np.ldexp(values, -power[:, None, None, None]) for values, power in zip((x, w), powers, strict=True)]
    assert all((values == np.round(values)).all() for values in unscaled)
    sums = reference(conv, *(np.abs(values) for values in unscaled))
    assert min(exact.sum, exact.value * conv.K) / 20 < sums.max() <= exact.sum
    assert np.abs(unscaled[0]).max() <= exact.value
    if exact.nearby:  # a lone largest value would move a kernel to unrounded floats
        assert (np.abs(unscaled[0]) >= 2.0 ** np.floor(np.log2(np.abs(unscaled[0]).max()))).mean() > 0.05
    assert unscaled[1].all(), "a tap that is zero may be left out"
    assert (x != 0).any(axis=(0, 2, 3)).all()
    y = reference(conv, x, w)
    largest, least = (
        float(info) for info in ((np.finfo(np.float32).max, 2.0**-126) if exact.sum > 2**11 else (65504, 2.0**-24))
    )
    assert np.abs(y).max() <= largest and np.abs(y[y != 0]).min() >= least


PADDED = Conv(C=3, H=13, W=12, M=5, R=5, S=4, U=2, top=2, bottom=1, left=1, right=2, bias=True)
BATCHED = {"small": CONV, "with a bias": PADDED, "with ReLU": replace(PADDED, bias=False, relu=True)}


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("conv", BATCHED.values(), ids=BATCHED)
@pytest.mark.parametrize("N", [1, 2, 7, 130])
@pytest.mark.parametrize("cached", [True, False], ids=["cached", "computed"])
def test_an_exact_batch_has_different_images_and_the_references_outputs(name, conv, N, cached, monkeypatch):
    monkeypatch.setattr(checks, "CHECKED_BYTES", 12 << 10)  # several blocks, the last one smaller
    if not cached:
        monkeypatch.setattr(checks, "CACHED_BYTES", 0)
    precision = replace(PRECISIONS[name], exact=replace(PRECISIONS[name].exact, nearby=0.0))
    batch = exact_batch(conv, N, precision, 3, reference)
    x = batch.images()
    assert len({image.tobytes() for image in x}) == N
    y = reference(conv, x, batch.w, batch.bias)
    assert batch.wrong(y) == 0
    sign = 1 if conv.bias or conv.relu else -1
    turned = reference(conv, sign * x[::-1], batch.w, batch.bias)
    assert batch.wrong(turned, turned=sign) == 0
    assert (batch.wrong(turned) > 0) == (N > 1 or sign < 0)
    for outputs in (y, turned):
        outputs[-1, 1, 2, 3] = 2 * abs(outputs[-1, 1, 2, 3]) + 1
        outputs[0, 0, 0, 0] = np.nan
    assert batch.wrong(y) == 2
    assert batch.wrong(turned, turned=sign) == 2


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_skipped_channel_of_any_image_changes_integers(name):
    for layer in WORKLOADS["alexnet"].layers:
        x, _ = exact_integers(layer, checks.BASES, PRECISIONS[name], seed=0)
        channels = x.reshape(*x.shape[:2], -1)
        assert (channels != 0).mean() > 0.47 and channels.shape[2] >= 225, "docs/precision.md has these numbers"
        assert (channels != 0).any(axis=2).all()


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_largest_error_shows_a_missing_tap_only_in_fp32(name):
    for layer in range(1, 6):
        assert PRECISIONS[name].tells_taps(WORKLOADS["alexnet"].layer(layer).K) == name.startswith("fp32")


def test_bounds_by_kind_of_data():
    """For sums of 100 products: usual is the smallest, any the largest, and larger still with a reach."""
    for precision in PRECISIONS.values():
        usual, walk, most = (precision.bound(100, kind) for kind in (USUAL, WALK, ANY))
        assert usual.factor <= walk.factor < most.factor
        assert usual.reach == 0
    assert PRECISIONS["fp32"].bound(100, ANY) == Bound(232 * 2.0**-24, 100 * 2.0**-149, 0, 2.0**127)
    assert PRECISIONS["fp32"].bound(100, WALK).factor == 76 * 2.0**-24
    assert TILE.bound(100, ANY) == Bound(35 * 264 * 2.0**-24, 100 * 2.0**-149, 7, 2.0**127)


def test_atomics_raise_only_the_absolute_term():
    for precision in PRECISIONS.values():
        for kind in (USUAL, WALK, ANY):
            plain = precision.bound(100, kind)
            assert precision.bound(100, kind, 7) == replace(plain, absolute=plain.absolute + 7 * 2.0**-126)


def judged_alone(y: float, reference: float, norms: float, bound: Bound) -> MaxError:
    error = MaxError()
    one = np.ones((1, 1, 1, 1), np.float32)
    expected = Expected(one * np.float32(reference), np.full((1, 1, 1), norms), np.ones(1))
    error.add(one * np.float32(y), expected, bound)
    return error


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    "y, reference, norms, misplaced",
    [
        (INF, INF, INF, 0),
        (NAN, NAN, NAN, 0),
        (-INF, INF, INF, 1),
        (NAN, INF, INF, 1),
        (INF, NAN, NAN, 1),
        (0, NAN, NAN, 1),
        (1, INF, INF, 1),
        (NAN, 1, 1, 1),
        (INF, 1, 1, 1),
        (INF, 1, 2.0**128, 0),  # finite values that overflow on the way
        (NAN, INF, 2.0**129, 0),
    ],
)
def test_misplaced_nan_and_infinities_are_counted(y, reference, norms, misplaced):
    error = judged_alone(y, reference, norms, PRECISIONS["fp32"].bound(100, ANY))
    assert error.misplaced == misplaced
    assert error.passes(1e-5) == (not misplaced)


@pytest.mark.parametrize("y, right", [(2.0**127, False), (-1e38, False), (3.4028e38, True)])
def test_a_finite_output_may_replace_an_overflow_only_near_the_limit(y, right):
    error = judged_alone(y, INF, 2.0**129, PRECISIONS["fp32"].bound(100, ANY))
    assert error.passes(1e-5) == right


def test_relu_may_turn_an_intermediate_overflow_into_zero():
    one, most, bound = np.ones((1, 1, 1, 1), np.float32), 2.0**129, PRECISIONS["fp32"].bound(100, ANY)
    for rectified, norms, right in ((True, most, True), (False, most, False), (True, 1.0, False)):
        error = MaxError()
        expected = Expected(INF * one, np.full((1, 1, 1), norms), np.ones(1), rectified=rectified)
        error.add(0 * one, expected, bound)
        assert error.passes(1e-5) == right


def test_underflow_has_an_absolute_term_and_no_more():
    bound = PRECISIONS["fp32"].bound(4, ANY)
    least = 2.0**-149
    assert judged_alone(5 * least, 1 * least, least, bound).passes(bound.factor)
    assert not judged_alone(40 * least, 1 * least, least, bound).passes(bound.factor)


def test_errors_are_also_relative_to_the_sums_of_products():
    error = MaxError()
    y = np.full((2, 1, 1, 1), 3, np.float32)
    error.add(y, Expected(y - 1, np.full((2, 1, 1), 10), np.ones(1), sums=np.full((1, 1, 1, 1), 5, np.float32)))
    assert (error.scaled, error.componentwise) == pytest.approx((0.1, 0.2))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("misplaced", [0, 1])
def test_each_images_error_is_independent_of_the_batch(monkeypatch, dtype, grouped, misplaced):
    random = np.random.default_rng(1)
    reference = random.standard_normal((7, 4, 5, 6)).astype("f4")
    reference[5, 0, 0, 0] = 1e5  # beyond fp16: its error is not that of the largest number, unless the image is judged
    with np.errstate(over="ignore"):
        y = (reference + 1e-3 * random.standard_normal(reference.shape)).astype(dtype).clip(-65504, 65504)
    patch_norms = random.random((7, 4, 5, 6) if grouped else (7, 5, 6), dtype="f4")
    patch_norms[5] = 1e6
    filter_norms = random.random(4)
    reference[[0, 4], 1, 2, 3] = y[[0, 4], 1, 2, 3] = np.nan  # where it is due
    y[6, 0, 0, 0] = np.inf if misplaced else 0
    bound = Bound(1e-3, absolute=1e-6, limit=2.0**15)

    def added(images: slice) -> MaxError:
        error = MaxError()
        expected = Expected(reference[images], patch_norms[images], filter_norms, reference[:2][images])
        error.add(y[images], expected, bound)
        return error

    alone = [added(slice(image, image + 1)) for image in range(7)]
    for images in (2, 3, 100):
        monkeypatch.setattr(checks, "CHECKED_BYTES", images * reference[0].nbytes)
        together = added(slice(None))
        for name in ("absolute", "scaled", "componentwise"):
            due = np.max([getattr(error, name) for error in alone])
            np.testing.assert_equal(getattr(together, name), due)
        assert together.misplaced == sum(error.misplaced for error in alone) == misplaced


def test_outputs_that_were_checked_are_freed_without_a_collection():
    y, norms = np.ones((3, 2, 4, 4), np.float32), np.ones((3, 4, 4))
    checked = weakref.ref(y)
    gc.collect()
    gc.disable()
    try:
        MaxError().add(y, Expected(y.copy(), norms, np.ones(2)))
        del y
        assert checked() is None, "page-locked memory would wait for a collection, in a thread without a context"
    finally:
        gc.enable()
