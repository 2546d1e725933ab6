"""Inputs of a submission's runs, the same inside and outside the sandbox, and the check of its outputs."""

import numpy as np

from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.data import uniform
from alexconv.executors.interface import Values
from alexconv.planning.checks import Expected, MaxError, exact_inputs
from alexconv.precisions import PRECISIONS, Bound
from alexconv.shapes import Conv

UNIFORM, INTEGERS = "uniform", "integers"
PRECISION = PRECISIONS["fp32"]  # of every submission


def inputs(conv: Conv, images: int, data: str, seed: int) -> tuple[Values, Values]:
    """Input ``[N][C][H][W]`` and filters ``[M][C][R][S]``, float32: uniform in [-1, 1], or integers with exact sums."""
    if data == INTEGERS:
        return exact_inputs(conv, images, PRECISION, seed)
    generator = np.random.default_rng([seed, *conv.sizes().values(), images])
    return uniform(generator, conv.x_shape(images)), uniform(generator, conv.w_shape())


def fault(conv: Conv, x: Values, w: Values, y: Values, data: str) -> str | None:
    """What is wrong with outputs ``[N][M][E][F]``, or None: one of three sentences, none of which has a value of y."""
    expected = reference(conv, x, w)
    if data == INTEGERS:
        return "outputs are wrong on integers" if (y != expected).any() else None
    error, tolerance = MaxError(), PRECISION.tolerance(conv.K)
    with np.errstate(all="ignore"):
        error.add(y, Expected(expected, patch_norms(conv, x), filter_norms(w)), Bound(tolerance))
    if error.scaled <= tolerance:
        return None
    return "outputs are NaN or not written" if np.isnan(y).any() else "outputs differ by more than the tolerance"
