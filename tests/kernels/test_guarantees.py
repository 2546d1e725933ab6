"""Each tensor-core rung keeps its class's bound on hard data, and gives infinities and NaN where float64 does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from rung_runs import run_once, whole

from alexconv.executors import choose_executor
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import TF32_OPERANDS, Rung
from alexconv.shapes import Conv

RUNGS = [rung for rung in LADDER if rung.family in ("mma", "wgmma")]
CONVS = {
    "even channels": (Conv(C=10, H=9, W=9, M=20, R=3, S=3), {"CHANNELS": 2, "SPLITS": 2}),
    "odd channels": (Conv(C=3, H=23, W=23, M=20, R=5, S=5, U=2), {"CHANNELS": 1, "SPLITS": 1}),
    "stride 4": (Conv(C=3, H=31, W=31, M=9, R=7, S=7, U=4), {"CHANNELS": 3, "SPLITS": 1}),
    "one channel": (Conv(C=1, H=13, W=13, M=9, R=5, S=5), {"CHANNELS": 1, "SPLITS": 1}),
}
EIGHT = "eight channels"  # for rungs that take none of the others
CONVS[EIGHT] = Conv(C=8, H=9, W=9, M=20, R=3, S=3), {}
SEGMENTS = "filter rows in segments"  # for Winograd alone
CONVS[SEGMENTS] = Conv(C=10, H=12, W=23, M=5, R=11, S=11), {}
REACH = 7  # columns by which a tile of fp32-tile exceeds a patch on each side


@dataclass
class Data:
    """Input ``[N][C][H][W]`` and filters ``[M][C][R][S]``, zero-mean random values at first."""

    x: np.ndarray
    w: np.ndarray
    random: np.random.Generator


def place(data: Data, value: float) -> None:
    """A value in the middle of image 1."""
    _, C, H, W = data.x.shape
    data.x[1, C // 2, H // 2, W // 2] = value


def into_filter(data: Data, value: float) -> None:
    data.w[3, 0, 1, 1] = value


def scale_filters(data: Data, decades: int) -> None:
    data.w *= 10.0 ** data.random.uniform(-decades, decades, (len(data.w), 1, 1, 1))


def relu(data: Data) -> None:
    np.maximum(data.x, 0, out=data.x)


def scale_images(data: Data) -> None:
    data.x *= np.array([1e-18, 1e12]).reshape(2, 1, 1, 1)


def heavy_tail(data: Data) -> None:
    data.x *= np.exp(data.random.normal(0, 4, data.x.shape))


def faint_half(data: Data, factor: float) -> None:
    data.x[:, :, : data.x.shape[2] // 2] *= factor


def subnormal(data: Data) -> None:
    data.x *= 1e-41


def cancel(data: Data) -> None:
    """Neighbouring taps that cancel, with large values among small ones."""
    data.x[..., ::3] *= 1e6
    data.w[:, :, :, 1:] = -data.w[:, :, :, :-1]


HARD: dict[str, Callable[[Data], None]] = {
    "uniform": lambda data: None,
    "relu": relu,
    "heavy tail": heavy_tail,
    "filters 1e-10 to 1e10": lambda data: scale_filters(data, 10),
    "filters 1e-30 to 1e30": lambda data: scale_filters(data, 30),
    "images 1e-18 and 1e12": scale_images,
    "one of 1e20": lambda data: place(data, 1e20),
    "one of 1e6": lambda data: place(data, 1e6),
    "one of 1e-30": lambda data: place(data, 1e-30),
    "upper half 1e-6": lambda data: faint_half(data, 1e-6),
    "upper half 1e-35": lambda data: faint_half(data, 1e-35),
    "upper half 0": lambda data: faint_half(data, 0),
    "subnormal": subnormal,
    "cancelling": cancel,
    "inf in x": lambda data: place(data, np.inf),
    "-inf in x": lambda data: place(data, -np.inf),
    "nan in x": lambda data: place(data, np.nan),
    "inf in a filter": lambda data: into_filter(data, np.inf),
    "nan in a filter": lambda data: into_filter(data, np.nan),
    "overflow": lambda data: place(data, 3e38),
}


def patches(conv: Conv, x: np.ndarray) -> np.ndarray:
    """``[N][E][F][C][R][S]``"""
    windows = np.lib.stride_tricks.sliding_window_view(x, (conv.R, conv.S), axis=(2, 3))[:, :, :: conv.U, :: conv.U]
    return windows.transpose(0, 2, 3, 1, 4, 5)


def tiles(conv: Conv, x: np.ndarray) -> np.ndarray:
    """The same with REACH more columns to each side, zeros beyond the plane."""
    wide = np.pad(x, ((0, 0), (0, 0), (0, 0), (REACH, REACH)))
    return patches(Conv(conv.C, conv.H, conv.W + 2 * REACH, conv.M, conv.R, conv.S + 2 * REACH, conv.U), wide)


def norms(blocks: np.ndarray) -> np.ndarray:
    """Norms over the last three axes."""
    return np.sqrt((blocks**2).sum((-3, -2, -1)))


def bound(rung: Rung, K: int, patch: np.ndarray, around: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The largest error that class and exceptions of a rung allow for every finite input; docs/precision.md.

    ``patch``, ``around`` (the tile for fp32-tile, else the patch) and ``w`` (filters) are norms.
    """
    precision, sums = rung.precision, (2 * K + 32) * 2.0**-24
    cut = K**0.5 * 2.0**-136 * (patch + w) if TF32_OPERANDS in rung.exceptions else 0.0
    if precision == "fp32":
        return sums * around * w + K * 2.0**-149
    if precision == "fp32-tile":
        return 35 * (2 * K + 64) * 2.0**-24 * around * w + K * 2.0**-149
    if precision == "tf32":
        return (1.25 * 2.0**-10 + sums) * around * w + K * 2.0**-149 + cut
    return (2.0**-11 + sums) * around * w + 2.0**-25


