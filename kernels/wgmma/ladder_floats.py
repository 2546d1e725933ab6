"""The wgmma rungs that multiply NHWC floats in place; their geometry is that of ``floats.cuh``."""

from collections.abc import Callable
from functools import partial
from math import ceil

from alexconv.kernels.dynamic import Dynamic
from alexconv.kernels.geometry import FLOAT, HALF, HOPPER, beyond_shared, round_up
from alexconv.kernels.preparation import FIND_FILTER_EXPONENTS, SCALED_FILTERS, flat_block, full_range, full_range_grid
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, TF32_OPERANDS, Array, Constant, Dims, Launch, Rung, TensorMap
from alexconv.kernels.times import CLOCK, Time, values
from alexconv.kernels.wgmma.blocked import (
    CHUNK,
    ROW_BYTES,
    STAGE_TAPS,
    WGMMA_ROWS,
    as_it_lies,
    blocked_hw,
    runs,
    unaligned,
)
from alexconv.kernels.wgmma.ladder import (
    ATOM_BYTES,
    FILTER_TILES,
    LARGEST_WINDOW,
    MBARRIER_BYTES,
    OWN_CHANNELS,
    PIXEL_TILES,
    SMALLEST_TILE,
    STAGES,
    best_tile,
    beyond_map,
    beyond_plane,
    consumers,
    dynamic,
    most_stages,
    tiles_block,
)
from alexconv.kernels.wgmma.ladder_split_k import (
    SPLITS_NUMBER,
    slices_grid,
    some_splits,
    split_constants,
    sums_of_slices,
    too_many_splits,
)
from alexconv.kernels.wgmma.times import TILE_SIZES, UNEVEN, WGMMA, from_cache, in_waves, single, uneven
from alexconv.shapes import NETWORK_FEATURES, Conv

GROUP = 16  # values of K that four lanes load together
REGISTERS = {1: 200, 2: 200, 3: 130}  # of a consumer's thread, for accumulators and operands, by number of consumers
OPERANDS = 16  # registers of an accumulator tile's rows in a stage, for each term
HALVES = FLOAT // HALF
TF32 = WGMMA / 2  # multiply-adds per cycle
SPLIT_RATE = 0.85  # of tf32's rate, where each stage's sums are promoted
STRIDED_GROUPS = 1.15  # how much longer groups with a stride take
SINGLE = 0.6  # the same for a warpgroup that rounds or splits floats while no other multiplies


def float_runs(conv: Conv) -> tuple[int, int]:
    """Runs of K, and values of a prepared one: whole groups."""
    count, values = runs(conv, as_it_lies)
    return count, round_up(values, GROUP)


def stages_of_run(p: Problem) -> int:
    """Stages of a run of K."""
    return ceil(float_runs(p.conv)[1] * HALVES / STAGE_TAPS)


def stages_of_tile(p: Problem) -> int:
    """Stages of a tile."""
    return float_runs(p.conv)[0] * stages_of_run(p)


def pipeline_bytes(terms: int, p: Problem) -> int:
    """Shared memory of the multiplication: stages, mbarriers, alignment."""
    stage = (p["TILE_PIXELS"] + terms * p["TILE_FILTERS"]) * ROW_BYTES
    return p["STAGES"] * (stage + 2 * MBARRIER_BYTES) + ATOM_BYTES


def too_many_registers(terms: int, p: Problem) -> str | None:
    """Why a consumer's thread cannot hold its accumulators and operands, or None.

    With two terms they include a stage's accumulators, for one accumulator tile at a time.
    """
    tiles, columns = p["TILE_PIXELS"] // (WGMMA_ROWS * consumers(p)), p["TILE_FILTERS"] // 2
    registers = (tiles + terms - 1) * columns + OPERANDS * (tiles if terms == 1 else terms)
    spare = REGISTERS[consumers(p)]
    return f"a thread needs {registers} registers and can spare {spare}" if registers > spare else None


