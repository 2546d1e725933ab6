"""The ladder as a library: ``alexconv.conv2d`` and ``alexconv.Conv2d``.

y = alexconv.conv2d(x, filters, stride=1, padding=1, bias=b, activation="relu")

``x`` is ``[N][C][H][W]`` without its padding, or ``[N][H][W][C]`` with ``layout="nhwc"``; filters are always
``[M][C / groups][R][S]``, the bias ``[M]``.  The output, ``[N][M][E][F]`` or ``[N][E][F][M]``, has the same array type
as ``x``:

* NumPy arrays, and torch and DLPack arrays in host memory: computed on the GPU if there is one, else on the CPU.
* torch tensors on a GPU: on torch's current stream.  CuPy arrays likewise.
* Other arrays with ``__cuda_array_interface__``: on the stream that it names, else on the default stream; the output is
  a DeviceArray, which has that interface too.  With DLPack alone: on the default stream, synchronously.

``x`` is used in place if it is contiguous in the rung's layout, aligned to 16 bytes, and the rung takes its padding.
Else a kernel copies it into a workspace, with its padding, so any strides work.  The same holds for ``out``.  A
channels_last tensor of torch counts as layout nhwc, and its output is channels_last.

Precisions are the error classes of ``alexconv.planning.checks``: fp32 and tf32 take float32; fp16 and half take
float16.  fp16 rungs want nhwc, most others nchw; arrays in the other layout are transposed.  ``alexconv.tune.auto``
chooses the rung.  Layers that no rung takes run on a GPU in ``generic.cu``, whose shape is a kernel argument.  It also
computes the first calls of a shape while the rung compiles in the background: within the same error bound, but rounded
in another order.

Everything a call needs follows from its arrays' descriptors (shapes, strides, types, devices and alignment, not
addresses).  It is computed once per combination; later calls enqueue a packet (``alexconv.library.packets``).

Calls are thread-safe, on any streams.  They can be captured in CUDA graphs; a captured call waits for its rung's
compilation.  Gradients of torch tensors are cuDNN's (``alexconv.library.torch_face``).
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.errors import MissingTool
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.library import choices
from alexconv.library.arrays import (
    ALIGNMENT,
    LEGACY_STREAM,
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
    permute,
    view,
)
from alexconv.library.calls import Call, call_of, check_filters
from alexconv.library.on_host import on_host
from alexconv.library.packets import Packet, Symbol, Value
from alexconv.library.terms import Padding, Pair, Terms, one_of, terms_of
from alexconv.library.workspaces import Gpu, Lane, Loaded, Memory, Prepared, WorkspaceKey
from alexconv.messages import print_to_stderr
from alexconv.planning.checks import PRECISIONS
from alexconv.shapes import Conv
from alexconv.tune import auto
from alexconv.tune.estimate import estimate, padding_it

IN_BACKGROUND = True  # whether rungs compile in the background during a shape's first calls
KEPT_FILTERS = 16  # prepared forms of a Conv2d's filters, one for each shape and rung
KEPT_CALLS = 4096  # calls whose routes are cached
KEPT_PACKETS = 1024  # cached for each operation
PLAIN = ("Tensor", "Parameter")  # torch tensor types without subclass behaviour
STAGED_SHARE = 0.25  # of a GPU's budget, for host arrays staged at a time


def conv2d(
    x: Any,
    filters: Any,
    stride: Pair = 1,
    padding: Padding = 0,
    precision: str = "fp32",
    out: Any = None,
    layout: str = "nchw",
    backend: str = "auto",
    *,
    bias: Any = None,
    activation: str | None = None,
    dilation: Pair = 1,
    groups: int = 1,
) -> Any:
    """A convolution layer: the cross-correlation of ``x`` with ``filters``, plus bias and activation.

    Arrays may be of NumPy, torch, CuPy, or any with ``__cuda_array_interface__`` or DLPack; the output is like ``x``.

    x: ``[N][C][H][W]``, or ``[N][H][W][C]`` with ``layout="nhwc"``; float32, or float16 for fp16 and half.
    filters: ``[M][C / groups][R][S]``.
    stride, dilation: one number, or two for rows and columns.
    padding: zero rows and columns: one number, two (rows, columns), four (top, bottom, left, right), ``"valid"``, or
        ``"same"``; with an odd total ``"same"`` pads more at the end, ``"same_lower"`` at the beginning.
    precision: the error class: fp32, fp32-tile, tf32, fp16 or half (docs/precision.md).
    out: receives the output ``[N][M][E][F]``, or ``[N][E][F][M]`` with ``layout="nhwc"``; else it is a new array.
    backend: where host arrays are computed: auto, cuda or host.
    bias: ``[M]``.
    activation: None or ``"relu"``.

    Raises TypeError for x, filters, bias or out that is not an array, ValueError for any other bad argument and for
    arrays that do not fit each other or the precision; MissingTool without a GPU, compiler or rung for the call,
    OutOfMemory and LaunchError.
    """
    operation = operation_of(stride, padding, precision, layout, backend, activation, dilation, groups)
    return operation(x, out, filters, bias)


class Conv2d:
    """A convolution layer with fixed filters: ``alexconv.Conv2d(filters, stride=1, padding=1, bias=b)(x)``.

    Arguments and errors are those of ``conv2d``.  Filters and bias are copied and prepared once, at the first call (if
    in host memory, at construction); later changes of the arrays have no effect.
    """

    def __init__(
        self,
        filters: Any,
        stride: Pair = 1,
        padding: Padding = 0,
        precision: str = "fp32",
        layout: str = "nchw",
        backend: str = "auto",
        *,
        bias: Any = None,
        activation: str | None = None,
        dilation: Pair = 1,
        groups: int = 1,
    ) -> None:
        terms = terms_of(stride, padding, precision, layout, dilation, groups, activation)
        self.kept = Kept(filters, bias, terms)
        self._operation = Operation(terms, backend, self.kept)

    def __call__(self, x: Any, out: Any = None) -> Any:
        """The output for ``x``, in ``out`` if given."""
        return self._operation(x, out)


class Kept:
    """Filters and bias of a Conv2d, and their copies and prepared forms on each device."""

    @host_memory()
    def __init__(self, filters: Any, bias: Any, terms: Terms) -> None:
        self.w, self.bias = view(filters, "filters"), None if bias is None else view(bias, "bias", axes=1)
        check_filters(self.w.descriptor, self.bias and self.bias.descriptor, terms)
        self.arrays = filters, bias
        self.asks = asks_for_gradient(filters) or asks_for_gradient(bias)
        if self.w.descriptor.device is None:
            self.arrays = np.array(host_array(filters), order="C"), bias
            self.w = view(self.arrays[0], "filters")
        if self.bias is not None and self.bias.descriptor.device is None:
            self.arrays = self.arrays[0], np.array(host_array(bias), order="C")
            self.bias = view(self.arrays[1], "bias", axes=1)
        self._copies: dict[int, Prepared] = {}  # by device
        self._prepared: dict[Any, Prepared] = {}  # by kernels

    def copies(self, device: Gpu, lane: Lane) -> tuple[Prepared, bool]:
        """Packed filters ``w`` and ``bias`` on a device, and whether this call enqueued the copies."""
        found = self._copies.get(device.number)
        if found is not None:
            wait_for(found, lane)
            return found, False
        stream = device.side if lane.life else lane.stream
        arrays = {"w": self.w} | ({} if self.bias is None else {"bias": self.bias})
        made = Prepared(device, {name: device.allocate(nbytes(each.descriptor)) for name, each in arrays.items()})
        for (name, source), given in zip(arrays.items(), self.arrays, strict=False):
            if source.descriptor.device is None:
                device.upload(made.addresses[name], host_array(given), stream)
            else:
                if not (lane.life and device.streams.capture(source.stream)):  # captured work has not run yet
                    device.join(source.stream, stream)
                recipe = device.recipe(Lane(device, stream))
                target = packed_descriptor(source.descriptor.shape, "nchw", source.descriptor.dtype, device.number)
                device.add_copy(recipe, (source.address, source.descriptor), (made.addresses[name], target), (0, 0))
                Packet(recipe, lane, ()).enqueue(())
        made.order.end(stream)
        wait_for(made, lane)
        self._copies[device.number] = made
        return made, True

    def prepared(self, device: Gpu, lane: Lane, loaded: Loaded) -> tuple[Prepared, bool]:
        """The filters prepared for a rung, and whether this call enqueued their copies or preparation."""
        copies, new = self.copies(device, lane)
        found = self._prepared.get(loaded.program.kernels)
        if found is not None:
            wait_for(found, lane)
            return found, new
        stream, sizes = device.side if lane.life else lane.stream, loaded.bound.prepared_bytes()
        made = Prepared(device, {name: device.allocate(size) for name, size in sizes.items()})
        recipe = device.recipe(Lane(device, stream))
        values: dict[str, Value] = {**copies.addresses, **made.addresses}
        device.add_launches(recipe, loaded.program, loaded.bound.preparation(), values, pdl=False)
        Packet(recipe, lane, ()).enqueue(())
        made.order.end(stream)
        wait_for(made, lane)
        self._prepared[loaded.program.kernels] = made
        if len(self._prepared) > KEPT_FILTERS:
            del self._prepared[next(iter(self._prepared))]
        return made, True


def wait_for(prepared: Prepared, lane: Lane) -> None:
    """Makes a lane's later work wait for prepared arrays; during a capture, the host waits."""
    if lane.life:
        prepared.order.wait()
    else:
        prepared.order.begin(lane.stream)


