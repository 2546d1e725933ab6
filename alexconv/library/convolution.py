"""The ladder as a library: ``alexconv.conv2d`` and ``alexconv.Conv2d``.

y = alexconv.conv2d(x, filters, stride=1, padding=1)

``x`` is ``[N][C][H][W]`` without its padding, or ``[N][H][W][C]`` with ``layout="nhwc"``; filters are ``[M][C][R][S]``
always; the output, ``[N][M][E][F]`` or ``[N][E][F][M]``, is of the same kind as ``x``:

* NumPy arrays, and those of torch and DLPack in host memory: on the GPU if there is one, else on the CPU.
* torch tensors on a GPU: on torch's current stream, and the output is torch's.  CuPy arrays likewise.
* Any other array with ``__cuda_array_interface__``: on the stream that it names, else on the default stream; the output
  is a DeviceArray, which has that interface too.  One that has only DLPack: on the default stream, and the call waits.

Nothing is copied where ``x`` lies as the rung wants it: without gaps or padding, in the rung's layout, aligned to 16
bytes.  Else a kernel copies it into a workspace with its zeros; so any strides will do.  The same holds of ``out``.  A
channels_last tensor of torch counts as one in the layout nhwc, and its output is channels_last.

Precisions are the error classes of ``alexconv.planning.checks``: fp32 and tf32 take float32; fp16 and half take
float16.  Rungs of fp16 want nhwc and those of the others nchw: a float16 array in nchw is brought into nhwc and back.
The rung is that of ``alexconv.tuning.auto``.  The first call of a shape compiles it, which takes seconds, and may wait
for the device.

What a call needs follows from its arrays' descriptors: shapes, strides, types, devices and alignment, not addresses.
It is found once for all calls with the same ones (``call_of``, ``workspace_key``), which then only look it up.

Calls may come from several threads and streams.  They may not be captured as CUDA graphs.  No gradients.
"""

import operator
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alexconv.errors import MissingTool, OutOfMemory
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import LADDER
from alexconv.library.arrays import (
    LEGACY_STREAM,
    TO_NCHW,
    TO_NHWC,
    Descriptor,
    Four,
    View,
    host_array,
    in_place,
    library_of,
    packed_descriptor,
    permute,
    view,
)
from alexconv.library.workspaces import Gpu, Memory, Prepared, Workspace, WorkspaceKey
from alexconv.messages import print_to_stderr
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.layouts import LAYOUTS, to_study
from alexconv.planning.planner import plan_on
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import Conv
from alexconv.tuning import auto

DTYPES: dict[str, np.dtype[Any]] = {rung.precision: np.dtype(rung.dtype) for rung in LADDER}
KEPT_FILTERS = 16  # forms in which a Conv2d keeps its filters: one for each shape and rung
KEPT_CALLS = 4096  # for which what they need is kept
STAGED_SHARE = 0.25  # of a GPU's budget, for the part of host arrays that is on it at a time

Pair = int | Sequence[int]


def conv2d(
    x: Any,
    filters: Any,
    stride: Pair = 1,
    padding: Pair = 0,
    precision: str = "fp32",
    out: Any = None,
    layout: str = "nchw",
    backend: str = "auto",
) -> Any:
    """The cross-correlation of ``x`` with ``filters``, as networks have it; see the module's text for the arrays.

    ``stride`` is one number, ``padding`` one or a pair: zero rows and columns on each side.  ``out`` takes the output,
    else it is a new array.  ``backend`` says where host arrays are computed: auto, cuda or host.

    Raises ValueError for arrays that do not fit each other or the precision, TypeError for what is no array,
    MissingTool where there is no GPU, compiler or rung for it, OutOfMemory and LaunchError.
    """
    return Conv2d(filters, stride, padding, precision, layout, backend).compute(x, out, keep=False)