def constants(terms: int) -> tuple[Constant, ...]:
    """The constants of a rung with values of this many terms."""
    tile = best_tile(partial(too_many_registers, terms))
    return (
        Constant("TILE_PIXELS", "output pixels of a tile", lambda p: tile(p)[0], choices=(SMALLEST_TILE, *PIXEL_TILES)),
        Constant("TILE_FILTERS", "filters of a tile", lambda p: tile(p)[1], choices=FILTER_TILES),
        Constant(
            "STAGES",
            "stages of the TMA pipeline, of 32 values each",
            most_stages(partial(pipeline_bytes, terms)),
            choices=STAGES,
        ),
        *split_constants(stages_of_tile),
    )


def pixel_map() -> TensorMap:
    """The im2col map through which TMA gathers the input in place; it counts a float as two fp16 values."""

    def dims(p: Problem) -> tuple[int, ...]:
        H, W = blocked_hw(p.conv, as_it_lies)
        values = p.conv.C if as_it_lies(p.conv) else runs(p.conv, as_it_lies)[1]
        return values * HALVES, W if as_it_lies(p.conv) else p.conv.F, H, p.N

    def strides(p: Problem) -> tuple[int, ...]:
        H, W = blocked_hw(p.conv, as_it_lies)
        pixel = p.conv.C * FLOAT
        return pixel, W * pixel, H * W * pixel

    def window(p: Problem) -> tuple[int, ...]:
        conv = p.conv
        if not as_it_lies(conv):
            return 1, conv.R
        return conv.filter_columns, conv.filter_rows, conv.left, conv.top, conv.right, conv.bottom, *conv.strides[::-1]

    return TensorMap("pixel_map", "x", dims, strides, lambda p: (STAGE_TAPS, p["TILE_PIXELS"]), window)


def filter_map(name: str, array: str) -> TensorMap:
    """The map of the prepared filters."""

    def dims(p: Problem) -> tuple[int, ...]:
        count, values = float_runs(p.conv)
        return values * HALVES, count, p.conv.M

    def strides(p: Problem) -> tuple[int, ...]:
        count, values = float_runs(p.conv)
        return values * FLOAT, count * values * FLOAT

    return TensorMap(name, array, dims, strides, lambda p: (STAGE_TAPS, 1, p["TILE_FILTERS"]))


