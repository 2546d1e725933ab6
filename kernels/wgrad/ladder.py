"""The wgrad rungs: gradients of the filters."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, prod

from alexconv.kernels.common.tiles import tile, tile_block
from alexconv.kernels.geometry import AMPERE, FLOAT, PORTABLE_SHARED, beyond_shared, outside_block, round_up
from alexconv.kernels.igemm.ladder import BLOCKS_PER_SM, block, least_padded, tile_columns, tile_rows
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Constant, Dims, Launch, Rung
from alexconv.kernels.times import multiplying
from alexconv.shapes import CONVOLUTION_FEATURES, WGRAD

THREADS = 256  # of a block whose threads have a weight each
UNGROUPED = tuple(name for name in CONVOLUTION_FEATURES if name != "groups")


def weights(p: Problem) -> int:
    """Values of dw."""
    return prod(p.conv.w_shape())


def weights_grid(p: Problem) -> Dims:
    """A thread for each weight."""
    return ceil(weights(p) / THREADS), 1, 1


def weights_block(p: Problem) -> Dims:
    """THREADS threads."""
    return THREADS, 1, 1


# ---- Slices of the sum over the batch, of rows of outputs or of images ---------------------------------------------

WANTED_BLOCKS = 16  # for each multiprocessor


def row_slices(p: Problem) -> int:
    """Slices of ROWS rows of outputs, counted through the batch."""
    return ceil(p.N * p.conv.E / p["ROWS"])


def image_slices(p: Problem) -> int:
    """Slices of IMAGES images."""
    return ceil(p.N / p["IMAGES"])


def of_slice(parts: Callable[[Problem], int], blocks: Callable[[Problem], int]) -> Callable[[Problem], int]:
    """As many parts of the batch in a slice as leave WANTED_BLOCKS blocks; a slice has ``blocks``."""

    def default(p: Problem) -> int:
        slices = ceil(WANTED_BLOCKS * p.device.multiprocessors / blocks(p))
        return ceil(parts(p) / min(parts(p), slices))

    return default


def images_constant(blocks: Callable[[Problem], int]) -> Constant:
    """The images of a slice."""
    return Constant("IMAGES", "images that a block sums", of_slice(lambda p: p.N, blocks))


def partial(slices: Callable[[Problem], int]) -> Array:
    """Partial sums of each slice."""
    return Array("partial", lambda p: (slices(p), weights(p)))


ROWS = Constant(
    "ROWS",
    "rows of outputs that a block sums, counted through the batch",
    of_slice(lambda p: p.N * p.conv.E, lambda p: weights_grid(p)[0]),
)
REDUCE_SLICES = Launch("reduce_slices", ("partial", "dw", BATCH), weights_grid, weights_block)


# ---- Tiles in shared memory ------------------------------------------------------------------------------------------

TILE_WEIGHTS = 512  # at least, of a block's tile


def shared_tiles(p: Problem) -> int:
    """Tiles of TILE_FILTERS x TILE_CHANNELS."""
    return ceil(p.conv.M / p["TILE_FILTERS"]) * ceil(p.conv.C / p["TILE_CHANNELS"])


def shared_bytes(p: Problem) -> int:
    """Shared memory of a tile's rows: dy, and the inputs under them."""
    conv, rows = p.conv, p["TILE_ROWS"]
    input_rows = (rows - 1) * conv.U + conv.filter_rows
    input_columns = (conv.F - 1) * conv.strides[1] + conv.filter_columns
    return (p["TILE_FILTERS"] * rows * conv.F + p["TILE_CHANNELS"] * input_rows * input_columns) * FLOAT


def channels_of_tile(p: Problem) -> int:
    """So many that a tile has TILE_WEIGHTS, if the layer has as many."""
    return min(p.conv.C, ceil(TILE_WEIGHTS / (p["TILE_FILTERS"] * p.conv.R * p.conv.S)))


def rows_of_tile(p: Problem) -> int:
    """The most rows that every GPU's shared memory holds; at least one."""
    fitting = (rows for rows in range(1, p.conv.E + 1) if shared_bytes(p.having(TILE_ROWS=rows)) <= PORTABLE_SHARED)
    return max(fitting, default=1)


# ---- Matrix products -------------------------------------------------------------------------------------------------

