"""A loaded cubin: its entry points, and launches with packed parameters.

PyCUDA exposes no kernel handle, which programmatic dependent launch, occupancy and launches on another library's stream
need.  So cuda-bindings load the cubin where they are installed, else PyCUDA, which launches on its own streams.  A
program takes either.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alexconv.errors import LaunchError
from alexconv.executors.cuda.bindings import PORTABLE_SHARED, PackedLaunch, Words, answer, loaded_function
from alexconv.kernels.bound import LaunchConfig
from alexconv.kernels.rung import Dims
from alexconv.records.store import Record


@dataclass(frozen=True)
class Step:
    """A launch that takes addresses and numbers by name."""

    args: tuple[str, ...]
    launch: PackedLaunch

    def enqueue(self, values: Mapping[str, int], stream: int) -> None:
        """Enqueues it with its arguments' values."""
        self.launch.enqueue(stream, [values[name] for name in self.args])


class Kernels:
    """The entry points of a cubin, loaded once, ready to be launched on any stream of the context.

    ``unload`` is called with the module when these kernels are no longer referenced.
    """

    def __init__(self, driver: Any, cubin: bytes, unload: Callable[[Any], None]) -> None:
        self._driver = driver
        self._module = answer(driver.cuModuleLoadData(cubin), "loading kernels")
        self._functions: dict[str, Any] = {}
        self._shared: dict[str, int] = {}  # dynamic bytes that a kernel may use
        weakref.finalize(self, unload, self._module).atexit = False

    @staticmethod
    def handle(stream: Any) -> int:
        """The stream as the launches take it: a driver handle, PyCUDA's or as given."""
        return stream if isinstance(stream, int) else int(stream.handle)

    def symbol(self, name: str) -> int:
        """Address of a ``__constant__`` array."""
        return int(answer(self._driver.cuModuleGetGlobal(self._module, name.encode()), name))

    def packed(
        self,
        entry: str,
        grid: Dims,
        block: Dims,
        shared: int,
        parameters: Sequence[Words],
        *,
        pdl: bool = False,
    ) -> PackedLaunch:
        """A launch with its parameters; these kernels must outlive it.  Raises LaunchError."""
        return PackedLaunch(self._driver, self._function(entry, shared), grid, block, shared, parameters, pdl=pdl)

    def step(self, launch: LaunchConfig, shared: int | None = None, *, pdl: bool = False) -> Step:
        """A launch whose arguments are looked up by name; ``shared`` replaces its bytes of dynamic shared memory."""
        shared = launch.dynamic_shared if shared is None else shared
        parameters = [[0] for _ in launch.args]
        return Step(launch.args, self.packed(launch.entry, launch.grid, launch.block, shared, parameters, pdl=pdl))

    def function(self, entry: str, shared: int) -> int:
        """The driver's handle of a kernel that may use ``shared`` bytes of dynamic shared memory."""
        return int(self._function(entry, shared))

    def facts(self, launch: LaunchConfig) -> Record:
        """Registers, static shared and local bytes of a launch's kernel."""
        attributes, function = self._driver.CUfunction_attribute, self._function(launch.entry, launch.dynamic_shared)
        wanted = {
            "registers": attributes.CU_FUNC_ATTRIBUTE_NUM_REGS,
            "static_shared": attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            "local": attributes.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        }
        return {
            name: int(answer(self._driver.cuFuncGetAttribute(attribute, function), launch.entry))
            for name, attribute in wanted.items()
        }

    def blocks_per_multiprocessor(self, launch: LaunchConfig) -> int | None:
        """Resident blocks per multiprocessor; PyCUDA's own figure is wrong on current GPUs."""
        x, y, z = launch.block
        function = self._function(launch.entry, launch.dynamic_shared)
        result = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, x * y * z, launch.dynamic_shared)
        return int(answer(result, f"occupancy of {launch.entry}"))

    def _function(self, entry: str, shared: int) -> Any:
        """A kernel that may use ``shared`` bytes of dynamic shared memory, or the most requested so far."""
        if shared > self._shared.get(entry, -1):
            self._functions[entry] = loaded_function(self._driver, self._module, entry, shared)
            self._shared[entry] = shared
        return self._functions[entry]


class PycudaKernels:
    """The same through PyCUDA alone: on its own streams only, without programmatic dependent launch."""

    def __init__(self, driver: Any, cubin: bytes) -> None:
        self._driver = driver
        self._module = driver.module_from_buffer(cubin)

    @staticmethod
    def handle(stream: Any) -> Any:
        """The stream as the launches take it: PyCUDA's own object."""
        return stream

    def symbol(self, name: str) -> int:
        """Address of a ``__constant__`` array."""
        address, _ = self._module.get_global(name)
        return int(address)

    def step(self, launch: LaunchConfig, shared: int | None = None, *, pdl: bool = False) -> "PycudaStep":
        """A launch whose arguments are looked up by name; ``shared`` replaces its bytes of dynamic shared memory."""
        if pdl:
            raise LaunchError(f"{launch.entry}: PyCUDA has no programmatic dependent launch")
        shared = launch.dynamic_shared if shared is None else shared
        function = self._module.get_function(launch.entry)
        if shared > PORTABLE_SHARED:
            function.set_attribute(self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        return PycudaStep(launch, shared, function.prepare("P" * len(launch.args)))

    def facts(self, launch: LaunchConfig) -> Record:
        """Registers, static shared and local bytes of a launch's kernel."""
        function = self._module.get_function(launch.entry)
        return {
            "registers": function.num_regs,
            "static_shared": function.shared_size_bytes,
            "local": function.local_size_bytes,
        }

    def blocks_per_multiprocessor(self, launch: LaunchConfig) -> int | None:
        """None: PyCUDA's figure is wrong on current GPUs."""
        return None


@dataclass(frozen=True)
class PycudaStep:
    """A launch of PyCUDA's that takes addresses and numbers by name."""

    config: LaunchConfig
    shared: int
    function: Any

    def enqueue(self, values: Mapping[str, int], stream: Any) -> None:
        """Enqueues it with its arguments' values."""
        arguments = [values[name] for name in self.config.args]
        grid, block = self.config.grid, self.config.block
        self.function.prepared_async_call(grid, block, stream, *arguments, shared_size=self.shared)
