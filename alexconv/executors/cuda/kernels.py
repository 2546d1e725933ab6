"""A loaded cubin: its entry points, and launches with packed parameters.

PyCUDA exposes no kernel handle, which programmatic dependent launch, occupancy and launches on another library's stream
need: cuda-bindings load the cubin.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from alexconv.executors.cuda.bindings import answer
from alexconv.executors.cuda.native import Words, check, launch_config, ready_launch
from alexconv.kernels.bound import LaunchConfig
from alexconv.records.store import Record


class Step:
    """A launch that takes addresses and numbers by name; not thread-safe.

    With ``pdl`` it is a programmatic dependent launch: it may start before the preceding kernel on the stream ends.
    """

    def __init__(self, function: int, launch: LaunchConfig, shared: int, *, pdl: bool) -> None:
        self.args = launch.args
        self._words = Words([0] * len(self.args))
        self._config = launch_config(launch.grid, launch.block, shared, pdl=pdl, cooperative=launch.cooperative)
        places = [self._words.address(place) for place in range(len(self.args))]
        self._launch = ready_launch(function, self._config, places)

    def enqueue(self, values: Mapping[str, int], stream: int) -> None:
        """Enqueues it with its arguments' values; raises LaunchError."""
        for place, name in enumerate(self.args):
            self._words.values[place] = values[name]
        self._config.stream = stream
        check(self._launch(), "a launch")


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

    def step(self, launch: LaunchConfig, shared: int | None = None, *, pdl: bool = False) -> Step:
        """A launch whose arguments are looked up by name; ``shared`` replaces its bytes of dynamic shared memory.

        These kernels must outlive it.
        """
        shared = launch.dynamic_shared if shared is None else shared
        return Step(self.function(launch.entry, shared), launch, shared, pdl=pdl)

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

    def blocks_per_multiprocessor(self, launch: LaunchConfig) -> int:
        """Resident blocks per multiprocessor; PyCUDA's own figure is wrong on current GPUs."""
        x, y, z = launch.block
        function = self._function(launch.entry, launch.dynamic_shared)
        result = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, x * y * z, launch.dynamic_shared)
        return int(answer(result, f"occupancy of {launch.entry}"))

    def _function(self, entry: str, shared: int) -> Any:
        """A kernel that may use ``shared`` bytes of dynamic shared memory, or the most requested so far."""
        if shared > self._shared.get(entry, -1):
            function = answer(self._driver.cuModuleGetFunction(self._module, entry.encode()), entry)
            if shared:  # what needs no opt-in, 48 KB, includes the kernel's static shared memory
                most = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                answer(self._driver.cuFuncSetAttribute(function, most, shared), entry)
            self._functions[entry], self._shared[entry] = function, shared
        return self._functions[entry]
