"""A page for each layer: its fastest rungs and why, the ladder on it, and every point."""

from collections.abc import Iterator, Sequence
from functools import partial

from alexconv.reports import charts, cudnn, findings, interactive, timelines, winners
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import Frontier, interval
from alexconv.reports.elements import Cell, Faster, Page, Plot, Section, Table
from alexconv.reports.ladder import LEAST_RUNGS, comparisons, ladder_batch, steps
from alexconv.reports.measurements import KERNELS, Measured, Measurements
from alexconv.reports.published import Series
from alexconv.reports.slices import title_of
from alexconv.shapes import WORKLOADS

COLUMNS = (
    *("N", "rung", "class", "transfer", "ms", "95 %", "with copies, ms", "TFLOP/s", "max error", "status", "run"),
)


def pages(measurements: Measurements, frontier: Frontier | None) -> Iterator[Page]:
    """The layers of all workloads that were timed."""
    for workload in measurements.workloads:
        for layer in measurements.layers(workload):
            yield page(measurements, frontier, workload, layer)


def page(measurements: Measurements, frontier: Frontier | None, workload: str, layer: int) -> Page:
    """One layer's page."""
    key = f"layer-{workload}-{layer}"
    best = winners.table(measurements, frontier, workload, layer)
    items: list[Table | Plot] = [best] if best.rows else []
    slider = interactive.batches(measurements, frontier, workload, layer)
    theirs = cudnn.sections(frontier, layer) if workload == WORKLOAD else []
    return Page(
        key,
        "layer",
        f"{workload}, layer {layer}",
        "",
        [
            Section("best", "Which kernel is best, and why", "", items, charts=slider),
            *theirs[:1],
            *timelines.sections(measurements, workload, layer),
            Section("ladder", "The ladder on this layer", "", ladder(measurements, frontier, workload, layer)),
            Section("points", "Every point", "", [points_table(measurements, workload, layer)]),
            *theirs[1:],
        ],
        facts_of(workload, layer),
        name=f"{workload} layer {layer}",
    )


def facts_of(workload: str, layer: int) -> list[tuple[str, str]]:
    """The layer's shape in words."""
    conv = WORKLOADS[workload].layer(layer)
    planes = f"{conv.C} input channels of {conv.H}×{conv.W}, {conv.M} filters of {conv.R}×{conv.S}, stride {conv.U}"
    work = f"{conv.macs(1) / 1e6:.1f} million multiply-adds per image, {conv.K} per output"
    return [("Workload", workload), ("Shape", f"{planes}: {conv.E}×{conv.F} outputs each"), ("Work", work)]


def ladder(measurements: Measurements, frontier: Frontier | None, workload: str, layer: int) -> list[Table | Plot]:
    """All rungs on the layer, with cuDNN's times; then those that were the fastest of the ladder up to them."""
    N = ladder_batch(measurements, workload)
    climbed = steps(measurements, workload, layer, N)
    if len(climbed) < LEAST_RUNGS:
        return []
    lines, bests = comparisons(frontier, workload, N, layer, measurements.ladder)
    unit = "kernel time (ms per batch)"
    names = [Series(step.rung, measurements.transfer) for step in climbed]
    caption = (
        "Rungs in ladder order, a band and colour for each family; the figure is the family's shortest time in ms; "
        f"grey line: best so far. {measurements.footnote(names, workload, N, of=KERNELS)}"
    )
    draw = partial(charts.ladder, climbed, unit, lines, bests)
    title = findings.titled(f"{workload}, layer {layer}, the ladder, N={N}", findings.climb(climbed))
    plot = Plot(f"layer-{workload}-{layer}-ladder", title, caption, draw, wide=True)
    return [plot, records_table(measurements, workload, layer, climbed)]


def records_table(measurements: Measurements, workload: str, layer: int, climbed: Sequence[charts.Step]) -> Table:
    """The rungs that are faster than every rung of their class before them in the ladder."""
    rows: list[tuple[Cell, ...]] = []
    best: dict[str, float] = {}
    for step in climbed:
        ms, rung = step.own.median, measurements.ladder.named[step.rung]
        before = best.get(rung.precision)
        if before is None or ms < before:
            rows.append((step.rung, rung.precision, rung.idea, ms, Faster(before / ms) if before else None))
            best[rung.precision] = ms
    columns = ("rung", "class", "idea", "ms", "than its class before")
    title = f"Rungs faster than their class before them, N={ladder_batch(measurements, workload)}"
    return Table(f"layer-{workload}-{layer}-records", title, "", columns, rows, csv=False, stacked=True)


def points_table(measurements: Measurements, workload: str, layer: int) -> Table:
    """Every rung and peer at every batch and under every transfer, the fastest first."""
    points = [point for point in measurements.points if (point.workload, point.layer) == (workload, layer)]
    points.sort(key=lambda point: (-point.N, point.median("kernel") or float("inf")))
    caption = (
        "Choose a batch, class or transfer; click a column's head to sort. Samples: ticks, the median and its interval."
    )
    return Table(
        f"layer-{workload}-{layer}-points",
        "Rungs and peers",
        caption,
        COLUMNS,
        [row(point) for point in points],
        long=True,
        samples=[point.samples("kernel") for point in points],
        filters=("N", "class", "transfer", "status"),
        chosen={"N": str(measurements.main_batch(workload))},
        csv=False,
    )


def row(point: Measured) -> tuple[Cell, ...]:
    """A point's cells, in the order of COLUMNS."""
    time = point.time("kernel")
    changed = " ".join(f"{name}={value}" for name, value in point.changed)
    label = title_of(Series(point.series.rung)) + (f" [{changed}]" if changed else "")
    return (
        point.N,
        label,
        point.precision,
        point.series.transfer,
        time.median if time else None,
        interval(time),
        point.median("total"),
        point.tflops,
        point.error,
        point.record["status"],
        point.run.name,
    )
