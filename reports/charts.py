"""Charts from plain values.  Rungs have their family's colour, published figures are pale."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, fsum, log10
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from alexconv.precisions import PRECISIONS
from alexconv.records.statistics import Summary, faster
from alexconv.reports.elements import shown
from alexconv.reports.style import (
    COPY_COLOURS,
    FAMILIES,
    HOLLOW,
    INK,
    MARKERS,
    ON_COLOUR,
    PUBLISHED_COLOUR,
    QUIET,
    ROW,
    Look,
    canvas,
    class_marker,
    family_colour,
    look,
    settle,
)

COPY_NAMES = {"h2d": "copy to the device", "d2h": "copy back"}
DIRECTIONS = tuple(COPY_NAMES)
FLOOR_COLOUR = "#D55E00"
MARGIN = 0.95  # inches around the rows: titles, axis and legend
OTHERS = "the other rungs"
LEAST_GAP = 0.055  # between two labels at the side of an axis, as a share of its length
POINTS_PER_INCH = 72
GAP = 5  # points between the middle of a mark and its value
CROWDED = 36  # rungs of a ladder
BEST_GAP = 1.7  # columns of the ladder between two bests, for their figures
NOTE_ROOM = 3.0  # how far a log axis extends for notes beside its marks, as a factor
NEAR = 1.25  # values closer than this factor have their notes on one line
PLAIN = 1e4  # numbers outside 1/PLAIN..PLAIN need an exponent


@dataclass(frozen=True)
class Dot:
    """A line of a dot chart: our figure with its interval, and the published one."""

    label: str
    look: Look
    ours: Summary | None
    published: float | None = None


@dataclass(frozen=True)
class Stack:
    """A stacked bar: kernels and copies in ms, the published pair, and the floor under the copies."""

    label: str
    look: Look
    kernel: Summary | None
    copies: dict[str, float]  # by direction
    total: float | None = None
    published_kernel: float | None = None
    published_copies: float | None = None
    floor: float | None = None


@dataclass(frozen=True)
class Line:
    """A curve over batch sizes: one value, or None, for each x.  A ``quiet`` one is grey and not in the legend."""

    label: str
    look: Look
    x: Sequence[float]
    ours: Sequence[Summary | None]
    marker: str | None = None
    published: bool = False
    fit: tuple[float, float] | None = None  # fixed part and slope
    quiet: bool = False


@dataclass(frozen=True)
class Level:
    """A time to compare with, in the look of a peer or of a rung."""

    label: str
    look: Look
    value: float


def plain_log(axis: Any, most: int = 7) -> None:
    """Log ticks as plain numbers, as many in each decade as fit without touching."""
    low, high = axis.get_view_interval()
    for within in ((1, 2, 5), (1, 3), (1,)):
        ticks = [n * 10.0**power for power in range(floor(log10(low)), ceil(log10(high))) for n in within]
        if sum(low <= tick <= high for tick in ticks) <= most:
            break
    axis.set_major_locator(LogLocator(subs=within, numticks=most))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    axis.set_minor_formatter(NullFormatter())


def tick_text(value: float) -> str:
    """A tick's number, with an exponent where it would be long."""
    return f"{value:,.10g}" if 1 / PLAIN <= value <= 10 * PLAIN else f"{value:.0e}"


def span(ours: Summary) -> tuple[list[float], list[float]]:
    """Error bars of one value, as lengths below and above."""
    return [ours.median - ours.low], [ours.high - ours.median]


def label_rows(axes: Any, labels: Sequence[str]) -> None:
    """Names down the side, first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="y", length=0)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int = 3) -> None:
    """One legend under all panels."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)


def family_handles(looks: Iterable[Look]) -> list[Any]:
    """Legend entries for the colours of the families among the rungs."""
    present = {look.family for look in looks if look.family}
    families = [*(name for name in FAMILIES if name in present), *sorted(present.difference(FAMILIES))]
    return [Patch(facecolor=family_colour(name), label=f"{name} rungs") for name in families]


def precision_handles(looks: Iterable[Look]) -> list[Any]:
    """Legend entries for the markers of the precisions among the rungs."""
    present = {look.precision for look in looks}
    return [
        Line2D([], [], color="#777777", marker=class_marker(name), linestyle="", label=name)
        for name in PRECISIONS
        if name in present
    ]


def published_handle(label: str, marker: str = "D") -> Any:
    """The legend entry of published figures."""
    return Line2D([], [], color=PUBLISHED_COLOUR, marker=marker, linestyle="", label=label, **HOLLOW)


