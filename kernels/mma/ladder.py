"""The mma rungs: implicit GEMM on tensor cores by single warps (mma.sync), for small batches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, product
from math import ceil, sqrt

import numpy as np

from alexconv.kernels.dynamic import Dynamic, Number
from alexconv.kernels.geometry import AMPERE, FLOAT, HOPPER, TURING, WARP, beyond_shared, round_up
from alexconv.kernels.preparation import FIND_FILTER_EXPONENTS, PREPARATION_THREADS, SCALED_FILTERS, flat_block
from alexconv.kernels.problem import Device, Problem
from alexconv.kernels.rung import TF32_OPERANDS, Array, Constant, Dims, Launch, Rung
from alexconv.kernels.times import CLOCK, Time
from alexconv.precisions import PRECISIONS
from alexconv.shapes import NETWORK_FEATURES, Conv

WORD = 4  # bytes
RANGE_BYTES = 6  # of static shared memory for each warp, where values are scaled; range.cuh
MMA_WORDS = 8  # words of K in a warp's product
CHUNK = 8  # channels of the widest copy
LANE_WORDS = 4  # of a fragment
FRAGMENT_ROWS = 16
MOST_ACCUMULATORS = 128  # registers of a thread
MOST_ROW = 2**15 - 1  # where a window begins; its column has 16 bits too, and shared memory whole rows (mma_pairs.cuh)
MOST_USUAL_OUTPUTS = 96 * 32  # of a block: leaves registers and shared memory for operands
PIXEL_TILES, FILTER_TILES = (16, 32, 40, 48, 64, 88, 96, 128), (16, 32, 48, 64, 96, 128)
USUAL_PIXELS, USUAL_FILTERS, MOST_SPLITS = (40, 48, 96), (16, 32, 48, 64), 8  # the defaults to choose from
DYNAMIC_TILES = (48, 64), (48, 32), (40, 16)  # pixels and filters of the builds for every shape
PRODUCTS_OF_TERMS = {1: 1, 2: 3}  # by terms of an operand; lo times lo is left out
CONSTANTS = ("TILE_PIXELS", "TILE_FILTERS", "CHANNELS", "STAGES", "SPLITS", "WARPS", "WARPS_DOWN", "CLUSTER")
FEWER_WARPS, FEWEST_STAGES = (8, 4), 2  # of blocks that have little shared memory
FEW_STEPS, FEW_WARPS = 128, 8  # of a block: up to FEW_STEPS steps keep no more than FEW_WARPS warps busy
USUAL_REUSE, MOST_REUSE, STRIDED = 9, 25, 0.75  # taps for usual and most input reuse; with a stride
COPIED = 22e3  # bytes per microsecond that a block copies to shared memory
BLOCK, SPLIT = 2.6, 1.5  # microseconds of a block besides its taps; of adding split-K slices
ANOTHER = 0.7  # of a block's time that each wave of blocks but the first takes: they overlap
# How much longer a block takes with one channel of scaled floats, by their terms: some pixels are too faint, or many.
FAINT = {1: 1.5, 2: 5.0}
WAVE = 2.0  # least microseconds of a wave of blocks


def spread_pitch(conv: Conv) -> int:
    """Words from a row of inputs to the next; ``mma_planes.cuh``."""
    columns = conv.padded[1]
    spread = conv.strides[1] > 1 or 12 <= columns % 32 <= 20
    return columns if spread else columns + (44 - columns % 32) % 32


def in_floats(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
    """Words of K of ``channels`` channels, and of ``rows`` rows of their inputs; ``mma_planes.cuh``."""
    return channels * conv.R * conv.S, channels * rows * spread_pitch(conv)


def share_columns(conv: Conv) -> bool:
    """Whether two columns share a word of fp16 values, instead of two channels; ``mma_pairs.cuh``."""
    return conv.C % 2 == 1 and conv.strides[1] % 2 == 0 and conv.dilation_columns == 1


def in_pairs(terms: int) -> Callable[[Conv, int, int], tuple[int, int]]:
    """The same for words of two channels, or two columns, of floats converted to fp16; ``mma_pairs.cuh``."""

    def words(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
        if share_columns(conv):
            return channels * conv.R * window_words(conv), channels * rows * row_words(conv) * terms
        planes = ceil(channels / 2)
        return planes * conv.R * conv.S, planes * rows * spread_pitch(conv) * terms

    return words


def in_vectors(conv: Conv, channels: int) -> bool:
    """Whether copies of fp16 channels are vectors."""
    return conv.C % CHUNK == 0 and channels % CHUNK == 0


def window_words(conv: Conv) -> int:
    """Words of a row of a filter, of two channels or of two columns."""
    return ceil(conv.S / 2) if share_columns(conv) else conv.S


def row_words(conv: Conv) -> int:
    """Words of a row of inputs."""
    return ceil(conv.padded[1] / 2) if share_columns(conv) else conv.padded[1]


def in_fp16(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
    """The same for words of two channels, innermost; ``mma_half.cu``."""
    words = ceil(channels / 2)
    pitch = words + 4 if in_vectors(conv, channels) and words // 4 % 2 == 0 else words
    return words * conv.R * conv.S, rows * conv.padded[1] * pitch


def rows_of_pixels(pixels: int, filters: int) -> int:
    """Words of a tile's outputs in shared memory, a padded row per filter; ``mma_planes.cuh``."""
    return filters * (pixels + (24 - pixels % 16) % 16)


