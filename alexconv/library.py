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

Precisions are the error classes of ``alexconv.checks``: fp32 and tf32 take float32; fp16 and half take float16.  Rungs
of fp16 want nhwc and those of the others nchw: a float16 array in nchw is brought into nhwc and back.  The rung is that
of ``alexconv.auto``.  The first call of a shape compiles it, which takes seconds, and may wait for the device.

Calls may come from several threads and streams.  They may not be captured as CUDA graphs.  No gradients.
"""

import operator
import sys
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv import auto
from alexconv.arrays import (
    LEGACY_STREAM,
    TO_NCHW,
    TO_NHWC,
    Four,
    View,
    host_array,
    library_of,
    packed_strides,
    permute,
    view,
)
from alexconv.checks import PRECISIONS
from alexconv.cpu_reference.files import print_to_stderr
from alexconv.errors import MissingTool
from alexconv.executors import BACKENDS
from alexconv.executors.cuda_streams import Device, Job, Memory, Prepared, Workspace, in_place
from alexconv.executors.host_points import HostRungs
from alexconv.kernels.ladder import LADDER
from alexconv.layouts import LAYOUTS, to_study
from alexconv.planner import plan_on
from alexconv.shapes import Conv
from alexconv.transfers import TRANSFERS

DTYPES: dict[str, np.dtype[Any]] = {rung.precision: np.dtype(rung.dtype) for rung in LADDER}
INSTEAD = {"tf32": ("fp32",)}  # what serves, too, where no rung of the precision suits
KEPT_FILTERS = 16  # forms in which a Conv2d keeps its filters: one for each shape and rung
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
    and make a new object.  Raises as ``conv2d`` does.
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
            ("backend", backend, BACKENDS),
        ):
            if value not in known:
                raise ValueError(f"unknown {what} {value!r}: choose from {', '.join(known)}")
        self.precision, self.layout, self.backend = precision, layout, backend
        self.filters, self._w = filters, self._checked(view(filters, "filters"), "filters")
        rows, columns = pair(stride, "stride", least=1)
        if rows != columns:
            raise ValueError(f"strides along rows and columns must be equal, not {rows} and {columns}")
        self.stride, self.padding = rows, pair(padding, "padding", least=0)
        self._kept: dict[Any, Prepared] = {}

    def __call__(self, x: Any, out: Any = None) -> Any:
        """The output for ``x``, in ``out`` if given."""
        return self.compute(x, out, keep=True)

    def compute(self, x: Any, out: Any, *, keep: bool) -> Any:
        """The same; ``keep`` says whether the filters will be used again."""
        seen = self._seen(x, "x")
        conv, N = self._conv(seen), seen.shape[0]
        if out is not None:
            self._check_out(self._seen(out, "out"), seen, conv.y_shape(N))
        if seen.device is None:
            return self._of_host(x, out, conv, N, memory_of(seen), keep=keep)
        if self.backend == "host":
            raise ValueError(f"x lies on GPU {seen.device}, but backend host computes arrays in host memory")
        device = gpu(seen.device)
        with device.lock, device.current():
            y = empty(x, conv.y_shape(N), memory_of(seen), self.layout, device, seen) if out is None else out
            to = self._seen(y, "out")
            device.join(to.stream, seen.stream)
            if N:
                self._enqueue(device, conv, seen, to, seen.stream, keep=keep)
            device.join(seen.stream, to.stream)
            if seen.waits or to.waits or self._w.waits:
                device.wait(seen.stream)
        return y

    def _seen(self, values: Any, what: str) -> View:
        """An array with its axes as (N, C, H, W)."""
        seen = self._checked(view(values, what), what)
        return seen.permuted(TO_NCHW) if self.layout == "nhwc" else seen

    def _checked(self, seen: View, what: str) -> View:
        wanted = DTYPES[self.precision]
        if seen.dtype != wanted:
            raise ValueError(f"{what} is {seen.dtype}, but precision {self.precision} takes {wanted}")
        return seen

    def _conv(self, x: View) -> Conv:
        """The shape, padding included; raises ValueError where x and filters do not fit each other."""
        _, C, H, W = x.shape
        M, channels, R, S = self._w.shape
        if min(*self._w.shape, C, H, W) < 1:
            raise ValueError(f"an array is empty: x has shape {x.shape}, the filters {self._w.shape}")
        if channels != C:
            raise ValueError(f"x has {C} channels, the filters have {channels}")
        rows, columns = H + 2 * self.padding[0], W + 2 * self.padding[1]
        if rows < R or columns < S:
            raise ValueError(f"a filter of {R} x {S} is larger than the padded plane of {rows} x {columns}")
        if x.device != self._w.device and self._w.device is not None:
            raise ValueError(f"x lies {place(x)}, the filters {place(self._w)}")
        return Conv(C=C, H=rows, W=columns, M=M, R=R, S=S, U=self.stride)

    def _check_out(self, out: View, x: View, shape: Four) -> None:
        given, wanted = (permute(four, TO_NHWC) if self.layout == "nhwc" else four for four in (out.shape, shape))
        if given != wanted:
            raise ValueError(f"out has shape {given}, the output has {wanted}")
        if out.device != x.device:
            raise ValueError(f"x lies {place(x)}, out {place(out)}")
        if not out.writable:
            raise ValueError("out is read-only")
        if any(extent > 1 and step == 0 for extent, step in zip(out.shape, out.strides, strict=True)):
            raise ValueError(f"out has several elements in one place: its strides are {out.strides}")

    def _enqueue(self, device: Device, conv: Conv, x: View, y: View, stream: int, *, keep: bool) -> None:
        """Puts a convolution with at least one image on a stream of the device, which is current."""
        choice = chosen(device, conv, x.shape[0], self.precision, memory_of(x))
        layout = choice.rung.layout
        x_in_place = self.padding == (0, 0) and in_place(x, layout)
        constants = tuple(choice.constants.items())
        space = device.workspace(Job(choice.rung.name, constants, conv, x.shape[0], x_in_place, in_place(y, layout)))
        key = device.number, choice.rung.name, conv, tuple(space.plan.constants.items())
        space.turns.begin(stream)
        prepared = self._kept.get(key)
        if prepared is None:
            prepared = self._prepared(device, space, stream, keep=keep)
        if keep:
            self._kept[key] = prepared
            if len(self._kept) > KEPT_FILTERS:
                del self._kept[next(iter(self._kept))]
        device.convolve(space, x, prepared, y, self.padding, stream)

    def _prepared(self, device: Device, space: Workspace, stream: int, *, keep: bool) -> Prepared:
        """Filters in the form of the workspace's rung, in memory of their own or in the workspace's."""
        into, w = None if keep else space.once, self._w
        if w.device is None:
            values = np.ascontiguousarray(host_array(self.filters))
            uploaded = Memory(device, values.nbytes)  # held until the preparation is enqueued; its end waits for it
            device.upload(uploaded.address, values, stream)
            w = device.packed(uploaded.address, w, "nchw", w.shape)
            prepared = device.prepare(space, w, stream, into)
        else:
            device.join(w.stream, stream)
            prepared = device.prepare(space, w, stream, into)
        if not keep:
            space.once = prepared
        return prepared

    def _of_host(self, x: Any, out: Any, conv: Conv, N: int, memory: str, *, keep: bool) -> Any:
        """The output of host arrays, of the same kind."""
        device = None if self.backend == "host" else gpu(0) if self.backend == "cuda" else first_gpu()
        planes = self._study_order(host_array(x))
        if not N:
            y = np.empty(conv.y_shape(0), planes.dtype)
        elif device:
            y = self._staged(device, planes, conv, memory, keep=keep)
        else:
            y = self._on_host(planes, conv, memory)
        if out is None:
            return like(x, y if self.layout == "nchw" else np.ascontiguousarray(y.transpose(TO_NHWC)))
        np.copyto(self._study_order(host_array(out)), y)
        return out

    def _study_order(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A view of an array with its axes as (N, C, H, W)."""
        return values.transpose(TO_NCHW) if self.layout == "nhwc" else values

    def _on_host(self, x: npt.NDArray[Any], conv: Conv, memory: str) -> npt.NDArray[Any]:
        """``[N][M][E][F]`` on the host executor."""
        executor, (rows, columns) = host_executor(), self.padding
        choice = chosen(executor, conv, len(x), self.precision, memory)
        rung = choice.rung
        cut = plan_on(executor, rung, conv, len(x), choice.constants)
        planes = np.zeros(rung.x_shape(conv, len(x)), x.dtype)
        inner = to_study(planes, rung.layout)[:, :, rows : conv.H - rows, columns : conv.W - columns]
        np.copyto(inner, x)
        w = np.ascontiguousarray(host_array(self.filters))
        opened = executor.open(executor.load(rung, conv, cut.constants), cut, planes, w, TRANSFERS["pageable"])
        try:
            return np.ascontiguousarray(to_study(opened.outputs(), rung.layout))
        finally:
            opened.close()

    def _staged(self, device: Device, x: npt.NDArray[Any], conv: Conv, memory: str, *, keep: bool) -> npt.NDArray[Any]:
        """``[N][M][E][F]`` on a GPU, of as many images at a time as are no more than a share of its memory."""
        N, C, H, W = x.shape
        y = np.empty(conv.y_shape(N), x.dtype)
        stream = int(device.executor.stream.handle)
        with device.lock, device.current():
            image_bytes = (C * H * W + prod(y.shape[1:])) * x.itemsize
            images = min(N, max(1, int(device.budget() * STAGED_SHARE) // image_bytes))
            staged_x, staged_y = (Memory(device, images * prod(part.shape[1:]) * x.itemsize) for part in (x, y))
            for first in range(0, N, images):
                part = x[first : first + images]
                values = np.ascontiguousarray(part.transpose(TO_NHWC) if memory == "nhwc" else part)
                device.upload(staged_x.address, values, stream)
                source = View(
                    staged_x.address, (len(part), C, H, W), packed_strides(x.shape, memory), x.dtype, device.number
                )
                to = device.packed(staged_y.address, source, "nchw", conv.y_shape(len(part)))
                self._enqueue(device, conv, source, to, stream, keep=keep)
                device.download(y[first : first + images], staged_y.address, stream)
        return y


class DeviceArray:
    """An array on a GPU, with the CUDA array interface: an output for arrays of a library that is not known here.

    ``shape``, ``dtype``, and ``strides`` in bytes as NumPy has them.  Its work is on one stream, which the interface
    names.
    """

    def __init__(self, device: Device, shape: Four, strides: Four, dtype: np.dtype[Any], stream: int) -> None:
        self.shape, self.dtype = shape, dtype
        self.strides = tuple(step * dtype.itemsize for step in strides)
        self._device, self._stream = device, stream or LEGACY_STREAM
        self._memory = Memory(device, prod(shape) * dtype.itemsize)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array as the interface's version 3 has it."""
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self._memory.address, False),
            "stream": self._stream,
        }

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in host memory, made when the stream's work is done."""
        flat = np.empty(prod(self.shape), self.dtype)
        with self._device.current():
            self._device.download(flat, self._memory.address, self._stream)
        return np.lib.stride_tricks.as_strided(flat, self.shape, self.strides).copy()


