"""Estimates how long a rung takes on a GPU: ``auto`` uses it for layers that have not been timed.

A launch lasts as long as its slowest multiprocessor: waves of tiles, each bound by products or by bytes from the L2
cache, or the bytes of DRAM that all move together.  A rung takes the sum over its launches and what it costs to start
them.  The rates were fitted to an H200's times of AlexNet's and networks' layers (``tests/tune/test_estimate.py``
checks them against the records); on other GPUs only the order is meaningful.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, inf, sqrt

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.geometry import round_up
from alexconv.kernels.problem import Device, Problem
from alexconv.kernels.rung import Rung
from alexconv.kernels.wgmma.ladder import (
    ROW_BYTES,
    SMALLEST_TILE,
    STAGE_TAPS,
    WGMMA_ROWS,
    Gathers,
    as_it_lies,
    runs,
    side,
    where_it_pays,
)
from alexconv.kernels.wgmma.ladder_floats import float_runs
from alexconv.kernels.wgmma.ladder_in_place import (
    filter_bytes,
    packed_k,
    tiles_of_filters,
    tiles_of_image,
    window_bytes,
)
from alexconv.kernels.wgmma.ladder_split_k import SPLITS
from alexconv.kernels.wgmma.ladder_winograd import depth, points, tiles_across
from alexconv.shapes import Conv

CLOCK = 1.6e3  # cycles per microsecond, under load
DRAM, CACHE = 3.4e6, 5.5e6  # bytes per microsecond: of DRAM; where a launch's arrays stay in the L2 cache
FIRST_LAUNCH, NEXT_LAUNCH = 2.0, 1.2  # microseconds that a launch costs in a graph
MMA_K = 16  # taps of a wgmma
WGMMA = 2048 * 0.86  # multiply-adds per cycle of a multiprocessor: the tensor cores' peak, and the share reached
THREE_CONSUMERS, LARGE = 192, 128  # pixels and fewest filters of a tile of one term that three warpgroups multiply ...
THIRDS = 1.04  # ... and how much longer it takes
FEW_TAPS, SPARSE = 32, 3.2  # a run of fewer taps leaves stages nearly empty; how much longer its tiles take
UNEVEN = 2.5  # the same for a single warpgroup whose stages differ in steps: it waits between them
TF32 = WGMMA / 2  # multiply-adds per cycle in tf32
FROM_CACHE = 46.0  # bytes per cycle that each multiprocessor gets from the L2 cache when all of them load
SMALL_FROM_CACHE = 60.0  # the same for tiles of a single warpgroup
ALONE, MANY = 80.0, 0.6  # the same when few of them load; the share below which their total is constant
STORE = 40.0  # bytes per cycle that a multiprocessor stores
SPLIT_RATE = 0.85  # of tf32's rate, where each stage's sums are promoted
SINGLE = 0.6  # the same for a warpgroup that rounds or splits floats while no other multiplies
TILE = 1.6  # microseconds of a tile that are neither products nor loads: filling the pipeline, storing outputs
SMALL_TILE = 0.8  # the same of one that a single warpgroup multiplies
USUAL_REUSE, MOST_REUSE, STRIDED = 9, 25, 0.75  # taps for usual and most input reuse of an mma rung; with a stride
SLICES = 1.0  # microseconds to add split-K slices, besides those of each slice
CUDA_CORES = 105.0  # multiply-adds per cycle of a multiprocessor, of igemm
IGEMM_TILE = 128 * 64  # outputs of its block
IGEMM_TAPS = 22  # its overhead, in taps
FEW_TAP = 0.15  # microseconds per tap of a block of direct-few
FEW, FEW_HALF = 27.0, 70.0  # multiply-adds per cycle of a multiprocessor, of direct-few and of direct-few-half
DIRECT = 8.0  # the same of direct-any
DIRECT_TAP, HALF_TAP = 0.023, 0.12  # microseconds per tap of a thread, of direct-any and of direct-any-half
BLOCKED = 1.5  # how much longer it takes to write planes of squares
STREAM_K = 15.0  # microseconds of short blocks and tails, whatever the layer
WINDOWS = 1.15  # how much longer kernels with windows take than estimated
WINDOW, RESIDENT = 1.1, 1.2  # least microseconds of a tile: from a window, with resident filters
IN_PLACE = 0.7  # the same from a window in place
READ_ROWS, READ_FILTER = 16.0, 0.25  # cycles in which a wgmma reads its rows from shared memory, and a filter
WAVE = 2.0  # least microseconds of a wave of mma blocks
COPIED = 22e3  # bytes per microsecond that an mma block copies to shared memory
BLOCK, SPLIT = 4.0, 1.5  # microseconds of an mma block besides its taps; of adding split-K slices
SECOND = 0.7  # how much longer two waves of its blocks take than one: they overlap


def moved(p: Problem, nbytes: float) -> float:
    """Microseconds for bytes that all multiprocessors move."""
    return nbytes / (CACHE if nbytes < p.device.l2_bytes else DRAM)


def inputs(p: Problem) -> int:
    """Values of the batch's input."""
    return p.N * p.conv.C * p.conv.H * p.conv.W


