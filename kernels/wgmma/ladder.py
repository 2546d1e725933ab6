"""The rungs on Hopper's tensor cores: implicit GEMM by warpgroups, fed by the copy engine."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod

from alexconv.kernels.geometry import (
    FLOAT,
    HALF,
    HOPPER,
    Refusal,
    SharedBytes,
    beyond_shared,
    round_up,
)
from alexconv.kernels.preparation import FILTER_EXPONENT, RANGES_OF_FILTERS, flat_block, ranges_grid
from alexconv.kernels.problem import TYPICAL_BATCH, Problem
from alexconv.kernels.rung import IMAGES_AT_A_TIME, Array, Constant, Dims, Launch, Rung, TensorMap
from alexconv.shapes import Conv

CHUNK = 8  # halves in 16 bytes: the unit of the copy engine's strides
TAPS = 64  # of a stage: a row of 128 bytes
ROW_BYTES = TAPS * HALF
ATOM_BYTES = 1024  # to which the ring of stages is aligned
BARRIER_BYTES = 16  # two barriers for each stage
WARPGROUP = 128
UNIT = 64  # pixels in one product of a warpgroup
SUM_REGISTERS = {2: 200, 3: 128}  # that a consumer's thread can spare, by the number of consumers
LARGEST_WINDOW = 128  # rows of a filter that a tensor map can describe


@dataclass(frozen=True)
class Factors:
    """How the factors of a product come, and its sums go: parts of each number, and the order of the output.

    The study's order is stored by way of shared memory; as in study_output.cuh.
    """

    parts: int
    study: bool


STORED_FILTERS = 32  # of a consumer that are on their way out at a time
SKEW = 4  # floats between two filters' rows of sums
STORE_REGISTERS = 16  # that the study's order takes beside the sums; where two parts were, theirs are free by then
NATIVE, STUDY, STUDY_SPLIT = Factors(1, study=False), Factors(1, study=True), Factors(2, study=True)


def blocked_c(conv: Conv) -> int:
    """Channels of the blocked layer: U*U times as many, and a multiple of eight."""
    return round_up(conv.C * conv.U**2, CHUNK)


def blocked_rs(conv: Conv) -> tuple[int, int]:
    """Rows and columns of a blocked filter."""
    return ceil(conv.R / conv.U), ceil(conv.S / conv.U)


def blocked_hw(conv: Conv) -> tuple[int, int]:
    """Rows and columns of a blocked plane."""
    R, S = blocked_rs(conv)
    return conv.E + R - 1, conv.F + S - 1


def run(conv: Conv) -> int:
    """Taps of one row of a blocked filter."""
    return blocked_rs(conv)[1] * blocked_c(conv)


def pixels_shape(p: Problem) -> tuple[int, ...]:
    """The blocked input."""
    return p.N, *blocked_hw(p.conv), blocked_c(p.conv)


def filters_shape(p: Problem) -> tuple[int, ...]:
    """The blocked filters."""
    return p.conv.M, blocked_rs(p.conv)[0], run(p.conv)


def pixel_map(name: str, array: str) -> TensorMap:
    """The map through which the blocked input is gathered.

    A row of a filter meets neighbouring pixels, which are neighbours in memory: so a pixel of the map is such a row,
    and pixels overlap.  The window has one column.
    """
    return TensorMap(
        name,
        array,
        dims=lambda p: (run(p.conv), p.conv.F, blocked_hw(p.conv)[0], p.N),
        strides=lambda p: (
            blocked_c(p.conv) * HALF,
            blocked_hw(p.conv)[1] * blocked_c(p.conv) * HALF,
            blocked_hw(p.conv)[0] * blocked_hw(p.conv)[1] * blocked_c(p.conv) * HALF,
        ),
        box=lambda p: (TAPS, p["TILE_PIXELS"]),
        window=lambda p: (1, blocked_rs(p.conv)[0]),
    )


def filter_map(name: str, array: str) -> TensorMap:
    """The map of the blocked filters."""
    return TensorMap(
        name,
        array,
        dims=lambda p: (run(p.conv), blocked_rs(p.conv)[0], p.conv.M),
        strides=lambda p: (run(p.conv) * HALF, run(p.conv) * HALF * blocked_rs(p.conv)[0]),
        box=lambda p: (TAPS, 1, p["TILE_FILTERS"]),
    )


def consumers(p: Problem) -> int:
    """Warpgroups that share the pixels of a tile."""
    return 2 if p["TILE_PIXELS"] % (2 * UNIT) == 0 else 3


def stored_bytes(p: Problem) -> int:
    """Shared memory through which the sums of all consumers leave in the study's order, four floats more a filter."""
    return consumers(p) * STORED_FILTERS * (UNIT + SKEW) * FLOAT