def rows_of_filters(pixels: int, filters: int) -> int:
    """The same, a padded row per pixel; ``mma_half.cu``."""
    return pixels * (filters + 4)


@dataclass(frozen=True)
class Usual:
    """The default constants for a shape."""

    pixels: int
    filters: int
    splits: int
    channels: int
    stages: int
    warps: int


@dataclass(frozen=True)
class Tile:
    """The geometry of ``mma_tile.cuh`` for one operand layout: ``words`` is one of the ``in_`` functions above.

    Its layer is one group's: the groups' tiles differ only in where their channels and filters begin.  ``sums`` is
    ``rows_of_pixels`` or ``rows_of_filters``; ``terms`` of an operand: 1, or 2 (hi and lo).  ``stages``,
    ``warps`` (at most), ``down`` (warps that divide the filters) and ``inputs`` (words of a K tile at most) determine
    the defaults; ``tap`` (microseconds for each tap of a block) and ``full`` (multiply-adds per cycle of a full
    multiprocessor) the time, of which builds for every shape take ``any_shape``.  ``scaled`` operands are floats times
    powers of two, and their pixels have flags.
    """

    words: Callable[[Conv, int, int], tuple[int, int]]
    tap: float
    full: float
    sums: Callable[[int, int], int] = rows_of_pixels
    terms: int = 1
    stages: int = 4
    warps: int = 16
    down: int = 1
    inputs: int = 15 * 1024
    scaled: bool = False
    any_shape: float = 1.0

    def usual(self, p: Problem) -> Usual:
        """The default constants, functions of shape and device alone."""
        return best_cut(self, p.conv.one_group, p.conv.groups, p.device)

    def fits(self, conv: Conv, channels: int, pixels: int) -> bool:
        """Whether a default K tile may have that many channels."""
        return channels == 1 or self.input_words(conv, channels, pixels) <= self.inputs * self.terms

    def group_tiles(self, conv: Conv, pixels: int, filters: int) -> int:
        """Tiles of a group of an image."""
        return ceil(conv.E * conv.F / pixels) * ceil(conv.M / filters)

    def holding(self, conv: Conv, cut: tuple[int, int, int], device: Device) -> Iterator[Usual]:
        """Constants for a cut that a block's shared memory holds: the fewest K tiles, then fewer warps and stages."""
        pixels, filters, count = cut
        channels = conv.C // count
        for warps, stages in product((self.warps, *FEWER_WARPS), (self.stages, FEWEST_STAGES)):
            for k_tiles in range(1, channels + 1):
                usual = Usual(pixels, filters, count, ceil(channels / k_tiles), stages, warps)
                if not self.fits(conv, usual.channels, pixels):
                    continue
                if k_tiles * self.steps(conv, usual.channels) <= FEW_STEPS:
                    usual = replace(usual, warps=min(warps, FEW_WARPS))
                if self.block_bytes(self.with_usual(conv, usual, device)) <= device.shared_per_block:
                    yield usual

    def with_usual(self, conv: Conv, usual: Usual, device: Device) -> Problem:
        """An image with default constants."""
        values = (usual.pixels, usual.filters, usual.channels, usual.stages, usual.splits, usual.warps, self.down, 1)
        return Problem(conv, 1, dict(zip(CONSTANTS, values, strict=True)), device)

    def steps(self, conv: Conv, channels: int) -> int:
        """Depth of a K tile in steps, a product of a warp each."""
        return ceil(self.words(conv, channels, conv.R)[0] / MMA_WORDS)

    def input_rows(self, conv: Conv, pixels: int) -> int:
        """Input rows under the windows of a tile's pixels."""
        output_rows = min(conv.E, (pixels + conv.F - 2) // conv.F + 1)
        return (output_rows - 1) * conv.U + conv.filter_rows

    def input_words(self, conv: Conv, channels: int, pixels: int) -> int:
        """Words of a K tile's input rows."""
        return round_up(self.words(conv, channels, self.input_rows(conv, pixels))[1], LANE_WORDS)

    def flags(self, conv: Conv, pixels: int) -> int:
        """Words of flags: two bytes per pixel, columns rounded up to even where they share words."""
        width = round_up(conv.padded[1], 2) if share_columns(conv) else conv.padded[1]
        return 2 * ceil(self.input_rows(conv, pixels) * width / WORD) if self.scaled else 0

    def k_tiles(self, p: Problem) -> int:
        """K tiles of CHANNELS channels that cover the depth."""
        return ceil(p.conv.one_group.C / p["CHANNELS"])

    def split_blocks(self, p: Problem) -> int:
        """Split-K slices of a tile, a block each, of at least one K tile."""
        return min(p["SPLITS"], self.k_tiles(p))

    def tiles(self, p: Problem) -> int:
        """Tiles of N images."""
        return p.N * p.conv.groups * self.group_tiles(p.conv.one_group, p["TILE_PIXELS"], p["TILE_FILTERS"])

    def grid(self, p: Problem) -> Dims:
        """A tile's blocks are neighbours; the grid is one-dimensional because only x may exceed 65535."""
        return self.tiles(p) * self.split_blocks(p), 1, 1

    def block(self, p: Problem) -> Dims:
        """WARPS warps."""
        return p["WARPS"] * WARP, 1, 1

    def block_bytes(self, p: Problem) -> int:
        """Bytes of shared memory of a block, dynamic and static."""
        return self.shared_bytes(p) + (RANGE_BYTES * p["WARPS"] if self.scaled else 0)

    def shared_bytes(self, p: Problem) -> int:
        """Of dynamic shared memory: factors; one or two K tiles of inputs, tap offsets, filters and flags, or the
        epilogue in the same memory.  In clusters also an mbarrier and the sums that other blocks send.
        """
        conv, channels, pixels, filters = p.conv.one_group, p["CHANNELS"], p["TILE_PIXELS"], p["TILE_FILTERS"]
        inputs = self.buffers(p) * self.input_words(conv, channels, pixels) + self.steps(conv, channels) * MMA_WORDS
        along = p["WARPS"] // p["WARPS_DOWN"]
        pipeline = along * p["STAGES"] * filters * MMA_WORDS * self.terms + self.flags(conv, pixels)
        factors = filters if self.scaled else 0
        words = max(inputs + pipeline, along * self.sums(pixels, filters)) + factors
        return (words if p["CLUSTER"] == 1 else round_up(words, LANE_WORDS) + LANE_WORDS + pixels * filters) * WORD

    def refuses(self, p: Problem) -> str | None:
        """Warps that cannot divide the filters, too many accumulators, too large inputs, clusters of part of a tile."""
        warps, down, filters = (p[name] for name in ("WARPS", "WARPS_DOWN", "TILE_FILTERS"))
        if warps % down or filters % (down * FRAGMENT_ROWS):
            return f"{down} of {warps} warps cannot divide {filters} filters, {FRAGMENT_ROWS} at a time"
        accumulators = p["TILE_PIXELS"] * filters // (WARP * down)
        if accumulators > MOST_ACCUMULATORS:
            return f"a thread has {accumulators} accumulators, its registers hold {MOST_ACCUMULATORS}"
        if p["CLUSTER"] > 1 and p.device.capability < HOPPER:
            return f"clusters need compute capability {'.'.join(map(str, HOPPER))}"
        if p["CLUSTER"] not in (1, self.split_blocks(p)):
            return f"a cluster of {p['CLUSTER']} blocks, and a tile has {self.split_blocks(p)}"
        if self.scaled and (row := (p.conv.E - 1) * p.conv.U) > MOST_ROW:
            return f"a window begins at row {row}: takes {MOST_ROW} at most"
        return beyond_shared(p.device, "a block needs", self.block_bytes(p))

    def busy(self, value: int, p: Problem) -> float:
        """Microseconds of the launch: those of a block, or of a full multiprocessor; ``value``: bytes of an input."""
        conv, pixels, splits = p.conv.one_group, p["TILE_PIXELS"], self.split_blocks(p)
        channels = ceil(self.k_tiles(p) / splits) * p["CHANNELS"]
        taps = channels * conv.R * conv.S
        waves = ceil(self.tiles(p) * splits / p.device.multiprocessors)
        # Inputs are copied once for all taps that use them; with a stride fewer do.
        reuse = sqrt(min(conv.R * conv.S, MOST_REUSE) / USUAL_REUSE) if conv.strides == (1, 1) else STRIDED
        at_full_rate = waves * pixels * p["TILE_FILTERS"] * taps / (self.full * reuse) / CLOCK
        copied = channels * self.input_rows(conv, pixels) * conv.padded[1] * value
        alone = (BLOCK + taps * self.tap + copied / COPIED) * (1 + ANOTHER * (waves - 1))
        if channels == 1 and self.scaled:
            alone *= FAINT[self.terms]
        return max(alone, at_full_rate, waves * WAVE) + (SPLIT if splits > 1 else 0)

    def fragments(self, p: Problem) -> tuple[int, ...]:
        """The filters as fragments: tiles, K tiles, words of a K tile."""
        conv, filters, k_tiles = p.conv.one_group, p["TILE_FILTERS"], self.k_tiles(p)
        words = self.steps(conv, p["CHANNELS"]) * filters * MMA_WORDS * self.terms
        return p.conv.groups * ceil(conv.M / filters), k_tiles, words

    def fragments_grid(self, p: Problem) -> Dims:
        """A thread for each word."""
        tiles, k_tiles, words = self.fragments(p)
        return ceil(tiles * k_tiles * words / PREPARATION_THREADS), 1, 1

    def dynamic(self) -> Dynamic:
        """The builds for every shape, which take K tiles and split-K slices as numbers too."""
        fixed = {"STAGES": self.stages, "WARPS": FEWER_WARPS[0], "WARPS_DOWN": self.down, "CLUSTER": 1}
        numbers: tuple[Number, ...] = (
            ("CHANNELS", lambda p: p["CHANNELS"]),
            ("SPLITS", lambda p: p["SPLITS"]),
            ("FILTER_TAPS", lambda p: p.conv.R * p.conv.S),
            ("GROUP_TILES", lambda p: ceil(p.conv.one_group.M / p["TILE_FILTERS"])),
            ("FILTER_TILES", lambda p: p.conv.groups * ceil(p.conv.one_group.M / p["TILE_FILTERS"])),
            ("PIXEL_TILES", lambda p: ceil(p.conv.E * p.conv.F / p["TILE_PIXELS"])),
            ("IMAGE_TILES", lambda p: self.tiles(p.over(1))),
            ("SPLIT_BLOCKS", self.split_blocks),
            ("BUFFERS", self.buffers),
            ("INPUT_ROWS", lambda p: self.input_rows(p.conv, p["TILE_PIXELS"])),
            ("CHANNEL_WORDS", lambda p: ceil(p["CHANNELS"] / 2)),
            (
                "PIXEL_COPIES",
                lambda p: ceil(p["CHANNELS"] / 2) // (4 if in_vectors(p.conv.one_group, p["CHANNELS"]) else 1),
            ),
            ("WINDOW_WORDS", lambda p: window_words(p.conv.one_group)),
            ("PLANE_TAPS", lambda p: p.conv.R * window_words(p.conv.one_group)),
            ("ROW_WORDS", lambda p: row_words(p.conv.one_group)),
            ("PIXEL_WORDS", lambda p: self.input_rows(p.conv, p["TILE_PIXELS"]) * row_words(p.conv.one_group)),
        )
        tiles = (
            {"TILE_PIXELS": pixels, "TILE_FILTERS": filters}
            for pixels, filters in DYNAMIC_TILES
            if filters % (self.down * FRAGMENT_ROWS) == 0
        )
        return Dynamic(
            tuple({**tile, **fixed} for tile in tiles),
            numbers=numbers,
            rest=self.rest,
            groups=True,
            slower=self.any_shape,
        )

    def rest(self, p: Problem) -> list[dict[str, int]]:
        """For each number of split-K slices of a tile the largest K tile that a block's shared memory holds."""
        conv = p.conv.one_group

        def held(count: int) -> dict[str, int] | None:
            channels = ceil(conv.C / count)
            for k_tiles in range(1, channels + 1):
                some = ceil(channels / k_tiles)
                chosen = {"SPLITS": count, "CHANNELS": round_up(some, CHUNK) if conv.C % CHUNK == 0 else some}
                fits = self.fits(conv, chosen["CHANNELS"], p["TILE_PIXELS"])
                if fits and not beyond_shared(p.device, "", self.block_bytes(p.having(**chosen))):
                    return chosen
            return None

        most = 1 if self.tiles(p) > p.device.multiprocessors else min(conv.C, MOST_SPLITS)
        return [cut for count in range(1, most + 1) if (cut := held(count))]

    def buffers(self, p: Problem) -> int:
        """K tiles of inputs in shared memory."""
        return min(2, ceil(self.k_tiles(p) / self.split_blocks(p)))

    def constants(self) -> tuple[Constant, ...]:
        """The constants of a rung."""
        return (
            Constant("TILE_PIXELS", "output pixels of a block", lambda p: self.usual(p).pixels, PIXEL_TILES),
            Constant("TILE_FILTERS", "filters of a block", lambda p: self.usual(p).filters, FILTER_TILES),
            Constant("CHANNELS", "input channels in shared memory together", lambda p: self.usual(p).channels),
            Constant(
                "STAGES",
                "steps of a warp whose filters are in shared memory or in flight",
                lambda p: self.usual(p).stages,
                choices=(2, 3, 4, 6, 8),
            ),
            Constant(
                "SPLITS",
                "split-K slices of a tile at most, each with some of the channels",
                lambda p: self.usual(p).splits,
            ),
            Constant(
                "WARPS",
                "warps of a block, each with some of the filters and taps",
                lambda p: self.usual(p).warps,
                choices=(1, 2, 4, 8, 16),
            ),
            Constant("WARPS_DOWN", "warps that divide the filters of a tile", lambda p: self.down, choices=(1, 2, 4)),
            Constant(
                "CLUSTER",
                "blocks of a cluster, which add through its shared memory: all split-K slices of a tile, or 1",
                lambda p: 1,
                choices=(1, 2, 4, 8),
                before=1,
            ),
        )

    def scratch(self) -> tuple[Array, ...]:
        """The split-K slices' sums, and arrival counters of a tile's warps; else one element.

        A tile of one slice needs none, nor one whose blocks are a cluster.
        """

        def needed(p: Problem) -> bool:
            return self.split_blocks(p) > 1 and p["CLUSTER"] == 1

        def partial(p: Problem) -> tuple[int, ...]:
            outputs = p["TILE_PIXELS"] * p["TILE_FILTERS"]
            return (self.tiles(p), self.split_blocks(p), outputs) if needed(p) else (1,)

        def arrived(p: Problem) -> tuple[int, ...]:
            return (self.tiles(p), p["WARPS"]) if needed(p) else (1,)

        return Array("partial", partial, FLOAT), Array("arrived", arrived, WORD, lasting=True)


@cache  # called for the default of each constant
def best_cut(tile: Tile, conv: Conv, groups: int, device: Device) -> Usual:
    """The constants that cut one image into as many blocks as the device has multiprocessors, or slightly fewer.

    ``conv`` is the layer of one of its groups.  Of equal cuts the one with the fewest blocks per tile.  If all cuts
    have more blocks, the one with the fewest.  A cut that a block's shared memory cannot hold makes way for the next
    best.
    """
    sizes = [size for size in USUAL_FILTERS if size % (FRAGMENT_ROWS * tile.down) == 0]
    dividing = [size for size in sizes if conv.M % size == 0 and size > FRAGMENT_ROWS]
    splits = [count for count in range(1, MOST_SPLITS + 1) if conv.C % count == 0]
    cuts = [
        (pixels, filters, count)
        for pixels, filters, count in product(USUAL_PIXELS, dividing or sizes, splits)
        if pixels * filters <= MOST_USUAL_OUTPUTS
    ]

    def quality(cut: tuple[int, int, int]) -> tuple[int, int]:
        pixels, filters, count = cut
        blocks = groups * tile.group_tiles(conv, pixels, filters) * count
        return blocks if blocks <= device.multiprocessors else -blocks, -count

    best = sorted(cuts, key=quality, reverse=True)
    held = chain.from_iterable(tile.holding(conv, cut, device) for cut in best)
    pixels, filters, count = best[0]
    return next(held, Usual(pixels, filters, count, 1, FEWEST_STAGES, FEWER_WARPS[-1]))


def rung(
    name: str,
    alias: str,
    idea: str,
    parent: str,
    tile: Tile,
    precision: str,
    layout: str = "nchw",
    factors: str = "fp16",
    cpu_order: int = 0,
) -> Rung:
    """A rung whose kernel has its file's name; exponents of scaled filters are found in a launch before."""
    entry = name.replace("-", "_")
    scaled = ("filter_exponents", "full_filters") if tile.scaled else ()
    arrays = ("x", "fragments", *scaled, "partial", "arrived", "y")
    filters = Launch(
        f"{entry}_filters",
        ("w", *scaled[:1], "fragments"),
        tile.fragments_grid,
        flat_block,
    )
    fragments = Array("fragments", tile.fragments, WORD)
    return Rung(
        name,
        alias=alias,
        idea=idea,
        family="mma",
        parent=parent,
        file=f"mma/{entry}.cu",
        launches=(
            Launch(
                entry,
                arrays,
                tile.grid,
                tile.block,
                tile.shared_bytes,
                pdl=True,
                stores=True,
                cluster=lambda p: p["CLUSTER"],
            ),
        ),
        constants=tile.constants(),
        scratch=tile.scratch(),
        refuses=tile.refuses,
        prepare=(FIND_FILTER_EXPONENTS, filters) if scaled else (filters,),
        prepared=(*SCALED_FILTERS, fragments) if scaled else (fragments,),
        precision=precision,
        layout=layout,
        min_capability=AMPERE if factors == "tf32" else TURING,
        exceptions=(TF32_OPERANDS,) if factors == "tf32" else (),
        tensor_factors=factors,
        products=PRODUCTS_OF_TERMS[tile.terms],
        takes=NETWORK_FEATURES,
        time=Time(partial(tile.busy, np.dtype(PRECISIONS[precision].dtype).itemsize)),
        cpu_order=cpu_order,
        dynamic=tile.dynamic(),
    )


MMA_RUNGS: tuple[Rung, ...] = (
    rung(
        "mma-tf32",
        "mma-t",
        "implicit GEMM on tensor cores (mma.sync), split-K across blocks: for small batches",
        "fused-unroll-matmul",
        Tile(in_floats, tap=0.0055, full=150, warps=8, any_shape=1.3),
        precision="tf32",
        factors="tf32",
        cpu_order=1,
    ),
    rung(
        "mma-scaled",
        "mma-s",
        "floats scaled and rounded to fp16, two per word: half the filter bytes, twice the rate of tf32",
        "mma-tf32",
        Tile(in_pairs(1), tap=0.0055, full=110, scaled=True, any_shape=1.5),
        precision="tf32",
    ),
    rung(
        "mma-split",
        "mma-2",
        "operands as hi and lo fp16 terms, three products: the accuracy of fp32",
        "mma-scaled",
        Tile(in_pairs(2), tap=0.0060, full=76, terms=2, stages=3, down=2, scaled=True, any_shape=1.6),
        precision="fp32",
    ),
    rung(
        "mma-half",
        "mma-h",
        "fp16 operands in NHWC, fp32 accumulators",
        "mma-tf32",
        Tile(in_fp16, tap=0.0040, full=230, sums=rows_of_filters, warps=8, inputs=8 * 1024, any_shape=1.4),
        precision="fp16",
        layout="nhwc",
        cpu_order=1,
    ),
)