def outputs(p: Problem) -> int:
    """Values of the batch's output."""
    return p.N * p.conv.M * p.conv.E * p.conv.F


def from_cache(p: Problem, tiles: int) -> float:
    """Bytes per cycle that a multiprocessor gets from the L2 cache while tiles, or their slices, are loaded."""
    all_load = SMALL_FROM_CACHE if p["TILE_PIXELS"] == SMALLEST_TILE else FROM_CACHE
    busy = tiles * p.constants.get("SPLITS", 1) / p.device.multiprocessors
    return min(ALONE, all_load * max(1.0, MANY / busy))


def uneven(p: Problem, taps: int) -> bool:
    """Whether a single warpgroup multiplies stages that differ in steps, for runs of this many fp16 taps."""
    full, rest = divmod(taps, STAGE_TAPS)
    return p["TILE_PIXELS"] == SMALLEST_TILE and full > 0 and 0 < rest <= STAGE_TAPS - MMA_K


def sliced(p: Problem, tiles: int, of_tile: float, value: int = 4) -> float:
    """Microseconds of tiles in waves, or of their split-K slices and adding these."""
    splits = p.constants.get("SPLITS", 1)
    waves = ceil(tiles * splits / p.device.multiprocessors)
    stored = p["TILE_PIXELS"] * p["TILE_FILTERS"] * value / STORE / CLOCK
    of_slice = p["TILE_PIXELS"] * p["TILE_FILTERS"] * 4 / FROM_CACHE / CLOCK  # which the last block adds
    besides = SMALL_TILE if p["TILE_PIXELS"] == SMALLEST_TILE else TILE
    return waves * (of_tile / splits + besides + stored) + (SLICES + of_slice * splits if splits > 1 else 0)


