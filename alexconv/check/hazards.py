"""Finds hazards of asynchronous copies and wgmma on the CPU: memory that a kernel touches too early.

In the host executor's build ``hazards``, a kernel's copies (cp.async, TMA) and products (wgmma) take effect at the
earliest, the latest or a random legal moment.  Every access is checked against what its thread can know to be complete
(``executors/host/hostcuda/watcher.h``).  ``docs/hazards.md`` says what that finds and what it cannot.
"""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from alexconv.errors import LaunchError, OutOfMemory
from alexconv.executors.host.buffers import HostProgram
from alexconv.executors.host.memory import HostBuffer
from alexconv.executors.host.runtime import HostModule, HostRuntime
from alexconv.executors.interface import Values, fill_with_nan
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.rung import BIAS
from alexconv.profile.trace import Extent, Place, in_kernel, places_of, spread_blocks

BUILD = "hazards"
DEFINEDNESS = "definedness"  # the build in which local variables are watched, too
MOMENTS = ("earliest", "latest", "random")  # shadow.h's Moment

UNWRITTEN = "a store to that shared memory before"
UNINITIALISED = "a value of the local variable before"
UNDEFINED = (UNWRITTEN, UNINITIALISED)
CALLERS = 8  # of shadow.h
_OPERATIONS = (
    "",
    "a load",
    "a store",
    "an atomic function",
    "a copy by cp.async",
    "a TMA copy",
    "a wgmma",
    "mbarrier.init",
    "a use of the mbarrier",
    "the end of the block",
)
_MISSING = (
    "a barrier between the two",
    "cp.async.commit_group after the copy",
    "cp.async.wait_group for the copy's group, by the thread that copies",
    "a wait for the phase of the mbarrier at which the copy's bytes count",
    "wgmma.commit_group after the wgmma",
    "wgmma.wait_group for the wgmma's group",
    "wgmma.fence",
    "fence.proxy.async",
    "griddepcontrol.wait: a launch before may still run",
    *UNDEFINED,
)


class _Place(ctypes.Structure):
    """``Place`` in shadow.h."""

    _fields_ = (("file", ctypes.c_char_p), ("line", ctypes.c_uint64), ("counter", ctypes.c_uint64))


class _Row(ctypes.Structure):
    """``Row`` in shadow.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("order", "missing", "first", "second")),
        *((name, ctypes.c_uint64) for name in ("first_thread", "second_thread", "block")),
        ("first_place", _Place),
        ("second_place", _Place),
        ("callers", ctypes.c_uint64 * CALLERS),
    )


class _Report(ctypes.Structure):
    """``Report`` in shadow.h."""

    _fields_ = (("count", ctypes.c_uint64), ("rows", ctypes.POINTER(_Row)))


@dataclass(frozen=True)
class Hazard:
    """Two operations on the same memory, or one, and what is missing between or before them.

    ``first`` and its place are None where this launch has no earlier operation.
    """

    entry: str
    missing: str
    first: str | None
    second: str
    first_place: Place | None
    second_place: Place
    thread: int  # of the second, linear number in its block
    block: int

    def __str__(self) -> str:
        where = f"{self.second_place}: {self.second}"
        if self.first:
            where += f" meets {self.first} at {self.first_place}"
        return f"{where}; missing: {self.missing} ({self.entry}, block {self.block}, thread {self.thread})"

    @property
    def lines(self) -> tuple[Place, ...]:
        """The source lines that it names."""
        return tuple(place for place in (self.first_place, self.second_place) if place)


@dataclass(frozen=True)
class Watched:
    """The result of one run with effects applied at a given moment: hazards, outputs, or why a launch failed.

    ``undefined`` are loads of shared memory, in the build ``definedness`` of local variables, that nothing has written.
    """

    hazards: tuple[Hazard, ...]
    undefined: tuple[Hazard, ...]
    y: Values
    failure: str | None


class Schedule(NamedTuple):
    """When copies and products take effect: a moment of MOMENTS, random ones from a seed."""

    moment: str = "latest"
    seed: int = 0


class Inputs(NamedTuple):
    """A rung's inputs, in its own layout and type."""

    x: Values
    w: Values
    bias: Values | None = None


def watch_launch(
    module: HostModule,
    launch: LaunchConfig,
    arguments: Sequence[HostBuffer | int | float],
    schedule: Schedule,
    blocks: Sequence[int] = (),
    dependent: Iterable[HostBuffer] = (),
) -> tuple[list[Hazard], str | None]:
    """Runs a launch, or these blocks of it, with its copies and products taking effect as scheduled.

    ``dependent`` are the arrays that earlier launches may still use until a thread has waited for them, with
    programmatic dependent launch.  Returns the hazards in the order in which they occurred, and why the launch failed,
    if it did.  The module comes from a HostRuntime with ``build="hazards"``.  Raises OutOfMemory, and MissingTool
    without binutils.
    """
    extents = [Extent(buffer.pointer, buffer.nbytes) for buffer in dependent] if launch.pdl else []
    begin = module.library.host_cuda_hazards_begin
    begin.restype = ctypes.c_bool
    numbers = (ctypes.c_uint64 * len(blocks))(*blocks)
    overtaken = (Extent * len(extents))(*extents)
    if not begin(MOMENTS.index(schedule.moment), schedule.seed, numbers, len(blocks), overtaken, len(extents)):
        raise OutOfMemory("not enough host memory to watch a launch for hazards")
    failure = None
    try:
        try:
            module.run([(launch, arguments)])
        except LaunchError as error:
            failure = str(error)
        report = _Report()
        module.library.host_cuda_hazards_report(ctypes.byref(report))
        rows = [_Row.from_buffer_copy(report.rows[i]) for i in range(report.count)]
    finally:
        module.library.host_cuda_hazards_end()
    return _hazards(module, launch.entry, rows), failure


