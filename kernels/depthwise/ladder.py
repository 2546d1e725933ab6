"""Depthwise layers, and those with several filters of each channel: bound by memory.

A thread computes a strip of outputs in registers.  The rungs differ in where vectors lie: along rows, along channels,
or in planes that a block copies to shared memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from alexconv.kernels.geometry import FLOAT, HALF, WARP, beyond_shared, round_up
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import MAX_BLOCK, Constant, Dims, Launch, Rung
from alexconv.kernels.times import CLOCK, TILE, Time, values
from alexconv.shapes import LAYER_FEATURES, Conv

TAKES = tuple(name for name in LAYER_FEATURES if name != "dilation")
STRIP_THREADS = 128  # of a block
BLOCK_THREADS = 256  # that a block with planes in shared memory should have
MOST_TAPS = 49  # of a filter, which a thread holds in registers
VECTOR_TAPS = 36  # of the filters of a vector of channels
FEW_TAPS = 9  # of a filter, for which narrow tiles need no more loads of a value than memory allows
MOST_SUMS = 64  # of a thread, in registers
LEAST_OUTPUTS = 8  # of a thread with wide vectors
THREADS_BUSY = 512  # of a multiprocessor, below which strips are shorter
VECTOR_BYTES = 16  # that an instruction moves at most
RATE = 90.0  # instructions of a multiprocessor's threads per cycle
OF_LOAD, OF_TAP = 4, 6  # instructions for a load with its test and conversion; for a tap, lanes of which lie apart
OF_OUTPUT, OF_PLANES_OUTPUT = 4, 12  # instructions of an output besides its multiply-adds, of strips and of planes
OF_ROWS = 0.85  # of what is counted, which rungs along rows take, as timed on random layers
SECTORS, WAVEFRONT = 4, 2  # wavefronts of a warp's vectors that follow each other; cycles of the L1 cache for one


def multiplier(p: Problem) -> int:
    """Filters of a channel."""
    return p.conv.M // p.conv.C


def strips(p: Problem) -> int:
    """Strips of a plane or, in NHWC, of a plane of vectors."""
    return ceil(p.conv.E / p["TILE_ROWS"]) * ceil(p.conv.F / p["TILE_COLUMNS"])


def of_planes(p: Problem) -> int:
    """Threads of an image in NCHW."""
    return p.conv.M * strips(p)


def of_channels(p: Problem) -> int:
    """Threads of an image in NHWC."""
    return p.conv.M // p["VECTOR"] * strips(p)


def strip_grid(threads: Callable[[Problem], int]) -> Callable[[Problem], Dims]:
    """The grid of blocks of STRIP_THREADS, none of them for two images."""
    return lambda p: (p.N * ceil(threads(p) / STRIP_THREADS), 1, 1)


def strip_block(p: Problem) -> Dims:
    """STRIP_THREADS threads."""
    return STRIP_THREADS, 1, 1


def vector_of_rows(p: Problem) -> int:
    """The widest vector that rows and tiles are multiples of."""
    return next(
        size for size in (4, 2, 1) if p.conv.W % size == 0 and p["TILE_COLUMNS"] * p.conv.strides[1] % size == 0
    )


def vector_of_channels(p: Problem) -> int:
    """The widest vector of channels whose filters a thread can hold beside its sums; narrow ones for few outputs."""
    outputs = p.N * p.conv.M * p.conv.E * p.conv.F
    sizes = (4, 2) if outputs >= LEAST_OUTPUTS * wanted(p) else (2,)
    fitting = (size for size in sizes if size * p.conv.R * p.conv.S <= VECTOR_TAPS and p.conv.C % size == 0)
    return next(fitting, 1) if multiplier_is_one(p) else 1


def multiplier_is_one(p: Problem) -> bool:
    """Whether each channel has one filter, so that neighbouring filters have neighbouring channels."""
    return p.conv.M == p.conv.C


def columns_of_channels(p: Problem) -> int:
    """Columns of a tile of vectors: two of wide vectors, four of narrow ones."""
    return 2 if p["VECTOR"] == 4 else 4


ROWS = (8, 7, 4, 2, 1)


def tile_rows(
    threads: Callable[[Problem], int],
    sums: Callable[[Problem], int],
    allowed: Callable[[Problem], bool] = lambda p: True,
) -> Callable[[Problem], int]:
    """The height of strips that loads and computes the fewest rows, of those that leave enough threads.

    ``sums``: outputs of a strip that is one row high; ``allowed``: whether a block can have the strips.
    """

    def least(p: Problem) -> int:
        heights = [rows for rows in ROWS if rows * sums(p) <= MOST_SUMS and allowed(p.having(TILE_ROWS=rows))]
        busy = [rows for rows in heights if p.N * threads(p.having(TILE_ROWS=rows)) >= wanted(p)]
        return min(busy or heights[-1:] or ROWS[:1], key=lambda rows: rows_of_strips(p.conv, rows))

    return least


def rows_of_strips(conv: Conv, height: int) -> int:
    """Rows of a plane that all of its strips load and compute."""
    return ceil(conv.E / height) * ((height - 1) * conv.U + conv.R + height)


def wanted(p: Problem) -> int:
    """Threads that keep the device busy."""
    return THREADS_BUSY * p.device.multiprocessors


def rows_of(default: Callable[[Problem], int]) -> Constant:
    """The constant TILE_ROWS."""
    return Constant("TILE_ROWS", "rows of a thread's outputs", default, choices=ROWS)


def columns_of(default: Callable[[Problem], int]) -> Constant:
    """The constant TILE_COLUMNS."""
    return Constant("TILE_COLUMNS", "columns of a thread's outputs", default, choices=(1, 2, 4, 8))


def vector_of(meaning: str, default: Callable[[Problem], int], choices: tuple[int, ...]) -> Constant:
    """The constant VECTOR."""
    return Constant("VECTOR", f"neighbouring {meaning} in a load", default, choices=choices)


PLANES = (128, 64, 32, 16, 8, 4, 2, 1)  # of a block


def planes_of_block(size: int) -> Callable[[Problem], int]:
    """As many planes as give a block BLOCK_THREADS threads: whole vectors, and parts of an image, where there are."""

    def planes(p: Problem) -> int:
        most = BLOCK_THREADS // max(1, multiplier(p) * strips(p))
        values_of = p.conv.H * p.conv.W, multiplier(p) * p.conv.E * p.conv.F
        few = [count for count in PLANES if count <= min(most, p.conv.C)] or [1]
        whole = [count for count in few if not any(count * value * size % VECTOR_BYTES for value in values_of)]
        dividing = [count for count in whole if p.conv.C % count == 0]
        return max(dividing or whole or few)

    return planes


def in_a_block(p: Problem) -> bool:
    """Whether a block has a thread for each strip of a plane's outputs."""
    return multiplier(p) * strips(p) <= MAX_BLOCK


