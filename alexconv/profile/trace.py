"""A kernel's memory accesses, traced on the CPU: requests of warps, by source line, and races.

A kernel of the host executor's trace build runs a few blocks of its grid; every load and store is reported to
``executors/host/hostcuda/trace.cpp``, which replays it warp by warp.  What that says about a GPU, and what it does not:
``docs/profile.md``.
"""

import ctypes
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.errors import MissingTool, OutOfMemory
from alexconv.executors.host.memory import HostBuffer
from alexconv.executors.host.runtime import HostModule
from alexconv.kernels.bound import LaunchConfig

SECTOR_BYTES = 32
SPACES = {1: "global", 2: "shared"}  # trace.cpp's Space
OPERATIONS = ("load", "store", "atomic")  # trace.cpp's Operation
_RUNTIME = Path(__file__).parent.parent / "executors" / "host" / "hostcuda"
_COUNTER = re.compile("0x[0-9a-f]+")  # a line of addr2line's: what follows is of this program counter
_PRECOMPILED = "<stdin>"  # what g++ may call a header that it takes from the precompiled ones
OWN_FILES = frozenset((_PRECOMPILED, *(path.name for path in _RUNTIME.iterdir())))


class Extent(ctypes.Structure):
    """``host_cuda::Extent`` in trace.h."""

    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class _Report(ctypes.Structure):
    """``Report`` in trace.cpp."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("blocks", "issued", "issued_lanes", "site_count", "race_count")),
        ("sites", ctypes.POINTER(ctypes.c_uint64)),
        ("races", ctypes.POINTER(ctypes.c_uint64)),
    )


_SITE_WIDTH, _RACE_WIDTH = 8, 9  # numbers in a row of sites, of races


@dataclass(frozen=True)
class Place:
    """A line of a kernel's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Requests:
    """Memory requests of warps, global or shared: those of one source line and access width, or a kernel's total.

    A request is one access of a warp; ``lanes`` of its 32 take part, summed over the requests.  ``transactions`` are
    32-byte sectors of global memory, wavefronts of shared memory.  ``useful`` is the bytes of global memory that were
    requested, each counted once per request.
    """

    space: str  # global, shared
    operation: str  # load, store, atomic
    requests: int
    lanes: int
    transactions: int
    useful: int
    bytes: int = 0  # of one lane's access
    place: Place | None = None

    @property
    def per_request(self) -> float:
        """Sectors or wavefronts of a request, on average."""
        return self.transactions / self.requests

    @property
    def lanes_per_request(self) -> float:
        """Lanes that take part in a request, on average."""
        return self.lanes / self.requests

    @property
    def efficiency(self) -> float:
        """Bytes requested over bytes of the sectors moved, in percent; for global memory."""
        return 100 * self.useful / (SECTOR_BYTES * self.transactions) if self.transactions else 0.0


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to the same byte, one of them a store."""

    space: str
    first: str  # load, store
    second: str
    first_place: Place
    second_place: Place
    first_thread: int  # linear number in its block
    second_thread: int
    block: int  # linear number of the second's
    between_blocks: bool

    def __str__(self) -> str:
        who = f"block {self.block}, threads {self.first_thread} and {self.second_thread}"
        if self.between_blocks:
            who = f"thread {self.first_thread} of an earlier block, thread {self.second_thread} of block {self.block}"
        return f"{self.space} {self.first} at {self.first_place} and {self.second} at {self.second_place}: {who}"

    @property
    def sites(self) -> tuple[object, ...]:
        """Races with equal sites are one race to a reader: which access came first is arbitrary."""
        return self.space, frozenset({(self.first, self.first_place), (self.second, self.second_place)})


@dataclass(frozen=True)
class Trace:
    """The findings in the sampled blocks of one launch.

    ``active_lanes`` is the mean over the basic blocks that warps executed.  Lines are in the order of the source.
    """

    blocks: int
    active_lanes: float
    lines: tuple[Requests, ...]
    races: tuple[Race, ...]

    def total(self, space: str, operation: str) -> Requests | None:
        """All lines of a kind together; None if there are none."""
        chosen = [line for line in self.lines if (line.space, line.operation) == (space, operation)]
        return _sum(chosen) if chosen else None


def spread_blocks(grid: Sequence[int], count: int) -> list[int]:
    """``count`` linear block numbers, evenly spaced from the first to the last; all where there are fewer."""
    blocks = prod(grid)
    count = min(count, blocks)
    return [0] if count == 1 else sorted({round(i * (blocks - 1) / (count - 1)) for i in range(count)})


def trace_launch(
    module: HostModule,
    launch: LaunchConfig,
    arguments: Sequence[HostBuffer | int | float],
    buffers: Iterable[HostBuffer],
    blocks: Sequence[int],
) -> Trace:
    """Runs these blocks of a launch, linear numbers with x fastest, and reports their memory accesses.

    ``buffers`` count as global memory.  The rest of the grid does not run, so no output is complete.  The module
    comes from a HostRuntime with ``build="trace"``.  Raises LaunchError as the launch does, OutOfMemory, and
    MissingTool without binutils.
    """
    extents = [Extent(buffer.pointer, buffer.nbytes) for buffer in buffers]
    begin = module.library.host_cuda_trace_begin
    begin.restype = ctypes.c_bool
    numbers = (ctypes.c_uint64 * len(blocks))(*blocks)
    if not begin((Extent * len(extents))(*extents), len(extents), numbers, len(blocks)):
        raise OutOfMemory("not enough host memory for a trace: lower --blocks or --N")
    try:
        module.launch(launch.entry, launch.grid, launch.block, launch.dynamic_shared, arguments)
        report = _Report()
        module.library.host_cuda_trace_report(ctypes.byref(report))
        sites = _rows(report.sites, report.site_count, _SITE_WIDTH)
        races = _rows(report.races, report.race_count, _RACE_WIDTH)
    finally:
        module.library.host_cuda_trace_end()
    places = places_of(module.path, {int(counter) for counter in [*sites[:, 0], *races[:, 1:3].flat]})
    active = report.issued_lanes / report.issued if report.issued else 0.0
    return Trace(report.blocks, active, tuple(_lines(sites, places)), tuple(_races(races, places)))


def _rows(numbers: Any, count: int, width: int) -> npt.NDArray[np.uint64]:
    if not count:
        return np.empty((0, width), np.uint64)
    return np.ctypeslib.as_array(numbers, (count, width)).copy()


def places_of(library: Path, counters: Iterable[int]) -> dict[int, Place]:
    """The source line of each program counter: of its inlined calls, the innermost outside the run-time's headers."""
    ordered = sorted(counters)
    words = ["addr2line", "--exe", str(library), "--inlines", "--basenames", "--addresses"]
    text = "\n".join(map(hex, ordered)) + "\n"
    try:
        answer = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    except OSError:
        raise MissingTool("addr2line is not on the PATH; install binutils, which every C++ compiler needs") from None
    frames: dict[int, list[Place]] = defaultdict(list)
    counter = 0
    for line in answer.splitlines():
        if _COUNTER.fullmatch(line):
            counter = int(line, 16)
            continue
        file, _, number = line.partition(" (discriminator ")[0].rpartition(":")
        frames[counter].append(Place(file, int(number) if number.isdecimal() else 0))
    return {counter: in_kernel(frames[counter]) for counter in ordered}


