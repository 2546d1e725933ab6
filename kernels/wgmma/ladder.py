"""The wgmma rungs: implicit GEMM on Hopper's tensor cores by warpgroups, fed by TMA."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, prod

from alexconv.kernels.dynamic import Dynamic, Number
from alexconv.kernels.geometry import FLOAT, HALF, HOPPER, Refusal, SharedBytes, beyond_shared
from alexconv.kernels.preparation import FIND_FILTER_EXPONENTS, FULL_RANGE, SCALED_FILTERS, flat_block, full_range
from alexconv.kernels.problem import TYPICAL_BATCH, Problem
from alexconv.kernels.rung import TERMS_PREFIX, Array, Constant, Dims, Launch, Rung, TensorMap, beyond_integers
from alexconv.kernels.wgmma.blocked import (
    CHUNK,
    ROW_BYTES,
    STAGE_TAPS,
    WGMMA_ROWS,
    Gathers,
    as_it_lies,
    blocked_c,
    blocked_hw,
    blocked_rs,
    needs_gather,
    never,
    one_product,
    pointwise,
    products,
    runs,
    side,
    tiles_of_filters,
    unaligned,
    where_it_pays,
)
from alexconv.kernels.wgmma.times import tiled
from alexconv.shapes import FEATURES, NETWORK_FEATURES, Conv

ATOM_BYTES = 1024  # of the 128-byte swizzle, to which stages are aligned
MBARRIER_BYTES = 8
WARPGROUP = 128
ACCUMULATOR_REGISTERS = {1: 200, 2: 200, 3: 128}  # of a consumer's thread, by the number of consumers
LARGEST_STEP = 8  # stride that a tensor map can describe
LARGEST_WINDOW = 128  # rows of a filter that a tensor map can describe
MOST_PIXELS = 1 << 22  # of an output plane


@dataclass(frozen=True)
class Operands:
    """Terms of each operand (1: fp16; 2: hi and lo), and whether the epilogue writes the study's NCHW order.

    That epilogue transposes through shared memory (study_epilogue.cuh).
    """

    terms: int
    study: bool


EPILOGUE_FILTERS = 32  # of a consumer in the epilogue's two buffers
SKEW = 4  # floats of padding per filter
EPILOGUE_REGISTERS = 16  # in addition to the accumulators; with two terms, a stage's are free by then
NATIVE, STUDY, STUDY_SPLIT = Operands(1, study=False), Operands(1, study=True), Operands(2, study=True)

TAKES_PADDING = ("padding", "bias", "ReLU")
TAKES_PLACES = (*TAKES_PADDING, "residual", "slice")


def pixels_shape(gathers: Gathers = never) -> Callable[[Problem], tuple[int, ...]]:
    """The blocked input: an image for each product, those of a product together."""
    return lambda p: (products(p.conv) * p.N, *blocked_hw(p.conv, gathers), blocked_c(p.conv, gathers))


def filters_shape(gathers: Gathers = never) -> Callable[[Problem], tuple[int, ...]]:
    """The blocked filters."""
    return lambda p: (p.conv.M, *runs(p.conv, gathers))


def pixel_map(name: str, array: str, gathers: Gathers) -> TensorMap:
    """The im2col map through which TMA gathers the blocked input, or an unprepared one with all channels.

    A row of a filter covers neighbouring pixels, which are contiguous in memory: so a pixel of the map is such a row,
    and pixels overlap.  The window has one column.  Where single taps are gathered, pixels are those of the input, and
    the window is the filter.
    """

    def channels(p: Problem) -> int:
        return p.conv.C if gathers is as_it_lies else blocked_c(p.conv, gathers)

    def dims(p: Problem) -> tuple[int, ...]:
        H, W = blocked_hw(p.conv, gathers)
        images = p.N if gathers is as_it_lies else products(p.conv) * p.N
        return (channels(p), W, H, images) if gathers(p.conv) else (runs(p.conv, gathers)[1], p.conv.F, H, images)

    def strides(p: Problem) -> tuple[int, ...]:
        H, W = blocked_hw(p.conv, gathers)
        pixel = channels(p) * HALF
        return pixel, W * pixel, H * W * pixel

    def window(p: Problem) -> tuple[int, ...]:
        conv = p.conv
        if not gathers(conv):
            return 1, blocked_rs(conv)[0]
        return conv.filter_columns, conv.filter_rows, conv.left, conv.top, conv.right, conv.bottom, *conv.strides[::-1]

    return TensorMap(name, array, dims, strides, lambda p: (STAGE_TAPS, p["TILE_PIXELS"]), window)


def filter_map(name: str, array: str, gathers: Gathers) -> TensorMap:
    """The map of the blocked filters."""

    def strides(p: Problem) -> tuple[int, ...]:
        count, taps = runs(p.conv, gathers)
        return taps * HALF, count * taps * HALF

    return TensorMap(
        name,
        array,
        dims=lambda p: (*reversed(runs(p.conv, gathers)), p.conv.M),
        strides=strides,
        box=lambda p: (STAGE_TAPS, 1, p["TILE_FILTERS"]),
    )


def consumers(p: Problem) -> int:
    """Consumer warpgroups, which divide the pixels of a tile."""
    if p["TILE_PIXELS"] == WGMMA_ROWS:
        return 1
    return 2 if p["TILE_PIXELS"] % (2 * WGMMA_ROWS) == 0 else 3


def epilogue_bytes(p: Problem) -> int:
    """Shared memory of the study's epilogue: two buffers for each consumer."""
    return consumers(p) * EPILOGUE_FILTERS * (WGMMA_ROWS + SKEW) * FLOAT


