"""The rung that multiplies less: Winograd's minimal filtering along the rows, on Hopper's tensor cores."""

from math import ceil, prod

from alexconv.kernels.geometry import FLOAT, HALF, HOPPER, beyond_shared, round_up
from alexconv.kernels.preparation import FULL_RANGE, SCALED_FILTERS, flat_block
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Array, Constant, Dims, Launch, Rung, TensorMap, beyond_integers
from alexconv.kernels.times import CLOCK, STREAM_K, Time, inputs, outputs
from alexconv.kernels.wgmma.blocked import CHUNK, STAGE_TAPS
from alexconv.kernels.wgmma.ladder import (
    EXPONENTS,
    FILTER_TILES,
    GRID_BLOCKS,
    PIXEL_TILES,
    STAGES,
    TAKES_PADDING,
    Operands,
    images_grid,
    most_stages,
    pipeline_bytes,
    prepare_scaled,
    tiles_block,
    tiles_grid,
    too_many_accumulators,
)
from alexconv.kernels.wgmma.times import WGMMA
from alexconv.shapes import Conv

SPLIT = Operands(2, study=False)  # the epilogue stores accumulators as they are
PRODUCTS = 3  # of hi and lo terms
MOST_POINTS = 8
MOST_SEGMENT = 4  # taps of a segment of a filter row: the errors of more exceed the class's guarantee
TILE_SIZES = (2, 3, 4, 5, 6)  # outputs of a Winograd tile
# By number of points: about how many taps an output needs for errors below those of a chain of fused multiply-adds.
# Errors of products grow with the points' matrices, and fewer of them cancel less well.
LEAST_TAPS = {3: 50, 4: 80, 5: 250, 6: 350, 7: 950, 8: 1100}
TILE_PIXELS = 128  # with which three stages fit; with stream-K the number of tiles does not matter
MOST_CHANNELS = 96  # of a block of ``prepare_input``
BLOCK_INPUTS = 32  # about, of a channel
OUTPUT_SPAN = 128  # outputs of a plane in a block of ``make_outputs``, at most
OUTPUT_FILTERS = 64


def points(p: Problem) -> int:
    """Points at which a tile's polynomials are multiplied."""
    return p["TILE_OUTPUTS"] + tile_taps(p) - 1


def tile_taps(p: Problem) -> int:
    """Taps of a tile: a filter row, or a segment of it."""
    return taps_of(p.conv, p["TILE_OUTPUTS"])


def segments(p: Problem) -> int:
    """Parts of a filter row, of a tile's taps each."""
    return ceil(p.conv.S / tile_taps(p))


