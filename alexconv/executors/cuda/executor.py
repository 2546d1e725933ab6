"""The CUDA executor: nvcc compiles; a CudaDevice loads, allocates, launches and times."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from alexconv.compiling import nvcc
from alexconv.errors import MissingTool
from alexconv.executors.cuda.bindings import answer
from alexconv.executors.cuda.buffers import CopiedBuffers, ManagedBuffers, Pipeline, StreamedBuffers
from alexconv.executors.cuda.device import CudaDevice
from alexconv.executors.cuda.kernels import Kernels
from alexconv.executors.cuda.program import CudaProgram
from alexconv.executors.cuda.timing import WARM_MS, time_on_device, under_load
from alexconv.executors.interface import TIME_LIMIT, Buffers, Values
from alexconv.executors.sampling import Samples
from alexconv.kernels import dynamic
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.rung import Rung
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import Opener, Transfer
from alexconv.records.store import Record

MEMORY_SHARE = 0.95  # of the free device memory, for a point; the rest is left to the driver
FLOPS_PER_CLOCK = 16384  # upper bound of a multiprocessor: four times Hopper's, for later GPUs


def numbers_of(bound: BoundRung) -> bytes:
    """The numbers of a build for every shape, which make a loaded module one of a shape."""
    numbers = bound.numbers
    return b"" if numbers is None else numbers.tobytes()


class CudaExecutor:
    """The executor of one GPU.  Raises MissingTool without driver, device or nvcc, or without cuda-bindings."""

    name = "cuda"
    measures = True
    usual_batch = 128
    time_limit = TIME_LIMIT
    opens: ClassVar[Mapping[str, Opener]] = {
        "pageable": CopiedBuffers,
        "pinned": CopiedBuffers,
        "managed": ManagedBuffers,
        "managed-prefetch": ManagedBuffers,
        "streamed": StreamedBuffers,
    }

    def __init__(self, number: int = 0) -> None:
        self.gpu = CudaDevice(number)
        self.device = self.gpu.properties
        try:
            self.toolkit = self._toolkit()
        except MissingTool:
            self.gpu.leave()
            raise
        self._kernels: weakref.WeakValueDictionary[Any, Kernels] = weakref.WeakValueDictionary()
        self._first_settings = self._settings()

    def _toolkit(self) -> str:
        return self.gpu.toolkit()

    @property
    def sustained(self) -> float:
        """Seconds of back-to-back runs before kernels are timed again; 0: not at all."""
        return self.gpu.sustained

    @sustained.setter
    def sustained(self, seconds: float) -> None:
        self.gpu.sustained = seconds

    def leave(self) -> None:
        """Pops the context from the stack of the thread that created this executor."""
        self.gpu.leave()

    def unsuited(self, rung: Rung) -> str | None:
        """Why this GPU cannot run the rung, or None."""
        return rung.unsuited(self.gpu.capability)

    def describe(self) -> str:
        """GPU, its architecture and the toolkit, in one line."""
        return f"{self.device.name} (sm_{self.gpu.arch}), CUDA {self.toolkit}, PyCUDA"

    def header(self) -> Record:
        """The GPU, its driver and toolkit."""
        return dict(self._header)

    @cached_property
    def _header(self) -> Record:
        gpu = self.gpu
        driver = gpu.driver.get_driver_version()
        return {
            "backend": self.name,
            "name": self.device.name,
            "compute_capability": list(gpu.capability),
            "multiprocessors": self.device.multiprocessors,
            "l2_bytes": self.device.l2_bytes,
            "memory_bytes": gpu.memory_bytes,
            "memory_bus_bits": gpu.attribute("GLOBAL_MEMORY_BUS_WIDTH"),
            "clock_khz": gpu.attribute("CLOCK_RATE"),
            "memory_clock_khz": gpu.attribute("MEMORY_CLOCK_RATE"),
            "cuda_driver": f"{driver // 1000}.{driver % 1000 // 10}",
            "toolkit": self.toolkit,
            "nvcc_flags": list(nvcc.FLAGS),
            "kernels_launched": "as a graph",
            **gpu.management.facts(),
        }

    @cached_property
    def most_flops(self) -> float:
        """Upper bound of operations per second: dense fp16 tensor-core products at full clock."""
        return FLOPS_PER_CLOCK * self.device.multiprocessors * self.gpu.attribute("CLOCK_RATE") * 1e3

    def memory_budget(self) -> int:
        """Bytes that a point may take: most of what is free now."""
        free, _ = self.gpu.driver.mem_get_info()
        return int(free * MEMORY_SHARE)

    def key(self, bound: BoundRung) -> str:
        """Digest of kernel source, macros, flags and toolkit."""
        return nvcc.cubin_key(bound.rung.path, bound.macros, self.gpu.arch)

    def build(self, bound: BoundRung) -> None:
        """Compiles a rung into the cache; any thread may call it.  Raises CompileError."""
        self._compiled(bound)

    def _compiled(self, bound: BoundRung) -> bytes:
        return nvcc.compile_cubin(bound.rung.path, bound.macros, self.gpu.arch, lasting=bound.dynamic)

    def load(self, bound: BoundRung) -> CudaProgram:
        """Loads a rung on the device, compiling it first if the cache lacks it; raises CompileError."""
        with self.gpu.errors(bound.rung.name):
            in_constant_memory = bound.rung.constant_symbol is not None  # filters in the module: not shared
            kernels = self._loaded(bound) if in_constant_memory else self.kernels(bound)
            return CudaProgram(self.gpu, bound, kernels, memory=self.gpu)

    def kernels(self, bound: BoundRung) -> Kernels:
        """A rung's kernels, shared by all live programs; raises CompileError."""
        key = bound.rung.path, *bound.macros.items(), numbers_of(bound)
        kernels = self._kernels.get(key)
        if kernels is None:
            kernels = self._kernels[key] = self._loaded(bound)
        return kernels

    def _loaded(self, bound: BoundRung) -> Kernels:
        kernels = self.gpu.load(self._compiled(bound))
        if (numbers := bound.numbers) is not None:
            self.gpu.write(kernels.symbol(dynamic.SYMBOL), numbers)
        return kernels

    def open(
        self, program: CudaProgram, plan: Plan, x: Values, w: Values, transfer: Transfer, bias: Values | None = None
    ) -> Buffers:
        """Allocates the arrays of a plan; raises OutOfMemory."""
        with self.gpu.errors(program.bound.rung.name):
            opened: Buffers = transfer.opener(self)(self.gpu, program, plan, x, w, transfer, bias)
            return opened

    def free_cached_arrays(self) -> None:
        """See Executor."""
        self.gpu.host_memory.free()

    def time(self, pieces: Sequence[Callable[[], None]], seconds: float) -> Samples:
        """Cold and hot samples, ms, of what the pieces of a batch enqueue on the device's stream."""
        return time_on_device(self.gpu, pieces, seconds)

    def under_load(
        self, pieces: Sequence[Callable[[], object]], samples: Samples, *, warm_ms: float = WARM_MS
    ) -> Record:
        """See timing.under_load."""
        return under_load(self.gpu, pieces, samples, warm_ms=warm_ms)

    def pipeline(self, batches: Sequence[StreamedBuffers], order: Sequence[tuple[int, int]], streams: int) -> Pipeline:
        """The pieces of several batches on several streams; see Pipeline."""
        return Pipeline(self.gpu, batches, order, streams)

    def health(self) -> Record:
        """See Executor."""
        return self.gpu.management.health()

    def changed_settings(self) -> str:
        """See Executor: requested clocks, power limit, and the L2 set-aside for persisting lines."""
        first, now = self._first_settings, self._settings()
        return ", ".join(f"{name} {first[name]} -> {now.get(name)}" for name in first if now.get(name) != first[name])

    def _settings(self) -> Record:
        bindings = self.gpu.bindings
        persisting_bytes = answer(bindings.cuCtxGetLimit(bindings.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE), "a limit")
        return {"kept_l2_bytes": persisting_bytes, **self.gpu.management.settings()}

    def lost(self) -> bool:
        """Whether a fault, such as a bad address in a kernel, has left the context unusable."""
        try:
            self.gpu.stream.synchronize()
        except self.gpu.driver.Error:
            return True
        return False
