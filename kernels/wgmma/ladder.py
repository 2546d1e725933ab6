"""The wgmma rungs: implicit GEMM on Hopper's tensor cores by warpgroups, fed by TMA."""

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
from alexconv.kernels.preparation import FIND_FILTER_EXPONENTS, FULL_RANGE, SCALED_FILTERS, flat_block, full_range
from alexconv.kernels.problem import TYPICAL_BATCH, Problem
from alexconv.kernels.rung import MICRO_BATCH, Array, Constant, Dims, Launch, Rung, TensorMap
from alexconv.shapes import Conv

CHUNK = 8  # fp16 values in 16 bytes: the unit of TMA strides
STAGE_TAPS = 64  # a row of 128 bytes
ROW_BYTES = STAGE_TAPS * HALF
ATOM_BYTES = 1024  # of the 128-byte swizzle, to which stages are aligned
MBARRIER_BYTES = 8
WARPGROUP = 128
WGMMA_ROWS = 64  # M of one wgmma
ACCUMULATOR_REGISTERS = {2: 200, 3: 128}  # of a consumer's thread, by the number of consumers
LARGEST_WINDOW = 128  # rows of a filter that a tensor map can describe


@dataclass(frozen=True)
class Operands:
    """Terms of each operand (1: fp16; 2: hi and lo), and whether the epilogue writes the study's NCHW order.

    That epilogue transposes through shared memory (study_epilogue.cuh).
    """

    terms: int
    study: bool


