"""The CUDA executor with stand-ins for its drivers: what is loaded, launched and with which arguments."""

from types import SimpleNamespace

import numpy as np
import pytest

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
        self.loaded, self.unloaded, self.allowed = [], [], {}

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
    """A stand-in for PackedLaunch that records what it enqueues."""

    def __init__(self):
        self.made, self.enqueued = [], []

    def __call__(self, driver, function, grid, block, shared, parameters, *, pdl=False):
        self.made.append((function, grid, shared, pdl))
        assert driver.allowed.get(function, 48 * 1024) >= shared
        launch = self.made[-1]
        return SimpleNamespace(enqueue=lambda stream, words: self.enqueued.append((*launch, stream, list(words))))


class Pycuda:
    """PyCUDA's driver, as far as an executor and its kernels need it."""

    function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")

    def __init__(self):
        self.loaded, self.launched, self.allowed, self.uploaded = [], [], {}, []
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

    def module_from_buffer(self, cubin):
        self.loaded.append(cubin)
        return SimpleNamespace(get_function=self.function, get_global=lambda name: (8192, 64))

    def function(self, entry):
        def launch(grid, block, stream, *arguments, shared_size):
            self.launched.append((entry, grid, block, stream, arguments, shared_size))

        return SimpleNamespace(
            prepare=lambda types: SimpleNamespace(prepared_async_call=launch),
            set_attribute=lambda attribute, value: self.allowed.update({entry: value}),
            num_regs=1,
            shared_size_bytes=2,
            local_size_bytes=3,
        )

    def mem_alloc(self, nbytes):
        return 1 << 20

    def memcpy_htod(self, address, values):
        self.uploaded.append((address, values))


@pytest.fixture
def driver(monkeypatch):
    """The driver of cuda-bindings, which are installed."""
    made = Driver()
    monkeypatch.setattr(cuda, "import_bindings", lambda: made)
    return made


@pytest.fixture
def pycuda(monkeypatch):
    made = Pycuda()
    monkeypatch.setattr(cuda, "import_driver", lambda: made)
    monkeypatch.setattr(cuda.nvcc, "nvcc_version", lambda: "13.0")
    monkeypatch.setattr(cuda.nvcc, "compile_cubin", lambda path, macros, arch: path.name.encode())
    return made


@pytest.fixture
def executor(pycuda):
    made = cuda.CudaExecutor()
    yield made
    made.leave()


@pytest.fixture
def launches(monkeypatch):
    made = Launches()
    monkeypatch.setattr("alexconv.executors.cuda.kernels.PackedLaunch", made)
    return made


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
    assert all(enqueued[4] == 7 for enqueued in launches.enqueued)
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
    assert [pdl for *_, pdl, _, _ in launches.enqueued] == [False, True]
    shared = [shared for _, _, shared, *_ in launches.enqueued]
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


def test_without_bindings_pycuda_loads_and_launches_what_needs_no_handle(monkeypatch, pycuda):
    monkeypatch.setattr(cuda, "import_bindings", lambda: None)
    executor = cuda.CudaExecutor()
    bound = bound_rung("igemm-async", 2)
    loaded, addresses, stream = executor.load(bound), addresses_of(bound), executor.stream
    loaded.enqueue(3, addresses, stream)
    (launch,) = bound.launches(3)
    arguments = tuple(bound.arguments(0, 3, addresses, None)[name] for name in launch.args)
    assert pycuda.launched == [(launch.entry, launch.grid, launch.block, stream, arguments, launch.dynamic_shared)]
    loaded.kernels.step(launch, 100_000)
    assert pycuda.allowed == {launch.entry: 100_000}
    facts = loaded.launches(3)[-1]
    assert (facts["registers"], facts["static_shared"], facts["local"], facts["occupancy"]) == (1, 2, 3, None)
    assert executor.load(bound_rung("tiled-constant", 1)).constant_filters == 8192
    assert not executor.has_pdl
    assert "needs cuda-bindings" in executor.unsuited(RUNGS["wgmma-split"])
    assert executor.unsuited(RUNGS["igemm-async"]) is None
    executor.leave()


def test_an_executor_that_leaves_keeps_the_others_contexts(driver, pycuda, monkeypatch):
    registered = []
    monkeypatch.setattr(
        cuda, "atexit", SimpleNamespace(register=registered.append, unregister=lambda gone: registered.remove(gone))
    )
    first, second = cuda.CudaExecutor(), cuda.CudaExecutor()
    second.leave()
    assert [leave.__self__ for leave in registered] == [first]
