"""Rungs that multiply floats as halves are as accurate where the floats are beyond the range of halves."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import pytest
from rung_runs import run_once, small_layer, whole

from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.executors import choose_executor
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
from alexconv.planning.checks import Expected, MaxError, exact_inputs
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

SCALED = [rung for rung in LADDER if any(array.name == "filter_exponents" for array in rung.prepared)]
# Two channels, or two columns, share a word of two halves.
CONVS = {
    "even channels": (Conv(C=10, H=9, W=9, M=20, R=3, S=3), {"CHANNELS": 2, "SPLITS": 2}),
    "odd channels": (Conv(C=3, H=23, W=23, M=20, R=5, S=5, U=2), {"CHANNELS": 1, "SPLITS": 1}),
}
# In some rungs several warps share a pixel's channels; in Winograd's an image is two tiles of pixels, or one.
FAINT = {rows: Conv(C=64, H=rows, W=12, M=8, R=rows, S=3) for rows in (3, 2)}
MAGNITUDES = {
    "usual": np.ones(8),
    "small": np.full(8, 1e-3),
    "tiny": np.full(8, 1e-35),
    "large": np.full(8, 1e5),
    "huge": np.full(8, 1e30),
    "growing": np.array([0, 0, 1e-30, 1e-10, 1e-3, 1, 1e5, 1e20]),
    "growing at once": np.array([1e-10, 1e20, 1e-3, 1, 1e5, 0, 1e10, 1e10]),
    "shrinking": np.array([1e20, 1e5, 1, 1e-3, 1e-10, 1e-30, 0, 0]),
    "zero": np.zeros(8),
}

FILTERS = (1.0, 1e-6, 1e4)


def error(
    rung: Rung, conv: Conv, constants: dict[str, int], x: np.ndarray, w: np.ndarray, reach: int = 0, build: str = "fast"
) -> MaxError:
    y = run_once(choose_executor("host", host_build=build), x, w, whole(rung, conv, len(x), **constants))
    largest = MaxError()
    largest.add(y, Expected(reference(conv, x, w), patch_norms(conv, x, reach), filter_norms(w)))
    return largest


def takes(rung: Rung, shape: str) -> bool:
    conv, constants = CONVS[shape]
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, constants))) is None


def takes_faint(rung: Rung, conv: Conv) -> bool:
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))) is None


def cases() -> Iterator:
    """Each rung with one of the shapes that it takes, in turn."""
    for place, rung in enumerate(SCALED):
        shapes = [shape for shape in CONVS if takes(rung, shape)]
        for shape in shapes[place % max(1, len(shapes)) :][:1]:
            yield pytest.param(rung, shape, id=f"{rung.name}-{shape}")


with_shapes = pytest.mark.parametrize("rung, shape", [*cases()])


@with_shapes
def test_errors_are_within_the_class_whatever_the_range(rung: Rung, shape: str):
    """Each range of inputs with filters of one size, of another size for the next rung."""
    conv, constants = CONVS[shape]
    filters = dict(zip(MAGNITUDES, islice(cycle(FILTERS), SCALED.index(rung), None), strict=False))
    failed = []
    for name, magnitudes in MAGNITUDES.items():
        generator = np.random.default_rng(0)
        x = generator.uniform(-1, 1, conv.x_shape(2)) * np.resize(magnitudes, (conv.C, 1, 1))
        w = generator.uniform(-1, 1, conv.w_shape()) * filters[name]
        largest = error(rung, conv, constants, x.astype(np.float32), w.astype(np.float32))
        if not largest.passes(PRECISIONS[rung.precision].tolerance(conv.K)):
            failed.append((name, filters[name], largest.scaled))
    assert not failed


def lonely_inputs(conv: Conv, images: int) -> np.ndarray:
    """Images of zeros, but for a one in a corner and one value that halves of the same scale cannot represent."""
    draw = np.random.default_rng(0)
    x = np.zeros(conv.x_shape(images), np.float32)
    x[:, 0, 0, 0] = 1
    for image in x:
        image[draw.integers(conv.C), draw.integers(1, conv.H), draw.integers(conv.W)] = 1e-12
    return x


@with_shapes
def test_a_single_tiny_input_counts(rung: Rung, shape: str):
    conv, constants = CONVS[shape]
    w = np.random.default_rng(1).uniform(-1, 1, conv.w_shape()).astype(np.float32)
    assert error(rung, conv, constants, lonely_inputs(conv, 8), w).passes(PRECISIONS[rung.precision].tolerance(conv.K))


def faint_inputs(conv: Conv) -> np.ndarray:
    """Each pixel in turn is the only one that halves of the image's scale cannot represent; the last pixel is a one."""
    x = np.zeros(conv.x_shape(conv.H * conv.W), np.float32)
    x[:, 0, -1, -1] = 1
    for place, image in enumerate(x):
        image[place % conv.C].flat[place] += np.float32(1e-12)
    return x


@pytest.mark.parametrize(
    "rung, conv",
    [
        pytest.param(rung, conv, id=f"{rung.name}-{rows} rows")
        for rung in SCALED
        for rows, conv in FAINT.items()
        if takes_faint(rung, conv) and (rows == 3 or rung.name == "wgmma-winograd")
    ],
)
def test_a_faint_pixel_counts_wherever_it_is(rung: Rung, conv: Conv):
    w, precision = (
        np.random.default_rng(1).uniform(-1, 1, conv.w_shape()).astype(np.float32),
        PRECISIONS[rung.precision],
    )
    largest = error(rung, conv, {}, faint_inputs(conv), w, precision.guarantee.reach, "unoptimized")
    assert largest.passes(precision.tolerance(conv.K))


@pytest.mark.parametrize(
    "rung", [rung for rung in LADDER if any(array.lasting for array in rung.scratch)], ids=lambda rung: rung.name
)
def test_what_a_piece_leaves_suits_the_next_one_of_another_size(rung: Rung):
    conv, N, images = replace(small_layer(rung), C=64), 11, 6
    x, w = exact_inputs(conv, N, PRECISIONS[rung.precision], seed=1)
    x[:, 0, 4, 5] = np.inf
    split = {name: value for name, value in {"SPLITS": 4, "CHANNELS": 16}.items() if name in rung.resolve(conv, {})}
    bound = BoundRung(rung, conv, rung.resolve(conv, split, N))
    cut = Plan(bound, N, images, bound.device_bytes(images))
    with open_rung(choose_executor("host", host_build="unoptimized"), cut, x, w, TRANSFERS["pageable"]) as opened:
        for run in range(3):
            np.testing.assert_array_equal(opened.outputs(stale=run > 0), reference(conv, x, w))
