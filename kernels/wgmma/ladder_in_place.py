"""The rung with windows of the unprepared input, on Hopper's tensor cores; ``window_in_place.cuh``."""

from math import ceil

from alexconv.kernels.geometry import HALF, HOPPER, beyond_shared, round_up
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Constant, Launch, Rung, TensorMap
from alexconv.kernels.times import CLOCK, TILE, Time, values
from alexconv.kernels.wgmma.blocked import (
    CHUNK,
    MMA_K,
    ROW_BYTES,
    STAGE_TAPS,
    WGMMA_ROWS,
    one_product,
    products,
    unaligned,
)
from alexconv.kernels.wgmma.ladder import (
    ATOM_BYTES,
    GRID_BLOCKS,
    LARGEST_WINDOW,
    MBARRIER_BYTES,
    NATIVE,
    OWN_CHANNELS,
    STAGES,
    TAKES_PLACES,
    beyond_plane,
    prepare_native,
    tiles_block,
    tiles_grid,
    too_many_accumulators,
)
from alexconv.kernels.wgmma.times import ALONE, FROM_CACHE, TILE_SIZES, WGMMA
from alexconv.shapes import Conv

MOST_OF_BOX = 256  # positions of one TMA copy
ATOM_ROWS = ATOM_BYTES // ROW_BYTES
CONSUMERS = 2
POSITION_TILES = (128, 256)  # of both consumers
FILTER_TILES = (32, 64, 96, 128, 160, 192, 256)
USUAL_STAGES = 4  # at most: each is a whole tile's window
LEAST_OF_TILE = 0.7  # microseconds
SHARED = 32  # channels, or filters, of groups that share a product: a wgmma reads more rows, but multiplies fewer zeros
ONE_OF_MANY = 1.2  # how much longer a tile takes where a block has several
READ_ROWS, READ_FILTER = 16.0, 0.25  # cycles in which a wgmma reads its rows from shared memory, and a filter


def packed_k(conv: Conv) -> int:
    """Values of K: the channels of one tap after the other, each in whole steps."""
    return conv.R * conv.S * round_up(one_product(conv, SHARED).C, MMA_K)


def boxes(p: Problem) -> tuple[int, int]:
    """Boxes of a window, and positions of one."""
    conv = p.conv
    rows = p["TILE_PIXELS"] // CONSUMERS + (conv.R - 1) * conv.padded[1] + conv.S - 1
    count = ceil(rows / MOST_OF_BOX)
    return count, round_up(ceil(rows / count), ATOM_ROWS)


def filter_bytes(p: Problem) -> int:
    """The filters of a tile in shared memory."""
    return ceil(packed_k(p.conv) / STAGE_TAPS) * p["TILE_FILTERS"] * ROW_BYTES


def window_bytes(p: Problem) -> int:
    """A tile's window in shared memory: a plane for each slice of the channels."""
    count, positions = boxes(p)
    return ceil(one_product(p.conv, SHARED).C / STAGE_TAPS) * count * positions * ROW_BYTES


def in_place_bytes(p: Problem) -> int:
    """Shared memory of the multiplication: windows, filters, barriers, alignment."""
    barriers = 2 * p["STAGES"] + ceil(packed_k(p.conv) / STAGE_TAPS) + CONSUMERS
    return p["STAGES"] * window_bytes(p) + filter_bytes(p) + CHUNK + barriers * MBARRIER_BYTES + ATOM_BYTES


def tiles_of_filters(p: Problem) -> int:
    """Tiles along the filters."""
    return products(p.conv, SHARED) * ceil(one_product(p.conv, SHARED).M / p["TILE_FILTERS"])


