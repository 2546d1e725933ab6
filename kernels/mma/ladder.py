"""The rungs on tensor cores through products of single warps (mma), for small batches."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import ceil

from alexconv.kernels.geometry import AMPERE, FLOAT, MULTIPROCESSORS, WARP, beyond_shared, round_up
from alexconv.kernels.preparation import (
    FILTER_EXPONENT,
    PREPARATION_THREADS,
    RANGES_OF_FILTERS,
    flat_block,
    ranges_grid,
)
from alexconv.kernels.rung import Array, Constant, Constants, Dims, Launch, Rung
from alexconv.shapes import Conv

WORD = 4  # bytes
STEP = 8  # words of depth in a warp's product
LANE_WORDS = 4  # of a fragment
FRAGMENT_ROWS, FRAGMENT_COLUMNS = 16, 8
MOST_SUMS = 128  # registers of a thread
MOST_USUAL_OUTPUTS = 96 * 32  # of a block: so few leave registers and shared memory for the rest
PIXEL_TILES, FILTER_TILES = (16, 32, 40, 48, 64, 88, 96, 128), (16, 32, 48, 64, 96, 128)
USUAL_PIXELS, USUAL_FILTERS, MOST_SPLITS = (40, 48, 96), (16, 32, 48, 64), 8  # the defaults to choose from
FEW_STEPS, FEW_WARPS = 128, 8  # of a block: so many steps keep no more warps busy


def spread_pitch(conv: Conv) -> int:
    """Words from a row of inputs to the next; ``mma_planes.cuh``."""
    spread = conv.U > 1 or 12 <= conv.W % 32 <= 20
    return conv.W if spread else conv.W + (44 - conv.W % 32) % 32


def in_floats(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
    """Words of so many channels' taps, and places of so many rows of their inputs; ``mma_planes.cuh``."""
    return channels * conv.R * conv.S, channels * rows * spread_pitch(conv)


