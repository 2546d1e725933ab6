"""What rungs have in common that prepare filters or inputs: a block's threads, and the range of scaled filters."""

from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Array, Dims

PREPARATION_THREADS = 256  # of a block; as in halves.cuh and range.cuh
FILTER_RANGES = 128  # shares of the filters, of each of which a block finds the range; as in range.cuh

FILTER_EXPONENT = Array("filter_exponent", lambda p: (1,))
RANGES_OF_FILTERS = Array("filter_ranges", lambda p: (FILTER_RANGES,))


def flat_block(p: Problem) -> Dims:
    """A block of the kernels that prepare."""
    return PREPARATION_THREADS, 1, 1


def ranges_grid(p: Problem) -> Dims:
    """One block per share of the filters."""
    return FILTER_RANGES, 1, 1
