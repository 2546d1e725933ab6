"""The rung of a whole network as one persistent kernel: its stages, their tiles, and where each one's arrays begin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, prod

from alexconv.kernels.geometry import HALF
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Array, Constant, Dims, Launch, Rung
from alexconv.shapes import Conv

NAME = "persistent-half"
MOST = 12  # stages
ROWS, PIXELS, DEPTH = 16, 8, 32  # of a product
WARPS, WARP = 16, 32
THREADS = WARPS * WARP
LINE = 128  # bytes
FRAGMENT_BYTES = ROWS * DEPTH * HALF
SLOT_BYTES = 2 * FRAGMENT_BYTES
BARRIER_BYTES = 8
NONE = 2**31  # where a segment begins that is none
QUAD, LANES_OF_PIXEL = 4, 4
MOST_REGISTERS = 96  # of a lane: four for the sums of each product, four for each vector of inputs
AT_ONCE = 4  # products whose sums are added at once
PARTIAL_BYTES = WARPS * THREADS * 4

# Cycles of a multiprocessor: for each step of DEPTH, of a product, and of the vectors that a warp reads for it.
PRODUCT, VECTOR = 4.0, 4.0
SLOT, TILE, ROUND = 16, 800, 300  # and of each slot of weights, each tile, and each time that sums are added


@dataclass(frozen=True)
class Layer:
    """A convolution, or a linear layer as one of a single pixel, and the max pooling after it."""

    conv: Conv
    pool: int = 1  # size of its windows
    stride: int = 1  # of them

    @property
    def pooled(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        conv = self.conv
        return (conv.E - self.pool) // self.stride + 1, (conv.F - self.pool) // self.stride + 1

    @property
    def few_channels(self) -> bool:
        """Whether it takes rows of the image as they are."""
        return self.conv.C % DEPTH != 0

    @property
    def steps(self) -> int:
        """Steps through taps and channels."""
        conv = self.conv
        if self.few_channels:
            return ceil(conv.R * ceil(conv.S * conv.C / QUAD) / LANES_OF_PIXEL)
        return conv.R * conv.S * conv.C // DEPTH

    @property
    def outputs(self) -> int:
        """Values of the output."""
        return self.conv.M * prod(self.pooled)


@dataclass(frozen=True)
class Tile:
    """A tile of a layer: ROWS of filters, groups of pixels; with pooling pooled pixels across and down."""

    rows: int
    groups: int
    across: int = 1
    down: int = 1

    def count(self, layer: Layer) -> int:
        """Tiles of the layer."""
        conv, filters = layer.conv, ceil(layer.conv.M / (self.rows * ROWS))
        if layer.pool == 1:
            return filters * ceil(conv.E * conv.F / (self.groups * PIXELS))
        E, F = layer.pooled
        return filters * ceil(E / self.down) * ceil(F / self.across)


def cost(layer: Layer, tile: Tile, blocks: int) -> float:
    """Cycles that the layer takes on so many multiprocessors."""
    step = max(tile.rows * tile.groups * PRODUCT, (tile.groups + 2 * tile.rows) * VECTOR)
    slots, rounds = layer.steps * tile.rows / 2, ceil(tile.rows * tile.groups / AT_ONCE)
    return ceil(tile.count(layer) / blocks) * (layer.steps * step + slots * SLOT + TILE + rounds * ROUND)


def tiles_of(layer: Layer) -> Iterator[Tile]:
    """The tiles that a layer can have."""
    E, F = layer.pooled
    for rows in (1, 2):
        if layer.pool == 1:
            yield from (Tile(rows, groups) for groups in range(1, MOST_REGISTERS // (4 * (rows + 1)) + 1))
            continue
        for down in range(1, E + 1):
            for across in (F,) if layer.few_channels else range(1, F + 1):
                pixels = ((down - 1) * layer.stride + layer.pool) * ((across - 1) * layer.stride + layer.pool)
                groups = ceil(pixels / PIXELS)
                if layer.few_channels or 4 * (rows + 1) * groups <= MOST_REGISTERS:
                    yield Tile(rows, groups, across, down)


def tile_of(layer: Layer, blocks: int) -> Tile:
    """The tile that takes least time; of the first layer rows of pooled pixels, as few filters as a product has."""
    if layer.few_channels:
        return next(tiles_of(layer))
    return min(tiles_of(layer), key=lambda tile: cost(layer, tile, blocks))


def weight_bytes(layer: Layer, rows: int) -> int:
    """Bytes of the layer's filters as fragments, filters beyond the last included."""
    depth = 2 * FRAGMENT_BYTES // 4 if layer.few_channels else FRAGMENT_BYTES
    return ceil(layer.conv.M / (rows * ROWS)) * rows * layer.steps * depth


