"""Rungs that bring floats into the range of halves: whatever the magnitudes, the error is that of the class."""

import numpy as np
import pytest

from alexconv.checks import PRECISIONS
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.rung import Rung
from alexconv.planner import plan
from alexconv.shapes import Conv
from alexconv.transfers import TRANSFERS

SCALED = [rung for rung in LADDER if rung.precision in ("tf32", "fp32") and rung.needs >= (8, 0)]
SHAPES = (Conv(C=3, H=23, W=23, M=5, R=5, S=5, U=3), Conv(C=19, H=8, W=9, M=5, R=3, S=3))
OF_IMAGES = (1.0, 0.0, 1e-3, 3e4, 1e-30, 1e25, 1.0)
OF_FILTERS = (1.0, 1e-6, 1e7)


def reference64(conv: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Outputs in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (conv.R, conv.S), axis=(2, 3))[:, :, :: conv.U, :: conv.U]
    return np.einsum("ncefrs,mcrs->nmef", windows, w)


@pytest.mark.parametrize("magnitude", OF_FILTERS)
@pytest.mark.parametrize(
    "rung, conv",
    [(rung, conv) for rung in SCALED for conv in SHAPES if not rung.refuses(conv, rung.resolve(conv, {}))],
    ids=lambda value: value.name if isinstance(value, Rung) else str(value),
)
def test_images_of_all_magnitudes_in_one_batch(rung: Rung, conv: Conv, magnitude: float):
    constants = rung.resolve(conv, {})
    N = len(OF_IMAGES)
    rng = np.random.default_rng(5)
    x = (rng.uniform(-1, 1, conv.x_shape(N)) * np.reshape(OF_IMAGES, (N, 1, 1, 1))).astype(np.float32)
    w = (rng.uniform(-1, 1, conv.w_shape()) * magnitude).astype(np.float32)
    executor = choose_executor("host")
    program = executor.load(rung, conv, constants)
    y = executor.open(program, plan(rung, conv, N, constants, 1 << 34), x, w, TRANSFERS["pageable"]).outputs()
    x64, w64 = x.astype(np.float64), w.astype(np.float64)
    norms = (
        np.sqrt(reference64(conv, x64**2, np.ones((1, *w.shape[1:])))) * np.sqrt((w64**2).sum((1, 2, 3)))[:, None, None]
    )
    error = np.abs(y - reference64(conv, x64, w64))
    tolerance = PRECISIONS[rung.precision].tolerance(conv.K)
    for n, of_image in enumerate(OF_IMAGES):
        assert (error[n] <= tolerance * norms[n]).all(), f"image {n}, values up to {of_image}"