def dots(
    panels: Sequence[tuple[str, Sequence[Dot]]],
    unit: str,
    study: str = "published (GV100)",
    here: str = "here: median and 95 % interval",
) -> Figure:
    """Panels side by side with shared rows: ours as filled markers with intervals, published as pale diamonds.

    Rows that no panel has a figure for are left out.
    """
    every = dict.fromkeys(dot.label for _, row in panels for dot in row)
    known = {dot.label for _, row in panels for dot in row if dot.ours is not None or dot.published is not None}
    labels = [label for label in every if label in known]
    figure, grid = canvas(MARGIN + ROW * len(labels), 1, len(panels), sharey=True)
    any_published = False
    for axes, (title, row) in zip(grid[0], panels, strict=True):
        label_rows(axes, labels)
        for dot in row:
            if dot.published is not None:
                any_published = True
                mark_published(axes, dot.published, labels.index(dot.label))
            if dot.ours is not None:
                mark(axes, dot.ours, labels.index(dot.label), dot.look)
        axes.set_xscale("log")
        widen(axes.xaxis)
        plain_log(axes.xaxis, 3 if len(panels) > 2 else 7)
        axes.set_title(title)
        axes.set_xlabel(unit)
    if any_published:
        ours = Line2D([], [], marker="o", linestyle="", color=INK, label=here)
        legend_below(figure, [ours, published_handle(study)])
    return figure


def mark(axes: Any, value: Summary, y: float, look: Look) -> None:
    """A series' marker with its interval, on a row."""
    axes.errorbar(value.median, y, xerr=span(value), capsize=2.5, **look.marked)


def mark_published(axes: Any, value: float, y: float, marker: str = "D") -> None:
    """A published figure on a row."""
    axes.plot(value, y, marker, color=PUBLISHED_COLOUR, markersize=4.5, markerfacecolor="white")


def widen(axis: Any, least: float = 10.0) -> None:
    """A log axis spans at least a decade, so that close values look close."""
    low, high = axis.get_view_interval()
    if high / low < least:
        middle = (low * high) ** 0.5
        axis.set_view_interval(middle / least**0.5, middle * least**0.5, ignore=True)


def breakdown(rows: Sequence[Stack], unit: str, study: str = "published (GV100)") -> Figure:
    """Kernels, copies and totals on one log axis, where the fastest kernel shows as well as the slowest."""
    figure, grid = canvas(MARGIN + ROW * len(rows))
    axes = grid[0][0]
    label_rows(axes, [row.label for row in rows])
    axes.set_xscale("log")
    for y, row in enumerate(rows):
        copies = fsum(row.copies.values())
        if row.published_kernel:
            mark_published(axes, row.published_kernel, y)
        if row.published_copies:
            mark_published(axes, row.published_copies, y, "s")
        if copies:
            axes.plot(copies, y, "s", color=COPY_COLOURS["h2d"], markersize=5)
        if row.kernel:
            if copies:
                axes.plot([row.kernel.median, copies], [y, y], color=COPY_COLOURS["d2h"], linewidth=1, zorder=1)
            mark(axes, row.kernel, y, row.look)
        if row.total:
            axes.plot(row.total, y, "|", color="black", markersize=9)
        if row.floor:
            axes.plot(row.floor, y, "|", color=FLOOR_COLOUR, markersize=9, markeredgewidth=1.8)
    widen(axes.xaxis)
    plain_log(axes.xaxis)
    axes.set_xlabel(unit)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=INK, label="kernels, in the family's colour"),
        Line2D([], [], marker="s", linestyle="", color=COPY_COLOURS["h2d"], label="both copies"),
    ]
    if any(row.published_kernel for row in rows):
        handles += [published_handle(f"{study}: kernels"), published_handle(f"{study}: copies", "s")]
    legend_below(figure, [*handles, *tick_handles(rows)])
    return figure


def stacks(panels: Sequence[tuple[str, Sequence[Stack]]], unit: str, study: str = "published (GV100)") -> Figure:
    """Stacked bars, kernels then copies; the published pair as a thin pale bar below each."""
    rows = max(len(row) for _, row in panels)
    published = any(bar.published_kernel for _, row in panels for bar in row)
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
    handles: list[Any] = [Patch(facecolor="#444444", label="kernels (in the family's colour)")]
    handles += [
        Patch(facecolor=COPY_COLOURS[name], edgecolor="#444444", linewidth=0.4, label=COPY_NAMES[name])
        for name in DIRECTIONS
    ]
    if published:
        handles.append(Patch(facecolor="white", edgecolor=PUBLISHED_COLOUR, label=f"{study}: kernels"))
        handles.append(Patch(facecolor="white", edgecolor=PUBLISHED_COLOUR, hatch="////", label=f"{study}: copies"))
    legend_below(figure, [*handles, *tick_handles([bar for _, row in panels for bar in row])])
    return figure