def patch_bytes(layer: Layer, tile: Tile) -> int:
    """Bytes of the input under a tile."""
    conv = layer.conv
    if layer.pool > 1:
        down, across = ((count - 1) * layer.stride + layer.pool for count in (tile.down, tile.across))
    else:
        down, across = min(conv.E, ceil((tile.groups * PIXELS - 1) / conv.F) + 1), conv.F
    pixels = ((down - 1) * conv.U + conv.R) * ((across - 1) * conv.U + conv.S)
    return ceil(pixels * (conv.C + DEPTH) * HALF / LINE) * LINE


def work_bytes(layer: Layer, tile: Tile) -> int:
    """Bytes of shared memory besides the ring: sums of the warps, or the image's rows; outputs that are pooled."""
    outputs = tile.groups * PIXELS * tile.rows * ROWS * HALF if layer.pool > 1 else 0
    conv = layer.conv
    if not layer.few_channels:
        return max(PARTIAL_BYTES, patch_bytes(layer, tile)) + outputs
    quads = ceil(conv.S * conv.C / QUAD)
    pitch = ceil(((conv.F - 1) * conv.U * conv.C + quads * QUAD) / QUAD) * QUAD
    rows = ((tile.down - 1) * layer.stride + layer.pool - 1) * conv.U + conv.R
    filters = tile.rows * layer.steps * FRAGMENT_BYTES // 2
    return filters + ceil(rows * pitch * HALF / LINE) * LINE + outputs


def refusal(layers: Sequence[Layer]) -> str | None:
    """Why the persistent kernel cannot compute these layers, or None."""
    if len(layers) > MOST:
        return f"it has more than {MOST} stages"
    for number, layer in enumerate(layers):
        conv = layer.conv
        if conv.groups > 1 or conv.strides[0] != conv.strides[1]:
            return "it has groups, or different strides across and down"
        if not conv.bias:
            return "a layer has no bias"
        if layer.few_channels != (number == 0):
            return f"a layer has {conv.C} channels: they are a multiple of {DEPTH} in all layers but the first"
        if layer.few_channels and (layer.pool == 1 or conv.U * conv.C % QUAD or conv.W * conv.C % QUAD):
            return f"its first layer has no pooling, or strides and rows of other than multiples of {QUAD} values"
    return None


SLOTS = Constant("SLOTS", "slots of a warp's ring of weights", lambda p: 3, choices=(2, 3, 4, 5))


@dataclass(frozen=True)
class Packing:
    """Where a layer's arrays begin, for its tiles: bytes of weights, values of biases and of outputs."""

    layer: Layer
    tile: Tile
    weights: int
    biases: int
    output: int


