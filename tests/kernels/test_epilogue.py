"""What epilogues add to sums and where they store outputs, on the host executor."""

from collections.abc import Iterator
from dataclasses import replace
from math import erf, sqrt

import numpy as np
import pytest
from rung_runs import run_once, whole

from alexconv.cpu_reference.reference import reference
from alexconv.executors import choose_executor
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.interface import in_rung_layout
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import RESIDUAL
from alexconv.planning.checks import exact_bias, exact_inputs
from alexconv.planning.layouts import to_study
from alexconv.planning.planner import Plan
from alexconv.precisions import PRECISIONS
from alexconv.shapes import FORWARD, Conv

IMAGES, Y_CHANNELS = 3, 40
LAYER = Conv(C=16, H=9, W=11, M=24, R=3, S=3, top=1, bottom=1, left=1, right=1, bias=True, relu=True)
IN_PLACE = replace(LAYER, residual=True, y_channels=Y_CHANNELS)
TWO_GROUPS = replace(IN_PLACE, groups=2)
TAKING = [rung for rung in LADDER if "residual" in rung.takes and rung.direction == FORWARD and not rung.gpu_only]


@pytest.fixture(scope="module")
def executor():
    return choose_executor("host", host_build="unoptimized")


def outputs(executor, rung, conv, x, w, bias, residual):
    """The whole array ``[N][y_channels][E][F]`` that the rung leaves; memory that it does not write is NaN."""
    bound = BoundRung(rung, conv, rung.resolve(conv, {}, len(x)))
    x, w = (in_rung_layout(values, name, rung) for values, name in ((x, "x"), (w, "w")))
    plan = Plan(bound, len(x), len(x), bound.device_bytes(len(x)))
    buffers = HostBuffers(executor.runtime, executor.load(bound), plan, x, w, bias=bias.astype(rung.dtype))
    lying = np.full((len(x), conv.y_channels, conv.E, conv.F), np.nan, np.float32)
    lying[:, : conv.M] = residual
    lying = in_rung_layout(lying, "y", rung)
    buffers.buffers[RESIDUAL] = executor.runtime.allocate(lying.nbytes, RESIDUAL)
    buffers.buffers[RESIDUAL].array(lying.dtype, lying.shape)[:] = lying
    buffers.inputs.add(RESIDUAL)
    return to_study(buffers.outputs(), rung.layout).astype(np.float32)


def cases() -> Iterator:
    """Rungs with one group and, of those that take groups, every other with two."""
    for place, rung in enumerate(TAKING):
        grouped = not rung.refuses(Problem(TWO_GROUPS, IMAGES, rung.resolve(TWO_GROUPS, {}, IMAGES)))
        yield pytest.param(rung, TWO_GROUPS if grouped and place % 2 else IN_PLACE, id=rung.name)


@pytest.mark.parametrize("rung, conv", [*cases()])
def test_a_residual_is_added_and_a_slice_of_channels_stored(executor, rung, conv):
    (x, w), bias = exact_inputs(conv, IMAGES, PRECISIONS[rung.precision], seed=1), exact_bias(conv, seed=1)
    residual = np.random.default_rng(0).integers(-9, 10, conv.y_shape(IMAGES)).astype(np.float32)
    if rung.precision != "fp16":
        residual[0, 0, 0, 0] = np.inf
    sums = reference(replace(conv.alone(), bias=True), x, w, bias)
    y = outputs(executor, rung, conv, x, w, bias, residual)
    np.testing.assert_array_equal(y[:, : conv.M], np.maximum(sums + residual, 0))
    assert np.isnan(y[:, conv.M :]).all()


@pytest.mark.parametrize("name", ["wgmma-half", "wgmma-floats-split", "wgmma-split"])
def test_outputs_that_are_computed_again_keep_their_residual(executor, name):
    """An image with an infinity is computed a second time by some rungs, after its outputs are stored."""
    rung, conv = RUNGS[name], TWO_GROUPS if name == "wgmma-half" else IN_PLACE
    (x, w), bias = exact_inputs(conv, IMAGES, PRECISIONS[rung.precision], seed=1), exact_bias(conv, seed=1)
    x[1, 3, 4, 5], w[:, :, :, :] = np.inf, np.where(w == 0, 1, w)
    residual = np.random.default_rng(0).integers(-9, 10, conv.y_shape(IMAGES)).astype(np.float32)
    expected = reference(replace(conv.alone(), bias=True), x, w, bias) + residual
    y = outputs(executor, rung, conv, x, w, bias, residual)[:, : conv.M]
    np.testing.assert_array_equal(y, np.where(expected < 0, 0, expected))


@pytest.mark.parametrize(("named", "due"), [
    ({"relu": True, "ceiling": 6}, lambda y: np.clip(y, 0, 6)),
    ({"silu": True}, lambda y: y / (1 + np.exp(-y))),
    ({"gelu": True}, lambda y: y / 2 * (1 + np.vectorize(erf)(y / sqrt(2)))),
], ids=["ReLU6", "SiLU", "GELU"])  # fmt: skip
@pytest.mark.parametrize("name", ["direct-any", "mma-half"])
def test_activations(executor, name, named, due):
    rung, conv = RUNGS[name], replace(LAYER.alone(), bias=True, **named)
    draw = np.random.default_rng(2)
    x, w, bias = (draw.uniform(-1, 1, shape).astype(rung.dtype) for shape in (conv.x_shape(1), conv.w_shape(), conv.M))
    cut = whole(rung, conv, 1)
    y = run_once(executor, x, w, cut, bias=bias).astype(np.float64)
    sums = reference(replace(conv.alone(), bias=True), *(values.astype(np.float32) for values in (x, w, bias)))
    assert sums.max() > 6 and sums.min() < -6
    np.testing.assert_allclose(y, due(sums.astype(np.float64)), atol=4e-3 if rung.dtype == "float16" else 1e-5)