def tick_handles(rows: Sequence[Stack]) -> list[Any]:
    """Legend entries of the ticks for totals and floors."""
    ticks = [("black", "total, host to host")] if any(row.total for row in rows) else []
    ticks += [(FLOOR_COLOUR, "floor of the copies")] if any(row.floor for row in rows) else []
    return [
        Line2D([], [], marker="|", markersize=9, linestyle="", color=colour, label=label) for colour, label in ticks
    ]


def draw_stack(axes: Any, y: float, bar: Stack, thick: float) -> None:
    """One bar, its interval on the kernels' part, its total and floor as ticks, the published pair under it."""
    left = 0.0
    above = y - (0.12 if bar.published_kernel else 0.0)
    if bar.kernel:
        axes.barh(above, bar.kernel.median, thick, color=bar.look.colour, edgecolor="white", lw=0.3)
        axes.errorbar(bar.kernel.median, above, xerr=span(bar.kernel), color="black", lw=0.8, capsize=1.5)
        left = bar.kernel.median
    for name, value in bar.copies.items():
        axes.barh(above, value, thick, left=left, color=COPY_COLOURS[name], edgecolor="#444444", lw=0.4)
        left += value
    if bar.total:
        axes.plot(bar.total, above, "|", color="black", markersize=8)
    if bar.floor:
        axes.plot(bar.floor, above, "|", color=FLOOR_COLOUR, markersize=8, markeredgewidth=1.8)
    if bar.published_kernel:
        under = {"height": 0.2, "facecolor": "white", "edgecolor": PUBLISHED_COLOUR, "linewidth": 0.8}
        axes.barh(y + 0.27, bar.published_kernel, **under)
        axes.barh(y + 0.27, bar.published_copies or 0, left=bar.published_kernel, hatch="////", **under)


def lines(panels: Sequence[tuple[str, Sequence[Line]]], y_label: str, x_label: str = "images per batch, N") -> Figure:
    """Curves over batch sizes on log axes, with intervals; published ones pale, quiet ones grey and without a name."""
    named = list(dict.fromkeys(line.label for _, row in panels for line in row if not line.quiet))
    figure, grid = canvas(3.4 + 0.17 * len(named) / 3, 1, len(panels), sharey=True)
    handles: dict[str, Any] = {}
    for axes, (title, row) in zip(grid[0], panels, strict=True):
        for line in sorted(row, key=lambda line: not line.quiet):
            drawn = draw_line(axes, line, named)
            if drawn is not None:
                handles[OTHERS if line.quiet else line.label] = drawn
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = sorted({x for line in row for x, value in zip(line.x, line.ours, strict=True) if value is not None})
        axes.set_xticks(ticks, [str(x) for x in ticks], rotation=45 if len(ticks) > 5 else 0)
        axes.xaxis.set_minor_locator(NullLocator())
        plain_log(axes.yaxis)
        axes.set_xlabel(x_label)
        axes.set_title(title)
    grid[0][0].set_ylabel(y_label)
    ordered = sorted(handles, key=lambda label: named.index(label) if label in named else len(named))
    legend_below(figure, [handles[label] for label in ordered])
    return figure


def history(row: Sequence[Line]) -> Figure:
    """Curves over numbered runs, relative to the first of each."""
    figure, grid = canvas(3.2)
    axes, named = grid[0][0], [line.label for line in row]
    handles = [drawn for line in row if (drawn := draw_line(axes, line, named)) is not None]
    axes.set_xticks(row[0].x, [str(x) for x in row[0].x])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.axhline(1, color="black", linewidth=0.8, zorder=1)
    axes.set_xlabel("run, in the order of measuring")
    axes.set_ylabel("time over the first run's")
    legend_below(figure, handles)
    return figure


