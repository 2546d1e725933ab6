"""The igemm rungs: implicit GEMM in fp32 on the CUDA cores."""

from collections.abc import Callable, Sequence
from math import ceil

from alexconv.kernels.dynamic import Dynamic
from alexconv.kernels.geometry import FLOAT, TURING, WARP, round_up
from alexconv.kernels.preparation import flat_block
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Constant, Dims, Launch, Rung
from alexconv.kernels.times import CLOCK, Time, values
from alexconv.shapes import Conv

LANES_DOWN, LANES_ACROSS = 4, 8  # as in implicit_gemm.cuh
THREAD_ROWS = (4, 8, 12, 16)
DEPTHS = (4, 8, 12, 16)
TILES_OF_UNIT = 2  # at most, for which a stream-K work unit leaves partial sums
RATE, SLOWER_RATE = 105.0, 105.0 * 0.9  # multiply-adds per cycle of a multiprocessor, of igemm-async and of the others
ALONE = 0.8  # of the rate, for a block without another on its multiprocessor
TAP = 0.04  # microseconds of a tap, at least: its loads' latency, over the stages
RESIDENT = 2  # blocks of a multiprocessor
BLOCK, STREAMS = 2.0, 6.0  # microseconds besides; with stream-K


def tile_rows(p: Problem) -> int:
    """Filters of a block; ROWS in ``implicit_gemm.cuh``."""
    return p["WARPS_DOWN"] * LANES_DOWN * p["THREAD_ROWS"]


def tile_columns(p: Problem) -> int:
    """Pixels of a block; COLUMNS in ``implicit_gemm.cuh``."""
    return p["WARPS_ACROSS"] * LANES_ACROSS * p["THREAD_COLUMNS"]


def k_tiles(p: Problem) -> int:
    """K tiles of DEPTH taps that cover a filter; K_TILES in ``implicit_gemm.cuh``."""
    depth = p["DEPTH"]
    row_together = p.conv.C % depth != 0 and 4 * p.conv.S >= 3 * depth >= 3 * p.conv.S
    return p.conv.C * p.conv.R if row_together else ceil(p.conv.K / depth)


def tiles_down(p: Problem) -> int:
    """Tiles that cover the filters."""
    return ceil(p.conv.M / tile_rows(p))


def tiles(p: Problem) -> int:
    """Tiles that cover the outputs of a batch."""
    return ceil(p.N * p.conv.E * p.conv.F / tile_columns(p)) * tiles_down(p)


def block(p: Problem) -> Dims:
    """WARPS_DOWN x WARPS_ACROSS warps."""
    return WARP * p["WARPS_DOWN"] * p["WARPS_ACROSS"], 1, 1


def tiles_grid(p: Problem) -> Dims:
    """A block per tile."""
    return tiles(p), 1, 1


def stream_k_grid(p: Problem) -> Dims:
    """A block per tile of the full waves, and one wave of stream-K work units for the remaining tiles."""
    whole = tiles(p) // p["SLOTS"] * p["SLOTS"]
    return whole + p["SLOTS"], 1, 1


def fixup_grid(p: Problem) -> Dims:
    """A block per row of a thread's outputs, for each remaining tile; at least one."""
    remaining = tiles(p) % p["SLOTS"]
    return max(1, remaining * p["THREAD_ROWS"]), 1, 1


def prepare_grid(p: Problem) -> Dims:
    """A block per K tile of each tile of filters."""
    return tiles_down(p) * k_tiles(p), 1, 1


def pipeline_bytes(p: Problem) -> int:
    """Shared memory of the pipeline's stages."""
    stage = p["DEPTH"] * (tile_rows(p) + tile_columns(p))
    return p["STAGES"] * stage * FLOAT


def filters_shape(p: Problem) -> tuple[int, ...]:
    """The filters in the order of the K tiles, padded with zeros beyond the last filter and tap."""
    return tiles_down(p), k_tiles(p), p["DEPTH"], tile_rows(p)


def partial_shape(p: Problem) -> tuple[int, ...]:
    """Partial sums of the cut tiles: a stream-K work unit's accumulators, by thread."""
    return p["SLOTS"], TILES_OF_UNIT, tile_rows(p), tile_columns(p)


def warps_down(conv: Conv, most: int) -> int:
    """``most`` warps, or one where it has room for all filters."""
    return most if LANES_DOWN * max(THREAD_ROWS) < conv.M else 1


def warps(axis: str, default: Callable[[Problem], int]) -> Constant:
    """Warps of a block along one axis."""
    extent = "filters" if axis == "DOWN" else "pixels"
    return Constant(f"WARPS_{axis}", f"warps of a block that divide its {extent}", default, choices=(1, 2, 4))


def thread_rows(most_warps: int, most: int) -> Constant:
    """The most filters per thread, of those whose tiles need the least padding beyond the last filter."""

    def default(p: Problem) -> int:
        def cost(rows: int) -> tuple[int, int]:
            tile = warps_down(p.conv, most_warps) * LANES_DOWN * rows
            return round_up(p.conv.M, tile), -rows

        return min((rows for rows in THREAD_ROWS if rows <= most), key=cost)

    return Constant("THREAD_ROWS", "filters of a thread", default, choices=THREAD_ROWS)


def least_padded(
    tiles: Sequence[tuple[int, int, int, int]], rows: Callable[[Problem], int]
) -> Callable[[int], Callable[[Problem], int]]:
    """Defaults by place in the tile that needs the least padding beyond the last row, the first of several.

    Tiles: warps and a thread's rows down, warps and a thread's columns across.
    """

    def best(p: Problem) -> tuple[int, int, int, int]:
        return min(tiles, key=lambda tile: round_up(rows(p), tile[0] * LANES_DOWN * tile[1]))

    return lambda place: lambda p: best(p)[place]


