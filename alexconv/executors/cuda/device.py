"""A GPU as programs, arrays and timing use it: its properties, stream, memory, events and kernels.

PyCUDA gives context, streams, memory, copies and events; cuda-bindings what it lacks.  The primary context is retained
and pushed, which other libraries in the process (torch, CuPy) share.
"""

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from time import monotonic_ns
from typing import Any, SupportsInt

from alexconv.compiling import nvcc
from alexconv.errors import LaunchError, MissingTool, OutOfMemory
from alexconv.executors.cuda.audit_kernels import AuditKernels
from alexconv.executors.cuda.bindings import PDL_SINCE, answer, require_bindings
from alexconv.executors.cuda.context import PrimaryContext
from alexconv.executors.cuda.graphs import Graph
from alexconv.executors.cuda.kernels import Kernels
from alexconv.executors.cuda.management import Management
from alexconv.executors.host_memory import HostMemory
from alexconv.executors.interface import Values
from alexconv.kernels.problem import Device

DELAY_BYTES = 256 << 20  # clearing them takes longer than the host needs to enqueue the timed work


def import_driver() -> Any:
    """PyCUDA's driver module, initialised; raises MissingTool with what to do."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        reason = "is not installed" if error.name == "pycuda" else f"does not load ({error})"
        raise MissingTool(
            f"PyCUDA {reason}: pip install 'alexconv[gpu]' on a machine with an NVIDIA driver, or use --backend host"
        ) from None
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:
        raise MissingTool(f"the NVIDIA driver does not answer ({error}); use --backend host") from None
    if not count:
        raise MissingTool("there is no NVIDIA GPU on this machine; use --backend host")
    return driver


class CudaDevice:
    """A GPU with its context and one stream.

    Raises MissingTool without driver or device, and without cuda-bindings.
    """

    sustained = 0.0  # seconds of back-to-back runs before kernels are timed again; 0: not at all

    def __init__(self, number: int = 0) -> None:
        self.driver, self.bindings = import_driver(), require_bindings("the CUDA backend")
        count = self.driver.Device.count()
        if not 0 <= number < count:
            raise MissingTool(f"no CUDA device {number}: there are {count}, numbered from 0")
        self.number = number
        self._device = self.driver.Device(number)
        self.capability: tuple[int, int] = self._device.compute_capability()
        self.arch = nvcc.arch_name(self.capability)
        self.has_pdl = self.capability >= PDL_SINCE
        self._pushed = self._device.retain_primary_context()
        self._pushed.push()
        atexit.register(self.leave)  # PyCUDA allows none on its stack at exit
        self.context = PrimaryContext(self.bindings, number)
        self.stream = self.driver.Stream()
        self.properties = Device(
            name=self._device.name(),
            capability=self.capability,
            multiprocessors=self.attribute("MULTIPROCESSOR_COUNT"),
            shared_per_block=self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            shared_per_multiprocessor=self.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            l2_bytes=self.attribute("L2_CACHE_SIZE"),
        )

    def toolkit(self) -> str:
        """The version of nvcc; raises MissingTool without one that suits the device and its driver."""
        nvcc.refuse_unfit(self._device.name(), self.capability, self.driver.get_driver_version())
        return nvcc.nvcc_version()

    def leave(self) -> None:
        """Pops the context from the stack of the thread that created this object."""
        atexit.unregister(self.leave)
        self.host_memory.free()
        self._pushed.pop()

    def attribute(self, name: str) -> int:
        """A device attribute by its name in the driver API."""
        return int(self._device.get_attribute(getattr(self.driver.device_attribute, name)))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the device's memory."""
        return int(self._device.total_memory())

    @cached_property
    def management(self) -> Management:
        """The device as NVML sees it."""
        return Management(self._device.pci_bus_id())

    @contextmanager
    def errors(self, name: str) -> Iterator[None]:
        """Turns PyCUDA's exceptions into OutOfMemory and LaunchError."""
        try:
            yield
        except self.driver.MemoryError as error:
            raise OutOfMemory(f"{name}: {error}") from None
        except self.driver.Error as error:
            raise LaunchError(f"{name}: {error}") from None

    # Kernels

    def load(self, cubin: bytes) -> Kernels:
        """The kernels of a cubin."""
        return Kernels(self.bindings, cubin, self._unload)

    def _unload(self, module: Any) -> None:
        """Unloads a module, in any thread, once none of its kernels runs."""
        with self.context.current():
            self.bindings.cuCtxSynchronize()
            self.bindings.cuModuleUnload(module)

    @cached_property
    def audit_kernels(self) -> AuditKernels:
        """The kernels that audit timed runs."""
        return AuditKernels(self.driver, self.stream, self.arch)

    def write(self, address: int, values: Values) -> None:
        """Copies an array to constant memory; returns when it is there.

        On a stream of its own: copies on the default stream would end another thread's capture.
        """
        flag = self.bindings.CUstream_flags.CU_STREAM_NON_BLOCKING
        with self.context.current():
            stream = answer(self.bindings.cuStreamCreate(flag), "a stream")
            try:
                copied = self.bindings.cuMemcpyHtoDAsync(address, values.ctypes.data, values.nbytes, stream)
                answer(copied, "a copy to the GPU")
                answer(self.bindings.cuStreamSynchronize(stream), "a copy to the GPU")
            finally:
                self.bindings.cuStreamDestroy(stream)

    # Memory

    def allocate(self, nbytes: int) -> SupportsInt:
        """Device memory, freed with the returned object."""
        allocated: SupportsInt = self.driver.mem_alloc(nbytes)
        return allocated

    def upload(self, address: int, values: Values, stream: Any) -> None:
        """Copies an array to the device, before any work enqueued later on any stream."""
        self.driver.memcpy_htod(address, values)

    @cached_property
    def host_memory(self) -> HostMemory:
        """The large arrays of points on the host."""
        return HostMemory(lambda length, dtype: self.driver.pagelocked_empty(length, dtype))

    # Timing

    @cached_property
    def flush_buffer(self) -> tuple[int, int]:
        """Address and bytes of a buffer; clearing it flushes the L2 cache and keeps the device busy for a while."""
        size = max(2 * self.properties.l2_bytes, DELAY_BYTES)
        self._flush_allocation = self.driver.mem_alloc(size)
        return int(self._flush_allocation), size

    def flush(self) -> None:
        """Enqueues the clearing of the flush buffer."""
        address, size = self.flush_buffer
        self.driver.memset_d8_async(address, 0, size, self.stream)

    def reset_persisting_lines(self) -> None:
        """Resets persisting L2 lines, which a flush might leave there.

        No kernel that makes lines persist may be running.
        """
        answer(self.bindings.cuCtxResetPersistingL2Cache(), "resetting the L2 cache")

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

    @contextmanager
    def recorded(self, enqueue: Callable[[Any], None]) -> Iterator[Callable[[], None]]:
        """Captures what ``enqueue`` puts on the device's stream as a CUDA graph."""
        graph = Graph(partial(enqueue, self.stream), self.stream)
        try:
            yield graph.launch
        finally:
            graph.close()
