"""Gradients of ``conv2d``: of its input and filters by the rungs of dgrad and wgrad, of its bias by sum.cu.

Operands are torch tensors, or NumPy arrays, with their axes as (N, C, H, W), in any memory layout.

The rung is the one that ``auto`` chooses for the direction, in the call's class or a stricter one; a rung whose order
of additions varies is never chosen.  A gradient waits for its rung to compile, and so does the forward pass before it.
fp16 tensors of a layer that no fp16 rung takes are converted to floats, which hold them exactly, and the gradient is
rounded once.  Gradients of arrays in host memory are computed on the CPU, in class fp32.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import numpy as np

from alexconv.library import devices, on_host
from alexconv.library.arrays import TO_NCHW, TO_NHWC, Descriptor, Four, View, host_array, packed_descriptor, view
from alexconv.library.calls import MOST_CALLS, Call, call_of, check_dtype, dtype_of, gradient_of
from alexconv.library.on_host import Values
from alexconv.library.operation import Operation, operation_of
from alexconv.library.outputs import empty, like
from alexconv.library.packets import Packet, Symbol
from alexconv.library.routes import route_of
from alexconv.library.terms import Terms
from alexconv.library.workspaces import Gpu, Lane
from alexconv.messages import print_to_stderr
from alexconv.shapes import DGRAD, DIRECTIONS, WGRAD, Conv

ON_CPU = "fp32"
WIDENED = "tf32"  # the class of halves that no fp16 rung takes: it holds fp16's numbers, and sums as fp16 does


def dgrad(dy: Any, filters: Any, plane: tuple[int, int], terms: Terms) -> Any | None:
    """The gradient ``[N][C][H][W]`` of an input with planes of (H, W); in memory it lies as dy ``[N][M][E][F]`` does.

    None where no rung takes the layer, which is printed once.  Raises ValueError for tensors that do not fit each
    other or the class.
    """
    return gradient(DGRAD, dy, filters, (len(dy), filters.shape[1] * terms.groups, *plane), terms)


def wgrad(x: Any, dy: Any, taps: tuple[int, int], terms: Terms) -> Any | None:
    """The gradient ``[M][C / groups][R][S]`` of filters with taps (R, S), summed over the images of the batch.

    None where no rung takes the layer, or its batch does not fit in memory at once, which is printed once.  Raises as
    ``dgrad`` does.
    """
    return gradient(WGRAD, x, dy, (dy.shape[1], x.shape[1] // terms.groups, *taps), terms)


def bias_gradient(dy: Any, terms: Terms) -> Any:
    """The gradient ``[M]`` of a bias: the sum of dy ``[N][M][E][F]`` over images and pixels, added in fp32.

    Raises ValueError for a tensor of another type than the class's.
    """
    dy_view = view(dy, "dy")
    check_dtype(dy_view.descriptor, "dy", terms.precision)
    if dy_view.descriptor.device is None:
        return like(dy, host_array(dy).sum((0, 2, 3), np.float64).astype(dy_view.descriptor.dtype))
    if not dy.numel():
        return dy.new_zeros(dy.shape[1])
    sums, device = dy.new_empty(dy.shape[1]), devices.gpu(dy_view.descriptor.device)
    with device.lock, device.current():
        packet = sums_operation().packet(device, sums_of(dy_view.descriptor), dy_view.stream)
        packet.enqueue((dy_view.address, sums.data_ptr(), 0, 0, 0))
    return sums


def wait_for_rung(x: Any, filters: Any, bias: Any, terms: Terms) -> None:
    """Compiles the rung of a forward call of tensors on a GPU, where it has one."""
    x_array, w_array = view(x, "x").descriptor, view(filters, "filters").descriptor
    bias_array = None if bias is None else view(bias, "bias", axes=1).descriptor
    if x_array.device is not None and w_array.device is not None and len(x):
        waited_for(x_array, w_array, bias_array, terms)


@lru_cache(maxsize=MOST_CALLS)
def waited_for(x: Descriptor, w: Descriptor, bias: Descriptor | None, terms: Terms) -> None:
    """The same for tensors of these descriptors, once."""
    call, device = call_of(terms, w, x, None, bias), devices.gpu(x.device)  # type: ignore[arg-type]
    with device.lock, device.current():
        if device.compiles and (key := route_of(device, call).key):
            device.loaded(key, wait=True)


def start(x: Any, filters: Any, wanted: tuple[bool, bool], terms: Terms) -> None:
    """Begins to compile the rungs of the wanted gradients, of x and of filters, for tensors on a GPU."""
    x_array, w_array = view(x, "x").descriptor, view(filters, "filters").descriptor
    if x_array.device is not None and w_array.device is not None and len(x):
        started(x_array, w_array, wanted, terms)


@lru_cache(maxsize=MOST_CALLS)
def started(x: Descriptor, w: Descriptor, wanted: tuple[bool, bool], terms: Terms) -> None:
    """The same for tensors of these descriptors, once."""
    forward, device = call_of(terms, w, x), devices.gpu(x.device)  # type: ignore[arg-type]
    directions = [direction for direction, is_wanted in zip((DGRAD, WGRAD), wanted, strict=True) if is_wanted]
    with device.lock, device.current():
        for call in gradient_calls(device, forward, directions):
            if device.compiles and (key := route_of(device, call).key):
                device.loaded(key, wait=False)


def gradient_calls(device: Gpu, call: Call, directions: Sequence[str] = (DGRAD, WGRAD)) -> Iterator[Call]:
    """The calls that compute a forward call's gradients, of those that rungs take."""
    for direction in directions:
        terms = call.terms._replace(layout="nchw")
        yield from islice(routed(device, terms, *problem_of(direction, call)), 1)


