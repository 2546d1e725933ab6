"""What the rungs that prepare filters or inputs have in common: block size, and the range of scaled filters."""

from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Array, Dims

PREPARATION_THREADS = 256  # of a block
FILTER_RANGES = 128  # parts of the filters, of each of which a block finds the range

FILTER_EXPONENT = Array("filter_exponent", lambda p: (1,))
RANGES_OF_FILTERS = Array("filter_ranges", lambda p: (FILTER_RANGES,))


def flat_block(p: Problem) -> Dims:
    """A block of a preparation kernel."""
    return PREPARATION_THREADS, 1, 1


def ranges_grid(p: Problem) -> Dims:
    """One block per part of the filters."""
    return FILTER_RANGES, 1, 1