def pair(value: Pair, what: str, least: int) -> tuple[int, int]:
    """One whole number or two, for rows and columns; raises ValueError."""
    given = value if isinstance(value, Sequence) else (value, value)
    try:
        numbers = [operator.index(number) for number in given]
    except TypeError:
        numbers = []
    if len(numbers) != 2 or min(numbers) < least:
        raise ValueError(f"{what} is a whole number of {least} or more, or two of them, not {value!r}")
    return numbers[0], numbers[1]


def place(seen: View) -> str:
    """Where an array is, in words."""
    return "in host memory" if seen.device is None else f"on GPU {seen.device}"


def memory_of(seen: View) -> str:
    """The layout that an array's memory is in; nchw if none or both."""
    return "nhwc" if seen.lies("nhwc") and not seen.lies("nchw") else "nchw"


def empty(x: Any, shape: Four, memory: str, layout: str, device: Device, seen: View) -> Any:
    """A new array on the device for an output ``(N, M, E, F)``, of the library of ``x`` if that is torch or CuPy.

    It lies in ``memory``'s order; its axes are in that of ``layout``.
    """
    memory = "nhwc" if layout == "nhwc" else memory
    turned = memory == "nhwc" and layout == "nchw"
    packed = permute(shape, TO_NHWC) if memory == "nhwc" else shape
    library = library_of(x)
    if library == "torch":
        y = sys.modules[library].empty(packed, dtype=x.dtype, device=x.device)
        return y.permute(TO_NCHW) if turned else y
    if library == "cupy":
        cupy: Any = sys.modules[library]
        with cupy.cuda.Device(device.number):
            y = cupy.empty(packed, x.dtype)
        return y.transpose(TO_NCHW) if turned else y
    strides = packed_strides(shape, memory)
    if layout == "nhwc":
        shape, strides = permute(shape, TO_NHWC), permute(strides, TO_NHWC)
    return DeviceArray(device, shape, strides, seen.dtype, seen.stream)