def nbytes(array: Descriptor) -> int:
    """Bytes of an array's elements."""
    return prod(array.shape) * array.itemsize


@cache
def allocator() -> Callable[[Any, Any, Any], Any]:
    """Makes a tensor of a shape, strides and type on the current GPU, in a third of empty_strided's time."""
    torch: Any = sys.modules["torch"]
    try:
        quick: Callable[[Any, Any, Any], Any] = torch._C._dynamo.guards._empty_strided_cuda  # as compiled models do
    except AttributeError:
        return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
    return quick


def described(values: Any) -> tuple[Any, ...]:
    """The facts that determine a tensor's descriptor."""
    return values.shape, values.stride(), values.dtype, values.get_device(), values.data_ptr() % ALIGNMENT


def asks_for_gradient(values: Any) -> bool:
    """Whether an array is a torch tensor that requires a gradient."""
    return values is not None and getattr(values, "requires_grad", False)


def is_plain(values: Any) -> bool:
    """Whether an array is None or a plain torch tensor, whose memory holds its values."""
    return values is None or (type(values).__name__ in PLAIN and not values.is_neg())


class Operation:
    """The terms of a convolution, with its filters for a Conv2d; caches a packet for each combination of arrays."""

    def __init__(self, terms: Terms, backend: str, kept: Kept | None = None) -> None:
        one_of(backend, "backend", HOST_ARRAYS)
        self.terms, self.backend, self._kept = terms, backend, kept
        self._packets: dict[Any, Packet] = {}
        self._quick: dict[Any, tuple[Packet, Four | None, Four | None]] = {}

    def __call__(self, x: Any, out: Any = None, w: Any = None, bias: Any = None) -> Any:
        """The output for ``x``, in ``out`` if given."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(x, torch.Tensor):
            return self.compute(x, out, w, bias)
        kept = self._kept
        asks = kept.asks if kept else asks_for_gradient(w) or asks_for_gradient(bias)
        if (
            torch.compiler.is_compiling()
            or type(x).__name__ not in PLAIN
            or (torch.is_grad_enabled() and (x.requires_grad or asks or asks_for_gradient(out)))
        ):
            from alexconv.library import torch_face

            filters, added = kept.arrays if kept else (w, bias)
            return torch_face.convolve(x, filters, added, out, self.terms)
        number = x.get_device()
        if number < 0 or x.is_neg() or not (is_plain(out) and (kept or (is_plain(w) and is_plain(bias)))):
            return self.compute(x, out, w, bias)
        return self._of_torch(torch, number, x, out, w, bias)

    def _of_torch(self, torch: Any, number: int, x: Any, out: Any, w: Any, bias: Any) -> Any:
        """A call with a tensor on a GPU; takes the fast path if there was a similar call."""
        stream = torch._C._cuda_getCurrentRawStream(number)
        address, to = x.data_ptr(), 0
        others: tuple[int, ...] = ()
        key: Any = (number, x.shape, x.stride(), x.dtype, address % ALIGNMENT)
        if out is not None:
            to = out.data_ptr()
            key += described(out)
        if w is not None:
            others = w.data_ptr(), 0 if bias is None else bias.data_ptr()
            key += (out is None, *described(w), bias is None or described(bias))
        device = _devices.get(number)
        if device is None:
            return self.compute(x, out, w, bias)
        with device.lock:
            if device.streams.context() != device.context:  # the driver answers about streams of the current context
                return self.compute(x, out, w, bias)
            key = device.lane(stream), key
            found = self._quick.get(key)
            if found is None or not found[0].usable():
                return self.compute(x, out, w, bias, quick=key)
            packet, shape, strides = found
            if out is None:
                with device.relaxed:  # torch may have to allocate while another thread captures
                    out = allocator()(shape, strides, x.dtype)
                to = out.data_ptr()
            packet.enqueue((address, to, *others))
        return out

    def compute(self, x: Any, out: Any, w: Any = None, bias: Any = None, quick: Any = None) -> Any:
        """The same for arrays of any library; ``quick`` is the fast path's key for a tensor's call."""
        kept = self._kept
        call, (seen, to, filters, added) = self.described(x, out, w, bias)
        if seen.descriptor.device is None:
            return self._of_host(x, out, call, *(kept.arrays if kept else (w, bias)))
        given = [] if kept else [each for each in (filters, added) if each is not None]
        if any(each.descriptor.device is None for each in given):
            return Operation(self.terms, self.backend, Kept(w, bias, self.terms)).compute(x, out)
        device = gpu(seen.descriptor.device)
        with device.lock, device.current():
            if to is None:
                out, address = empty(x, call, device, seen.stream)
                to = View(address, call.y, seen.stream)
            for each in (to, *given):
                device.join(each.stream, seen.stream)
            if call.N:
                packet = self.packet(device, call, seen.stream)
                packet.enqueue((seen.address, to.address, filters.address, 0 if added is None else added.address))
                if quick is not None and not packet.once:
                    self._quick[quick] = packet, tuple(out.shape), out.stride()
            device.join(seen.stream, to.stream)
            if any(each.waits for each in (seen, to, *given)):
                device.wait(seen.stream)
        return out

    def described(
        self, x: Any, out: Any, w: Any = None, bias: Any = None
    ) -> tuple[Call, tuple[View, View | None, View, View | None]]:
        """The call, and views of x, out, filters and bias; raises ValueError, and TypeError for no array."""
        kept, seen, to = self._kept, view(x, "x"), None if out is None else view(out, "out")
        filters = kept.w if kept else view(w, "filters")
        added = kept.bias if kept else None if bias is None else view(bias, "bias", axes=1)
        if not kept:
            check_filters(filters.descriptor, added and added.descriptor, self.terms)
        call = call_of(
            *(self.terms, filters.descriptor, seen.descriptor),
            None if to is None else to.descriptor,
            None if added is None else added.descriptor,
        )
        number = seen.descriptor.device
        if number is not None and self.backend not in DEVICE_ARRAYS:
            raise ValueError(f"x is on GPU {number}, but backend {self.backend} takes arrays in host memory")
        return call, (seen, to, filters, added)

    def packet(self, device: Gpu, call: Call, stream: int) -> Packet:
        """The launches of a call of at least one image, on a stream of the current device."""
        numbers = device.lane(stream)
        packet = self._packets.get((numbers, call))
        if packet is not None and packet.usable():
            return packet
        lane = device.lane_of(numbers, stream)
        packet = self._made(device, call, lane)
        if lane.life:
            lane.held.append(packet.kept)
            return packet
        if len(self._packets) >= KEPT_PACKETS:
            self._packets.clear()
            self._quick.clear()
        self._packets[numbers, call] = packet
        return packet

    def _made(self, device: Gpu, call: Call, lane: Lane) -> Packet:
        """A new packet."""
        route = route_of(device, call)
        wait = lane.life is not None or not IN_BACKGROUND
        loaded = device.loaded(route.key, wait=wait) if route.key else None
        if loaded is None or isinstance(loaded, Future):
            packet = self._generic(device, call, lane)
            packet.waits = loaded
            return packet
        kept, recipe = self._kept, device.recipe(lane, loaded.program)
        if kept:
            copies, _ = kept.copies(device, lane)
            prepared, new = kept.prepared(device, lane, loaded)
            values: dict[str, Value] = {**lane.addresses(loaded, {}), **copies.addresses, **prepared.addresses}
            held: Any = (loaded, copies, prepared)
        else:
            new, held = True, loaded
            values = self._given_filters(device, call, lane, loaded, recipe)
        before = call.conv.top - loaded.key.conv.top, call.conv.left - loaded.key.conv.left
        follows = not new and (lane.life is None or device.streams.follows_kernel())
        device.add_rung(recipe, lane, loaded, (call.x, call.y), values, before, pdl=follows)
        if route.finish:
            device.add_finish(recipe, call.conv, call.N, values.get("bias", 0), (Symbol("y"), call.y))
        packet = Packet(recipe, lane, held)
        packet.once = bool(kept and new) or lane.life is not None
        return packet

    @staticmethod
    def _given_filters(device: Gpu, call: Call, lane: Lane, loaded: Loaded, recipe: Any) -> dict[str, Value]:
        """Appends the preparation of a call's own filters; returns the addresses of all arrays but x and y."""
        w, more = call.w, loaded.bound.prepared_bytes()
        in_order = in_place(w, "nchw")
        if not in_order:
            more = {**more, "w": nbytes(w)}
        values: dict[str, Value] = {"w": Symbol("w"), **lane.addresses(loaded, more)}
        if call.bias is not None:
            values["bias"] = Symbol("bias")
        if not in_order:
            target = packed_descriptor(w.shape, "nchw", w.dtype, device.number)
            device.add_copy(recipe, (Symbol("w"), w), (values["w"], target), (0, 0))
        device.add_launches(recipe, loaded.program, loaded.bound.preparation(), values, pdl=False)
        return values

    def _generic(self, device: Gpu, call: Call, lane: Lane) -> Packet:
        """The packet of generic.cu, which takes every shape."""
        recipe, kept = device.recipe(lane), self._kept
        w: tuple[Value, Descriptor] = Symbol("w"), call.w
        bias: Value = 0 if call.bias is None else Symbol("bias")
        held: Any = None
        if kept:
            held, _ = kept.copies(device, lane)
            w = held.addresses["w"], packed_descriptor(call.w.shape, "nchw", call.w.dtype, device.number)
            bias = held.addresses.get("bias", 0)
        arrays = {"x": (Symbol("x"), call.x), "w": w, "y": (Symbol("y"), call.y)}
        device.add_generic(recipe, call.conv, call.N, arrays, bias)
        return Packet(recipe, lane, held)

    @host_memory()
    def _of_host(self, x: Any, out: Any, call: Call, w: Any, bias: Any) -> Any:
        """The output for host arrays, of the same array type."""
        device = HOST_ARRAYS[self.backend]()
        planes = self._turned(host_array(x))
        if not call.N:
            y = np.empty(call.conv.y_shape(0), planes.dtype)
        elif device:
            y = self._staged(device, planes, call, w, bias)
        else:
            w, bias = host_array(w), None if bias is None else host_array(bias)
            y = on_host(planes, w, bias, call)
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
        operation = self._staging if self._kept else Operation(terms, self.backend, Kept(w, bias, terms))
        stream = int(device.executor.stream.handle)
        with device.lock, device.current():
            images = first_piece(device, call).N
            staged_x, staged_y = (Memory(device, images * prod(part.shape[1:]) * x.itemsize) for part in (x, y))
            for first in range(0, N, images):
                part = x[first : first + images]
                values = np.ascontiguousarray(part.transpose(TO_NHWC) if call.memory == "nhwc" else part)
                device.upload(staged_x.address, values, stream)
                source = device.packed(staged_x.address, call.x, call.memory, (len(part), C, H, W))
                to = device.packed(staged_y.address, call.x, "nchw", call.conv.y_shape(len(part)))
                piece = call_of(terms, call.w, source.descriptor, to.descriptor, call.bias)
                operation.packet(device, piece, stream).enqueue((source.address, to.address, 0, 0))
                device.download(y[first : first + images], staged_y.address, stream)
        return y

    @cached_property
    def _staging(self) -> "Operation":
        """The same operation on arrays in nchw."""
        return Operation(self.terms._replace(layout="nchw"), self.backend, self._kept)