def pipeline_bytes(operands: Operands, p: Problem) -> int:
    """Shared memory of the multiplication: stages, mbarriers, epilogue, alignment."""
    stage = (p["TILE_PIXELS"] + p["TILE_FILTERS"]) * ROW_BYTES * operands.terms
    output = epilogue_bytes(p) if operands.study else CHUNK
    return p["STAGES"] * (stage + 2 * MBARRIER_BYTES) + output + ATOM_BYTES


def accumulators(operands: Operands, p: Problem) -> int:
    """A consumer thread's accumulators; with two terms also those of a stage."""
    tiles = p["TILE_PIXELS"] // (WGMMA_ROWS * consumers(p))
    return (tiles + operands.terms - 1) * p["TILE_FILTERS"] // 2


def too_many_accumulators(operands: Operands, p: Problem) -> str | None:
    """Why the registers of a consumer's thread do not hold its accumulators, or None."""
    registers, spare = accumulators(operands, p), ACCUMULATOR_REGISTERS[consumers(p)]
    if operands.study and consumers(p) > 2:
        spare -= EPILOGUE_REGISTERS * (2 - operands.terms)
    return (
        f"a thread needs {registers} registers for its accumulators and can spare {spare}"
        if registers > spare
        else None
    )


def tile_cost(p: Problem, pixels: int, filters: int) -> int:
    """The cost of a tile size at a typical batch: waves of tiles over all multiprocessors, times products and loads.

    An order of defaults alone, which are the same for every batch; ``auto`` goes by the rung's ``time``.
    """
    tiles = ceil(TYPICAL_BATCH * p.conv.E * p.conv.F / pixels) * tiles_of_filters(p.conv, filters)
    load = 24  # products in the time that fetching one more pixel or filter of a tile takes
    return ceil(tiles / p.device.multiprocessors) * (pixels * filters + load * (pixels + filters))


PIXEL_TILES, FILTER_TILES = (128, 192, 256), (64, 96, 128, 192, 256)
SMALLEST_TILE = WGMMA_ROWS  # pixels, for rungs that take layers of few images