def _hazards(module: HostModule, entry: str, rows: Sequence[Any]) -> list[Hazard]:
    """The different hazards of a report's rows, in the order in which they occurred."""
    counters = {counter for row in rows for counter in (row.first_place.counter, *_calls(row))}
    places = places_of(module.path, counters - {0})
    hazards: dict[object, Hazard] = {}
    for row in sorted(rows, key=attrgetter("order")):
        second_place = _place(row.second_place, places) or Place("?", 0)
        if row.second_place.counter:
            second_place = in_kernel([places[counter] for counter in _calls(row) if counter])
        hazard = Hazard(
            entry,
            _MISSING[row.missing],
            _OPERATIONS[row.first] or None,
            _OPERATIONS[row.second],
            _place(row.first_place, places),
            second_place,
            row.second_thread,
            row.block,
        )
        hazards.setdefault((hazard.missing, hazard.first, hazard.second, hazard.lines), hazard)
    return list(hazards.values())


def _calls(row: Any) -> tuple[int, ...]:
    """The program counters of a row's second operation and of the calls around it, the innermost first."""
    return (row.second_place.counter, *row.callers)


def _place(place: Any, places: dict[int, Place]) -> Place | None:
    if place.counter:
        return places[place.counter]
    return Place(place.file.decode().rpartition("/")[2], place.line) if place.file else None


def watch_rung(
    runtime: HostRuntime, bound: BoundRung, inputs: Inputs, schedule: Schedule, blocks: int | None = None
) -> Watched:
    """Runs all launches of a rung over the images of ``inputs`` and watches them.

    ``blocks`` limits how many blocks of each launch run, spread over the grid; the outputs are incomplete then.
    The runtime has ``build="hazards"``.  Raises CompileError and LaunchError where CUDA's limits forbid a launch.
    """
    module = runtime.compile(bound.rung.path, bound.macros, bound.entries())
    program, images = HostProgram(module, bound), len(inputs.x)
    buffers = device_arrays(runtime, module, bound, inputs)
    constant = {*bound.prepared_bytes(), bound.roles.w, BIAS}
    dependent = [buffer for name, buffer in buffers.items() if name not in constant]
    hazards: list[Hazard] = []
    failure: str | None = None

    def run(launches: Sequence[LaunchConfig], named: dict[str, int], most: int | None) -> None:
        nonlocal failure
        for launch in launches:
            if failure:
                return
            numbers = spread_blocks(launch.grid, most) if most else ()
            arguments = [named[name] for name in launch.args]
            of_launch, failure = watch_launch(module, launch, arguments, schedule, numbers, dependent)
            hazards.extend(of_launch)

    run(bound.preparation(), {name: buffer.pointer for name, buffer in buffers.items()}, None)
    for first, count in bound.micro_batches(images):
        maps: list[HostBuffer] = []
        run(bound.launches(count), program.arguments(first, count, buffers, maps), blocks)
    y = buffers[bound.roles.y].array(inputs.x.dtype, bound.rung.y_shape(bound.conv, images)).copy()
    # Without optimization some stores to shared memory go unseen.
    missing = UNINITIALISED if runtime.build == DEFINEDNESS else UNWRITTEN
    undefined = tuple(hazard for hazard in hazards if hazard.missing == missing)
    return Watched(tuple(hazard for hazard in hazards if hazard.missing not in UNDEFINED), undefined, y, failure)


def device_arrays(runtime: HostRuntime, module: HostModule, bound: BoundRung, inputs: Inputs) -> dict[str, HostBuffer]:
    """A rung's arrays by name: its inputs, and NaN in all others."""
    roles = bound.roles
    sizes = {**bound.piece_bytes(len(inputs.x)), roles.w: inputs.w.nbytes, **bound.prepared_bytes()}
    buffers = {name: runtime.allocate(size, name) for name, size in sizes.items()}
    for buffer in buffers.values():
        fill_with_nan(buffer.bytes)
    if bound.rung.constant_symbol:
        module.symbol(bound.rung.constant_symbol)[: inputs.w.nbytes] = inputs.w.reshape(-1).view(np.uint8)
    if inputs.bias is not None:
        buffers[BIAS] = runtime.allocate(inputs.bias.nbytes, BIAS)
    filters = None if bound.rung.constant_symbol else inputs.w
    for name, values in ((roles.x, inputs.x), (roles.w, filters), (BIAS, inputs.bias)):
        if values is not None:
            buffers[name].array(values.dtype, values.shape)[:] = values
    return buffers
