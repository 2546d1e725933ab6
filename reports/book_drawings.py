"""The drawings of the book, one for each chapter."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from alexconv.reports.style import COLOURS, INK, ON_COLOUR, QUIET, WIDTH

BLUE, SKY, TEAL, GREEN, OLIVE, SAND, ROSE, WINE, PURPLE = COLOURS
PALE, PAPER = "#EDEDED", "white"
ROW, TILES, POINTS = 13, 3, 7  # of wgmma-winograd: outputs of a row, tiles that cover them, products of each
LADDER = (  # kernels of the last drawing, type of their factors, products computed per product of the layer
    ("direct", "fp32", 1.0),
    ("direct-register", "fp32", 1.0),
    ("unroll-matmul", "fp32", 1.0),
    ("igemm", "fp32", 1.0),
    ("igemm-async", "fp32", 1.0),
    ("igemm-stream-k", "fp32", 1.0),
    ("mma-tf32", "tf32", 1.0),
    ("wgmma-split", "fp16", 3.0),
    ("wgmma-winograd", "fp16", 3.0 * TILES * POINTS / (3 * ROW)),
    ("wgmma-half", "fp16", 1.0),
)


class Rates(Protocol):
    """Rates for the last drawing, in 10^12 operations per second."""

    def rate(self, rung: str, layer: int = 3) -> float:
        """A rung's rate on a layer."""
        ...

    def roof(self, kind: str) -> float:
        """The peak rate, by type of factors."""
        ...


def sheet(width: float, height: float) -> tuple[Figure, Any]:
    """An empty sheet of ``width`` x ``height`` units, as wide as a page."""
    figure = Figure(figsize=(WIDTH, WIDTH * height / width))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    return figure, axes


def box(axes: Any, x: float, y: float, w: float, h: float, text: str = "", fill: str = PAPER, **more: Any) -> None:
    """A rectangle with a label in its middle."""
    axes.add_patch(Rectangle((x, y), w, h, facecolor=fill, edgecolor=more.pop("edge", INK), linewidth=0.8))
    if text:
        ink = INK if fill in (PAPER, PALE) else ON_COLOUR
        write(axes, x + w / 2, y + h / 2, text, **{"ha": "center", "va": "center", "color": ink, **more})


def write(axes: Any, x: float, y: float, text: str, **more: Any) -> None:
    """A label."""
    axes.text(x, y, text, **{"fontsize": 8.5, "color": INK, "va": "center", **more})


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], **more: Any) -> None:
    """An arrow between two places."""
    shape = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 1.0, "color": INK, "shrinkA": 1, "shrinkB": 1}
    axes.add_patch(FancyArrowPatch(start, end, **{**shape, **more}))


def grid(axes: Any, x: float, y: float, rows: int, columns: int, cell: float, fill: str = PAPER) -> None:
    """Cells in rows and columns."""
    for row in range(rows):
        for column in range(columns):
            place = (x + column * cell, y + row * cell)
            axes.add_patch(Rectangle(place, cell, cell, facecolor=fill, edgecolor=QUIET, linewidth=0.5))


def first(_: Rates) -> Figure:
    """Blocks of a grid, the threads of one, and a thread's element."""
    figure, axes = sheet(100, 40)
    write(axes, 2, 3, "the grid: 4 blocks of 256 threads", weight="bold")
    for number in range(4):
        box(axes, 4 + 23 * number, 7, 22, 7, f"blockIdx.x = {number}", SAND if number == 2 else PALE)
    for edge, corner in ((50, 14), (72, 96)):
        axes.plot([edge, corner], [14.2, 20.8], color=QUIET, linewidth=0.8)
    for number in range(8):
        box(axes, 14 + 9 * number, 21, 8.4, 5, f"{number}", ROSE if number == 5 else PAPER, fontsize=7.5)
    write(axes, 87, 23.5, "... 255")
    write(axes, 2, 23.5, "threadIdx.x")
    arrow(axes, (63.2, 26.3), (63.2, 32))
    write(axes, 63.2, 34.5, "i = blockIdx.x * blockDim.x + threadIdx.x = 2 x 256 + 5 = 517", ha="center", color=WINE)
    return figure