def draw_line(axes: Any, line: Line, named: Sequence[str]) -> Any:
    """One curve; returns what stands for it in the legend, or None where it has no values."""
    known = [(x, value) for x, value in zip(line.x, line.ours, strict=True) if value is not None]
    if not known:
        return None
    x, y = [x for x, _ in known], [value.median for _, value in known]
    if line.quiet:
        return axes.plot(x, y, color=QUIET, linewidth=0.7, marker=".", markersize=3, label=OTHERS)[0]
    if line.fit:
        draw_fit(axes, line.fit, x)
    style = line.look
    colour = PUBLISHED_COLOUR if line.published else style.colour
    return axes.errorbar(
        x,
        y,
        yerr=np.array([span(value) for _, value in known])[:, :, 0].T,
        color=colour,
        marker=line.marker or MARKERS[named.index(line.label) % len(MARKERS)],
        linestyle=":" if line.published else "-",
        markersize=4.5,
        markerfacecolor="white" if line.published or style.hollow else colour,
        linewidth=1,
        capsize=2,
        label=line.label,
    )


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
    """A rung of the ladder: its time, its parent's, and the published time.

    ``partly`` says that it takes only some of the layers, and that the time includes its parent's for the others.
    """

    rung: str
    look: Look
    own: Summary
    parent: float | None
    published: float | None = None
    partly: bool = False
    label: str = ""  # where the rung's name does not say it all

    @property
    def name(self) -> str:
        """The label of its row."""
        return self.label or self.rung


def waterfall(
    steps: Sequence[Step],
    unit: str,
    references: Sequence[Level] = (),
    bests: Sequence[Level] = (),
    *,
    parent: str = "its parent",
    gpu: str = "GV100",
) -> Figure:
    """From the parent's time to the rung's own, one line per rung; the gain in figures; peers as vertical lines.

    ``parent`` says what the times are over, ``gpu`` whose the published ones are.
    """
    figure, grid = canvas(MARGIN + 0.25 + ROW * 1.1 * (len(steps) + len(bests) + len(references)))
    axes = grid[0][0]
    names = [step.name for step in steps]
    label_rows(axes, [*names, *(best.label for best in bests), *(peer.label for peer in references)])
    if any(step.label for step in steps):
        axes.tick_params(axis="y", labelsize=7)
    axes.set_xscale("log")
    for y, step in enumerate(steps):
        style, own = step.look, step.own.median
        if step.published:
            mark_published(axes, step.published, y)
        if step.parent:
            axes.plot([step.parent, own], [y, y], color=style.colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
            axes.plot(step.parent, y, "|", color=style.colour, markersize=9)
        axes.errorbar(own, y, xerr=span(step.own), capsize=2.5, **style._replace(hollow=step.partly).marked)
    for y, best in enumerate(bests, len(steps)):
        axes.plot(best.value, y, "*", color=best.look.colour, markersize=9)
    for y, peer in enumerate(references, len(steps) + len(bests)):
        axes.plot([peer.value] * 2, [-0.6, y], color=INK, linewidth=0.7, linestyle=":", zorder=1)
        axes.plot(peer.value, y, **peer.look.marked)
    widen(axes.xaxis)
    plain_log(axes.xaxis)
    beside = axes.secondary_yaxis("right")
    others = [best.value for best in bests] + [peer.value for peer in references]
    values = [*map(gain, steps), *(f"{shown(value)} ms" for value in others)]
    beside.set_yticks(range(len(values)), values)
    beside.tick_params(axis="y", length=0)
    beside.spines["right"].set_visible(False)
    axes.set_xlabel(unit)
    legend_below(figure, waterfall_handles(steps, bests, parent, gpu), 2)
    return figure


def waterfall_handles(steps: Sequence[Step], bests: Sequence[Level], parent: str, gpu: str) -> list[Any]:
    """What the markers of a waterfall mean."""
    handles = [
        Line2D([], [], marker="o", linestyle="", color=INK, label="the rung, with 95 % interval"),
        Line2D([], [], marker="|", markersize=9, linestyle="", color=INK, label=parent),
    ]
    if any(step.partly for step in steps):
        label = "partial rung, its parent fills the rest"
        handles.append(Line2D([], [], marker="o", linestyle="", **HOLLOW, color=INK, label=label))
    if bests:
        handles.append(Line2D([], [], marker="*", linestyle="", color=INK, label="the fastest rung of each layer"))
    if any(step.published for step in steps):
        handles.append(published_handle(f"the rung, published ({gpu})"))
    return handles


def gain(step: Step) -> str:
    """``12.3 ms, 1.90× faster`` than the parent."""
    own = f"{shown(step.own.median)} ms"
    return own if step.parent is None else f"{own}, {faster(step.parent / step.own.median)}"


def ladder(steps: Sequence[Step], unit: str, references: Sequence[Level] = (), bests: Sequence[Level] = ()) -> Figure:
    """All rungs from left to right in ladder order, families as bands, the fastest of each family in figures."""
    figure, grid = canvas(4.3)
    axes = grid[0][0]
    axes.set_yscale("log")
    for x, step in enumerate(steps):
        style = step.look._replace(hollow=step.partly).marked
        axes.errorbar(x, step.own.median, yerr=span(step.own), markersize=5, **style)
    least = np.minimum.accumulate([step.own.median for step in steps])
    axes.step(range(len(steps)), least, where="post", color=QUIET, linewidth=1, zorder=1)
    places = [len(steps) + 0.5 + BEST_GAP * i for i in range(len(bests))]
    for place, best in zip(places, bests, strict=True):
        axes.plot(place, best.value, "*", color=best.look.colour, markersize=9)
    axes.set_xlim(-0.8, (places or [len(steps) - 1])[-1] + 1)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.6, high * 1.6)
    fastest = label_families(axes, steps)
    for peer in references:
        axes.axhline(peer.value, color=INK, linewidth=0.8, linestyle="--", zorder=1)
    side_labels(axes, [(peer.value, f"{peer.label}, {shown(peer.value)}") for peer in references])
    axes.set_xticks(
        [*range(len(steps)), *places],
        [*(step.rung for step in steps), *(best.label for best in bests)],
        rotation=90,
        fontsize=6.5,
    )
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    plain_log(axes.yaxis)
    axes.set_ylabel(unit)
    handles = precision_handles(step.look for step in steps)
    if any(step.partly for step in steps):
        label = "partial rung, its parent fills the rest"
        handles.append(Line2D([], [], marker="o", linestyle="", **HOLLOW, color="#777777", label=label))
    if bests:
        handles.append(
            Line2D([], [], marker="*", linestyle="", color="#777777", label="the fastest rung of each layer")
        )
    legend_below(figure, handles)
    marks = list(enumerate(step.own.median for step in steps))
    stars = list(zip(places, (best.value for best in bests), strict=True))
    write_values(axes, [*(marks[x] for x in fastest), *stars], [*marks, *stars])
    return figure


