"""The rung whose filters stay in shared memory, on Hopper's tensor cores."""

from math import ceil

from alexconv.kernels.geometry import FLOAT, HALF, HOPPER, beyond_shared, round_up
from alexconv.kernels.preparation import FIND_FILTER_EXPONENTS, FULL_RANGE, SCALED_FILTERS, flat_block
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Array, Constant, Dims, Launch, Rung
from alexconv.kernels.times import Time, values
from alexconv.kernels.wgmma.blocked import CHUNK, MMA_K, WGMMA_ROWS, blocked_c, blocked_hw, blocked_rs
from alexconv.kernels.wgmma.ladder import (
    EXPONENTS,
    GRID_BLOCKS,
    MBARRIER_BYTES,
    TAKES_PLACES,
    WARPGROUP,
    beyond_plane,
    epilogue_bytes,
    input_bytes,
    of_tiles,
    scale_input,
    tiles_grid,
)
from alexconv.kernels.wgmma.times import by_positions, full_range
from alexconv.shapes import Conv

ALIGNMENT = 16  # bytes, of bulk copies
RESIDENT_FILTERS = (64, 96)  # of a tile: a thread has three accumulators for each of its outputs
RESIDENT_STAGES = tuple(range(2, 17))
PRODUCTS = 3  # of hi and lo terms
LEAST_OF_TILE = 1.2  # microseconds


def resident_stages(conv: Conv) -> int:
    """Stages of a tile: rows of the blocked filter, each in slices of channels."""
    return blocked_rs(conv)[0] * ceil(blocked_c(conv) / MMA_K)


def resident_filter_bytes(p: Problem) -> int:
    """The hi and lo terms of all filters in shared memory."""
    return resident_stages(p.conv) * blocked_rs(p.conv)[1] * MMA_K * 2 * p["TILE_FILTERS"] * HALF


def resident_bytes(p: Problem) -> int:
    """Shared memory of the multiplication: resident filters, stages, epilogue, barriers."""
    rows = WGMMA_ROWS + blocked_rs(p.conv)[1] - 1
    stages = p["STAGES"] * (2 * rows * MMA_K * HALF + 2 * MBARRIER_BYTES)
    barriers = (resident_stages(p.conv) + 2) * MBARRIER_BYTES
    needed = resident_filter_bytes(p) + stages + epilogue_bytes(p.having(TILE_PIXELS=2 * WGMMA_ROWS)) + barriers
    return round_up(needed, ALIGNMENT)


def refuses_resident(p: Problem) -> str | None:
    """What a rung whose filters stay in shared memory cannot take."""
    if p["TILE_FILTERS"] < p.conv.M:
        return f"{p.conv.M} filters exceed a tile's {p['TILE_FILTERS']}"
    if reason := beyond_shared(p.device, "filters and pixels need", resident_bytes(p)):
        return reason
    if reason := beyond_plane(p.conv):
        return reason
    return beyond_shared(p.device, f"a stride of {p.conv.U} needs", input_bytes(2)(p))


def resident_constants() -> tuple[Constant, ...]:
    """The constants of a rung whose filters stay in shared memory."""

    def filters(p: Problem) -> int:
        return next((size for size in RESIDENT_FILTERS if size >= p.conv.M), max(RESIDENT_FILTERS))

    def stages(p: Problem) -> int:
        fitting = [
            number
            for number in RESIDENT_STAGES
            if resident_bytes(p.having(TILE_FILTERS=filters(p), STAGES=number)) <= p.device.shared_per_block
        ]
        # With a pipeline of exactly one tile's stages, their addresses are known at compile time.
        whole_tile = resident_stages(p.conv)
        return whole_tile if whole_tile in fitting else max(fitting, default=min(RESIDENT_STAGES))

    return (
        Constant("TILE_FILTERS", "filters of a tile", filters, choices=RESIDENT_FILTERS),
        Constant("STAGES", "stages of the bulk-copy pipeline, of a filter row each", stages, choices=RESIDENT_STAGES),
        GRID_BLOCKS,
    )


def planes_shape(p: Problem) -> tuple[int, ...]:
    """The blocked input in planes of eight channels."""
    return p.N, blocked_c(p.conv) // CHUNK, *blocked_hw(p.conv), CHUNK


def slices_shape(p: Problem) -> tuple[int, ...]:
    """The blocked filters, in the order in which a block fetches them."""
    S = blocked_rs(p.conv)[1]
    return resident_stages(p.conv), S, MMA_K // CHUNK, 2, p["TILE_FILTERS"], CHUNK


def slices_grid(p: Problem) -> Dims:
    """One block per stage of a tile and tap of a row."""
    return resident_stages(p.conv), blocked_rs(p.conv)[1], 1


RESIDENT_TIME = Time(
    busy=lambda p: by_positions(p, WGMMA_ROWS, PRODUCTS, LEAST_OF_TILE) + full_range(p, terms=2),
    moves=values(0, FLOAT),
    passes=values(2 * FLOAT, 0),
)

RESIDENT_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-split-resident",
        alias="wgmma-3x-resident",
        idea="filters resident in shared memory; ping-pong consumers; one stage for all taps of a row",
        family="wgmma",
        parent="wgmma-split",
        file="wgmma/wgmma_split_resident.cu",
        launches=(
            *scale_input(2),
            Launch(
                "multiply",
                ("pixels_hi", "pixels_lo", "filters", "exponents", "filter_exponents", "y", "N"),
                tiles_grid,
                lambda p: (3 * WARPGROUP, 1, 1),
                resident_bytes,
                pdl=True,
                stores=True,
            ),
            FULL_RANGE,
        ),
        constants=resident_constants(),
        scratch=(
            of_tiles("seen"),
            EXPONENTS,
            Array("pixels_hi", planes_shape, HALF),
            Array("pixels_lo", planes_shape, HALF),
        ),
        precision="fp32",
        prepare=(
            FIND_FILTER_EXPONENTS,
            Launch("prepare_filters", ("w", "filter_exponents", "filters"), slices_grid, flat_block),
        ),
        prepared=(*SCALED_FILTERS, Array("filters", slices_shape, HALF)),
        refuses=refuses_resident,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        products=PRODUCTS,
        takes=TAKES_PLACES,
        time=RESIDENT_TIME,
    ),
)
