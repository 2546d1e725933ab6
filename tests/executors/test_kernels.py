"""Programs of the CUDA executor with a stand-in for the driver: what is loaded, launched and with which arguments."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from alexconv.executors.cuda import executor as cuda
from alexconv.executors.cuda.kernels import Kernels
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200
from alexconv.shapes import WORKLOADS

ALEXNET = WORKLOADS["alexnet"]
ATTRIBUTES = ("MAX_DYNAMIC_SHARED_SIZE_BYTES", "NUM_REGS", "SHARED_SIZE_BYTES", "LOCAL_SIZE_BYTES")


class Driver:
    """cuda-bindings' driver, as far as kernels need it."""

    CUfunction_attribute = SimpleNamespace(**{f"CU_FUNC_ATTRIBUTE_{name}": name for name in ATTRIBUTES})

    def __init__(self):
        self.loaded, self.unloaded, self.allowed = [], [], {}

    def cuModuleLoadData(self, cubin):
        self.loaded.append(cubin)
        return 0, cubin

    def cuModuleUnload(self, module):
        self.unloaded.append(module)
        return (0,)

    def cuModuleGetFunction(self, module, entry):
        return 0, entry.decode()

    def cuModuleGetGlobal(self, module, name):
        return 0, 4096, 64

    def cuFuncSetAttribute(self, function, attribute, value):
        self.allowed[function] = value
        return (0,)

    def cuFuncGetAttribute(self, attribute, function):
        return 0, ATTRIBUTES.index(attribute)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function, threads, shared):
        return 0, 3


class Launches:
    """PackedLaunch in place of a launch: notes what it enqueues."""

    def __init__(self):
        self.made, self.enqueued = [], []

    def __call__(self, driver, function, grid, block, shared, parameters, *, pdl=False):
        self.made.append((function, grid, shared, pdl))
        assert driver.allowed.get(function, 48 * 1024) >= shared
        launch = self.made[-1]
        return SimpleNamespace(enqueue=lambda stream, words: self.enqueued.append((*launch, stream, list(words))))


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(cuda, "import_bindings", lambda: made)
    return made


@pytest.fixture
def launches(monkeypatch):
    made = Launches()
    monkeypatch.setattr("alexconv.executors.cuda.kernels.PackedLaunch", made)
    return made


def program(rung, layer, **chosen):
    conv = ALEXNET.layer(layer)
    bound = BoundRung(RUNGS[rung], conv, RUNGS[rung].resolve(conv, chosen))
    executor = SimpleNamespace(has_pdl=True, device=H200, attribute=lambda name: 2048)
    return cuda.CudaProgram(executor, bound, b"cubin"), bound


STREAM = SimpleNamespace(handle=7)


def test_a_cubin_is_loaded_once_whatever_is_asked_of_it(driver, launches):
    loaded, bound = program("mma-split", 2)
    names = {array.name for array in (*bound.rung.scratch, *bound.rung.prepared)} | {"x", "w", "y"}
    addresses = dict.fromkeys(names, 4096)
    loaded.prepare(addresses, STREAM)
    loaded.enqueue(3, addresses, STREAM)
    loaded.enqueue(3, addresses, STREAM, pdl=True)
    facts = loaded.launches(3)
    assert driver.loaded == [b"cubin"]
    assert [fact["entry"] for fact in facts] == bound.entries()
    assert all((fact["registers"], fact["static_shared"], fact["local"]) == (1, 2, 3) for fact in facts)
    assert facts[-1]["occupancy"] == 3 * bound.launches(3)[0].block[0] / 2048
    assert all(enqueued[4] == 7 for enqueued in launches.enqueued)
    del loaded
    assert driver.unloaded == [b"cubin"]


def test_only_a_launch_behind_another_kernel_is_a_programmatic_dependent_one(driver, launches):
    loaded, bound = program("mma-split", 2)
    names = {array.name for array in (*bound.rung.scratch, *bound.rung.prepared)} | {"x", "w", "y"}
    addresses = dict.fromkeys(names, 4096)
    for pdl in (False, True):
        loaded.enqueue(1, addresses, STREAM, pdl=pdl)
    assert [pdl for *_, pdl, _, _ in launches.enqueued] == [False, True]
    shared = [shared for _, _, shared, *_ in launches.enqueued]
    assert shared[0] == bound.launches(1)[0].dynamic_shared <= shared[1]


def test_a_kernel_keeps_the_most_shared_memory_that_a_launch_of_it_needs(driver, launches):
    kernels = Kernels(driver, b"cubin", driver.cuModuleUnload)
    launch = BoundRung(RUNGS["direct"], ALEXNET.layer(2), {"THREAD_OUTPUTS": 1}).launches(1)[0]
    for shared in (100_000, 60_000, 0):
        kernels.step(launch, shared)
    assert driver.allowed == {"direct": 100_000}


def test_micro_batches_move_x_and_y_and_have_maps_of_their_own(driver, launches, monkeypatch):
    monkeypatch.setattr(cuda, "encode", lambda tensor_map, p, address: np.array([p.N, address]))
    loaded, bound = program("wgmma-window-scaled", 1, IMAGES_AT_A_TIME=64)
    maps = []
    loaded._executor.driver = SimpleNamespace(to_device=lambda encoded: maps.append(encoded) or 100 + len(maps))
    names = [array.name for array in (*bound.rung.scratch, *bound.rung.prepared)]
    addresses = {name: 10**9 * number for number, name in enumerate(["x", "w", "y", *names], start=1)}
    loaded.enqueue(150, addresses, STREAM)
    of_input = [words for function, *_, words in launches.enqueued if function == "prepare_input"]
    assert [words[0] - addresses["x"] for words in of_input] == [
        first * bound.image_bytes["x"] for first, _ in bound.micro_batches(150)
    ]
    products = [words for function, *_, words in launches.enqueued if function == "multiply"]
    args = next(launch.args for launch in bound.launches(64) if launch.entry == "multiply")
    assert [dict(zip(args, words, strict=True))["N"] for words in products] == [64, 64, 22]
    assert sorted({int(N) for N, _ in maps}) == [22, 64]
    assert len(maps) == 2 * len(bound.rung.maps), "a map serves every micro-batch of its size"


def test_filters_in_constant_memory_have_the_symbols_address(driver):
    loaded, _ = program("tiled-constant", 1)
    buffers = SimpleNamespace(allocate=lambda nbytes: nbytes)
    assert loaded.filters(buffers, 64) == 4096
    loaded.bound = replace(loaded.bound, rung=RUNGS["tiled"])
    assert loaded.filters(buffers, 64) == 64