def ring_bytes(factors: Factors, p: Problem) -> int:
    """Shared memory of the multiplication: stages, barriers, the way out, and what aligning them may cost."""
    stage = (p["TILE_PIXELS"] + p["TILE_FILTERS"]) * ROW_BYTES * factors.parts
    output = stored_bytes(p) if factors.study else CHUNK
    return p["STAGES"] * (stage + BARRIER_BYTES) + output + ATOM_BYTES


def sums(factors: Factors, p: Problem) -> int:
    """Registers of a consumer's thread for sums; those of a stage come on top where there are two parts."""
    units = p["TILE_PIXELS"] // (UNIT * consumers(p))
    return (units + factors.parts - 1) * p["TILE_FILTERS"] // 2


def too_many_sums(factors: Factors, p: Problem) -> str | None:
    """Why the registers of a consumer's thread do not hold its sums, or None."""
    registers, spare = sums(factors, p), SUM_REGISTERS[consumers(p)]
    if factors.study and consumers(p) > 2:
        spare -= STORE_REGISTERS * (2 - factors.parts)
    return f"a thread needs {registers} registers for its sums, it can spare {spare}" if registers > spare else None


def tile_cost(p: Problem, pixels: int, filters: int) -> int:
    """What a tile size costs at a usual batch: rounds of tiles over all multiprocessors, times products and loads."""
    tiles = ceil(TYPICAL_BATCH * p.conv.E * p.conv.F / pixels) * ceil(p.conv.M / filters)
    load = 24  # products in the time in which one more pixel or filter is brought to a tile
    return ceil(tiles / p.device.multiprocessors) * (pixels * filters + load * (pixels + filters))


PIXEL_TILES, FILTER_TILES = (128, 192, 256), (64, 96, 128, 192, 256)


def best_tile(factors: Factors) -> Callable[[Problem], tuple[int, int]]:
    """The tile size with the least cost among those whose sums fit the registers."""

    def found(p: Problem) -> tuple[int, int]:
        sizes = [
            (pixels, filters)
            for pixels in PIXEL_TILES
            for filters in FILTER_TILES
            if not too_many_sums(factors, p.having(TILE_PIXELS=pixels, TILE_FILTERS=filters))
        ]
        fitting = [(pixels, filters) for pixels, filters in sizes if p.conv.M % filters == 0] or sizes
        return min(fitting, key=lambda tile: tile_cost(p, *tile))

    return found


