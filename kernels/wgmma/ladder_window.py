"""The wgmma rungs that work from input windows in shared memory; their geometry is that of ``window.cuh``."""

from math import prod

from alexconv.kernels.geometry import FLOAT, HALF, HOPPER, Refusal, beyond_shared, round_up
from alexconv.kernels.preparation import FULL_RANGE, SCALED_FILTERS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import MICRO_BATCH, Constant, Launch, Rung, TensorMap
from alexconv.kernels.times import Time, values
from alexconv.kernels.wgmma.blocked import (
    CHUNK,
    ROW_BYTES,
    STAGE_TAPS,
    blocked_c,
    blocked_hw,
    blocked_rs,
    one_product,
    products,
    side,
)
from alexconv.kernels.wgmma.ladder import (
    ATOM_BYTES,
    EXPONENTS,
    FILTER_TILES,
    GRID_BLOCKS,
    MBARRIER_BYTES,
    NATIVE,
    NATIVE_FULL_RANGE,
    STAGES,
    STUDY,
    TAKES_PLACES,
    Operands,
    block_input,
    epilogue_bytes,
    filters,
    of_tiles,
    pixels,
    pixels_shape,
    prepare_native,
    prepare_scaled,
    refuses,
    scale_input,
    tiles_block,
    tiles_grid,
)
from alexconv.kernels.wgmma.times import by_positions, full_range

WINDOW_TILE = 128  # positions of two consumers' tiles, by default
BOX = 64  # rows of a window in one TMA copy
IMAGES = (32, 64, 128, 256, 512, 1024)  # of a micro-batch: multiples of 32 keep the next one's arrays aligned
L2_SHARE = 2 / 3  # that the blocked input may fill: x and y pass through L2 too
LEAST_OF_TILE, SLOWER = 1.1, 1.15  # microseconds; how much longer these kernels take than others like them


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
        filters = one_product(p.conv).M
        if p["TILE_FILTERS"] < filters:
            return f"{filters} filters exceed a tile's {p['TILE_FILTERS']}"
        if blocked_c(p.conv) > STAGE_TAPS:
            return f"{blocked_c(p.conv)} channels exceed the {STAGE_TAPS} of a row in shared memory"
        if p.conv.groups > 1 and side(p.conv) > 1:
            return f"{p.conv.groups} groups at stride {p.conv.U}: takes stride 1"
        if p["GRID_BLOCKS"] < products(p.conv):
            return f"{products(p.conv)} products for {p['GRID_BLOCKS']} blocks"
        if reason := beyond_shared(p.device, "windows and filters need", window_bytes(operands, p)):
            return reason
        return refuses(operands)(p.having(STAGES=min(STAGES)))

    return reason


def window_constants(operands: Operands) -> tuple[Constant, ...]:
    """The constants of a rung that works from windows: one tile has all filters."""

    def filters(p: Problem) -> int:
        return next((size for size in FILTER_TILES if size >= one_product(p.conv).M), max(FILTER_TILES))

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
    """The constant of a rung whose blocked input should stay in the L2 cache from one launch to the next."""

    def images(p: Problem) -> int:
        image_bytes = prod(pixels_shape()(p.over(1))) * HALF
        room = L2_SHARE * p.device.l2_bytes
        return max((number for number in IMAGES if number * image_bytes <= room), default=min(IMAGES))

    description = "images of a micro-batch; 0: the whole batch"
    return Constant(MICRO_BATCH, description, images, choices=(0, *IMAGES))


def position_map(name: str, array: str) -> TensorMap:
    """The map of the blocked input as rows of channels, one for each position of the batch."""
    return TensorMap(
        name,
        array,
        dims=lambda p: (blocked_c(p.conv), prod(pixels_shape()(p)[:-1]), 1),
        strides=lambda p: (blocked_c(p.conv) * HALF, prod(pixels_shape()(p)) * HALF),
        box=lambda p: (STAGE_TAPS, BOX, 1),
    )


def tap_map(name: str, array: str) -> TensorMap:
    """The map of the blocked filters; a box has one tap of all."""
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

    return Launch("multiply", args, tiles_grid, tiles_block, shared_bytes, pdl=True, stores=True)


def from_windows(value: int) -> Time:
    """The time of a rung that blocks its input, of ``value`` bytes each, and multiplies windows of it."""

    def busy(p: Problem) -> float:
        scaled = full_range(p, terms=1) if value == FLOAT else 0.0
        return by_positions(p, p["TILE_PIXELS"] / 2, 1, LEAST_OF_TILE) + scaled

    return Time(busy, values(0, value), values(value + HALF, 0), slower=SLOWER)


WINDOW_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-window-half",
        alias="wgmma-window-fp16",
        idea="a tile's inputs once in shared memory, a tap is an offset into them; ping-pong consumers",
        family="wgmma",
        parent="wgmma-half-blocked",
        file="wgmma/wgmma_window_half.cu",
        launches=(
            block_input(),
            multiply_windows(NATIVE, "position_map", "tap_map", "y", "N"),
            NATIVE_FULL_RANGE,
        ),
        constants=window_constants(NATIVE),
        scratch=(of_tiles("infinite"), pixels()),
        precision="fp16",
        layout="nhwc",
        prepare=(prepare_native("prepare_filters"),),
        prepared=(filters(),),
        maps=(position_map("position_map", "pixels"), tap_map("tap_map", "filters")),
        refuses=refuses_window(NATIVE),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=(*TAKES_PLACES, "groups"),
        time=from_windows(2),
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
        scratch=(of_tiles("seen"), EXPONENTS, pixels()),
        precision="tf32",
        prepare=prepare_scaled(1),
        prepared=(*SCALED_FILTERS, filters()),
        maps=(position_map("position_map", "pixels"), tap_map("tap_map", "filters")),
        refuses=refuses_window(STUDY),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=(*TAKES_PLACES, "groups"),
        time=from_windows(4),
    ),
)
