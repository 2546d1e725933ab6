"""What follows from the descriptors of a call's arrays, computed once for all calls with the same ones."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from alexconv.library.arrays import TO_NCHW, TO_NHWC, Descriptor, Four, packed_descriptor, permute
from alexconv.library.terms import Terms, conv_of, place
from alexconv.precisions import PRECISIONS
from alexconv.shapes import DGRAD, DIRECTIONS, Conv

MOST_CALLS = 4096  # in each cache of what follows from a call's layer or descriptors


@dataclass(frozen=True, eq=False)
class Call:
    """State shared by all calls whose arrays have the same descriptors.

    ``x`` and ``y`` are input and output with their axes as (N, C, H, W), so is ``residual``; ``w`` and ``bias`` are the
    filters and their bias; ``memory`` is x's layout in memory.  Of a gradient they are the arrays that have these roles
    in its direction.
    """

    terms: Terms
    conv: Conv
    N: int
    memory: str
    x: Descriptor
    y: Descriptor
    w: Descriptor
    bias: Descriptor | None
    residual: Descriptor | None = None


@lru_cache(maxsize=MOST_CALLS)
def call_of(
    terms: Terms,
    w: Descriptor,
    x: Descriptor,
    out: Descriptor | None = None,
    bias: Descriptor | None = None,
    residual: Descriptor | None = None,
) -> Call:
    """The call for these arrays; without ``out``, for a new, packed one.

    Raises ValueError where they do not fit each other or the precision.
    """
    check_dtype(x, "x", terms.precision)
    x_nchw = study_order(x, terms.layout)
    conv, N, memory = conv_of(terms, w, x_nchw, bias=bias is not None), x.shape[0], memory_of(x_nchw)
    if bias is not None and bias.device != x.device and bias.device is not None:
        raise ValueError(f"x is {place(x)}, bias {place(bias)}")
    shape = conv.y_shape(N)
    if out is None:
        order = "nhwc" if terms.layout == "nhwc" else memory
        y = packed_descriptor(shape, order, x.dtype, x.device)  # aligned: GPU allocators align to more than ALIGNMENT
    else:
        check_out(out, x, terms, shape)
        y = study_order(out, terms.layout)
    if residual is not None:
        check_as_output(residual, "residual", x, terms, shape)
        residual = study_order(residual, terms.layout)
    conv = replace(conv, residual=residual is not None, y_channels=y_channels(y))
    return Call(terms, conv, N, memory, x_nchw, y, w, bias, residual)


def y_channels(y: Descriptor) -> int:
    """The channels of the packed array of which an output is a slice; 0 where it is a whole array, or no slice."""
    _, M, E, F = y.shape
    for layout, channels in (("nhwc", y.strides[3] if F > 1 else y.strides[2]), ("nchw", y.strides[0] // (E * F))):
        if channels > M and y.lies_in(layout, channels):
            return channels
    return 0


@lru_cache(maxsize=MOST_CALLS)
def gradient_of(terms: Terms, direction: str, x: Descriptor, w: Descriptor, shape: Four) -> Call:
    """The call for a gradient of ``shape``, a new, packed array in nchw, or of dgrad in the layout of dy.

    x and w are the operands in the roles of the direction: of dgrad dy and filters, of wgrad x and dy, all in nchw.
    Raises ValueError where they do not fit each other or the precision.
    """
    for array, name in ((x, DIRECTIONS[direction].x), (w, DIRECTIONS[direction].w)):
        check_dtype(array, name, terms.precision)
    memory = memory_of(x) if direction == DGRAD else "nchw"  # of the gradient
    y = packed_descriptor(shape, memory, x.dtype, x.device)
    planes, filters, dy = (y, w, x) if direction == DGRAD else (x, y, w)
    conv, N = conv_of(terms, filters, planes).toward(direction), planes.shape[0]
    if dy.shape != conv.y_shape(N):
        raise ValueError(f"dy has shape {dy.shape}, the output has {conv.y_shape(N)}")
    return Call(terms, conv, N, memory, x, y, w, None)


def check_filters(w: Descriptor, bias: Descriptor | None, terms: Terms) -> None:
    """Raises ValueError for filters or a bias that do not fit each other or the precision."""
    check_dtype(w, "filters", terms.precision)
    if bias is None:
        return
    check_dtype(bias, "bias", terms.precision)
    if bias.shape[3] != w.shape[0]:
        raise ValueError(f"bias has {bias.shape[3]} elements, there are {w.shape[0]} filters")
    if bias.shape[3] > 1 and bias.strides[3] != 1:
        raise ValueError(f"bias is not contiguous: its stride is {bias.strides[3]}")


def study_order(array: Descriptor, layout: str) -> Descriptor:
    """An array in a layout with its axes as (N, C, H, W)."""
    return array.permuted(TO_NCHW) if layout == "nhwc" else array


def dtype_of(precision: str) -> np.dtype[Any]:
    """The type of a class's arrays."""
    return np.dtype(PRECISIONS[precision].dtype)


def check_dtype(array: Descriptor, name: str, precision: str) -> None:
    """Raises ValueError for an array of another type than the precision's."""
    wanted = dtype_of(precision)
    if array.dtype != wanted:
        raise ValueError(f"{name} is {array.dtype}, but precision {precision} takes {wanted}")


def check_as_output(array: Descriptor, name: str, x: Descriptor, terms: Terms, shape: Four) -> None:
    """Raises ValueError for an array that is not like the output, ``shape`` being that with axes as (N, C, H, W)."""
    check_dtype(array, name, terms.precision)
    wanted = permute(shape, TO_NHWC) if terms.layout == "nhwc" else shape
    if array.shape != wanted:
        raise ValueError(f"{name} has shape {array.shape}, the output has {wanted}")
    if array.device != x.device:
        raise ValueError(f"x is {place(x)}, {name} {place(array)}")


def check_out(out: Descriptor, x: Descriptor, terms: Terms, shape: Four) -> None:
    """Raises ValueError for an ``out`` that cannot take an output of that shape."""
    check_as_output(out, "out", x, terms, shape)
    if not out.writable:
        raise ValueError("out is read-only")
    if overlaps(out):
        raise ValueError(f"elements of out may overlap: its strides are {out.strides}")


def overlaps(array: Descriptor) -> bool:
    """Whether elements may overlap: unless each stride is longer than the reach of all smaller ones."""
    reach = 0
    for step, extent in sorted((abs(step), extent) for step, extent in zip(array.strides, array.shape, strict=True)):
        if extent > 1 and step <= reach:
            return True
        reach += step * (extent - 1)
    return False


def memory_of(array: Descriptor) -> str:
    """An array's layout in memory; nchw if neither or both."""
    return "nhwc" if array.lies("nhwc") and not array.lies("nchw") else "nchw"
