"""One block per square tile of outputs, and compiler hints: geometry, and constants of tile.cuh and hints.cuh."""

from collections.abc import Callable
from math import ceil

from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Constant, Dims

TILES = (6, 8, 12, 16, 18, 20, 24, 32)  # tile sizes of the studies, and some in between
TILE_OF_STUDIES = 16


def tile_block(p: Problem) -> Dims:
    """A thread per output of a tile."""
    return p["TILE"], p["TILE"], 1


def tiles(rows: int, columns: int, p: Problem) -> int:
    """Tiles that cover a plane."""
    return ceil(rows / p["TILE"]) * ceil(columns / p["TILE"])


def tiles_grid(p: Problem) -> Dims:
    """One block per tile of an output plane."""
    return p.N, p.conv.M, tiles(p.conv.E, p.conv.F, p)


def tile(default: Callable[[Problem], int] = lambda p: TILE_OF_STUDIES, choices: tuple[int, ...] = TILES) -> Constant:
    """Edge of a block's tile of outputs."""
    return Constant("TILE", "rows and columns of the outputs that one block computes", default, choices)


def restrict(default: int = 0) -> Constant:
    """Whether pointers are __restrict__, which promises the compiler that arrays do not overlap."""
    return Constant("RESTRICT", "1: pointers are __restrict__; 0: they are not", lambda p: default, choices=(0, 1))


def unroll(loop: str, default: int, choices: tuple[int, ...] = (0, 1, 2, 3, 4)) -> Constant:
    """The unroll factor of a loop."""
    fully = "; 0: fully" if 0 in choices else ""
    return Constant("UNROLL", f"unroll factor of the loop over {loop}{fully}", lambda p: default, choices)