def instruction(_: Rates) -> Figure:
    """The parts of an instruction, as it is printed."""
    figure, axes = sheet(100, 25)
    parts = (  # left, width, text, what it is, colour
        (2, 10, "04a0", "address", PALE),
        (13, 8, "@P0", "only where\nP0 is true", SKY),
        (22, 26, "LDG.E.CONSTANT", "operation:\nload from global memory", SAND),
        (49, 9, "R20", "to register", ROSE),
        (59, 25, "[R28.64+0x4]", "from the address in R28, R29,\nplus 4", SKY),
        (85, 13, "12.4 %", "of the warps'\ncycles", PALE),
    )
    for left, width, text, meaning, fill in parts:
        box(axes, left, 5, width, 7, text, fill, family="monospace")
        write(axes, left + width / 2, 19, meaning, ha="center", fontsize=7.5)
        arrow(axes, (left + width / 2, 16), (left + width / 2, 12.3), linewidth=0.7)
    return figure


def threads(_: Rates) -> Figure:
    """A thread, its output, and the window of inputs under it."""
    figure, axes = sheet(100, 46)
    grid(axes, 4, 9, 15, 15, 2)
    box(axes, 12, 15, 6, 6, fill=SKY)
    write(axes, 19, 4, "input: 256 planes of 15 x 15", ha="center")
    write(axes, 19, 42, "the window: 3 x 3 inputs in every plane", ha="center", color=BLUE)
    grid(axes, 42, 15, 3, 3, 3.2, SAND)
    write(axes, 46.8, 10, "filter m: 256 x 3 x 3", ha="center")
    write(axes, 46.8, 30, "multiply, add up:\n2304 products", ha="center")
    grid(axes, 66, 11, 13, 13, 2)
    box(axes, 74, 17, 2, 2, fill=ROSE)
    write(axes, 79, 4, "output plane of image n, filter m:\n13 x 13 threads, a block", ha="center")
    write(axes, 79, 42, "one thread, one output", ha="center", color=WINE)
    arrow(axes, (19, 18), (41, 19.5))
    arrow(axes, (52.5, 19.5), (73.5, 18))
    return figure


def register(_: Rates) -> Figure:
    """Where the running sum is: in memory, or in a register."""
    figure, axes = sheet(100, 38)
    for x, title, colour in ((3, "the sum in memory", ROSE), (55, "the sum in a register", TEAL)):
        write(axes, x + 21, 3, title, ha="center", weight="bold")
        box(axes, x, 8, 42, 7, "thread", PALE)
        box(axes, x, 27, 42, 8, "memory", PALE)
        for step in range(5):
            place = x + 5 + 8 * step
            if colour == ROSE:
                arrow(axes, (place, 15.3), (place, 26.7), color=ROSE)
    write(axes, 24, 21, "store y for every product", ha="center", color=WINE, backgroundcolor="white")
    box(axes, 60, 10.2, 12, 3, "sum", TEAL, color="white", fontsize=7)
    arrow(axes, (92, 15.3), (92, 26.7), color=GREEN)
    write(axes, 75, 21, "store y once, at the end", ha="center", color=GREEN)
    return figure


