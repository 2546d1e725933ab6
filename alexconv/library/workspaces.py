"""Rungs on arrays and streams of other libraries.

PyCUDA launches and allocates only in threads that have pushed its context, and only on its own streams.  So memory and
events are cuda-bindings' here, and kernels are launched asynchronously on the caller's stream.

Everything a call needs besides the caller's arrays belongs to a *lane*: a stream, or its part of a captured graph.
Calls on one lane run in order, so they share scratch memory, whatever their shapes; calls on different lanes share
none, so neither events nor waits order them.  A captured graph's lane lasts as long as the graph; its memory is freed
at the next capture or when memory is needed, since freeing synchronizes with the device.
"""

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil, gcd
from pathlib import Path
from queue import PriorityQueue
from typing import Any

import numpy.typing as npt

from alexconv.compiling import nvcc
from alexconv.compiling.compiled import is_compiled
from alexconv.errors import MissingTool, OutOfMemory
from alexconv.executors.cuda import native
from alexconv.executors.cuda.bindings import answer, require_bindings
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.cuda.kernels import Kernels
from alexconv.executors.cuda.program import CudaProgram
from alexconv.executors.cuda.tensor_maps import TensorMaps
from alexconv.executors.interface import NAN_BYTE
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import RESIDUAL, Rung, TensorMap
from alexconv.library import generic
from alexconv.library.arrays import ALIGNMENT, Descriptor, Four, View, packed_descriptor
from alexconv.library.calls import Call
from alexconv.library.every_shape import BYTES, missing, of_library, of_rungs
from alexconv.library.packets import MapOf, Recipe, Symbol, Value, arguments
from alexconv.machine import cores
from alexconv.messages import print_to_stderr
from alexconv.planning.planner import DoesNotFit, Plan, plan_on
from alexconv.shapes import Conv

WORKSPACE_SHARE = 0.25  # of the device's memory, for workspaces
MOST_LANES = 256
MOST_PROGRAMS = 512
MOST_MAPS = 1024  # tensor maps of a lane, one for each array address
UNCAPTURED = (0, 1)  # streams that cannot be captured: the default stream's two handles


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
    """An event that orders streams: work enqueued after ``begin`` runs after work enqueued before ``end``."""

    def __init__(self, device: "Gpu") -> None:
        self._driver = device.driver
        flags = self._driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._event = answer(self._driver.cuEventCreate(flags), "an event")
        weakref.finalize(self, device.destroy_event, self._event).atexit = False

    def begin(self, stream: int) -> None:
        """Makes later work on the stream wait for the work before ``end``."""
        answer(self._driver.cuStreamWaitEvent(stream, self._event, 0), "a stream's wait")

    def end(self, stream: int) -> None:
        """Makes streams that ``begin`` wait for everything that is on this stream now."""
        answer(self._driver.cuEventRecord(self._event, stream), "an event")

    def wait(self) -> None:
        """Blocks the host until the work before ``end`` is done."""
        answer(self._driver.cuEventSynchronize(self._event), "an event")


@dataclass(frozen=True)
class WorkspaceKey:
    """A computation: a rung for N images of a shape, and which arrays it uses in place.

    ``dynamic``: in its build for every shape.
    """

    name: str
    constants: tuple[tuple[str, int], ...]
    conv: Conv
    N: int
    x_in_place: bool
    y_in_place: bool
    dynamic: bool = False

    @property
    def rung(self) -> Rung:
        """The rung; keys hold its name, which compares faster."""
        return ALL_DIRECTIONS.named[self.name]


class Prepared:
    """Filters and bias on a device, copied or prepared for a rung; freed with this object."""

    def __init__(self, device: "Gpu", arrays: dict[str, Memory]) -> None:
        self.arrays, self.order = arrays, StreamOrder(device)
        self.addresses = {name: memory.address for name, memory in arrays.items()}


