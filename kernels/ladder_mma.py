"""The rungs on tensor cores through products of single warps (mma), for small batches."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from alexconv.kernels.geometry import FLOAT, MAX_SHARED
from alexconv.kernels.rung import Array, Constant, Constants, Dims, Launch, Rung
from alexconv.shapes import Conv

WORD = 4  # bytes
WARP = 32
STEP = 8  # words of depth in a warp's product
LANE_WORDS = 4  # of a fragment
FRAGMENT_ROWS, FRAGMENT_COLUMNS = 16, 8
PREPARATION_THREADS = 256
MOST_SUMS = 128  # registers of a thread
BLOCKS = 90  # wanted for a single image: most of the multiprocessors of an H100 or H200
INPUT_WORDS = 13 * 1024  # of a chunk, by default
PIXEL_TILES, FILTER_TILES = (16, 32, 40, 48, 64, 88, 96, 128), (16, 32, 48, 64, 96)
USUAL_TILES = ((96, 32), (64, 32), (64, 16), (32, 16))  # the defaults to choose from
CHANNELS = (64, 32, 16, 8, 4, 3, 2, 1)  # of a chunk, likewise


def in_floats(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
    """Words of so many channels' taps, and of so many rows of their inputs; ``mma_planes.cuh``."""
    spread = conv.U > 1 or 12 <= conv.W % 32 <= 20
    pitch = conv.W if spread else conv.W + (44 - conv.W % 32) % 32
    return channels * conv.R * conv.S, channels * rows * pitch


def in_halves(conv: Conv, channels: int, rows: int) -> tuple[int, int]:
    """The same where a word has two channels; ``mma_half.cu``."""
    words = ceil(channels / 2)
    vectors = conv.C % 8 == 0 and channels % 8 == 0
    pitch = words + 4 if vectors and words // 4 % 2 == 0 else words
    return words * conv.R * conv.S, rows * conv.W * pitch


