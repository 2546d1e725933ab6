"""cuda-bindings, for what PyCUDA lacks: occupancy, prefetching, tensor maps, graphs, programmatic dependent launch."""

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

from alexconv.errors import LaunchError, MissingTool
from alexconv.kernels.problem import Device
from alexconv.kernels.rung import Dims

WORD = 8  # bytes
Words = Sequence[int]  # of 64 bits: one parameter of a kernel
PDL_SINCE = (9, 0)  # compute capability that has programmatic dependent launch
PORTABLE_SHARED = 48 * 1024  # bytes; more dynamic shared memory needs an opt-in


def import_bindings() -> Any | None:
    """The driver module of cuda-bindings, or None where it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    return driver


def require_bindings(feature: str) -> Any:
    """The driver module of cuda-bindings; raises MissingTool, which names the ``feature`` that needs it."""
    bindings = import_bindings()
    if bindings is None:
        raise MissingTool(f"{feature} needs cuda-bindings: pip install 'alexconv[gpu]'")
    return bindings


def answer(result: tuple[Any, ...], operation: str) -> Any:
    """The result of a driver call without its status; raises LaunchError if it failed."""
    if int(result[0]) != 0:
        raise LaunchError(f"{operation}: {result[0].name}")
    return result[1] if len(result) > 1 else None


def pdl_shared(grid: Dims, shared: int, device: Device) -> int:
    """Bytes of dynamic shared memory for a programmatic dependent launch whose blocks need ``shared``.

    A launch of few blocks asks for so much that no two fit on a multiprocessor; otherwise they would crowd onto the
    multiprocessors that the previous launch leaves idle first.
    """
    most = device.shared_per_multiprocessor
    return max(shared, most // 2) if prod(grid) <= device.multiprocessors else shared


def loaded_function(driver: Any, module: Any, entry: str, shared: int) -> Any:
    """A kernel of a loaded module, allowed ``shared`` bytes of dynamic shared memory; raises LaunchError."""
    function = answer(driver.cuModuleGetFunction(module, entry.encode()), entry)
    if shared > PORTABLE_SHARED:
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        answer(driver.cuFuncSetAttribute(function, most, shared), entry)
    return function


class PackedLaunch:
    """A kernel launch with packed parameters, to be enqueued many times; not thread-safe.

    With ``pdl`` it is a programmatic dependent launch: it may start before the preceding kernel on the stream ends.
    """

    def __init__(
        self,
        driver: Any,
        function: Any,
        grid: Dims,
        block: Dims,
        shared: int,
        parameters: Sequence[Words],
        *,
        pdl: bool = False,
    ) -> None:
        values = [word for words in parameters for word in words]
        self._words = (ctypes.c_int64 * len(values))(*values)
        places = accumulate((WORD * len(words) for words in parameters[:-1]), initial=ctypes.addressof(self._words))
        self._pointers = (ctypes.c_void_p * len(parameters))(*places)
        self._driver, self._function, self._pdl = driver, function, pdl
        self._places = ctypes.addressof(self._pointers)
        self._shape = *grid, *block, shared

    def enqueue(self, stream: Any, words: Words = ()) -> None:
        """Enqueues the launch; ``words`` replace its first parameters.  Raises LaunchError."""
        for place, word in enumerate(words):
            self._words[place] = word
        if self._pdl:
            launched = self._driver.cuLaunchKernelEx(self._config(stream), self._function, self._places, 0)
            answer(launched, "a programmatic dependent launch")
        else:
            answer(self._driver.cuLaunchKernel(self._function, *self._shape, stream, self._places, 0), "a launch")

    def _config(self, stream: Any) -> Any:
        driver = self._driver
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self._shape[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = self._shape[3:6]
        config.sharedMemBytes, config.hStream = self._shape[6], stream
        config.attrs, config.numAttrs = [attribute], 1
        return config
