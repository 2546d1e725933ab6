"""The families of rungs: each one's fastest rungs in fp32, layer by layer, and cuDNN's time."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from alexconv.kernels.ladder import LADDER
from alexconv.kernels.rung import Rung
from alexconv.records.store import read
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import Level
from alexconv.reports.comparison import FP32, LAYERS, MANY, Frontier, gather, hot, quickest, speed, total
from alexconv.reports.elements import Cell, Plot, markdown_table, shown
from alexconv.reports.ladder import family_technique
from alexconv.reports.measurements import Measured, Measurements, card_of, measurements
from alexconv.reports.style import FAMILIES, INK, look

PART = "families"  # the name of the markers
CUDNN = "cuDNN"
TYPE = 17  # points: legible on a phone, where the figure is half as wide
ROW = 0.4  # inches
ROOM = 2.6  # of a log axis, as a factor: for values beside marks


def points_of(data: Measurements, frontier: Frontier, rungs: Iterable[Rung]) -> list[Measured | None]:
    """The fastest of the rungs on each layer: of the run with cuDNN's times, or of the others if they are faster."""
    names = {rung.name for rung in rungs}
    points = [point for point in data.of(WORKLOAD) if point.N == MANY and point.series.transfer == data.transfer]
    timed = [point for point in points if point.series.rung in names and hot(point) is not None]
    elsewhere = [quickest(point for point in timed if point.layer == layer) for layer in LAYERS]
    if frontier.many is None:
        return elsewhere
    compared = [frontier.many.fastest(lambda rung: rung.name in names, layer, MANY) for layer in LAYERS]
    return min((compared, elsewhere), key=lambda points: total(points) or float("inf"))


def of_families(data: Measurements, frontier: Frontier) -> dict[str, list[Measured | None]]:
    """The points of each family's fp32 rungs, in the order of the ladder."""
    return {
        family: points_of(data, frontier, (rung for rung in LADDER if rung.family == family and FP32.kept_by(rung)))
        for family in FAMILIES
    }


def table(data: Measurements, frontier: Frontier) -> str:
    """A line for each family, and cuDNN's."""
    source = frontier.many
    peer = source.named_sum(FP32.peer, MANY) if source else None
    rows: list[tuple[Cell, ...]] = []
    apart: dict[str, list[str]] = {}
    for family, points in of_families(data, frontier).items():
        ms = total(points)
        names = dict.fromkeys(f"`{point.series.rung}`" for point in points if point)
        rows.append((family, family_technique(family), ", ".join(names) or None, ms, speed(ms, peer)))
        others = [point for point in points if point and source and point not in source.points]
        if source and others:
            here = {data.cards.get(point.record["device"]) for point in others} == {card_of(source.device)}
            where = "other runs on this card" if here else "runs on other cards of its kind"
            apart.setdefault(where, []).append(family)
    rows.append((CUDNN, "fastest engine of its benchmark, through torch", None, peer, None))
    columns = ("family", "technique", "fastest rungs", "ms", "than cuDNN")
    return "\n".join([*markdown_table(columns, rows), "", caption(frontier, apart)])


def caption(frontier: Frontier, apart: Mapping[str, Sequence[str]]) -> str:
    """What the columns mean and which runs they are from; ``apart`` are families by where their other runs were."""
    source = frontier.many
    runs = f" One run on one card: `results/{source.file}`" if source else ""
    others = "".join(f"; {', '.join(families)} from {where}" for where, families in apart.items())
    return f"fp32, NCHW, all five layers: medians of the fastest rung of each.{runs}{others}{'.' if runs else ''}"


def plot(data: Measurements, frontier: Frontier) -> Plot | None:
    """The families' times and cuDNN's line; None without times."""
    levels = [
        Level(family, look(point.series.rung), ms)
        for family, points in of_families(data, frontier).items()
        if (ms := total(points)) is not None and (point := points[0])
    ]
    peer = frontier.many.named_sum(FP32.peer, MANY) if frontier.many else None
    if not levels:
        return None
    below = [level.label for level in levels if peer and level.value < peer]
    title = f"Only {' and '.join(below)} beats cuDNN in fp32" if len(below) == 1 else "Time of each family in fp32"
    return Plot(PART, f"{title}: {described(levels, peer)}", "", partial(draw, title, levels, peer))


def described(levels: Sequence[Level], peer: float | None) -> str:
    """The figure for those who do not see it."""
    times = [(level.label, level.value) for level in levels] + ([(CUDNN, peer)] if peer else [])
    return f"AlexNet's five layers, N = {MANY}, ms: {', '.join(f'{name} {shown(ms)}' for name, ms in times)}"


def draw(title: str, levels: Sequence[Level], peer: float | None) -> Figure:
    """A dot for each family on a log axis, its time beside it."""
    figure = Figure(figsize=(7.2, 1.3 + ROW * len(levels)), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    for y, level in enumerate(levels):
        axes.plot(level.value, y, "o", color=level.look.colour, markersize=13)
        axes.annotate(
            shown(level.value),
            (level.value, y),
            (13, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=TYPE,
        )
    if peer:
        axes.axvline(peer, color=INK, linewidth=2, linestyle="--", zorder=0)
        text = f"{CUDNN} {shown(peer)}"
        axes.annotate(
            text, (peer, len(levels) - 1), (9, 0), textcoords="offset points", va="center_baseline", fontsize=TYPE
        )
    values = [level.value for level in levels]
    axes.set_xlim(min(values) / 1.4, max(values) * ROOM)
    axes.set_yticks(range(len(levels)), [level.label for level in levels], fontsize=TYPE)
    axes.set_ylim(len(levels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_ticks([])
    axes.xaxis.set_ticks([], minor=True)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    figure.suptitle(title, fontsize=TYPE, fontweight="bold", x=0.01, ha="left")
    axes.set_xlabel(f"ms for AlexNet's five layers, {MANY} images (log)", fontsize=0.85 * TYPE)
    return figure


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The table from record files, by the name of its markers."""
    return {PART: table(measurements(read(files)), gather(files))}