def operation_of(*arguments: Any) -> Operation:
    """The operation for ``conv2d``'s arguments, cached; raises ValueError."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():  # which traces calls
        return new_operation(*arguments)
    try:
        hash(arguments)
    except TypeError:
        return new_operation(*arguments)
    return kept_operation(*arguments)


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


kept_operation = lru_cache(maxsize=256, typed=True)(new_operation)


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
        """A copy in host memory, made when the stream's work is done."""
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


@lru_cache(maxsize=4096)
def chosen(device: Gpu, conv: Conv, N: int, precision: str, memory: str) -> auto.Choice | None:
    """The rung for N images whose layout in memory is ``memory``; None where none takes the layer, or none fits."""
    budget = device.budget()
    kept = choices.load(device.executor, conv, N, precision, memory, budget)
    if kept is None:
        kept = choices.Kept(_looked_for(device, conv, N, precision, memory, budget))
        choices.keep(device.executor, conv, N, precision, memory, kept.choice)
    return kept.choice


def _looked_for(device: Gpu, conv: Conv, N: int, precision: str, memory: str, budget: int) -> auto.Choice | None:
    for name in (precision, *PRECISIONS[precision].stricter):  # a stricter class will do, too
        for layout in sorted(auto.layouts_of(name), key=lambda layout: layout != memory):
            if choice := auto.choose(device.executor, conv, N, name, layout, print_to_stderr, budget):
                return choice
    return None


