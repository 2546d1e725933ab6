"""Convolution as a matrix product: im2col with a tiled matmul, and the first implicit GEMM."""

from collections.abc import Callable
from math import ceil

from alexconv.kernels.common.tiles import TILE_OF_STUDIES, restrict, tile, tile_block, unroll
from alexconv.kernels.geometry import outside_block, outside_constant_memory
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import IMAGES_PER_PIECE, Array, Constant, Dims, Launch, Rung
from alexconv.shapes import Conv

UNROLL_THREADS = 256  # in a block of the im2col kernel
ROWS = (4, 8, 12, 16, 24, 32)  # filters whose accumulators a thread can keep in registers


def product_grid(rows: str, columns: str) -> Callable[[Problem], Dims]:
    """One block per tile of an image's output matrix [M][E*F], whose edges are the named constants."""
    return lambda p: (p.N * ceil(p.conv.M / p[rows]) * ceil(p.conv.E * p.conv.F / p[columns]), 1, 1)


def unroll_grid(p: Problem) -> Dims:
    """A block per image, channel and UNROLL_THREADS pixels."""
    return p.N, p.conv.C, ceil(p.conv.E * p.conv.F / UNROLL_THREADS)


def images_per_piece() -> Constant:
    """How many images of a batch the studies compute at a time."""
    return Constant(IMAGES_PER_PIECE, "images computed at a time; 0: as many as memory holds", lambda p: 0, least=0)


def tile_for_filters(conv: Conv) -> int:
    """The study's tile for each layer: 16, or 24 if that wastes fewer threads on rows beyond the last filter."""
    return TILE_OF_STUDIES if conv.M <= TILE_OF_STUDIES else 24


UNROLL_INPUT = Launch("unroll", ("x", "unrolled"), unroll_grid, lambda p: (UNROLL_THREADS, 1, 1))
UNROLLED = Array("unrolled", lambda p: (p.N, p.conv.K, p.conv.E * p.conv.F))

GEMM_RUNGS: tuple[Rung, ...] = (
    Rung(
        "unroll-matmul",
        alias="um-s",
        idea="im2col, then a matrix product with tiles in shared memory",
        family="gemm",
        parent="tiled",
        file="gemm/unroll_matmul.cu",
        launches=(
            UNROLL_INPUT,
            Launch("multiply", ("w", "unrolled", "y"), product_grid("TILE", "TILE"), tile_block),
        ),
        constants=(tile(), images_per_piece()),
        scratch=(UNROLLED,),
        refuses=outside_block(tile_block),
    ),
    Rung(
        "unroll-matmul-constant",
        alias="um-cw",
        idea="the same product, its filters from constant memory",
        family="gemm",
        parent="unroll-matmul",
        file="gemm/unroll_matmul_constant.cu",
        launches=(
            UNROLL_INPUT,
            Launch("multiply", ("unrolled", "y"), product_grid("TILE", "TILE"), tile_block),
        ),
        constants=(tile(lambda p: 32), images_per_piece()),
        scratch=(UNROLLED,),
        refuses=outside_constant_memory(outside_block(tile_block)),
        constant_symbol="filters",
    ),
    Rung(
        "unroll-register-matmul",
        alias="um-r",
        idea="register tiling: a column of accumulators per thread, filters in shared memory",
        family="gemm",
        parent="unroll-matmul",
        file="gemm/unroll_register_matmul.cu",
        launches=(
            UNROLL_INPUT,
            Launch(
                "multiply",
                ("w", "unrolled", "y"),
                product_grid("ROWS", "COLUMNS"),
                lambda p: (p["COLUMNS"], 1, 1),
            ),
        ),
        constants=(
            Constant(
                "ROWS",
                "filters whose accumulators a thread keeps in registers",
                lambda p: next((rows for rows in ROWS if rows >= p.conv.M), ROWS[-1]),
                choices=ROWS,
            ),
            Constant("COLUMNS", "pixels, and threads, of a block", lambda p: 128, choices=(32, 64, 128, 256)),
            Constant("DEPTH", "taps in shared memory at a time", lambda p: 16, choices=(4, 8, 16, 32)),
            images_per_piece(),
        ),
        scratch=(UNROLLED,),
    ),
    Rung(
        "fused-unroll-matmul",
        alias="um-f",
        idea="implicit GEMM: the product's tiles filled from the input itself, no im2col matrix",
        family="gemm",
        parent="unroll-matmul",
        file="gemm/fused_unroll_matmul.cu",
        launches=(Launch("fused_unroll_matmul", ("x", "w", "y"), product_grid("TILE", "TILE"), tile_block),),
        constants=(
            tile(lambda p: tile_for_filters(p.conv)),
            restrict(1),
            unroll("the products of a tile", 0),
            images_per_piece(),
        ),
        refuses=outside_block(tile_block),
    ),
)
