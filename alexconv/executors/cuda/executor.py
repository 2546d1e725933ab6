"""The CUDA executor: nvcc compiles; PyCUDA, imported on use, provides context, streams, memory, copies and events.

It retains and pushes the primary context, which other libraries in the process (torch, CuPy) share.
"""

import atexit
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from statistics import median
from time import monotonic_ns
from typing import Any, ClassVar, SupportsInt

from alexconv.compiling import nvcc
from alexconv.errors import LaunchError, MissingTool, OutOfMemory
from alexconv.executors.cuda.bindings import PDL_SINCE, answer, import_bindings
from alexconv.executors.cuda.buffers import CopiedBuffers, ManagedBuffers, Pipeline, StreamedBuffers
from alexconv.executors.cuda.context import PrimaryContext
from alexconv.executors.cuda.graphs import Graph
from alexconv.executors.cuda.kernels import Kernels, PycudaKernels
from alexconv.executors.cuda.program import CudaProgram
from alexconv.executors.cuda.timing import WARM_MS, runs_in, time_on_device, time_sustained
from alexconv.executors.cuda.watched import AuditKernels
from alexconv.executors.host_memory import HostMemory
from alexconv.executors.interface import TIME_LIMIT, Buffers, Values
from alexconv.executors.sampling import Samples
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import Device
from alexconv.kernels.rung import Rung
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import Opener, Transfer
from alexconv.records.store import Record

MEMORY_SHARE = 0.95  # of the free device memory, for a point; the rest is left to the driver
FLOPS_PER_CLOCK = 16384  # upper bound of a multiprocessor: four times Hopper's, for later GPUs
DELAY_BYTES = 256 << 20  # clearing them takes longer than the host needs to enqueue the timed work


