"""Layers as networks have them, on a GPU: padding, strides, dilation, bias and ReLU by every rung that takes them."""

from functools import partial

import numpy as np
import pytest
from rung_runs import compile_ahead

from alexconv.cpu_reference.reference import reference
from alexconv.executors import choose_executor
from alexconv.executors.interface import Executor, open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
from alexconv.planning.checks import exact_bias, exact_inputs
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

N = 3
SHAPES = {
    "3x3": Conv(C=64, H=14, W=13, M=96, R=3, S=3, top=1, bottom=1, left=1, right=1, bias=True, relu=True),
    "3x3, few channels": Conv(C=24, H=14, W=13, M=40, R=3, S=3, top=1, bottom=2, left=2, right=0, relu=True),
    "5x5, few channels": Conv(C=16, H=28, W=28, M=40, R=5, S=5, top=2, bottom=2, left=2, right=2, bias=True),
    "3x3, stride 2": Conv(C=128, H=28, W=28, M=128, R=3, S=3, U=2, top=1, bottom=1, left=1, right=1),
    "1x1": Conv(C=72, H=14, W=14, M=64, R=1, S=1, bias=True),
    "1x1, stride 2": Conv(C=64, H=15, W=14, M=72, R=1, S=1, U=2),
    "7x7, stride 2": Conv(C=3, H=62, W=64, M=64, R=7, S=7, U=2, top=3, bottom=3, left=3, right=3, bias=True),
    "11x11, stride 4": Conv(C=3, H=64, W=62, M=64, R=11, S=11, U=4, top=2, bottom=2, left=2, right=2, relu=True),
    "2 groups": Conv(C=96, H=27, W=27, M=96, R=5, S=5, top=2, bottom=2, left=2, right=2, groups=2, bias=True),
    "5 groups": Conv(C=120, H=14, W=13, M=45, R=3, S=3, U=2, top=1, left=1, groups=5, bias=True),
    "32 groups": Conv(C=128, H=14, W=13, M=128, R=3, S=3, top=1, bottom=1, left=1, right=1, groups=32),
    "10 groups of 12": Conv(C=120, H=9, W=11, M=40, R=3, S=3, top=1, bottom=1, left=1, right=1, groups=10),
    "2 groups of 4": Conv(C=8, H=14, W=13, M=8, R=3, S=3, top=1, bottom=1, left=1, right=1, groups=2),
    "2 groups of 36": Conv(C=72, H=9, W=11, M=40, R=3, S=3, left=1, right=1, groups=2, bias=True),
    "depthwise": Conv(C=48, H=29, W=28, M=48, R=5, S=5, U=2, top=2, bottom=2, left=2, right=2, groups=48, bias=True),
    "dilated": Conv(C=32, H=20, W=21, M=32, R=3, S=3, U=2, V=3, top=4, left=5, dilation_rows=2, dilation_columns=3),
}

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cuda(request: pytest.FixtureRequest) -> Executor:
    executor = choose_executor("cuda")
    compile_ahead(request, executor, partial(bound_of, executor))
    return executor


def bound_of(executor: Executor, rung: Rung, shape: str) -> BoundRung:
    conv = SHAPES[shape]
    return BoundRung(rung, conv, rung.resolve(conv, {}, N, executor.device), executor.device)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.takes], ids=lambda rung: rung.name)
def test_integers_come_out_exactly(cuda: Executor, rung: Rung, shape: str) -> None:
    bound, conv = bound_of(cuda, rung, shape), SHAPES[shape]
    if reason := cuda.unsuited(rung) or rung.refuses(Problem(conv, N, bound.constants, cuda.device)):
        pytest.skip(reason)
    (x, w), bias = exact_inputs(conv, N, PRECISIONS[rung.precision], seed=1), exact_bias(conv, seed=1)
    with open_rung(cuda, Plan(bound, N, N, bound.device_bytes(N)), x, w, TRANSFERS["pageable"], bias) as opened:
        for stale in (False, True):
            y = opened.outputs(stale=stale).astype(np.float32)
            np.testing.assert_array_equal(y, reference(conv, x, w, bias))