EPILOGUE_FILTERS = 32  # of a consumer in the epilogue's two buffers
SKEW = 4  # floats of padding per filter
EPILOGUE_REGISTERS = 16  # beside the accumulators; with two terms, those of a stage are free by then
NATIVE, STUDY, STUDY_SPLIT = Operands(1, study=False), Operands(1, study=True), Operands(2, study=True)


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
    """The im2col map through which TMA gathers the blocked input.

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
        box=lambda p: (STAGE_TAPS, p["TILE_PIXELS"]),
        window=lambda p: (1, blocked_rs(p.conv)[0]),
    )


def filter_map(name: str, array: str) -> TensorMap:
    """The map of the blocked filters."""
    return TensorMap(
        name,
        array,
        dims=lambda p: (run(p.conv), blocked_rs(p.conv)[0], p.conv.M),
        strides=lambda p: (run(p.conv) * HALF, run(p.conv) * HALF * blocked_rs(p.conv)[0]),
        box=lambda p: (STAGE_TAPS, 1, p["TILE_FILTERS"]),
    )


def consumers(p: Problem) -> int:
    """Consumer warpgroups, which divide the pixels of a tile."""
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
        f"a thread needs {registers} registers for its accumulators, it can spare {spare}"
        if registers > spare
        else None
    )


def tile_cost(p: Problem, pixels: int, filters: int) -> int:
    """What a tile size costs at a usual batch: waves of tiles over all multiprocessors, times products and loads."""
    tiles = ceil(TYPICAL_BATCH * p.conv.E * p.conv.F / pixels) * ceil(p.conv.M / filters)
    load = 24  # products in the time in which one more pixel or filter is fetched for a tile
    return ceil(tiles / p.device.multiprocessors) * (pixels * filters + load * (pixels + filters))


PIXEL_TILES, FILTER_TILES = (128, 192, 256), (64, 96, 128, 192, 256)


def best_tile(operands: Operands) -> Callable[[Problem], tuple[int, int]]:
    """The tile size with the least cost among those whose accumulators fit the registers."""

    def found(p: Problem) -> tuple[int, int]:
        sizes = [
            (pixels, filters)
            for pixels in PIXEL_TILES
            for filters in FILTER_TILES
            if not too_many_accumulators(operands, p.having(TILE_PIXELS=pixels, TILE_FILTERS=filters))
        ]
        fitting = [(pixels, filters) for pixels, filters in sizes if p.conv.M % filters == 0] or sizes
        return min(fitting, key=lambda tile: tile_cost(p, *tile))

    return found


def most_stages(operands: Operands, p: Problem, tile: tuple[int, int]) -> int:
    """Stages that fit shared memory, at least as many as the kernel takes."""
    pixels, filters = tile
    fixed, one = (
        pipeline_bytes(operands, p.having(TILE_PIXELS=pixels, TILE_FILTERS=filters, STAGES=stages)) for stages in (0, 1)
    )
    return max(min(STAGES), min((p.device.shared_per_block - fixed) // (one - fixed), max(STAGES)))


GRID_BLOCKS = Constant(
    "GRID_BLOCKS",
    "blocks of the persistent grid, which divide the tiles among them",
    lambda p: p.device.multiprocessors,
    formerly=("BLOCKS",),
)
STAGES = (2, 3, 4, 5, 6, 7, 8)  # one is still being read while the next is in flight


def tile_constants(operands: Operands) -> tuple[Constant, ...]:
    """The constants of a rung with these operands."""
    tile = best_tile(operands)
    return (
        Constant("TILE_PIXELS", "output pixels of a tile", lambda p: tile(p)[0], choices=PIXEL_TILES),
        Constant("TILE_FILTERS", "filters of a tile", lambda p: tile(p)[1], choices=FILTER_TILES),
        Constant(
            "STAGES",
            "stages of the TMA pipeline, of 64 taps each",
            lambda p: most_stages(operands, p, tile(p)),
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


def block_c(conv: Conv) -> int:
    """Input channels of a block of ``prepare_input``"""
    if conv.U in (1, 2):
        return 64 // conv.U**2
    return 4 if conv.U % 4 == 0 else 8


def block_pixels(conv: Conv) -> int:
    """Blocked pixels of a block of ``prepare_input``"""
    return 64 if conv.U <= 4 else 32


def tiles_and_groups(conv: Conv) -> tuple[int, int]:
    """Blocks along the pixels and along the channels of an image; with stride 1 a plane is one long row."""
    height, width = blocked_hw(conv)
    rows, columns = (1, height * width) if conv.U == 1 else (height, width)
    return rows * ceil(columns / block_pixels(conv)), ceil(blocked_c(conv) / (block_c(conv) * conv.U**2))


def input_bytes(terms: int) -> SharedBytes:
    """Shared memory of ``prepare_input``: an fp16 tile, each pixel padded by two values."""
    return lambda p: terms * block_pixels(p.conv) * (block_c(p.conv) * p.conv.U**2 + 2) * HALF


def input_grid(p: Problem) -> Dims:
    """One block per tile of the plane, group of channels, and image."""
    return *tiles_and_groups(p.conv), p.N


def images_grid(p: Problem) -> Dims:
    """One block per image."""
    return 1, 1, p.N


def refuses(operands: Operands) -> Refusal:
    """The reason why such a rung does not take a problem."""

    def reason(p: Problem) -> str | None:
        if reason := beyond_shared(p.device, "a block needs", pipeline_bytes(operands, p)):
            return reason
        if reason := too_many_accumulators(operands, p):
            return reason
        if blocked_rs(p.conv)[0] > LARGEST_WINDOW:
            return f"a filter of {blocked_rs(p.conv)[0]} rows exceeds a tensor map's {LARGEST_WINDOW}"
        if p.conv.E * p.conv.F > 1 << 22:
            return f"an output plane of {p.conv.E * p.conv.F} pixels exceeds {1 << 22}"
        return beyond_shared(p.device, f"a stride of {p.conv.U} needs", input_bytes(operands.terms)(p))

    return reason


def refuses_unblocked(p: Problem) -> str | None:
    """The reason why TMA cannot gather the input in place."""
    if p.conv.U > 1 or p.conv.C % CHUNK:
        return f"{p.conv.C} channels and a stride of {p.conv.U}: the copy engine takes multiples of {CHUNK} and 1"
    return refuses(NATIVE)(p)


def filters_grid(p: Problem) -> Dims:
    """One block per row of a blocked filter."""
    return blocked_rs(p.conv)[0], p.conv.M, 1


FILTERS = Array("filters", filters_shape, HALF)
FILTERS_HI, FILTERS_LO = (Array(name, filters_shape, HALF) for name in ("filters_hi", "filters_lo"))
PIXELS = Array("pixels", pixels_shape, HALF)
PIXELS_HI, PIXELS_LO = (Array(name, pixels_shape, HALF) for name in ("pixels_hi", "pixels_lo"))
EXPONENTS = Array("exponents", lambda p: (p.N,))
SEEN = Array("seen", lambda p: (p.N, *reversed(tiles_and_groups(p.conv))))


def multiply(operands: Operands, *args: str) -> Launch:
    """The launch of the product itself."""

    def shared_bytes(p: Problem) -> int:
        return pipeline_bytes(operands, p)

    return Launch("multiply", args, tiles_grid, tiles_block, shared_bytes, pdl=True)


def prepare_scaled(terms: int) -> tuple[Launch, ...]:
    """The launches that scale the filters and write their terms."""
    operands = ("filters",) if terms == 1 else ("filters_hi", "filters_lo")
    return (
        FIND_FILTER_EXPONENTS,
        Launch("prepare_filters", ("w", "filter_exponents", *operands), filters_grid, flat_block),
    )


def scale_input(terms: int) -> tuple[Launch, ...]:
    """The launches that scale the input and write its terms."""
    operands, shared = ("pixels",) if terms == 1 else ("pixels_hi", "pixels_lo"), input_bytes(terms)
    return (
        Launch("prepare_input", ("x", "seen", *operands), input_grid, flat_block, shared),
        Launch("prepare_outliers", ("x", "seen", "exponents", *operands), images_grid, flat_block, shared, pdl=True),
    )


INFINITE = Array("infinite", lambda p: (p.N, *reversed(tiles_and_groups(p.conv))))
BLOCK_INPUT = Launch("prepare_input", ("x", "infinite", "pixels"), input_grid, flat_block, input_bytes(1))
PARTS = 4  # of an image with infinities that are computed side by side
NATIVE_FULL_RANGE = full_range(lambda p: (PARTS, 1, p.N), "x", "filters", "infinite", "y")

WINDOW_TILE = 128  # positions of two consumers' tiles, unless it is said otherwise
BOX = 64  # rows of a window that one TMA copy brings
IMAGES = (32, 64, 128, 256, 512, 1024)  # at a time: multiples of 32 keep the next ones' arrays aligned
L2_SHARE = 2 / 3  # that the blocked input may fill: x and y pass through the cache too


def window_bytes(operands: Operands, p: Problem) -> int:
    """Shared memory of the multiplication from windows: windows, all filters, mbarriers, epilogue, alignment."""
    R, S = blocked_rs(p.conv)
    furthest = (R - 1) * blocked_hw(p.conv)[1] + S - 1
    window = round_up(p["TILE_PIXELS"] // 2 + furthest, BOX) * ROW_BYTES
    filters = R * S * p["TILE_FILTERS"] * ROW_BYTES
    output = epilogue_bytes(p) if operands.study else CHUNK
    return p["STAGES"] * (window + 2 * MBARRIER_BYTES) + filters + 3 * MBARRIER_BYTES + output + ATOM_BYTES


def refuses_window(operands: Operands) -> Refusal:
    """What a rung that works from windows cannot take."""

    def reason(p: Problem) -> str | None:
        if p["TILE_FILTERS"] < p.conv.M:
            return f"{p.conv.M} filters exceed a tile's {p['TILE_FILTERS']}"
        if blocked_c(p.conv) > STAGE_TAPS:
            return f"{blocked_c(p.conv)} channels exceed the {STAGE_TAPS} of a row in shared memory"
        if reason := beyond_shared(p.device, "windows and filters need", window_bytes(operands, p)):
            return reason
        return refuses(operands)(p.having(STAGES=min(STAGES)))

    return reason


def window_constants(operands: Operands) -> tuple[Constant, ...]:
    """The constants of a rung that works from windows: one tile has all filters."""

    def filters(p: Problem) -> int:
        return next((size for size in FILTER_TILES if size >= p.conv.M), max(FILTER_TILES))

    def stages(p: Problem) -> int:
        fixed, one = (
            window_bytes(operands, p.having(TILE_PIXELS=WINDOW_TILE, TILE_FILTERS=filters(p), STAGES=number))
            for number in (0, 1)
        )
        return max(2, min((p.device.shared_per_block - fixed) // (one - fixed), max(STAGES)))

    return (
        Constant("TILE_PIXELS", "positions of both consumers' tiles", lambda p: WINDOW_TILE, choices=(128, 256)),
        Constant("TILE_FILTERS", "filters of a tile", filters, choices=FILTER_TILES),
        Constant("STAGES", "stages of the TMA pipeline, of a window each", stages, choices=STAGES),
        GRID_BLOCKS,
    )


def images_in_cache() -> Constant:
    """The constant of a rung whose blocked input should lie in the L2 cache from one launch to the next."""

    def images(p: Problem) -> int:
        image_bytes = prod(pixels_shape(p.over(1))) * HALF
        room = L2_SHARE * p.device.l2_bytes
        return max((number for number in IMAGES if number * image_bytes <= room), default=min(IMAGES))

    formerly = ("IMAGES_AT_A_TIME",)
    what = "images of a micro-batch; 0: the whole batch"
    return Constant(MICRO_BATCH, what, images, choices=(0, *IMAGES), formerly=formerly)


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
        box=lambda p: (STAGE_TAPS, BOX, 1),
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
        box=lambda p: (STAGE_TAPS, 1, p["TILE_FILTERS"]),
    )


def multiply_windows(operands: Operands, *args: str) -> Launch:
    """The launch of the product from windows."""

    def shared_bytes(p: Problem) -> int:
        return window_bytes(operands, p)

    return Launch("multiply", args, tiles_grid, tiles_block, shared_bytes, pdl=True)


WGMMA_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-half",
        alias="wgmma-fp16",
        idea="persistent, warp-specialized implicit GEMM: wgmma from shared memory, which TMA fills (im2col mode)",
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
        tensor_factors="fp16",
    ),
    Rung(
        "wgmma-half-blocked",
        alias="wgmma-s2d-fp16",
        idea="space-to-depth first, for few channels or a stride",
        family="wgmma",
        parent="wgmma-half",
        file="wgmma/wgmma_half_blocked.cu",
        launches=(
            BLOCK_INPUT,
            multiply(NATIVE, "pixel_map", "filter_map", "y", "N"),
            NATIVE_FULL_RANGE,
        ),
        constants=tile_constants(NATIVE),
        scratch=(INFINITE, PIXELS),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
        prepare=(Launch("prepare_filters", ("w", "filters"), filters_grid, flat_block),),
        prepared=(FILTERS,),
        maps=(pixel_map("pixel_map", "pixels"), filter_map("filter_map", "filters")),
        refuses=refuses(NATIVE),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
    ),
    Rung(
        "wgmma-scaled",
        alias="wgmma-s",
        idea="the study's floats scaled and rounded to fp16: the accuracy of tf32 at twice its rate",
        family="wgmma",
        parent="wgmma-half-blocked",
        file="wgmma/wgmma_scaled.cu",
        launches=(
            *scale_input(1),
            multiply(STUDY, "pixel_map", "filter_map", "exponents", "filter_exponents", "y", "N"),
            FULL_RANGE,
        ),
        constants=tile_constants(STUDY),
        scratch=(SEEN, EXPONENTS, PIXELS),
        precision="tf32",
        prepare=prepare_scaled(1),
        prepared=(*SCALED_FILTERS, FILTERS),
        maps=(pixel_map("pixel_map", "pixels"), filter_map("filter_map", "filters")),
        refuses=refuses(STUDY),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        formerly=("wgmma-tf32",),
    ),
    Rung(
        "wgmma-split",
        alias="wgmma-3x",
        idea="each float as hi and lo fp16 terms: three products have the accuracy of fp32",
        family="wgmma",
        parent="wgmma-scaled",
        file="wgmma/wgmma_split.cu",
        launches=(
            *scale_input(2),
            multiply(
                STUDY_SPLIT,
                *("pixel_hi_map", "pixel_lo_map", "filter_hi_map", "filter_lo_map"),
                *("exponents", "filter_exponents", "y", "N"),
            ),
            FULL_RANGE,
        ),
        constants=tile_constants(STUDY_SPLIT),
        scratch=(SEEN, EXPONENTS, PIXELS_HI, PIXELS_LO),
        precision="fp32",
        prepare=prepare_scaled(2),
        prepared=(*SCALED_FILTERS, FILTERS_HI, FILTERS_LO),
        maps=(
            pixel_map("pixel_hi_map", "pixels_hi"),
            pixel_map("pixel_lo_map", "pixels_lo"),
            filter_map("filter_hi_map", "filters_hi"),
            filter_map("filter_lo_map", "filters_lo"),
        ),
        refuses=refuses(STUDY_SPLIT),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        products=3,
    ),
    Rung(
        "wgmma-window-half",
        alias="wgmma-window-fp16",
        idea="a tile's inputs once in shared memory, a tap is an offset into them; ping-pong consumers",
        family="wgmma",
        parent="wgmma-half-blocked",
        file="wgmma/wgmma_window_half.cu",
        launches=(
            BLOCK_INPUT,
            multiply_windows(NATIVE, "position_map", "tap_map", "y", "N"),
            NATIVE_FULL_RANGE,
        ),
        constants=window_constants(NATIVE),
        scratch=(INFINITE, PIXELS),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
        prepare=(Launch("prepare_filters", ("w", "filters"), filters_grid, flat_block),),
        prepared=(FILTERS,),
        maps=(position_map("position_map", "pixels"), tap_map("tap_map", "filters")),
        refuses=refuses_window(NATIVE),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
    ),
    Rung(
        "wgmma-window-scaled",
        alias="wgmma-window-s",
        idea="windows of the study's floats, scaled and rounded to fp16",
        family="wgmma",
        parent="wgmma-scaled",
        file="wgmma/wgmma_window_scaled.cu",
        launches=(
            *scale_input(1),
            multiply_windows(STUDY, "position_map", "tap_map", "exponents", "filter_exponents", "y", "N"),
            FULL_RANGE,
        ),
        constants=(*window_constants(STUDY), images_in_cache()),
        scratch=(SEEN, EXPONENTS, PIXELS),
        precision="tf32",
        prepare=prepare_scaled(1),
        prepared=(*SCALED_FILTERS, FILTERS),
        maps=(position_map("position_map", "pixels"), tap_map("tap_map", "filters")),
        refuses=refuses_window(STUDY),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        formerly=("wgmma-window-tf32",),
    ),
)
