"""The rungs of the LeNet-style studies (Illinois ECE 408, 2018 to 2024), and what those studies call them.

Three families: *tiled* blocks of one size that read global or constant memory, *shared* memory for the input in the
three strategies of Kirk and Hwu's textbook, and *gemm*, the layer as a product of matrices.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

from alexconv.kernels.geometry import (
    FLOAT,
    HALF,
    PORTABLE_SHARED,
    outside_block,
    outside_constant_memory,
)
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import IMAGES_PER_PIECE, MAX_BLOCK, Array, Constant, Dims, Launch, Rung
from alexconv.shapes import Conv

TILES = (6, 8, 12, 16, 18, 20, 24, 32)  # tile sizes that the studies tried, or that lie between
TILE_OF_STUDIES = 16
INPUT_TILES = (1, 2, 3, 4, *TILES)  # smaller ones too, where the block must hold the input of a tile
UNROLL_THREADS = 256  # in a block of the kernel that unrolls the input
ROWS = (4, 8, 12, 16, 24, 32)  # filters whose sums a thread can keep in registers


# The tiled family, and shared memory


def tile_block(p: Problem) -> Dims:
    """A thread per output of a tile."""
    return p["TILE"], p["TILE"], 1


def tiles(rows: int, columns: int, p: Problem) -> int:
    """Tiles that cover a plane."""
    return ceil(rows / p["TILE"]) * ceil(columns / p["TILE"])


def grid_tiles(p: Problem) -> Dims:
    """One block per tile of an output plane."""
    return p.N, p.conv.M, tiles(p.conv.E, p.conv.F, p)


def grid_tile_pairs(p: Problem) -> Dims:
    """One block per tile of two output planes."""
    return p.N, ceil(p.conv.M / 2), tiles(p.conv.E, p.conv.F, p)


def grid_tile_channels(p: Problem) -> Dims:
    """One block per input channel of each tile of an output plane."""
    return p.N * p.conv.C, p.conv.M, tiles(p.conv.E, p.conv.F, p)


def grid_input_tiles(p: Problem) -> Dims:
    """One block per filter and tile of the input plane."""
    return p.N, p.conv.M, tiles(p.conv.H, p.conv.W, p)


def filter_pair_bytes(p: Problem) -> int:
    """Shared memory for two filters in half precision."""
    return 2 * p.conv.K * HALF


def input_rows(conv: Conv, tile: int) -> int:
    """Input rows that a tile of outputs needs; INPUT_ROWS in ``input_tile.cuh``."""
    return (tile - 1) * conv.U + conv.R


def input_columns(conv: Conv, tile: int) -> int:
    """Input columns that a tile of outputs needs; INPUT_COLUMNS in ``input_tile.cuh``."""
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
    """Shared memory for the core of a tile's input; CORE in ``core_tile.cuh``."""
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
    """All channels, as the study loads them, or as many as every GPU has shared memory for."""
    return max(1, min(conv.C, PORTABLE_SHARED // input_bytes(conv, largest_input_tile(conv))))


def tile(default: Callable[[Problem], int] = lambda p: TILE_OF_STUDIES, choices: tuple[int, ...] = TILES) -> Constant:
    """Edge of a block's tile of outputs."""
    return Constant("TILE", "rows and columns of the outputs that one block computes", default, choices)


def restrict(default: int = 0) -> Constant:
    """Whether the compiler is promised that arrays do not overlap."""
    return Constant("RESTRICT", "1: pointers are __restrict__; 0: they are not", lambda p: default, choices=(0, 1))


def unroll(loop: str, default: int, choices: tuple[int, ...] = (0, 1, 2, 3, 4)) -> Constant:
    """How far a loop is unrolled."""
    whole = "; 0: all" if 0 in choices else ""
    return Constant("UNROLL", f"{loop} in one pass of their loop{whole}", lambda p: default, choices)


TAPS = unroll("taps of a filter row", 0)
CHANNELS = "input channels"

TILED_RUNGS = (
    Rung(
        "tiled",
        alias="tile",
        idea="blocks of 16 x 16 outputs, as many as a plane needs",
        family="tiles",
        parent="direct-register",
        file="tiles/tiled.cu",
        launches=(Launch("tiled", ("x", "w", "y"), grid_tiles, tile_block),),
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
        launches=(Launch("tiled_constant", ("x", "y"), grid_tiles, tile_block),),
        constants=(tile(), restrict(), TAPS),
        refuses=outside_constant_memory(outside_block(tile_block)),
        constant_symbol="filters",
    ),
    Rung(
        "tiled-channels-atomic",
        alias="tile-ca",
        idea="a block per input channel; sums added in the output with atomics",
        family="tiles",
        parent="tiled",
        file="tiles/tiled_channels_atomic.cu",
        launches=(
            Launch("clear", ("y",), grid_tiles, tile_block),
            Launch("tiled_channels_atomic", ("x", "w", "y"), grid_tile_channels, tile_block),
        ),
        constants=(tile(),),
        refuses=outside_block(tile_block),
        order_varies=True,
    ),
    Rung(
        "tiled-scatter-atomic",
        alias="tile-sa",
        idea="a thread per input, which adds its products to the outputs with atomics",
        family="tiles",
        parent="tiled-channels-atomic",
        file="tiles/tiled_scatter_atomic.cu",
        launches=(
            Launch("clear", ("y",), grid_tiles, tile_block),
            Launch("tiled_scatter_atomic", ("x", "w", "y"), grid_input_tiles, tile_block),
        ),
        constants=(tile(),),
        refuses=outside_block(tile_block),
        order_varies=True,
    ),
    Rung(
        "tiled-half",
        alias="tile-h",
        idea="the tiled convolution in half precision, one fused multiply-add per product",
        family="tiles",
        parent="tiled",
        file="tiles/tiled_half.cu",
        launches=(Launch("tiled_half", ("x", "w", "y"), grid_tiles, tile_block),),
        constants=(tile(), restrict(), TAPS),
        precision="half",
        dtype="float16",
        refuses=outside_block(tile_block),
    ),
    Rung(
        "tiled-half2",
        alias="tile-h2",
        idea="two filters at once, in pairs of halves from shared memory",
        family="tiles",
        parent="tiled-half",
        file="tiles/tiled_half2.cu",
        launches=(Launch("tiled_half2", ("x", "w", "y"), grid_tile_pairs, tile_block, filter_pair_bytes),),
        constants=(tile(), restrict(), TAPS),
        precision="half",
        dtype="float16",
        refuses=outside_block(tile_block, filter_pair_bytes),
    ),
)

SHARED_RUNGS = (
    Rung(
        "shared-output-tile",
        alias="si-1",
        idea="input tile and filter in shared memory; block = output tile, loads in several steps",
        family="shared",
        parent="tiled",
        file="shared/shared_output_tile.cu",
        launches=(Launch("shared_output_tile", ("x", "w", "y"), grid_tiles, tile_block, filter_and_input_bytes),),
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
        launches=(Launch("shared_input_tile", ("x", "w", "y"), grid_tiles, input_block, inputs_bytes),),
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
        launches=(Launch("shared_core_tile", ("x", "w", "y"), grid_tiles, tile_block, core_bytes),),
        constants=(tile(), restrict(), unroll(CHANNELS, 1, choices=(1, 2, 3, 4))),
        refuses=outside_block(tile_block, core_bytes),
    ),
    Rung(
        "shared-core-tile-constant",
        alias="si-3-cw",
        idea="core of the input tile in shared memory, filters in constant memory",
        family="shared",
        parent="shared-core-tile",
        file="shared/shared_core_tile_constant.cu",
        launches=(Launch("shared_core_tile_constant", ("x", "y"), grid_tiles, tile_block, core_bytes),),
        constants=(tile(lambda p: 8), restrict(1), unroll(CHANNELS, 2, choices=(1, 2, 3, 4))),
        refuses=outside_constant_memory(outside_block(tile_block, core_bytes)),
        constant_symbol="filters",
    ),
)


# The gemm family


def product_grid(rows: str, columns: str) -> Callable[[Problem], Dims]:
    """One block per tile of an image's output matrix [M][E*F], whose edges are the named constants."""
    return lambda p: (
        p.N * ceil(p.conv.M / p[rows]) * ceil(p.conv.E * p.conv.F / p[columns]),
        1,
        1,
    )


def unroll_grid(p: Problem) -> Dims:
    """A block per image, channel and UNROLL_THREADS pixels."""
    return p.N, p.conv.C, ceil(p.conv.E * p.conv.F / UNROLL_THREADS)


def images_per_piece() -> Constant:
    """How the studies cut a batch."""
    return Constant(IMAGES_PER_PIECE, "images computed at a time; 0: as many as memory holds", lambda p: 0, least=0)


def tile_for_filters(conv: Conv) -> int:
    """The study's tile for each layer: 16, or 24 where that wastes fewer threads on rows beyond the last filter."""
    return TILE_OF_STUDIES if conv.M <= TILE_OF_STUDIES else 24


UNROLL_INPUT = Launch("unroll", ("x", "unrolled"), unroll_grid, lambda p: (UNROLL_THREADS, 1, 1))
UNROLLED = Array("unrolled", lambda p: (p.N, p.conv.K, p.conv.E * p.conv.F))

GEMM_RUNGS = (
    Rung(
        "unroll-matmul",
        alias="um-s",
        idea="input unrolled into a matrix, then a product with tiles in shared memory",
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
        idea="a column of sums in each thread's registers, filters in shared memory",
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
                "filters whose sums a thread keeps in registers",
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
        idea="the product's tiles filled from the input itself: no unrolled matrix",
        family="gemm",
        parent="unroll-matmul",
        file="gemm/fused_unroll_matmul.cu",
        launches=(Launch("fused_unroll_matmul", ("x", "w", "y"), product_grid("TILE", "TILE"), tile_block),),
        constants=(
            tile(lambda p: tile_for_filters(p.conv)),
            restrict(1),
            unroll("products of a tile", 0),
            images_per_piece(),
        ),
        refuses=outside_block(tile_block),
    ),
)

LENET_RUNGS: tuple[Rung, ...] = TILED_RUNGS + SHARED_RUNGS + GEMM_RUNGS


@dataclass(frozen=True)
class Variant:
    """What a study measured, in this project's words: a rung, a transfer, and constants that matter to it.

    A constant's value is a number, or one for each layer.
    """

    rung: str
    transfer: str = "pageable"
    constants: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)


AS_WRITTEN = {"RESTRICT": 0, "UNROLL": 1}  # no hints: the source as the studies first had it


def tiled(transfer: str = "pageable", **more: int | tuple[int, ...]) -> Variant:
    """The studies' baseline."""
    return Variant("tiled", transfer, {**AS_WRITTEN, **more})


def fused(tile: int | tuple[int, ...], **more: int) -> Variant:
    """The fused product before its tuning with restrict and unrolling."""
    return Variant("fused-unroll-matmul", constants={"TILE": tile, **AS_WRITTEN, **more})


STUDY_WORKLOADS = {
    "ece408-2018": "lenet-72-k7",
    "ece408-2019": "lenet-70-k5",
    "ece408-2023": "lenet-86-k7",
    "ece408-2024": "lenet-86-k7",
}

# By study and the study's own name for the variant.  Its serial CPU run is no rung: that is the CPU reference's.
PUBLISHED: dict[tuple[str, str], Variant] = {
    ("ece408-2018", "tiled-grid-baseline"): tiled(),
    ("ece408-2018", "unroll-matmul-per-image"): Variant("unroll-matmul", constants={"TILE": 32, IMAGES_PER_PIECE: 1}),
    ("ece408-2018", "unroll-matmul-constant-weights"): Variant(
        "unroll-matmul-constant", constants={"TILE": 32, IMAGES_PER_PIECE: 1}
    ),
    ("ece408-2018", "fused-unroll-matmul-per-image"): fused(32, IMAGES_PER_PIECE=1),
    ("ece408-2018", "fused-unroll-matmul-batch-grid-24x24"): fused(24),
    ("ece408-2018", "fused-unroll-matmul-per-layer-tiles-16-24"): fused((16, 24)),
    ("ece408-2018", "fused-per-layer-tiles-restrict-unroll"): Variant(
        "fused-unroll-matmul", constants={"TILE": (16, 24), "RESTRICT": 1, "UNROLL": 0}
    ),
    ("ece408-2018", "shared-memory-conv"): Variant("shared-output-tile"),
    ("ece408-2019", "tiled-grid-baseline"): tiled(),
    ("ece408-2019", "shared-conv-strategy3-constant-restrict-unroll"): Variant("shared-core-tile-constant"),
    ("ece408-2019", "unroll-matmul-batched-chunked"): Variant("unroll-matmul", constants={IMAGES_PER_PIECE: 4000}),
    ("ece408-2019", "unroll-register-tiled-matmul"): Variant(
        "unroll-register-matmul", constants={IMAGES_PER_PIECE: 4000}
    ),
    ("ece408-2019", "fused-unroll-matmul"): fused(16),
    ("ece408-2019", "fused-swept-tiles-16-24"): fused((16, 24)),
    ("ece408-2019", "sweep baseline/baseline tiles 16,16"): tiled(TILE=16),
    ("ece408-2019", "sweep baseline/baseline tiles 16,32"): tiled(TILE=(16, 32)),
    ("ece408-2019", "sweep fusion/fusion tiles 16,32"): fused((16, 32)),
    ("ece408-2019", "sweep fusion/fusion tiles 6,6"): fused(6),
    ("ece408-2019", "sweep fusion/fusion tiles 12,12"): fused(12),
    ("ece408-2019", "sweep fusion/fusion tiles 18,18"): fused(18),
    ("ece408-2019", "sweep fusion/fusion tiles 24,24"): fused(24),
    ("ece408-2019", "sweep fusion/fusion tiles 32,32"): fused(32),
    ("ece408-2019", "sweep fusion/fusion tiles 16,24"): fused((16, 24)),
    ("ece408-2023", "baseline"): tiled(),
    ("ece408-2023", "streams-overlap"): tiled("streamed:3"),
    ("ece408-2023", "fp16"): Variant("tiled-half", constants={"RESTRICT": 1, "UNROLL": 1}),
    ("ece408-2023", "restrict-unroll-2"): tiled(RESTRICT=1, UNROLL=2),
    ("ece408-2023", "restrict-unroll-3"): tiled(RESTRICT=1, UNROLL=3),
    ("ece408-2023", "restrict-unroll-4"): tiled(RESTRICT=1, UNROLL=4),
    ("ece408-2024", "baseline"): tiled(),
    ("ece408-2024", "streams-overlap"): tiled("streamed:10"),
    ("ece408-2024", "shared-memory-conv-strategy2"): Variant("shared-input-tile"),
    ("ece408-2024", "unroll-matmul"): Variant("unroll-matmul", constants={IMAGES_PER_PIECE: 5000}),
    ("ece408-2024", "fused-unroll-matmul"): fused(16),
    ("ece408-2024", "constant-weights"): Variant("tiled-constant", constants=AS_WRITTEN),
    ("ece408-2024", "restrict-unroll"): tiled(RESTRICT=1, UNROLL=0),
    ("ece408-2024", "atomics-channel-reduction"): Variant("tiled-scatter-atomic"),
    ("ece408-2024", "fp16"): Variant("tiled-half", constants=AS_WRITTEN),
}
