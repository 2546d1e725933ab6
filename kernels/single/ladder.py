"""The single-kernel rungs of the AlexNet study: direct convolution, one block per output plane."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil, prod
from typing import Any

from alexconv.kernels.common.planes import THREAD_OUTPUTS, mapping, outside_plane_block, plane_block, plane_grid
from alexconv.kernels.geometry import (
    AMPERE,
    FLOAT,
    HALF,
    TURING,
    beyond_shared,
    outside_block,
    round_up,
)
from alexconv.kernels.preparation import PREPARATION_THREADS, flat_block
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, TF32_OPERANDS, Array, Constant, Dims, Launch, Rung
from alexconv.kernels.times import CLOCK, TILE, Time, on_cuda_cores, values
from alexconv.shapes import LAYER_FEATURES, Conv

UNGROUPED = tuple(name for name in LAYER_FEATURES if name != "groups")
STRIDE_APART = 8  # columns between the loads of neighbouring threads that double their time: a sector has as many
OUTPUT_THREADS = 256  # of a block whose threads take an output of the batch each


def filter_bytes(p: Problem) -> int:
    """Shared memory for the filter of one output plane."""
    return p.conv.K * FLOAT


def filter_and_sums_bytes(p: Problem) -> int:
    """Shared memory for a filter and an accumulator per thread."""
    x, y, _ = plane_block(p)
    return filter_bytes(p) + x * y * FLOAT


def outputs_grid(p: Problem) -> Dims:
    """A thread for each output of the batch."""
    return ceil(p.N * p.conv.M * p.conv.E * p.conv.F / OUTPUT_THREADS), 1, 1


def outputs_block(p: Problem) -> Dims:
    """OUTPUT_THREADS threads."""
    return OUTPUT_THREADS, 1, 1


MOST_TAPS = 320  # of a filter of few channels
FEW_FILTERS, FEW_COLUMNS, ROW_THREADS = 64, 32, 32  # of a block; threads of a row
FEW_PITCH = FEW_FILTERS + 4  # floats from a tap's filters to the next
TILE_ROWS = Constant("TILE_ROWS", "rows of a block's outputs, a warp each", lambda p: 8, choices=(4, 8, 16))


def few_bytes(p: Problem) -> int:
    """Shared memory for a block's filters, and the window of its outputs."""
    conv = p.conv
    rows = (p["TILE_ROWS"] - 1) * conv.U + conv.filter_rows
    columns = (FEW_COLUMNS - 1) * conv.strides[1] + conv.filter_columns
    return (conv.K * FEW_PITCH + conv.C * rows * columns) * FLOAT


def few_grid(p: Problem) -> Dims:
    """A block per tile of an image's rows and columns, and per tile of filters."""
    tiles = ceil(p.conv.E / p["TILE_ROWS"]) * ceil(p.conv.F / FEW_COLUMNS)
    return p.N * tiles, ceil(p.conv.M / FEW_FILTERS), 1


def few_block(p: Problem) -> Dims:
    """A warp for each row."""
    return p["TILE_ROWS"] * ROW_THREADS, 1, 1


def refuses_many(p: Problem) -> str | None:
    """Why a rung for few channels refuses a problem, or None."""
    if p.conv.K > MOST_TAPS:
        return f"{p.conv.K} taps of a filter exceed {MOST_TAPS}"
    return beyond_shared(p.device, "filters and window need", few_bytes(p))


def few(rate: float, output: float, value: int, filters: int, fixed: float = 0.0) -> Time:
    """The time of a rung for few channels.

    ``rate``: multiply-adds per cycle of a multiprocessor.  ``output``: cycles for an output besides.  ``value``: bytes.
    ``filters``: of these, all or none of a block's are computed.
    """

    def busy(p: Problem) -> float:
        blocks = prod(few_grid(p)) / p.device.multiprocessors
        outputs = p["TILE_ROWS"] * FEW_COLUMNS * min(round_up(p.conv.M, filters), FEW_FILTERS)
        return max(blocks, 1.0) * outputs * (p.conv.K / rate + output) / CLOCK

    return Time(busy, values(value, value), fixed=fixed)


