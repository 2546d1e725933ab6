"""Bytes between L2 and device memory: which parts of the arrays blocks touch, and which of them L2 still holds.

The bytes that one block touches are known from its execution, and how they move from block to block along each axis
of the grid; L2 is a set of chunks with random replacement.  Each half of L2 keeps its own copy of what both halves read
(data file), which leaves half of its size for distinct data.  Data that is only written is evicted first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from random import Random

import numpy as np
import numpy.typing as npt

from alexconv.kernels.rung import Dims
from alexconv.predict.gpu import SECTOR, Gpu
from alexconv.predict.native import Outcome

BLOCKS = 60_000  # that are simulated, at most
LINE = 128  # bytes
FITS = 0.8  # of L2: what is smaller stays in it from one run to the next


@dataclass(frozen=True)
class Traffic:
    """Bytes that a launch reads from device memory, and writes to it."""

    read: float
    written: float


@dataclass(frozen=True)
class _Part:
    """The part of an array that a block touches: where its runs of bytes begin and end, in order."""

    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @property
    def size(self) -> int:
        """Bytes."""
        return int((self.ends - self.begins).sum())

    @property
    def lines(self) -> int:
        """Lines of L2 that hold them."""
        return int(((self.ends - 1) // LINE - self.begins // LINE + 1).sum())

    def same(self, other: "_Part") -> bool:
        """Whether both are the same bytes."""
        return np.array_equal(self.begins, other.begins) and np.array_equal(self.ends, other.ends)

    def new_share(self, other: "_Part") -> float:
        """The share of these bytes that the other part lacks."""
        places = np.stack([other.begins, other.ends], axis=1).ravel()
        before = np.stack([np.zeros_like(other.begins), other.ends - other.begins], axis=1).ravel().cumsum()
        common = np.interp(self.ends, places, before) - np.interp(self.begins, places, before)
        return 1 - float(common.sum()) / self.size


def of_launch(grid: Dims, one: Outcome, run: Callable[[int], Outcome], nbytes: Mapping[int, int], gpu: Gpu) -> Traffic:
    """The traffic of a launch that finds in L2 what the previous one left there.

    ``one`` is the outcome of a block in the middle of the grid, ``run`` gives another block's; ``nbytes`` are the bytes
    of each array.
    """
    room = gpu["device.l2_bytes"] / gpu["device.l2_copies"]
    touched = {array for array in _parts(one) if array in nbytes}
    if sum(nbytes[array] for array in touched) < FITS * room:
        return Traffic(0, 0)
    parts = _parts(one)
    axes, shares = _movement(grid, parts, run)
    sizes = {array: max(SECTOR, round(part.size * shares[array])) for array, part in parts.items()}
    distinct = {array: sizes[array] * prod(grid[axis] for axis in axes[array]) for array in parts}
    for array, size in distinct.items():
        if size > nbytes.get(array, size):  # parts overlap more than neighbours show
            sizes[array] = max(1, sizes[array] * nbytes[array] // size)
            distinct[array] = nbytes[array]
    if sum(distinct.values()) < FITS * room:
        return Traffic(0, 0)
    written = sum(size for array, size in distinct.items() if array in one.written)
    read = {array: size for array, size in sizes.items() if array not in one.written}
    missed = _missed(grid, read, axes, room) if sum(distinct[array] for array in read) > room else 0.0
    return Traffic(missed, written)


def lines_added_to(grid: Dims, one: Outcome, run: Callable[[int], Outcome], running: int) -> int:
    """Lines of L2 to which ``running`` blocks, neighbours in the order of the grid, add or store."""
    parts = {array: part for array, part in _parts(one).items() if array in one.written}
    axes, _ = _movement(grid, parts, run)
    total = prod(grid)
    first = min(total // 2, total - running)
    lines = 0
    for array, part in parts.items():
        places = {
            tuple(place for axis, place in enumerate(_place(block, grid)) if axis in axes[array])
            for block in range(first, first + running)
        }
        lines += len(places) * part.lines
    return lines


def shared_with(one: Outcome, other: Outcome) -> dict[int, float]:
    """The share of the bytes of each array that one block touches and another one does too."""
    parts, others = _parts(one), _parts(other)
    return {array: 1 - part.new_share(others[array]) for array, part in parts.items() if array in others}


def _place(block: int, grid: Dims) -> tuple[int, int, int]:
    return block % grid[0], block // grid[0] % grid[1], block // grid[0] // grid[1]


def _movement(
    grid: Dims, parts: Mapping[int, _Part], run: Callable[[int], Outcome]
) -> tuple[dict[int, list[int]], dict[int, float]]:
    """The axes of the grid along which each array's part moves, and its share that is new to a neighbour."""
    axes: dict[int, list[int]] = {array: [] for array in parts}
    shares = dict.fromkeys(parts, 1.0)
    place = [size // 2 for size in grid]
    for axis, size in enumerate(grid):
        if size < 2:
            continue
        neighbour = list(place)
        neighbour[axis] += 1 if place[axis] + 1 < size else -1
        others = _parts(run(neighbour[0] + grid[0] * (neighbour[1] + grid[1] * neighbour[2])))
        for array, part in parts.items():
            other = others.get(array)
            if other and not part.same(other):
                axes[array].append(axis)
                shares[array] *= part.new_share(other)  # neighbours overlap: only what is new counts
    return axes, shares


def _parts(outcome: Outcome) -> dict[int, _Part]:
    arrays, firsts, sizes = outcome.pieces.T
    return {
        int(array) - 1: _Part(firsts[arrays == array], (firsts + sizes)[arrays == array]) for array in np.unique(arrays)
    }


def _missed(grid: Dims, sizes: dict[int, int], axes: dict[int, list[int]], room: float) -> float:
    """Bytes read from device memory, in the second of two runs.

    Of a large grid the first BLOCKS blocks run once, and the second half of them stands for all.
    """
    total = prod(grid)
    followed = min(total, BLOCKS)
    runs, counted_from = (2, 0) if followed == total else (1, followed // 2)
    random = Random(1)
    held: dict[tuple[int, ...], int] = {}
    order: list[tuple[int, ...]] = []
    used, missed = 0, 0.0
    for number in range(runs):
        counting_run = number == runs - 1
        for block in range(followed):
            place = _place(block, grid)
            for array, size in sizes.items():
                key = (array, *(place[axis] for axis in axes[array]))
                if key in held:
                    continue
                if counting_run and block >= counted_from:
                    missed += size
                held[key] = len(order)
                order.append(key)
                used += size
                while used > room and order:
                    used -= sizes[_remove(random.randrange(len(order)), order, held)[0]]
    return missed * total / (followed - counted_from)


def _remove(at: int, order: list[tuple[int, ...]], held: dict[tuple[int, ...], int]) -> tuple[int, ...]:
    """Evicts a chunk; the last one takes its place."""
    gone, last = order[at], order.pop()
    if gone != last:
        order[at] = last
        held[last] = at
    del held[gone]
    return gone