class Conv2d:
    """A convolution with its filters: ``alexconv.Conv2d(filters, stride=1, padding=1)(x)``.

    As ``conv2d``, but the filters are brought into a rung's form once for each shape, and read no more: change them
    and make a new object.  Those in host memory are copied at once.  Raises as ``conv2d`` does.
    """

    def __init__(
        self,
        filters: Any,
        stride: Pair = 1,
        padding: Pair = 0,
        precision: str = "fp32",
        layout: str = "nchw",
        backend: str = "auto",
    ) -> None:
        for what, value, known in (
            ("precision", precision, PRECISIONS),
            ("layout", layout, LAYOUTS),
            ("backend", backend, HOST_ARRAYS),
        ):
            if not isinstance(value, str) or value not in known:
                raise ValueError(f"unknown {what} {value!r}: choose from {', '.join(known)}")
        self.precision, self.layout, self.backend = precision, layout, backend
        self.filters, self._w = filters, view(filters, "filters")
        check_dtype(self._w.descriptor, "filters", precision)
        if self._w.descriptor.device is None:
            self.filters = np.array(host_array(filters), order="C")
            self._w = view(self.filters, "filters")
        rows, columns = pair(stride, "stride", least=1)
        if rows != columns:
            raise ValueError(f"strides along rows and columns must be equal, not {rows} and {columns}")
        self.stride, self.padding = rows, pair(padding, "padding", least=0)
        self._terms = Terms(self.stride, self.padding, precision, layout)
        self._kept: dict[Any, Prepared] = {}  # by the kernels that they are for

    def __call__(self, x: Any, out: Any = None) -> Any:
        """The output for ``x``, in ``out`` if given."""
        return self.compute(x, out, keep=True)

    def compute(self, x: Any, out: Any, *, keep: bool) -> Any:
        """The same; ``keep`` says whether the filters will be used again."""
        seen, to = view(x, "x"), None if out is None else view(out, "out")
        call = call_of(self._terms, self._w.descriptor, seen.descriptor, None if to is None else to.descriptor)
        if seen.descriptor.device is None:
            return self._of_host(x, out, call, keep=keep)
        if self.backend not in DEVICE_ARRAYS:
            raise ValueError(
                f"x lies on GPU {seen.descriptor.device}, but backend {self.backend} computes arrays in host memory"
            )
        device = gpu(seen.descriptor.device)
        with device.lock, device.current():
            if to is None:
                out, address = empty(x, call, device, seen.stream)
                to = View(address, call.y, seen.stream)
            device.join(to.stream, seen.stream)
            if call.N:
                self._enqueue(device, call, seen.address, to.address, seen.stream, keep=keep)
            device.join(seen.stream, to.stream)
            if seen.waits or to.waits or self._w.waits:
                device.wait(seen.stream)
        return out

    def _enqueue(self, device: Gpu, call: "Call", x: int, y: int, stream: int, *, keep: bool) -> None:
        """Puts a call of at least one image, with the addresses of its arrays, on a stream of the current device."""
        space = device.workspace(workspace_key(device, call))
        space.order.begin(stream)
        prepared = self._kept.get(space.program.kernels)
        if prepared is None:
            prepared = self._prepared(device, space, stream, keep=keep)
        else:
            prepared.order.begin(stream)
        if keep:
            self._kept[space.program.kernels] = prepared
            if len(self._kept) > KEPT_FILTERS:
                del self._kept[next(iter(self._kept))]
        device.convolve(space, View(x, call.x), prepared, View(y, call.y), self.padding, stream)

    def _prepared(self, device: Gpu, space: Workspace, stream: int, *, keep: bool) -> Prepared:
        """Filters in the form of the workspace's rung, in memory of their own or in the workspace's."""
        into, w = None if keep else space.once, self._w
        if w.descriptor.device is None:
            values = np.ascontiguousarray(host_array(self.filters))
            uploaded = Memory(device, values.nbytes)  # held until the preparation is enqueued; its end waits for it
            device.upload(uploaded.address, values, stream)
            w = device.packed(uploaded.address, w.descriptor, "nchw", w.descriptor.shape)
            prepared = device.prepare(space, w, stream, into)
        else:
            device.join(w.stream, stream)
            prepared = device.prepare(space, w, stream, into)
        if keep:
            prepared.order.end(stream)
        else:
            space.once = prepared
        return prepared

    def _of_host(self, x: Any, out: Any, call: "Call", *, keep: bool) -> Any:
        """The output of host arrays, of the same kind."""
        device = HOST_ARRAYS[self.backend]()
        planes = self._turned(host_array(x))
        if not call.N:
            y = np.empty(call.conv.y_shape(0), planes.dtype)
        elif device:
            y = self._staged(device, planes, call, keep=keep)
        else:
            y = self._on_host(planes, call)
        if out is None:
            return like(x, y if self.layout == "nchw" else np.ascontiguousarray(y.transpose(TO_NHWC)))
        np.copyto(self._turned(host_array(out)), y)
        return out

    def _turned(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A view of an array with its axes as (N, C, H, W)."""
        return values.transpose(TO_NCHW) if self.layout == "nhwc" else values

    def _on_host(self, x: npt.NDArray[Any], call: "Call") -> npt.NDArray[Any]:
        """``[N][M][E][F]`` on the host executor."""
        executor, (rows, columns), conv = host_executor(), self.padding, call.conv
        choice = chosen(executor, conv, len(x), self.precision, call.memory)
        rung = choice.rung
        cut = plan_on(executor, rung, conv, len(x), choice.constants)
        planes = np.zeros(rung.x_shape(conv, len(x)), x.dtype)
        inner = to_study(planes, rung.layout)[:, :, rows : conv.H - rows, columns : conv.W - columns]
        np.copyto(inner, x)
        w = np.ascontiguousarray(host_array(self.filters))
        opened = executor.open(executor.load(cut.bound), cut, planes, w, TRANSFERS["pageable"])
        try:
            return np.ascontiguousarray(to_study(opened.outputs(), rung.layout))
        finally:
            opened.close()

    def _staged(self, device: Gpu, x: npt.NDArray[Any], call: "Call", *, keep: bool) -> npt.NDArray[Any]:
        """``[N][M][E][F]`` on a GPU, of as many images at a time as are no more than a share of its memory."""
        N, C, H, W = x.shape
        y = np.empty(call.conv.y_shape(N), x.dtype)
        stream = int(device.executor.stream.handle)
        with device.lock, device.current():
            image_bytes = (C * H * W + prod(y.shape[1:])) * x.itemsize
            images = min(N, max(1, int(device.budget() * STAGED_SHARE) // image_bytes))
            staged_x, staged_y = (Memory(device, images * prod(part.shape[1:]) * x.itemsize) for part in (x, y))
            for first in range(0, N, images):
                part = x[first : first + images]
                values = np.ascontiguousarray(part.transpose(TO_NHWC) if call.memory == "nhwc" else part)
                device.upload(staged_x.address, values, stream)
                source = device.packed(staged_x.address, call.x, call.memory, (len(part), C, H, W))
                to = device.packed(staged_y.address, call.x, "nchw", call.conv.y_shape(len(part)))
                piece = call_of(
                    self._terms._replace(layout="nchw"), self._w.descriptor, source.descriptor, to.descriptor
                )
                self._enqueue(device, piece, source.address, to.address, stream, keep=keep)
                device.download(y[first : first + images], staged_y.address, stream)
        return y


class DeviceArray:
    """An array on a GPU, with the CUDA array interface: an output for arrays of a library that is not known here.

    ``shape``, ``dtype``, and ``strides`` in bytes as NumPy has them.  Its work is on one stream, which the interface
    names.
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


class Terms(NamedTuple):
    """What a Conv2d is given besides its arrays."""

    stride: int
    padding: tuple[int, int]
    precision: str
    layout: str


@dataclass(frozen=True, eq=False)
class Call:
    """What all calls have in common whose arrays have the same descriptors.

    ``conv`` includes the padding.  ``x`` and ``y`` are input and output with their axes as (N, C, H, W); ``memory`` is
    the layout that x lies in.
    """

    terms: Terms
    conv: Conv
    N: int
    memory: str
    x: Descriptor
    y: Descriptor


@lru_cache(maxsize=KEPT_CALLS)
def call_of(terms: Terms, w: Descriptor, x: Descriptor, out: Descriptor | None) -> Call:
    """The call for such arrays; without ``out``, for a new one without gaps.

    Raises ValueError where they do not fit each other or the precision.
    """
    check_dtype(x, "x", terms.precision)
    seen = study_order(x, terms.layout)
    conv, N, memory = conv_of(terms, w, seen), x.shape[0], memory_of(seen)
    shape = conv.y_shape(N)
    if out is None:
        order = "nhwc" if terms.layout == "nhwc" else memory
        y = packed_descriptor(shape, order, x.dtype, x.device)  # aligned: a GPU's allocators do more than ALIGNMENT
        return Call(terms, conv, N, memory, seen, y)
    check_dtype(out, "out", terms.precision)
    check_out(out, x, permute(shape, TO_NHWC) if terms.layout == "nhwc" else shape)
    return Call(terms, conv, N, memory, seen, study_order(out, terms.layout))


def study_order(array: Descriptor, layout: str) -> Descriptor:
    """An array in a layout with its axes as (N, C, H, W)."""
    return array.permuted(TO_NCHW) if layout == "nhwc" else array


def check_dtype(array: Descriptor, what: str, precision: str) -> None:
    """Raises ValueError for an array of another type than the precision's."""
    wanted = DTYPES[precision]
    if array.dtype != wanted:
        raise ValueError(f"{what} is {array.dtype}, but precision {precision} takes {wanted}")


def conv_of(terms: Terms, w: Descriptor, x: Descriptor) -> Conv:
    """The shape, padding included; raises ValueError where x and filters do not fit each other."""
    _, C, H, W = x.shape
    M, channels, R, S = w.shape
    if min(*w.shape, C, H, W) < 1:
        raise ValueError(f"an array is empty: x has shape {x.shape}, the filters {w.shape}")
    if channels != C:
        raise ValueError(f"x has {C} channels, the filters have {channels}")
    rows, columns = H + 2 * terms.padding[0], W + 2 * terms.padding[1]
    if rows < R or columns < S:
        raise ValueError(f"a filter of {R} x {S} is larger than the padded plane of {rows} x {columns}")
    if x.device != w.device and w.device is not None:
        raise ValueError(f"x lies {place(x)}, the filters {place(w)}")
    return Conv(C=C, H=rows, W=columns, M=M, R=R, S=S, U=terms.stride)


def check_out(out: Descriptor, x: Descriptor, shape: Four) -> None:
    """Raises ValueError where an output of that shape cannot go there."""
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}, the output has {shape}")
    if out.device != x.device:
        raise ValueError(f"x lies {place(x)}, out {place(out)}")
    if not out.writable:
        raise ValueError("out is read-only")
    if overlaps(out):
        raise ValueError(f"out has several elements in one place, or may have: its strides are {out.strides}")