UNROLL_THREADS = 256


def product_tiles(rows: Callable[[Problem], int], columns: Callable[[Problem], int]) -> Callable[[Problem], int]:
    """Tiles of the product of filters and taps, of each group."""
    return lambda p: p.conv.groups * ceil(p.conv.M // p.conv.groups / rows(p)) * ceil(p.conv.K / columns(p))


def unroll_grid(p: Problem) -> Dims:
    """A block per image, tap and UNROLL_THREADS pixels."""
    return p.N, p.conv.K, ceil(p.conv.E * p.conv.F / UNROLL_THREADS)


def tile_products(
    tiles: Callable[[Problem], int], rows: Callable[[Problem], int], columns: Callable[[Problem], int]
) -> Callable[[Problem], float]:
    """Products of whole tiles, summed over the pixels of the batch."""
    return lambda p: tiles(p) * rows(p) * columns(p) * p.N * p.conv.E * p.conv.F


def slices_bytes(p: Problem) -> float:
    """Bytes of the partial sums of SLICES."""
    return FLOAT * p["SLICES"] * weights(p)


square_tiles = product_tiles(lambda p: p["TILE"], lambda p: p["TILE"])
igemm_tiles = product_tiles(tile_rows, tile_columns)


# ---- Implicit GEMM ---------------------------------------------------------------------------------------------------

MOST_SLICES = 128
PARTIAL_PIXELS = 0.27  # whose products take a block as long as it takes all to write and read a tile's partial sums
LEAST_K_TILES = 4  # of a slice
SHORT = 10.0  # microseconds of a product's first loads and of the sums over slices
IGEMM_RATE = 66.0  # multiply-adds per cycle of a multiprocessor, as measured on an H100


def slices_constant(tiles_of: Callable[[Problem], int], partial_pixels: float) -> Constant:
    """Slices of the sum: so many that the blocks fill whole waves, and few enough that partial sums cost little."""

    def default(p: Problem) -> int:
        tiles, slots, pixels = tiles_of(p), p["BLOCKS_PER_SM"] * p.device.multiprocessors, p.N * p.conv.E * p.conv.F
        most = max(1, min(MOST_SLICES, ceil(pixels / p["DEPTH"]) // LEAST_K_TILES))

        def cost(slices: int) -> float:
            return ceil(tiles * slices / slots) * pixels / slices + tiles * slices * partial_pixels

        return min(range(1, most + 1), key=cost)

    return Constant("SLICES", "parts of the sum over the batch's pixels, each of other blocks", default)


TILES = ((4, 8, 2, 8), (2, 12, 4, 4), (2, 8, 4, 4))  # of filters and taps
tile_of_product = least_padded(TILES, lambda p: p.conv.M // p.conv.groups)

IGEMM_CONSTANTS = (
    Constant("WARPS_DOWN", "warps of a block that divide its filters", tile_of_product(0), choices=(1, 2, 4)),
    Constant("THREAD_ROWS", "filters of a thread", tile_of_product(1), choices=(4, 8, 12)),
    Constant("WARPS_ACROSS", "warps of a block that divide its taps", tile_of_product(2), choices=(1, 2, 4)),
    Constant("THREAD_COLUMNS", "taps of a thread", tile_of_product(3), choices=(4, 8)),
    Constant("DEPTH", "pixels of a K tile, one iteration of the mainloop", lambda p: 8, choices=(4, 8, 16)),
    BLOCKS_PER_SM,
    slices_constant(igemm_tiles, PARTIAL_PIXELS),
)

# ---- Tensor cores ----------------------------------------------------------------------------------------------------

FRAGMENT_ROWS, FRAGMENT_COLUMNS = 16, 8
WORDS = 16  # of a K tile's row in shared memory
PARTIAL_PIXELS_OF_TERMS = {1: 4.0, 3: 1.3}  # as above, where a block's products are quicker; by products of terms


ONE_FRAGMENT = 1.9  # times as long as their products take warps whose taps meet one fragment of filters
RATES = {(1, "tf32"): 99.0, (1, "fp16"): 155.0, (3, "tf32"): 72.0}  # multiply-adds per cycle, by products and factors


def mma_rows(p: Problem) -> int:
    """Filters of a block."""
    return p["WARPS_DOWN"] * p["FRAGMENTS_DOWN"] * FRAGMENT_ROWS


def mma_columns(p: Problem) -> int:
    """Taps of a block."""
    return p["WARPS_ACROSS"] * p["FRAGMENTS_ACROSS"] * FRAGMENT_COLUMNS


def fragments_down(p: Problem) -> int:
    """The most fragments of those whose tiles need the least padding beyond the last filter."""
    M, of_warps = p.conv.M // p.conv.groups, p["WARPS_DOWN"] * FRAGMENT_ROWS
    return min((4, 3, 2, 1), key=lambda fragments: round_up(M, of_warps * fragments))


mma_tiles = product_tiles(mma_rows, mma_columns)


def mma_products(p: Problem) -> float:
    """Products of whole tiles, as many more as take the time that loads take."""
    products = tile_products(mma_tiles, mma_rows, mma_columns)(p)
    return products if p["FRAGMENTS_DOWN"] > 1 else ONE_FRAGMENT * products


def mma(name: str, alias: str, idea: str, parent: str, products: int, precision: str) -> Rung:
    """A rung on tensor cores, whose kernel has its file's name."""
    entry, factors = name.replace("-", "_"), "fp16" if precision == "fp16" else "tf32"
    depth = WORDS * (2 if factors == "fp16" else 1)
    return Rung(
        name,
        alias=alias,
        idea=idea,
        family="wgrad",
        parent=parent,
        file=f"wgrad/{entry}.cu",
        launches=(
            Launch(entry, ("x", "dy", "partial", BATCH), lambda p: (mma_tiles(p) * p["SLICES"], 1, 1), block),
            Launch("reduce_slices", ("partial", "dw"), weights_grid, weights_block),
        ),
        constants=(
            Constant("WARPS_DOWN", "warps of a block that divide its filters", lambda p: 2, choices=(1, 2, 4)),
            Constant("WARPS_ACROSS", "warps of a block that divide its taps", lambda p: 4, choices=(1, 2, 4)),
            Constant("FRAGMENTS_DOWN", "a warp's fragments of 16 filters", fragments_down, choices=(1, 2, 3, 4)),
            Constant("FRAGMENTS_ACROSS", "a warp's fragments of 8 taps", lambda p: 4, choices=(1, 2, 4)),
            Constant("DEPTH", "pixels of a K tile, one iteration of the mainloop", lambda p: depth, choices=(depth,)),
            replace(BLOCKS_PER_SM, default=lambda p: 1),
            slices_constant(mma_tiles, PARTIAL_PIXELS_OF_TERMS[products]),
        ),
        scratch=(partial(lambda p: p["SLICES"]),),
        time=replace(multiplying(RATES[products, factors], mma_products, slices_bytes), fixed=SHORT),
        takes=CONVOLUTION_FEATURES,
        direction=WGRAD,
        precision=precision,
        min_capability=AMPERE,
        tensor_factors=factors,
        products=products,
    )


WGRAD_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgrad-direct",
        alias="wg-d",
        idea="a thread per weight, summed image by image",
        family="wgrad",
        parent=None,
        file="wgrad/wgrad_direct.cu",
        launches=(Launch("wgrad_direct", ("x", "dy", "dw", BATCH), weights_grid, weights_block),),
        takes=CONVOLUTION_FEATURES,
        cpu_order=1,
        direction=WGRAD,
    ),
    Rung(
        "wgrad-partial",
        alias="wg-p",
        idea="split over rows of images: partial sums, then an ordered reduction kernel",
        family="wgrad",
        parent="wgrad-direct",
        file="wgrad/wgrad_partial.cu",
        launches=(
            Launch(
                "wgrad_partial",
                ("x", "dy", "partial", BATCH),
                lambda p: (*weights_grid(p)[:1], row_slices(p), 1),
                weights_block,
            ),
            REDUCE_SLICES,
        ),
        constants=(ROWS,),
        scratch=(partial(row_slices),),
        takes=CONVOLUTION_FEATURES,
        direction=WGRAD,
    ),
    Rung(
        "wgrad-atomic",
        alias="wg-a",
        idea="split over images with atomics: no partial sums, and other bits in every run",
        family="wgrad",
        parent="wgrad-partial",
        file="wgrad/wgrad_atomic.cu",
        launches=(
            Launch("clear", ("dw",), weights_grid, weights_block),
            Launch(
                "wgrad_atomic",
                ("x", "dy", "dw", BATCH),
                lambda p: (*weights_grid(p)[:1], image_slices(p), 1),
                weights_block,
            ),
        ),
        constants=(images_constant(lambda p: weights_grid(p)[0]),),
        order_varies=True,
        atomic_additions=image_slices,
        takes=CONVOLUTION_FEATURES,
        direction=WGRAD,
    ),
    Rung(
        "wgrad-shared",
        alias="wg-s",
        idea="tiles of the input and of dy in shared memory, several weights per thread",
        family="wgrad",
        parent="wgrad-partial",
        file="wgrad/wgrad_shared.cu",
        launches=(
            Launch(
                "wgrad_shared",
                ("x", "dy", "partial", BATCH),
                lambda p: (shared_tiles(p), image_slices(p), 1),
                weights_block,
                shared_bytes,
            ),
            REDUCE_SLICES,
        ),
        constants=(
            Constant("TILE_FILTERS", "filters of a block's tile", lambda p: 8, choices=(4, 8, 16)),
            Constant("TILE_CHANNELS", "channels of a block's tile", channels_of_tile),
            Constant("TILE_ROWS", "rows of outputs in shared memory at a time", rows_of_tile),
            images_constant(shared_tiles),
        ),
        scratch=(partial(image_slices),),
        refuses=lambda p: beyond_shared(p.device, "a block needs", shared_bytes(p)),
        takes=UNGROUPED,
        direction=WGRAD,
    ),
    Rung(
        "wgrad-matmul",
        alias="wg-m",
        idea="im2col, then the product of dy with its transpose, tiles in shared memory",
        family="wgrad",
        parent="wgrad-shared",
        file="wgrad/wgrad_matmul.cu",
        launches=(
            Launch("unroll", ("x", "unrolled"), unroll_grid, lambda p: (UNROLL_THREADS, 1, 1)),
            Launch(
                "multiply",
                ("dy", "unrolled", "partial", BATCH),
                lambda p: (square_tiles(p), image_slices(p), 1),
                tile_block,
            ),
            REDUCE_SLICES,
        ),
        constants=(tile(), images_constant(square_tiles)),
        scratch=(
            Array("unrolled", lambda p: (p.N, p.conv.K, p.conv.E * p.conv.F)),
            partial(image_slices),
        ),
        refuses=outside_block(tile_block),
        takes=UNGROUPED,
        direction=WGRAD,
    ),
    Rung(
        "wgrad-igemm",
        alias="wg-ig",
        idea="implicit GEMM: register tiles; the sum over the batch's pixels cut into slices, reduced in order",
        family="wgrad",
        parent="wgrad-matmul",
        file="wgrad/wgrad_igemm.cu",
        launches=(
            Launch(
                "wgrad_igemm",
                ("x", "dy", "partial", BATCH),
                lambda p: (igemm_tiles(p) * p["SLICES"], 1, 1),
                block,
            ),
            Launch("reduce_slices", ("partial", "dw"), weights_grid, weights_block),
        ),
        constants=IGEMM_CONSTANTS,
        scratch=(partial(lambda p: p["SLICES"]),),
        time=replace(
            multiplying(IGEMM_RATE, tile_products(igemm_tiles, tile_rows, tile_columns), slices_bytes), fixed=SHORT
        ),
        takes=CONVOLUTION_FEATURES,
        direction=WGRAD,
    ),
    mma(
        "wgrad-mma-tf32",
        "wg-mma-t",
        "implicit GEMM on tensor cores (mma.sync), operands rounded to tf32",
        "wgrad-igemm",
        products=1,
        precision="tf32",
    ),
    mma(
        "wgrad-mma-half",
        "wg-mma-h",
        "fp16 operands, two pixels in a word, fp32 accumulators and partial sums",
        "wgrad-mma-tf32",
        products=1,
        precision="fp16",
    ),
    mma(
        "wgrad-mma-split",
        "wg-mma-2",
        "operands as hi and lo tf32 terms, three products: the accuracy of fp32",
        "wgrad-mma-tf32",
        products=3,
        precision="fp32",
    ),
)
