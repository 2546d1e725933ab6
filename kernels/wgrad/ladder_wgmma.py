"""The wgrad rungs on Hopper's tensor cores: dw as a product over the batch's pixels, by stream-K."""

from collections.abc import Callable, Iterable
from math import ceil, prod

from alexconv.kernels.geometry import FLOAT, HALF, HOPPER, PORTABLE_SHARED, WARP, beyond_shared, round_up
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Constant, Dims, Launch, Rung, TensorMap, beyond_integers
from alexconv.kernels.times import CLOCK, Time, inputs, outputs
from alexconv.kernels.wgmma.blocked import CHUNK, unaligned
from alexconv.kernels.wgmma.ladder import (
    ATOM_BYTES,
    LARGEST_STEP,
    LARGEST_WINDOW,
    MBARRIER_BYTES,
    WARPGROUP,
    beyond_map,
    tiles_grid,
)
from alexconv.shapes import WGRAD, Conv

PLANE_VALUES = 64  # filters, or taps, in a row of 128 bytes
ROW_BYTES = PLANE_VALUES * HALF
THREADS = 256  # of a preparation's block
TILE_CHANNELS, PLANE_TILE = 64, 64  # of a block that scales floats
PITCH = TILE_CHANNELS + 2  # of a pixel there
CHECK_THREADS, CHECKED = 1024, 32  # threads and channels of a block that looks for outliers
FEW_STAGES = 8  # of a block of the usual tiles: with fewer it spends more time on partial sums than on products
PASSED_ON = 3e6  # bytes per microsecond of partial sums, through the L2 cache
LEAST_SHARED = 30  # stages of a block, from which clusters gain, as measured on an H100
MOST_PADDED = 1.125  # tiles of clusters of two, over those without
LEAST_ALIGNED = 0.95  # of the multiprocessors, that have a block where all tiles have the same number
MOST_REDUCED_THREADS, MOST_REDUCED = 512, 10240  # of a block of the reduction: threads, weights of 64 channels
MOST_TAPS = 192  # of a tile: a thread has an accumulator for every second of them, and another for the promoted sums
RATE = 1780.0  # multiply-adds per cycle of a multiprocessor, of terms, as measured on an H100
ROW_CYCLES = 4.8  # of a row of a plane that TMA gathers in im2col mode, as measured on an H100
ENDS = {1: 7.0, 2: 14.0}  # microseconds of the parts of tiles at the ends of a block's sequence, by terms
PRODUCTS = {1: 1, 2: 3}  # by terms of an operand; lo times lo is left out
STAGES, MOST_STAGES = (2, 3, 4, 5, 6, 7, 8), 4
UNIT_TAPS = (192, 144, 128, 96, 64, 48, 32)  # n of a wgmma, or of a part of it
UNITS = (1, 2, 3, 4, 6)


def side(conv: Conv, in_place: bool) -> int:
    """Rows and columns of the squares of pixels that become one."""
    return 1 if in_place or conv.strides == (1, 1) or conv.R == conv.S == 1 else conv.U


def blocked(conv: Conv, in_place: bool) -> tuple[int, int, int, int, int]:
    """Channels, rows and columns of a blocked pixel's plane, rows and columns of a blocked filter."""
    of = side(conv, in_place)
    channels = conv.C if in_place else round_up(conv.C * of**2, CHUNK)
    R, S = ceil(conv.R / of), ceil(conv.S / of)
    H, W = (conv.H, conv.W) if of == 1 else (conv.E + R - 1, conv.F + S - 1)
    return channels, H, W, R, S


def runs(conv: Conv, in_place: bool) -> tuple[int, int]:
    """Runs of the taps, and taps of one."""
    channels, _, _, R, S = blocked(conv, in_place)
    return (R * S, channels) if side(conv, in_place) == 1 else (R, S * channels)


def gradient_c(conv: Conv) -> int:
    """Filters of a pixel of dy, with padding."""
    return round_up(conv.M, CHUNK)


def tile_taps(p: Problem) -> int:
    """Taps of a tile."""
    return p["UNITS"] * p["UNIT_TAPS"]


def tiles(p: Problem, in_place: bool) -> int:
    """Tiles of dw, of a cluster of blocks."""
    count, taps = runs(p.conv, in_place)
    units = count * ceil(taps / p["UNIT_TAPS"])
    return ceil(p.conv.M / p["TILE_FILTERS"]) * ceil(units / (p["CLUSTER"] * p["UNITS"]))