def most_stages(factors: Factors, p: Problem, tile: tuple[int, int]) -> int:
    """Stages that fit shared memory, at least as many as the kernel takes."""
    pixels, filters = tile
    fixed, one = (
        ring_bytes(factors, p.having(TILE_PIXELS=pixels, TILE_FILTERS=filters, STAGES=stages)) for stages in (0, 1)
    )
    return max(min(STAGES), min((p.device.shared_per_block - fixed) // (one - fixed), max(STAGES)))


STAGES = (2, 3, 4, 5, 6, 7, 8)  # one is still being read while the next is under way


def tile_constants(factors: Factors) -> tuple[Constant, ...]:
    """The constants of a rung with such factors."""
    tile = best_tile(factors)
    return (
        Constant("TILE_PIXELS", "output pixels of a tile", lambda p: tile(p)[0], choices=PIXEL_TILES),
        Constant("TILE_FILTERS", "filters of a tile", lambda p: tile(p)[1], choices=FILTER_TILES),
        Constant(
            "STAGES",
            "blocks of 64 taps on their way to the tensor cores",
            lambda p: most_stages(factors, p, tile(p)),
            choices=STAGES,
        ),
        Constant("BLOCKS", "blocks of the grid, which share the tiles", lambda p: p.device.multiprocessors),
    )


def tiles_grid(p: Problem) -> Dims:
    """As many blocks as there are multiprocessors, each with several tiles."""
    return p["BLOCKS"], 1, 1


def tiles_block(p: Problem) -> Dims:
    """A producer and the consumers, a warpgroup each."""
    return WARPGROUP * (1 + consumers(p)), 1, 1


def block_c(conv: Conv) -> int:
    """Input channels of a block of ``prepare_input``; as in blocked.cuh."""
    if conv.U in (1, 2):
        return 64 // conv.U**2
    return 4 if conv.U % 4 == 0 else 8


def block_pixels(conv: Conv) -> int:
    """Blocked pixels of a block of ``prepare_input``; as in blocked.cuh."""
    return 64 if conv.U <= 4 else 32


def tiles_and_groups(conv: Conv) -> tuple[int, int]:
    """Blocks along the pixels and along the channels of an image; with stride 1 a plane is one long row."""
    height, width = blocked_hw(conv)
    rows, columns = (1, height * width) if conv.U == 1 else (height, width)
    return rows * ceil(columns / block_pixels(conv)), ceil(blocked_c(conv) / (block_c(conv) * conv.U**2))


def input_bytes(parts: int) -> SharedBytes:
    """Shared memory of ``prepare_input``: a tile in halves, two more for each pixel."""
    return lambda p: parts * block_pixels(p.conv) * (block_c(p.conv) * p.conv.U**2 + 2) * HALF


def input_grid(p: Problem) -> Dims:
    """One block per tile of the plane, group of channels, and image."""
    return *tiles_and_groups(p.conv), p.N


def images_grid(p: Problem) -> Dims:
    """One block per image."""
    return 1, 1, p.N


def refuses(factors: Factors) -> Refusal:
    """What such a rung cannot take."""

    def reason(p: Problem) -> str | None:
        if reason := beyond_shared(p.device, "a block needs", ring_bytes(factors, p)):
            return reason
        if reason := too_many_sums(factors, p):
            return reason
        if blocked_rs(p.conv)[0] > LARGEST_WINDOW:
            return f"a filter of {blocked_rs(p.conv)[0]} rows exceeds a tensor map's {LARGEST_WINDOW}"
        if p.conv.E * p.conv.F > 1 << 22:
            return f"an output plane of {p.conv.E * p.conv.F} pixels exceeds {1 << 22}"
        return beyond_shared(p.device, f"a stride of {p.conv.U} needs", input_bytes(factors.parts)(p))

    return reason


def refuses_unblocked(p: Problem) -> str | None:
    """What does not serve as it lies."""
    if p.conv.U > 1 or p.conv.C % CHUNK:
        return f"{p.conv.C} channels and a stride of {p.conv.U}: the copy engine takes multiples of {CHUNK} and 1"
    return refuses(NATIVE)(p)


def filters_grid(p: Problem) -> Dims:
    """One block per row of a blocked filter."""
    return blocked_rs(p.conv)[0], p.conv.M, 1


FILTERS = Array("filters", filters_shape, HALF)
FILTERS_REST = Array("filters_rest", filters_shape, HALF)
PIXELS = Array("pixels", pixels_shape, HALF)
PIXELS_REST = Array("pixels_rest", pixels_shape, HALF)
EXPONENTS = Array("exponents", lambda p: (p.N,))
RANGES = Array("ranges", lambda p: (p.N, *reversed(tiles_and_groups(p.conv))))


def multiply(factors: Factors, *args: str) -> Launch:
    """The launch of the product itself."""

    def shared_bytes(p: Problem) -> int:
        return ring_bytes(factors, p)

    return Launch("multiply", args, tiles_grid, tiles_block, shared_bytes, pdl=True)


def prepare_scaled(parts: int) -> tuple[Launch, ...]:
    """The launches that scale the filters and write so many parts of them."""
    blocked = ("filters", "filters_rest")[:parts]
    return (
        Launch("find_filter_ranges", ("w", "filter_ranges"), ranges_grid, flat_block),
        Launch("prepare_filters", ("w", "filter_ranges", "filter_exponent", *blocked), filters_grid, flat_block),
    )


def scale_input(parts: int) -> tuple[Launch, ...]:
    """The launches that scale the input and write so many parts of it."""
    blocked, shared = ("pixels", "pixels_rest")[:parts], input_bytes(parts)
    return (
        Launch("prepare_input", ("x", "ranges", *blocked), input_grid, flat_block, shared),
        Launch("prepare_outliers", ("x", "ranges", "exponents", *blocked), images_grid, flat_block, shared, pdl=True),
    )


WINDOW_TILE = 128  # positions of two consumers' tiles, unless it is said otherwise
BOX = 64  # rows of a window that the copy engine brings at a time
IMAGES = (32, 64, 128, 256, 512, 1024)  # at a time: multiples of 32 keep the next ones' arrays aligned
L2_SHARE = 2 / 3  # that the blocked input may fill: x and y pass through the cache too


def window_bytes(factors: Factors, p: Problem) -> int:
    """Shared memory of the multiplication from windows: windows, all filters, barriers, the way out, alignment."""
    R, S = blocked_rs(p.conv)
    furthest = (R - 1) * blocked_hw(p.conv)[1] + S - 1
    window = round_up(p["TILE_PIXELS"] // 2 + furthest, BOX) * ROW_BYTES
    filters = R * S * p["TILE_FILTERS"] * ROW_BYTES
    output = stored_bytes(p) if factors.study else CHUNK
    return p["STAGES"] * (window + BARRIER_BYTES) + filters + 2 * BARRIER_BYTES + output + ATOM_BYTES


def refuses_window(factors: Factors) -> Refusal:
    """What a rung that works from windows cannot take."""

    def reason(p: Problem) -> str | None:
        if p["TILE_FILTERS"] < p.conv.M:
            return f"{p.conv.M} filters exceed a tile's {p['TILE_FILTERS']}"
        if blocked_c(p.conv) > TAPS:
            return f"{blocked_c(p.conv)} channels exceed the {TAPS} of a row in shared memory"
        if reason := beyond_shared(p.device, "windows and filters need", window_bytes(factors, p)):
            return reason
        return refuses(factors)(p.having(STAGES=min(STAGES)))

    return reason


def window_constants(factors: Factors) -> tuple[Constant, ...]:
    """The constants of a rung that works from windows: one tile has all filters."""

    def filters(p: Problem) -> int:
        return next((size for size in FILTER_TILES if size >= p.conv.M), max(FILTER_TILES))

    def stages(p: Problem) -> int:
        fixed, one = (
            window_bytes(factors, p.having(TILE_PIXELS=WINDOW_TILE, TILE_FILTERS=filters(p), STAGES=number))
            for number in (0, 1)
        )
        return max(2, min((p.device.shared_per_block - fixed) // (one - fixed), max(STAGES)))

    return (
        Constant("TILE_PIXELS", "positions of both consumers' tiles", lambda p: WINDOW_TILE, choices=(128, 256)),
        Constant("TILE_FILTERS", "filters of a tile", filters, choices=FILTER_TILES),
        Constant("STAGES", "windows on their way to the tensor cores", stages, choices=STAGES),
        Constant("BLOCKS", "blocks of the grid, which share the tiles", lambda p: p.device.multiprocessors),
    )


def images_in_cache() -> Constant:
    """The constant of a rung whose blocked input should lie in the L2 cache from one launch to the next."""

    def images(p: Problem) -> int:
        image_bytes = prod(pixels_shape(p.over(1))) * HALF
        room = L2_SHARE * p.device.l2_bytes
        return max((number for number in IMAGES if number * image_bytes <= room), default=min(IMAGES))

    return Constant(IMAGES_AT_A_TIME, "images taken at a time; 0: the whole batch", images, choices=(0, *IMAGES))


def position_map(name: str, array: str) -> TensorMap:
    """The map of the blocked input as rows of channels, one for each position of the batch."""
    return TensorMap(
        name,
        array,
        dims=lambda p: (blocked_c(p.conv), p.N * prod(blocked_hw(p.conv)), 1),
        strides=lambda p: (
            blocked_c(p.conv) * HALF,
            p.N * prod(blocked_hw(p.conv)) * blocked_c(p.conv) * HALF,
        ),
        box=lambda p: (TAPS, BOX, 1),
    )


def tap_map(name: str, array: str) -> TensorMap:
    """The map of the blocked filters of which a box has one tap of all."""
    return TensorMap(
        name,
        array,
        dims=lambda p: (blocked_c(p.conv), prod(blocked_rs(p.conv)), p.conv.M),
        strides=lambda p: (
            blocked_c(p.conv) * HALF,
            prod(blocked_rs(p.conv)) * blocked_c(p.conv) * HALF,
        ),
        box=lambda p: (TAPS, 1, p["TILE_FILTERS"]),
    )


def multiply_windows(factors: Factors, *args: str) -> Launch:
    """The launch of the product from windows."""

    def shared_bytes(p: Problem) -> int:
        return window_bytes(factors, p)

    return Launch("multiply", args, tiles_grid, tiles_block, shared_bytes, pdl=True)


WGMMA_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-half",
        alias="wgmma-fp16",
        idea="products by warpgroups straight from shared memory, which the copy engine (TMA) fills",
        family="wgmma",
        parent="mma-half",
        file="wgmma/wgmma_half.cu",
        launches=(multiply(NATIVE, "pixel_map", "filter_map", "y", "N"),),
        constants=tile_constants(NATIVE),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
        prepare=(Launch("order_filters", ("w", "filters"), filters_grid, flat_block),),
        prepared=(FILTERS,),
        maps=(pixel_map("pixel_map", "x"), filter_map("filter_map", "filters")),
        refuses=refuses_unblocked,
        min_capability=HOPPER,
        exact_capability=True,
    ),
    Rung(
        "wgmma-half-blocked",
        alias="wgmma-s2d-fp16",
        idea="space-to-depth first, for few channels or a stride",
        family="wgmma",
        parent="wgmma-half",
        file="wgmma/wgmma_half_blocked.cu",
        launches=(
            Launch("prepare_input", ("x", "pixels"), input_grid, flat_block, input_bytes(1)),
            multiply(NATIVE, "pixel_map", "filter_map", "y", "N"),
        ),
        constants=tile_constants(NATIVE),
        scratch=(PIXELS,),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
        prepare=(Launch("prepare_filters", ("w", "filters"), filters_grid, flat_block),),
        prepared=(FILTERS,),
        maps=(pixel_map("pixel_map", "pixels"), filter_map("filter_map", "filters")),
        refuses=refuses(NATIVE),
        min_capability=HOPPER,
        exact_capability=True,
    ),
    Rung(
        "wgmma-tf32",
        alias="wgmma-scaled",
        idea="the study's floats scaled and rounded to halves: tf32's accuracy at twice its speed",
        family="wgmma",
        parent="wgmma-half-blocked",
        file="wgmma/wgmma_tf32.cu",
        launches=(
            *scale_input(1),
            multiply(STUDY, "pixel_map", "filter_map", "exponents", "filter_exponent", "y", "N"),
        ),
        constants=tile_constants(STUDY),
        scratch=(RANGES, EXPONENTS, PIXELS),
        precision="tf32",
        prepare=prepare_scaled(1),
        prepared=(RANGES_OF_FILTERS, FILTER_EXPONENT, FILTERS),
        maps=(pixel_map("pixel_map", "pixels"), filter_map("filter_map", "filters")),
        refuses=refuses(STUDY),
        min_capability=HOPPER,
        exact_capability=True,
    ),
    Rung(
        "wgmma-split",
        alias="wgmma-3x",
        idea="each float as two halves: three products have the accuracy of fp32",
        family="wgmma",
        parent="wgmma-tf32",
        file="wgmma/wgmma_split.cu",
        launches=(
            *scale_input(2),
            multiply(
                STUDY_SPLIT,
                *("pixel_map", "pixel_rest_map", "filter_map", "filter_rest_map"),
                *("exponents", "filter_exponent", "y", "N"),
            ),
        ),
        constants=tile_constants(STUDY_SPLIT),
        scratch=(RANGES, EXPONENTS, PIXELS, PIXELS_REST),
        precision="fp32",
        prepare=prepare_scaled(2),
        prepared=(RANGES_OF_FILTERS, FILTER_EXPONENT, FILTERS, FILTERS_REST),
        maps=(
            pixel_map("pixel_map", "pixels"),
            pixel_map("pixel_rest_map", "pixels_rest"),
            filter_map("filter_map", "filters"),
            filter_map("filter_rest_map", "filters_rest"),
        ),
        refuses=refuses(STUDY_SPLIT),
        min_capability=HOPPER,
        exact_capability=True,
    ),
    Rung(
        "wgmma-window-half",
        alias="wgmma-window-fp16",
        idea="a tile's inputs once in shared memory: a tap is another place to begin reading them",
        family="wgmma",
        parent="wgmma-half-blocked",
        file="wgmma/wgmma_window_half.cu",
        launches=(
            Launch("prepare_input", ("x", "pixels"), input_grid, flat_block, input_bytes(1)),
            multiply_windows(NATIVE, "position_map", "tap_map", "y", "N"),
        ),
        constants=window_constants(NATIVE),
        scratch=(PIXELS,),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
        prepare=(Launch("prepare_filters", ("w", "filters"), filters_grid, flat_block),),
        prepared=(FILTERS,),
        maps=(position_map("position_map", "pixels"), tap_map("tap_map", "filters")),
        refuses=refuses_window(NATIVE),
        min_capability=HOPPER,
        exact_capability=True,
    ),
    Rung(
        "wgmma-window-tf32",
        alias="wgmma-window-scaled",
        idea="windows of the study's floats, scaled and rounded to halves",
        family="wgmma",
        parent="wgmma-tf32",
        file="wgmma/wgmma_window_tf32.cu",
        launches=(
            *scale_input(1),
            multiply_windows(STUDY, "position_map", "tap_map", "exponents", "filter_exponent", "y", "N"),
        ),
        constants=(*window_constants(STUDY), images_in_cache()),
        scratch=(RANGES, EXPONENTS, PIXELS),
        precision="tf32",
        prepare=prepare_scaled(1),
        prepared=(RANGES_OF_FILTERS, FILTER_EXPONENT, FILTERS),
        maps=(position_map("position_map", "pixels"), tap_map("tap_map", "filters")),
        refuses=refuses_window(STUDY),
        min_capability=HOPPER,
        exact_capability=True,
    ),
)