def tile_constants(most_warps: int, rows: int) -> tuple[Constant, ...]:
    """A block's tile."""
    return (
        warps("DOWN", lambda p: warps_down(p.conv, most_warps)),
        warps("ACROSS", lambda p: 2),
        thread_rows(most_warps, rows),
        Constant("THREAD_COLUMNS", "pixels of a thread", lambda p: 8, choices=(4, 8)),
    )


BLOCKS_PER_SM = Constant(
    "BLOCKS_PER_SM",
    "resident blocks of a multiprocessor, which share its registers",
    lambda p: 2,
    choices=(1, 2, 3, 4),
)


def depth(most: int) -> Constant:
    """Taps of a K tile: the most that divide the channels or hold a filter's row, so that addresses are regular."""

    def default(p: Problem) -> int:
        fitting = [depth for depth in DEPTHS if depth <= most and p.conv.C % depth == 0]
        return max(fitting) if fitting else next((depth for depth in DEPTHS if depth >= p.conv.S), min(DEPTHS))

    return Constant("DEPTH", "taps of a K tile, one iteration of the mainloop", default, choices=DEPTHS)


STAGES = Constant("STAGES", "stages of the cp.async pipeline", lambda p: 3, choices=(2, 3, 4))

PREPARE = (Launch("prepare_filters", ("w", "filters"), prepare_grid, flat_block),)
FILTERS = (Array("filters", filters_shape),)
ASYNC_CONSTANTS = (*tile_constants(2, 16), depth(8), STAGES, BLOCKS_PER_SM)


def dynamic_build(down: int, rows: int) -> dict[str, int]:
    """The tile of a build for every shape."""
    tile = {"WARPS_DOWN": down, "WARPS_ACROSS": 2, "THREAD_ROWS": rows, "THREAD_COLUMNS": 8}
    return {**tile, "DEPTH": 8, "STAGES": 3, "BLOCKS_PER_SM": 2}


DYNAMIC = Dynamic(
    builds=(dynamic_build(2, 16), dynamic_build(1, 16), dynamic_build(1, 8)),
    numbers=(
        ("TILES_DOWN", tiles_down),
        ("K_TILES", k_tiles),
        ("FILTER_TAPS", lambda p: p.conv.R * p.conv.S),
    ),
    slower=1.7,
)


def time(rate: float, *, streams: bool = False) -> Time:
    """The time of a rung with this rate; ``streams``: stream-K keeps all multiprocessors busy."""

    def busy(p: Problem) -> float:
        of_each = tiles(p) / p.device.multiprocessors
        of_tile = p.conv.K * tile_rows(p) * tile_columns(p) / (rate * CLOCK)
        if streams:
            units = min(p.device.multiprocessors, tiles(p) * max(1.0, k_tiles(p) / p["LEAST_K_TILES"]))
            return tiles(p) / units * of_tile / ALONE
        alone = ALONE if of_each <= 1 else 1.0
        return max(ceil(of_each) * of_tile / alone, ceil(of_each / RESIDENT) * TAP * p.conv.K)

    return Time(busy, values(FLOAT, FLOAT), fixed=STREAMS if streams else BLOCK)


IGEMM_RUNGS: tuple[Rung, ...] = (
    Rung(
        "igemm",
        alias="ig",
        idea="implicit GEMM: register tiles, filters reordered once, pixels of all images in one sequence",
        family="igemm",
        parent="fused-unroll-matmul",
        file="igemm/igemm.cu",
        launches=(Launch("igemm", ("x", "filters", "y", BATCH), tiles_grid, block),),
        constants=(*tile_constants(4, 8), depth(16), BLOCKS_PER_SM),
        prepare=PREPARE,
        prepared=FILTERS,
        time=time(SLOWER_RATE),
    ),
    Rung(
        "igemm-async",
        alias="ig-a",
        idea="multistage cp.async pipeline and double-buffered fragments; twice the accumulators per thread",
        family="igemm",
        parent="igemm",
        file="igemm/igemm_async.cu",
        launches=(Launch("igemm_async", ("x", "filters", "y", BATCH), tiles_grid, block, pipeline_bytes),),
        constants=ASYNC_CONSTANTS,
        prepare=PREPARE,
        prepared=FILTERS,
        min_capability=TURING,
        time=time(RATE),
        dynamic=DYNAMIC,
    ),
    Rung(
        "igemm-stream-k",
        alias="ig-sk",
        idea="stream-K: the last tiles cut along K, so that all multiprocessors finish together",
        family="igemm",
        parent="igemm-async",
        file="igemm/igemm_stream_k.cu",
        launches=(
            Launch(
                "igemm_stream_k",
                ("x", "filters", "y", "partial", BATCH),
                stream_k_grid,
                block,
                pipeline_bytes,
            ),
            Launch("igemm_stream_k_fixup", ("partial", "y", BATCH), fixup_grid, block),
        ),
        constants=(
            *ASYNC_CONSTANTS,
            Constant("SLOTS", "blocks that the GPU holds at a time (one wave)", lambda p: 2 * p.device.multiprocessors),
            Constant(
                "LEAST_K_TILES",
                "K tiles of a stream-K work unit, at least",
                lambda p: 8,
            ),
        ),
        scratch=(Array("partial", partial_shape),),
        prepare=PREPARE,
        prepared=FILTERS,
        min_capability=TURING,
        time=time(SLOWER_RATE, streams=True),
    ),
)
