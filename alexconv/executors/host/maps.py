"""Tensor maps for the host executor's TMA: plain structures, with the limits that the CUDA driver checks."""

import ctypes
from collections.abc import Callable

from alexconv.errors import LaunchError
from alexconv.executors.host.memory import HostBuffer
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BoundingBox, TensorMap, bounding_box

MAX_DIMS = 4  # of a map here
ITEMSIZE = 2  # bytes of an element
ROW_BYTES = 128  # of a box
ALIGNMENT = 16  # bytes, of addresses and strides
MAX_BOX = 256  # elements along one dimension
MAX_PIXELS = 1024  # of an im2col column
LEAST_CORNER, MOST_CORNER = -128, 127  # of the bounding box, relative to the array's
MAX_STEP = 8  # from a pixel to the next


class _TensorMap(ctypes.Structure):
    """``TensorMap`` in tensor_map.h."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("strides", ctypes.c_uint64 * (MAX_DIMS - 1)),
        ("dims", ctypes.c_uint * MAX_DIMS),
        ("box", ctypes.c_uint * MAX_DIMS),
        ("lower", ctypes.c_int * 2),
        ("upper", ctypes.c_int * 2),
        ("steps", ctypes.c_uint * 2),
        ("rank", ctypes.c_uint),
    )


def encode(tensor_map: TensorMap, p: Problem, address: int, allocate: Callable[[int, str], HostBuffer]) -> HostBuffer:
    """The map of an array of N images that lies at ``address``; raises LaunchError where a GPU would refuse it."""
    dims, strides = tensor_map.dims(p), tensor_map.strides(p)
    box = tensor_map.box(p)
    around = bounding_box(tensor_map.window(p)) if tensor_map.window else None
    if problem := _problem(dims, strides, box, around, address):
        raise LaunchError(f"tensor map {tensor_map.name}: {problem}")
    buffer = allocate(ctypes.sizeof(_TensorMap), tensor_map.name)
    fields = _TensorMap.from_address(buffer.pointer)
    fields.base, fields.rank = address, len(dims)
    fields.strides[: len(strides)] = strides
    fields.dims[: len(dims)] = dims
    fields.box[: len(box)] = box
    fields.steps[:] = (0, 0)
    if around:
        fields.lower[:], fields.upper[:], fields.steps[:] = around.lower, around.upper, around.steps
    return buffer


def _problem(
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    around: BoundingBox | None,
    address: int,
) -> str | None:
    if len(strides) != len(dims) - 1 or len(box) != (len(dims) if around is None else 2):
        return f"{len(dims)} dimensions, {len(strides)} strides and a box of {len(box)} do not fit together"
    if len(dims) != (3 if around is None else 4):
        return f"{len(dims)} dimensions; the host executor has tiled maps of 3 and im2col maps of 4"
    if address % ALIGNMENT or any(stride % ALIGNMENT for stride in strides):
        return f"address and strides are multiples of {ALIGNMENT} bytes, not {address:#x} and {strides}"
    if min(dims) < 1 or min(box) < 1 or max(dims) >= 2**31:
        return f"dimensions {dims} and box {box} are out of range"
    if box[0] * ITEMSIZE != ROW_BYTES:
        return f"a row of a box has {ROW_BYTES} bytes, not {box[0] * ITEMSIZE}"
    if max(box[1:]) > (MAX_BOX if around is None else MAX_PIXELS):
        return f"a box of {box} is too large"
    if around:
        if not all(LEAST_CORNER <= corner <= MOST_CORNER for corner in (*around.lower, *around.upper)):
            return f"the corners {around.lower} and {around.upper} of the bounding box are out of range"
        if not all(1 <= step <= MAX_STEP for step in around.steps):
            return f"steps {around.steps} are out of range"
        if any(dim + upper <= lower for dim, lower, upper in zip(dims[1:3], around.lower, around.upper, strict=True)):
            return f"a bounding box from {around.lower} to {around.upper} of {dims[1:3]} is empty"
    return None