def refuses(terms: int) -> Callable[[Problem], str | None]:
    """The reason why such a rung does not take a problem."""

    def reason(p: Problem) -> str | None:
        conv = p.conv
        if reason := unaligned(conv, unit=CHUNK // HALVES):
            return reason
        if as_it_lies(conv) and (beyond := beyond_map(conv)):
            return beyond
        if conv.R > LARGEST_WINDOW:
            return f"a filter of {conv.R} rows exceeds a tensor map's {LARGEST_WINDOW}"
        if reason := beyond_plane(conv):
            return reason
        if consumers(p) > 2 and p["TILE_FILTERS"] == max(FILTER_TILES):
            return f"three consumers do not multiply {p['TILE_FILTERS']} filters at once"
        if reason := beyond_shared(p.device, "a block needs", pipeline_bytes(terms, p)):
            return reason
        return too_many_registers(terms, p) or too_many_splits(stages_of_tile)(p)

    return reason


def filters(name: str) -> Array:
    """An array of prepared filters."""
    return Array(name, lambda p: (p.conv.M, *float_runs(p.conv)), FLOAT)


def filters_grid(p: Problem) -> Dims:
    """One block per run of a filter."""
    return float_runs(p.conv)[0], p.conv.M, 1


def multiply(terms: int, *args: str, grouped: tuple[str, ...] = ()) -> Launch:
    """The launch of the product itself; ``grouped``: further arguments for a layer with groups."""

    def shared_bytes(p: Problem) -> int:
        return pipeline_bytes(terms, p)

    return Launch("multiply", args, slices_grid, tiles_block, shared_bytes, pdl=True, stores=True, grouped=grouped)


def builds(terms: int, tiles: tuple[tuple[int, int], ...]) -> Dynamic:
    """The builds for every shape."""
    shared_bytes, splits = partial(pipeline_bytes, terms), some_splits(stages_of_tile)
    return dynamic(shared_bytes, as_it_lies, tiles, splits, SPLITS_NUMBER, of_run=stages_of_run, besides=1.0)


def time(terms: int, products: int) -> Time:
    """The time of a rung with values of this many terms, and products of them."""

    def busy(p: Problem) -> float:
        count, of_run = float_runs(p.conv)
        pixels, filters = p["TILE_PIXELS"], p["TILE_FILTERS"]
        stage_bytes = (pixels + terms * filters) * ROW_BYTES
        loads = ceil(HALVES * of_run / STAGE_TAPS) * stage_bytes / from_cache(p)
        rate = TF32 * (SPLIT_RATE if terms > 1 else 1) * (SINGLE if single(p) else 1)
        multiplied = of_run * pixels * filters * products / rate
        slower = UNEVEN if uneven(p, HALVES * of_run) else 1.0
        slower *= STRIDED_GROUPS if p.conv.groups > 1 and p.conv.U > 1 else 1.0
        return in_waves(p, slower * count * max(loads, multiplied) / CLOCK)

    return Time(busy, values(FLOAT, FLOAT), tiles=TILE_SIZES)


FLOAT_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-floats",
        alias="wgmma-f",
        idea="NHWC floats rounded to tf32 in registers: no pass over the input",
        family="wgmma",
        parent="wgmma-half",
        file="wgmma/wgmma_floats.cu",
        launches=(multiply(1, "pixel_map", "filter_map", "partial", "arrived", "y", BATCH, grouped=OWN_CHANNELS),),
        constants=constants(1),
        precision="tf32",
        layout="nhwc",
        scratch=sums_of_slices(),
        prepare=(Launch("order_filters", ("w", "filters"), filters_grid, flat_block),),
        prepared=(filters("filters"),),
        maps=(pixel_map(), filter_map("filter_map", "filters")),
        refuses=refuses(1),
        min_capability=HOPPER,
        exact_capability=True,
        exceptions=(TF32_OPERANDS,),
        tensor_factors="tf32",
        takes=NETWORK_FEATURES,
        time=time(1, 1),
        dynamic=builds(1, ((64, 64), (128, 128))),
    ),
    Rung(
        "wgmma-floats-split",
        alias="wgmma-f3x",
        idea="each float as hi and lo tf32 terms, split in registers: the accuracy of fp32, no pass over the input",
        family="wgmma",
        parent="wgmma-floats",
        file="wgmma/wgmma_floats_split.cu",
        launches=(
            multiply(
                2,
                *("pixel_map", "filter_hi_map", "filter_lo_map"),
                *("filter_exponents", "refused", "partial", "arrived", "y", BATCH),
            ),
            full_range(full_range_grid, *("x", "full_filters", "refused", "filter_exponents", "finished", "y"), BATCH),
        ),
        constants=constants(2),
        scratch=(
            *sums_of_slices(),
            Array("refused", lambda p: (p.N,), lasting=True),
            Array("finished", lambda p: (1,), lasting=True),
        ),
        precision="fp32",
        layout="nhwc",
        prepare=(
            FIND_FILTER_EXPONENTS,
            Launch("order_filters", ("w", "filter_exponents", "filters_hi", "filters_lo"), filters_grid, flat_block),
        ),
        prepared=(*SCALED_FILTERS, filters("filters_hi"), filters("filters_lo")),
        maps=(pixel_map(), filter_map("filter_hi_map", "filters_hi"), filter_map("filter_lo_map", "filters_lo")),
        refuses=refuses(2),
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="tf32",
        products=3,
        takes=NETWORK_FEATURES,
        time=time(2, 3),
        dynamic=builds(2, ((64, 64), (128, 64))),
    ),
)