def import_driver() -> Any:
    """PyCUDA's driver module, initialised; raises MissingTool with what to do."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise MissingTool(
            f"PyCUDA does not load ({error}): pip install 'alexconv[gpu]' on a machine with an NVIDIA driver, "
            "or use --backend host"
        ) from None
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:
        raise MissingTool(f"the NVIDIA driver does not answer ({error}); use --backend host") from None
    if not count:
        raise MissingTool("there is no NVIDIA GPU on this machine; use --backend host")
    return driver


class CudaExecutor:
    """The executor of one GPU.  Raises MissingTool without driver, device or nvcc."""

    name = "cuda"
    measures = True
    usual_batch = 128
    time_limit = TIME_LIMIT
    sustained = 0.0
    opens: ClassVar[Mapping[str, Opener]] = {
        "pageable": CopiedBuffers,
        "pinned": CopiedBuffers,
        "managed": ManagedBuffers,
        "managed-prefetch": ManagedBuffers,
        "streamed": StreamedBuffers,
    }

    def __init__(self, device: int = 0) -> None:
        self.driver = import_driver()
        self.toolkit = nvcc.nvcc_version()
        if not 0 <= device < self.driver.Device.count():
            raise MissingTool(f"no CUDA device {device}: there are {self.driver.Device.count()}, numbered from 0")
        self.number = device
        self.gpu = self.driver.Device(device)
        self.capability: tuple[int, int] = self.gpu.compute_capability()
        self.arch = nvcc.arch_name(self.capability)
        self._context = self.gpu.retain_primary_context()
        self._context.push()
        atexit.register(self.leave)  # PyCUDA allows none on its stack at exit
        self.stream = self.driver.Stream()
        self.device = Device(
            name=self.gpu.name(),
            capability=self.capability,
            multiprocessors=self.attribute("MULTIPROCESSOR_COUNT"),
            shared_per_block=self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            shared_per_multiprocessor=self.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            l2_bytes=self.attribute("L2_CACHE_SIZE"),
        )
        self.bindings = import_bindings()
        self.context = None if self.bindings is None else PrimaryContext(self.bindings, device)
        self.has_pdl = self.capability >= PDL_SINCE and self.bindings is not None
        self._kernels: weakref.WeakValueDictionary[Any, Kernels | PycudaKernels] = weakref.WeakValueDictionary()
        self._first_settings = self._settings()

    def leave(self) -> None:
        """Pops the context from the stack of the thread that created this executor."""
        atexit.unregister(self.leave)
        self.free_cached_arrays()
        self._context.pop()

    def attribute(self, name: str) -> int:
        """A device attribute by its name in the driver API."""
        return int(self.gpu.get_attribute(getattr(self.driver.device_attribute, name)))

    def unsuited(self, rung: Rung) -> str | None:
        """Why this GPU cannot run the rung, or None."""
        if rung.maps and self.bindings is None:
            return "needs cuda-bindings for its tensor maps: pip install 'alexconv[gpu]'"
        return rung.unsuited(self.capability)

    def describe(self) -> str:
        """GPU, its architecture and the toolkit, in one line."""
        return f"{self.gpu.name()} (sm_{self.arch}), CUDA {self.toolkit}, PyCUDA"

    def header(self) -> Record:
        """The GPU, its driver and toolkit."""
        return dict(self._header)

    @cached_property
    def _header(self) -> Record:
        driver = self.driver.get_driver_version()
        return {
            "backend": self.name,
            "name": self.gpu.name(),
            "compute_capability": list(self.gpu.compute_capability()),
            "multiprocessors": self.attribute("MULTIPROCESSOR_COUNT"),
            "l2_bytes": self.attribute("L2_CACHE_SIZE"),
            "memory_bytes": self.gpu.total_memory(),
            "memory_bus_bits": self.attribute("GLOBAL_MEMORY_BUS_WIDTH"),
            "clock_khz": self.attribute("CLOCK_RATE"),
            "memory_clock_khz": self.attribute("MEMORY_CLOCK_RATE"),
            "cuda_driver": f"{driver // 1000}.{driver % 1000 // 10}",
            "toolkit": self.toolkit,
            "nvcc_flags": list(nvcc.FLAGS),
            "kernels_launched": "one by one" if self.bindings is None else "as a graph",
            **self._management_facts(),
        }

    @cached_property
    def most_flops(self) -> float:
        """Upper bound of operations per second: dense fp16 tensor-core products at full clock."""
        return FLOPS_PER_CLOCK * self.device.multiprocessors * self.attribute("CLOCK_RATE") * 1e3

    def memory_budget(self) -> int:
        """Bytes that a point may take: most of what is free now."""
        free, _ = self.driver.mem_get_info()
        return int(free * MEMORY_SHARE)

    def key(self, bound: BoundRung) -> str:
        """Digest of kernel source, macros, flags and toolkit."""
        return nvcc.cubin_key(bound.rung.path, bound.macros, self.arch)

    def build(self, bound: BoundRung) -> None:
        """Compiles a rung into the cache; any thread may call it.  Raises CompileError."""
        nvcc.compile_cubin(bound.rung.path, bound.macros, self.arch)

    def load(self, bound: BoundRung) -> CudaProgram:
        """Loads a rung on the device, compiling it first if the cache lacks it; raises CompileError."""
        with self.errors(bound.rung.name):
            in_constant_memory = bound.rung.constant_symbol is not None  # filters in the module: not shared
            kernels = self._loaded(bound) if in_constant_memory else self.kernels(bound)
            return CudaProgram(self, bound, kernels, memory=self)

    def kernels(self, bound: BoundRung) -> Kernels | PycudaKernels:
        """A rung's kernels, shared by all live programs; raises CompileError."""
        key = bound.rung.path, *bound.macros.items()
        kernels = self._kernels.get(key)
        if kernels is None:
            kernels = self._kernels[key] = self._loaded(bound)
        return kernels

    def _loaded(self, bound: BoundRung) -> Kernels | PycudaKernels:
        cubin = nvcc.compile_cubin(bound.rung.path, bound.macros, self.arch)
        return PycudaKernels(self.driver, cubin) if self.bindings is None else self.bound_kernels(cubin)

    def bound_kernels(self, cubin: bytes) -> Kernels:
        """The kernels of a cubin, through cuda-bindings."""
        return Kernels(self.bindings, cubin, self._unload)

    def _unload(self, module: Any) -> None:
        """Unloads a module, in any thread, once none of its kernels runs."""
        assert self.bindings and self.context
        with self.context.current():
            self.bindings.cuCtxSynchronize()
            self.bindings.cuModuleUnload(module)

    def allocate(self, nbytes: int) -> SupportsInt:
        """Device memory, freed with the returned object."""
        allocated: SupportsInt = self.driver.mem_alloc(nbytes)
        return allocated

    def upload(self, address: int, values: Values, stream: Any) -> None:
        """Copies an array to the device, before any work enqueued later on any stream."""
        self.driver.memcpy_htod(address, values)

    def open(
        self, program: CudaProgram, plan: Plan, x: Values, w: Values, transfer: Transfer, bias: Values | None = None
    ) -> Buffers:
        """Allocates the arrays of a plan; raises OutOfMemory."""
        with self.errors(program.bound.rung.name):
            opened: Buffers = transfer.opener(self)(self, program, plan, x, w, transfer, bias)
            return opened

    @cached_property
    def host_memory(self) -> HostMemory:
        """The large arrays of points on the host."""
        return HostMemory(lambda length, dtype: self.driver.pagelocked_empty(length, dtype))

    def free_cached_arrays(self) -> None:
        """See Executor."""
        self.host_memory.free()

    @contextmanager
    def errors(self, name: str) -> Iterator[None]:
        """Turns PyCUDA's exceptions into OutOfMemory and LaunchError."""
        try:
            yield
        except self.driver.MemoryError as error:
            raise OutOfMemory(f"{name}: {error}") from None
        except self.driver.Error as error:
            raise LaunchError(f"{name}: {error}") from None

    @cached_property
    def flush_buffer(self) -> tuple[int, int]:
        """Address and bytes of a buffer; clearing it flushes the L2 cache and keeps the device busy for a while."""
        size = max(2 * self.attribute("L2_CACHE_SIZE"), DELAY_BYTES)
        self._flush_allocation = self.driver.mem_alloc(size)
        return int(self._flush_allocation), size

    def flush(self) -> None:
        """Enqueues the clearing of the flush buffer."""
        address, size = self.flush_buffer
        self.driver.memset_d8_async(address, 0, size, self.stream)

    def reset_persisting_lines(self) -> None:
        """Resets persisting L2 lines, which a flush might leave there; no-op with PyCUDA alone.

        No kernel that makes lines persist may be running.
        """
        if self.bindings is not None:
            answer(self.bindings.cuCtxResetPersistingL2Cache(), "resetting the L2 cache")

    @cached_property
    def audit_kernels(self) -> AuditKernels:
        """The kernels that audit timed runs."""
        return AuditKernels(self)

    @staticmethod
    def host_ms() -> float:
        """The host's monotonic clock in ms, independent of the device's events."""
        return monotonic_ns() / 1e6

    def wait(self) -> None:
        """Synchronizes with the context."""
        self.driver.Context.synchronize()

    def mark(self, stream: Any) -> Any:
        """An event recorded on a stream."""
        event = self.driver.Event()
        event.record(stream)
        return event

    def time(self, pieces: Sequence[Callable[[], None]], seconds: float) -> Samples:
        """Cold and hot samples, ms, of what the pieces of a batch enqueue on the executor's stream."""
        return time_on_device(self, pieces, seconds)

    def under_load(
        self, pieces: Sequence[Callable[[], object]], samples: Samples, *, warm_ms: float = WARM_MS
    ) -> Record:
        """The SM clock in MHz under the timed load, read by a kernel right after ``warm_ms`` ms of runs.

        With ``sustained`` seconds, also adds the figure ``kernel_sustained`` to samples of kernels, and the device's
        health after it.
        """
        expected, facts = median(samples["kernel"] if "kernel" in samples else samples["total"]), {}
        if self.sustained and "kernel" in samples:
            samples["kernel_sustained"], facts["sustained"] = time_sustained(self, pieces, self.sustained, expected)
        for _ in range(runs_in(warm_ms, expected) if warm_ms else 0):
            for enqueue in pieces:
                enqueue()
        return {"clock_mhz": round(self.audit_kernels.clock_mhz(), 1), **facts}

    def pipeline(self, batches: Sequence[StreamedBuffers], order: Sequence[tuple[int, int]], streams: int) -> Pipeline:
        """The pieces of several batches on several streams; see Pipeline."""
        return Pipeline(self, batches, order, streams)

    @contextmanager
    def recorded(self, enqueue: Callable[[Any], None]) -> Iterator[Callable[[], None]]:
        """Captures what ``enqueue`` puts on the executor's stream as a CUDA graph; without cuda-bindings repeats it."""
        if self.bindings is None:
            yield partial(enqueue, self.stream)
            return
        graph = Graph(partial(enqueue, self.stream), self.stream)
        try:
            yield graph.launch
        finally:
            graph.close()

    @cached_property
    def _management(self) -> Any | None:
        """NVML's handle of the device, or None if NVML does not answer."""
        import pynvml

        try:
            pynvml.nvmlInit()
            return pynvml.nvmlDeviceGetHandleByPciBusId(self.gpu.pci_bus_id())
        except pynvml.NVMLError:
            return None

    def _management_facts(self) -> Record:
        import pynvml

        if self._management is None:
            return {"nvml": "does not answer"}
        queries: dict[str, Callable[[], Any]] = {
            "uuid": partial(pynvml.nvmlDeviceGetUUID, self._management),
            "driver": pynvml.nvmlSystemGetDriverVersion,
            "max_sm_clock_mhz": partial(pynvml.nvmlDeviceGetMaxClockInfo, self._management, pynvml.NVML_CLOCK_SM),
        }
        facts: Record = {}
        for name, query in queries.items():
            with suppress(pynvml.NVMLError):  # not supported by every device, such as a MIG instance
                facts[name] = query()
        return facts

    def health(self) -> Record:
        """SM clock in MHz, NVML's bit mask of throttle reasons, power in W and temperature in °C."""
        import pynvml

        if self._management is None:
            return {}
        gpu = self._management
        try:
            readings = {
                "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
                "throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
            }
        except pynvml.NVMLError as error:
            return {"nvml": str(error)}
        with suppress(pynvml.NVMLError):  # not supported by every device
            readings["power_w"] = pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3
            readings["temperature_c"] = pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)
        return readings

    def changed_settings(self) -> str:
        """See Executor: requested clocks, power limit, and the L2 set-aside for persisting lines."""
        first, now = self._first_settings, self._settings()
        return ", ".join(f"{name} {first[name]} -> {now.get(name)}" for name in first if now.get(name) != first[name])

    def _settings(self) -> Record:
        import pynvml

        settings: Record = {}
        if self.bindings is not None:
            status, settings["kept_l2_bytes"] = self.bindings.cuCtxGetLimit(
                self.bindings.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
            )
            if int(status):
                del settings["kept_l2_bytes"]
        gpu = self._management
        queries: dict[str, Callable[[], Any]] = {
            "sm_clock_asked_mhz": partial(pynvml.nvmlDeviceGetApplicationsClock, gpu, pynvml.NVML_CLOCK_SM),
            "memory_clock_asked_mhz": partial(pynvml.nvmlDeviceGetApplicationsClock, gpu, pynvml.NVML_CLOCK_MEM),
            "power_limit_mw": partial(pynvml.nvmlDeviceGetPowerManagementLimit, gpu),
        }
        for name, query in queries.items() if gpu is not None else ():
            with suppress(pynvml.NVMLError):  # not supported by every device
                settings[name] = query()
        return settings

    def lost(self) -> bool:
        """Whether a fault, such as a bad address in a kernel, has left the context unusable."""
        try:
            self.stream.synchronize()
        except self.driver.Error:
            return True
        return False