def like(x: Any, y: npt.NDArray[Any]) -> Any:
    """An output in host memory as an array of the library of ``x``: torch's, else NumPy's."""
    return sys.modules["torch"].from_numpy(y) if library_of(x) == "torch" else y


@lru_cache(maxsize=4096)
def chosen(on: Device | HostRungs, conv: Conv, N: int, precision: str, memory: str) -> auto.Choice:
    """The rung for N images that lie in ``memory``'s order; raises MissingTool if there is none."""
    executor, budget = (on.executor, on.budget()) if isinstance(on, Device) else (on, None)
    for name in (precision, *INSTEAD.get(precision, ())):
        for layout in sorted(auto.layouts_of(name), key=lambda layout: layout != memory):
            if choice := auto.choose(executor, conv, N, name, layout, print_to_stderr, budget):
                return choice
    raise MissingTool(f"no rung of precision {precision} takes {conv} with N={N} here: {executor.describe()}")


_devices: dict[int, Device] = {}
_starting = threading.Lock()


def gpu(number: int) -> Device:
    """The GPU with that number, kept; raises MissingTool."""
    with _starting:
        if number not in _devices:
            _devices[number] = Device(number)
        return _devices[number]


@cache
def first_gpu() -> Device | None:
    """GPU 0, or None where there is none that can be used."""
    try:
        return gpu(0)
    except MissingTool:
        return None


@cache
def host_executor() -> HostRungs:
    """The host executor; raises MissingTool without a C++ compiler."""
    return HostRungs()
