"""Launches that prepared rungs share: block size, scaled filters, and the fp32 fallback for the full range."""

from collections.abc import Callable
from math import ceil

from alexconv.kernels.geometry import FLOAT
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Dims, Launch

PREPARATION_THREADS = 256  # of a block
FULL_TILE, FULL_DEPTH = 64, 16  # filters and pixels of a block that computes in full range, and taps at a time
FULL_PITCH = FULL_TILE + 4  # of a tap's filters
BLOCKS_IN_FULL_RANGE = 4  # for each multiprocessor, at most

FILTER_EXPONENTS = Array("filter_exponents", lambda p: (p.conv.M,))
FULL_FILTERS = Array("full_filters", lambda p: (p.conv.M, p.conv.K))
SCALED_FILTERS = (FILTER_EXPONENTS, FULL_FILTERS)  # prepared arrays of rungs whose filters are scaled


def flat_block(p: Problem) -> Dims:
    """A block of a preparation kernel."""
    return PREPARATION_THREADS, 1, 1


# Finds the power of two of each filter: a block per filter.
FIND_FILTER_EXPONENTS = Launch(
    "find_filter_exponents", ("w", "filter_exponents", "full_filters"), lambda p: (p.conv.M, 1, 1), flat_block
)


def full_range_grid(p: Problem) -> Dims:
    """Blocks for a grid-stride loop over the tiles of all images."""
    tiles = p.N * ceil(p.conv.M / FULL_TILE) * ceil(p.conv.E * p.conv.F / FULL_TILE)
    return min(tiles, BLOCKS_IN_FULL_RANGE * p.device.multiprocessors), 1, 1


def full_range(grid: Callable[[Problem], Dims], *args: str) -> Launch:
    """The launch that recomputes in fp32 what fp16 operands cannot represent."""

    def shared_bytes(p: Problem) -> int:
        return FULL_DEPTH * (FULL_PITCH + FULL_TILE) * FLOAT

    return Launch("compute_full_range", args, grid, flat_block, shared_bytes, pdl=True, stores=True)


FULL_RANGE = full_range(full_range_grid, "x", "full_filters", "exponents", "filter_exponents", "y", BATCH)
