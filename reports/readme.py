"""The README's headline, figure and table, made from the record files."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import matplotlib

from alexconv.kernels.ladder import LADDER
from alexconv.kernels.rung import Rung
from alexconv.planning.layouts import LAYOUTS
from alexconv.planning.peers import peer_name
from alexconv.records.store import read
from alexconv.reports import charts
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import (
    CONTRACTS,
    FP32,
    LAYERS,
    MANY,
    Contract,
    Frontier,
    Source,
    gather,
    hot,
    interval,
    largest,
    over,
    preparation,
    quickest,
    times_over,
    total,
)
from alexconv.reports.elements import Cell, Plot, markdown_table, shown
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.ladder import comparisons, family_technique, steps
from alexconv.reports.measurements import Measured, Measurements, card_of, measurements, name_of
from alexconv.reports.style import FAMILIES, RC, settle, svg_text

HEADLINE, FIGURES, FAMILY_TABLE = "headline", "figures", "families"  # names of the markers
FIGURE_WIDTH = 620  # pixels
FOLDER = Path("docs", "figures")  # beside the README


def headline(data: Measurements, found: Frontier) -> str:
    """The first and the last rung's time, then cuDNN's and the errors, a row for each class."""
    source = found.many
    first = family_points(data, found, [LADDER[0]])
    start, ours = total(first), source.sum_of(FP32, MANY) if source else None
    if source is None or start is None or ours is None:
        return NOT_MEASURED
    rows: list[tuple[Cell, ...]] = []
    for contract in CONTRACTS:
        ms, peer = source.sum_of(contract, MANY), source.named_sum(contract.peer, MANY)
        errors = (
            largest([source.best(contract, layer, MANY) for layer in LAYERS]),
            largest([source.named(contract.peer, layer, MANY) for layer in LAYERS]),
        )
        what = f"**{contract.name}** ({contract.layout.upper()}, {contract.dtype})"
        bests, peers = source.bests(contract, MANY), source.all_named(contract.peer, MANY)
        ratio = times_over(bests, peers)
        speed = f"**{peer / ms:.1f}×**" if ms and peer else None, interval(ratio.inverse() if ratio else None)
        times = ms, peer, other_layout(source, contract)
        facts = by_layer(source, contract), preparation(bests), " / ".join(map(shown, errors))
        rows.append((what, *speed, *times, *facts))
    columns = (  # a narrow screen shows the first ones
        *("class", "speed", "95 %", "ours, ms", "cuDNN, ms", "its other layout", "by layer", "preparing filters, ms"),
        "error, ours / cuDNN's",
    )
    return "\n".join(
        [
            f"AlexNet's five convolution layers, {MANY} images, {name_of(source.device)}: **{shown(start)} ms** with "
            f"the naive kernel, **{shown(ours)} ms** with the fastest fp32 rung of each layer. Kernel times: "
            "filter preparation has its own column; copies between host and device are not included.",
            "",
            *markdown_table(columns, rows),
            "",
            f"Speed: over cuDNN on arrays of the same layout{over_the_other_layout(source)}.",
        ]
    )


def over_the_other_layout(source: Source) -> str:
    """Our speed over cuDNN's other layout where that is the faster one, in words."""
    words = []
    for contract in CONTRACTS:
        ms, peer = source.sum_of(contract, MANY), source.named_sum(contract.peer, MANY)
        other = other_layout(source, contract)
        if ms and peer and other and other < peer:
            words.append(f"{other / ms:.1f}× in {contract.name}")
    return f"; over its other layout, where that is faster, {', '.join(words)}" if words else ""


def other_layout(source: Source, contract: Contract) -> float | None:
    """cuDNN's time in the layout that is not the class's."""
    layout = next(layout for layout in LAYOUTS if layout != contract.layout)
    return source.named_sum(peer_name(layout, contract.precision.peer), MANY)


