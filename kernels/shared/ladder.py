"""Input tiles in shared memory: the three strategies of Kirk and Hwu's textbook."""

from alexconv.kernels.common.tiles import TILE_OF_STUDIES, TILES, restrict, tile, tile_block, tiles_grid, unroll
from alexconv.kernels.geometry import FLOAT, PORTABLE_SHARED, outside_block, outside_constant_memory
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import MAX_BLOCK, Constant, Dims, Launch, Rung
from alexconv.shapes import Conv

INPUT_TILES = (1, 2, 3, 4, *TILES)  # smaller ones too, for a block with a thread per input of a tile


def input_rows(conv: Conv, tile: int) -> int:
    """Input rows that a tile of outputs needs."""
    return (tile - 1) * conv.U + conv.R


def input_columns(conv: Conv, tile: int) -> int:
    """Input columns that a tile of outputs needs."""
    return (tile - 1) * conv.U + conv.S


def input_block(p: Problem) -> Dims:
    """A thread per input that a tile of outputs needs."""
    return input_columns(p.conv, p["TILE"]), input_rows(p.conv, p["TILE"]), 1


def input_bytes(conv: Conv, tile: int) -> int:
    """Shared memory for one channel of a tile's input."""
    return input_rows(conv, tile) * input_columns(conv, tile) * FLOAT


def filter_and_input_bytes(p: Problem) -> int:
    """Shared memory for one channel of a filter and of a tile's input."""
    return p.conv.R * p.conv.S * FLOAT + input_bytes(p.conv, p["TILE"])


def inputs_bytes(p: Problem) -> int:
    """Shared memory for a tile's input in all channels that are loaded together."""
    return p["CHANNELS_SHARED"] * input_bytes(p.conv, p["TILE"])


def core_bytes(p: Problem) -> int:
    """Shared memory for the core of a tile's input."""
    core = p["TILE"] * p.conv.U
    return core * core * FLOAT


def largest_input_tile(conv: Conv) -> int:
    """The studies' tile, or the largest below it whose input fits a block."""
    fitting = (
        tile
        for tile in reversed(INPUT_TILES)
        if tile <= TILE_OF_STUDIES and input_rows(conv, tile) * input_columns(conv, tile) <= MAX_BLOCK
    )
    return next(fitting, INPUT_TILES[0])


def channels_that_fit(conv: Conv) -> int:
    """All channels, as in the study, or as many as fit the shared memory of every GPU."""
    return max(1, min(conv.C, PORTABLE_SHARED // input_bytes(conv, largest_input_tile(conv))))


SHARED_RUNGS: tuple[Rung, ...] = (
    Rung(
        "shared-output-tile",
        alias="si-1",
        idea="input tile and filter in shared memory; block = output tile, loads in several steps",
        family="shared",
        parent="tiled",
        file="shared/shared_output_tile.cu",
        launches=(Launch("shared_output_tile", ("x", "w", "y"), tiles_grid, tile_block, filter_and_input_bytes),),
        constants=(tile(),),
        refuses=outside_block(tile_block, filter_and_input_bytes),
    ),
    Rung(
        "shared-input-tile",
        alias="si-2",
        idea="input tile in shared memory; block = input tile, one load per thread, some compute nothing",
        family="shared",
        parent="shared-output-tile",
        file="shared/shared_input_tile.cu",
        launches=(Launch("shared_input_tile", ("x", "w", "y"), tiles_grid, input_block, inputs_bytes),),
        constants=(
            tile(lambda p: largest_input_tile(p.conv), INPUT_TILES),
            Constant(
                "CHANNELS_SHARED", "input channels in shared memory together", lambda p: channels_that_fit(p.conv)
            ),
        ),
        refuses=outside_block(input_block, inputs_bytes),
    ),
    Rung(
        "shared-core-tile",
        alias="si-3",
        idea="core of the input tile in shared memory, halo from the caches",
        family="shared",
        parent="shared-output-tile",
        file="shared/shared_core_tile.cu",
        launches=(Launch("shared_core_tile", ("x", "w", "y"), tiles_grid, tile_block, core_bytes),),
        constants=(tile(), restrict(), unroll("input channels", 1, choices=(1, 2, 3, 4))),
        refuses=outside_block(tile_block, core_bytes),
    ),
    Rung(
        "shared-core-tile-constant",
        alias="si-3-cw",
        idea="core of the input tile in shared memory, filters in constant memory",
        family="shared",
        parent="shared-core-tile",
        file="shared/shared_core_tile_constant.cu",
        launches=(Launch("shared_core_tile_constant", ("x", "y"), tiles_grid, tile_block, core_bytes),),
        constants=(tile(lambda p: 8), restrict(1), unroll("input channels", 2, choices=(1, 2, 3, 4))),
        refuses=outside_constant_memory(outside_block(tile_block, core_bytes)),
        constant_symbol="filters",
    ),
)
