"""The rung whose filters stay in shared memory, on Hopper's tensor cores."""

from math import ceil

from alexconv.kernels.geometry import HALF, HOPPER, MAX_SHARED, MULTIPROCESSORS, beyond_shared, round_up
from alexconv.kernels.preparation import FILTER_EXPONENT, RANGES_OF_FILTERS, flat_block, ranges_grid
from alexconv.kernels.rung import Array, Constant, Constants, Dims, Launch, Rung
from alexconv.kernels.wgmma.ladder import (
    BARRIER_BYTES,
    CHUNK,
    EXPONENTS,
    RANGES,
    UNIT,
    WARPGROUP,
    blocked_c,
    blocked_hw,
    blocked_rs,
    input_bytes,
    scale_input,
    stored_bytes,
    tiles_grid,
)
from alexconv.shapes import Conv

ALIGNMENT = 16  # bytes, of what the copy engine brings unswizzled
STEP = 16  # channels of one product of a warpgroup
RESIDENT_FILTERS = (64, 96)  # of a tile: a thread has three sums for each of its outputs
RESIDENT_STAGES = tuple(range(2, 17))


def resident_stages(conv: Conv) -> int:
    """Stages of a tile: rows of the blocked filter, each in slices of channels."""
    return blocked_rs(conv)[0] * ceil(blocked_c(conv) / STEP)


def resident_filter_bytes(conv: Conv, constants: Constants) -> int:
    """All filters in two parts, as shared memory has them."""
    return resident_stages(conv) * blocked_rs(conv)[1] * STEP * 2 * constants["TILE_FILTERS"] * HALF


def resident_bytes(conv: Conv, constants: Constants) -> int:
    """Shared memory of the multiplication with resident filters: these, stages, the way out, barriers."""
    rows = UNIT + blocked_rs(conv)[1] - 1
    stages = constants["STAGES"] * (2 * rows * STEP * HALF + BARRIER_BYTES)
    barriers = (resident_stages(conv) + 2) * BARRIER_BYTES // 2
    needed = resident_filter_bytes(conv, constants) + stages + stored_bytes({"TILE_PIXELS": 2 * UNIT}) + barriers
    return round_up(needed, ALIGNMENT)


def refuses_resident(conv: Conv, constants: Constants) -> str | None:
    """What a rung whose filters stay in shared memory cannot take."""
    if constants["TILE_FILTERS"] < conv.M:
        return f"{conv.M} filters exceed a tile's {constants['TILE_FILTERS']}"
    if reason := beyond_shared("filters and pixels need", resident_bytes(conv, constants)):
        return reason
    if conv.E * conv.F > 1 << 22:
        return f"an output plane of {conv.E * conv.F} pixels exceeds {1 << 22}"
    return beyond_shared(f"a stride of {conv.U} needs", input_bytes(2)(conv, constants))


def resident_constants() -> tuple[Constant, ...]:
    """The constants of a rung whose filters stay in shared memory."""

    def filters(conv: Conv) -> int:
        return next((size for size in RESIDENT_FILTERS if size >= conv.M), max(RESIDENT_FILTERS))

    def stages(conv: Conv) -> int:
        fitting = [
            number
            for number in RESIDENT_STAGES
            if resident_bytes(conv, {"TILE_FILTERS": filters(conv), "STAGES": number}) <= MAX_SHARED
        ]
        # With a ring of one tile's stages the kernel knows where each of them is.
        whole_tile = resident_stages(conv)
        return whole_tile if whole_tile in fitting else max(fitting, default=min(RESIDENT_STAGES))

    return (
        Constant("TILE_FILTERS", "filters of a tile", filters, choices=RESIDENT_FILTERS),
        Constant("STAGES", "rows of a filter on their way to the tensor cores", stages, choices=RESIDENT_STAGES),
        Constant("BLOCKS", "blocks of the grid, which share the tiles", lambda conv: MULTIPROCESSORS),
    )


def planes_shape(conv: Conv, N: int, constants: Constants) -> tuple[int, ...]:
    """The blocked input in planes of eight channels."""
    return N, blocked_c(conv) // CHUNK, *blocked_hw(conv), CHUNK


def slices_shape(conv: Conv, N: int, constants: Constants) -> tuple[int, ...]:
    """The blocked filters, in the order in which a block wants them."""
    S = blocked_rs(conv)[1]
    return resident_stages(conv), S, STEP // CHUNK, 2, constants["TILE_FILTERS"], CHUNK


def slices_grid(conv: Conv, N: int, constants: Constants) -> Dims:
    """One block per kind of stage and tap."""
    return resident_stages(conv), blocked_rs(conv)[1], 1


RESIDENT_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-split-resident",
        alias="wgmma-3x-resident",
        idea="filters that stay in shared memory; consumers in turns; one stage for all taps of a row",
        family="wgmma",
        parent="wgmma-split",
        file="wgmma/wgmma_split_resident.cu",
        launches=(
            *scale_input(2),
            Launch(
                "multiply",
                ("pixels", "pixels_rest", "filters", "exponents", "filter_exponent", "y", "N"),
                tiles_grid,
                lambda conv, constants: (3 * WARPGROUP, 1, 1),
                resident_bytes,
                early=True,
            ),
        ),
        constants=resident_constants(),
        scratch=(RANGES, EXPONENTS, Array("pixels", planes_shape, HALF), Array("pixels_rest", planes_shape, HALF)),
        precision="fp32",
        prepare=(
            Launch("find_filter_ranges", ("w", "filter_ranges"), ranges_grid, flat_block),
            Launch("prepare_filters", ("w", "filter_ranges", "filter_exponent", "filters"), slices_grid, flat_block),
        ),
        prepared=(RANGES_OF_FILTERS, FILTER_EXPONENT, Array("filters", slices_shape, HALF)),
        refuses=refuses_resident,
        needs=HOPPER,
        only=True,
    ),
)
