"""Direct convolution in square tiles of outputs: the baseline of the LeNet-style studies, and its descendants."""

from math import ceil

from alexconv.kernels.common.tiles import restrict, tile, tile_block, tiles, tiles_grid, unroll
from alexconv.kernels.geometry import HALF, outside_block, outside_constant_memory
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Dims, Launch, Rung


def pairs_grid(p: Problem) -> Dims:
    """One block per tile of two output planes."""
    return p.N, ceil(p.conv.M / 2), tiles(p.conv.E, p.conv.F, p)


def channels_grid(p: Problem) -> Dims:
    """One block per input channel of each tile of an output plane."""
    return p.N * p.conv.C, p.conv.M, tiles(p.conv.E, p.conv.F, p)


def input_tiles_grid(p: Problem) -> Dims:
    """One block per filter and tile of the input plane."""
    return p.N, p.conv.M, tiles(p.conv.H, p.conv.W, p)


def filter_pair_bytes(p: Problem) -> int:
    """Shared memory for two filters in half precision."""
    return 2 * p.conv.K * HALF


TAPS = unroll("the taps of a filter row", 0)

TILES_RUNGS: tuple[Rung, ...] = (
    Rung(
        "tiled",
        alias="tile",
        idea="blocks of 16 x 16 outputs, as many as a plane needs",
        family="tiles",
        parent="direct-register",
        file="tiles/tiled.cu",
        launches=(Launch("tiled", ("x", "w", "y"), tiles_grid, tile_block),),
        constants=(tile(), restrict(), TAPS),
        refuses=outside_block(tile_block),
    ),
    Rung(
        "tiled-constant",
        alias="tile-cw",
        idea="the filters in constant memory",
        family="tiles",
        parent="tiled",
        file="tiles/tiled_constant.cu",
        launches=(Launch("tiled_constant", ("x", "y"), tiles_grid, tile_block),),
        constants=(tile(), restrict(), TAPS),
        refuses=outside_constant_memory(outside_block(tile_block)),
        constant_symbol="filters",
    ),
    Rung(
        "tiled-channels-atomic",
        alias="tile-ca",
        idea="split-K with atomics: a block per input channel",
        family="tiles",
        parent="tiled",
        file="tiles/tiled_channels_atomic.cu",
        launches=(
            Launch("clear", ("y",), tiles_grid, tile_block),
            Launch("tiled_channels_atomic", ("x", "w", "y"), channels_grid, tile_block),
        ),
        constants=(tile(),),
        refuses=outside_block(tile_block),
        order_varies=True,
        atomic_additions=lambda p: p.conv.C,
    ),
    Rung(
        "tiled-scatter-atomic",
        alias="tile-sa",
        idea="scatter: a thread per input, which adds its products to the outputs with atomics",
        family="tiles",
        parent="tiled-channels-atomic",
        file="tiles/tiled_scatter_atomic.cu",
        launches=(
            Launch("clear", ("y",), tiles_grid, tile_block),
            Launch("tiled_scatter_atomic", ("x", "w", "y"), input_tiles_grid, tile_block),
        ),
        constants=(tile(),),
        refuses=outside_block(tile_block),
        order_varies=True,
        atomic_additions=lambda p: p.conv.K,
    ),
    Rung(
        "tiled-half",
        alias="tile-h",
        idea="the tiled convolution in half precision, one fused multiply-add per product",
        family="tiles",
        parent="tiled",
        file="tiles/tiled_half.cu",
        launches=(Launch("tiled_half", ("x", "w", "y"), tiles_grid, tile_block),),
        constants=(tile(), restrict(), TAPS),
        precision="half",
        refuses=outside_block(tile_block),
    ),
    Rung(
        "tiled-half2",
        alias="tile-h2",
        idea="half2: two filters at once, in pairs from shared memory",
        family="tiles",
        parent="tiled-half",
        file="tiles/tiled_half2.cu",
        launches=(Launch("tiled_half2", ("x", "w", "y"), pairs_grid, tile_block, filter_pair_bytes),),
        constants=(tile(), restrict(), TAPS),
        precision="half",
        refuses=outside_block(tile_block, filter_pair_bytes),
    ),
)