def label_families(axes: Any, steps: Sequence[Step]) -> list[int]:
    """A family's name above its rungs, its band tinted; the place of the fastest of each."""
    families = [(x, step.look.family) for x, step in enumerate(steps)]
    size = 7 if len(steps) < CROWDED else 5.5  # points: three rungs are as wide as their family's name
    fastest = []
    for i, (family, members) in enumerate(groupby(families, key=lambda member: member[1])):
        places = [x for x, _ in members]
        if i % 2 == 0:
            axes.axvspan(places[0] - 0.5, places[-1] + 0.5, color="#F4F4F4", zorder=0, linewidth=0)
        middle = (places[0] + places[-1]) / 2
        at_top = axes.get_xaxis_transform()
        colour = family_colour(family)
        axes.text(middle, 1.01, family, ha="center", va="bottom", fontsize=size, color=colour, transform=at_top)
        fastest.append(min(places, key=lambda x: steps[x].own.median))
    return fastest


def write_values(axes: Any, wanted: Sequence[tuple[float, float]], marks: Sequence[tuple[float, float]]) -> None:
    """Values in figures under their marks, or elsewhere around them if they hide fewer marks and values there."""
    settle(axes.figure)
    points = POINTS_PER_INCH / axes.figure.dpi
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in points * axes.transData.transform(marks)]
    backed = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8}
    size = 6.5
    height, digit, below = 1.1 * size, 0.58 * size, -GAP - 1.1 * size
    for place in wanted:
        text = shown(place[1])
        width = digit * len(text)
        x, y = points * axes.transData.transform(place)
        middles = [(-width / 2, below), (-width / 2, GAP), (-width - GAP, -height / 2), (GAP, -height / 2)]
        sides = [*middles, (-width, below), (0, below)]
        boxes = [Bbox.from_bounds(x + right, y + up, width, height) for right, up in sides]
        chosen = min(boxes, key=lambda box: box.count_overlaps(taken))
        taken.append(chosen)
        offset = chosen.x0 - x, chosen.y0 - y
        axes.annotate(
            text, place, offset, textcoords="offset points", va="bottom", fontsize=size, bbox=backed, zorder=5
        )