@dataclass(frozen=True)
class Tile:
    """What the ladder has to know of ``mma_tile.cuh``: ``words`` is one of the two above.

    ``parts`` are those of a factor; ``stages`` and ``warps`` are the usual constants.
    """

    words: Callable[[Conv, int, int], tuple[int, int]]
    parts: int = 1
    stages: int = 4
    warps: int = 8

    def usual(self, conv: Conv) -> tuple[int, int]:
        """Pixels and filters of the largest tile that cuts one image into BLOCKS, else of the smallest."""
        fitting = [tile for tile in USUAL_TILES if tile[0] * tile[1] * self.parts <= MOST_SUMS * WARP]
        return next((tile for tile in fitting if self.image_tiles(conv, *tile) >= BLOCKS), fitting[-1])

    def image_tiles(self, conv: Conv, pixels: int, filters: int) -> int:
        """Tiles of an image."""
        return ceil(conv.E * conv.F / pixels) * ceil(conv.M / filters)

    def steps(self, conv: Conv, channels: int) -> int:
        """Products of a warp, one after the other, that a chunk is deep."""
        return ceil(self.words(conv, channels, conv.R)[0] / STEP)

    def input_words(self, conv: Conv, channels: int, pixels: int) -> int:
        """Words of a chunk's input rows."""
        output_rows = min(conv.E, (pixels + conv.F - 2) // conv.F + 1)
        words = self.words(conv, channels, (output_rows - 1) * conv.U + conv.R)[1] * self.parts
        return ceil(words / LANE_WORDS) * LANE_WORDS

    def channels(self, conv: Conv) -> int:
        """The usual channels of a chunk: of those whose inputs are not too many, what gives the fewest steps in all."""
        pixels, _ = self.usual(conv)
        fitting = [
            channels
            for channels in CHANNELS
            if channels <= conv.C and self.input_words(conv, channels, pixels) <= INPUT_WORDS
        ]
        return min(fitting or [1], key=lambda channels: ceil(conv.C / channels) * self.steps(conv, channels))

    def chunks(self, conv: Conv, constants: Constants) -> int:
        """Chunks of the depth."""
        return ceil(conv.C / constants["CHANNELS"])

    def splits(self, conv: Conv) -> int:
        """As many blocks as one image needs for BLOCKS of them, rounded such that all have as many chunks."""
        chunks = ceil(conv.C / self.channels(conv))
        wanted = min(ceil(BLOCKS / self.image_tiles(conv, *self.usual(conv))), chunks)
        return ceil(chunks / ceil(chunks / wanted))

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
        ring = constants["WARPS"] * constants["STAGES"] * filters * STEP * self.parts
        sums = constants["WARPS"] * max(filters * (pixels + (40 - pixels % 32) % 32), pixels * (filters + 4))
        return max(inputs + ring, sums) * WORD

    def refuses(self, conv: Conv, constants: Constants) -> str | None:
        """Too many sums for a thread's registers, or too large inputs for shared memory."""
        sums = constants["TILE_PIXELS"] * constants["TILE_FILTERS"] // WARP
        if sums > MOST_SUMS:
            return f"a thread has {sums} sums, of which its registers hold {MOST_SUMS}"
        if (needed := self.shared_bytes(conv, constants)) > MAX_SHARED:
            return f"a block needs {needed} bytes of shared memory, the most on any GPU is {MAX_SHARED}"
        return None

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
            Constant("TILE_PIXELS", "output pixels of a block", lambda conv: self.usual(conv)[0], choices=PIXEL_TILES),
            Constant("TILE_FILTERS", "filters of a block", lambda conv: self.usual(conv)[1], choices=FILTER_TILES),
            Constant("CHANNELS", "input channels in shared memory together", self.channels),
            Constant(
                "STAGES",
                "steps of a warp whose filters are in shared memory or on their way",
                lambda conv: self.stages,
                choices=(2, 3, 4, 6, 8),
            ),
            Constant("SPLITS", "blocks at most that share a tile, each with some of the channels", self.splits),
            Constant(
                "WARPS",
                "warps of a block, each with some of the taps",
                lambda conv: self.warps,
                choices=(1, 2, 4, 8, 16),
            ),
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
    prepare: str,
    tile: Tile,
    precision: str,
    dtype: str = "float32",
    layout: str = "nchw",
) -> Rung:
    """A rung whose two kernels are its file's name and ``prepare``."""
    entry = name.replace("-", "_")
    arrays = ("x", "fragments", "partial", "arrived", "y")
    return Rung(
        name,
        alias=alias,
        idea=idea,
        family="mma",
        parent=parent,
        file=f"{entry}.cu",
        launches=(Launch(entry, arrays, tile.grid, tile.block, tile.shared_bytes),),
        constants=tile.constants(),
        scratch=tile.scratch(),
        refuses=tile.refuses,
        prepare=(
            Launch(
                prepare, ("w", "fragments"), tile.fragments_grid, lambda conv, constants: (PREPARATION_THREADS, 1, 1)
            ),
        ),
        prepared=(Array("fragments", tile.fragments, WORD),),
        precision=precision,
        dtype=dtype,
        layout=layout,
        needs=(8, 0),
    )


MMA_RUNGS: tuple[Rung, ...] = (
    rung(
        "mma-tf32",
        "mma-t",
        "tensor cores by warps, the depth of the product divided among blocks: for small batches",
        "fused-unroll-matmul",
        "mma_tf32_filters",
        Tile(in_floats),
        precision="tf32",
    ),
    rung(
        "mma-tf32-split",
        "mma-ts",
        "every factor as the sum of two tf32 numbers, three products: the precision of floats",
        "mma-tf32",
        "mma_split_filters",
        Tile(in_floats, parts=2),
        precision="fp32",
    ),
    rung(
        "mma-half",
        "mma-h",
        "halves with channels innermost, sums in floats",
        "mma-tf32",
        "mma_half_filters",
        Tile(in_halves),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
    ),
)
