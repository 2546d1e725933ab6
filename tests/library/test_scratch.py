"""Calls of different rungs share scratch memory, so its contents before a launch must not matter, unless they last."""

import numpy as np
import pytest

from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import Conv

CONVS, N = (Conv(C=72, H=7, W=8, M=24, R=3, S=3), Conv(C=3, H=15, W=15, M=16, R=5, S=5, U=2)), 2
SCRATCH = [rung.name for rung in LADDER if rung.scratch]  # auto may choose any of these


@pytest.mark.parametrize("name", SCRATCH)
def test_scratch_arrays_may_have_any_bytes_before_a_launch(name):
    rung, random = RUNGS[name], np.random.default_rng(0)
    if rung.gpu_only:
        pytest.skip(f"needs a GPU: {rung.gpu_only}")
    bound = next(bound for bound in (BoundRung(rung, c, rung.resolve(c, {}, N)) for c in CONVS) if not bound.refusal())
    x, w = (random.uniform(-1, 1, size).astype(rung.dtype) for size in (bound.conv.x_shape(N), bound.conv.w_shape()))
    cut = plan(bound, N, 1 << 34)
    with open_rung(HostExecutor("unoptimized"), cut, x, w, TRANSFERS["pageable"]) as opened:
        expected = opened.outputs().copy()
        shared = [array.name for array in rung.scratch if not array.lasting]
        assert shared
        for seed in range(2):
            for array in shared:
                memory = opened.buffers.buffers[array].bytes
                memory[:] = np.random.default_rng(seed).integers(0, 256, len(memory), np.uint8)
            np.testing.assert_array_equal(opened.outputs(stale=True), expected)


def test_only_split_rungs_have_lasting_counters():
    assert {name for name in SCRATCH if any(array.lasting for array in RUNGS[name].scratch)} == {
        name for name in SCRATCH if any(constant.name == "SPLITS" for constant in RUNGS[name].constants)
    }