def takes(rung: Rung, shape: str) -> bool:
    if shape == EIGHT:
        return not any(takes(rung, other) for other in CONVS if other not in (EIGHT, SEGMENTS))
    if shape == SEGMENTS:
        return rung.name == "wgmma-winograd"
    conv, constants = CONVS[shape]
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, constants))) is None


def cases() -> Iterator:
    """All data on one of the shapes that a rung takes, and on the one for Winograd alone."""
    for place, rung in enumerate(RUNGS):
        shapes = [shape for shape in CONVS if shape != SEGMENTS and takes(rung, shape)]
        for shape in (shapes[place % len(shapes)], *([SEGMENTS] if takes(rung, SEGMENTS) else [])):
            yield pytest.param(rung, shape, id=f"{rung.name}-{shape}")


@pytest.mark.parametrize("rung, shape", [*cases()])
def test_outputs_keep_the_bound_of_their_class(rung: Rung, shape: str):
    failed = {hard: reason for hard in HARD if (reason := broken_promise(rung, shape, hard))}
    assert not failed


@dataclass(frozen=True)
class Expected:
    """Input ``[N][C][H][W]``, filters ``[M][C][R][S]``, and their outputs in float64, ``[N][M][E][F]``."""

    x: np.ndarray
    w: np.ndarray
    exact: np.ndarray
    sizes: np.ndarray  # sums of the products' magnitudes
    patch: np.ndarray  # norms, [N][1][E][F]
    tile: np.ndarray  # norms, [N][1][E][F]
    of_filter: np.ndarray  # norms, [1][M][1][1]


@cache
def expected(shape: str, hard: str, dtype: str) -> Expected:
    """For hard data rounded to a type."""
    conv, random = CONVS[shape][0], np.random.default_rng(1)
    data = Data(random.uniform(-1, 1, conv.x_shape(2)), random.uniform(-1, 1, conv.w_shape()), random)
    with np.errstate(all="ignore"):
        HARD[hard](data)
        single = [values.astype(dtype).astype(np.float32) for values in (data.x, data.w)]
        x, w = (values.astype(np.float64) for values in single)
        products = patches(conv, x)[:, None] * w[None, :, None, None]
        exact, sizes = products.sum((-3, -2, -1)), np.abs(products).sum((-3, -2, -1))
        patch, tile = norms(patches(conv, x))[:, None], norms(tiles(conv, x))[:, None]
        return Expected(*single, exact, sizes, patch, tile, norms(w)[None, :, None, None])


def broken_promise(rung: Rung, shape: str, hard: str) -> str | None:
    """What is wrong with the outputs on hard data."""
    conv, constants = CONVS[shape]
    data = expected(shape, hard, rung.dtype)
    exact = data.exact
    with np.errstate(all="ignore"):
        cut = whole(rung, conv, 2, **constants)
        y = run_once(choose_executor("host"), data.x, data.w, cut).astype(np.float64)
        around = data.tile if rung.precision == "fp32-tile" else data.patch
        allowed = bound(rung, conv.K, data.patch, around, data.of_filter)
        overflows = data.sizes > (2.0**15 if rung.dtype == "float16" else 2.0**127)
        finite = np.isfinite(exact)
        within = np.abs(y - exact) <= np.where(np.isfinite(allowed), allowed, np.inf)
    if not np.isnan(y[np.isnan(exact)]).all():
        return "no NaN where NaN is due"
    if not (y[np.isinf(exact)] == exact[np.isinf(exact)]).all():
        return "another value where an infinity is due"
    if not (within | overflows & ~np.isfinite(y))[finite].all():
        return f"off by {np.nanmax((np.abs(y - exact) / allowed)[finite]):.1e} of the bound"
    return None