@dataclass(frozen=True)
class Tiled:
    """A persistent wgmma rung: terms of an operand, products of them, bytes of a value of x and y.

    ``prepares``: a launch before it writes the input into planes.  ``whole``: every stage has all steps, the last too.
    """

    gathers: Gathers
    terms: int = 1
    products: int = 1
    value: int = 4
    prepares: bool = True
    whole: bool = False

    def __call__(self, p: Problem) -> float:
        """Microseconds of all launches."""
        conv = p.conv
        count, taps = runs(conv, self.gathers)
        if self.whole:
            taps = round_up(taps, STAGE_TAPS)
        pixels, filters = p["TILE_PIXELS"], p["TILE_FILTERS"]
        stage_bytes = (pixels + filters) * ROW_BYTES * self.terms
        full, rest = divmod(taps, STAGE_TAPS)
        tiles = ceil(p.N * conv.E * conv.F / pixels) * ceil(conv.M / filters)
        loads = ceil(taps / STAGE_TAPS) * stage_bytes / from_cache(p, tiles)
        steps = full * (STAGE_TAPS // MMA_K) + ceil(rest / MMA_K)
        products = steps * MMA_K * pixels * filters * self.products / WGMMA
        slower = 1.0
        if self.terms == 1 and pixels == THREE_CONSUMERS and filters >= LARGE:
            slower = THIRDS
        if self.prepares and taps < FEW_TAPS:
            slower = SPARSE
        if uneven(p, taps):
            slower = UNEVEN
        product = sliced(p, tiles, slower * count * max(loads, products) / CLOCK, self.value)
        written = outputs(p) * self.value
        before = float(inputs(p) * (self.value + 2 * self.terms)) if self.prepares else 0.0
        before *= BLOCKED if side(conv, self.gathers) > 1 else 1
        return max(product, moved(p, written + inputs(p) * 2 * self.terms)) + moved(p, before)


@dataclass(frozen=True)
class Floats:
    """A persistent wgmma rung that multiplies floats as they are in memory: terms of a value, products of them."""

    terms: int = 1
    products: int = 1

    def __call__(self, p: Problem) -> float:
        """Microseconds of all launches."""
        conv = p.conv
        count, values = float_runs(conv)
        pixels, filters = p["TILE_PIXELS"], p["TILE_FILTERS"]
        tiles = ceil(p.N * conv.E * conv.F / pixels) * ceil(conv.M / filters)
        stage_bytes = (pixels + self.terms * filters) * ROW_BYTES
        loads = ceil(2 * values / STAGE_TAPS) * stage_bytes / from_cache(p, tiles)
        rate = TF32 * (SPLIT_RATE if self.terms > 1 else 1) * (SINGLE if pixels == SMALLEST_TILE else 1)
        products = values * pixels * filters * self.products / rate
        slower = UNEVEN if uneven(p, 2 * values) else 1.0
        product = sliced(p, tiles, slower * count * max(loads, products) / CLOCK)
        return max(product, moved(p, 4 * (inputs(p) + outputs(p))))


def in_place(p: Problem) -> float:
    """Microseconds of wgmma-window-in-place: a block loads its filters once, and a window per tile of positions."""
    filters, sharing = p["TILE_FILTERS"], p.device.multiprocessors // tiles_of_filters(p)
    wgmmas = packed_k(p.conv) / MMA_K * p["TILE_PIXELS"] / 2 / WGMMA_ROWS
    products = wgmmas * max(MMA_K * WGMMA_ROWS * filters / WGMMA, READ_ROWS + filters * READ_FILTER)
    tile = max(products, window_bytes(p) / FROM_CACHE) / CLOCK
    waves = ceil(p.N * tiles_of_image(p) / max(1, sharing))
    product = waves * max(tile, IN_PLACE) + TILE + filter_bytes(p) / ALONE / CLOCK
    return max(product, moved(p, 2 * (inputs(p) + outputs(p))))


@dataclass(frozen=True)
class Warps:
    """An mma rung: microseconds per tap of a block, and multiply-adds per cycle of a full multiprocessor."""

    tap: float
    full: float
    value: int = 4  # bytes

    def __call__(self, p: Problem) -> float:
        """Microseconds of its launch."""
        conv = p.conv
        pixels, filters = p["TILE_PIXELS"], p["TILE_FILTERS"]
        k_tiles = ceil(conv.C / p["CHANNELS"])
        splits = min(p["SPLITS"], k_tiles)
        blocks = p.N * ceil(conv.E * conv.F / pixels) * ceil(conv.M / filters) * splits
        taps = ceil(k_tiles / splits) * p["CHANNELS"] * conv.R * conv.S
        waves = ceil(blocks / p.device.multiprocessors)
        # Inputs are copied once for all taps that use them; with a stride fewer do.
        reuse = sqrt(min(conv.R * conv.S, MOST_REUSE) / USUAL_REUSE) if conv.strides == (1, 1) else STRIDED
        full = waves * pixels * filters * taps / (self.full * reuse) / CLOCK
        rows = (min(conv.E, (pixels + conv.F - 2) // conv.F + 1) - 1) * conv.U + conv.filter_rows
        copied = ceil(k_tiles / splits) * p["CHANNELS"] * rows * conv.padded[1] * self.value
        alone = (BLOCK + taps * self.tap + copied / COPIED) * (1 + (SECOND if waves > 1 else 0))
        return max(alone, full, waves * WAVE) + (SPLIT if splits > 1 else 0)


def winograd(p: Problem) -> float:
    """Microseconds of wgmma-winograd: stream-K leaves no wave unfilled; values and sums pass through memory."""
    conv = p.conv
    rows = p.N * tiles_across(p) * conv.E
    taps = conv.R * depth(conv)
    products = 3 * points(p) * rows * ceil(conv.M / p["TILE_FILTERS"]) * p["TILE_FILTERS"] * taps
    product = products / WGMMA / p.device.multiprocessors / CLOCK
    values = points(p) * p.N * tiles_across(p) * conv.padded[0] * depth(conv)
    sums = 4 * points(p) * rows * conv.M
    passes = 4 * inputs(p) + 4 * values + sums + 4 * outputs(p)
    return max(product, moved(p, 4 * values + sums)) + STREAM_K + moved(p, passes)


def resident(p: Problem) -> float:
    """Microseconds of wgmma-split-resident."""
    conv = p.conv
    count, taps = runs(conv)
    tiles = ceil(p.N * conv.E * conv.F * 1.05 / 64)
    products = 3 * count * ceil(taps / MMA_K) * MMA_K * 64 * p["TILE_FILTERS"] / WGMMA
    product = ceil(tiles / p.device.multiprocessors) * (max(products / CLOCK, RESIDENT) + TILE / 8) + TILE
    return max(product, moved(p, 4 * outputs(p))) + moved(p, 8 * inputs(p))


def windows(value: int) -> Callable[[Problem], float]:
    """Microseconds of the rungs that work from windows."""

    def found(p: Problem) -> float:
        conv = p.conv
        count, taps = runs(conv)
        tiles = ceil(p.N * conv.E * conv.F * 1.05 / (p["TILE_PIXELS"] / 2))
        products = count * ceil(taps / MMA_K) * MMA_K * p["TILE_PIXELS"] / 2 * p["TILE_FILTERS"] / WGMMA
        product = ceil(tiles / p.device.multiprocessors) * (max(products / CLOCK, WINDOW) + TILE / 8) + TILE
        return WINDOWS * (max(product, moved(p, value * outputs(p))) + moved(p, (value + 2) * inputs(p)))

    return found


def on_cuda_cores(rate: float, *, streams: bool = False) -> Callable[[Problem], float]:
    """Microseconds of rungs that multiply without tensor cores."""

    def found(p: Problem) -> float:
        blocks = outputs(p) / IGEMM_TILE  # a multiprocessor reaches its rate with two
        busy = p.device.multiprocessors if streams else min(p.device.multiprocessors, max(0.5, blocks / 2))
        products = p.conv.macs(p.N) / (rate * busy * CLOCK) * (1 + IGEMM_TAPS / p.conv.K)
        return max(products, moved(p, 4 * (inputs(p) + outputs(p)))) + (STREAM_K if streams else 4 * TILE)

    return found


def one_by_one(tap: float) -> Callable[[Problem], float]:
    """Microseconds of direct-any, whose threads each compute one output, tap after tap."""

    def found(p: Problem) -> float:
        products = p.conv.macs(p.N) / (DIRECT * p.device.multiprocessors * CLOCK)
        return max(products, moved(p, 4 * (inputs(p) + outputs(p))), tap * p.conv.K)

    return found


def few(value: int, rate: float) -> Callable[[Problem], float]:
    """Microseconds of the rungs for few channels."""

    def found(p: Problem) -> float:
        conv = p.conv
        columns, filters = ceil(conv.F / 32) * 32, ceil(conv.M / 64) * 64
        products = p.N * conv.E * columns * filters * conv.K / (rate * p.device.multiprocessors * CLOCK)
        return max(products, moved(p, value * (inputs(p) + outputs(p))), FEW_TAP * conv.K) + TILE

    return found


KINDS: Mapping[str, Callable[[Problem], float]] = {
    "wgmma-half": Tiled(as_it_lies, value=2, prepares=False),
    "wgmma-half-split-k": Tiled(as_it_lies, value=2, prepares=False),
    "wgmma-half-whole": Tiled(as_it_lies, value=2, prepares=False, whole=True),
    "wgmma-half-blocked": Tiled(where_it_pays, value=2),
    "wgmma-scaled": Tiled(where_it_pays),
    "wgmma-split": Tiled(where_it_pays, terms=2, products=3),
    "wgmma-window-in-place": in_place,
    "wgmma-window-half": windows(2),
    "wgmma-window-scaled": windows(4),
    "wgmma-split-resident": resident,
    "wgmma-winograd": winograd,
    "wgmma-floats": Floats(),
    "wgmma-floats-split": Floats(terms=2, products=3),
    "mma-half": Warps(0.0040, 230, value=2),
    "mma-tf32": Warps(0.0055, 150),
    "mma-scaled": Warps(0.0055, 110),
    "mma-split": Warps(0.0060, 76),
    "igemm": on_cuda_cores(CUDA_CORES * 0.9),
    "igemm-async": on_cuda_cores(CUDA_CORES),
    "igemm-stream-k": on_cuda_cores(CUDA_CORES * 0.9, streams=True),
    "direct-few": few(4, FEW),
    "direct-few-half": few(2, FEW_HALF),
    "direct-any": one_by_one(DIRECT_TAP),
    "direct-any-half": one_by_one(HALF_TAP),
}


def estimate(bound: BoundRung, N: int) -> float:
    """Microseconds for N images, without the preparation of filters; infinite for a rung that is not known here."""
    kind = KINDS.get(bound.rung.name)
    if kind is None:
        return inf
    launches = len(bound.rung.launches) * len(bound.micro_batches(N))
    return kind(bound.problem(N)) + FIRST_LAUNCH + NEXT_LAUNCH * (launches - 1)


def padding_it(conv: Conv, N: int, device: Device) -> float:
    """Microseconds of a copy of N images into planes that have their padding in memory."""
    p = Problem(conv.with_border(), N, {}, device)
    return moved(p, 8 * inputs(p)) + FIRST_LAUNCH


def candidates(rung: Rung, conv: Conv, N: int, device: Device) -> Iterator[BoundRung]:
    """The rung with its usual constants, then with other tile sizes if these are constants of its kind."""
    usual = BoundRung(rung, conv, rung.resolve(conv, {}, N, device), device)
    yield usual
    if isinstance(kind := KINDS.get(rung.name), Tiled | Floats) or kind is in_place:
        choices = {each.name: each.choices for each in rung.constants}
        for pixels in choices["TILE_PIXELS"]:
            for filters in choices["TILE_FILTERS"]:
                sizes = {"TILE_PIXELS": pixels, "TILE_FILTERS": filters}
                fewest = BoundRung(rung, conv, rung.resolve(conv, {**sizes, "STAGES": 2}, N, device), device)
                if fewest.refusal():
                    continue
                stages = (fewest.having({"STAGES": number}) for number in (8, 7, 6, 5, 4, 3, 2))
                tile = next(each for each in stages if not each.refusal())
                yield tile
                yield from (tile.having({"SPLITS": each}) for each in SPLITS if each < tile.constants.get("SPLITS", 1))


def ranked(rung: Rung, conv: Conv, N: int, device: Device) -> list[tuple[float, BoundRung]]:
    """The candidates, each once, by their estimates; none where the rung refuses the layer."""
    taken = [each for each in candidates(rung, conv, N, device) if not each.refusal()]
    once = {tuple(sorted(each.constants.items())): each for each in taken}
    return sorted(((estimate(each, N), each) for each in once.values()), key=lambda found: found[0])


def best(rung: Rung, conv: Conv, N: int, device: Device) -> tuple[float, BoundRung] | None:
    """The candidate with the least estimate; None where the rung refuses the layer."""
    return next(iter(ranked(rung, conv, N, device)), None)
