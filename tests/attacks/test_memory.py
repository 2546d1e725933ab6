"""Memory: what is allocated is what was planned, within every budget; the host's share is bounded too."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from attack_size import FACTOR, keep

from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.rung import Rung
from alexconv.paths import CACHE_VARIABLE
from alexconv.planning.planner import MEBIBYTE, DoesNotFit, Plan, plan_on
from alexconv.shapes import WORKLOADS

N, BUDGETS = 2048, (64, 128, 500, 4000)  # images; MiB
LAYERS = [*WORKLOADS["alexnet"].layers, *WORKLOADS["lenet-86-k7"].layers]
NEAR = 0.05  # by which share a peak may differ from the plan


class Allocator:
    """Stands for the run-time: it adds up what is allocated, and hands out memory that nobody has to have."""

    def __init__(self) -> None:
        self.nbytes = 0

    def allocate(self, nbytes: int, name: str) -> SimpleNamespace:
        self.nbytes += nbytes
        memory = np.broadcast_to(np.zeros(1, np.uint8), 0)
        return SimpleNamespace(
            bytes=memory.copy(),
            array=lambda dtype, shape: np.empty(shape, dtype),
            read_only=lambda: open(os.devnull),  # noqa: PTH123  any context
        )


def allocated(rung: Rung, cut: Plan) -> int:
    """Bytes that opening a planned rung allocates for the device."""
    counted = Allocator()
    conv, dtype = cut.bound.conv, rung.dtype
    w = np.zeros(conv.w_shape(), dtype)
    symbol = SimpleNamespace(symbol=lambda name: np.empty(w.nbytes, np.uint8))
    program = SimpleNamespace(bound=cut.bound, module=symbol, prepare=lambda buffers: None)
    x = np.broadcast_to(np.zeros((), dtype), conv.x_shape(N))
    HostBuffers(counted, program, cut, x, w)  # type: ignore[arg-type]
    return counted.nbytes


@pytest.fixture(scope="module")
def host() -> HostExecutor:
    return HostExecutor()


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_what_is_allocated_is_the_plan_and_fits_every_budget(rung: Rung, host: HostExecutor) -> None:
    planned = 0
    for conv in LAYERS:
        for budget in BUDGETS:
            try:
                cut = plan_on(host, rung, conv, N, rung.resolve(conv, {}, N), budget * MEBIBYTE)
            except DoesNotFit:
                continue
            planned += 1
            assert allocated(rung, cut) == pytest.approx(cut.device_bytes, rel=NEAR)
            assert cut.device_bytes <= budget * MEBIBYTE
            assert cut.pieces[0][0] == 0
            assert cut.pieces[-1][1] == N
    assert planned
    keep("plans within memory budgets", planned, "allocations beyond the budget, or more than 5 % off the plan")


PEAK = """
import sys
import numpy as np
from types import SimpleNamespace
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import RUNGS
from alexconv.planning.planner import MEBIBYTE, plan_on
from alexconv.shapes import WORKLOADS

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

rung, conv, budget = RUNGS[sys.argv[1]], WORKLOADS["alexnet"].layer(1), int(sys.argv[2]) * MEBIBYTE
executor = HostExecutor()
cut = plan_on(executor, rung, conv, 2048, rung.resolve(conv, {}, 2048), budget)
x = np.broadcast_to(np.zeros((), np.float32), conv.x_shape(2048))
w = np.zeros(conv.w_shape(), np.float32)
program = SimpleNamespace(bound=cut.bound, prepare=lambda buffers: None)
before = resident()
opened = HostBuffers(executor.runtime, program, cut, x, w)
opened.bring_in(0, cut.images_per_piece)
print((resident() - before) / cut.device_bytes, cut.device_bytes / budget)
"""


@pytest.mark.parametrize("budget", [64, 256])
@pytest.mark.parametrize("rung", ["direct-register", "unroll-matmul"])
def test_the_measured_peak_is_the_plan(rung: str, budget: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, rung, str(budget)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    measured, used = map(float, done.stdout.split())
    assert measured == pytest.approx(1, rel=NEAR)
    assert 0.5 < used <= 1
    keep("peaks measured against the plan", 1, "more than 5 % off")


HOST = """
import resource, sys
from math import prod
from alexconv.measuring.runner import Layer
from alexconv.shapes import WORKLOADS

N, conv = int(sys.argv[1]), WORKLOADS["alexnet"].layer(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layer = Layer("alexnet", 1, conv, N, 0)
layer.make("x", "w", "reference", "norms")
needed = 4 * (prod(conv.x_shape(N)) + 2 * prod(conv.y_shape(N)))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, needed)
"""
MARGIN = 384 * MEBIBYTE  # for what does not grow with the batch


def test_the_hosts_memory_is_bounded_by_what_is_asked_for_beforehand(tmp_path: Path, cache: Path) -> None:
    """N=64 in the suite, N=2048 in `make attack`, which the bound says takes less than 8 GiB."""
    images = min(N, round(64 * FACTOR))
    environment = {**os.environ, CACHE_VARIABLE: str(cache)}
    command = [sys.executable, "-c", HOST, str(images)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    measured, needed = map(int, done.stdout.split())
    assert measured <= needed + MARGIN
    assert needed / images * N + MARGIN < 8 << 30
    keep("peaks of host memory", 1, "beyond the bound")