def problem_of(direction: str, call: Call) -> tuple[str, Descriptor, Descriptor, Four]:
    """A gradient of a forward call: its direction, its operands in their roles, and its shape."""
    if direction == DGRAD:
        return direction, call.y, call.w, call.x.shape
    return direction, call.x, call.y, call.w.shape


def gradient(direction: str, x: Any, w: Any, shape: Four, terms: Terms) -> Any | None:
    """The gradient of a shape, of operands in the roles of its direction; as ``dgrad`` and ``wgrad``."""
    x_view, w_view = views(direction, x, w)
    problem = direction, x_view.descriptor, w_view.descriptor, shape
    call = gradient_of(terms, *problem)
    if call.x.device is None:
        return like(x, computed_on_host(call, host_array(x), host_array(w)))
    if not call.N:
        return x.new_zeros(shape)
    device = devices.gpu(call.x.device)
    with device.lock, device.current():
        able = next(routed(device, terms, *problem), None)
        if able is None:
            say_once(f"no rung computes {direction} of {call.conv}, N={call.N}, {terms.precision}: torch does")
            return None
        if able.x.dtype == call.x.dtype:
            return enqueued(device, able, x, x_view, w_view)
        x_wide, w_wide = x.float(), w.float()
        x_view, w_view = views(direction, x_wide, w_wide)
        able = gradient_of(able.terms, direction, x_view.descriptor, w_view.descriptor, shape)
        return enqueued(device, able, x_wide, x_view, w_view).to(x.dtype)


def computed_on_host(call: Call, x: Values, w: Values) -> Values:
    """A gradient of host arrays, in the call's type and memory layout."""
    if not call.N:
        return np.zeros(call.y.shape, call.y.dtype)
    y = on_host.computed(call.conv, x, w, None, ON_CPU).astype(call.y.dtype, copy=False)
    return np.ascontiguousarray(y.transpose(TO_NHWC)).transpose(TO_NCHW) if call.memory == "nhwc" else y


def views(direction: str, x: Any, w: Any) -> tuple[View, View]:
    """Views of a gradient's operands."""
    roles = DIRECTIONS[direction]
    return view(x, roles.x), view(w, roles.w)


def routed(device: Gpu, terms: Terms, direction: str, x: Descriptor, w: Descriptor, shape: Four) -> Iterator[Call]:
    """The calls that compute a gradient by a rung: in the class, and halves also as floats."""
    for precision in (terms.precision, WIDENED) if x.dtype == np.float16 else (terms.precision,):
        dtype = dtype_of(precision)
        operands = (array if array.dtype == dtype else array._replace(dtype=dtype) for array in (x, w))
        call = gradient_of(terms._replace(precision=precision), direction, *operands, shape)
        if route_of(device, call).key:
            yield call


def enqueued(device: Gpu, call: Call, x: Any, x_view: View, w_view: View) -> Any:
    """A new tensor for a gradient that a rung computes, on the stream of x."""
    y, address = empty(x, call, device, x_view.stream)
    terms = call.terms
    operation = operation_of(
        terms.stride, terms.padding, terms.precision, terms.layout, "auto", None, terms.dilation, terms.groups
    )
    operation.packet(device, call, x_view.stream).enqueue((x_view.address, address, 0, w_view.address, 0))
    return y


class Sums(Operation):
    """The gradients of biases: its packets sum the planes of x, which is dy."""

    def _new_packet(self, device: Gpu, call: Call, lane: Lane) -> Packet:
        recipe = device.recipe(lane)
        device.add_sums(recipe, lane, (Symbol("x"), call.x), Symbol("y"))
        return Packet(recipe, lane, ())


@cache
def sums_operation() -> Sums:
    """The one of the process, with its packets."""
    return Sums(Terms(), "auto")


@lru_cache(maxsize=MOST_CALLS)
def sums_of(dy: Descriptor) -> Call:
    """The call that sums the planes of dy: the wgrad of a layer whose input is a channel of ones."""
    N, M, E, F = dy.shape
    conv = Conv(1, E, F, M, 1, 1).toward(WGRAD)
    return Call(Terms(), conv, N, "nchw", dy, packed_descriptor((1, 1, 1, M), "nchw", dy.dtype, dy.device), dy, None)


say_once = cache(print_to_stderr)
