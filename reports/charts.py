"""Drawing: a few kinds of chart, each from plain values.  Rungs bring their colours, published figures are pale."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from alexconv.records.statistics import Summary
from alexconv.reports.elements import shown
from alexconv.reports.style import COPY_COLOURS, MARKERS, PUBLISHED_COLOUR, ROW, canvas, look

COPY_NAMES = {"h2d": "copy to the device", "d2h": "copy back"}
DIRECTIONS = tuple(COPY_NAMES)
SHORT = 150.0  # a log axis that spans less has room for ticks between the powers of ten
MARGIN = 0.95  # inches around the rows: titles, axis and legend


@dataclass(frozen=True)
class Dot:
    """A line of a dot chart: our figure with its interval, and the published one."""

    label: str
    rung: str
    ours: Summary | None
    published: float | None = None


@dataclass(frozen=True)
class Stack:
    """A stacked bar: kernels and copies in ms, the published pair, and the floor under the copies."""

    label: str
    rung: str
    kernel: Summary | None
    copies: dict[str, float]  # by direction
    total: float | None = None
    published_kernel: float | None = None
    published_copies: float | None = None
    floor: float | None = None


@dataclass(frozen=True)
class Line:
    """A curve over batch sizes: one value, or None, for each x."""

    label: str
    rung: str
    x: Sequence[float]
    ours: Sequence[Summary | None]
    marker: str | None = None
    published: bool = False
    fit: tuple[float, float] | None = None  # fixed part and slope


def plain_log(axis: Any) -> None:
    """Log ticks written as plain numbers, few enough not to touch."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < SHORT else (1,), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def span(ours: Summary) -> tuple[list[float], list[float]]:
    """Error bars of one value, as lengths below and above."""
    return [ours.median - ours.low], [ours.high - ours.median]


def marked(style: dict[str, str]) -> dict[str, str]:
    """A rung's marker, for a plot without lines."""
    filled = {"fillstyle": style["fillstyle"], "markerfacecoloralt": "white"}
    return {"fmt": style["marker"], "color": style["color"], **filled}


def label_rows(axes: Any, labels: Sequence[str]) -> None:
    """Names down the side, first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="y", length=0)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int = 3) -> None:
    """One legend under all panels."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)


def dots(panels: Sequence[tuple[str, Sequence[Dot]]], unit: str, study: str = "published (GV100)") -> Figure:
    """Panels side by side with shared rows: ours as filled markers with intervals, published as pale diamonds."""
    labels = list(dict.fromkeys(dot.label for _, row in panels for dot in row))
    figure, grid = canvas(MARGIN + ROW * len(labels), 1, len(panels), sharey=True)
    any_published = False
    for axes, (title, row) in zip(grid[0], panels, strict=True):
        label_rows(axes, labels)
        for dot in row:
            y = labels.index(dot.label)
            if dot.published is not None:
                any_published = True
                axes.plot(dot.published, y, "D", color=PUBLISHED_COLOUR, markersize=4.5, markerfacecolor="white")
            if dot.ours is not None:
                style = look(dot.rung)
                axes.errorbar(dot.ours.median, y, xerr=span(dot.ours), capsize=2.5, **marked(style))
        axes.set_xscale("log")
        widen(axes)
        plain_log(axes.xaxis)
        axes.set_title(title)
        axes.set_xlabel(unit)
    if any_published:
        ours = Line2D([], [], marker="o", linestyle="", color="#222222", label="here: median and 95 % interval")
        theirs = Line2D([], [], marker="D", linestyle="", color=PUBLISHED_COLOUR, markerfacecolor="white", label=study)
        legend_below(figure, [ours, theirs])
    return figure


def widen(axes: Any, least: float = 10.0) -> None:
    """A log axis spans at least a decade, so that close values look close."""
    low, high = axes.get_xlim()
    if high / low < least:
        middle = (low * high) ** 0.5
        axes.set_xlim(middle / least**0.5, middle * least**0.5)