@dataclass(frozen=True)
class Route:
    """How a device computes a call: with the key's rung, or without a key in generic.cu.

    With ``finish`` another kernel applies bias and ReLU after the rung.
    """

    key: WorkspaceKey | None
    finish: bool = False


@lru_cache(maxsize=KEPT_CALLS)
def route_of(device: Gpu, call: Call) -> Route:
    """The route of a call on its device.

    A rung that takes the whole layer, unless one that takes only the convolution, of a plane padded in memory, is
    estimated to be faster, copy included.
    """
    precision, plain = call.terms.precision, replace(call.conv.with_border(), bias=False, relu=False)
    convs = [call.conv] if plain == call.conv else [call.conv, plain]
    convs = [conv for conv in convs if any(set(conv.features) <= set(rung.takes) for rung in LADDER)]
    choices = [chosen(device, conv, call.N, precision, call.memory) for conv in convs]
    found = [(choice, conv) for choice, conv in zip(choices, convs, strict=True) if choice]
    if not found:
        return Route(None)
    choice, conv = min(found, key=lambda each: expected(device, each[0], each[1], call))
    x_in_place = conv.padding == call.conv.padding and in_place(call.x, choice.rung.layout)
    y_in_place = in_place(call.y, choice.rung.layout)
    key = WorkspaceKey(choice.rung.name, tuple(choice.constants.items()), conv, call.N, x_in_place, y_in_place)
    return Route(key, finish=(conv.bias, conv.relu) != (call.conv.bias, call.conv.relu))


def expected(device: Gpu, choice: auto.Choice, conv: Conv, call: Call) -> tuple[bool, float]:
    """Sort key of choices: measured ones first, then by estimated microseconds, copies included."""
    on = device.executor.device
    copied = padding_it(call.conv, call.N, on) if conv.padding != call.conv.padding else 0.0
    return not choice.measured, copied + estimate(BoundRung(choice.rung, conv, choice.constants, on), call.N)


_devices: dict[int, Gpu] = {}
_starting = threading.Lock()


def gpu(number: int) -> Gpu:
    """The GPU with that number, kept; raises MissingTool."""
    with _starting:
        if number not in _devices:
            _devices[number] = Gpu(number)
        return _devices[number]


@cache
def first_gpu() -> Gpu | None:
    """GPU 0, or None if there is no usable one."""
    try:
        return gpu(0)
    except MissingTool:
        return None


# By backend, the GPU that computes arrays in host memory, None for the CPU; and the backends that take a GPU's arrays.
HOST_ARRAYS: dict[str, Callable[[], Gpu | None]] = {
    "auto": lambda: first_gpu(),
    "cuda": lambda: gpu(0),
    "host": lambda: None,
}
DEVICE_ARRAYS = ("auto", "cuda")
