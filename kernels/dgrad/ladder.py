"""The dgrad rungs: gradients of the input."""

from math import ceil, prod

from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Dims, Launch, Rung
from alexconv.shapes import DGRAD, FEATURES

THREADS = 256  # of a block whose threads have a value each
ANY_LAYER = tuple(name for name in FEATURES if name not in ("bias", "ReLU"))


def values_grid(p: Problem) -> Dims:
    """A thread for each value of the batch's dx."""
    return ceil(prod(p.conv.x_shape(p.N)) / THREADS), 1, 1


def values_block(p: Problem) -> Dims:
    """THREADS threads."""
    return THREADS, 1, 1


DGRAD_RUNGS: tuple[Rung, ...] = (
    Rung(
        "dgrad-direct",
        alias="dg-d",
        idea="a thread per value, gathered from the outputs that it takes part in",
        family="dgrad",
        parent=None,
        file="dgrad/dgrad_direct.cu",
        launches=(Launch("dgrad_direct", ("dy", "w", "dx", BATCH), values_grid, values_block),),
        takes=ANY_LAYER,
        direction=DGRAD,
    ),
)
