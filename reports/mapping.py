"""Which thread takes which output of a plane: the rule of ``kernels/common/plane.cuh``, from a rung's own constants."""

from collections.abc import Mapping
from functools import cache
from math import ceil

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from alexconv.kernels.geometry import WARP
from alexconv.reports.charts import legend_below
from alexconv.reports.style import COLOURS, canvas
from alexconv.shapes import Conv

SECTOR = 32  # bytes: the least that the memory system moves
ZOOM = 14  # outputs of a plane's first rows that are shown with their thread's number


def block(conv: Conv, constants: Mapping[str, int]) -> tuple[int, int]:
    """Rows and columns of the block that covers a plane."""
    return ceil(conv.E / constants["THREAD_OUTPUTS"]), ceil(conv.F / constants["THREAD_OUTPUTS"])


def axis_places(threads: int, outputs: int, coalesced: int) -> np.ndarray:
    """Places along an axis, ``[threads][outputs]``: thread t's i-th output."""
    t, i = np.arange(threads)[:, None], np.arange(outputs)[None, :]
    return i * threads + t if coalesced else t * outputs + i


def plane(conv: Conv, constants: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """``[E][F]`` twice: the thread that computes each output, and that output's index among the thread's."""
    rows, columns = block(conv, constants)
    outputs, coalesced = constants["THREAD_OUTPUTS"], constants["COALESCED"]
    threads, turns = np.full((2, conv.E, conv.F), -1)
    row_of, column_of = axis_places(rows, outputs, coalesced), axis_places(columns, outputs, coalesced)
    for y, x, i, j in np.ndindex(rows, columns, outputs, outputs):
        e, f = row_of[y, i], column_of[x, j]
        if e < conv.E and f < conv.F:
            threads[e, f], turns[e, f] = y * columns + x, i * outputs + j
    return threads, turns


def sectors_per_store(conv: Conv, constants: Mapping[str, int], itemsize: int = 4) -> float:
    """Mean count of sectors that a warp touches when each of its threads stores one output of a plane."""
    return _sectors_per_store(conv, constants["THREAD_OUTPUTS"], constants["COALESCED"], itemsize)


@cache
def _sectors_per_store(conv: Conv, outputs: int, coalesced: int, itemsize: int) -> float:
    threads, turns = plane(conv, {"THREAD_OUTPUTS": outputs, "COALESCED": coalesced})
    e, f = np.indices(threads.shape)
    sector = (e * conv.F + f) * itemsize // SECTOR
    keys = np.stack([threads.ravel() // WARP, turns.ravel(), sector.ravel()])
    return float(len(np.unique(keys, axis=1).T) / len(np.unique(keys[:2], axis=1).T))


def draw(conv: Conv, constants: Mapping[str, int]) -> Figure:
    """The whole plane, coloured by store with the first warp's first ones framed, and a corner with thread numbers."""
    threads, turns = plane(conv, constants)
    figure, grid = canvas(4.3, 1, 2)
    for axes, size in zip(grid[0], (max(conv.E, conv.F), ZOOM), strict=True):
        rows, columns = min(size, conv.E), min(size, conv.F)
        colours = np.array([[rgb(COLOURS[turn]) for turn in row] for row in turns[:rows, :columns]])
        axes.imshow(1 - (1 - colours) * 0.55, extent=(0, columns, rows, 0))
        first = (threads < WARP) & (turns == 0)
        for e, f in np.argwhere(first[:rows, :columns]):
            axes.add_patch(Rectangle((f, e), 1, 1, fill=False, edgecolor="black", linewidth=1.1))
        axes.grid(visible=False)
        axes.set_xlabel("output column f")
        axes.set_ylabel("output row e")
    for e, f in np.ndindex(min(ZOOM, conv.E), min(ZOOM, conv.F)):
        grid[0][1].text(f + 0.5, e + 0.5, str(threads[e, f]), ha="center", va="center", fontsize=5.5)
    grid[0][0].set_title(f"plane of {conv.E}×{conv.F} outputs, block of {'×'.join(map(str, block(conv, constants)))}")
    grid[0][1].set_title("its corner, with thread numbers")
    handles = [
        Patch(facecolor=COLOURS[turn], alpha=0.55, label=f"output {turn} of a thread") for turn in np.unique(turns)
    ]
    frame = Line2D([], [], marker="s", linestyle="", markerfacecolor="none", color="black", label="warp 0, first store")
    legend_below(figure, [*handles, frame])
    return figure


def rgb(colour: str) -> list[float]:
    """``#RRGGBB`` as numbers from 0 to 1."""
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