@dataclass(frozen=True)
class Loaded:
    """A key's kernels on the device, and how its batch is cut.

    ``key`` is the requested key, but with no array in place where pieces would not be aligned.
    """

    key: WorkspaceKey
    program: CudaProgram
    plan: Plan

    @property
    def bound(self) -> BoundRung:
        """The plan's bound rung."""
        return self.plan.bound

    @cached_property
    def scratch(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes of each array that other calls may overwrite, and of each lasting one."""
        roles = self.key.conv.roles
        in_place = {roles.x: self.key.x_in_place, roles.y: self.key.y_in_place}
        sizes = self.bound.piece_bytes(self.plan.images_per_piece)
        lasting = {array.name for array in self.bound.rung.scratch if array.lasting}
        shared = {name: size for name, size in sizes.items() if name not in lasting and not in_place.get(name)}
        return shared, {name: sizes[name] for name in lasting}


class Lane:
    """The workspaces of a stream or, with ``life``, of a graph captured on it.

    ``generation`` changes when addresses in packets do; ``held`` keeps alive what a graph uses.
    """

    def __init__(self, device: "Gpu", stream: int, life: native.GraphLife | None = None) -> None:
        self.stream, self.life, self.generation = stream, life, 0
        self.held: list[Any] = []
        self._device = device
        self._shared: Memory | None = None
        self._before: list[Any] = []  # of the last generation; enqueued work may still use it
        self._lasting: dict[WorkspaceKey, dict[str, Memory]] = {}
        self._maps: dict[int, TensorMaps] = {}  # by program
        self._programs: list[CudaProgram | None] = []

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        lasting = [memory for arrays in self._lasting.values() for memory in arrays.values()]
        before = [memory for memory in self._before if isinstance(memory, Memory)]
        return sum(memory.nbytes for memory in (*filter(None, [self._shared]), *before, *lasting))

    def release(self) -> None:
        """Frees its memory and invalidates its packets."""
        self.generation += 1
        self.held, self._before, self._shared = [], [], None
        self._lasting, self._maps, self._programs = {}, {}, []

    def addresses(self, loaded: Loaded, more: Mapping[str, int]) -> dict[str, int]:
        """Addresses of a call's workspace arrays, and of arrays of ``more`` bytes; raises OutOfMemory."""
        shared, lasting = loaded.scratch
        offsets, end = {}, 0
        for name, nbytes in {**shared, **more}.items():
            offsets[name], end = end, end + ceil(max(nbytes, 1) / 256) * 256
        base = self.reserve(end)
        addresses = {name: base + offset for name, offset in offsets.items()}
        arrays = self._lasting.get(loaded.key)
        if arrays is None and lasting:
            arrays = {name: self._device.allocate_or_make_room(nbytes, self) for name, nbytes in lasting.items()}
            for memory in arrays.values():
                self._device.fill(memory, self)
            self._lasting[loaded.key] = arrays
        return addresses | {name: memory.address for name, memory in (arrays or {}).items()}

    def reserve(self, nbytes: int) -> int:
        """Address of at least ``nbytes`` bytes of scratch memory, which every call may overwrite."""
        if not nbytes:
            return 0
        if self._shared is None or self._shared.nbytes < nbytes:
            if self.life:
                self.held.append(self._shared)
            self._renew(self._shared)
            self._shared = None
            self._shared = self._device.allocate_or_make_room(nbytes, self)
        return self._shared.address

    def _renew(self, *before: Any) -> None:
        """Invalidates the packets.  Their memory lives for one more generation: freeing it now would synchronize."""
        self.generation += 1
        self._before = list(filter(None, before))

    def forget(self) -> None:
        """Frees the last generation's memory; synchronizes with the device."""
        if not self.life:
            self._before = []

    def map_address(self, program: CudaProgram | None, wanted: MapOf, array: int) -> int:
        """Device address of a tensor map, encoded on first use."""
        if sum(map(len, self._maps.values())) >= MOST_MAPS and not self.life:
            self._renew(self._maps, self._programs)
            self._maps, self._programs = {}, []
        maps = self._maps.get(id(program))
        if maps is None:
            self._programs.append(program)  # keeps its id, the key, unique
            maps = self._maps[id(program)] = TensorMaps(MapMemory(self._device, self))
        return maps.address(self.stream, wanted.tensor_map, wanted.problem, array)


@dataclass(frozen=True)
class MapMemory:
    """The allocator for a lane's tensor maps."""

    device: "Gpu"
    lane: Lane

    def allocate(self, nbytes: int) -> Memory:
        """New memory."""
        return Memory(self.device, nbytes)

    def upload(self, address: int, values: npt.NDArray[Any], stream: int) -> None:
        """Copies an array to the device before the lane's next work; synchronously during a capture."""
        with self.device.current():
            if not self.lane.life:
                self.device.upload(address, values, stream)
                return
            self.device.upload(address, values, self.device.side)
            self.device.wait(self.device.side)


class LibraryExecutor(CudaExecutor):
    """The executor for other libraries' arrays, on any of their streams."""

    def unsuited(self, rung: Rung) -> str | None:
        """Why this GPU cannot run the rung, or None."""
        if rung.constant_symbol:
            return "keeps its filters in constant memory, which all streams share"
        return super().unsuited(rung)

    def _toolkit(self) -> str:
        """Without a compiler none, if this machine has the library's kernels."""
        try:
            return super()._toolkit()
        except MissingTool:
            if missing(of_library(self.gpu.arch)):
                raise
            return ""

    def cubin_path(self, bound: BoundRung) -> Path:
        """The path of a rung's machine code, there or not."""
        path_of = nvcc.lasting_path if bound.dynamic else nvcc.cubin_path
        return path_of(bound.rung.path, bound.macros, self.gpu.arch)

    def kernels(self, bound: BoundRung) -> Kernels:
        """A rung's kernels, loaded for the life of the process; raises CompileError.

        Unloading them would have to wait for the context, which invalidates every capture in it.
        """
        kernels = super().kernels(bound)
        self._lasting.add(kernels)
        return kernels

    @cached_property
    def _lasting(self) -> set[Kernels]:
        return set()


class Gpu:
    """A GPU that computes on other libraries' arrays.  Raises MissingTool as CudaExecutor does."""

    def __init__(self, number: int) -> None:
        self.driver = require_bindings("conv2d on a GPU")
        self.number = number
        self.lock = threading.RLock()
        self.relaxed = native.Relaxed()  # for the holder of the lock
        with native.Relaxed():
            self.executor = LibraryExecutor(number)
        self.executor.leave()  # PyCUDA ends the process when a thread ends with a context on its stack
        self._context = self.executor.gpu.context
        self.context = self._context.number
        self.streams = native.Streams()
        self._lanes: OrderedDict[tuple[int, int], Lane] = OrderedDict()  # by IDs of stream and capture
        self._programs: OrderedDict[WorkspaceKey, Loaded] = OrderedDict()
        self._any_shape: dict[tuple[Path, int], Kernels] = {}
        self._building: dict[Path, Future[None]] = {}  # by cubin
        self._built: set[Any] = set()  # files and macros of cubins for every shape that are there
        self.routed: set[Any] = set()  # calls whose rung is chosen
        self.choosing: dict[Any, Future[None]] = {}  # of calls whose rung is being chosen
        self.one_chooses, self.last_first_call = threading.Lock(), 0.0  # in the background, after a pause
        self._classes: set[str] = set()  # classes whose builds for every shape have been begun

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes the context current in this thread, and lets it work while another thread captures a stream."""
        with self._context.current(), native.Relaxed():
            yield

    def allocate(self, nbytes: int) -> Memory:
        """New memory on the device; raises OutOfMemory."""
        return Memory(self, nbytes)

    def free(self, address: int) -> None:
        """Frees memory, in any thread; synchronizes with the device."""
        with self.current():
            self.driver.cuMemFree(address)

    def destroy_event(self, event: Any) -> None:
        """Destroys an event, in any thread."""
        with self.current():
            self.driver.cuEventDestroy(event)

    def join(self, before: int, stream: int) -> None:
        """Makes later work on ``stream`` wait for everything that is on ``before`` now."""
        if before != stream:
            for handle in (before, stream):
                self.streams.capture(handle)  # refuses a default stream that would invalidate another's capture
            order = StreamOrder(self)
            order.end(before)
            order.begin(stream)

    def wait(self, stream: int) -> None:
        """Synchronizes with a stream; raises LaunchError if a kernel failed."""
        with self.current():
            answer(self.driver.cuStreamSynchronize(stream), "waiting for the GPU")

    def upload(self, address: int, values: npt.NDArray[Any], stream: int) -> None:
        """Enqueues a copy of a contiguous array to the device; the array may change as soon as this returns."""
        answer(self.driver.cuMemcpyHtoDAsync(address, values.ctypes.data, values.nbytes, stream), "a copy to the GPU")

    def download(self, values: npt.NDArray[Any], address: int, stream: int) -> None:
        """Copies from the device into a contiguous array, in stream order; synchronous."""
        answer(self.driver.cuMemcpyDtoHAsync(values.ctypes.data, address, values.nbytes, stream), "a copy from the GPU")
        answer(self.driver.cuStreamSynchronize(stream), "a copy from the GPU")

    @cached_property
    def side(self) -> int:
        """A separate stream, for work that must not be captured."""
        flag = self.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._side = answer(self.driver.cuStreamCreate(flag), "a stream")
        return int(self._side)

    def fill(self, memory: Memory, lane: Lane) -> None:
        """Fills memory with NaN (0xFF bytes) before the lane's next work."""
        stream = self.side if lane.life else lane.stream
        answer(self.driver.cuMemsetD8Async(memory.address, NAN_BYTE, memory.nbytes, stream), "filling scratch arrays")
        if lane.life:
            self.wait(stream)

    @cached_property
    def workspace_bytes(self) -> int:
        """Bytes that all workspaces together may take."""
        return int(self.executor.gpu.memory_bytes * WORKSPACE_SHARE)

    def budget(self) -> int:
        """Bytes that a call may take: free and reclaimable memory, but no more than ``workspace_bytes``."""
        with self.lock, self.current():
            return min(self.executor.memory_budget() + self._reclaimable_bytes(), self.workspace_bytes)

    def _reclaimable_bytes(self) -> int:
        return sum(lane.nbytes for lane in self._lanes.values() if lane.life is None or lane.life.ended())

    def lane(self, stream: int) -> tuple[int, int]:
        """IDs of a stream and of its capture, 0 if none; a captured stream's handle stands in for its ID."""
        if capture := self.streams.capture(stream):
            return stream, capture  # querying the stream's ID would invalidate the capture
        return 0 if stream in UNCAPTURED else self.streams.number(stream), 0

    def lane_of(self, numbers: tuple[int, int], stream: int) -> Lane:
        """The lane with these IDs, created on first use."""
        lane = self._lanes.get(numbers)
        if lane is None:
            if numbers[1]:  # captures free the memory of ended graphs, so that other calls need not synchronize
                self._drop_ended()
            while len(self._lanes) >= MOST_LANES and self._drop_lane(but=None):
                pass
            life = native.GraphLife(self.streams.graph()) if numbers[1] else None
            lane = self._lanes[numbers] = Lane(self, stream, life)
        elif lane.life is None:
            self._lanes.move_to_end(numbers)
        return lane

    def _drop_ended(self) -> bool:
        """Drops the workspaces of graphs that no longer exist; True if there were any."""
        ended = [key for key, lane in self._lanes.items() if lane.life and lane.life.ended()]
        for key in ended:
            self._lanes.pop(key).release()
        return bool(ended)

    def _drop_lane(self, but: Lane | None) -> bool:
        """Drops the workspaces of ended graphs, or else of the least recently used stream; True if any."""
        if self._drop_ended():
            return True
        for key, lane in self._lanes.items():
            if lane is not but and lane.life is None:
                self._lanes.pop(key).release()
                return True
        return False

    def allocate_or_make_room(self, nbytes: int, lane: Lane) -> Memory:
        """Memory for a lane, dropping others if necessary; raises OutOfMemory."""
        while self._reclaimable_bytes() + nbytes > self.workspace_bytes and self._drop_lane(but=lane):
            pass
        try:
            return Memory(self, nbytes)
        except OutOfMemory:
            lane.forget()
            while self._drop_lane(but=lane):
                pass
            return Memory(self, nbytes)

    def loaded(self, key: WorkspaceKey, *, wait: bool) -> Loaded | Future[None]:
        """A key's kernels; while they compile, without ``wait``, the future of their compilation.

        Raises OutOfMemory where no piece of the batch fits, and CompileError.
        """
        loaded = self._programs.get(key)
        if loaded is not None:
            self._programs.move_to_end(key)
            return loaded
        plan, planned = self._planned(key)
        building = self.build(plan.bound)
        if building is not None:
            if not wait:
                return building
            if building.cancel():  # compilations of other calls would come first
                self.executor.build(plan.bound)
            else:
                building.result()
        kernels = self.executor.kernels(plan.bound)
        program = CudaProgram(self.executor.gpu, plan.bound, kernels, memory=self)
        loaded = self._programs[key] = Loaded(planned, program, plan)
        if len(self._programs) > MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return loaded

    def forget_plans(self) -> None:
        """Lets later calls plan anew, in the memory that there is then."""
        self._programs.clear()

    def begun(self, key: WorkspaceKey) -> "Future[None] | None":
        """The background compilation of a key's rung, or None once the cache has it."""
        with self.lock:
            plan, _ = self._planned(key)
        return self.build(plan.bound)

    def build(self, bound: BoundRung) -> "Future[None] | None":
        """The background compilation of a rung, or None once the cache has it; raises CompileError."""
        executor = self.executor
        path = executor.cubin_path(bound)
        with self.lock:
            building = self._building.get(path)
            if building is not None and building.done():
                del self._building[path]  # a later call tries again after a failure
                if not building.cancelled():
                    building.result()
                building = None
            if building is None and not is_compiled(path):
                building = self._building[path] = COMPILERS.submit(executor.build, bound)
        return building

    def compilations(self) -> list["Future[None]"]:
        """Those in the background that have not been used yet, and of rungs that are still being chosen."""
        with self.lock:
            return [*self._building.values(), *list(self.choosing.values())]

    def build_for_every_shape(self, precision: str) -> None:
        """Begins to compile a class's builds for every shape in the background, once in a process."""
        if precision in self._classes or not self.compiles:
            return
        self._classes.add(precision)
        gpu = self.executor.gpu
        for build in missing(list(of_rungs(gpu.arch, gpu.capability, precision))):
            COMPILERS.submit(build.compile, later=True)

    @property
    def compiles(self) -> bool:
        """Whether there is an nvcc for it."""
        return bool(self.executor.toolkit)

    def is_built(self, bound: BoundRung) -> bool:
        """Whether a rung's machine code is there."""
        key = bound.rung.path, *bound.macros.items()
        if key not in self._built and is_compiled(self.executor.cubin_path(bound)):
            self._built.add(key)
        return key in self._built

    def _planned(self, key: WorkspaceKey) -> tuple[Plan, WorkspaceKey]:
        """The plan, and the key, with no array in place where pieces would not be aligned."""
        rung, conv = key.rung, key.conv
        bound = BoundRung(rung, conv, dict(key.constants), self.executor.device, key.dynamic)
        try:
            plan = plan_on(self.executor, bound, key.N, self.budget())
        except DoesNotFit as error:
            raise OutOfMemory(f"{rung.name}: {error}") from None
        image_bytes = rung.image_bytes(conv)
        aligned = ALIGNMENT // gcd(ALIGNMENT, *image_bytes.values())  # multiples of it keep the next piece aligned
        if len(plan.pieces) > 1 and plan.images_per_piece % aligned:
            if plan.images_per_piece > aligned:
                plan = replace(plan, images_per_piece=plan.images_per_piece // aligned * aligned)
            elif key.x_in_place or key.y_in_place:
                return self._planned(replace(key, x_in_place=False, y_in_place=False))
        return plan, key

    def any_shape(self) -> dict[tuple[Path, int], Kernels]:
        """The kernels of the files of generic.SOURCES, by file and bytes of an element, loaded on first use."""
        if self._any_shape:
            return self._any_shape
        gpu = self.executor.gpu
        wanted = of_library(gpu.arch)
        if missing(wanted):
            print_to_stderr("alexconv: compiling the kernels that take any shape, once on this machine")
        building = [COMPILERS.submit(build.compile) for build in wanted]
        cubins = [compilation.result() for compilation in building]
        self._any_shape = {
            (build.source, build.macros[BYTES]): gpu.load(cubin) for build, cubin in zip(wanted, cubins, strict=True)
        }
        return self._any_shape

    def of_any_shape(self, source: Path, array: Descriptor, entry: str) -> int:
        """The handle of a kernel that takes any shape, for an array's type."""
        return self.any_shape()[source, array.itemsize].function(entry, 0)

    def packed(self, memory: int, like: Descriptor, layout: str, shape: Four) -> View:
        """A packed array on this device."""
        return View(memory, packed_descriptor(shape, layout, like.dtype, self.number))

    # Packets

    def recipe(self, lane: Lane, program: CudaProgram | None = None) -> Recipe:
        """An empty recipe for a lane."""
        return Recipe(lane.stream, partial(lane.map_address, program))

    def add_copy(
        self,
        recipe: Recipe,
        source: tuple[Value, Descriptor],
        target: tuple[Value, Descriptor],
        before: tuple[int, int],
    ) -> None:
        """Appends a copy of planes into a zero-padded target; ``before`` is the padding before rows and columns."""
        entry, grid, block, words = generic.copy(source[1], target[1], before)
        function = self.of_any_shape(generic.COPY_SOURCE, source[1], entry)
        recipe.add(function, grid, block, 0, [source[0], target[0], *words])

    def add_generic(
        self, recipe: Recipe, conv: Conv, N: int, arrays: Mapping[str, tuple[Value, Descriptor]], bias: Value
    ) -> None:
        """Appends the launch that computes a layer of any shape."""
        x, w, y = (arrays[name] for name in ("x", "w", "y"))
        entry, grid, block, words = generic.convolution(conv, N, x[1], w[1], y[1])
        function = self.of_any_shape(generic.GENERIC_SOURCE, x[1], entry)
        recipe.add(function, grid, block, 0, [x[0], w[0], bias, y[0], *words])

    def add_sums(self, recipe: Recipe, lane: Lane, dy: tuple[Value, Descriptor], target: Value) -> None:
        """Appends the launches that sum each filter's plane of dy over the batch."""
        (first, second), nbytes = generic.sums(dy[1])
        partial = lane.reserve(nbytes)
        for (entry, grid, words), arrays in ((first, (dy[0], partial)), (second, (partial, target))):
            function = self.of_any_shape(generic.SUM_SOURCE, dy[1], entry)
            recipe.add(function, grid, (generic.THREADS, 1, 1), 0, [*arrays, *words])

    def add_finish(
        self,
        recipe: Recipe,
        rest: Conv,
        N: int,
        bias: Value,
        arrays: tuple[Descriptor, Descriptor | None],
    ) -> None:
        """Appends the launch that adds and applies what ``rest`` has to the call's y, in place.

        ``arrays``: y and the residual.
        """
        y, residual = arrays
        entry, grid, block, words = generic.finish(rest, N, y, residual or y)
        recipe.add(
            self.of_any_shape(generic.GENERIC_SOURCE, y, entry),
            grid,
            block,
            0,
            [bias if rest.bias else 0, Symbol("residual") if rest.residual else 0, Symbol("y"), *words],
        )

    def add_launches(
        self,
        recipe: Recipe,
        program: CudaProgram,
        launches: list[LaunchConfig],
        values: Mapping[str, Value],
        *,
        pdl: bool,
    ) -> None:
        """Appends a rung's launches; with ``pdl`` a kernel that does not prepare its filters precedes them."""
        kernels = program.kernels
        for number, launch in enumerate(launches):
            shared, dependent = program.as_launched(launch, pdl=pdl or number > 0)
            function = kernels.function(launch.entry, shared)
            recipe.add(function, launch.grid, launch.block, shared, arguments(launch.args, values), pdl=dependent)

    def add_rung(
        self,
        recipe: Recipe,
        lane: Lane,
        loaded: Loaded,
        call: Call,
        values: Mapping[str, Value],
        *,
        pdl: bool,
    ) -> None:
        """Appends the launches that copy x into a rung's layout, compute, and copy y to the caller's array.

        ``values`` has the addresses of scratch arrays, filters and bias; x and y are the caller's where they are in
        place, else scratch arrays.  Arrays have the roles of the layer's direction.
        """
        key, program, bound = loaded.key, loaded.program, loaded.bound
        x, y, roles = call.x, call.y, key.conv.roles
        padding = call.conv.top - key.conv.top, call.conv.left - key.conv.left
        encoded = partial(self._map, lane, program)

        def packed(role: str, images: int) -> Descriptor:
            shape = key.conv.shape_of(role, images)
            channels = key.conv.y_channels if role == roles.y and key.conv.y_channels else shape[1]
            whole = images, channels, *shape[2:]
            return packed_descriptor(whole, key.rung.layout_of(role), x.dtype, self.number)._replace(shape=shape)

        for first, last in loaded.plan.pieces:
            images = last - first
            piece_values = dict(values)
            piece_x, piece_y = (
                (
                    Symbol(name, first * array.strides[0] * array.itemsize),
                    array._replace(shape=(packed(role, images).shape[0], *array.shape[1:])),
                )
                for name, role, array in (("x", roles.x, x), ("y", roles.y, y))
            )
            if key.x_in_place:
                piece_values[roles.x] = piece_x[0]
            else:
                self.add_copy(recipe, piece_x, (values[roles.x], packed(roles.x, images)), padding)
            if key.y_in_place:
                piece_values[roles.y] = piece_y[0]
            if key.conv.residual:
                piece_values[RESIDUAL] = Symbol(RESIDUAL, piece_y[0].moved)
            for start, count in bound.micro_batches(images):
                launch_arguments: Any = bound.arguments(start, count, piece_values, encoded)  # type: ignore[arg-type]
                follows = pdl or not key.x_in_place or first > 0 or start > 0
                launches = bound.launches(count)
                self.add_launches(recipe, program, launches, launch_arguments, pdl=follows)
            if not key.y_in_place:
                self.add_copy(recipe, (values[roles.y], packed(roles.y, images)), piece_y, (0, 0))

    @staticmethod
    def _map(lane: Lane, program: CudaProgram, tensor_map: TensorMap, problem: Problem, array: int | Symbol) -> Value:
        if isinstance(array, Symbol):
            return MapOf(tensor_map, problem, array)
        return lane.map_address(program, MapOf(tensor_map, problem, Symbol("")), array)


class Compilers:
    """Threads that compile in the background, up to one per core; the end of the process does not wait for them."""

    def __init__(self) -> None:
        self._jobs: PriorityQueue[tuple[bool, int, Future[Any], partial[Any]]] = PriorityQueue()
        self._threads: list[threading.Thread] = []
        self._number = itertools.count()

    def submit(self, job: Callable[..., Any], *arguments: Any, later: bool = False) -> Future[Any]:
        """A future of the job's result; ``later``: after all jobs that are not."""
        future: Future[Any] = Future()
        self._jobs.put((later, next(self._number), future, partial(job, *arguments)))
        if len(self._threads) < cores():
            self._threads.append(threading.Thread(target=self._work, name="alexconv-compiler", daemon=True))
            self._threads[-1].start()
        return future

    def _work(self) -> None:
        while True:
            _, _, future, job = self._jobs.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as error:  # the caller's to handle, whatever it is
                future.set_exception(error)


COMPILERS = Compilers()
