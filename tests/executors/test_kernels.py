"""The CUDA executor with stand-ins for its drivers: what is loaded, launched and with which arguments."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from alexconv.errors import MissingTool
from alexconv.executors.cuda import device
from alexconv.executors.cuda import executor as cuda
from alexconv.executors.cuda.kernels import Kernels
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.shapes import WORKLOADS

ALEXNET = WORKLOADS["alexnet"]
ATTRIBUTES = ("MAX_DYNAMIC_SHARED_SIZE_BYTES", "NUM_REGS", "SHARED_SIZE_BYTES", "LOCAL_SIZE_BYTES")


class Driver:
    """cuda-bindings' driver, as far as kernels need it."""

    CUfunction_attribute = SimpleNamespace(**{f"CU_FUNC_ATTRIBUTE_{name}": name for name in ATTRIBUTES})

    CUlimit = SimpleNamespace(CU_LIMIT_PERSISTING_L2_CACHE_SIZE=6)

    def __init__(self):
        self.loaded, self.unloaded, self.allowed, self.entries = [], [], {}, []

    def cuDeviceGet(self, number):
        return 0, number

    def cuDevicePrimaryCtxRetain(self, device):
        return 0, 5

    def cuCtxGetCurrent(self):
        return 0, 5

    def cuCtxSynchronize(self):
        return (0,)

    def cuCtxGetLimit(self, limit):
        return 0, 0

    def cuModuleLoadData(self, cubin):
        self.loaded.append(cubin)
        return 0, cubin

    def cuModuleUnload(self, module):
        self.unloaded.append(module)
        return (0,)

    def cuModuleGetFunction(self, module, entry):
        self.entries.append(entry.decode())
        return 0, len(self.entries) - 1

    def cuModuleGetGlobal(self, module, name):
        return 0, 4096, 64

    def cuFuncSetAttribute(self, function, attribute, value):
        self.allowed[self.entries[function]] = value
        return (0,)

    def cuFuncGetAttribute(self, attribute, function):
        return 0, ATTRIBUTES.index(attribute)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function, threads, shared):
        return 0, 3


class Launches:
    """A stand-in for ready_launch that records what is enqueued: entry, shared bytes, dependence, stream and words."""

    def __init__(self, driver):
        self.driver, self.enqueued = driver, []

    def __call__(self, function, config, places):
        entry = self.driver.entries[function]
        assert self.driver.allowed.get(entry, 0) >= config.shared  # 48 KB without an opt-in, less static shared memory

        def launch():
            words = [ctypes.c_int64.from_address(place).value for place in places]
            self.enqueued.append((entry, config.shared, bool(config.count), config.stream, words))
            return 0

        return launch


class Pycuda:
    """PyCUDA's driver, as far as an executor and its kernels need it."""

    Error = type("Error", (Exception,), {})
    MemoryError = type("MemoryError", (Error,), {})

    def __init__(self):
        self.uploaded = []
        self.device_attribute = SimpleNamespace(
            MULTIPROCESSOR_COUNT=132,
            MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=227 * 1024,
            MAX_SHARED_MEMORY_PER_MULTIPROCESSOR=228 * 1024,
            L2_CACHE_SIZE=60 << 20,
            MAX_THREADS_PER_MULTIPROCESSOR=2048,
        )
        self.Device.count = lambda: 1

    class Device:
        def __init__(self, number):
            self.name, self.compute_capability = lambda: "stand-in", lambda: (9, 0)
            self.pci_bus_id = lambda: "0"

        def get_attribute(self, value):
            return value

        def retain_primary_context(self):
            return Pycuda.Context()

    class Context:
        def push(self):
            pass

        @staticmethod  # as PyCUDA has it
        def pop():
            pass

    class Stream:
        handle = 7

    def get_driver_version(self):
        return 13000

    def mem_alloc(self, nbytes):
        return 1 << 20

    def memcpy_htod(self, address, values):
        self.uploaded.append((address, values))


@pytest.fixture
def driver(monkeypatch):
    """The driver of cuda-bindings, which are installed."""
    stand_in = Driver()
    monkeypatch.setattr(device, "require_bindings", lambda what: stand_in)
    return stand_in


@pytest.fixture
def pycuda(monkeypatch):
    stand_in = Pycuda()
    monkeypatch.setattr(device, "import_driver", lambda: stand_in)
    monkeypatch.setattr(cuda.nvcc, "nvcc_version", lambda: "13.0")
    monkeypatch.setattr(cuda.nvcc, "capabilities", lambda: ((9, 0),))
    monkeypatch.setattr(cuda.nvcc, "compile_cubin", lambda path, macros, arch, *, lasting: path.name.encode())
    return stand_in


@pytest.fixture
def executor(pycuda):
    executor = cuda.CudaExecutor()
    yield executor
    executor.leave()


@pytest.fixture
def launches(driver, monkeypatch):
    stand_in = Launches(driver)
    monkeypatch.setattr("alexconv.executors.cuda.kernels.ready_launch", stand_in)
    return stand_in


