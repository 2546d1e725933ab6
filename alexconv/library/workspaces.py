"""Rungs on arrays and streams of other libraries.

PyCUDA launches and allocates in threads that have pushed its context, and on its own streams only; so memory and events
are cuda-bindings' here, and kernels are launched on the stream that the caller names, without waiting.  What a call
needs besides the caller's arrays, its workspace, is kept for the next call of the same kind, up to KEPT_SHARE of the
device's memory.  A workspace serves one call after the other: an event makes a call on another stream wait for the last
one.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import ceil, gcd, prod
from pathlib import Path
from typing import Any

import numpy.typing as npt

from alexconv.compiling import nvcc
from alexconv.errors import OutOfMemory
from alexconv.executors.cuda.bindings import PackedLaunch, answer, require_bindings
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.cuda.kernels import Kernels
from alexconv.executors.cuda.program import CudaProgram
from alexconv.executors.interface import NAN_BYTE
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.library.arrays import ALIGNMENT, Descriptor, Four, View, in_place, packed_descriptor
from alexconv.planning.planner import DoesNotFit, Plan, plan_on
from alexconv.shapes import Conv

COPY_SOURCE = Path(__file__).with_name("copy.cu")
KEPT_SHARE = 0.25  # of the device's memory, for workspaces
MOST_WORKSPACES = 256
MOST_MAPS = 1024  # tensor maps of a workspace: one for each address that it has met
MOST_COPIES = 1024  # launches of copiers that are kept, one for each pair of descriptors
BLOCK = 256  # threads of copy_elements
TILE, TILE_ROWS = 32, 8  # of copy_transposed; as in copy.cu
LEAST_TRANSPOSED = 8  # extents below which a tile is mostly empty


class Memory:
    """Memory on a device, freed when it is no longer referenced."""

    def __init__(self, device: "Gpu", nbytes: int) -> None:
        self.nbytes = max(nbytes, 1)
        with device.current():
            result, address = device.driver.cuMemAlloc(self.nbytes)
        if int(result) != 0:
            raise OutOfMemory(f"{nbytes} bytes on GPU {device.number}: {result.name}")
        self.address = int(address)
        weakref.finalize(self, device.free, self.address).atexit = False

    def __int__(self) -> int:
        return self.address


class StreamOrder:
    """An order among streams: what one enqueues after ``begin`` runs after all that was enqueued before ``end``."""

    def __init__(self, device: "Gpu") -> None:
        self._driver = device.driver
        flags = self._driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._event = answer(self._driver.cuEventCreate(flags), "an event")
        weakref.finalize(self, self._driver.cuEventDestroy, self._event).atexit = False

    def begin(self, stream: int) -> None:
        """The stream waits for what came before."""
        answer(self._driver.cuStreamWaitEvent(stream, self._event, 0), "a stream's wait")

    def end(self, stream: int) -> None:
        """What comes next waits for what is on the stream now."""
        answer(self._driver.cuEventRecord(self._event, stream), "an event")


@dataclass(frozen=True)
class WorkspaceKey:
    """What is to be computed: a rung for N images of a shape, and which arrays lie as the rung wants them."""

    name: str
    constants: tuple[tuple[str, int], ...]
    conv: Conv
    N: int
    x_in_place: bool
    y_in_place: bool

    @property
    def rung(self) -> Rung:
        """The rung; keys are looked up by its name, which is quicker to compare."""
        return RUNGS[self.name]


class Prepared:
    """Filters in the form that a rung wants, kept as long as this object."""

    def __init__(self, device: "Gpu", arrays: dict[str, Memory]) -> None:
        self.arrays, self.order = arrays, StreamOrder(device)
        self.addresses = {name: memory.address for name, memory in arrays.items()}


@dataclass
class Workspace:
    """What calls with one key share: program, plan, and the arrays that are not the caller's, by name.

    ``key`` is the one that was asked for, or it without arrays in place where pieces would not be aligned.  ``once``
    has the filters of the last call that kept none of its own.
    """

    key: WorkspaceKey
    program: CudaProgram
    plan: Plan
    arrays: dict[str, Memory]
    order: StreamOrder
    once: Prepared | None = None

    @cached_property
    def pieces(self) -> list[tuple[int, int]]:
        """First image and the one after the last, of each piece."""
        return self.plan.pieces

    @cached_property
    def addresses(self) -> dict[str, int]:
        """Where the arrays are."""
        return {name: memory.address for name, memory in self.arrays.items()}

    @property
    def bound(self) -> BoundRung:
        """The rung with the constants that were planned."""
        return self.plan.bound

    @cached_property
    def prepared_sizes(self) -> dict[str, int]:
        """Bytes of the arrays that the rung's filters become, and of the filters if it needs them as they are."""
        rung, sizes = self.bound.rung, self.bound.prepared_bytes()
        if rung.constant_symbol or any("w" in launch.args for launch in rung.launches):
            sizes["w"] = self.bound.filter_bytes()
        return sizes

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        once = self.once.arrays.values() if self.once else ()
        return sum(memory.nbytes for memory in (*self.arrays.values(), *once))