def by_layer(source: Source, contract: Contract) -> str | None:
    """cuDNN's time in the class's layout over ours: the range over the layers."""
    ratios = [
        over(hot(source.named(contract.peer, layer, MANY)), hot(source.best(contract, layer, MANY))) for layer in LAYERS
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{min(known):.2f} to {max(known):.1f}×" if len(known) == len(LAYERS) else None


def family_points(data: Measurements, found: Frontier, rungs: Iterable[Rung]) -> list[Measured | None]:
    """The fastest of the rungs on each layer: of the run with cuDNN's times, or of the others if they are faster."""
    names = {rung.name for rung in rungs}
    points = [point for point in data.of(WORKLOAD) if point.N == MANY and point.series.transfer == data.transfer]
    timed = [point for point in points if point.series.rung in names and hot(point) is not None]
    elsewhere = [quickest(point for point in timed if point.layer == layer) for layer in LAYERS]
    if found.many is None:
        return elsewhere
    compared = [found.many.fastest(lambda rung: rung.name in names, layer, MANY) for layer in LAYERS]
    return min((compared, elsewhere), key=lambda points: total(points) or float("inf"))


def families(data: Measurements, found: Frontier) -> str:
    """One line for each family: its fp32 rungs, the fastest of each layer, beside cuDNN."""
    source = found.many
    peer = source.named_sum(FP32.peer, MANY) if source else None
    rows: list[tuple[Cell, ...]] = []
    apart: dict[str, list[str]] = {}
    for family in FAMILIES:
        points = family_points(data, found, (rung for rung in LADDER if rung.family == family and FP32.kept_by(rung)))
        ms, speed = total(points), over(peer, total(points))
        names = dict.fromkeys(f"`{point.series.rung}`" for point in points if point)
        percent = None if speed is None else f"{100 * speed:.{0 if speed > 0.1 else 1}f} %"
        rows.append((family, family_technique(family), ", ".join(names) or None, ms, percent))
        others = [point for point in points if point and source and point not in source.points]
        if source and others:
            here = {data.cards.get(point.record["device"]) for point in others} == {card_of(source.device)}
            where = "other runs on this card" if here else "runs on other cards of its kind"
            apart.setdefault(where, []).append(family)
    rows.append(("cuDNN", "fastest engine of its benchmark, through torch", None, peer, "100 %" if peer else None))
    columns = ("family", "technique", "fastest rungs", "ms", "speed, cuDNN = 100 %")
    return "\n".join([*markdown_table(columns, rows), "", caption(data, found, apart)])


def caption(data: Measurements, found: Frontier, apart: Mapping[str, Sequence[str]]) -> str:
    """What the columns mean and which runs they are from; ``apart`` are families by where their other runs were."""
    source = found.many
    runs = f" One run on one card: `results/{source.file}`" if source else ""
    others = "".join(f"; {', '.join(families)} from {where}" for where, families in apart.items())
    return (
        f"fp32, NCHW, all five layers: medians of the fastest rung of each.{runs}{others}{'.' if runs else ''} The "
        "figure's numbers are for each family's fastest rung, in any precision."
    )


def plots(data: Measurements, found: Frontier) -> list[Plot]:
    """The whole ladder with cuDNN's lines."""
    climbed = steps(data, WORKLOAD, None, MANY)
    if not climbed:
        return []
    references, bests = comparisons(found, WORKLOAD, MANY)
    draw = partial(charts.ladder, climbed, "kernel time (ms per batch)", references, bests)
    title = f"Kernel time of every rung and of cuDNN, AlexNet's five layers, N = {MANY}"
    return [Plot("ladder", title, "", draw)]


def parts(files: Sequence[Path]) -> dict[str, str]:
    """Headline, figure and table from record files, by the names of their markers."""
    data, found = measurements(read(files)), gather(files)
    links = "\n\n".join(
        f'<img src="{(FOLDER / plot.key).as_posix()}.svg" width="{FIGURE_WIDTH}" alt="{plot.title}">'
        for plot in plots(data, found)
    )
    return {HEADLINE: headline(data, found), FIGURES: links, FAMILY_TABLE: families(data, found)}


def drawings(files: Sequence[Path]) -> dict[Path, str]:
    """The figures from record files, as SVG by path."""
    drawn = {}
    for plot in plots(measurements(read(files)), gather(files)):
        with matplotlib.rc_context(RC):
            figure = plot.draw()
            settle(figure)
            drawn[FOLDER / f"{plot.key}.svg"] = svg_text(figure, plot.key)
    return drawn