def best_tile(too_many: Refusal) -> Callable[[Problem], tuple[int, int]]:
    """The tile size of least cost that does not need too many registers."""

    def cheapest(p: Problem) -> tuple[int, int]:
        sizes = [
            (pixels, filters)
            for pixels in PIXEL_TILES
            for filters in FILTER_TILES
            if not too_many(p.having(TILE_PIXELS=pixels, TILE_FILTERS=filters))
        ]
        fitting = [(pixels, filters) for pixels, filters in sizes if one_product(p.conv).M % filters == 0] or sizes
        return min(fitting, key=lambda tile: tile_cost(p, *tile))

    return cheapest


def most_stages(shared_bytes: SharedBytes) -> Callable[[Problem], int]:
    """Stages of the tile that fit in shared memory, but at least the kernel's minimum."""

    def most(p: Problem) -> int:
        fixed, one = (shared_bytes(p.having(STAGES=stages)) for stages in (0, 1))
        return max(min(STAGES), min((p.device.shared_per_block - fixed) // (one - fixed), max(STAGES)))

    return most


GRID_BLOCKS = Constant(
    "GRID_BLOCKS",
    "blocks of the persistent grid, which share the tiles",
    lambda p: p.device.multiprocessors,
)
STAGES = (2, 3, 4, 5, 6, 7, 8)  # one is still being read while the next is in flight


def tile_constants(
    operands: Operands, pixels: tuple[int, ...] = PIXEL_TILES, filters: tuple[int, ...] = FILTER_TILES
) -> tuple[Constant, ...]:
    """The constants of a rung with these operands; tile sizes are chosen from ``pixels`` and ``filters``."""
    tile = best_tile(partial(too_many_accumulators, operands))
    return (
        Constant("TILE_PIXELS", "output pixels of a tile", lambda p: tile(p)[0], choices=pixels),
        Constant("TILE_FILTERS", "filters of a tile", lambda p: tile(p)[1], choices=filters),
        Constant(
            "STAGES",
            "stages of the TMA pipeline, of 64 taps each",
            most_stages(partial(pipeline_bytes, operands)),
            choices=STAGES,
        ),
        GRID_BLOCKS,
    )


def tiles_grid(p: Problem) -> Dims:
    """A persistent kernel: GRID_BLOCKS blocks, each with several tiles."""
    return p["GRID_BLOCKS"], 1, 1


def tiles_block(p: Problem) -> Dims:
    """A producer and the consumers, a warpgroup each."""
    return WARPGROUP * (1 + consumers(p)), 1, 1


def block_c(of: int) -> int:
    """Input channels of a block of ``prepare_input``, for squares of this side."""
    if of in (1, 2):
        return 64 // of**2
    return 4 if of % 4 == 0 else 8


def block_pixels(of: int) -> int:
    """Blocked pixels of a block of ``prepare_input``, for squares of this side."""
    return 64 if of <= 4 else 32


def tiles_and_slices(conv: Conv, gathers: Gathers = never) -> tuple[int, int]:
    """Blocks along the pixels and along the channels of an image; without squares a plane is one long row.

    A slice of the channels is of one product.
    """
    of = side(conv, gathers)
    rows = 1 if of == 1 else blocked_hw(conv, gathers)[0]
    slices = products(conv) * ceil(blocked_c(conv, gathers) / (block_c(of) * of**2))
    return rows * tiles_across(conv, gathers), slices


def tiles_across(conv: Conv, gathers: Gathers = never) -> int:
    """Blocks along the pixels of a row, or of a plane without squares."""
    of = side(conv, gathers)
    height, width = blocked_hw(conv, gathers)
    return ceil((height * width if of == 1 else width) / block_pixels(of))


def input_bytes(terms: int, gathers: Gathers = never) -> SharedBytes:
    """Shared memory of ``prepare_input``: an fp16 tile, each pixel padded by two values."""

    def nbytes(p: Problem) -> int:
        of = side(p.conv, gathers)
        return terms * block_pixels(of) * (block_c(of) * of**2 + 2) * HALF

    return nbytes


def input_grid(gathers: Gathers = never) -> Callable[[Problem], Dims]:
    """One block per tile of the plane, slice of the channels, and image."""
    return lambda p: (*tiles_and_slices(p.conv, gathers), p.N)


def images_grid(p: Problem) -> Dims:
    """One block per image."""
    return 1, 1, p.N


def beyond_map(conv: Conv) -> str | None:
    """Why no im2col map gathers single taps of the layer, or None."""
    rows, columns = conv.filter_rows, conv.filter_columns
    corners = (*conv.padding, rows - 1 - conv.bottom, columns - 1 - conv.right)
    if max(*corners, rows - 1, columns - 1) >= LARGEST_WINDOW or max(conv.strides) > LARGEST_STEP:
        return (
            f"a filter over {rows} x {columns} pixels, padding {conv.padding} and strides {conv.strides}: a tensor map "
            f"takes less than {LARGEST_WINDOW} pixels and strides up to {LARGEST_STEP}"
        )
    return None


def beyond_plane(conv: Conv) -> str | None:
    """Why an output plane is too large, or None."""
    pixels = conv.E * conv.F
    return f"an output plane of {pixels} pixels exceeds {MOST_PIXELS}" if pixels > MOST_PIXELS else None


def refuses(operands: Operands, gathers: Gathers = never) -> Refusal:
    """The reason why such a rung does not take a problem."""

    def reason(p: Problem) -> str | None:
        if p.conv.pool_size and side(p.conv, gathers) > 1:
            return "pools pixels as they are loaded, not squares of them"
        if reason := refuses_terms(p.conv, gathers):
            return reason
        if gathers(p.conv):
            if reason := beyond_map(p.conv):
                return reason
        elif not pointwise(p.conv) and needs_gather(p.conv):
            return f"strides {p.conv.strides} and dilation {p.conv.dilation}: takes equal strides and no dilation"
        if reason := beyond_shared(p.device, "a block needs", pipeline_bytes(operands, p)):
            return reason
        if reason := too_many_accumulators(operands, p):
            return reason
        if blocked_rs(p.conv)[0] > LARGEST_WINDOW:
            return f"a filter of {blocked_rs(p.conv)[0]} rows exceeds a tensor map's {LARGEST_WINDOW}"
        if reason := beyond_plane(p.conv) or beyond_integers(
            "a prepared image", prod(pixels_shape(gathers)(p.over(1)))
        ):
            return reason
        return beyond_shared(p.device, f"a stride of {p.conv.U} needs", input_bytes(operands.terms, gathers)(p))

    return reason


def refuses_unblocked(p: Problem) -> str | None:
    """The reason why TMA cannot gather the input in place."""
    return unaligned(p.conv) or refuses(NATIVE, as_it_lies)(p)


def filters_grid(gathers: Gathers = never) -> Callable[[Problem], Dims]:
    """One block per row of a blocked filter."""
    return lambda p: (blocked_rs(p.conv, gathers)[0], p.conv.M, 1)


EXPONENTS = Array("exponents", lambda p: (p.N,))


def filters(name: str = "filters", gathers: Gathers = never) -> Array:
    """An array of blocked filters."""
    return Array(name, filters_shape(gathers), HALF)


def of_one_group(p: Problem) -> bool:
    """Whether filters that TMA gathers as they lie are only reordered: those of several groups get zeros between."""
    return p.conv.groups == 1


def pixels(name: str = "pixels", gathers: Gathers = never) -> Array:
    """An array of blocked input."""
    return Array(name, pixels_shape(gathers), HALF)


def of_tiles(name: str, gathers: Gathers = never) -> Array:
    """An array with a word for each block of ``prepare_input``, or the ranges that the layer before has stored."""

    def shape(p: Problem) -> tuple[int, ...]:
        if p.conv.takes_terms:
            return ranges_shape(p.N, p.conv.C, p.conv.H * p.conv.W)
        return p.N, *reversed(tiles_and_slices(p.conv, gathers))

    return Array(name, shape)


TERM_FILTERS = 32  # outputs of a pixel that have a range together; ``scaling.cuh``


def ranges_shape(N: int, channels: int, pixels: int) -> tuple[int, ...]:
    """A word for each pixel and TERM_FILTERS of its channels."""
    return N, ceil(channels / TERM_FILTERS), pixels


def stored_terms(*names: str) -> tuple[Array, ...]:
    """The outputs' ranges and terms, for the layer after it."""
    ranges = Array(f"{TERMS_PREFIX}seen", lambda p: ranges_shape(p.N, p.conv.M, p.conv.E * p.conv.F))
    terms = (Array(TERMS_PREFIX + name, lambda p: (p.N, p.conv.E * p.conv.F, p.conv.M), HALF) for name in names)
    return ranges, *terms


def refuses_terms(conv: Conv, gathers: Gathers) -> str | None:
    """Why the layer's terms are not stored by the layer before it, or it stores none, or None."""
    if conv.stores_terms and (conv.groups > 1 or conv.y_channels or conv.M % CHUNK):
        return f"stores terms of one group of a multiple of {CHUNK} filters, and of no slice"
    if conv.takes_terms:
        plane = side(conv, gathers), products(conv), blocked_c(conv, gathers), blocked_hw(conv, gathers)
        if conv.pool_size or plane != (1, 1, conv.C, (conv.H, conv.W)):
            return "takes terms as they lie: of one group, without pooling, squares or padding in memory"
    return None


OWN_CHANNELS = "x", "filters"  # from which an output is computed again where a product has channels of other groups


def multiply(operands: Operands, *args: str, grouped: tuple[str, ...] = (), terms: tuple[Array, ...] = ()) -> Launch:
    """The launch of the product itself; ``grouped`` and ``terms``: further arguments for layers with these."""

    def shared_bytes(p: Problem) -> int:
        return pipeline_bytes(operands, p)

    names = tuple(array.name for array in terms)
    return Launch(
        "multiply", args, tiles_grid, tiles_block, shared_bytes, pdl=True, stores=True, grouped=grouped, terms=names
    )


def prepare_scaled(terms: int, gathers: Gathers = never) -> tuple[Launch, ...]:
    """The launches that scale the filters and write their terms."""
    operands = ("filters",) if terms == 1 else ("filters_hi", "filters_lo")
    return (
        FIND_FILTER_EXPONENTS,
        Launch("prepare_filters", ("w", "filter_exponents", *operands), filters_grid(gathers), flat_block),
    )


def scale_input(terms: int, gathers: Gathers = never) -> tuple[Launch, ...]:
    """The launches that scale the input and write its terms."""
    operands, shared = ("pixels",) if terms == 1 else ("pixels_hi", "pixels_lo"), input_bytes(terms, gathers)
    return (
        Launch("prepare_input", ("x", "seen", *operands), input_grid(gathers), flat_block, shared, converts=True),
        Launch("prepare_outliers", ("x", "seen", "exponents", *operands), images_grid, flat_block, shared, pdl=True),
    )


def block_input(gathers: Gathers = never) -> Launch:
    """The launch that blocks an fp16 input."""
    args = ("x", "infinite", "pixels")
    return Launch("prepare_input", args, input_grid(gathers), flat_block, input_bytes(1, gathers))


def prepare_native(entry: str, gathers: Gathers = never) -> Launch:
    """The launch that blocks fp16 filters."""
    return Launch(entry, ("w", "filters"), filters_grid(gathers), flat_block)


PARTS = 4  # of an image with infinities, computed in parallel
NATIVE_FULL_RANGE = full_range(lambda p: (PARTS, 1, p.N), "x", "filters", "infinite", "y")


def dynamic(
    shared_bytes: SharedBytes,
    gathers: Gathers,
    tiles: tuple[tuple[int, int], ...],
    rest: Callable[[Problem], Iterable[Mapping[str, int]]] = lambda p: ({},),
    *more: Number,
    of_run: Callable[[Problem], int] | None = None,
    slower: float = 1.0,
    besides: float = 0.0,
) -> Dynamic:
    """The builds for every shape, with tiles of so many pixels and filters, and as many stages as fit.

    Squares of pixels that become one have a build each (``FEW_CHANNELS``).  of_run: stages of a run of K, where they
    are not of so many fp16 taps.
    """

    def build(pixels: int, filters: int, of: int) -> dict[str, int]:
        tile = {"TILE_PIXELS": pixels, "TILE_FILTERS": filters}
        stages = most_stages(shared_bytes)(Problem(ANY_LAYER, constants=tile))
        return {**tile, "STAGES": stages, "LADDER_SIDE": of}

    numbers: tuple[Number, ...] = (
        ("GATHERS", lambda p: int(gathers(p.conv))),
        ("BLOCKED_C", lambda p: blocked_c(p.conv, gathers)),
        ("BLOCKED_W", lambda p: blocked_hw(p.conv, gathers)[1]),
        ("STAGES_OF_RUN", of_run or (lambda p: ceil(runs(p.conv, gathers)[1] / STAGE_TAPS))),
        ("TILES_OF_FILTERS", lambda p: tiles_of_filters(p.conv, p["TILE_FILTERS"])),
        ("TILES_ACROSS", lambda p: tiles_across(p.conv, gathers)),
        ("INPUT_CHANNELS", lambda p: min(p.conv.C, block_c(side(p.conv, gathers)))),
        ("GRID_BLOCKS", lambda p: p["GRID_BLOCKS"]),
        *more,
    )
    squares = {1: tiles} if gathers is as_it_lies else {1: tiles, **FEW_CHANNELS}
    return Dynamic(
        builds=tuple(build(*tile, of) for of, sizes in squares.items() for tile in sizes),
        variants=(("LADDER_SIDE", lambda p: side(p.conv, gathers)),),
        numbers=numbers,
        rest=rest,
        slower=slower,
        besides=besides,
    )


# Of a stage with few channels and a stride: tiles by the side of its squares.
FEW_CHANNELS = {2: ((256, 64), (256, 96)), 4: ((192, 96), (128, 64))}
ANY_LAYER = Conv(64, 8, 8, 64, 3, 3)

TERMS_SCALED, TERMS_SPLIT = stored_terms("pixels"), stored_terms("pixels_hi", "pixels_lo")

WGMMA_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-half",
        alias="wgmma-fp16",
        idea="persistent, warp-specialized implicit GEMM: wgmma from shared memory, which TMA fills (im2col mode)",
        family="wgmma",
        parent="mma-half",
        file="wgmma/wgmma_half.cu",
        launches=(multiply(NATIVE, "pixel_map", "filter_map", "y", "N", grouped=OWN_CHANNELS),),
        constants=tile_constants(NATIVE),
        precision="fp16",
        layout="nhwc",
        prepare=(prepare_native("order_filters", as_it_lies),),
        prepared=(filters(gathers=as_it_lies),),
        prepares_nhwc=of_one_group,
        maps=(pixel_map("pixel_map", "x", as_it_lies), filter_map("filter_map", "filters", as_it_lies)),
        refuses=refuses_unblocked,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=NETWORK_FEATURES,
        time=tiled(as_it_lies, value=2, prepares=False),
    ),
    Rung(
        "wgmma-half-blocked",
        alias="wgmma-s2d-fp16",
        idea="space-to-depth first, for few channels or a stride",
        family="wgmma",
        parent="wgmma-half",
        file="wgmma/wgmma_half_blocked.cu",
        launches=(
            block_input(where_it_pays),
            multiply(NATIVE, "pixel_map", "filter_map", "y", "N"),
            NATIVE_FULL_RANGE,
        ),
        constants=tile_constants(NATIVE),
        scratch=(of_tiles("infinite", where_it_pays), pixels(gathers=where_it_pays)),
        precision="fp16",
        layout="nhwc",
        prepare=(prepare_native("prepare_filters", where_it_pays),),
        prepared=(filters(gathers=where_it_pays),),
        maps=(pixel_map("pixel_map", "pixels", where_it_pays), filter_map("filter_map", "filters", where_it_pays)),
        refuses=refuses(NATIVE, where_it_pays),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=NETWORK_FEATURES,
        time=tiled(where_it_pays, value=2),
        dynamic=dynamic(
            partial(pipeline_bytes, NATIVE),
            where_it_pays,
            ((128, 64), (192, 64), (192, 128)),
            slower=1.25,
            besides=1.0,
        ),
    ),
    Rung(
        "wgmma-scaled",
        alias="wgmma-s",
        idea="the study's floats scaled and rounded to fp16: the accuracy of tf32 at twice its rate",
        family="wgmma",
        parent="wgmma-half-blocked",
        file="wgmma/wgmma_scaled.cu",
        launches=(
            *scale_input(1, where_it_pays),
            multiply(STUDY, "pixel_map", "filter_map", "exponents", "filter_exponents", "y", "N", terms=TERMS_SCALED),
            FULL_RANGE,
        ),
        constants=tile_constants(STUDY),
        scratch=(of_tiles("seen", where_it_pays), EXPONENTS, pixels(gathers=where_it_pays)),
        terms=TERMS_SCALED,
        precision="tf32",
        prepare=prepare_scaled(1, where_it_pays),
        prepared=(*SCALED_FILTERS, filters(gathers=where_it_pays)),
        maps=(pixel_map("pixel_map", "pixels", where_it_pays), filter_map("filter_map", "filters", where_it_pays)),
        refuses=refuses(STUDY, where_it_pays),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=tuple(FEATURES),
        time=tiled(where_it_pays),
        dynamic=dynamic(
            partial(pipeline_bytes, STUDY),
            where_it_pays,
            ((128, 64), (192, 64), (192, 96), (192, 128), (192, 192)),
            slower=1.25,
            besides=1.0,
        ),
    ),
    Rung(
        "wgmma-split",
        alias="wgmma-3x",
        idea="each float as hi and lo fp16 terms: three products have the accuracy of fp32",
        family="wgmma",
        parent="wgmma-scaled",
        file="wgmma/wgmma_split.cu",
        launches=(
            *scale_input(2, where_it_pays),
            multiply(
                STUDY_SPLIT,
                *("pixel_hi_map", "pixel_lo_map", "filter_hi_map", "filter_lo_map"),
                *("exponents", "filter_exponents", "y", "N"),
                terms=TERMS_SPLIT,
            ),
            FULL_RANGE,
        ),
        constants=tile_constants(STUDY_SPLIT),
        scratch=(
            of_tiles("seen", where_it_pays),
            EXPONENTS,
            pixels("pixels_hi", where_it_pays),
            pixels("pixels_lo", where_it_pays),
        ),
        terms=TERMS_SPLIT,
        precision="fp32",
        prepare=prepare_scaled(2, where_it_pays),
        prepared=(*SCALED_FILTERS, filters("filters_hi", where_it_pays), filters("filters_lo", where_it_pays)),
        maps=(
            pixel_map("pixel_hi_map", "pixels_hi", where_it_pays),
            pixel_map("pixel_lo_map", "pixels_lo", where_it_pays),
            filter_map("filter_hi_map", "filters_hi", where_it_pays),
            filter_map("filter_lo_map", "filters_lo", where_it_pays),
        ),
        refuses=refuses(STUDY_SPLIT, where_it_pays),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=tuple(FEATURES),
        products=3,
        time=tiled(where_it_pays, terms=2, products=3),
        dynamic=dynamic(
            partial(pipeline_bytes, STUDY_SPLIT),
            where_it_pays,
            ((128, 64), (192, 64), (192, 96), (192, 128), (256, 64)),
            slower=1.2,
            besides=1.0,
        ),
    ),
)