def overlaps(array: Descriptor) -> bool:
    """Whether two elements may have one place: unless each step is longer than all that lies within it."""
    reach = 0
    for step, extent in sorted((abs(step), extent) for step, extent in zip(array.strides, array.shape, strict=True)):
        if extent > 1 and step <= reach:
            return True
        reach += step * (extent - 1)
    return False


def pair(value: Pair, what: str, least: int) -> tuple[int, int]:
    """One whole number or two, for rows and columns; raises ValueError."""
    one = isinstance(value, int) or not isinstance(value, Sequence)  # the first is quicker to ask
    given: Any = (value, value) if one else value
    try:
        numbers = [operator.index(number) for number in given]
    except TypeError:
        numbers = []
    if len(numbers) != 2 or min(numbers) < least:
        raise ValueError(f"{what} is a whole number of {least} or more, or two of them, not {value!r}")
    return numbers[0], numbers[1]


def place(array: Descriptor) -> str:
    """Where an array is, in words."""
    return "in host memory" if array.device is None else f"on GPU {array.device}"


def memory_of(array: Descriptor) -> str:
    """The layout that an array's memory is in; nchw if none or both."""
    return "nhwc" if array.lies("nhwc") and not array.lies("nchw") else "nchw"


def empty(x: Any, call: Call, device: Gpu, stream: int) -> tuple[Any, int]:
    """A new array on the device for a call's output, of the library of ``x`` if that is torch or CuPy; its address.

    It lies as the call's ``y``; its axes are in the order of the call's layout.
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
def chosen(on: Gpu | HostExecutor, conv: Conv, N: int, precision: str, memory: str) -> auto.Choice:
    """The rung for N images that lie in ``memory``'s order.

    Raises MissingTool if there is none, OutOfMemory if none fits.
    """
    executor, budget = (on.executor, on.budget()) if isinstance(on, Gpu) else (on, on.memory_budget())
    for most in (budget, sys.maxsize):
        for name in (precision, *PRECISIONS[precision].stricter):  # a stricter one serves, too
            for layout in sorted(auto.layouts_of(name), key=lambda layout: layout != memory):
                choice = auto.choose(executor, conv, N, name, layout, print_to_stderr, most)
                if choice and most > budget:
                    raise OutOfMemory(f"{choice.rung.name}: {auto.misfit(executor, choice, conv, N, budget)}")
                if choice:
                    return choice
    raise MissingTool(f"no rung of precision {precision} takes {conv} with N={N} here: {executor.describe()}")


@lru_cache(maxsize=KEPT_CALLS)
def workspace_key(device: Gpu, call: Call) -> WorkspaceKey:
    """What the device computes for a call; raises as ``chosen`` does."""
    choice = chosen(device, call.conv, call.N, call.terms.precision, call.memory)
    x_in_place = call.terms.padding == (0, 0) and in_place(call.x, choice.rung.layout)
    y_in_place = in_place(call.y, choice.rung.layout)
    return WorkspaceKey(choice.rung.name, tuple(choice.constants.items()), call.conv, call.N, x_in_place, y_in_place)


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
    """GPU 0, or None where there is none that can be used."""
    try:
        return gpu(0)
    except MissingTool:
        return None


# Which GPU computes arrays in host memory, None for the CPU, by backend; and the backends that compute a GPU's arrays.
HOST_ARRAYS: dict[str, Callable[[], Gpu | None]] = {
    "auto": lambda: first_gpu(),
    "cuda": lambda: gpu(0),
    "host": lambda: None,
}
DEVICE_ARRAYS = ("auto", "cuda")


@cache
def host_executor() -> HostExecutor:
    """The host executor; raises MissingTool without a C++ compiler."""
    return HostExecutor()