def value_tiles(p: Problem) -> int:
    """Tiles of a row of transformed inputs: those of the outputs, and those that only further segments take."""
    return tiles_across(p) + (segments(p) - 1) * (tile_taps(p) // p["TILE_OUTPUTS"])


def tiles_across(p: Problem) -> int:
    """Tiles of a row of outputs."""
    return ceil(p.conv.F / p["TILE_OUTPUTS"])


def depth(conv: Conv) -> int:
    """Channels of a value in memory, a multiple of eight."""
    return round_up(conv.C, CHUNK)


def taps_of(conv: Conv, size: int) -> int:
    """Taps of a tile of ``size`` outputs: the filter row if it fits, or the segments of it with the fewest products."""
    if size + conv.S - 1 <= MOST_POINTS:
        return conv.S
    cuts = range(size, MOST_SEGMENT + 1, size)
    return min(cuts, key=lambda taps: ceil(conv.S / taps) * (size + taps - 1), default=conv.S)


def too_few_taps(conv: Conv, size: int) -> bool:
    """Whether tiles of ``size`` outputs, or any of more than ``MOST_POINTS`` points, are too inaccurate."""
    return LEAST_TAPS.get(size + taps_of(conv, size) - 1, conv.K + 1) > conv.K


def usual_outputs(conv: Conv) -> int:
    """The tile size with the fewest products per row; of several the smallest, whose errors are smaller."""

    def products(size: int) -> int:
        taps = taps_of(conv, size)
        return ceil(conv.F / size) * ceil(conv.S / taps) * (size + taps - 1)

    sizes = [size for size in TILE_SIZES if not too_few_taps(conv, size)] or [min(TILE_SIZES)]
    return min(sizes, key=lambda size: (products(size), size))


def usual_filters(conv: Conv) -> int:
    """The smallest tile that holds all filters, but at most 128."""
    return next((size for size in FILTER_TILES if size >= conv.M), 128) if conv.M < 128 else 128


def rows(p: Problem) -> int:
    """Rows of a point's product: tiles of all images."""
    return p.N * tiles_across(p) * p.conv.E


def values_shape(p: Problem) -> tuple[int, ...]:
    """The transformed input: columns of tiles, whose rows follow each other."""
    return points(p), p.N, value_tiles(p), p.conv.padded[0], depth(p.conv)


def filters_shape(p: Problem) -> tuple[int, ...]:
    """The transformed filters."""
    return points(p), p.conv.M, segments(p), p.conv.R, depth(p.conv)


def sums_shape(p: Problem) -> tuple[int, ...]:
    """The sums of all points, rows padded to a multiple of eight filters."""
    return points(p), rows(p), round_up(p.conv.M, CHUNK)


def value_map(name: str, array: str) -> TensorMap:
    """The map of the transformed input: columns of taps, each a run that begins a row below the previous one.

    Its window has the tiles from the first segment's to the last one's.
    """

    def strides(p: Problem) -> tuple[int, ...]:
        row = depth(p.conv) * HALF
        rows = p.conv.padded[0]
        return row, rows * row, value_tiles(p) * rows * row

    return TensorMap(
        name,
        array,
        dims=lambda p: (
            p.conv.R * depth(p.conv),
            p.conv.E,
            value_tiles(p),
            points(p) * p.N,
        ),
        strides=strides,
        box=lambda p: (STAGE_TAPS, p["TILE_PIXELS"]),
        window=lambda p: (1, value_tiles(p) - tiles_across(p) + 1),
    )


def filter_map(name: str, array: str) -> TensorMap:
    """The map of the transformed filters, a run for each segment: those of all points follow each other."""

    def strides(p: Problem) -> tuple[int, ...]:
        run = p.conv.R * depth(p.conv) * HALF
        return run, segments(p) * run

    return TensorMap(
        name,
        array,
        dims=lambda p: (p.conv.R * depth(p.conv), segments(p), points(p) * p.conv.M),
        strides=strides,
        box=lambda p: (STAGE_TAPS, 1, p["TILE_FILTERS"]),
    )


def block_rows(conv: Conv) -> int:
    """Input rows of a block of ``prepare_input``."""
    rows, columns = conv.padded
    return min(rows, max(1, BLOCK_INPUTS // columns))


def tiles_and_slices(conv: Conv) -> tuple[int, int]:
    """Blocks of ``prepare_input`` along the rows and along the channels of an image."""
    return ceil(conv.padded[0] / block_rows(conv)), ceil(conv.C / MOST_CHANNELS)


def input_bytes(p: Problem) -> int:
    """Shared memory of ``prepare_input``: the floats of a slice of the channels, and two more per input."""
    _, slices = tiles_and_slices(p.conv)
    channels = round_up(ceil(p.conv.C / slices), CHUNK)
    return block_rows(p.conv) * p.conv.padded[1] * (channels + 2) * FLOAT


def input_grid(p: Problem) -> Dims:
    """One block per tile, slice of the channels, and image."""
    return *tiles_and_slices(p.conv), p.N


def output_span(p: Problem) -> tuple[int, int]:
    """Rows and columns of outputs that a block of ``make_outputs`` computes."""
    size = p["TILE_OUTPUTS"]
    columns = p.conv.F if p.conv.F <= OUTPUT_SPAN else OUTPUT_SPAN // size * size
    return ceil(p.conv.E / ceil(p.conv.E / (OUTPUT_SPAN // columns))), columns


def outputs_grid(p: Problem) -> Dims:
    """One block per span of a plane, group of filters, and image."""
    rows, columns = output_span(p)
    return ceil(p.conv.E / rows) * ceil(p.conv.F / columns), ceil(p.conv.M / OUTPUT_FILTERS), p.N


def outputs_bytes(p: Problem) -> int:
    """Shared memory of ``make_outputs``: an odd number of floats for each filter."""
    rows, columns = output_span(p)
    return OUTPUT_FILTERS * (rows * columns // 2 * 2 + 1) * FLOAT


def multiply_bytes(p: Problem) -> int:
    """Shared memory of the multiplication."""
    return pipeline_bytes(SPLIT, p)


def refuses(p: Problem) -> str | None:
    """What the rung cannot take."""
    if p.conv.U > 1 or p.conv.S == 1:
        return f"a stride of {p.conv.U} and filters of {p.conv.S} columns: Winograd's tiles take 1, and 2 or more"
    if points(p) > MOST_POINTS:
        return f"tiles of {p['TILE_OUTPUTS']} outputs have {points(p)} points, more than {MOST_POINTS}"
    if (least := LEAST_TAPS.get(points(p), 0)) > p.conv.K:
        return f"tiles of {p['TILE_OUTPUTS']} outputs are accurate for {least} taps or more, not for {p.conv.K}"
    for kernel, needed in (
        ("multiply", multiply_bytes(p)),
        ("prepare_input", input_bytes(p)),
    ):
        if reason := beyond_shared(p.device, f"a block of {kernel} needs", needed):
            return reason
    values = max(prod(shape(p.over(1))) for shape in (values_shape, sums_shape))
    return beyond_integers("a transformed image", values) or too_many_accumulators(SPLIT, p)


WINOGRAD_CONSTANTS = (
    Constant(
        "TILE_OUTPUTS",
        "outputs of a Winograd tile",
        default=lambda p: usual_outputs(p.conv),
        choices=TILE_SIZES,
    ),
    Constant("TILE_PIXELS", "rows of a tile: Winograd tiles of the batch", lambda p: TILE_PIXELS, choices=PIXEL_TILES),
    Constant("TILE_FILTERS", "filters of a tile", lambda p: usual_filters(p.conv), choices=FILTER_TILES),
    Constant(
        "STAGES",
        "stages of the TMA pipeline, of 64 taps each",
        most_stages(multiply_bytes),
        choices=STAGES,
    ),
    GRID_BLOCKS,
)

VALUES_HI, VALUES_LO = (Array(name, values_shape, HALF) for name in ("values_hi", "values_lo"))
FILTERS_HI, FILTERS_LO = (Array(name, filters_shape, HALF) for name in ("filters_hi", "filters_lo"))
SEEN = Array("seen", lambda p: (p.N, *reversed(tiles_and_slices(p.conv))))
SUMS = Array("sums", sums_shape)
TAILS = Array("tails", lambda p: (p["GRID_BLOCKS"], p["TILE_PIXELS"], p["TILE_FILTERS"]))
TAIL_OF = Array("tail_of", lambda p: (2 * p["GRID_BLOCKS"],))


def busy(p: Problem) -> float:
    """Microseconds of the product; stream-K leaves no wave unfilled."""
    taps = segments(p) * p.conv.R * depth(p.conv)
    products = PRODUCTS * points(p) * rows(p) * round_up(p.conv.M, p["TILE_FILTERS"]) * taps
    return products / WGMMA / p.device.multiprocessors / CLOCK


def product_bytes(p: Problem) -> int:
    """The terms of the transformed input, and the sums."""
    return 2 * HALF * prod(values_shape(p)) + FLOAT * points(p) * rows(p) * p.conv.M


def transform_bytes(p: Problem) -> int:
    """What the transforms read and write."""
    return FLOAT * (inputs(p) + outputs(p)) + product_bytes(p)


WINOGRAD_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-winograd",
        alias="winograd-3x",
        idea="one-dimensional Winograd tiles: fewer products, by a stream-K schedule",
        family="wgmma",
        parent="wgmma-split",
        file="wgmma/wgmma_winograd.cu",
        launches=(
            Launch("prepare_input", ("x", "seen", "values_hi", "values_lo"), input_grid, flat_block, input_bytes),
            Launch(
                "prepare_outliers",
                ("x", "seen", "exponents", "values_hi", "values_lo"),
                images_grid,
                flat_block,
                input_bytes,
                pdl=True,
            ),
            Launch(
                "multiply",
                ("value_hi_map", "value_lo_map", "filter_hi_map", "filter_lo_map", "sums", "tails", "tail_of", "N"),
                tiles_grid,
                tiles_block,
                multiply_bytes,
                pdl=True,
            ),
            Launch(
                "make_outputs",
                ("sums", "tails", "tail_of", "exponents", "filter_exponents", "y"),
                outputs_grid,
                flat_block,
                outputs_bytes,
                pdl=True,
                stores=True,
            ),
            FULL_RANGE,
        ),
        constants=WINOGRAD_CONSTANTS,
        sizes=(("TILE_TAPS", tile_taps),),
        scratch=(SEEN, EXPONENTS, VALUES_HI, VALUES_LO, SUMS, TAILS, TAIL_OF),
        precision="fp32-tile",
        prepare=prepare_scaled(2),
        prepared=(*SCALED_FILTERS, FILTERS_HI, FILTERS_LO),
        maps=(
            value_map("value_hi_map", "values_hi"),
            value_map("value_lo_map", "values_lo"),
            filter_map("filter_hi_map", "filters_hi"),
            filter_map("filter_lo_map", "filters_lo"),
        ),
        refuses=refuses,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        products=None,
        takes=TAKES_PADDING,
        time=Time(busy, product_bytes, transform_bytes, fixed=STREAM_K),
    ),
)
