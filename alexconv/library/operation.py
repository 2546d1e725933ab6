"""A convolution of given terms: everything a call needs, computed once for each combination of descriptors.

What a call needs follows from its arrays' shapes, strides, types, devices and alignment, not from their addresses.
Later calls enqueue a packet (``alexconv.library.packets``).
"""

import sys
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.errors import OutOfMemory
from alexconv.library import devices
from alexconv.library.arrays import (
    ALIGNMENT,
    TO_NCHW,
    TO_NHWC,
    Descriptor,
    Four,
    View,
    host_array,
    host_memory,
    in_place,
    library_of,
    packed_descriptor,
    view,
)
from alexconv.library.calls import Call, call_of, check_filters
from alexconv.library.filters import FixedFilters, nbytes
from alexconv.library.generic import turned
from alexconv.library.on_host import activated, on_host
from alexconv.library.outputs import allocator, empty, like
from alexconv.library.packets import Packet, Symbol, Value
from alexconv.library.routes import ready, route_of
from alexconv.library.terms import Padding, Pair, Terms, one_of, terms_of
from alexconv.library.workspaces import Gpu, Lane, Loaded, Memory
from alexconv.shapes import FORWARD

IN_BACKGROUND = True  # whether rungs compile in the background during a shape's first calls
MOST_PACKETS = 1024  # cached for each operation
PLAIN = ("Tensor", "Parameter")  # torch tensor types without subclass behaviour
STAGED_SHARE = 0.25  # of a GPU's budget, for host arrays staged at a time


