"""Time per image against the batch."""

from collections.abc import Sequence
from functools import partial

from alexconv.kernels.ladder import RUNGS
from alexconv.records.statistics import Summary
from alexconv.reports import charts
from alexconv.reports.charts import Line
from alexconv.reports.comparison import (
    CONTRACTS,
)
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import (
    COPIES,
    Measurements,
)
from alexconv.reports.published import Series
from alexconv.reports.slices import label, slices, title_of


def section(measurements: Measurements) -> Section:
    """Every workload that was measured at several batch sizes."""
    return Section(
        "batches",
        "Time per image",
        "A GPU that is full takes the same time for every image; below that, larger batches are cheaper.",
        [item for workload in measurements.workloads for item in per_image(measurements, workload)],
    )


def per_image(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Kernel time of one image against the batch, all layers if they are there, and the same with the copies."""
    batches = measurements.batches(workload)
    if len(batches) < 2:
        return []
    layer = slices(measurements, workload)[-1]
    series = [each for each in measurements.series(workload) if each.transfer == measurements.transfer]
    measurements = measurements.of_one_run(
        lambda point: point.workload == workload and not point.changed and point.series in series
    )

    def line(each: Series, figure: str) -> Line:
        times = [measurements.time(workload, layer, N, each, figure) for N in batches]
        scaled = [
            Summary(t.median / N, t.low / N, t.high / N, t.count) if t else None
            for N, t in zip(batches, times, strict=True)
        ]
        return Line(title_of(each), each.rung, batches, scaled, quiet=each not in highlighted)

    highlighted = foremost(measurements, workload, layer, series)
    panels = [(name, [line(each, figure) for each in series]) for name, figure in FIGURES]
    rows: list[tuple[Cell, ...]] = []
    for each in series:
        values = [value for name, figure in FIGURES for value in line(each, figure).ours]
        rows.append((title_of(each), *(value.median if value else None for value in values)))
    columns = ("rung", *(f"{name}, N={N}" for name, _ in FIGURES for N in batches))
    title = f"{workload}: time per image against the batch, {label(layer)}"
    runs = measurements.footnote(series, of=COPIES)
    caption = f"Medians; log axes. The rungs in grey are in the table. {runs}"
    return [
        Plot(
            f"{workload}-per-image",
            title,
            caption,
            partial(charts.lines, panels, "ms per image"),
        ),
        Table(f"{workload}-per-image-table", f"{title} (ms)", f"Medians. {runs}", columns, rows),
    ]


FIGURES = (("kernels", "kernel"), ("kernels and copies", "total"))


def foremost(measurements: Measurements, workload: str, layer: int | None, series: Sequence[Series]) -> set[Series]:
    """The first rung of all, the fastest of each class that was timed at two batch sizes, and cuDNN's classes."""
    N, found = measurements.main_batch(workload), {series[0]}
    fastest: dict[str | None, tuple[float, Series]] = {}
    for each in series:
        time = measurements.time(workload, layer, N, each, "kernel")
        sizes = [n for n in measurements.batches(workload) if measurements.time(workload, layer, n, each, "kernel")]
        precision = RUNGS[each.rung].precision if each.rung in RUNGS else None
        if precision in {contract.name for contract in CONTRACTS} and time and len(sizes) > 1:
            fastest[precision] = min(fastest.get(precision, (time.median, each)), (time.median, each))
    found |= {each for _, each in fastest.values()}
    return found | {each for each in series if each.rung in {contract.peer for contract in CONTRACTS}}