MMA_K, MOST_STEPS = 16, 16  # of an instruction; of a block, whose filters lie in shared memory
MOST_PACKED = 8  # channels of a pixel in the window
TILE_FILTERS = Constant(
    "TILE_FILTERS",
    "filters of a block",
    lambda p: FEW_FILTERS // 2,
    choices=(FEW_FILTERS // 2, FEW_FILTERS),
)
TOGETHER = 2.0  # blocks of a multiprocessor that hide each other's loads: alone they take so much longer
MMA_RATE, BLOCK_LOADS = 430.0, 60.0  # multiply-adds per cycle, stores included; cycles for a value of a thread


def packed_channels(p: Problem) -> int:
    """Channels of a pixel in the window, which are whole words."""
    return next((count for count in (2, 4, 8) if count >= p.conv.C), p.conv.C)


def packed_steps(p: Problem) -> int:
    """Instructions along K: taps and channels."""
    return ceil(p.conv.R * p.conv.S * packed_channels(p) / MMA_K)


def packed_bytes(p: Problem) -> int:
    """Shared memory for a block's filters, and the window of its outputs."""
    conv = p.conv
    rows = (p["TILE_ROWS"] - 1) * conv.U + conv.filter_rows
    columns = (FEW_COLUMNS - 1) * conv.strides[1] + conv.filter_columns
    return (packed_steps(p) * MMA_K * p["TILE_FILTERS"] + rows * columns * packed_channels(p)) * HALF


def packed_grid(p: Problem) -> Dims:
    """A block per tile of an image's rows and columns, and per tile of filters."""
    tiles = ceil(p.conv.E / p["TILE_ROWS"]) * ceil(p.conv.F / FEW_COLUMNS)
    return p.N * tiles, ceil(p.conv.M / p["TILE_FILTERS"]), 1


def refuses_unpacked(p: Problem) -> str | None:
    """Why the rung with packed channels refuses a problem, or None."""
    if p.conv.C > MOST_PACKED:
        return f"{p.conv.C} channels exceed {MOST_PACKED}"
    if packed_steps(p) > MOST_STEPS:
        return f"{p.conv.R * p.conv.S} taps of {packed_channels(p)} channels exceed {MOST_STEPS * MMA_K}"
    return beyond_shared(p.device, "filters and window need", packed_bytes(p))


def packed_busy(p: Problem) -> float:
    """Microseconds of the products and loads, of whole tiles."""
    blocks, of_filters, _ = packed_grid(p)
    products = p["TILE_ROWS"] * FEW_COLUMNS * p["TILE_FILTERS"] * packed_steps(p) * MMA_K
    cycles = products / MMA_RATE + BLOCK_LOADS * packed_bytes(p) / (p["TILE_ROWS"] * ROW_THREADS * HALF)
    return max(blocks * of_filters / p.device.multiprocessors, TOGETHER) * cycles / CLOCK


VECTOR, THREAD_ROWS = 4, 2  # columns and rows of a thread's outputs of a narrow group
USUAL_THREADS, MOST_WINDOWS = 256, 48 * 1024  # of a block, at most by default: threads, bytes of windows
GROUP_ROWS = tuple(range(THREAD_ROWS, 33, THREAD_ROWS))  # of a block's outputs
BLOCK_GROUPS, USUAL_BLOCKS = (1, 2, 4, 8), 8  # groups of a block; blocks of a multiprocessor that come first
USUAL_STAGES = 3  # windows of channels
MOST_FILTER_TAPS = 49  # of a channel: they are unrolled
GROUP_RATE = 60.0  # multiply-adds per cycle of a multiprocessor
GROUP_BLOCK, GROUP_CHANNEL = 1.0, 0.8  # microseconds of a block besides its products, and of each channel's stage
GROUP_STRIDED = 2.0  # how much longer the products take with a stride


def group_threads(conv: Conv) -> tuple[int, int]:
    """Threads along a row of outputs, and along the filters of a group; ``direct_groups.cu``."""
    filters = conv.one_group.M
    return ceil(conv.F / VECTOR), ceil(filters / (4 if filters <= 4 else 8))


def window_bytes(p: Problem) -> int:
    """Shared memory for a channel's window."""
    conv, (across, _) = p.conv, group_threads(p.conv)
    before = round_up(conv.left, VECTOR) if conv.W % VECTOR == 0 else conv.left
    read = ceil((before - conv.left + (VECTOR - 1) * conv.strides[1] + conv.filter_columns) / VECTOR)
    pitch = max((across - 1) * VECTOR * conv.strides[1] + read * VECTOR, round_up(before + conv.W, VECTOR))
    return ((p["TILE_ROWS"] - 1) * conv.U + conv.filter_rows) * pitch * FLOAT


def group_bytes(p: Problem) -> int:
    """Shared memory for windows of some channels, and for the filters of a block's groups."""
    filters = group_threads(p.conv)[1] * (4 if p.conv.one_group.M <= 4 else 8)
    return p["STAGES"] * window_bytes(p) + p["BLOCK_GROUPS"] * p.conv.K * filters * FLOAT


def group_rows(p: Problem) -> int:
    """Rows of a block by default: as many as it has threads and room for, in equal tiles, but a block everywhere."""
    across, of_filters = group_threads(p.conv)
    rows = THREAD_ROWS * max(1, min(USUAL_THREADS // (across * of_filters), ceil(p.conv.E / THREAD_ROWS)))
    rows = min(rows, max(GROUP_ROWS))

    def too_large() -> bool:
        return USUAL_STAGES * window_bytes(p.having(TILE_ROWS=rows)) > MOST_WINDOWS

    def too_few_blocks() -> bool:
        return p.N * p.conv.groups * ceil(p.conv.E / rows) < p.device.multiprocessors

    while rows > THREAD_ROWS and (too_large() or too_few_blocks()):
        rows -= THREAD_ROWS
    return round_up(ceil(p.conv.E / ceil(p.conv.E / rows)), THREAD_ROWS)


def block_groups(p: Problem) -> int:
    """Groups of a block by default: several where there are blocks enough, one after the other."""
    blocks = p.N * p.conv.groups * ceil(p.conv.E / p["TILE_ROWS"])
    most = max(1, blocks // (USUAL_BLOCKS * p.device.multiprocessors))
    return max(count for count in BLOCK_GROUPS if count <= most and p.conv.groups % count == 0)


def group_grid(p: Problem) -> Dims:
    """A block per tile of rows, and per some groups of an image."""
    return p.N * (p.conv.groups // p["BLOCK_GROUPS"]) * ceil(p.conv.E / p["TILE_ROWS"]), 1, 1


def group_block(p: Problem) -> Dims:
    """A thread for some filters at two rows of four outputs."""
    across, of_filters = group_threads(p.conv)
    return round_up(across * of_filters * (p["TILE_ROWS"] // THREAD_ROWS), 32), 1, 1


def refuses_wide(p: Problem) -> str | None:
    """Why the rung for narrow groups refuses a problem, or None."""
    if p.conv.groups == 1:
        return "1 group: takes two or more"
    if p.conv.R * p.conv.S > MOST_FILTER_TAPS:
        return f"filters of {p.conv.R} x {p.conv.S} exceed {MOST_FILTER_TAPS} taps"
    if p.conv.groups % p["BLOCK_GROUPS"]:
        return f"{p.conv.groups} groups are no multiple of a block's {p['BLOCK_GROUPS']}"
    return outside_block(group_block, group_bytes)(p)


def group_busy(p: Problem) -> float:
    """Microseconds of a multiprocessor's share of the products, and of a block."""
    across, of_filters = group_threads(p.conv)
    outputs = across * VECTOR * p["TILE_ROWS"] * of_filters * (4 if p.conv.one_group.M <= 4 else 8) * p["BLOCK_GROUPS"]
    strided = GROUP_STRIDED if max(p.conv.strides) > 1 else 1.0
    products = strided * outputs * p.conv.K / (GROUP_RATE * CLOCK)
    blocks = group_grid(p)[0] / p.device.multiprocessors
    return max(1.0, blocks) * products + GROUP_BLOCK + GROUP_CHANNEL * p.conv.one_group.C


GROUP_WARPS, MMA_FILTERS, MMA_PIXELS = 8, 8, 16  # warps of a block; filters and pixels of an instruction
LANE_BYTES_OF_K, COPY_BYTES, BANK_BYTES = 8, 16, 128  # of a pixel: a lane's of an instruction, of a copy, of all banks
MOST_LANE_WORDS, MANY_LANE_WORDS = 96, 48  # registers of a lane for its filters; from which two blocks fit, not three
LINE_BYTES, WINDOWS_BYTES = 128, 222 * 1024  # of a pixel; shared memory for the windows of a multiprocessor's blocks
PIXEL_ROWS = tuple(range(1, 33))  # of a block's outputs
WINDOW_RATE, MMA_STEP, MMA_TILE, PACKED_TAP = 30.5, 3.6, 2.7, 0.35  # group_mma_busy


def group_steps(p: Problem, size: int) -> int:
    """Instructions along K, taps and channels of a group, for values of so many bytes."""
    return ceil(p.conv.K * size / (QUAD * LANE_BYTES_OF_K))


def group_filter_tiles(p: Problem) -> int:
    """Instructions along the filters of a group."""
    return ceil(p.conv.one_group.M / MMA_FILTERS)


def lane_words(p: Problem, size: int) -> int:
    """Words of a lane's filters."""
    return group_steps(p, size) * group_filter_tiles(p) * LANE_BYTES_OF_K // FLOAT


def group_filters(p: Problem, size: int) -> tuple[int, ...]:
    """The filters of all groups as lanes hold them, two words an instruction."""
    return p.conv.groups, group_steps(p, size), group_filter_tiles(p), ROW_THREADS, 2


def groups_of_warps(p: Problem, size: int) -> int:
    """Groups of a block by default: whole lines of memory for each pixel, two where groups share its instructions."""
    lines = LINE_BYTES * (2 if lane_words(p, size) > MANY_LANE_WORDS else 1)
    channels = p.conv.one_group.C * size
    fitting = [n for n in BLOCK_GROUPS if p.conv.groups % n == 0 and n * channels % COPY_BYTES == 0]
    return max((n for n in fitting if n * channels <= lines), default=next(iter(fitting), 1))


def pixel_bytes(p: Problem, size: int) -> int:
    """Bytes from a pixel in the window to the next; ``padded_pixel`` of groups_mma.cuh."""
    least = p["BLOCK_GROUPS"] * p.conv.one_group.C * size
    pitches = range(least, least + BANK_BYTES, COPY_BYTES)
    apart = (
        pitch for pitch in pitches if pitch * p.conv.strides[1] % BANK_BYTES in (BANK_BYTES // 4, 3 * BANK_BYTES // 4)
    )
    return next(apart, least + COPY_BYTES)


def pixel_window(p: Problem, size: int) -> int:
    """Shared memory for the window of a block's outputs, whose rows are whole."""
    conv = p.conv
    rows = (p["TILE_ROWS"] - 1) * conv.U + conv.filter_rows
    columns = (conv.F - 1) * conv.strides[1] + conv.filter_columns
    return rows * columns * pixel_bytes(p, size)


def pixel_rows(p: Problem, size: int) -> int:
    """Rows of a block by default: as many as fit, in equal tiles, but a block everywhere."""
    resident = 2 if lane_words(p, size) > MANY_LANE_WORDS else 3
    groups = p.N * p.conv.groups // p["BLOCK_GROUPS"]

    def unsuited(rows: int) -> bool:
        too_large = pixel_window(p.having(TILE_ROWS=rows), size) > WINDOWS_BYTES // resident
        return too_large or groups * ceil(p.conv.E / rows) < p.device.multiprocessors

    rows = next((rows for rows in reversed(PIXEL_ROWS) if rows <= p.conv.E and not unsuited(rows)), 1)
    return ceil(p.conv.E / ceil(p.conv.E / rows))


def refuses_wide_groups(p: Problem, size: int) -> str | None:
    """Why a rung for narrow groups on tensor cores refuses a problem, or None."""
    of_group, of_lane = p.conv.one_group.C, LANE_BYTES_OF_K // size
    if p.conv.groups == 1:
        return "1 group: takes two or more"
    if of_group % of_lane:
        return f"groups of {of_group} channels: takes multiples of {of_lane}"
    if p.conv.groups % p["BLOCK_GROUPS"]:
        return f"{p.conv.groups} groups are no multiple of a block's {p['BLOCK_GROUPS']}"
    if p["BLOCK_GROUPS"] * of_group * size % COPY_BYTES:
        return f"{p['BLOCK_GROUPS'] * of_group} channels of a block are no multiple of {COPY_BYTES // size}"
    if (words := lane_words(p, size)) > MOST_LANE_WORDS:
        return f"{words} words of filters in registers exceed {MOST_LANE_WORDS}"
    return beyond_shared(p.device, "a window needs", pixel_window(p, size))


def group_mma_busy(p: Problem, size: int) -> float:
    """Microseconds of a multiprocessor's share of windows and products.

    A window arrives at WINDOW_RATE bytes a cycle.  A step of 16 pixels takes MMA_STEP cycles, and MMA_TILE for each
    eight filters, longer by PACKED_TAP for each tap of it but the first.
    """
    steps = ceil(p["TILE_ROWS"] * p.conv.F / MMA_PIXELS) * p["BLOCK_GROUPS"] * group_steps(p, size)
    taps = max(1.0, QUAD * LANE_BYTES_OF_K / (p.conv.one_group.C * size))
    products = (1 + PACKED_TAP * (taps - 1)) * steps * (MMA_STEP + MMA_TILE * group_filter_tiles(p))
    blocks = max(1.0, group_grid(p)[0] / p.device.multiprocessors)
    return blocks * (pixel_window(p, size) / WINDOW_RATE + products) / CLOCK


def in_own_file(name: str, alias: str, idea: str, parent: str, **rest: Any) -> Rung:
    """A rung whose file has its name; ``rest``: its other fields."""
    file = f"single/{name.replace('-', '_')}.cu"
    return Rung(name, alias=alias, idea=idea, family="single", parent=parent, file=file, **rest)


def on_tensor_cores(name: str, alias: str, idea: str, parent: str, size: int, **rest: Any) -> Rung:
    """A rung of NHWC floats rounded to tf32, or of fp16, on tensor cores; its kernel has its file's name.

    ``size``: bytes of a value.  ``rest``: the rung's other fields.
    """
    factors = "fp16" if size == HALF else "tf32"
    return in_own_file(
        name,
        alias,
        idea,
        parent,
        precision=factors,
        layout="nhwc",
        min_capability=TURING if size == HALF else AMPERE,
        tensor_factors=factors,
        exceptions=() if size == HALF else (TF32_OPERANDS,),
        **rest,
    )


def groups_mma(name: str, alias: str, idea: str, parent: str, size: int) -> Rung:
    """A rung for narrow groups on tensor cores, with values of so many bytes."""
    entry = name.replace("-", "_")
    multiply = Launch(
        entry,
        ("x", "filters", "y"),
        group_grid,
        lambda p: (GROUP_WARPS * ROW_THREADS, 1, 1),
        partial(pixel_window, size=size),
        pdl=True,
        stores=True,
    )
    return on_tensor_cores(
        name,
        alias,
        idea,
        parent,
        size,
        launches=(multiply,),
        constants=(
            Constant(
                "BLOCK_GROUPS",
                "groups of a block, side by side",
                partial(groups_of_warps, size=size),
                choices=BLOCK_GROUPS,
            ),
            Constant("TILE_ROWS", "rows of a block's outputs", partial(pixel_rows, size=size), choices=PIXEL_ROWS),
        ),
        prepare=(
            Launch(
                "order_group_filters",
                ("w", "filters"),
                lambda p: (ceil(prod(group_filters(p, size)) / (2 * PREPARATION_THREADS)), 1, 1),
                flat_block,
            ),
        ),
        prepared=(Array("filters", partial(group_filters, size=size), FLOAT),),
        refuses=partial(refuses_wide_groups, size=size),
        takes=LAYER_FEATURES,
        time=Time(partial(group_mma_busy, size=size), values(size, size), fixed=TILE),
    )


FILTERS_THREADS, FILTERS_GROUP = 256, 32  # of a block; pixels of a warp at a time
MOST_PRODUCTS = 72  # of an input with all taps of all filters
MOST_FILTERS = 8  # of direct-few-filters: more fill half a tile of tensor cores
LANE_BYTES, QUAD, STEPS = 16, 4, 2  # of a lane's load; lanes of a pixel; instructions for it
FILTER_BLOCKS = 2  # of a multiprocessor, below which tiles are lower
COLUMNS_OF_MMA = 8


def products_of_input(p: Problem) -> int:
    """Products of an input with all taps of all filters."""
    return p.conv.R * p.conv.S * p.conv.M


def window_pixels(p: Problem) -> int:
    """Pixels of the window under a block's outputs."""
    return (p["TILE_ROWS"] - 1 + p.conv.filter_rows) * (FEW_COLUMNS - 1 + p.conv.filter_columns)


def filters_bytes(size: int) -> Callable[[Problem], int]:
    """Shared memory for a block's filters, and the products of its window."""

    def nbytes(p: Problem) -> int:
        chunks = ceil(p.conv.C * size / (LANE_BYTES * QUAD))
        filters = chunks * STEPS * ceil(products_of_input(p) / COLUMNS_OF_MMA) * ROW_THREADS * 2
        return (filters + products_of_input(p) * (round_up(window_pixels(p), ROW_THREADS) + 4)) * FLOAT

    return nbytes


def filters_grid(p: Problem) -> Dims:
    """A block per tile of an image's rows and columns."""
    return p.N * ceil(p.conv.E / p["TILE_ROWS"]) * ceil(p.conv.F / FEW_COLUMNS), 1, 1


def filters_block(p: Problem) -> Dims:
    """FILTERS_THREADS threads."""
    return FILTERS_THREADS, 1, 1


def filter_rows(p: Problem) -> int:
    """The highest tiles that leave FILTER_BLOCKS blocks for each multiprocessor, else the lowest."""
    blocks = FILTER_BLOCKS * p.device.multiprocessors
    return next((rows for rows in (16, 8) if filters_grid(p.having(TILE_ROWS=rows))[0] >= blocks), 4)


def refuses_filters(size: int) -> Callable[[Problem], str | None]:
    """Refuses what a rung for few filters cannot compute."""

    def reason(p: Problem) -> str | None:
        if p.conv.strides != (1, 1):
            return f"strides of {p.conv.strides}, not 1"
        if p.conv.M > MOST_FILTERS:
            return f"{p.conv.M} filters are not few, which are up to {MOST_FILTERS}"
        if products_of_input(p) > MOST_PRODUCTS:
            return f"{products_of_input(p)} taps of all filters exceed {MOST_PRODUCTS}"
        if p.conv.C * size % LANE_BYTES:
            return f"{p.conv.C} channels are no multiple of {LANE_BYTES // size}"
        return beyond_shared(p.device, "filters and products need", filters_bytes(size)(p))

    return reason


def filters_time(size: int, byte: float, product: float, fixed: float, least: float = 0.0) -> Time:
    """The time of a rung for few filters: bytes of a value, cycles for a byte of an input, and each of its products.

    A byte takes ``least`` cycles: few products do not hide the loads.
    """

    def busy(p: Problem) -> float:
        of_block = round_up(window_pixels(p), FILTERS_GROUP)
        columns, nbytes = round_up(products_of_input(p), COLUMNS_OF_MMA), round_up(p.conv.C * size, LANE_BYTES * QUAD)
        cycles = of_block * nbytes * max(byte + product * columns, least)
        return max(filters_grid(p)[0] / p.device.multiprocessors, 1.0) * cycles / CLOCK

    return Time(busy, values(size, size), fixed=fixed)


def any_time(tap: float) -> Time:
    """The time of a thread for each output of any layer: with a stride neighbouring threads load apart."""
    time = on_cuda_cores(rate=8.0, tap=tap)

    def busy(p: Problem) -> float:
        return time.busy(p) * (1 + p.conv.strides[1] / STRIDE_APART)

    return replace(time, busy=busy)


def any_layer(name: str, alias: str, idea: str, parent: str, tap: float, size: int = FLOAT) -> Rung:
    """A rung with a thread for each output; its kernel has its file's name."""
    entry = name.replace("-", "_")
    return in_own_file(
        name,
        alias,
        idea,
        parent,
        launches=(Launch(entry, ("x", "w", "y", BATCH), outputs_grid, outputs_block, stores=True),),
        precision="fp16" if size == HALF else "fp32",
        layout="nhwc" if size == HALF else "nchw",
        takes=LAYER_FEATURES,
        time=any_time(tap),
        cpu_order=2,
    )


def few_channels(name: str, alias: str, idea: str, parent: str, time: Time, size: int = FLOAT) -> Rung:
    """A rung for few channels; its kernel has its file's name."""
    entry = name.replace("-", "_")
    return in_own_file(
        name,
        alias,
        idea,
        parent,
        launches=(Launch(entry, ("x", "w", "y"), few_grid, few_block, few_bytes, pdl=True, stores=True),),
        constants=(TILE_ROWS,),
        refuses=refuses_many,
        precision="fp16" if size == HALF else "fp32",
        layout="nhwc" if size == HALF else "nchw",
        takes=UNGROUPED,
        time=time,
    )


def few_filters(name: str, alias: str, idea: str, parent: str, time: Time, size: int = FLOAT) -> Rung:
    """A rung for few filters on tensor cores, with values of so many bytes; its kernel has its file's name."""
    entry = name.replace("-", "_")
    launch = Launch(entry, ("x", "w", "y"), filters_grid, filters_block, filters_bytes(size), pdl=True, stores=True)
    return on_tensor_cores(
        name,
        alias,
        idea,
        parent,
        size,
        launches=(launch,),
        constants=(replace(TILE_ROWS, meaning="rows of a block's outputs", default=filter_rows),),
        refuses=refuses_filters(size),
        takes=UNGROUPED,
        time=time,
    )


SINGLE_RUNGS: tuple[Rung, ...] = (
    Rung(
        "direct",
        alias="mcpy",
        idea="one thread per output, every product added in global memory",
        family="single",
        parent=None,
        file="single/direct.cu",
        launches=(Launch("direct", ("x", "w", "y"), plane_grid, plane_block),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(),
    ),
    Rung(
        "direct-register",
        alias="rla2m",
        idea="the accumulator in a register, one store per output",
        family="single",
        parent="direct",
        file="single/direct_register.cu",
        launches=(Launch("direct_register", ("x", "w", "y"), plane_grid, plane_block),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(),
        cpu_order=1,
    ),
    Rung(
        "direct-filter-one-thread",
        alias="rswbdla2m",
        idea="filter in shared memory, loaded by one thread while the others wait",
        family="single",
        parent="direct-register",
        file="single/direct_filter_one_thread.cu",
        launches=(Launch("direct_filter_one_thread", ("x", "w", "y"), plane_grid, plane_block, filter_bytes),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(filter_bytes),
    ),
    Rung(
        "direct-filter-shared",
        alias="rswmtla2m",
        idea="filter in shared memory, loaded by many threads",
        family="single",
        parent="direct-filter-one-thread",
        file="single/direct_filter_shared.cu",
        launches=(Launch("direct_filter_shared", ("x", "w", "y"), plane_grid, plane_block, filter_bytes),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(filter_bytes),
    ),
    Rung(
        "direct-sum-shared",
        alias="swso",
        idea="filter and accumulators in shared memory",
        family="single",
        parent="direct-filter-one-thread",
        file="single/direct_sum_shared.cu",
        launches=(Launch("direct_sum_shared", ("x", "w", "y"), plane_grid, plane_block, filter_and_sums_bytes),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(filter_and_sums_bytes),
    ),
    Rung(
        "direct-half",
        alias="half",
        idea="the naive convolution in half precision",
        family="single",
        parent="direct",
        file="single/direct_half.cu",
        launches=(Launch("direct_half", ("x", "w", "y"), plane_grid, plane_block),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        precision="half",
        refuses=outside_plane_block(),
        cpu_order=1,
    ),
    any_layer(
        "direct-any",
        "any",
        "one thread per output of any layer: padding, strides, dilation, groups, bias and ReLU",
        parent="direct-register",
        tap=0.023,
    ),
    any_layer(
        "direct-any-half",
        "any-half",
        "any layer in fp16 with fp32 accumulators, NHWC",
        parent="direct-any",
        tap=0.12,
        size=HALF,
    ),
    Rung(
        "direct-groups",
        alias="groups",
        idea="narrow groups: windows of channels in shared memory, 8 outputs of up to 8 filters of a thread",
        family="single",
        parent="direct-any",
        file="single/direct_groups.cu",
        launches=(
            Launch("direct_groups", ("x", "w", "y"), group_grid, group_block, group_bytes, pdl=True, stores=True),
        ),
        constants=(
            Constant("TILE_ROWS", "rows of a block's outputs", group_rows, choices=GROUP_ROWS),
            Constant("BLOCK_GROUPS", "groups of a block, one after the other", block_groups, choices=BLOCK_GROUPS),
            Constant(
                "STAGES",
                "windows of channels in shared memory or in flight",
                lambda p: USUAL_STAGES,
                choices=(2, 3, 4, 6),
            ),
        ),
        refuses=refuses_wide,
        min_capability=TURING,
        takes=LAYER_FEATURES,
        time=Time(group_busy, values(FLOAT, FLOAT)),
    ),
    groups_mma(
        "direct-groups-mma",
        "groups-mma",
        "narrow groups on tensor cores: an instruction for eight filters of a group, NHWC",
        parent="direct-groups",
        size=FLOAT,
    ),
    groups_mma(
        "direct-groups-mma-half",
        "groups-mma-half",
        "narrow groups in fp16 on tensor cores, with several taps of an instruction, NHWC",
        parent="direct-groups-mma",
        size=HALF,
    ),
    few_channels(
        "direct-few",
        "few",
        "few channels: window and filters in shared memory, 8 x 8 outputs of a thread",
        parent="direct-any",
        time=few(rate=60.0, output=0.5, value=FLOAT, filters=FEW_FILTERS // 2),
    ),
    few_channels(
        "direct-few-half",
        "few-half",
        "few channels in fp16 with fp32 accumulators, NHWC",
        parent="direct-few",
        time=few(rate=80.0, output=0.1, value=HALF, filters=FEW_FILTERS, fixed=TILE),
        size=HALF,
    ),
    on_tensor_cores(
        "direct-few-mma",
        "few-mma",
        "few channels on tensor cores: taps and channels packed along K, NHWC",
        parent="direct-few-half",
        size=HALF,
        launches=(
            Launch("direct_few_mma", ("x", "w", "y"), packed_grid, few_block, packed_bytes, pdl=True, stores=True),
        ),
        constants=(TILE_ROWS, TILE_FILTERS),
        refuses=refuses_unpacked,
        takes=UNGROUPED,
        time=Time(packed_busy, values(HALF, HALF), fixed=TILE),
    ),
    few_filters(
        "direct-few-filters-half",
        "few-filters-half",
        "few filters in fp16: each input times all taps on tensor cores, then sums of taps, NHWC",
        parent="direct-any-half",
        time=filters_time(HALF, byte=0.015, product=0.003, fixed=0.6, least=0.085),
        size=HALF,
    ),
    few_filters(
        "direct-few-filters",
        "few-filters",
        "few filters of floats rounded to tf32, NHWC",
        parent="direct-few-filters-half",
        time=filters_time(FLOAT, byte=0.04, product=0.0016, fixed=2.4),
    ),
)