def aligned_blocks(p: Problem, in_place: bool) -> int:
    """A block for each multiprocessor, or a few less: the same number for each tile.

    Blocks of different tiles are then at the same pixels at the same time, which come from the L2 cache.
    """
    of_clusters, count = p.device.multiprocessors // p["CLUSTER"], tiles(p, in_place)
    aligned = of_clusters // count * count
    return (aligned if aligned >= LEAST_ALIGNED * of_clusters else of_clusters) * p["CLUSTER"]


def k_stages(p: Problem) -> int:
    """Stages of a tile."""
    return ceil(p.N * p.conv.E * p.conv.F / p["TILE_PIXELS"])


def stage_cycles(p: Problem, terms: int) -> float:
    """Cycles of a stage: a block multiplies, or waits for rows of x that TMA gathers one by one."""
    rows = terms * p["UNITS"] * ceil(p["UNIT_TAPS"] / PLANE_VALUES)
    return p["TILE_PIXELS"] * max(PRODUCTS[terms] * p["TILE_FILTERS"] * tile_taps(p) / RATE, rows * ROW_CYCLES)


def usual_tile(p: Problem) -> Problem:
    """With the largest tiles, which bring the fewest rows."""
    filters = min((128, 64), key=lambda rows: round_up(p.conv.M, rows))
    return p.having(TILE_FILTERS=filters, UNITS=MOST_TAPS // p["UNIT_TAPS"], TILE_PIXELS=64, CLUSTER=1)


def has_few_stages(p: Problem, in_place: bool) -> bool:
    """Whether a block has few stages of the usual tiles, as with a single image."""
    usual = usual_tile(p)
    return tiles(usual, in_place) * k_stages(usual) < FEW_STAGES * p.device.multiprocessors


def cut_time(p: Problem, terms: int, in_place: bool, *, whole: bool) -> float:
    """Microseconds of the slowest block and of partial sums: with a block for each tile (``whole``), or by stream-K."""
    count, of_tile, blocks = tiles(p, in_place), k_stages(p), p.device.multiprocessors
    stages, fragments = (of_tile, count) if whole else (ceil(count * of_tile / blocks), count + blocks)
    passed = 2 * FLOAT * p["TILE_FILTERS"] * tile_taps(p) * fragments
    return stages * stage_cycles(p, terms) / CLOCK + passed / PASSED_ON


def has_whole_tiles(p: Problem, terms: int, in_place: bool) -> bool:
    """Whether a block for each tile, which then has one fragment, is quicker; all tiles have to find room at once."""
    if p["CLUSTER"] > 1 or tiles(p, in_place) > p.device.multiprocessors:
        return False
    return cut_time(p, terms, in_place, whole=True) <= cut_time(p, terms, in_place, whole=False)


def quickest(cuts: Iterable[Problem], terms: int, in_place: bool) -> Problem:
    """The cut with the least time; of equal ones the one with more tiles."""

    def time(p: Problem) -> tuple[float, int]:
        whole = has_whole_tiles(p, terms, in_place)
        return cut_time(p, terms, in_place, whole=whole), -tiles(p, in_place)

    return min(cuts, key=time)


def planes(p: Problem) -> int:
    """Planes of 64 values of a stage, of one term."""
    return p["TILE_FILTERS"] // PLANE_VALUES + p["UNITS"] * ceil(p["UNIT_TAPS"] / PLANE_VALUES)


def stage_bytes(p: Problem, terms: int) -> int:
    """Shared memory of a stage and its mbarriers."""
    return terms * planes(p) * p["TILE_PIXELS"] * ROW_BYTES + 2 * MBARRIER_BYTES


def pipeline_bytes(p: Problem, terms: int) -> int:
    """Shared memory of the product, with slack for alignment."""
    barriers = p["STAGES"] * 2 * MBARRIER_BYTES
    stages = p["STAGES"] * (stage_bytes(p, terms) - 2 * MBARRIER_BYTES)
    return stages + round_up(barriers, CHUNK) + ATOM_BYTES


def tile_block(p: Problem) -> Dims:
    """A producer, and a consumer for every 64 filters, a warpgroup each."""
    return WARPGROUP * (1 + p["TILE_FILTERS"] // PLANE_VALUES), 1, 1


def best_unit(in_place: bool) -> Callable[[Problem], int]:
    """The unit that leaves the fewest columns of tiles empty; of several the one that divides planes."""

    def default(p: Problem) -> int:
        count, taps = runs(p.conv, in_place)

        def columns(unit: int) -> tuple[int, bool, int]:
            units = MOST_TAPS // unit
            return ceil(count * ceil(taps / unit) / units) * units * unit, unit != PLANE_VALUES, -unit

        return min((unit for unit in UNIT_TAPS if unit <= round_up(taps, PLANE_VALUES)), key=columns)

    return default


def tile_constants(terms: int, in_place: bool) -> tuple[Constant, ...]:
    """The constants of a rung whose operands have so many terms."""

    def filters(p: Problem) -> int:
        usual = usual_tile(p.having(UNIT_TAPS=best_unit(in_place)(p)))
        if not has_few_stages(usual, in_place):
            return usual["TILE_FILTERS"]
        cuts = (usual.having(TILE_FILTERS=rows, UNITS=units(usual.having(TILE_FILTERS=rows))) for rows in (64, 128))
        return quickest(cuts, terms, in_place)["TILE_FILTERS"]

    def units(p: Problem) -> int:
        most = MOST_TAPS // p["UNIT_TAPS"]
        if not has_few_stages(p, in_place):
            return most
        cuts = (p.having(UNITS=count, TILE_PIXELS=64, CLUSTER=1) for count in UNITS if count <= most)
        return quickest(cuts, terms, in_place)["UNITS"]

    def grid_blocks(p: Problem) -> int:
        whole = has_few_stages(p, in_place) and has_whole_tiles(p, terms, in_place)
        return tiles(p, in_place) if whole else aligned_blocks(p, in_place)

    def pixels(p: Problem) -> int:
        two_stages = pipeline_bytes(p.having(TILE_PIXELS=64, STAGES=min(STAGES)), terms)
        return 64 if two_stages <= p.device.shared_per_block else 32

    def stages(p: Problem) -> int:
        fitting = (p.device.shared_per_block - ATOM_BYTES) // stage_bytes(p, terms)
        return max(min(STAGES), min(fitting, MOST_STAGES))

    def cluster(p: Problem) -> int:
        if terms > 1 or p["TILE_FILTERS"] % (2 * PLANE_VALUES):
            return 1
        alone, paired = (tiles(p.having(CLUSTER=blocks), in_place) for blocks in (1, 2))
        stages_of_block = alone * k_stages(p) / p.device.multiprocessors
        return 2 if stages_of_block >= LEAST_SHARED and 2 * paired <= MOST_PADDED * alone else 1

    return (
        Constant("TILE_FILTERS", "filters of a tile, 64 for each consumer", filters, choices=(64, 128, 192)),
        Constant("UNIT_TAPS", "neighbouring taps of a tile", best_unit(in_place), choices=UNIT_TAPS),
        Constant("UNITS", "such units of a tile", units, choices=UNITS),
        Constant("TILE_PIXELS", "pixels of a stage, the depth of its product", pixels, choices=(32, 64, 128)),
        Constant("STAGES", "stages of the TMA pipeline", stages, choices=STAGES),
        Constant("CLUSTER", "blocks that share filters of dy, which they bring to each other", cluster, choices=(1, 2)),
        Constant(
            "GRID_BLOCKS",
            "blocks of the grid, which share the tiles' stages",
            grid_blocks,
        ),
    )


def input_map(name: str, array: str, in_place: bool) -> TensorMap:
    """The im2col map of x: a pixel of it is a run, so that runs of neighbouring pixels may overlap."""

    def dims(p: Problem) -> tuple[int, ...]:
        channels, H, W, _, _ = blocked(p.conv, in_place)
        return (channels, W, H, p.N) if side(p.conv, in_place) == 1 else (runs(p.conv, in_place)[1], p.conv.F, H, p.N)

    def strides(p: Problem) -> tuple[int, ...]:
        channels, H, W, _, _ = blocked(p.conv, in_place)
        return channels * HALF, W * channels * HALF, H * W * channels * HALF

    def window(p: Problem) -> tuple[int, ...]:
        conv = p.conv
        if side(conv, in_place) > 1:
            return 1, blocked(conv, in_place)[3]
        return conv.filter_columns, conv.filter_rows, conv.left, conv.top, conv.right, conv.bottom, *conv.strides[::-1]

    return TensorMap(name, array, dims, strides, lambda p: (PLANE_VALUES, p["TILE_PIXELS"]), window)


def gradient_map(name: str, array: str) -> TensorMap:
    """The map of dy: pixels of the batch, filters innermost."""

    def dims(p: Problem) -> tuple[int, ...]:
        return gradient_c(p.conv), p.N * p.conv.E * p.conv.F, 1

    def strides(p: Problem) -> tuple[int, ...]:
        return gradient_c(p.conv) * HALF, p.N * p.conv.E * p.conv.F * gradient_c(p.conv) * HALF

    return TensorMap(name, array, dims, strides, lambda p: (PLANE_VALUES, p["TILE_PIXELS"], 1))


def reduced_c(conv: Conv) -> int:
    """Channels of a block of the reduction."""
    return min(conv.C, 64 if 64 * conv.R * conv.S <= MOST_REDUCED else 8)


def reduced_bytes(conv: Conv, halves: bool) -> int:
    """Shared memory of a block of the reduction: its weights, and of floats the exponents of its blocked channels."""
    exponents = 0 if halves else side(conv, in_place=False) ** 2
    return reduced_c(conv) * (conv.R * conv.S + exponents) * FLOAT


def multiply(terms: int, *maps: str) -> Launch:
    """The launch of the product."""
    return Launch(
        "multiply",
        (*maps, "partial", BATCH),
        tiles_grid,
        tile_block,
        lambda p: pipeline_bytes(p, terms),
        pdl=True,
    )


def reduced_block(in_place: bool) -> Callable[[Problem], Dims]:
    """A thread for each weight of a block of the reduction, or for four channels' where these lie side by side."""

    def block(p: Problem) -> Dims:
        channels = reduced_c(p.conv)
        together = 4 if side(p.conv, in_place) == 1 and channels % 4 == 0 else 1
        return min(MOST_REDUCED_THREADS, round_up(channels // together * p.conv.R * p.conv.S, WARP)), 1, 1

    return block


def reduce_fragments(in_place: bool, halves: bool, *args: str) -> Launch:
    """The launch that adds the fragments of each weight."""
    return Launch(
        "reduce_fragments",
        ("partial", *args, BATCH),
        lambda p: (ceil(p.conv.C / reduced_c(p.conv)), p.conv.M, 1),
        reduced_block(in_place),
        lambda p: reduced_bytes(p.conv, halves),
        pdl=True,
    )


def time_of(terms: int, in_place: bool, *scratch: Array) -> Time:
    """The time of a rung whose operands have so many terms, and whose launches pass scratch arrays on.

    A multiprocessor either multiplies all the time or waits for rows of x.
    """
    arrays = (*scratch, partial(in_place))

    def busy(p: Problem) -> float:
        tile_pixels = tiles(p, in_place) * p["CLUSTER"] * p.N * p.conv.E * p.conv.F
        cycles = stage_cycles(p, terms) / p["TILE_PIXELS"]
        return tile_pixels * cycles / (p.device.multiprocessors * CLOCK)

    def passes(p: Problem) -> float:
        floats = 0 if in_place else FLOAT * (inputs(p) + outputs(p))
        return floats + 2 * sum(array.itemsize * prod(array.shape(p)) for array in arrays)

    return Time(busy, passes=passes, fixed=ENDS[terms])


def partial(in_place: bool) -> Array:
    """The sums of fragments."""
    return Array(
        "partial",
        lambda p: (p["GRID_BLOCKS"] + (tiles(p, in_place) - 1) * p["CLUSTER"], p["TILE_FILTERS"] * tile_taps(p)),
    )


def refuses(terms: int, in_place: bool, halves: bool) -> Callable[[Problem], str | None]:
    """Why such a rung does not take a problem."""

    def reason(p: Problem) -> str | None:
        conv = p.conv
        if halves and conv.M % CHUNK:
            return f"{conv.M} filters: TMA takes multiples of {CHUNK}"
        if in_place and (reason := unaligned(conv)):
            return reason
        if side(conv, in_place) > 1 and (conv.strides != (conv.U, conv.U) or conv.dilation != (1, 1)):
            return f"strides {conv.strides} and dilation {conv.dilation}: takes equal strides and no dilation"
        if side(conv, in_place) == 1 and (reason := beyond_map(conv)):
            return reason
        if conv.U > LARGEST_STEP or blocked(conv, in_place)[3] > LARGEST_WINDOW:
            return f"a stride of {conv.U} and {conv.R} rows: takes strides up to {LARGEST_STEP}"
        if tile_taps(p) * p["TILE_FILTERS"] > MOST_TAPS * 128 or tile_taps(p) > MOST_TAPS:
            return f"a tile of {p['TILE_FILTERS']} x {tile_taps(p)}: registers hold {128 * MOST_TAPS} sums"
        if p["GRID_BLOCKS"] % p["CLUSTER"] or p["TILE_FILTERS"] // PLANE_VALUES % p["CLUSTER"]:
            return f"{p['GRID_BLOCKS']} blocks of {p['TILE_FILTERS']} filters: no whole clusters of {p['CLUSTER']}"
        prepared = max(prod(blocked(conv, in_place)[:3]), gradient_c(conv) * conv.E * conv.F)
        if reason := beyond_integers("a prepared image", prepared):
            return reason
        if reduced_bytes(conv, halves) > PORTABLE_SHARED:
            return f"a filter of {conv.R} x {conv.S} taps is too large for the reduction"
        return beyond_shared(p.device, "a block needs", pipeline_bytes(p, terms))

    return reason


# ---- Floats, scaled --------------------------------------------------------------------------------------------------


def tiles_of_plane(pixels: int) -> int:
    """Tiles of a plane."""
    return ceil(pixels / PLANE_TILE)


def input_pixels(conv: Conv) -> int:
    """Pixels of a blocked plane."""
    _, H, W, _, _ = blocked(conv, in_place=False)
    return H * W


def input_c(conv: Conv) -> int:
    """Channels of a blocked pixel."""
    return blocked(conv, in_place=False)[0]


def prepare_grid(p: Problem) -> Dims:
    """A block for each tile of x and of dy, of each image."""
    of_x = tiles_of_plane(input_pixels(p.conv)) * ceil(input_c(p.conv) / TILE_CHANNELS)
    of_dy = tiles_of_plane(p.conv.E * p.conv.F) * ceil(gradient_c(p.conv) / TILE_CHANNELS)
    return of_x + of_dy, 1, p.N


def flat_block(p: Problem) -> Dims:
    """A block of a preparation."""
    return THREADS, 1, 1


def pixels(name: str) -> Array:
    """x as a term of fp16."""
    return Array(name, lambda p: (p.N, input_pixels(p.conv), input_c(p.conv)), HALF)


def gradients(name: str) -> Array:
    """dy as a term of fp16."""
    return Array(name, lambda p: (p.N, p.conv.E * p.conv.F, gradient_c(p.conv)), HALF)


MAGNITUDES = (
    Array("input_magnitudes", lambda p: (p.N, tiles_of_plane(input_pixels(p.conv)), input_c(p.conv))),
    Array("gradient_magnitudes", lambda p: (p.N, tiles_of_plane(p.conv.E * p.conv.F), gradient_c(p.conv))),
)
EXPONENTS = (
    Array("input_exponents", lambda p: (input_c(p.conv),)),
    Array("gradient_exponents", lambda p: (gradient_c(p.conv),)),
)


def of_floats(name: str, alias: str, idea: str, parent: str, precision: str, suffixes: tuple[str, ...]) -> Rung:
    """A rung of floats, whose operands have a term for each suffix."""
    terms = len(suffixes)
    of_x, of_dy = ([f"{operand}{suffix}" for suffix in suffixes] for operand in ("pixels", "gradients"))
    input_maps, gradient_maps = ([f"{operand}{suffix}_map" for suffix in suffixes] for operand in ("input", "gradient"))
    magnitudes, exponents = (tuple(array.name for array in arrays) for arrays in (MAGNITUDES, EXPONENTS))
    return Rung(
        name,
        alias=alias,
        idea=idea,
        family="wgrad",
        parent=parent,
        file=f"wgrad/{name.replace('-', '_')}.cu",
        launches=(
            Launch(
                "prepare",
                ("x", "dy", *magnitudes, *of_x, *of_dy),
                prepare_grid,
                flat_block,
                lambda p: terms * PLANE_TILE * PITCH * HALF,
            ),
            Launch(
                "prepare_outliers",
                ("x", "dy", *magnitudes, *exponents, *of_x, *of_dy, BATCH),
                lambda p: (ceil(input_c(p.conv) / CHECKED) + ceil(gradient_c(p.conv) / CHECKED), 1, 1),
                lambda p: (CHECK_THREADS, 1, 1),
                lambda p: CHECK_THREADS // CHECKED * (CHECKED + 1) * FLOAT,
                pdl=True,
            ),
            multiply(terms, *input_maps, *gradient_maps),
            reduce_fragments(False, False, *exponents, "x", "dy", "dw"),
        ),
        constants=tile_constants(terms, in_place=False),
        scratch=(*MAGNITUDES, *EXPONENTS, *map(pixels, of_x), *map(gradients, of_dy), partial(in_place=False)),
        time=time_of(terms, False, *map(pixels, of_x), *map(gradients, of_dy)),
        maps=(
            *(input_map(name, array, in_place=False) for name, array in zip(input_maps, of_x, strict=True)),
            *(gradient_map(name, array) for name, array in zip(gradient_maps, of_dy, strict=True)),
        ),
        refuses=refuses(terms, in_place=False, halves=False),
        takes=("padding", "stride pairs", "dilation"),
        direction=WGRAD,
        precision=precision,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        products=3 if terms == 2 else 1,
    )


# ---- fp16 ------------------------------------------------------------------------------------------------------------

BLOCK_PIXELS = 64  # of a block that blocks fp16


def blocked_grid(p: Problem) -> Dims:
    """A block for each BLOCK_PIXELS pixels of a row of a blocked plane."""
    _, H, W, _, _ = blocked(p.conv, in_place=False)
    return ceil(W / BLOCK_PIXELS), H, p.N


def blocked_bytes(conv: Conv) -> int:
    """Shared memory of such a block: the rows of its pixels."""
    return side(conv, in_place=False) ** 2 * BLOCK_PIXELS * conv.C * HALF


def refuses_blocked(p: Problem) -> str | None:
    """Why fp16 cannot be blocked, or the product not computed."""
    return refuses(1, in_place=False, halves=True)(p) or beyond_shared(
        p.device, "a row of blocked pixels needs", blocked_bytes(p.conv)
    )


def of_halves(name: str, alias: str, idea: str, parent: str, in_place: bool) -> Rung:
    """A rung of fp16, whose x is read in place or blocked first."""
    blocks = Launch("prepare_input", ("x", "pixels"), blocked_grid, flat_block, lambda p: blocked_bytes(p.conv))
    scratch = () if in_place else (pixels("pixels"),)
    return Rung(
        name,
        alias=alias,
        idea=idea,
        family="wgrad",
        parent=parent,
        file=f"wgrad/{name.replace('-', '_')}.cu",
        launches=(
            *(() if in_place else (blocks,)),
            multiply(1, "input_map", "gradient_map"),
            reduce_fragments(in_place, True, "dw"),
        ),
        constants=tile_constants(1, in_place),
        scratch=(*scratch, partial(in_place)),
        time=time_of(1, in_place, *scratch),
        maps=(
            input_map("input_map", "x" if in_place else "pixels", in_place),
            gradient_map("gradient_map", "dy"),
        ),
        refuses=refuses(1, in_place, halves=True) if in_place else refuses_blocked,
        takes=("padding", "stride pairs", "dilation"),
        direction=WGRAD,
        precision="fp16",
        layout="nhwc",
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
    )


WGRAD_WGMMA_RUNGS: tuple[Rung, ...] = (
    of_halves(
        "wgrad-wgmma-half",
        "wg-wgmma-h",
        "wgmma on transposed operands as they lie in NHWC, fed by TMA; stream-K over pixels, reduced in order",
        "wgrad-mma-half",
        in_place=True,
    ),
    of_halves(
        "wgrad-wgmma-half-blocked",
        "wg-wgmma-s2d-h",
        "space-to-depth first, for few channels and a stride",
        "wgrad-wgmma-half",
        in_place=False,
    ),
    of_floats(
        "wgrad-wgmma-scaled",
        "wg-wgmma-s",
        "floats scaled and rounded to fp16, a power of two for each channel and filter: tf32's accuracy",
        "wgrad-wgmma-half-blocked",
        "tf32",
        ("",),
    ),
    of_floats(
        "wgrad-wgmma-split",
        "wg-wgmma-2",
        "hi and lo fp16 terms, three products, every stage promoted: the accuracy of fp32",
        "wgrad-wgmma-scaled",
        "fp32",
        ("_hi", "_lo"),
    ),
)