def packings(layers: Sequence[Layer], blocks: int) -> list[Packing]:
    """The layers in order, with their tiles on so many multiprocessors."""
    tiles = [tile_of(layer, blocks) for layer in layers]
    weights = accumulate((weight_bytes(*pair) for pair in zip(layers, (t.rows for t in tiles), strict=True)), initial=0)
    biases = accumulate((layer.conv.M for layer in layers), initial=0)
    outputs = accumulate((ceil(layer.outputs * HALF / LINE) * LINE // HALF for layer in layers), initial=0)
    return [Packing(*parts) for parts in zip(layers, tiles, weights, biases, outputs, strict=False)]


def segments(packed: Sequence[Packing], blocks: int) -> list[list[tuple[int, int]]]:
    """What each block multiplies, in order: where its tiles' filters begin and end, in vectors of 16 bytes.

    Lists are as long for every block: after its last tile come segments from NONE on, two at least.
    """
    of_blocks: list[list[tuple[int, int]]] = [[] for _ in range(blocks)]
    for stage in packed:
        if stage.layer.few_channels:
            continue
        bytes_of_tile = stage.tile.rows * stage.layer.steps * FRAGMENT_BYTES
        filter_tiles = ceil(stage.layer.conv.M / (stage.tile.rows * ROWS))
        for tile in range(stage.tile.count(stage.layer)):
            begin = stage.weights + tile % filter_tiles * bytes_of_tile
            of_blocks[tile % blocks].append((begin // 16, (begin + bytes_of_tile) // 16))
    most = max(map(len, of_blocks)) + 2
    return [of_block + [(NONE, 2**32 - 1)] * (most - len(of_block)) for of_block in of_blocks]


def _macros(packed: Sequence[Packing], blocks: int) -> dict[str, int]:
    """The macros of the kernel: those of MOST stages, and what they share."""
    sizes = {"ELEMENT_BYTES": HALF, "CHANNELS_LAST": 1, "STAGE_COUNT": len(packed)}
    for number in range(MOST):
        of_stage = _stage_macros(packed[number] if number < len(packed) else None)
        sizes |= {f"STAGE{number}_{name}": value for name, value in of_stage.items()}
    sizes["SEGMENTS"] = len(segments(packed, blocks)[0])
    return sizes | {"WORK_BYTES": max(work_bytes(stage.layer, stage.tile) for stage in packed)}


def _stage_macros(packing: Packing | None) -> dict[str, int]:
    """What a stage's macros say; zeros beyond the last."""
    layer, tile = (packing.layer, packing.tile) if packing else (Layer(Conv(1, 1, 1, 1, 1, 1)), Tile(1, 1))
    conv, (E, F) = layer.conv, layer.pooled
    return {
        **{"C": conv.C, "H": conv.H, "W": conv.W, "M": conv.M, "R": conv.R, "S": conv.S, "U": conv.U},
        **{"TOP": conv.top, "LEFT": conv.left, "E": conv.E, "F": conv.F, "RELU": int(conv.relu)},
        **{"POOL": layer.pool, "STRIDE": layer.stride, "POOLED_E": E, "POOLED_F": F},
        **{"FILTER_ROWS": tile.rows, "ACROSS": tile.across, "DOWN": tile.down, "PIXEL_GROUPS": tile.groups},
        "WEIGHTS": packing.weights // 16 if packing else 0,
        "BIASES": packing.biases if packing else 0,
        "OUTPUT": packing.output if packing else 0,
    }


def persistent_rung(layers: Sequence[Layer], blocks: int) -> Rung:
    """The kernel for layers in order on so many multiprocessors."""
    packed = packings(layers, blocks)
    sizes, last = _macros(packed, blocks), packed[-1]
    total = last.weights + weight_bytes(last.layer, last.tile.rows)
    arrays = {
        "weights": total // HALF,
        "biases": last.biases + last.layer.conv.M,
    }

    def shared(p: Problem) -> int:
        barriers = ceil(WARPS * p["SLOTS"] * BARRIER_BYTES / LINE) * LINE
        return WARPS * p["SLOTS"] * SLOT_BYTES + barriers + sizes["WORK_BYTES"]

    def grid(p: Problem) -> Dims:
        return blocks, 1, 1

    launch = Launch(
        "persistent",
        ("x", "weights", "biases", "segments", "y", "activations", "counters", "times"),
        grid,
        lambda p: (THREADS, 1, 1),
        shared,
        cooperative=True,
    )
    return Rung(
        NAME,
        NAME,
        "all stages in one kernel, weights streamed ahead of them",
        family="stages",
        parent=None,
        file="stages/persistent.cu",
        launches=(launch,),
        constants=(SLOTS,),
        sizes=tuple((name, _constantly(value)) for name, value in sizes.items()),
        scratch=(
            Array("activations", lambda p: (max(last.output, 1),), HALF),
            Array("counters", lambda p: (len(layers),), lasting=True),
            Array("times", lambda p: (blocks, len(layers) + 1), 8),
        ),
        prepared=(
            *(Array(name, _shaped(count), HALF) for name, count in arrays.items()),
            Array("segments", lambda p: (blocks, sizes["SEGMENTS"], 2)),
        ),
        precision="fp16",
        layout="nhwc",
        takes=("bias", "ReLU"),
        min_capability=(9, 0),
    )


def _constantly(value: int):  # type: ignore[no-untyped-def]
    return lambda p: value


def _shaped(count: int):  # type: ignore[no-untyped-def]
    return lambda p: (count,)
