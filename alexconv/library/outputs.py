"""New arrays for outputs, of the input's library; ``DeviceArray`` where that has none on a GPU."""

import sys
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.library.arrays import LEGACY_STREAM, TO_NCHW, TO_NHWC, Four, library_of, permute
from alexconv.library.calls import Call
from alexconv.library.workspaces import Gpu, Memory


class DeviceArray:
    """An output on a GPU with the CUDA array interface, for inputs of unknown libraries.

    ``shape``, ``dtype``, and ``strides`` in bytes are as NumPy's.  Work on it is ordered on the stream that the
    interface names.
    """

    def __init__(self, device: Gpu, shape: Four, strides: Four, dtype: np.dtype[Any], stream: int) -> None:
        self.shape, self.dtype = shape, dtype
        self.strides = tuple(step * dtype.itemsize for step in strides)
        self._device, self._stream = device, stream or LEGACY_STREAM
        self._memory = Memory(device, prod(shape) * dtype.itemsize)
        self.address = self._memory.address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array as the interface's version 3 has it."""
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "stream": self._stream,
        }

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in host memory, taken when the stream's work is done."""
        flat = np.empty(prod(self.shape), self.dtype)
        with self._device.current():
            self._device.download(flat, self.address, self._stream)
        return np.lib.stride_tricks.as_strided(flat, self.shape, self.strides).copy()


def empty(x: Any, call: Call, device: Gpu, stream: int) -> tuple[Any, int]:
    """A new array on the device for a call's output, of ``x``'s library if that is torch or CuPy, and its address.

    Its memory is ordered as the call's ``y``, its axes as the call's layout.
    """
    layout, shape = call.terms.layout, call.y.shape
    memory = "nhwc" if layout == "nhwc" else call.memory
    turned = memory == "nhwc" and layout == "nchw"
    packed = permute(shape, TO_NHWC) if memory == "nhwc" else shape
    library = library_of(x)
    if library == "torch":
        y = sys.modules[library].empty(packed, dtype=x.dtype, device=x.device)
        return (y.permute(TO_NCHW) if turned else y), y.data_ptr()
    if library == "cupy":
        cupy: Any = sys.modules[library]
        with cupy.cuda.Device(device.number):
            y = cupy.empty(packed, x.dtype)
        return (y.transpose(TO_NCHW) if turned else y), y.data.ptr
    strides = call.y.strides
    if layout == "nhwc":
        shape, strides = permute(shape, TO_NHWC), permute(strides, TO_NHWC)
    y = DeviceArray(device, shape, strides, call.y.dtype, stream)
    return y, y.address


def like(x: Any, y: npt.NDArray[Any]) -> Any:
    """An output in host memory as an array of the library of ``x``: torch's, else NumPy's."""
    return sys.modules["torch"].from_numpy(y) if library_of(x) == "torch" else y


@cache
def allocator() -> Callable[[Any, Any, Any], Any]:
    """Makes a tensor of a shape, strides and type on the current GPU, in a third of empty_strided's time."""
    torch: Any = sys.modules["torch"]
    try:
        quick: Callable[[Any, Any, Any], Any] = torch._C._dynamo.guards._empty_strided_cuda  # as compiled models do
    except AttributeError:
        return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
    return quick