def side_labels(axes: Any, labels: Sequence[tuple[float, str]]) -> None:
    """Texts at the right of a log axis at their values, moved apart where they would touch."""
    low, high = map(log10, axes.get_ylim())
    places: list[float] = []
    for value, _ in sorted(labels):
        wanted = (log10(value) - low) / (high - low)
        places.append(max(wanted, places[-1] + LEAST_GAP) if places else wanted)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks([10 ** (low + place * (high - low)) for place in places], [text for _, text in sorted(labels)])
    beside.yaxis.set_minor_locator(NullLocator())
    beside.tick_params(axis="y", length=0, labelsize=7.5)
    beside.spines["right"].set_visible(False)


@dataclass(frozen=True)
class Duel:
    """A row of ours beside a peer's: both in ms, the peer in each layout, ``standard`` the one that ratios are over."""

    label: str
    look: Look
    ours: float | None
    theirs: dict[str, float | None]
    standard: str


def duels(panels: Sequence[tuple[str, Sequence[Duel]]], unit: str) -> Figure:
    """One panel below the other, ours in colour and the peer in black; the ratio in figures."""
    rows = sum(len(row) for _, row in panels)
    figure, grid = canvas(MARGIN + 0.35 * len(panels) + ROW * rows, len(panels), 1, sharex=True)
    for axes, (title, row) in zip(grid[:, 0], panels, strict=True):
        label_rows(axes, [duel.label for duel in row])
        axes.set_xscale("log")
        for y, duel in enumerate(row):
            for peer, value in duel.theirs.items():
                if value is not None:
                    axes.plot(value, y, markersize=5, **look(peer).marked)
            if duel.ours is not None:
                axes.plot(duel.ours, y, markersize=6, **duel.look.marked)
        axes.set_title(title)
        beside = axes.secondary_yaxis("right")
        beside.set_yticks(range(len(row)), [duel_text(duel) for duel in row])
        beside.tick_params(axis="y", length=0)
        beside.spines["right"].set_visible(False)
    plain_log(grid[-1, 0].xaxis)
    grid[-1, 0].set_xlabel(unit)
    ours = Line2D([], [], marker="o", linestyle="", color=family_colour(FAMILIES[-1]), label="ours")
    layouts = {"cuDNN, NCHW": {}, "cuDNN, NHWC": HOLLOW}
    legend_below(
        figure,
        [
            ours,
            *(
                Line2D([], [], marker="o", linestyle="", color=INK, label=label, **filling)
                for label, filling in layouts.items()
            ),
        ],
    )
    return figure


def duel_text(row: Duel) -> str:
    """Our time, and how many times faster than the peer's it is."""
    standard = row.theirs.get(row.standard)
    if row.ours is None:
        return ""
    return f"{shown(row.ours)} ms" + (f", {faster(standard / row.ours)}" if standard else "")


@dataclass(frozen=True)
class Mark:
    """A rung's or a peer's point in a scatter chart, with an optional ``note`` beside it."""

    name: str
    look: Look
    x: float
    y: Summary
    marker: str | None = None
    note: str = ""


def scatter(
    marks: Sequence[Mark], x_label: str, y_label: str, peers: dict[str, str], named: dict[str, str] | None = None
) -> Figure:
    """Points on log axes; a legend of families, peers (names by label), and the markers that ``named`` explains."""
    looks = {mark.name: mark.look for mark in marks}
    handles = family_handles(looks.values())
    handles += [Line2D([], [], label=label, **looks[peer].marked) for peer, label in peers.items() if peer in looks]
    if named is None:
        handles += precision_handles(looks.values())
    for label, marker in (named or {}).items():
        handles.append(Line2D([], [], marker=marker, linestyle="", color="#777777", label=label))
    figure, grid = canvas(3.9 + 0.17 * len(handles) / 3)
    draw_marks(grid[0][0], marks)
    grid[0][0].set_xlabel(x_label)
    grid[0][0].set_ylabel(y_label)
    legend_below(figure, handles)
    return figure