def in_pairs(parts: int) -> Callable[[Conv, int, int], tuple[int, int]]:
    """The same where a word has two channels, or two columns, of floats that become halves; ``mma_pairs.cuh``."""

    def words(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
        if conv.C % 2 == 1 and conv.U % 2 == 0:
            return channels * conv.R * ceil(conv.S / 2), channels * rows * ceil(conv.W / 2) * parts
        planes = ceil(channels / 2)
        return planes * conv.R * conv.S, planes * rows * spread_pitch(conv) * parts

    return words


def in_halves(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
    """The same where a word has two channels, innermost; ``mma_half.cu``."""
    words = ceil(channels / 2)
    vectors = conv.C % 8 == 0 and channels % 8 == 0
    pitch = words + 4 if vectors and words // 4 % 2 == 0 else words
    return words * conv.R * conv.S, rows * conv.W * pitch


def rows_of_pixels(pixels: int, filters: int) -> int:
    """Words of a tile's sums in shared memory; ``mma_planes.cuh``."""
    return filters * (pixels + (24 - pixels % 16) % 16)


def rows_of_filters(pixels: int, filters: int) -> int:
    """The same in ``mma_half.cu``."""
    return pixels * (filters + 4)


@dataclass(frozen=True)
class Usual:
    """The usual constants of a shape."""

    pixels: int
    filters: int
    splits: int
    channels: int
    warps: int


@dataclass(frozen=True)
class Tile:
    """What the ladder has to know of ``mma_tile.cuh``: ``words`` is one of those above.

    ``sums`` is one of the next two, and ``parts`` are those of a factor; ``stages``, ``warps`` (at most), ``down`` (of
    them that share filters) and ``inputs`` (words of a chunk at most) are behind the usual constants.
    """

    words: Callable[[Conv, int, int], tuple[int, int]]
    sums: Callable[[int, int], int] = rows_of_pixels
    parts: int = 1
    stages: int = 4
    warps: int = 16
    down: int = 1
    inputs: int = 15 * 1024

    def usual(self, conv: Conv) -> Usual:
        """The constants that cut one image into as many blocks as there are multiprocessors, or nearly so.

        Of equal cuts the one with the fewest blocks for a tile.  An image with more tiles than that gets the largest.
        """
        sizes = [size for size in USUAL_FILTERS if size % (FRAGMENT_ROWS * self.down) == 0]
        even = [size for size in sizes if conv.M % size == 0 and size > FRAGMENT_ROWS]
        splits = [count for count in range(1, MOST_SPLITS + 1) if conv.C % count == 0]
        cuts = [
            (pixels, filters, count)
            for pixels, filters, count in product(USUAL_PIXELS, even or sizes, splits)
            if pixels * filters <= MOST_USUAL_OUTPUTS
        ]

        def quality(cut: tuple[int, int, int]) -> tuple[int, int]:
            pixels, filters, count = cut
            blocks = self.image_tiles(conv, pixels, filters) * count
            return blocks if blocks <= MULTIPROCESSORS else -blocks, -count

        pixels, filters, count = max(cuts, key=quality)
        channels = conv.C // count
        chunks = next(n for n in range(1, channels + 1) if self.fits(conv, ceil(channels / n), pixels))
        steps = chunks * self.steps(conv, ceil(channels / chunks))
        return Usual(pixels, filters, count, ceil(channels / chunks), FEW_WARPS if steps <= FEW_STEPS else self.warps)

    def fits(self, conv: Conv, channels: int, pixels: int) -> bool:
        """Whether a usual chunk has so many channels."""
        return channels == 1 or self.input_words(conv, channels, pixels) <= self.inputs * self.parts

    def image_tiles(self, conv: Conv, pixels: int, filters: int) -> int:
        """Tiles of an image."""
        return ceil(conv.E * conv.F / pixels) * ceil(conv.M / filters)

    def steps(self, conv: Conv, channels: int) -> int:
        """Products of a warp, one after the other, that a chunk is deep."""
        return ceil(self.words(conv, channels, conv.R)[0] / STEP)

    def input_words(self, conv: Conv, channels: int, pixels: int) -> int:
        """Places of a chunk's input rows."""
        output_rows = min(conv.E, (pixels + conv.F - 2) // conv.F + 1)
        words = self.words(conv, channels, (output_rows - 1) * conv.U + conv.R)[1]
        return round_up(words, LANE_WORDS)

    def chunks(self, conv: Conv, constants: Constants) -> int:
        """Chunks of the depth."""
        return ceil(conv.C / constants["CHANNELS"])

    def split_blocks(self, conv: Conv, constants: Constants) -> int:
        """Blocks that share a tile: each has a chunk at least."""
        return min(constants["SPLITS"], self.chunks(conv, constants))

    def tiles(self, conv: Conv, N: int, constants: Constants) -> int:
        """Tiles of N images."""
        return N * self.image_tiles(conv, constants["TILE_PIXELS"], constants["TILE_FILTERS"])

    def grid(self, conv: Conv, N: int, constants: Constants) -> Dims:
        """The blocks of a tile are neighbours; all tiles stand in one row, because only x may count beyond 65535."""
        return self.tiles(conv, N, constants) * self.split_blocks(conv, constants), 1, 1

    def block(self, conv: Conv, constants: Constants) -> Dims:
        """Some warps."""
        return constants["WARPS"] * WARP, 1, 1

    def shared_bytes(self, conv: Conv, constants: Constants) -> int:
        """Inputs of one chunk or two, offsets of taps and the warps' filters, or the warps' sums in their place."""
        channels, pixels, filters = constants["CHANNELS"], constants["TILE_PIXELS"], constants["TILE_FILTERS"]
        buffers = min(2, ceil(self.chunks(conv, constants) / self.split_blocks(conv, constants)))
        inputs = buffers * self.input_words(conv, channels, pixels) + self.steps(conv, channels) * STEP
        along = constants["WARPS"] // constants["WARPS_DOWN"]
        ring = along * constants["STAGES"] * filters * STEP * self.parts
        sums = along * self.sums(pixels, filters)
        return max(inputs + ring, sums) * WORD

    def refuses(self, conv: Conv, constants: Constants) -> str | None:
        """Filters or warps that do not divide, too many sums for a thread's registers, too large inputs."""
        warps, down, filters = (constants[name] for name in ("WARPS", "WARPS_DOWN", "TILE_FILTERS"))
        if warps % down or filters % (down * FRAGMENT_ROWS):
            return f"{down} of {warps} warps cannot share {filters} filters, {FRAGMENT_ROWS} at a time"
        sums = constants["TILE_PIXELS"] * filters // (WARP * down)
        if sums > MOST_SUMS:
            return f"a thread has {sums} sums, of which its registers hold {MOST_SUMS}"
        return beyond_shared("a block needs", self.shared_bytes(conv, constants))

    def fragments(self, conv: Conv, N: int, constants: Constants) -> tuple[int, ...]:
        """The filters as fragments: tiles, chunks, words of a chunk."""
        filters, chunks = constants["TILE_FILTERS"], self.chunks(conv, constants)
        words = self.steps(conv, constants["CHANNELS"]) * filters * STEP * self.parts
        return ceil(conv.M / filters), chunks, words

    def fragments_grid(self, conv: Conv, N: int, constants: Constants) -> Dims:
        """A thread for each word."""
        tiles, chunks, words = self.fragments(conv, N, constants)
        return ceil(tiles * chunks * words / PREPARATION_THREADS), 1, 1

    def constants(self) -> tuple[Constant, ...]:
        """The constants of a rung."""
        return (
            Constant("TILE_PIXELS", "output pixels of a block", lambda conv: self.usual(conv).pixels, PIXEL_TILES),
            Constant("TILE_FILTERS", "filters of a block", lambda conv: self.usual(conv).filters, FILTER_TILES),
            Constant("CHANNELS", "input channels in shared memory together", lambda conv: self.usual(conv).channels),
            Constant(
                "STAGES",
                "steps of a warp whose filters are in shared memory or on their way",
                lambda conv: self.stages,
                choices=(2, 3, 4, 6, 8),
            ),
            Constant(
                "SPLITS",
                "blocks at most that share a tile, each with some of the channels",
                lambda conv: self.usual(conv).splits,
            ),
            Constant(
                "WARPS",
                "warps of a block, each with some of the filters and taps",
                lambda conv: self.usual(conv).warps,
                choices=(1, 2, 4, 8, 16),
            ),
            Constant("WARPS_DOWN", "warps that share the filters of a tile", lambda conv: self.down, choices=(1, 2, 4)),
        )

    def scratch(self) -> tuple[Array, ...]:
        """The blocks' sums, and how many of a tile's blocks have come, for each warp; little where a tile has one."""

        def partial(conv: Conv, N: int, constants: Constants) -> tuple[int, ...]:
            splits = self.split_blocks(conv, constants)
            outputs = constants["TILE_PIXELS"] * constants["TILE_FILTERS"]
            return (self.tiles(conv, N, constants), splits, outputs) if splits > 1 else (1,)

        def arrived(conv: Conv, N: int, constants: Constants) -> tuple[int, ...]:
            split = self.split_blocks(conv, constants) > 1
            return (self.tiles(conv, N, constants), constants["WARPS"]) if split else (1,)

        return Array("partial", partial, FLOAT), Array("arrived", arrived, WORD)


def rung(
    name: str,
    alias: str,
    idea: str,
    parent: str,
    tile: Tile,
    precision: str,
    dtype: str = "float32",
    layout: str = "nchw",
    scaled: bool = False,
) -> Rung:
    """A rung whose kernel has its file's name; where its filters are ``scaled``, their range is found before."""
    entry = name.replace("-", "_")
    exponent = ("filter_exponent",) if scaled else ()
    arrays = ("x", "fragments", *exponent, "partial", "arrived", "y")
    ranges = Launch(f"{entry}_ranges", ("w", "filter_ranges"), ranges_grid, flat_block)
    filters = Launch(
        f"{entry}_filters",
        ("w", *(("filter_ranges", *exponent) if scaled else ()), "fragments"),
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
        launches=(Launch(entry, arrays, tile.grid, tile.block, tile.shared_bytes, early=True),),
        constants=tile.constants(),
        scratch=tile.scratch(),
        refuses=tile.refuses,
        prepare=(ranges, filters) if scaled else (filters,),
        prepared=(RANGES_OF_FILTERS, FILTER_EXPONENT, fragments) if scaled else (fragments,),
        precision=precision,
        dtype=dtype,
        layout=layout,
        needs=AMPERE,
    )


MMA_RUNGS: tuple[Rung, ...] = (
    rung(
        "mma-tf32",
        "mma-t",
        "tensor cores by warps, the depth of the product divided among blocks: for small batches",
        "fused-unroll-matmul",
        Tile(in_floats, warps=8),
        precision="tf32",
    ),
    rung(
        "mma-scaled",
        "mma-s",
        "floats as scaled halves, two to a word: half of the bytes of the filters, twice the rate",
        "mma-tf32",
        Tile(in_pairs(1)),
        precision="tf32",
        scaled=True,
    ),
    rung(
        "mma-split",
        "mma-2",
        "every factor as the sum of two halves, three products: the precision of floats",
        "mma-scaled",
        Tile(in_pairs(2), parts=2, stages=3, down=2),
        precision="fp32",
        scaled=True,
    ),
    rung(
        "mma-half",
        "mma-h",
        "halves with channels innermost, sums in floats",
        "mma-tf32",
        Tile(in_halves, rows_of_filters, warps=8, inputs=8 * 1024),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
    ),
)
