"""How long the wgmma rungs take: tiles of persistent kernels, bound by products or by loads from the L2 cache."""

from math import ceil

from alexconv.kernels.geometry import FLOAT, round_up
from alexconv.kernels.problem import Problem
from alexconv.kernels.times import CLOCK, TILE, Time, inputs, values
from alexconv.kernels.wgmma.blocked import (
    CHUNK,
    MMA_K,
    ROW_BYTES,
    STAGE_TAPS,
    WGMMA_ROWS,
    Gathers,
    blocked_c,
    runs,
    side,
    tiles,
)
from alexconv.kernels.wgmma.blocked import products as products_of_layer

WGMMA = 2048 * 0.86  # multiply-adds per cycle of a multiprocessor: the tensor cores' peak, and the share reached
FROM_CACHE = 46.0  # bytes per cycle that each multiprocessor gets from the L2 cache when all of them load
SMALL_FROM_CACHE = 60.0  # the same for tiles of a single warpgroup
ALONE, MANY = 80.0, 0.6  # the same when few of them load; the share below which their total is constant
STORE = 40.0  # bytes per cycle that a multiprocessor stores
SMALL_TILE = 0.8  # microseconds besides products and loads of a tile that a single warpgroup multiplies
SLICES = 1.0  # microseconds to add split-K slices, besides those of each slice
THREE_CONSUMERS, LARGE = 192, 128  # pixels and fewest filters of a tile of one term that three warpgroups multiply ...
THIRDS = 1.04  # ... and how much longer it takes
FEW_TAPS, SPARSE = 32, 3.2  # a run of fewer taps leaves stages nearly empty; how much longer its tiles take
NARROW = 2.2  # the same for runs of that many taps of the fewest channels: a row of a stage begins at each 16 bytes
UNEVEN = 2.5  # the same for a single warpgroup whose stages differ in steps: it waits between them
BY_VALUE = 3.0  # how much longer it takes to write planes of fp16 values, which are read one by one
BLOCKED = 1.5  # the same for planes of squares ...
UNALIGNED, EVEN_SIDES = 18.0, (2, 4, 8, 16)  # ... from floats, of another side than these
FEWEST_PIXELS = 28  # of a plane: a block that writes a smaller one takes as long
BETWEEN = 1.05  # positions of a plane over outputs: some lie between rows
ANOTHER = TILE / 8  # microseconds of each tile of a block but the first
FAINT = 110.0  # microseconds of the launch for full range, where floats have no more channels than operands have terms
TILE_SIZES = ("TILE_PIXELS", "TILE_FILTERS")


def single(p: Problem) -> bool:
    """Whether a single warpgroup multiplies a tile."""
    return p["TILE_PIXELS"] == WGMMA_ROWS


def uneven(p: Problem, taps: int) -> bool:
    """Whether a single warpgroup multiplies stages that differ in steps, for runs of this many fp16 taps."""
    full, rest = divmod(taps, STAGE_TAPS)
    return single(p) and full > 0 and 0 < rest <= STAGE_TAPS - MMA_K


def from_cache(p: Problem) -> float:
    """Bytes per cycle that a multiprocessor gets from the L2 cache while tiles, or their slices, are loaded."""
    all_load = SMALL_FROM_CACHE if single(p) else FROM_CACHE
    busy = tiles(p) * p.constants.get("SPLITS", 1) / p.device.multiprocessors
    return min(ALONE, all_load * max(1.0, MANY / busy))


def in_waves(p: Problem, of_tile: float, value: int = 4) -> float:
    """Microseconds of tiles in waves, or of their split-K slices and adding these; ``value``: bytes of an output."""
    splits = p.constants.get("SPLITS", 1)
    waves = ceil(tiles(p) * splits / p.device.multiprocessors)
    stored = p["TILE_PIXELS"] * p["TILE_FILTERS"] * value / STORE / CLOCK
    of_slice = p["TILE_PIXELS"] * p["TILE_FILTERS"] * 4 / FROM_CACHE / CLOCK  # which the last block adds
    besides = SMALL_TILE if single(p) else TILE
    return waves * (of_tile / splits + besides + stored) + (SLICES + of_slice * splits if splits > 1 else 0)


def full_range(p: Problem, terms: int) -> float:
    """Microseconds of images with pixels that are faint in all of their few channels, which scaled floats then have."""
    return FAINT if terms >= p.conv.C else 0.0


def tiled(
    gathers: Gathers,
    terms: int = 1,
    products: int = 1,
    value: int = 4,
    *,
    prepares: bool = True,
    whole: bool = False,
) -> Time:
    """A persistent rung: terms of an operand, products of them, bytes of a value of x and y.

    ``prepares``: a launch before it writes the input into planes.  ``whole``: every stage has all steps, the last too.
    """

    def busy(p: Problem) -> float:
        count, taps = runs(p.conv, gathers)
        if whole:
            taps = round_up(taps, STAGE_TAPS)
        pixels, filters = p["TILE_PIXELS"], p["TILE_FILTERS"]
        stage_bytes = (pixels + filters) * ROW_BYTES * terms
        full, rest = divmod(taps, STAGE_TAPS)
        loads = ceil(taps / STAGE_TAPS) * stage_bytes / from_cache(p)
        steps = full * (STAGE_TAPS // MMA_K) + ceil(rest / MMA_K)
        of_run = max(loads, steps * MMA_K * pixels * filters * products / WGMMA)
        slower = 1.0
        if terms == 1 and pixels == THREE_CONSUMERS and filters >= LARGE:
            slower = THIRDS
        if prepares and taps < FEW_TAPS:
            slower = SPARSE
        elif prepares and blocked_c(p.conv, gathers) == CHUNK and taps < STAGE_TAPS:
            slower = NARROW
        if uneven(p, taps):
            slower = UNEVEN
        scaled = full_range(p, terms) if prepares and value == FLOAT else 0.0
        return in_waves(p, slower * count * of_run / CLOCK, value) + scaled

    def passes(p: Problem) -> float:
        of = side(p.conv, gathers)
        plain = 1.0 if value == FLOAT else BY_VALUE
        squares = plain if of == 1 else UNALIGNED if value == FLOAT and of not in EVEN_SIDES else BLOCKED
        small = max(1.0, FEWEST_PIXELS / (p.conv.H * p.conv.W))
        return inputs(p) * (value + 2 * terms) * squares * small if prepares else 0.0

    return Time(busy, values(2 * terms, value), passes, tiles=TILE_SIZES)


def by_positions(p: Problem, positions: float, products: int, least: float) -> float:
    """Microseconds of tiles of consecutive positions, whose filters stay in shared memory; ``least`` of a tile."""
    count, taps = runs(p.conv)
    blocks = max(1, p.device.multiprocessors // products_of_layer(p.conv))  # with the same filters
    waves = ceil(ceil(p.N * p.conv.E * p.conv.F * BETWEEN / positions) / blocks)
    of_tile = products * count * ceil(taps / MMA_K) * MMA_K * positions * p["TILE_FILTERS"] / WGMMA / CLOCK
    return waves * (max(of_tile, least) + ANOTHER) + TILE
