"""Every rung keeps what its class promises on every data set, on the host executor and on a GPU."""

from functools import cache

import numpy as np
import pytest
from rung_runs import run_once, whole

from alexconv.cpu_reference.cache import FLOAT32
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Layer
from alexconv.shapes import Conv

N = 3  # images: finite, with an infinity, with a NaN
SHAPES = {
    "deep": Conv(C=16, H=9, W=12, M=24, R=3, S=3, pad=1),
    "strided": Conv(C=3, H=19, W=15, M=12, R=5, S=4, U=2),
}
TENSOR_CORES = ("mma", "wgmma")


@cache
def layer(shape: str, data: str, dtype: str) -> Layer:
    """Inputs and reference of a shape that is of no workload."""
    return Layer("hard", 1, SHAPES[shape], N, 0, data, FLOAT32 if data == UNIFORM else dtype)


def failures(executor, rung: Rung, shape: str) -> list[str]:
    """The data sets on which a rung breaks its promise, and how far it is off."""
    cut, found = whole(rung, SHAPES[shape], N), []
    for data in DATA_SETS:
        inputs = layer(shape, data, rung.dtype)
        with np.errstate(over="ignore"):
            y = run_once(executor, inputs.x, inputs.w, cut)
        error, tolerance = inputs.check(y, rung.precision)
        if not error.passes(tolerance):
            found.append(f"{data}: {error.scaled:.1e} of {tolerance:.1e}, {error.misplaced} misplaced")
    return found


def takes(rung: Rung, shape: str) -> bool:
    conv = SHAPES[shape]
    return rung.refuses(Problem(conv, N, rung.resolve(conv, {}))) is None


CASES = [
    pytest.param(rung, shape, id=f"{rung.name}-{shape}")
    for shape in SHAPES
    for rung in LADDER
    if takes(rung, shape) and (shape == "deep" or rung.family in TENSOR_CORES)
]


@pytest.mark.parametrize("rung, shape", [case for case in CASES if not case.values[0].gpu_only])
def test_a_rung_keeps_its_promise_on_all_data(rung: Rung, shape: str):
    assert failures(choose_executor("host"), rung, shape) == []


@pytest.mark.gpu
@pytest.mark.parametrize("rung, shape", CASES)
def test_a_rung_keeps_its_promise_on_all_data_on_a_gpu(rung: Rung, shape: str):
    assert failures(choose_executor("cuda"), rung, shape) == []


def test_every_class_says_what_it_promises_and_tells_wrong_from_right():
    """A result that is off by twice the bound fails on each data set; NaN in place of a number fails on all."""
    for data in set(DATA_SETS) - {"zeros"}:
        inputs = layer("deep", data, FLOAT32)
        error, tolerance = inputs.check(inputs.reference, "fp32")
        assert error.passes(tolerance) and error.misplaced == 0
        finite = np.isfinite(inputs.reference)
        place = tuple(np.argwhere(finite)[-1])
        for value in (np.nan, np.inf, inputs.reference[place] + 2 * tolerance * norms(inputs, place)):
            wrong = inputs.reference.copy()
            wrong[place] = value
            assert not inputs.check(wrong, "fp32")[0].passes(tolerance), (data, value)
        if not finite.all():
            wrong = inputs.reference.copy()
            wrong[tuple(np.argwhere(np.isnan(wrong) if np.isnan(wrong).any() else ~finite)[0])] = 0
            assert not inputs.check(wrong, "fp32")[0].passes(tolerance), data


def norms(inputs: Layer, place: tuple[int, ...]) -> float:
    n, m, e, f = place
    patches, filters = inputs.norms
    return max(float(patches[n, e, f] * filters[m]), 1e-36)