def in_kernel(frames: Sequence[Place]) -> Place:
    """The innermost of nested calls outside the run-time's headers; the innermost of all if there is none."""
    return next((place for place in frames if place.file not in OWN_FILES), frames[0])


def _lines(sites: npt.NDArray[np.uint64], places: Mapping[int, Place]) -> Iterator[Requests]:
    """The requests of each line, summed over the copies that the compiler may have made of it."""
    kinds: dict[tuple[Any, ...], list[Requests]] = defaultdict(list)
    for counter, space, operation, nbytes, requests, lanes, transactions, useful in sites.tolist():
        place = places[counter]
        key = (place.file, place.line, SPACES[space], OPERATIONS[operation], nbytes)
        kinds[key].append(
            Requests(SPACES[space], OPERATIONS[operation], requests, lanes, transactions, useful, nbytes, place)
        )
    return (_sum(kinds[key], key[-1], kinds[key][0].place) for key in sorted(kinds))


def _sum(parts: Sequence[Requests], nbytes: int = 0, place: Place | None = None) -> Requests:
    return Requests(
        parts[0].space,
        parts[0].operation,
        sum(part.requests for part in parts),
        sum(part.lanes for part in parts),
        sum(part.transactions for part in parts),
        sum(part.useful for part in parts),
        nbytes,
        place,
    )


def _races(rows: npt.NDArray[np.uint64], places: Mapping[int, Place]) -> Iterable[Race]:
    """One for each pair of lines, which race in either order and in every copy that the compiler made of them."""
    races: dict[object, Race] = {}
    for row in rows.tolist():
        space, first_counter, second_counter, first, second, first_thread, second_thread, block, between_blocks = row
        race = Race(
            SPACES[space],
            OPERATIONS[first],
            OPERATIONS[second],
            places[first_counter],
            places[second_counter],
            first_thread,
            second_thread,
            block,
            bool(between_blocks),
        )
        races.setdefault(race.sites, race)
    return races.values()
