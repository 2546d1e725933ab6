"""Arrays of other libraries, viewed without a copy: NumPy, torch, ``__cuda_array_interface__`` and DLPack.

Axes are named ``(N, C, H, W)`` whatever their order in memory, which the strides give.  No library is imported: a
process that passes torch or CuPy arrays has imported it.
"""

import ctypes
import operator
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alexconv.errors import OutOfMemory
from alexconv.executors.cuda.bindings import import_bindings

Four = tuple[int, int, int, int]

LEGACY_STREAM = 1  # the driver's handle of the legacy default stream, which synchronizes with all blocking streams
CPU, CUDA_KINDS = 1, (2, 13)  # DLPack's device types: memory of the host; of CUDA devices, and managed by CUDA
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)  # orders of axes
ALIGNMENT = 16  # bytes: the widest access of a rung, and TMA's unit
MOST_DESCRIPTORS = 4096  # of arrays, in each cache of what follows from them


class Descriptor(NamedTuple):
    """A four-dimensional array without its address, like a cuDNN tensor descriptor.

    Calls are looked up by the descriptors of their arrays: tuples, which hash fast.  ``strides`` count elements.
    ``device`` is the number of the GPU, None for host memory.  ``aligned``: the first element is aligned to ALIGNMENT
    bytes.
    """

    shape: Four
    strides: Four
    dtype: np.dtype[Any]
    device: int | None = None
    aligned: bool = True
    writable: bool = True

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def permuted(self, order: Sequence[int]) -> "Descriptor":
        """The same memory, its axes in another order."""
        return self._replace(shape=permute(self.shape, order), strides=permute(self.strides, order))

    def lies(self, layout: str) -> bool:
        """Whether the array is packed in a layout."""
        return self.lies_in(layout, self.shape[1])

    def lies_in(self, layout: str, channels: int) -> bool:
        """Whether the array is a slice of channels of one that has so many and is packed in a layout."""
        N, _, H, W = self.shape
        return same_steps(self.shape, self.strides, packed_strides((N, channels, H, W), layout))


class View(NamedTuple):
    """An array in memory.

    Work on it goes on ``stream``, a driver handle.  With ``waits`` the call must synchronize before it returns,
    because the array's owner does not know of that work.
    """

    address: int
    descriptor: Descriptor
    stream: int = LEGACY_STREAM
    waits: bool = False


@lru_cache(maxsize=MOST_DESCRIPTORS)
def in_place(array: Descriptor, layout: str, channels: int = 0) -> bool:
    """Whether a rung of the layout can use an array in place; as a slice of one with so many channels, if given."""
    return array.aligned and array.lies_in(layout, channels or array.shape[1])


@lru_cache(maxsize=MOST_DESCRIPTORS)
def packed_descriptor(shape: Four, layout: str, dtype: np.dtype[Any], device: int | None) -> Descriptor:
    """The descriptor of a new, packed array."""
    return Descriptor(shape, packed_strides(shape, layout), dtype, device)


def is_aligned(address: int) -> bool:
    """Whether an address is one that every rung can use."""
    return address % ALIGNMENT == 0


def permute(quadruple: Four, order: Sequence[int]) -> Four:
    """Four numbers in another order."""
    a, b, c, d = (quadruple[axis] for axis in order)
    return a, b, c, d


def packed_strides(shape: Four, layout: str) -> Four:
    """Strides of ``(N, C, H, W)`` for an array in a layout, without gaps."""
    _, C, H, W = shape
    return (C * H * W, 1, W * C, C) if layout == "nhwc" else (C * H * W, H * W, W, 1)


def same_steps(shape: Four, strides: Four, others: Four) -> bool:
    """Whether strides are equivalent: those of axes with one element do not matter."""
    return all(extent == 1 or a == b for extent, a, b in zip(shape, strides, others, strict=True))


def library_of(values: Any) -> str:
    """The first part of the module of an array's type: torch, cupy, numpy, ..."""
    return type(values).__module__.partition(".")[0]