def refuses_layer(p: Problem) -> str | None:
    """Why no rung of the family takes the layer, or None."""
    if p.conv.groups != p.conv.C:
        return f"{p.conv.C // p.conv.groups} channels in a group, a depthwise layer has 1"
    if p.conv.R * p.conv.S > MOST_TAPS:
        return f"{p.conv.R * p.conv.S} taps of a filter exceed {MOST_TAPS}"
    return None


def refuses_sums(p: Problem, neighbours: int) -> str | None:
    """Why a thread's sums do not fit in registers, or None."""
    sums = p["TILE_ROWS"] * p["TILE_COLUMNS"] * neighbours
    return f"{sums} sums of a thread exceed {MOST_SUMS}" if sums > MOST_SUMS else None


def refuses_rows(size: int) -> Callable[[Problem], str | None]:
    """Refuses what a rung with vectors along rows cannot compute."""

    def reason(p: Problem) -> str | None:
        vector, columns = p["VECTOR"], p["TILE_COLUMNS"] * p.conv.strides[1]
        if p.conv.W % vector or columns % vector or vector * size > VECTOR_BYTES:
            return f"rows of {p.conv.W} values and tiles of {columns} are no vectors of {vector}"
        return refuses_layer(p) or refuses_sums(p, 1)

    return reason


def refuses_channels(size: int) -> Callable[[Problem], str | None]:
    """Refuses what a rung with vectors along channels cannot compute."""

    def reason(p: Problem) -> str | None:
        if reason := refuses_layer(p):
            return reason
        vector = p["VECTOR"]
        if p.conv.C % vector or vector * size > VECTOR_BYTES or (vector > 1 and not multiplier_is_one(p)):
            return f"{p.conv.M} filters of {p.conv.C} channels are no vectors of {vector}"
        return refuses_sums(p, vector)

    return reason