class Gpu:
    """A GPU that computes on other libraries' arrays.  Raises MissingTool as CudaExecutor does."""

    def __init__(self, number: int) -> None:
        self.driver = require_bindings("a convolution of other libraries' arrays")
        self.number = number
        self.lock = threading.RLock()
        self.executor = CudaExecutor(number)
        self.executor.leave()  # PyCUDA ends the process when a thread ends with a context on its stack
        assert self.executor.context  # there are bindings
        self.current = self.executor.context.current
        self._workspaces: OrderedDict[WorkspaceKey, Workspace] = OrderedDict()
        self._copy_launch = lru_cache(maxsize=MOST_COPIES)(self._packed_copy)

    def allocate(self, nbytes: int) -> Memory:
        """Memory of its own; raises OutOfMemory."""
        return Memory(self, nbytes)

    def free(self, address: int) -> None:
        """Gives memory back; waits for the device."""
        with self.current():
            self.driver.cuMemFree(address)

    def join(self, before: int, stream: int) -> None:
        """What comes next on a stream waits for what is on another now."""
        if before != stream:
            order = StreamOrder(self)
            order.end(before)
            order.begin(stream)

    def wait(self, stream: int) -> None:
        """Waits for all that is on a stream; raises LaunchError if a kernel failed."""
        with self.current():
            answer(self.driver.cuStreamSynchronize(stream), "waiting for the GPU")

    def upload(self, address: int, values: npt.NDArray[Any], stream: int) -> None:
        """Enqueues a copy of a contiguous array to the device; it may be changed as soon as this returns."""
        answer(self.driver.cuMemcpyHtoDAsync(address, values.ctypes.data, values.nbytes, stream), "a copy to the GPU")

    def download(self, values: npt.NDArray[Any], address: int, stream: int) -> None:
        """Copies from the device into a contiguous array, after what is on the stream."""
        answer(self.driver.cuMemcpyDtoHAsync(values.ctypes.data, address, values.nbytes, stream), "a copy from the GPU")
        answer(self.driver.cuStreamSynchronize(stream), "a copy from the GPU")

    @cached_property
    def kept_bytes(self) -> int:
        """Bytes that workspaces may have together."""
        return int(self.executor.gpu.total_memory() * KEPT_SHARE)

    def budget(self) -> int:
        """Bytes that a call may take: what is free, or could be, but no more than workspaces may have."""
        kept = sum(workspace.nbytes for workspace in self._workspaces.values())
        with self.current():
            return min(self.executor.memory_budget() + kept, self.kept_bytes)

    def workspace(self, key: WorkspaceKey) -> Workspace:
        """The workspace for a key, as it was left or new; raises OutOfMemory where none fits."""
        kept = self._workspaces.get(key)
        if kept is not None:
            self._workspaces.move_to_end(key)
            if len(kept.program.maps) < MOST_MAPS:
                return kept
            del self._workspaces[key], kept
        made = self._made(key)
        self._workspaces[key] = made
        return made

    def _made(self, key: WorkspaceKey) -> Workspace:
        rung, conv, constants = key.rung, key.conv, dict(key.constants)
        try:
            plan = plan_on(self.executor, rung, conv, key.N, constants, self.budget())
        except DoesNotFit as error:
            raise OutOfMemory(f"{rung.name}: {error}") from None
        image_bytes = rung.image_bytes(conv)
        aligned = ALIGNMENT // gcd(ALIGNMENT, *image_bytes.values())  # multiples of it keep the next piece aligned
        if len(plan.pieces) > 1 and plan.images_per_piece % aligned:
            if plan.images_per_piece > aligned:
                plan = replace(plan, images_per_piece=plan.images_per_piece // aligned * aligned)
            elif key.x_in_place or key.y_in_place:
                return self._made(replace(key, x_in_place=False, y_in_place=False))
        in_place = {"x": key.x_in_place, "y": key.y_in_place}
        sizes = {
            name: size for name, size in plan.bound.piece_bytes(plan.images_per_piece).items() if not in_place.get(name)
        }
        program = CudaProgram(self.executor, plan.bound, self.executor.kernels(plan.bound), self)
        self._make_room(sum(sizes.values()))
        try:
            arrays = self._allocated(sizes)
        except OutOfMemory:
            self._workspaces.clear()
            arrays = self._allocated(sizes)
        for memory in arrays.values():  # some rungs count on scratch that either is new or as they left it
            answer(self.driver.cuMemsetD8Async(memory.address, NAN_BYTE, memory.nbytes, 0), "filling scratch arrays")
        answer(self.driver.cuStreamSynchronize(0), "filling scratch arrays")
        return Workspace(key, program, plan, arrays, StreamOrder(self))

    def _allocated(self, sizes: Mapping[str, int]) -> dict[str, Memory]:
        return {name: Memory(self, nbytes) for name, nbytes in sizes.items()}

    def _make_room(self, nbytes: int) -> None:
        """Drops the workspaces that were not used for the longest time, until ``nbytes`` more bytes are allowed."""
        kept = sum(workspace.nbytes for workspace in self._workspaces.values())
        while self._workspaces and (kept + nbytes > self.kept_bytes or len(self._workspaces) >= MOST_WORKSPACES):
            _, dropped = self._workspaces.popitem(last=False)
            kept -= dropped.nbytes

    @cached_property
    def copiers(self) -> dict[int, Kernels]:
        """The kernels of copy.cu by bytes of an element."""
        cubins = {size: nvcc.compile_cubin(COPY_SOURCE, {"ELEMENT_BYTES": size}, self.executor.arch) for size in (2, 4)}
        return {size: self.executor.bound_kernels(cubin) for size, cubin in cubins.items()}

    def copy(self, source: View, target: View, border: tuple[int, int], stream: int) -> None:
        """Enqueues a copy of planes into the middle of a target with zeros in its border of rows and columns."""
        self._copy_launch(source.descriptor, target.descriptor, border).enqueue(
            stream, (source.address, target.address)
        )

    def _packed_copy(self, source: Descriptor, target: Descriptor, border: tuple[int, int]) -> PackedLaunch:
        """The launch of a copy; its first parameters are the addresses."""
        if border == (0, 0) and all(
            array.strides[2] == array.shape[3] * array.strides[3] for array in (source, target)
        ):
            source, target = (one_row(array) for array in (source, target))
        margins = dict(zip("NCHW", (0, 0, *border), strict=True))
        axes = {
            name: (extent, step, source_step, margins[name], count)
            for name, extent, step, source_step, count in zip(
                "NCHW", target.shape, target.strides, source.strides, source.shape, strict=True
            )
        }
        outer, middle, inner = sorted("CHW", key=lambda name: (axes[name][1], axes[name][0]), reverse=True)
        along = min("CHW", key=lambda name: (axes[name][4] == 1, abs(axes[name][2])))  # neighbours in the source
        addresses = [[0], [0]]
        kernels = self.copiers[source.itemsize]
        if along != inner and min(axes[along][0], axes[inner][0]) >= LEAST_TRANSPOSED:
            (other,) = {outer, middle} - {along}
            tiles = ceil(axes[along][0] / TILE) * ceil(axes[inner][0] / TILE)
            grid = target.shape[0] * axes[other][0] * tiles, 1, 1
            parameters = [*addresses, *(axes[name] for name in ("N", other, along, inner))]
            return kernels.packed("copy_transposed", grid, (TILE, TILE_ROWS, 1), 0, parameters)
        blocks = ceil(prod(target.shape[1:]) / BLOCK)
        parameters = [*addresses, *(axes[name] for name in ("N", outer, middle, inner)), [blocks]]
        return kernels.packed("copy_elements", (target.shape[0] * blocks, 1, 1), (BLOCK, 1, 1), 0, parameters)

    def packed(self, memory: int, like: Descriptor, layout: str, shape: Four) -> View:
        """An array of this device without gaps."""
        return View(memory, packed_descriptor(shape, layout, like.dtype, self.number))

    def prepare(self, space: Workspace, w: View, stream: int, into: Prepared | None = None) -> Prepared:
        """Enqueues the preparation of filters for a workspace's rung, into the memory of others if there is some.

        The workspace's order has begun on the stream, as for ``convolve``.
        """
        sizes = space.prepared_sizes
        if not in_place(w.descriptor, "nchw"):
            sizes = {**sizes, "w": space.bound.filter_bytes()}
        prepared = into if into and into.arrays.keys() == sizes.keys() else Prepared(self, self._allocated(sizes))
        addresses = {"w": w.address, **prepared.addresses}
        if "w" in sizes:
            self.copy(w, self.packed(addresses["w"], w.descriptor, "nchw", w.descriptor.shape), (0, 0), stream)
        space.program.prepare(addresses, stream)
        return prepared

    def convolve(
        self, space: Workspace, x: View, prepared: Prepared, y: View, border: tuple[int, int], stream: int
    ) -> None:
        """Enqueues a call on the arrays of a caller: ``y`` becomes the convolution of ``x`` with the filters.

        The workspace's order has begun on the stream, which waits for the filters; it ends here.
        """
        key = space.key
        rung, conv = key.rung, key.conv
        values = {**space.addresses, **prepared.addresses}
        if constant := space.program.constant_filters:
            copied = self.driver.cuMemcpyDtoDAsync(constant, values["w"], space.bound.filter_bytes(), stream)
            answer(copied, "filters as constants")
        for first, last in space.pieces:
            images, whole = last - first, last - first == key.N
            piece_x, piece_y = (x, y) if whole else (x.images(first, last), y.images(first, last))
            if key.x_in_place:
                values["x"] = piece_x.address
            else:
                to = self.packed(values["x"], x.descriptor, rung.layout, conv.x_shape(images))
                self.copy(piece_x, to, border, stream)
            if key.y_in_place:
                values["y"] = piece_y.address
            space.program.enqueue(images, values, stream)
            if not key.y_in_place:
                self.copy(
                    self.packed(values["y"], y.descriptor, rung.layout, conv.y_shape(images)), piece_y, (0, 0), stream
                )
        space.order.end(stream)


def one_row(planes: Descriptor) -> Descriptor:
    """Planes whose rows follow each other, as planes of one row."""
    N, C, H, W = planes.shape
    a, b, _, d = planes.strides
    return planes._replace(shape=(N, C, 1, H * W), strides=(a, b, 0, d))