def view(values: Any, name: str, axes: int = 4) -> View:
    """An array as a View; ``name`` is for errors.  Axes of one element precede fewer than four ``axes``.

    Raises TypeError for a value that is not an array, ValueError for other dimensions or an array that cannot be used.
    """
    if isinstance(values, np.ndarray):
        return _of_numpy(values, name, axes)
    if isinstance(values, type):
        raise no_array(values, name)
    if library_of(values) == "torch" and hasattr(values, "data_ptr"):
        return _of_torch(values, name, axes)
    if hasattr(values, "__cuda_array_interface__"):
        return _of_interface(values.__cuda_array_interface__, name, axes)
    if hasattr(values, "__dlpack__") and hasattr(values, "__dlpack_device__"):
        kind, number = values.__dlpack_device__()
        if kind == CPU:
            return _of_numpy(np.from_dlpack(values), name, axes)
        if kind not in CUDA_KINDS:
            raise ValueError(f"{name} is on a device of DLPack's type {kind}, which is neither the CPU nor CUDA")
        return _of_capsule(values.__dlpack__(stream=LEGACY_STREAM), number, name, axes)
    raise no_array(values, name)


def no_array(values: Any, name: str) -> TypeError:
    """The error of a value that is not an array."""
    return TypeError(
        f"{name} is a {type(values).__name__}, not an array: NumPy, torch, __cuda_array_interface__ or DLPack"
    )


@contextmanager
def host_memory() -> Iterator[None]:
    """Raises OutOfMemory, with the figure, where an array in host memory cannot be allocated."""
    try:
        yield
    except MemoryError as error:  # NumPy's text has the size
        raise OutOfMemory(f"host memory: {str(error) or 'an allocation failed'}") from None


def host_array(values: Any) -> npt.NDArray[Any]:
    """An array in host memory as a NumPy array that shares it."""
    if isinstance(values, np.ndarray):
        return values
    array: npt.NDArray[Any] = values.detach().numpy() if library_of(values) == "torch" else np.from_dlpack(values)
    return array


def four(numbers: Sequence[int], name: str, axes: int = 4, filler: int = 1) -> Four:
    """A shape or strides, padded in front with ``filler``; raises ValueError unless there are ``axes``."""
    if len(numbers) != axes:
        raise ValueError(f"{name} has {len(numbers)} dimensions {tuple(numbers)}, not {axes}")
    a, b, c, d = (*[filler] * (4 - axes), *(operator.index(number) for number in numbers))
    return a, b, c, d


def _of_numpy(values: npt.NDArray[Any], name: str, axes: int) -> View:
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} has a mask, which is not supported")
    shape = four(values.shape, name, axes)
    strides = _in_elements(values.strides, values.dtype, name, axes)
    address = values.ctypes.data
    return View(
        address, Descriptor(shape, strides, values.dtype, None, is_aligned(address), bool(values.flags.writeable))
    )


def _of_torch(values: Any, name: str, axes: int) -> View:
    torch: Any = sys.modules["torch"]
    if name == "out" and values.requires_grad and torch.is_grad_enabled():
        raise ValueError("out requires a gradient, which an output in place does not have: pass out.detach()")
    if values.layout != torch.strided:
        raise ValueError(f"{name} is a tensor of layout {values.layout}, not torch.strided")
    if values.is_neg():
        raise ValueError(f"{name} is a lazily negated view: pass {name}.resolve_neg()")
    address = values.data_ptr()
    descriptor = _torch_descriptor(
        values.shape, values.stride(), values.dtype, values.device, is_aligned(address), name, axes
    )
    if descriptor.device is None:
        return View(address, descriptor)
    return View(address, descriptor, torch.cuda.current_stream(descriptor.device).cuda_stream)