def bound_rung(rung, layer, **chosen):
    conv = ALEXNET.layer(layer)
    return BoundRung(RUNGS[rung], conv, RUNGS[rung].resolve(conv, chosen))


def addresses_of(bound):
    names = {array.name for array in (*bound.rung.scratch, *bound.rung.prepared)} | {"x", "w", "y"}
    return {name: 10**9 * number for number, name in enumerate(sorted(names), start=1)}


STREAM = SimpleNamespace(handle=7)


def test_a_cubin_is_loaded_once(driver, launches, executor):
    bound = bound_rung("mma-split", 2)
    loaded, again = executor.load(bound), executor.load(bound)
    addresses = addresses_of(bound)
    loaded.prepare(addresses, STREAM)
    loaded.enqueue(3, addresses, STREAM)
    again.enqueue(3, addresses, STREAM.handle, pdl=True)
    facts = loaded.launches(3)
    assert driver.loaded == [b"mma_split.cu"]
    assert [fact["entry"] for fact in facts] == bound.entries()
    assert all((fact["registers"], fact["static_shared"], fact["local"]) == (1, 2, 3) for fact in facts)
    assert facts[-1]["occupancy"] == 3 * bound.launches(3)[0].block[0] / 2048
    assert all(enqueued[3] == 7 for enqueued in launches.enqueued)
    del loaded
    assert driver.unloaded == []
    del again
    assert driver.unloaded == [b"mma_split.cu"]
    executor.load(bound)
    assert len(driver.loaded) == 2, "unloaded kernels are loaded again"


def test_programs_with_filters_in_constant_memory_have_modules_of_their_own(driver, executor):
    bound = bound_rung("tiled-constant", 1)
    both = [executor.load(bound), executor.load(bound)]
    assert len(driver.loaded) == 2
    assert [program.constant_filters for program in both] == [4096, 4096]
    assert executor.load(bound_rung("tiled", 1)).constant_filters is None


def test_only_a_launch_after_another_kernel_is_a_programmatic_dependent_one(driver, launches, executor):
    bound = bound_rung("mma-split", 2)
    loaded = executor.load(bound)
    for pdl in (False, True):
        loaded.enqueue(1, addresses_of(bound), STREAM, pdl=pdl)
    assert [pdl for _, _, pdl, *_ in launches.enqueued] == [False, True]
    shared = [shared for _, shared, *_ in launches.enqueued]
    assert shared[0] == bound.launches(1)[0].dynamic_shared <= shared[1]


def test_a_kernel_keeps_the_most_shared_memory_that_a_launch_of_it_needs(driver, launches):
    kernels = Kernels(driver, b"cubin", driver.cuModuleUnload)
    launch = BoundRung(RUNGS["direct"], ALEXNET.layer(2), {"THREAD_OUTPUTS": 1}).launches(1)[0]
    for shared in (100_000, 60_000, 0):
        kernels.step(launch, shared)
    assert driver.allowed == {"direct": 100_000}


def test_micro_batches_offset_x_and_y_and_have_their_own_maps(driver, launches, executor, pycuda, monkeypatch):
    monkeypatch.setattr(
        "alexconv.executors.cuda.tensor_maps.encode", lambda tensor_map, p, address: np.array([p.N, address])
    )
    bound = bound_rung("wgmma-window-scaled", 1, MICRO_BATCH=64)
    loaded, addresses = executor.load(bound), addresses_of(bound)
    loaded.enqueue(150, addresses, STREAM)
    of_input = [words for function, *_, words in launches.enqueued if function == "prepare_input"]
    assert [words[0] - addresses["x"] for words in of_input] == [
        first * bound.image_bytes["x"] for first, _ in bound.micro_batches(150)
    ]
    products = [words for function, *_, words in launches.enqueued if function == "multiply"]
    args = next(launch.args for launch in bound.launches(64) if launch.entry == "multiply")
    assert [dict(zip(args, words, strict=True))["N"] for words in products] == [64, 64, 22]
    places = [address for address, _ in pycuda.uploaded]
    assert sorted({int(N) for _, (N, _) in pycuda.uploaded}) == [22, 64]
    assert len(places) == 2 * len(bound.rung.maps), "a map serves every micro-batch of its size"
    assert len(set(places)) == len(places) == len(loaded.maps), "no map is overwritten"
    assert all(address % 64 == 0 for address in places)


def test_without_cuda_bindings_one_line_says_what_to_install(monkeypatch, pycuda):
    monkeypatch.setattr("alexconv.executors.cuda.bindings.import_bindings", lambda: None)
    with pytest.raises(MissingTool, match=r"the CUDA backend needs cuda-bindings: pip install 'alexconv\[gpu\]'"):
        cuda.CudaExecutor()


def test_an_executor_that_leaves_keeps_the_others_contexts(driver, pycuda, monkeypatch):
    registered = []
    monkeypatch.setattr(
        device, "atexit", SimpleNamespace(register=registered.append, unregister=lambda gone: registered.remove(gone))
    )
    first, second = cuda.CudaExecutor(), cuda.CudaExecutor()
    second.leave()
    assert [leave.__self__ for leave in registered] == [first.gpu]