def stacks(panels: Sequence[tuple[str, Sequence[Stack]]], unit: str, study: str = "published (GV100)") -> Figure:
    """Stacked bars, kernels then copies; the published pair as a thin pale bar below each."""
    rows = max(len(row) for _, row in panels)
    published = any(bar.published_kernel for _, row in panels for bar in row)
    floors = any(bar.floor for _, row in panels for bar in row)
    height = MARGIN + 0.25 + ROW * (1.5 if published else 1.15) * rows
    figure, grid = canvas(height, 1, len(panels), sharey=True)
    for axes, (title, row) in zip(grid[0], panels, strict=True):
        label_rows(axes, [bar.label for bar in row])
        for y, bar in enumerate(row):
            draw_stack(axes, y, bar, thick=0.5 if published else 0.7)
        axes.set_xlim(left=0)
        axes.set_title(title)
        axes.set_xlabel(unit)
        axes.grid(axis="y", visible=False)
    handles: list[Any] = [Patch(facecolor="#444444", label="kernels (in the rung's colour)")]
    handles += [
        Patch(facecolor=COPY_COLOURS[name], edgecolor="#444444", linewidth=0.4, label=COPY_NAMES[name])
        for name in DIRECTIONS
    ]
    if published:
        handles.append(Patch(facecolor="white", edgecolor=PUBLISHED_COLOUR, label=f"{study}: kernels"))
        handles.append(Patch(facecolor="white", edgecolor=PUBLISHED_COLOUR, hatch="////", label=f"{study}: copies"))
    if any(bar.total for _, row in panels for bar in row):
        handles.append(Line2D([], [], marker="|", linestyle="", color="black", label="total, host to host"))
    if floors:
        handles.append(Line2D([], [], marker="|", linestyle="", color="#D55E00", label="floor of the copies"))
    legend_below(figure, handles)
    return figure


def draw_stack(axes: Any, y: float, bar: Stack, thick: float) -> None:
    """One bar, its interval on the kernels' part, its total and floor as ticks, the published pair under it."""
    left, style = 0.0, look(bar.rung)
    above = y - (0.12 if bar.published_kernel else 0.0)
    if bar.kernel:
        axes.barh(
            above, bar.kernel.median, thick, color=style["color"], hatch=style["hatch"], edgecolor="white", lw=0.3
        )
        axes.errorbar(bar.kernel.median, above, xerr=span(bar.kernel), color="black", lw=0.8, capsize=1.5)
        left = bar.kernel.median
    for name, value in bar.copies.items():
        axes.barh(above, value, thick, left=left, color=COPY_COLOURS[name], edgecolor="#444444", lw=0.4)
        left += value
    if bar.total:
        axes.plot(bar.total, above, "|", color="black", markersize=8)
    if bar.floor:
        axes.plot(bar.floor, above, "|", color="#D55E00", markersize=8, markeredgewidth=1.8)
    if bar.published_kernel:
        under = {"height": 0.2, "facecolor": "white", "edgecolor": PUBLISHED_COLOUR, "linewidth": 0.8}
        axes.barh(y + 0.27, bar.published_kernel, **under)
        axes.barh(y + 0.27, bar.published_copies or 0, left=bar.published_kernel, hatch="////", **under)