@lru_cache(maxsize=MOST_DESCRIPTORS)
def _torch_descriptor(
    size: Any, strides: tuple[int, ...], kind: Any, device: Any, aligned: bool, name: str, axes: int
) -> Descriptor:
    """The descriptor for a tensor's size, strides, dtype and device."""
    torch: Any = sys.modules["torch"]
    shape, steps = four(size, name, axes), four(strides, name, axes, filler=0)
    dtypes = {torch.float32: np.float32, torch.float16: np.float16}
    if kind not in dtypes:
        raise ValueError(f"{name} is {kind}, not float32 or float16")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name} is on {device}, which is neither the CPU nor CUDA")
    return Descriptor(shape, steps, np.dtype(dtypes[kind]), device.index if device.type == "cuda" else None, aligned)


def _of_interface(interface: Any, name: str, axes: int) -> View:
    """A view of the CUDA array interface, version 3 or older; raises ValueError if it is malformed."""
    try:
        return _of_fields(interface, name, axes)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{name} has a malformed __cuda_array_interface__ ({reason})") from None


def _of_fields(interface: Any, name: str, axes: int) -> View:
    if interface.get("mask") is not None:
        raise ValueError(f"{name} has a mask, which is not supported")
    stream = interface.get("stream")
    if stream == 0:
        raise ValueError(f"{name} names stream 0, which the CUDA array interface forbids as ambiguous")
    shape, dtype = four(interface["shape"], name, axes), np.dtype(str(interface["typestr"]))
    strides = packed_strides(shape, "nchw")
    if interface.get("strides") is not None:
        strides = _in_elements(interface["strides"], dtype, name, axes)
    address, read_only = operator.index(interface["data"][0]), interface["data"][1]
    if min(shape) < 0 or not 0 <= address < 2**64 or (not address and min(shape)):
        raise ValueError(f"{name} has a __cuda_array_interface__ of shape {shape} at address {address}")
    if stream is not None and operator.index(stream) < 0:
        raise ValueError(f"{name} names stream {stream}")
    descriptor = Descriptor(shape, strides, dtype, _device_of(address), is_aligned(address), not read_only)
    return View(address, descriptor, stream or LEGACY_STREAM)


def _of_capsule(capsule: Any, device: int, name: str, axes: int) -> View:
    """A view of a DLPack capsule, which is not consumed: the array keeps the memory alive during the call."""
    tensor = _Tensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape, strides = four(tensor.shape[: tensor.ndim], name, axes), None
    if tensor.strides:
        strides = four(tensor.strides[: tensor.ndim], name, axes, filler=0)
    if tensor.lanes != 1 or tensor.code != _FLOAT or tensor.bits not in (16, 32):
        raise ValueError(f"{name} has elements of DLPack's type ({tensor.code}, {tensor.bits}), not float32 or float16")
    dtype = np.dtype(np.float16 if tensor.bits == 16 else np.float32)
    address = (tensor.data or 0) + tensor.byte_offset
    descriptor = Descriptor(shape, strides or packed_strides(shape, "nchw"), dtype, device, is_aligned(address))
    return View(address, descriptor, waits=True)


_FLOAT = 2  # DLPack's code of floating-point numbers


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor, the first member of a DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _capsule_pointer(capsule: Any, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get(capsule, name))


def _in_elements(strides: Sequence[int], dtype: np.dtype[Any], name: str, axes: int) -> Four:
    if any(stride % dtype.itemsize for stride in strides):
        raise ValueError(f"{name} has strides {tuple(strides)}, not multiples of its {dtype.itemsize}-byte elements")
    return four([stride // dtype.itemsize for stride in strides], name, axes, filler=0)


def _device_of(address: int) -> int:
    """The GPU that memory belongs to; 0 where the driver does not say, or is missing."""
    driver = import_bindings()
    if driver is None or not address:
        return 0
    kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    try:
        result, number = driver.cuPointerGetAttribute(kind, address)
    except RuntimeError:  # cuda-bindings' without libcuda
        return 0
    return int(number) if int(result) == 0 else 0