class Operation:
    """The terms of a convolution, with its filters for a Conv2d; caches a packet for each combination of arrays."""

    def __init__(self, terms: Terms, backend: str, filters: FixedFilters | None = None) -> None:
        one_of(backend, "backend", devices.OF_HOST_ARRAYS)
        self.terms, self.backend, self.filters = terms, backend, filters
        self._packets: dict[Any, Packet] = {}
        self._quick: dict[Any, tuple[Packet, Four | None, Four | None]] = {}

    def of_tensor(
        self, torch: Any, x: Any, out: Any = None, w: Any = None, bias: Any = None, residual: Any = None
    ) -> Any:
        """The output for a plain tensor, without gradients; takes the fast path if there was a similar call."""
        number = x.get_device()
        if number < 0 or x.is_neg() or not all(map(is_plain, (out, w, bias, residual))):
            return self.compute(x, out, w, bias, residual)
        stream = torch._C._cuda_getCurrentRawStream(number)
        address, out_address, residual_address = x.data_ptr(), 0, 0
        filter_addresses: tuple[int, ...] = ()
        key: Any = (number, x.shape, x.stride(), x.dtype, address % ALIGNMENT)
        if out is not None:
            out_address = out.data_ptr()
            key += tensor_key(out)
            if out_address == address:
                return self.compute(x, out, w, bias, residual)
        if residual is not None:
            residual_address = residual.data_ptr()
            if residual_address == out_address:
                return self.compute(x, out, w, bias, residual)
            key += (out is None, "residual", *tensor_key(residual))
        if w is not None:
            filter_addresses = w.data_ptr(), 0 if bias is None else bias.data_ptr()
            key += (out is None, *tensor_key(w), bias is None or tensor_key(bias))
        device = devices.started.get(number)
        if device is None:
            return self.compute(x, out, w, bias, residual)
        with device.lock:
            if device.streams.context() != device.context:  # the driver answers about streams of the current context
                return self.compute(x, out, w, bias, residual)
            key = device.lane(stream), key
            cached = self._quick.get(key)
            if cached is None or not cached[0].usable():
                return self.compute(x, out, w, bias, residual, quick=key)
            packet, shape, strides = cached
            if out is None:
                with device.relaxed:  # torch may have to allocate while another thread captures
                    out = allocator()(shape, strides, x.dtype)
                out_address = out.data_ptr()
            packet.enqueue((address, out_address, residual_address, *filter_addresses))
        return out

    def compute(
        self, x: Any, out: Any, w: Any = None, bias: Any = None, residual: Any = None, quick: Any = None
    ) -> Any:
        """The same for arrays of any library; ``quick`` is the fast path's key for a tensor's call."""
        fixed = self.filters
        call, (x_view, out_view, w_view, bias_view, residual_view) = self.described(x, out, w, bias, residual)
        if x_view.descriptor.device is None:
            return self._of_host(x, out, call, *(fixed.arrays if fixed else (w, bias)), residual)
        filter_views = [] if fixed else [array for array in (w_view, bias_view) if array is not None]
        if any(array.descriptor.device is None for array in filter_views):
            return Operation(self.terms, self.backend, FixedFilters(w, bias, self.terms)).compute(
                x, out, residual=residual
            )
        if out_view is not None and call.N:
            check_apart(out_view, x_view, "x")
            check_apart(out_view, residual_view, "residual")
        device = devices.gpu(x_view.descriptor.device)
        with device.lock, device.current():
            if out_view is None:
                out, address = empty(x, call, device, x_view.stream)
                out_view = View(address, call.y, x_view.stream)
            read = filter_views if residual_view is None else [*filter_views, residual_view]
            for array in (out_view, *read):
                device.join(array.stream, x_view.stream)
            if call.N:
                packet = self.packet(device, call, x_view.stream)
                bias_address = 0 if bias_view is None else bias_view.address
                residual_address = 0 if residual_view is None else residual_view.address
                packet.enqueue((x_view.address, out_view.address, residual_address, w_view.address, bias_address))
                if quick is not None and not packet.once:
                    self._quick[quick] = packet, tuple(out.shape), out.stride()
            device.join(x_view.stream, out_view.stream)
            if any(array.waits for array in (x_view, out_view, *read)):
                device.wait(x_view.stream)
        return out

    def described(
        self, x: Any, out: Any, w: Any = None, bias: Any = None, residual: Any = None
    ) -> tuple[Call, tuple[View, View | None, View, View | None, View | None]]:
        """The call, and views of x, out, filters, bias and residual; raises ValueError, and TypeError for no array."""
        fixed = self.filters
        x_view, out_view = view(x, "x"), None if out is None else view(out, "out")
        w_view = fixed.w if fixed else view(w, "filters")
        bias_view = fixed.bias if fixed else None if bias is None else view(bias, "bias", axes=1)
        residual_view = None if residual is None else view(residual, "residual")
        out_descriptor, bias_descriptor, residual_descriptor = (
            None if array is None else array.descriptor for array in (out_view, bias_view, residual_view)
        )
        if not fixed:
            check_filters(w_view.descriptor, bias_descriptor, self.terms)
        call = call_of(
            self.terms, w_view.descriptor, x_view.descriptor, out_descriptor, bias_descriptor, residual_descriptor
        )
        number = x_view.descriptor.device
        if number is not None and self.backend not in devices.OF_DEVICE_ARRAYS:
            raise ValueError(f"x is on GPU {number}, but backend {self.backend} takes arrays in host memory")
        return call, (x_view, out_view, w_view, bias_view, residual_view)

    def packet(self, device: Gpu, call: Call, stream: int) -> Packet:
        """The launches of a call of at least one image, on a stream of the current device."""
        numbers = device.lane(stream)
        packet = self._packets.get((numbers, call))
        if packet is not None and packet.usable():
            return packet
        lane = device.lane_of(numbers, stream)
        try:
            packet = self._new_packet(device, call, lane)
        except OutOfMemory:  # there may be less memory than when the batch was cut
            device.forget_plans()
            packet = self._new_packet(device, call, lane)
        if lane.life:
            lane.held.append(packet.resources)
            packet.once = True
            return packet
        if len(self._packets) >= MOST_PACKETS:
            self._packets.clear()
            self._quick.clear()
        self._packets[numbers, call] = packet
        return packet

    def _new_packet(self, device: Gpu, call: Call, lane: Lane) -> Packet:
        """A new packet."""
        background = IN_BACKGROUND and call.conv.direction == FORWARD
        route, loaded, waits = ready(device, call, route_of, in_background=background, captured=lane.life is not None)
        if loaded is None:
            packet = self._generic(device, call, lane)
            packet.waits = waits
            return packet
        fixed, recipe = self.filters, device.recipe(lane, loaded.program)
        if fixed:
            copies, _ = fixed.copies(device, lane)
            prepared, new = fixed.prepared(device, lane, loaded)
            values: dict[str, Value] = {**lane.addresses(loaded, {}), **copies.addresses, **prepared.addresses}
            resources: Any = (loaded, copies, prepared)
        else:
            new, resources = True, loaded
            values = self._add_preparation(device, call, lane, loaded, recipe)
        follows = not new and (lane.life is None or device.streams.follows_kernel())
        device.add_rung(recipe, lane, loaded, call, values, pdl=follows)
        if route.rest:
            device.add_finish(recipe, route.rest, call.N, values.get("bias", 0), (call.y, call.residual))
        packet = Packet(recipe, lane, resources)
        packet.once = bool(fixed and new)
        packet.waits = waits
        return packet

    @staticmethod
    def _add_preparation(device: Gpu, call: Call, lane: Lane, loaded: Loaded, recipe: Any) -> dict[str, Value]:
        """Appends the preparation of a call's own filters; returns the addresses of all arrays but x and y.

        The filters of a channels_last model may lie as the preparation would leave them, or dgrad's transposed.
        """
        w, bound, role = call.w, loaded.bound, call.conv.roles.w
        layout, nbytes_of = bound.rung.layout_of(role), bound.prepared_bytes()
        lies_prepared = in_place(w, "nhwc") and bound.rung.prepares_nhwc(bound.problem(1))
        packs = not lies_prepared and not in_place(w, layout)
        if lies_prepared and call.conv.direction == FORWARD:
            nbytes_of = {}
        elif packs:
            nbytes_of = {**nbytes_of, role: nbytes(w)}
        addresses = lane.addresses(loaded, nbytes_of)
        values: dict[str, Value] = {role: Symbol("w"), **addresses}
        if call.bias is not None:
            values["bias"] = Symbol("bias")
        if lies_prepared:
            (prepared,) = bound.rung.prepared
            if call.conv.direction == FORWARD:
                return {**values, prepared.name: Symbol("w")}
            source, target, first = turned(w)
            begin = addresses[prepared.name] + first * w.itemsize
            device.add_copy(recipe, (Symbol("w"), source), (begin, target), (0, 0))
            return values
        if packs:
            target = packed_descriptor(w.shape, layout, w.dtype, device.number)
            device.add_copy(recipe, (Symbol("w"), w), (addresses[role], target), (0, 0))
        device.add_launches(recipe, loaded.program, bound.preparation(), values, pdl=False)
        return values

    def _generic(self, device: Gpu, call: Call, lane: Lane) -> Packet:
        """The packet of generic.cu, which takes every shape."""
        recipe, fixed = device.recipe(lane), self.filters
        w: tuple[Value, Descriptor] = Symbol("w"), call.w
        bias: Value = 0 if call.bias is None else Symbol("bias")
        resources: Any = None
        if fixed:
            resources, _ = fixed.copies(device, lane)
            w = resources.addresses["w"], packed_descriptor(call.w.shape, "nchw", call.w.dtype, device.number)
            bias = resources.addresses.get("bias", 0)
        arrays = {"x": (Symbol("x"), call.x), "w": w, "y": (Symbol("y"), call.y)}
        conv = call.conv.alone() if call.conv.residual else call.conv
        device.add_generic(recipe, conv, call.N, arrays, 0 if call.conv.residual else bias)
        if call.conv.residual:
            device.add_finish(recipe, call.conv, call.N, bias, (call.y, call.residual))
        return Packet(recipe, lane, resources)

    @host_memory()
    def _of_host(self, x: Any, out: Any, call: Call, w: Any, bias: Any, residual: Any) -> Any:
        """The output for host arrays, of the same array type.

        A residual is added to outputs that are rounded to their type already, as where layers are computed one by one.
        """
        if residual is not None:
            terms = self.terms._replace(activation=None)
            own = self.filters or FixedFilters(w, bias, terms)
            y = Operation(terms, self.backend, own).compute(host_array(x), None)
            return self._given_back(x, out, call, self._turned(activated(y + host_array(residual), call.conv)))
        device = devices.OF_HOST_ARRAYS[self.backend]()
        planes = self._turned(host_array(x))
        if not call.N:
            y = np.empty(call.conv.y_shape(0), planes.dtype)
        elif device:
            y = self._staged(device, planes, call, w, bias)
        else:
            w, bias = host_array(w), None if bias is None else host_array(bias)
            y = on_host(planes, w, bias, call)
        return self._given_back(x, out, call, y)

    def _given_back(self, x: Any, out: Any, call: Call, y: npt.NDArray[Any]) -> Any:
        """``[N][M][E][F]`` as the caller has arrays, in ``out`` if given."""
        if out is None:
            turned = np.ascontiguousarray(y.transpose(TO_NHWC))
            if self.terms.layout == "nhwc":
                return like(x, turned)
            return like(x, turned.transpose(TO_NCHW) if call.memory == "nhwc" and library_of(x) == "torch" else y)
        np.copyto(self._turned(host_array(out)), y)
        return out

    def _turned(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A view of an array with its axes as (N, C, H, W)."""
        return values.transpose(TO_NCHW) if self.terms.layout == "nhwc" else values

    def _staged(self, device: Gpu, x: npt.NDArray[Any], call: Call, w: Any, bias: Any) -> npt.NDArray[Any]:
        """``[N][M][E][F]`` of host arrays, staged through a GPU in pieces of STAGED_SHARE of its memory."""
        N, C, H, W = x.shape
        y = np.empty(call.conv.y_shape(N), x.dtype)
        terms = self.terms._replace(layout="nchw")
        operation = self._staging if self.filters else Operation(terms, self.backend, FixedFilters(w, bias, terms))
        stream = int(device.executor.gpu.stream.handle)
        with device.lock, device.current():
            images = first_piece(device, call).N
            staged_x, staged_y = (Memory(device, images * prod(part.shape[1:]) * x.itemsize) for part in (x, y))
            for first in range(0, N, images):
                part = x[first : first + images]
                values = np.ascontiguousarray(part.transpose(TO_NHWC) if call.memory == "nhwc" else part)
                device.upload(staged_x.address, values, stream)
                source = device.packed(staged_x.address, call.x, call.memory, (len(part), C, H, W))
                target = device.packed(staged_y.address, call.x, "nchw", call.conv.y_shape(len(part)))
                piece = call_of(terms, call.w, source.descriptor, target.descriptor, call.bias)
                operation.packet(device, piece, stream).enqueue((source.address, target.address, 0, 0, 0))
                device.download(y[first : first + images], staged_y.address, stream)
        return y

    @cached_property
    def _staging(self) -> "Operation":
        """The same operation on arrays in nchw."""
        return Operation(self.terms._replace(layout="nchw"), self.backend, self.filters)


def operation_of(*arguments: Any) -> Operation:
    """The operation for ``conv2d``'s arguments, cached; raises ValueError."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():  # which traces calls
        return new_operation(*arguments)
    try:
        hash(arguments)
    except TypeError:
        return new_operation(*arguments)
    return cached_operation(*arguments)


def new_operation(
    stride: Pair,
    padding: Padding,
    precision: str,
    layout: str,
    backend: str,
    activation: str | None,
    dilation: Pair,
    groups: int,
) -> Operation:
    """A new operation; raises ValueError."""
    return Operation(terms_of(stride, padding, precision, layout, dilation, groups, activation), backend)


cached_operation = lru_cache(maxsize=256, typed=True)(new_operation)


def first_piece(device: Gpu, call: Call) -> Call:
    """The first call of host arrays that are staged through a GPU, in pieces of STAGED_SHARE of its memory."""
    image_bytes = (prod(call.x.shape[1:]) + prod(call.y.shape[1:])) * call.x.itemsize
    images = min(call.N, max(1, int(device.budget() * STAGED_SHARE) // image_bytes))
    x, y = (images, *call.x.shape[1:]), call.conv.y_shape(images)
    return call_of(
        call.terms._replace(layout="nchw"),
        call.w,
        packed_descriptor(x, call.memory, call.x.dtype, device.number),
        packed_descriptor(y, "nchw", call.x.dtype, device.number),
        call.bias,
    )


def tensor_key(values: Any) -> tuple[Any, ...]:
    """The facts that determine a tensor's descriptor."""
    return values.shape, values.stride(), values.dtype, values.get_device(), values.data_ptr() % ALIGNMENT


def check_apart(out: View, array: View | None, name: str) -> None:
    """Raises ValueError if an array begins where ``out`` does: kernels may read it after they have stored there."""
    if array is not None and array.address == out.address:
        raise ValueError(f"out and {name} have the same memory")


def observed(torch: Any) -> bool:
    """Whether torch's operators are traced, transformed or differentiated forward, so that a call must be one."""
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_plain(values: Any) -> bool:
    """Whether an array is None or a plain torch tensor, whose memory holds its values."""
    return values is None or (type(values).__name__ in PLAIN and not values.is_neg())