def lines(panels: Sequence[tuple[str, Sequence[Line]]], y_label: str, x_label: str = "images per batch, N") -> Figure:
    """Curves over batch sizes on log axes, with intervals; published ones pale."""
    figure, grid = canvas(3.4 + 0.13 * max(len(row) for _, row in panels), 1, len(panels), sharey=True)
    handles: dict[str, Any] = {}
    for axes, (title, row) in zip(grid[0], panels, strict=True):
        for line in row:
            known = [(x, value) for x, value in zip(line.x, line.ours, strict=True) if value is not None]
            if not known:
                continue
            x, y = [x for x, _ in known], [value.median for _, value in known]
            if line.fit:
                draw_fit(axes, line.fit, x)
            bars = np.array([span(value) for _, value in known])[:, :, 0].T
            style = look(line.rung)
            colour = PUBLISHED_COLOUR if line.published else style["color"]
            handles[line.label] = axes.errorbar(
                x,
                y,
                yerr=bars,
                color=colour,
                marker=line.marker or style["marker"],
                linestyle=":" if line.published else style["linestyle"],
                markersize=4.5,
                fillstyle="none" if line.published else style["fillstyle"],
                markerfacecoloralt="white",
                linewidth=1,
                capsize=2,
                label=line.label,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = sorted({x for line in row for x, value in zip(line.x, line.ours, strict=True) if value is not None})
        axes.set_xticks(ticks, [str(x) for x in ticks], rotation=45 if len(ticks) > 5 else 0)
        axes.xaxis.set_minor_locator(NullLocator())
        plain_log(axes.yaxis)
        axes.set_xlabel(x_label)
        axes.set_title(title)
    grid[0][0].set_ylabel(y_label)
    legend_below(figure, list(handles.values()))
    return figure


def draw_fit(axes: Any, fit: tuple[float, float], x: Sequence[float]) -> None:
    """A thin line of fixed + slope x N, with a cross where it bends: where both parts are equal."""
    fixed, slope = fit
    dense = np.geomspace(min(x), max(x), 60)
    shape = fixed + slope * dense
    axes.plot(dense[shape > 0], shape[shape > 0], color="black", linewidth=0.6)
    if fixed > 0 and min(x) < fixed / slope < max(x):
        axes.plot(fixed / slope, 2 * fixed, "+", color="black", markersize=9)


def one(value: float) -> Summary:
    """A value without an interval, as published ones are."""
    return Summary(value, value, value, 1)


@dataclass(frozen=True)
class Step:
    """A rung of the waterfall: its time, its parent's, and the published time."""

    rung: str
    own: Summary
    parent: float | None
    published: float | None = None


def waterfall(steps: Sequence[Step], unit: str) -> Figure:
    """From the parent's time to the rung's own, one line per rung; the gain in figures."""
    figure, grid = canvas(MARGIN + 0.25 + ROW * 1.1 * len(steps))
    axes = grid[0][0]
    label_rows(axes, [step.rung for step in steps])
    axes.set_xscale("log")
    for y, step in enumerate(steps):
        style, own = look(step.rung), step.own.median
        if step.published:
            axes.plot(step.published, y, "D", color=PUBLISHED_COLOUR, markersize=4.5, markerfacecolor="white")
        if step.parent:
            axes.plot([step.parent, own], [y, y], color=style["color"], linewidth=5, alpha=0.35, solid_capstyle="butt")
            axes.plot(step.parent, y, "|", color=style["color"], markersize=9)
        axes.errorbar(own, y, xerr=span(step.own), capsize=2.5, **marked(style))
    widen(axes)
    plain_log(axes.xaxis)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(range(len(steps)), [gain(step) for step in steps])
    beside.tick_params(axis="y", length=0)
    beside.spines["right"].set_visible(False)
    axes.set_xlabel(unit)
    handles = [
        Line2D([], [], marker="o", linestyle="", color="#222222", label="the rung, with 95 % interval"),
        Line2D([], [], marker="|", markersize=9, linestyle="", color="#222222", label="its parent"),
    ]
    if any(step.published for step in steps):
        label = "the rung, published (GV100)"
        handles.append(
            Line2D([], [], marker="D", linestyle="", color=PUBLISHED_COLOUR, markerfacecolor="white", label=label)
        )
    legend_below(figure, handles)
    return figure


def gain(step: Step) -> str:
    """``12.3 ms, 1.9x`` over the parent."""
    own = f"{shown(step.own.median)} ms"
    return own if step.parent is None else f"{own}, {step.parent / step.own.median:.2f}×"


@dataclass(frozen=True)
class Mark:
    """A point of a scatter chart."""

    rung: str
    x: float
    y: Summary
    marker: str | None = None


def scatter(marks: Sequence[Mark], x_label: str, y_label: str, named: dict[str, str] | None = None) -> Figure:
    """Points on log axes; a legend of rungs, and of the markers that ``named`` explains."""
    rungs = list(dict.fromkeys(mark.rung for mark in marks))
    columns = 3
    figure, grid = canvas(3.9 + 0.17 * (len(rungs) + len(named or {})) / columns)
    axes = grid[0][0]
    axes.set_xscale("log")
    axes.set_yscale("log")
    for mark in marks:
        style = look(mark.rung)
        axes.errorbar(
            mark.x,
            mark.y.median,
            yerr=span(mark.y),
            fmt=mark.marker or style["marker"],
            color=style["color"],
            markersize=5.5,
            capsize=2,
            fillstyle=style["fillstyle"],
            markerfacecoloralt="white",
        )
    plain_log(axes.yaxis)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    handles = []
    for rung in rungs:
        style = look(rung)
        marker = "o" if named else style["marker"]
        filled: Any = {"color": style["color"], "fillstyle": style["fillstyle"], "markerfacecoloralt": "white"}
        handles.append(Line2D([], [], marker=marker, linestyle="", label=rung, **filled))
    for label, marker in (named or {}).items():
        handles.append(Line2D([], [], marker=marker, linestyle="", color="#777777", label=label))
    legend_below(figure, handles, columns)
    return figure


def layer_marker(layer: int) -> str:
    """The marker of a layer where colours stand for rungs."""
    return MARKERS[(layer - 1) % len(MARKERS)]


@dataclass(frozen=True)
class Grid:
    """A heat map's panel: values by row and column, None where there is none."""

    title: str
    row_name: str
    column_name: str
    rows: Sequence[int]
    columns: Sequence[int]
    values: Sequence[Sequence[float | None]]


def heat_maps(grids: Sequence[Grid]) -> Figure:
    """Panels of coloured cells, dark is slow, each with its value; the fastest framed."""
    columns = min(len(grids), 2)
    lines_needed = -(-len(grids) // columns)
    tallest = max(len(grid.rows) for grid in grids)
    figure, panels = canvas((1.1 + 0.3 * tallest) * lines_needed, lines_needed, columns)
    for axes, grid in zip(panels.flat, grids, strict=False):
        values = np.array([[np.nan if value is None else value for value in row] for row in grid.values], float)
        axes.imshow(values, cmap="cividis_r", aspect="auto")
        best = np.nanmin(values)
        middle = (best + np.nanmax(values)) / 2
        for (row, column), value in np.ndenumerate(values):
            if np.isnan(value):
                axes.text(column, row, "–", ha="center", va="center", fontsize=7)
                continue
            weight = "bold" if value == best else "normal"
            colour = "white" if value > middle else "black"
            text = f"[{shown(float(value))}]" if value == best else shown(float(value))
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour, fontweight=weight)
        axes.set_xticks(range(len(grid.columns)), [str(value) for value in grid.columns])
        axes.set_yticks(range(len(grid.rows)), [str(value) for value in grid.rows])
        axes.set_xlabel(grid.column_name)
        axes.set_ylabel(grid.row_name)
        axes.set_title(grid.title)
        axes.grid(visible=False)
    for axes in panels.flat[len(grids) :]:
        axes.set_visible(False)
    return figure


WORK_COLOURS = {"h2d": "#88CCEE", "kernel": "#332288", "d2h": "#CC6677"}
WORK_NAMES = {"h2d": COPY_NAMES["h2d"], "kernel": "kernels", "d2h": COPY_NAMES["d2h"]}


def timeline(panels: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> Figure:
    """What each stream did when: one panel per point, one line per stream, piece numbers on the kernels."""
    heights = [0.55 + 0.3 * len({event["stream"] for event in events}) for _, events in panels]
    figure, grid = canvas(sum(heights) + 0.6, len(panels), 1, height_ratios=heights)
    for axes, (title, events) in zip(grid[:, 0], panels, strict=True):
        streams = sorted({event["stream"] for event in events})
        label_rows(axes, [f"stream {stream}" for stream in streams])
        for event in events:
            y, start = streams.index(event["stream"]), event["start"]
            axes.barh(y, event["end"] - start, 0.75, left=start, color=WORK_COLOURS[event["what"]], ec="white", lw=0.4)
            if event["what"] == "kernel":
                middle = (start + event["end"]) / 2
                axes.text(middle, y, str(event["piece"]), ha="center", va="center", fontsize=6.5, color="white")
        axes.set_title(title)
        axes.grid(axis="y", visible=False)
    grid[-1, 0].set_xlabel("ms since the first copy began")
    legend_below(figure, [Patch(facecolor=WORK_COLOURS[name], label=label) for name, label in WORK_NAMES.items()])
    return figure


def relative(rows: Sequence[Dot], unit: str) -> Figure:
    """Bars away from 1: how much slower (right) or faster (left) a change made a point."""
    figure, grid = canvas(MARGIN - 0.3 + ROW * len(rows))
    axes = grid[0][0]
    label_rows(axes, [row.label for row in rows])
    axes.set_xscale("log")
    for y, row in enumerate(rows):
        if row.ours:
            style = look(row.rung)
            axes.barh(
                y, row.ours.median - 1, 0.7, left=1, color=style["color"], hatch=style["hatch"], ec="white", lw=0.3
            )
            axes.errorbar(row.ours.median, y, xerr=span(row.ours), color="black", lw=0.8, capsize=1.5)
    axes.axvline(1, color="black", linewidth=0.8)
    widen(axes, 4.0)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(unit)
    return figure
