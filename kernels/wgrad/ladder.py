"""The wgrad rungs: gradients of the filters."""

from math import ceil, prod

from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Dims, Launch, Rung
from alexconv.shapes import FEATURES, WGRAD

THREADS = 256  # of a block whose threads have a weight each
ANY_LAYER = tuple(name for name in FEATURES if name not in ("bias", "ReLU"))


def weights_grid(p: Problem) -> Dims:
    """A thread for each weight."""
    return ceil(prod(p.conv.w_shape()) / THREADS), 1, 1


def weights_block(p: Problem) -> Dims:
    """THREADS threads."""
    return THREADS, 1, 1


WGRAD_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgrad-direct",
        alias="wg-d",
        idea="a thread per weight, summed image by image",
        family="wgrad",
        parent=None,
        file="wgrad/wgrad_direct.cu",
        launches=(Launch("wgrad_direct", ("x", "dy", "dw", BATCH), weights_grid, weights_block),),
        takes=ANY_LAYER,
        direction=WGRAD,
    ),
)