def draw_marks(axes: Any, marks: Sequence[Mark], most: int = 7) -> None:
    """Points on log axes with a limited number of ticks along x, and their notes."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for mark in marks:
        style = mark.look.marked | ({"marker": mark.marker} if mark.marker else {})
        axes.errorbar(mark.x, mark.y.median, yerr=span(mark.y), markersize=5, capsize=2, **style)
    widen(axes.xaxis, 100.0)
    widen(axes.yaxis, 4.0)
    write_notes(axes, [mark for mark in marks if mark.note])
    plain_log(axes.xaxis, most)
    plain_log(axes.yaxis)


def write_notes(axes: Any, marks: Sequence[Mark]) -> None:
    """Notes at the right of their marks, or at the left where another mark's note begins."""
    if marks:
        low, high = axes.get_xlim()
        axes.set_xlim(low / NOTE_ROOM, high * NOTE_ROOM)
    for mark in marks:
        crowded = any(
            mark.x < other.x and max(mark.y.median / other.y.median, other.y.median / mark.y.median) < NEAR
            for other in marks
        )
        side = {"xytext": (-5, 0), "ha": "right"} if crowded else {"xytext": (5, 0), "ha": "left"}
        axes.annotate(mark.note, (mark.x, mark.y.median), textcoords="offset points", va="center", fontsize=7, **side)


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


LEAST_NUMBERED = 0.02  # of the time shown: shorter bars have no room for a number
DARK = ("#332288", "#882255", "#117733")  # with white text on them
WORK_COLOURS = {"h2d": "#88CCEE", "kernel": "#332288", "d2h": "#CC6677"}
WORK_NAMES = {"h2d": COPY_NAMES["h2d"], "kernel": "kernels", "d2h": COPY_NAMES["d2h"]}