def shared(_: Rates) -> Figure:
    """A filter that a block loads once, and a barrier."""
    figure, axes = sheet(100, 44)
    box(axes, 2, 4, 20, 34, "memory\n\nthe filter:\n2304 floats", PALE)
    box(axes, 34, 4, 30, 34, "")
    write(axes, 49, 7, "one multiprocessor", ha="center")
    box(axes, 37, 11, 24, 8, "shared memory: the filter", SAND)
    for number in range(6):
        box(axes, 37 + 4 * number, 29, 3.2, 5, "", SKY)
        arrow(axes, (38.6 + 4 * number, 19.2), (38.6 + 4 * number, 28.8), color=BLUE)
    write(axes, 49, 36.3, "threads of the block", ha="center", fontsize=7.5)
    arrow(axes, (22.3, 15), (36.7, 15), color=OLIVE)
    write(axes, 29, 11.5, "once", ha="center", color=OLIVE)
    axes.plot([35, 63], [24, 24], color=WINE, linewidth=1.4, linestyle=(0, (4, 2)))
    write(axes, 66, 24, "__syncthreads(): a barrier.\nNo thread reads before all have written.", color=WINE)
    write(axes, 66, 32, "Every thread reads the filter,\nat a fraction of memory's latency.", color=BLUE)
    write(axes, 66, 14, "A few hundred threads copy it,\nwith coalesced loads.", color=OLIVE)
    return figure


def matrices(_: Rates) -> Figure:
    """The layer as a product of matrices, cut into tiles."""
    figure, axes = sheet(100, 56)
    box(axes, 4, 26, 34, 22, "", PALE)
    box(axes, 46, 4, 34, 18, "", PALE)
    box(axes, 46, 26, 34, 22, "", PALE)
    box(axes, 4, 33, 34, 5, "", SAND)
    box(axes, 58, 4, 7, 18, "", SKY)
    box(axes, 58, 33, 7, 5, "", ROSE)
    for step in range(1, 6):
        axes.plot([4 + 34 * step / 6] * 2, [33, 38], color=INK, linewidth=0.6)
        axes.plot([58, 65], [4 + 3 * step] * 2, color=INK, linewidth=0.6)
    write(axes, 21, 51, "filters: M rows, K columns", ha="center")
    write(axes, 82, 13, "patches: K rows,\none column per pixel")
    write(axes, 63, 51, "outputs: M rows, one column per pixel", ha="center")
    write(axes, 82, 35.5, "a block's tile", color=WINE)
    arrow(axes, (38.4, 35.5), (57.6, 35.5))
    arrow(axes, (61.5, 22.4), (61.5, 32.6))
    write(axes, 21, 22.5, "it walks along K, a K tile at a time", ha="center", color=OLIVE)
    return figure


def rectangle(_: Rates) -> Figure:
    """A thread's rectangle of outputs and what it loads for it."""
    figure, axes = sheet(100, 46)
    for x, size, title in ((6, 1, "one output per thread"), (54, 8, "8 x 8 outputs per thread")):
        cell = 3.0
        left, top = x + 12, 15
        write(axes, left + 12, 4, title, ha="center", weight="bold")
        grid(axes, left, top, size, size, cell, ROSE)
        grid(axes, left - 5, top, size, 1, cell, SAND)
        grid(axes, left, top - 5, 1, size, cell, SKY)
        loads, products = 2 * size, size * size
        ratio = f"{products / loads:g}"
        products_text = "1 product" if products == 1 else f"{products} products"
        write(axes, left + 12, 43, f"{loads} loads, {products_text}: {ratio} per load", ha="center")
    write(axes, 7, 16.5, "filters", color=OLIVE)
    write(axes, 24, 11.3, "inputs", color=BLUE)
    return figure


def pipeline(_: Rates) -> Figure:
    """Loading and multiplying one after the other, and at the same time."""
    figure, axes = sheet(100, 44)
    write(axes, 2, 4, "one after the other", weight="bold")
    write(axes, 2, 22, "copies run ahead", weight="bold")
    for number in range(4):
        box(axes, 16 + 20 * number, 7, 10, 4.5, f"copy {number}", SAND, fontsize=7.5)
        box(axes, 26 + 20 * number, 11.5, 10, 4.5, f"multiply {number}", SKY, fontsize=7.5)
    for number in range(7):
        box(axes, 16 + 10 * number, 25 + 4.5 * (number % 3), 20, 4.5, f"copy {number}", SAND, fontsize=7.5)
    for number in range(5):
        box(axes, 36 + 10 * number, 39, 10, 4.5, f"multiply {number}", SKY, fontsize=7.5)
    for stage in range(3):
        write(axes, 2, 27.2 + 4.5 * stage, f"stage {stage}", fontsize=7.5)
    write(axes, 2, 41.2, "multipliers", fontsize=7.5)
    write(axes, 98, 19, "time", ha="right", fontsize=7.5)
    arrow(axes, (16, 19), (92, 19), linewidth=0.7)
    return figure


