"""Memory: allocations match the plan within every budget, and host memory is bounded too."""

import os
import subprocess
import sys
import tracemalloc
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attack_size import FACTOR, keep

from alexconv.executors import choose_executor
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.rung import Rung
from alexconv.paths import CACHE_VARIABLE
from alexconv.planning.layouts import STUDY
from alexconv.planning.planner import MEBIBYTE, DoesNotFit, Plan, plan_on
from alexconv.planning.transfers import TRANSFERS
from alexconv.records.store import read
from alexconv.shapes import WORKLOADS

N, BUDGETS = 2048, (64, 128, 500, 4000)  # images; MiB
OTHERS = ("convnet-benchmarks", 31), ("resnext-regnet", 1), ("first-last", 6)  # for rungs that take no study's layer
LAYERS = [*WORKLOADS["alexnet"].layers, *WORKLOADS["lenet-86-k7"].layers]
LAYERS += [WORKLOADS[workload].layer(number) for workload, number in OTHERS]
DRIVERS_STEP = 2 << 20  # bytes: the driver's allocation granularity
NEAR = 0.05  # allowed relative difference between a peak and the plan


class Allocator:
    """A stand-in for the run-time that adds up allocations and backs them with no memory."""

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
def test_allocations_match_the_plan_and_fit_every_budget(rung: Rung, host: HostExecutor) -> None:
    planned = 0
    for conv in LAYERS:
        for budget in BUDGETS:
            try:
                cut = plan_on(host, BoundRung(rung, conv, rung.resolve(conv, {}, N), host.device), N, budget * MEBIBYTE)
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
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.planning.planner import MEBIBYTE, plan_on
from alexconv.shapes import WORKLOADS

def resident():  # counted page by page: the numbers of statm lag behind by some pages for each core
    (line,) = [line for line in open("/proc/self/smaps_rollup") if line.startswith("Rss:")]
    return int(line.split()[1]) * 1024

rung, conv, budget = RUNGS[sys.argv[1]], WORKLOADS["alexnet"].layer(1), int(sys.argv[2]) * MEBIBYTE
executor = HostExecutor()
cut = plan_on(executor, BoundRung(rung, conv, rung.resolve(conv, {}, 2048), executor.device), 2048, budget)
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
from alexconv.cpu_reference.cache import LayerData
from alexconv.measuring.runner import Layer
from alexconv.shapes import WORKLOADS

resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
N, conv = int(sys.argv[1]), WORKLOADS["alexnet"].layer(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layer = Layer(LayerData("alexnet", 1, conv), N)
layer.make("x", "w", "reference", "norms")
needed = 4 * (prod(conv.x_shape(N)) + 2 * prod(conv.y_shape(N)))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, needed)
"""
HOST_BYTES = 8 << 30  # for 2048 images
MARGIN = 384 * MEBIBYTE  # for what does not grow with the batch


def test_host_memory_stays_within_the_amount_checked_beforehand(tmp_path: Path, cache: Path) -> None:
    """N=64 in the suite, N=2048 in `make attack`, in a process limited to 8 GiB."""
    images = min(N, round(64 * FACTOR))
    environment = {**os.environ, CACHE_VARIABLE: str(cache)}
    command = [sys.executable, "-c", HOST, str(images), str(HOST_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    measured, needed = map(int, done.stdout.split())
    assert measured <= needed + MARGIN
    assert needed / images * N + MARGIN < HOST_BYTES
    keep(f"peaks of the host's memory, {images} images", 1, "more than was asked for beforehand, or than 8 GiB")


def test_images_that_turn_or_change_their_layout_are_held_once(host: HostExecutor) -> None:
    rung, conv = next(rung for rung in LADDER if rung.layout != STUDY), WORKLOADS["alexnet"].layer(1)
    cut = plan_on(host, BoundRung(rung, conv, rung.resolve(conv, {}, 64), host.device), 64, 4000 * MEBIBYTE)
    x = np.arange(prod(conv.x_shape(64)), dtype=np.float32).reshape(conv.x_shape(64)) % 100
    executor = SimpleNamespace(
        load=lambda bound: None, open=lambda program, cut, x, w, transfer: SimpleNamespace(x=x, close=lambda: None)
    )
    tracemalloc.start()
    try:
        with open_rung(executor, cut, x.copy(), np.zeros(conv.w_shape()), TRANSFERS["pageable"]) as opened:  # type: ignore[arg-type]
            converted, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            opened.turn(-1)
            _, turned = tracemalloc.get_traced_memory()
            assert (opened.in_study_layout(opened.buffers.x) == -x[::-1]).all()
    finally:
        tracemalloc.stop()
    assert converted < 1.1 * x.nbytes
    assert turned < 1.1 * x.nbytes


RUNS = 4  # the first also loads kernels and driver state; other processes' memory counts too, and may change


def taken_on_device(executor: Any) -> int:
    free, total = executor.gpu.driver.mem_get_info()
    return int(total - free)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("budget", [64, 256, 8192])
@pytest.mark.parametrize("rung", ["direct-register", "unroll-matmul", "igemm", "mma-split", "wgmma-split"])
def test_the_measured_peak_on_a_gpu_is_the_plan(rung: str, budget: int) -> None:
    """From the first array to the end of a run; the driver rounds up each array's memory."""
    executor, conv, chosen = choose_executor("cuda"), WORKLOADS["alexnet"].layer(2), RUNGS[rung]
    bound = BoundRung(chosen, conv, chosen.resolve(conv, {}, N, executor.device), executor.device)
    cut = plan_on(executor, bound, N, budget * MEBIBYTE)
    x = np.zeros(chosen.x_shape(conv, N), chosen.dtype)
    w = np.zeros(conv.w_shape(), chosen.dtype)
    program = executor.load(cut.bound)
    peaks = []
    for _ in range(RUNS):
        before = taken_on_device(executor)
        opened = executor.open(program, cut, x, w, TRANSFERS["pageable"])
        opened.outputs()
        peaks.append(taken_on_device(executor) - before)
        opened.close()
    arrays = len(opened.bytes) + 1 + len(opened.prepared_bytes)
    near = max(NEAR * cut.device_bytes, arrays * DRIVERS_STEP)
    assert min(abs(peak - cut.device_bytes) for peak in peaks[1:]) <= near, peaks
    print(f"{rung}, budget {budget} MiB: planned {cut.device_bytes}, measured {peaks}")
    keep("peaks of a GPU's memory against the plan", 1, "more than 5 % and the driver's steps off")


RUN = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "alexconv.run", *sys.argv[1:]], capture_output=True, text=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, done.returncode, done.stdout, done.stderr)
"""


@pytest.mark.gpu
@pytest.mark.alone
def test_a_whole_run_of_2048_images_fits_eight_gibibytes_of_host_memory(tmp_path: Path, cache: Path) -> None:
    """Without the CPU baseline, whose memory does not grow with the batch."""
    words = ["--layers", "1", "--N", str(N), "--rungs", "direct-register,wgmma-split-resident", "--backend", "cuda"]
    words += ["--no-baseline", "--seconds", "0.01", "--out", str(tmp_path / "r.jsonl")]
    environment = {**os.environ, CACHE_VARIABLE: str(cache)}
    command = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    peak, status = map(int, done.stdout.split()[:2])
    assert status == 0, done.stdout
    print(f"peak of the host's memory: {peak}")
    assert peak < HOST_BYTES
    assert [record["status"] for record in read([tmp_path / "r.jsonl"]).points] == ["ok", "ok"]
    keep("peaks of the host's memory, a run of 2048 images", 1, "more than 8 GiB")