def timeline(panels: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> Figure:
    """What each stream did when: one panel per point, one line per stream, piece numbers on the kernels."""
    heights = [0.55 + 0.3 * len({event["stream"] for event in events}) for _, events in panels]
    figure, grid = canvas(fsum(heights) + 0.6, len(panels), 1, height_ratios=heights)
    for axes, (title, events) in zip(grid[:, 0], panels, strict=True):
        streams = sorted({event["stream"] for event in events})
        label_rows(axes, [f"stream {stream}" for stream in streams])
        elapsed = max(event["end"] for event in events) - min(event["start"] for event in events)
        for event in events:
            y, start = streams.index(event["stream"]), event["start"]
            axes.barh(y, event["end"] - start, 0.75, left=start, color=WORK_COLOURS[event["what"]], ec="white", lw=0.4)
            if event["what"] == "kernel" and event["end"] - start > elapsed * LEAST_NUMBERED:
                middle = (start + event["end"]) / 2
                axes.text(middle, y, str(event["piece"]), ha="center", va="center", fontsize=6.5, color="white")
        axes.set_title(title)
        axes.grid(axis="y", visible=False)
    grid[-1, 0].set_xlabel("ms since the first copy began")
    legend_below(figure, [Patch(facecolor=WORK_COLOURS[name], label=label) for name, label in WORK_NAMES.items()])
    return figure


ROLE_COLOURS = ("#DDCC77", "#88CCEE", "#332288", "#44AA99", "#CC6677", "#C0C0C0")
PART_COLOURS = ("#332288", "#882255", "#CC6677", "#DDCC77", "#999933", "#88CCEE", "#C0C0C0")
BAR = 0.8  # of a row
LETTER = 0.0105  # of a panel's width, at the size of a bar's text
Bar = tuple[float, float, str, str, int]  # start, length, what it is, its text, and 1 in the lower half of its row
Panels = Sequence[tuple[str, Sequence[tuple[str, Sequence[Bar]]]]]  # titles, with rows by their labels


def bars(panels: Panels, colours: Mapping[str, str]) -> Figure:
    """Bars in rows, each panel with a time axis of its own; texts where they fit."""
    heights = [0.5 + 0.48 * len(rows) for _, rows in panels]
    figure, grid = canvas(fsum(heights) + 0.6, len(panels), 1, height_ratios=heights)
    for axes, (title, rows) in zip(grid[:, 0], panels, strict=True):
        label_rows(axes, [label for label, _ in rows])
        longest = max(start + length for _, row in rows for start, length, *_ in row)
        axes.set_xlim(0, 1.01 * longest)
        for y, (_, row) in enumerate(rows):
            halves = any(lane for *_, lane in row)
            thick = BAR / 2 if halves else BAR
            for start, length, kind, text, lane in row:
                middle = y + (lane - 0.5) * thick if halves else y
                axes.barh(middle, length, thick, left=start, color=colours[kind], ec="white", lw=0.4)
                if len(text) * LETTER * longest < length:
                    ink = "white" if colours[kind] in DARK else ON_COLOUR
                    axes.text(start + length / 2, middle, text, ha="center", va="center", fontsize=7, color=ink)
        axes.set_title(title)
        axes.grid(axis="y", visible=False)
    grid[-1, 0].set_xlabel("µs")
    drawn = {kind for _, rows in panels for _, row in rows for _, _, kind, *_ in row}
    handles = [Patch(facecolor=colour, label=kind) for kind, colour in colours.items() if kind in drawn]
    legend_below(figure, handles, 4)
    return figure


def kernels(panels: Panels, roles: Sequence[str]) -> Figure:
    """Kernels of several runs on one time axis, coloured by their roles."""
    return bars(panels, dict(zip(roles, ROLE_COLOURS, strict=True)))


def parts(
    panels: Sequence[tuple[str, Sequence[tuple[str, Sequence[tuple[str, float]]]]]], names: Sequence[str]
) -> Figure:
    """Stacked bars of named parts, with their share of the bar."""
    rows = [
        (
            title,
            [(label, list(stacked(row))) for label, row in of_panel],
        )
        for title, of_panel in panels
    ]
    return bars(rows, dict(zip(names, PART_COLOURS, strict=True)))


def stacked(row: Sequence[tuple[str, float]]) -> Iterator[Bar]:
    """The bars of a row's parts, one after the other."""
    whole, start = fsum(length for _, length in row), 0.0
    for name, length in row:
        yield start, length, name, f"{100 * length / whole:.0f} %", 0
        start += length


@dataclass(frozen=True)
class Standing:
    """A rung's time of a layer, its parent's, the fastest of its class, and cuDNN's, in ms."""

    label: str
    look: Look
    own: Summary
    parent: float | None
    best: float
    peer: float | None


def standing(rows: Sequence[Standing], unit: str, parent: str) -> Figure:
    """A line for each layer, from the parent's time to the rung's, with the fastest of the class and cuDNN's."""
    figure, grid = canvas(MARGIN + 0.1 + 0.34 * len(rows))
    axes = grid[0][0]
    label_rows(axes, [row.label for row in rows])
    axes.set_xscale("log")
    for y, row in enumerate(rows):
        if row.parent is not None:
            axes.plot([row.parent, row.own.median], [y, y], color=QUIET, linewidth=2)
            axes.plot(row.parent, y, "o", color=INK, markersize=5, **HOLLOW)
        axes.plot(row.best, y, "|", color=INK, markersize=15, markeredgewidth=1.4)
        if row.peer is not None:
            axes.plot(row.peer, y, "x", color=INK, markersize=6)
        axes.plot(row.own.median, y, markersize=7, **row.look.marked)
    widen(axes.xaxis)
    plain_log(axes.xaxis)
    axes.set_xlabel(unit)
    texts = [
        f"{shown(row.own.median)} ms" + (f", {faster(row.parent / row.own.median)}" if row.parent else "")
        for row in rows
    ]
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(range(len(rows)), texts)
    beside.tick_params(axis="y", length=0)
    beside.spines["right"].set_visible(False)
    legend_below(figure, standing_handles(rows, parent))
    return figure


def standing_handles(rows: Sequence[Standing], parent: str) -> list[Any]:
    """The legend's entries: what is drawn in some row."""
    plain: Any = {"linestyle": "", "color": INK}
    handles = [Line2D([], [], label="this rung", **rows[0].look.marked)]
    handles += [Line2D([], [], marker="o", label=parent, **plain, **HOLLOW)] if any(row.parent for row in rows) else []
    handles += [Line2D([], [], marker="|", markersize=12, markeredgewidth=1.4, label="fastest of its class", **plain)]
    return handles + ([Line2D([], [], marker="x", label="cuDNN", **plain)] if any(row.peer for row in rows) else [])


def relative(rows: Sequence[Dot], unit: str) -> Figure:
    """Bars away from 1: how much slower (right) or faster (left) a change made a point."""
    figure, grid = canvas(MARGIN - 0.3 + ROW * len(rows))
    axes = grid[0][0]
    label_rows(axes, [row.label for row in rows])
    axes.set_xscale("log")
    for y, row in enumerate(rows):
        if row.ours:
            axes.barh(y, row.ours.median - 1, 0.7, left=1, color=row.look.colour, ec="white", lw=0.3)
            axes.errorbar(row.ours.median, y, xerr=span(row.ours), color="black", lw=0.8, capsize=1.5)
    axes.axvline(1, color="black", linewidth=0.8)
    widen(axes.xaxis, 4.0)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(unit)
    return figure