def planes_bytes(size: int) -> Callable[[Problem], int]:
    """Shared memory for a block's planes and their outputs, each in whole vectors."""

    def nbytes(p: Problem) -> int:
        conv, count = p.conv, p["PLANES"]
        inputs, outputs = count * conv.H * conv.W * size, count * multiplier(p) * conv.E * conv.F * size
        return round_up(inputs, VECTOR_BYTES) + round_up(outputs, VECTOR_BYTES)

    return nbytes


def planes_block(p: Problem) -> Dims:
    """A thread for each strip of a block's outputs."""
    return p["PLANES"] * multiplier(p) * strips(p), 1, 1


def planes_grid(p: Problem) -> Dims:
    """A block for each PLANES planes of an image."""
    return p.N * ceil(p.conv.C / p["PLANES"]), 1, 1


def refuses_planes(size: int) -> Callable[[Problem], str | None]:
    """Refuses what a rung with planes in shared memory cannot compute."""

    def reason(p: Problem) -> str | None:
        if reason := refuses_layer(p) or refuses_sums(p, 1):
            return reason
        threads, _, _ = planes_block(p)
        if threads > MAX_BLOCK:
            return f"a block of {threads} threads exceeds {MAX_BLOCK}"
        return beyond_shared(p.device, "planes need", planes_bytes(size)(p))

    return reason


def span(p: Problem) -> int:
    """Columns of a thread's window."""
    return (p["TILE_COLUMNS"] - 1) * p.conv.strides[1] + p.conv.S


def window_rows(p: Problem) -> int:
    """Rows of a thread's window."""
    return (p["TILE_ROWS"] - 1) * p.conv.U + p.conv.R


def vectors_of_row(p: Problem) -> int:
    """Loads of a row of a window, of vectors that begin at a multiple of their size."""
    return ceil(span(p) / p["VECTOR"]) + (p["VECTOR"] > 1)


def strip_time(
    size: int,
    grid: Callable[[Problem], Dims],
    threads: Callable[[Problem], int],
    loads: Callable[[Problem], int],
    filters: Callable[[Problem], int] = lambda p: 1,
    wavefronts: Callable[[Problem], float] = lambda p: 0.0,
    of_output: int = OF_OUTPUT,
) -> Time:
    """The time of a rung whose values have ``size`` bytes: of its instructions, the L1 cache, or its bytes.

    ``loads``: of a row of a thread's window; ``filters``: of a thread; ``of_output``: instructions besides.
    """

    def busy(p: Problem) -> float:
        taps, (blocks, _, _) = p.conv.R * p.conv.S, grid(p)
        outputs = p["TILE_ROWS"] * p["TILE_COLUMNS"] * filters(p)
        of_thread = outputs * (taps + of_output) + OF_LOAD * window_rows(p) * loads(p) + OF_TAP * taps
        of_each = ceil(blocks / p.device.multiprocessors)
        return max(p.N * threads(p) * of_thread / RATE, wavefronts(p)) / blocks * of_each / CLOCK

    return Time(busy, values(size, size))


def row_wavefronts(p: Problem) -> float:
    """Cycles of the L1 cache for loads along rows: of a narrow plane the lanes of a warp read many rows."""
    lanes = min(WARP, ceil(p.conv.F / p["TILE_COLUMNS"]))
    loads = p.N * of_planes(p) / WARP * window_rows(p) * ceil(span(p) / p["VECTOR"])
    return loads * WAVEFRONT * max(SECTORS, WARP / lanes)


def rows_time(size: int) -> Time:
    """The time of a rung with vectors along rows."""
    time = strip_time(size, strip_grid(of_planes), of_planes, vectors_of_row, wavefronts=row_wavefronts)
    return replace(time, slower=OF_ROWS)


def channels_time(size: int) -> Time:
    """The time of a rung with vectors along channels."""
    return strip_time(size, strip_grid(of_channels), of_channels, span, filters=lambda p: p["VECTOR"])