def tiles_of_image(p: Problem) -> int:
    """Tiles of an image up to its last output, one consumer each."""
    conv = p.conv
    return ceil(((conv.E - 1) * conv.padded[1] + conv.F) / (p["TILE_PIXELS"] // CONSUMERS))


def refuses_in_place(p: Problem) -> str | None:
    """What the rung cannot take."""
    conv = p.conv
    if reason := unaligned(conv, SHARED):
        return reason
    if conv.R == conv.S == 1:
        return "1 x 1 filters: they have no window"
    if conv.strides != (1, 1):
        return f"strides {conv.strides}: takes stride 1"
    if max(conv.padding) >= LARGEST_WINDOW:
        return f"padding {conv.padding}: a tensor map takes less than {LARGEST_WINDOW}"
    if p["GRID_BLOCKS"] < tiles_of_filters(p):
        return f"{tiles_of_filters(p)} tiles of filters for {p['GRID_BLOCKS']} blocks"
    if reason := beyond_plane(conv):
        return reason
    return beyond_shared(p.device, "windows and filters need", in_place_bytes(p)) or too_many_accumulators(NATIVE, p)


def in_place_constants() -> tuple[Constant, ...]:
    """The constants: tiles as large as fit next to the filters."""

    def fits(p: Problem, pixels: int, filters: int, stages: int) -> bool:
        sized = p.having(TILE_PIXELS=pixels, TILE_FILTERS=filters, STAGES=stages)
        return in_place_bytes(sized) <= p.device.shared_per_block and not too_many_accumulators(NATIVE, sized)

    def tile(p: Problem) -> tuple[int, int]:
        sizes = sorted(
            FILTER_TILES, key=lambda size: (round_up(one_product(p.conv, SHARED).M, size), -size)
        )  # the least padding
        fitting = [(pixels, size) for size in sizes for pixels in reversed(POSITION_TILES) if fits(p, pixels, size, 2)]
        return next(iter(fitting), (min(POSITION_TILES), min(FILTER_TILES)))

    def stages(p: Problem) -> int:
        usual = (number for number in reversed(STAGES) if number <= USUAL_STAGES)
        return next((number for number in usual if fits(p, *tile(p), number)), min(STAGES))

    return (
        Constant("TILE_PIXELS", "positions of both consumers' tiles", lambda p: tile(p)[0], choices=POSITION_TILES),
        Constant("TILE_FILTERS", "filters of a tile", lambda p: tile(p)[1], choices=FILTER_TILES),
        Constant("STAGES", "stages of the TMA pipeline, of a window each", stages, choices=STAGES),
        GRID_BLOCKS,
    )


def busy(p: Problem) -> float:
    """Microseconds of a block, which loads its filters once, and a window per tile of positions."""
    filters, sharing = p["TILE_FILTERS"], p.device.multiprocessors // tiles_of_filters(p)
    wgmmas = packed_k(p.conv) / MMA_K * p["TILE_PIXELS"] / 2 / WGMMA_ROWS
    products = wgmmas * max(MMA_K * WGMMA_ROWS * filters / WGMMA, READ_ROWS + filters * READ_FILTER)
    waves = ceil(p.N * tiles_of_image(p) / max(1, sharing))
    tile = (ONE_OF_MANY if waves > 1 else 1.0) * max(products, window_bytes(p) / FROM_CACHE) / CLOCK
    return waves * max(tile, LEAST_OF_TILE) + TILE + filter_bytes(p) / ALONE / CLOCK


POSITION_MAP = TensorMap(
    "position_map",
    "x",
    dims=lambda p: (p.conv.C, p.conv.W, p.conv.H, p.N),
    strides=lambda p: tuple(p.conv.C * HALF * pixels for pixels in (1, p.conv.W, p.conv.H * p.conv.W)),
    box=lambda p: (STAGE_TAPS, boxes(p)[1]),
    window=lambda p: (1, 1, p.conv.left, p.conv.top, p.conv.right, p.conv.bottom, 1, 1),
)
FILTER_MAP = TensorMap(
    "filter_map",
    "filters",
    dims=lambda p: (packed_k(p.conv), 1, p.conv.M),
    strides=lambda p: (packed_k(p.conv) * HALF,) * 2,
    box=lambda p: (STAGE_TAPS, 1, p["TILE_FILTERS"]),
)

IN_PLACE_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-window-in-place",
        alias="wgmma-window-x",
        idea="windows of the unprepared input, zero padding from the TMA; packed filters stay in shared memory",
        family="wgmma",
        parent="wgmma-window-half",
        file="wgmma/wgmma_window_in_place.cu",
        launches=(
            Launch(
                "multiply",
                ("position_map", "filter_map", "y", BATCH),
                tiles_grid,
                tiles_block,
                in_place_bytes,
                pdl=True,
                stores=True,
                grouped=OWN_CHANNELS,
            ),
        ),
        constants=in_place_constants(),
        precision="fp16",
        layout="nhwc",
        prepare=(prepare_native("order_filters"),),
        prepared=(Array("filters", lambda p: (p.conv.M, packed_k(p.conv)), HALF),),
        maps=(POSITION_MAP, FILTER_MAP),
        refuses=refuses_in_place,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=(*TAKES_PLACES, "groups"),
        time=Time(busy, values(HALF, HALF), tiles=TILE_SIZES),
    ),
)