def fragments(_: Rates) -> Figure:
    """The product of a warp: which thread holds what."""
    figure, axes = sheet(100, 46)
    cell = 1.9
    colours = (SKY, TEAL, SAND, ROSE)

    def cells(x: float, y: float, rows: int, columns: int, owner: Callable[[int, int], int]) -> None:
        for row in range(rows):
            for column in range(columns):
                place = (x + column * cell, y + row * cell)
                fill = colours[owner(row, column) % 4]
                axes.add_patch(Rectangle(place, cell, cell, facecolor=fill, edgecolor="white", linewidth=0.5))

    cells(33, 12, 16, 8, lambda row, column: column % 4)
    cells(58, 12 + 4 * cell, 8, 8, lambda row, column: row % 4)
    cells(4, 12, 16, 8, lambda row, column: column // 2)
    write(axes, 33 + 4 * cell, 8, "filters 16 x 8", ha="center")
    write(axes, 58 + 4 * cell, 8 + 4 * cell, "inputs 8 x 8", ha="center")
    write(axes, 4 + 4 * cell, 8, "sums 16 x 8", ha="center")
    write(axes, 53, 12 + 8 * cell, "x", ha="center", fontsize=13)
    write(axes, 26, 12 + 8 * cell, "+=", ha="center", fontsize=13)
    write(axes, 87, 20, "spread over 32 threads,\na few numbers each", ha="center")
    write(axes, 87, 32, "1024 products,\none instruction", ha="center")
    write(axes, 50, 3, "mma.sync, by a whole warp", ha="center", weight="bold")
    return figure


def split(_: Rates) -> Figure:
    """A float as the sum of two halves, and three products of them."""
    figure, axes = sheet(100, 40)
    write(axes, 2, 5, "a float: 24 bits", weight="bold")
    for bit in range(24):
        fill = SKY if bit < 11 else SAND if bit < 22 else PALE
        axes.add_patch(Rectangle((22 + 3 * bit, 3), 3, 4, facecolor=fill, edgecolor="white", linewidth=0.8))
    write(axes, 38.5, 10, "hi: the first 11", ha="center", color=BLUE)
    write(axes, 71.5, 10, "lo: the next 11", ha="center", color=OLIVE)
    for x, text in ((22, "hi"), (37, "lo")):
        box(axes, 8, 19 + (x - 22) / 2, 12, 5, text, SKY if text == "hi" else SAND)
        box(axes, 27 + (x - 22) * 0.9, 13, 12, 5, text, SKY if text == "hi" else SAND)
    table = ((0, 0, "hi hi", TEAL), (0, 1, "hi lo", TEAL), (1, 0, "lo hi", TEAL), (1, 1, "left out", PALE))
    for row, column, text, fill in table:
        white = {"color": "white"} if fill == TEAL else {}
        box(axes, 27 + 13.5 * column, 19 + 7.5 * row, 12, 5, text, fill, **white)
    write(axes, 60, 21, "three products of half-width numbers")
    write(axes, 60, 26, "instead of one of floats; lo lo is smaller", fontsize=8.5)
    write(axes, 60, 31, "than the error of a float's own sum")
    return figure


def ring(_: Rates) -> Figure:
    """The producer, the ring of stages with their barriers, and the consumers."""
    figure, axes = sheet(100, 50)
    box(axes, 2, 17, 17, 13, "producer:\none thread\ncommands\nthe TMA", SAND, fontsize=8)
    for stage in range(4):
        x = 30 + 11 * stage
        box(axes, x, 17, 9.5, 13, f"stage {stage}", SKY if stage in (0, 1) else PAPER)
    write(axes, 51, 13.5, "a ring in shared memory", ha="center")
    for consumer in range(2):
        box(axes, 82, 12 + 13 * consumer, 16, 10, f"consumers {consumer}:\nwgmma", TEAL, color="white", fontsize=8)
    arrow(axes, (19.4, 21), (29.6, 21), color=OLIVE)
    arrow(axes, (73.4, 21), (81.6, 18), color=GREEN)
    arrow(axes, (73.4, 25), (81.6, 29), color=GREEN)
    arrow(axes, (24, 7), (84, 7), color=BLUE)
    write(axes, 54, 4, "full: its bytes have arrived", ha="center", color=BLUE)
    axes.plot([90, 90, 10, 10], [35.4, 41, 41, 36], color=WINE, linewidth=1.0)
    arrow(axes, (10, 36.2), (10, 30.4), color=WINE)
    write(axes, 50, 45, "empty: all consumers have read it", ha="center", color=WINE)
    return figure


def waves(_: Rates) -> Figure:
    """Tiles on multiprocessors: a last wave that is half empty, and stream-K."""
    figure, axes = sheet(100, 46)
    for top, title, even in ((4, "whole tiles", False), (26, "the rest is cut along K", True)):
        write(axes, 2, top, title, weight="bold")
        for row in range(5):
            y = top + 3 + 3 * row
            write(axes, 16, y + 1.3, f"SM {row}", fontsize=7, ha="right")
            for number in range(2):
                box(axes, 18 + 24 * number, y, 24, 2.6, f"tile {5 * number + row}", PALE, fontsize=6.5)
            if not even and row < 3:
                box(axes, 66, y, 24, 2.6, f"tile {10 + row}", ROSE, fontsize=6.5)
            if even:
                begin, end = 72 * row / 5, 72 * (row + 1) / 5
                for tile in range(3):
                    first, last = max(begin, 24 * tile), min(end, 24 * tile + 24)
                    if first < last:
                        fill = (ROSE, SAND, SKY)[tile]
                        box(axes, 66 + first - begin, y, last - first, 2.6, f"{10 + tile}", fill, fontsize=6.5)
    axes.plot([90, 90], [5, 22.5], color=WINE, linewidth=1)
    axes.plot([80.4, 80.4], [27, 45], color=GREEN, linewidth=1)
    write(axes, 91, 13, "the end", color=WINE)
    write(axes, 81.4, 36, "the end, and a\nsmall kernel that\nadds the parts", color=GREEN, fontsize=7.5)
    return figure


def winograd(_: Rates) -> Figure:
    """Two outputs of three taps: four products instead of six."""
    figure, axes = sheet(100, 46)
    for number in range(4):
        y = 8 + 9 * number
        box(axes, 4, y, 10, 6, f"d{number}", SKY)
        box(axes, 42, y, 10, 6, f"p{number}", TEAL, color="white")
        box(axes, 61, y, 10, 6, f"q{number}", SAND)
    for source in range(4):
        for target in {0: (0,), 1: (1, 2, 3), 2: (0, 1, 2), 3: (3,)}[source]:
            arrow(axes, (14.3, 11 + 9 * source), (41.7, 11 + 9 * target), linewidth=0.6)
    for number in range(4):
        write(axes, 56.5, 11 + 9 * number, "x", ha="center")
        for output in {0: (0,), 1: (0, 1), 2: (0, 1), 3: (1,)}[number]:
            arrow(axes, (71.3, 11 + 9 * number), (85.7, 17 + 14 * output), linewidth=0.6)
    for output in range(2):
        box(axes, 86, 14 + 14 * output, 10, 6, f"y{output}", ROSE)
    write(axes, 9, 4, "inputs", ha="center")
    write(axes, 28, 4, "add, subtract", ha="center")
    write(axes, 56.5, 4, "4 products with the\ntransformed filter", ha="center", fontsize=7.5)
    write(axes, 80, 4, "add", ha="center")
    write(axes, 91, 10, "2 outputs", ha="center")
    return figure


def roofs(rates: Rates) -> Figure:
    """What the kernels reach, and the roofs above them."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    names = [name for name, _, _ in LADDER]
    reached = [rates.rate(name) for name in names]
    colours = {"fp32": SKY, "tf32": TEAL, "fp16": PURPLE}
    axes.barh(range(len(names)), reached, color=[colours[kind] for _, kind, _ in LADDER], height=0.62)
    for number, (rate, (_, kind, products)) in enumerate(zip(reached, LADDER, strict=True)):
        roof = rates.roof(kind) / products
        axes.plot([roof, roof], [number - 0.42, number + 0.42], color=INK, linewidth=1.4)
        write(axes, roof * 1.08, number, f"{rate:.3g} of {roof:.3g}", fontsize=7.5)
    axes.set_xscale("log")
    axes.set_xlim(0.8, 4500)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("10¹² operations of the layer per second, and the peak of the arithmetic units")
    axes.spines[["left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def slices(_: Rates) -> Figure:
    """Slices of the batch's pixels, a copy of dw for each, and their sum."""
    figure, axes = sheet(100, 44)
    write(axes, 2, 4, "all pixels of the batch: N E F products for each weight")
    for number, fill in enumerate((SKY, TEAL, SAND, ROSE)):
        x = 2 + 24 * number
        box(axes, x, 8, 24, 6, f"slice {number}", fill)
        arrow(axes, (x + 12, 14.4), (x + 12, 19.6))
        box(axes, x + 6, 20, 12, 8, "copy of dw:\npartial sums", fill, fontsize=7.5)
        arrow(axes, (x + 12, 28.4), (44 + 3.6 * number, 35.6))
        write(axes, x + 12.5 + (2 if number < 2 else -4), 32, f"{number + 1}.", fontsize=8)
    box(axes, 43, 36, 13, 6, "dw")
    write(axes, 58, 39, "a second kernel adds the copies,")
    write(axes, 58, 42, "always in this order")
    return figure


def launches(_: Rates) -> Figure:
    """Three stages of a network: each waited for, in one graph, and launched early; not to scale."""
    figure, axes = sheet(100, 44)
    write(axes, 2, 4, "each launched and waited for by the host")
    for number in range(3):
        x = 2 + 33 * number
        box(axes, x, 7, 9, 5, "launch", PALE, fontsize=7.5)
        box(axes, x + 9, 7, 13, 5, f"stage {number + 1}", SKY)
        box(axes, x + 22, 7, 9, 5, "wait", PALE, fontsize=7.5)
    write(axes, 2, 17, "one CUDA graph: launched once")
    box(axes, 2, 20, 9, 5, "launch", PALE, fontsize=7.5)
    for number in range(3):
        box(axes, 11 + 15 * number, 20, 13, 5, f"stage {number + 1}", SKY)
    box(axes, 54, 20, 9, 5, "wait", PALE, fontsize=7.5)
    write(axes, 2, 29, "dependent launches: weights come while the stage before still computes")
    box(axes, 2, 32, 9, 5, "launch", PALE, fontsize=7.5)
    for number in range(3):
        x, y = 11 + 10 * number, 32 + 5 * (number % 2)
        if number:
            box(axes, x - 7, y, 7, 5, "weights", SAND, fontsize=7)
        box(axes, x, y, 10, 5, f"stage {number + 1}", SKY)
    box(axes, 41, 32, 9, 5, "wait", PALE, fontsize=7.5)
    return figure


DRAWINGS: Mapping[str, Callable[[Rates], Figure]] = {
    "00-first": first,
    "01-threads": threads,
    "02-register": register,
    "03-shared": shared,
    "04-matrices": matrices,
    "05-rectangle": rectangle,
    "06-pipeline": pipeline,
    "07-fragments": fragments,
    "08-split": split,
    "09-ring": ring,
    "10-waves": waves,
    "11-winograd": winograd,
    "12-roofs": roofs,
    "13-instruction": instruction,
    "14-slices": slices,
    "15-launches": launches,
}