def planes_time(size: int) -> Time:
    """The time of a rung with planes in shared memory."""
    time = strip_time(size, planes_grid, of_planes, span, of_output=OF_PLANES_OUTPUT)
    return replace(time, fixed=TILE)


def strip_of_rows(size: int) -> tuple[Constant, ...]:
    """The constants of a rung with vectors along rows."""

    def columns(p: Problem) -> int:
        return 2 if size == FLOAT and p.conv.R * p.conv.S <= FEW_TAPS else 4

    return (
        columns_of(columns),
        vector_of("columns", vector_of_rows, (1, 2, 4, 8)),
        rows_of(tile_rows(of_planes, lambda p: p["TILE_COLUMNS"])),
    )


def strip_of_channels(size: int) -> tuple[Constant, ...]:
    """The constants of a rung with vectors along channels."""
    return (
        vector_of("channels", vector_of_channels, (1, 2, 4, 8)),
        columns_of(columns_of_channels),
        rows_of(tile_rows(of_channels, lambda p: p["TILE_COLUMNS"] * p["VECTOR"])),
    )


def strip_of_plane(size: int) -> tuple[Constant, ...]:
    """The constants of a rung with planes in shared memory."""
    return (
        columns_of(lambda p: 4),
        rows_of(tile_rows(of_planes, lambda p: p["TILE_COLUMNS"], in_a_block)),
        Constant("PLANES", "planes of a block", planes_of_block(size), choices=PLANES),
    )


@dataclass(frozen=True)
class Strips:
    """The geometry of rungs that differ in type alone; functions of the bytes of a value give what depends on it."""

    grid: Callable[[Problem], Dims]
    block: Callable[[Problem], Dims]
    constants: Callable[[int], tuple[Constant, ...]]
    refuses: Callable[[int], Callable[[Problem], str | None]]
    time: Callable[[int], Time]
    shared: Callable[[int], Callable[[Problem], int]] = lambda size: lambda p: 0
    layout: str = "nchw"

    def rung(self, name: str, alias: str, idea: str, parent: str, size: int = FLOAT) -> Rung:
        """A rung for floats or, of values of two bytes, for fp16; its kernel has its file's name."""
        entry = name.replace("-", "_")
        launch = Launch(entry, ("x", "w", "y"), self.grid, self.block, self.shared(size), pdl=True, stores=True)
        return Rung(
            name,
            alias=alias,
            idea=idea,
            family="depthwise",
            parent=parent,
            file=f"depthwise/{entry}.cu",
            launches=(launch,),
            constants=self.constants(size),
            refuses=self.refuses(size),
            precision="fp16" if size == HALF else "fp32",
            layout=self.layout,
            takes=TAKES,
            time=self.time(size),
        )


WINDOW = Strips(strip_grid(of_planes), strip_block, strip_of_rows, refuses_rows, rows_time)
OF_CHANNELS = Strips(
    strip_grid(of_channels), strip_block, strip_of_channels, refuses_channels, channels_time, layout="nhwc"
)
IN_SHARED = Strips(planes_grid, planes_block, strip_of_plane, refuses_planes, planes_time, planes_bytes)

DEPTHWISE_RUNGS: tuple[Rung, ...] = (
    WINDOW.rung(
        "depthwise-window",
        "dw",
        "depthwise: each row passes once under a strip of outputs in registers",
        parent="direct-any",
    ),
    WINDOW.rung(
        "depthwise-window-half",
        "dw-half",
        "strips of outputs in fp16 with fp32 accumulators",
        parent="depthwise-window",
        size=HALF,
    ),
    OF_CHANNELS.rung("depthwise-channels", "dw-c", "vectors of channels, NHWC", parent="depthwise-window"),
    OF_CHANNELS.rung(
        "depthwise-channels-half",
        "dw-c-half",
        "vectors of channels in fp16 with fp32 accumulators, NHWC",
        parent="depthwise-channels",
        size=HALF,
    ),
    IN_SHARED.rung(
        "depthwise-planes",
        "dw-p",
        "small planes: several in shared memory, copied as one array",
        parent="depthwise-window",
    ),
    IN_SHARED.rung(
        "depthwise-planes-half",
        "dw-p-half",
        "small planes in fp16 with fp32 accumulators",
        parent="depthwise-planes",
        size=HALF,
    ),
)
