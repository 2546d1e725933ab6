"""Speed against error, of every rung and peer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from alexconv.records.statistics import Summary
from alexconv.reports import charts
from alexconv.reports.charts import Mark
from alexconv.reports.comparison import (
    peer_title,
)
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.ladder import mixed
from alexconv.reports.measurements import (
    KERNELS,
    Measured,
    Measurements,
    layer_numbers,
)
from alexconv.reports.published import Series
from alexconv.reports.slices import label, slices
from alexconv.reports.style import look

SAME_ERROR = 1.05  # errors closer than this factor are no reason to prefer one


def section(measurements: Measurements, workload: str) -> Section:
    """Errors and times of a workload."""
    return Section(
        "accuracy",
        "Speed and error",
        "The error is the largest deviation from the float64 reference, divided by the norms of the input "
        "patch and the filter; each precision has its tolerance. Inputs and filters are uniform in [-1, 1]; "
        "docs/precision.md has the bounds that hold on all data.",
        accuracy(measurements, workload),
    )


def accuracy(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Worst error over the layers against time per image, of every rung and peer."""
    N = measurements.main_batch(workload)
    marks: list[Mark] = []
    rows: list[tuple[Cell, ...]] = []
    partly: list[str] = []
    listed: list[Series] = []
    for series in measurements.series(workload, N):
        points = [
            point for layer in measurements.layers(workload) if (point := measurements.find(workload, layer, N, series))
        ]
        timed = measurements.time(workload, slices(measurements, workload)[-1], N, series, "kernel")
        if not timed and slices(measurements, workload)[-1] is None and measurements.rung(series):
            timed = mixed(measurements, workload, N, series.rung)
            points += ancestors(measurements, workload, N, series)
            partly.append(series.rung)
        errors = [point.error for point in points if point.error is not None]
        if series.transfer != measurements.transfer or not timed or not errors:
            continue
        per_image = Summary(timed.median / N, timed.low / N, timed.high / N, timed.count)
        if max(errors) > 0:
            marks.append(Mark(series.rung, look(series.rung, measurements.ladder), max(errors), per_image))
        listed.append(series)
        tolerance = max(point.record["error"]["tolerance"] for point in points if point.error is not None)
        rows.append((series.rung, points[0].precision, max(errors), tolerance, per_image.median))
    if not rows:
        return []
    where = label(slices(measurements, workload)[-1])
    x, y = "largest error over norms", f"kernel time, {where} (ms per image)"
    columns = ("rung", "precision", "largest error", "its tolerance", "ms per image")
    title = f"{workload}: speed against error, {where}, N={N}"
    runs = measurements.footnote(listed, workload, N, of=KERNELS)
    if any(row[0] in partly for row in rows):
        names = ", ".join(str(row[0]) for row in rows if row[0] in partly)
        runs = f"Rungs of some layers, with their parent's time and error on the others: {names}. {runs}"
    return [
        Plot(
            f"{workload}-accuracy",
            title,
            f"Lower is faster, further left more accurate. Named: the Pareto-optimal ones. {runs}",
            partial(charts.scatter, front_named(marks), x, y, peer_titles(marks)),
        ),
        Table(f"{workload}-accuracy-table", f"{workload}: error and time, {where}, N={N}", runs, columns, rows),
    ]


def ancestors(measurements: Measurements, workload: str, N: int, series: Series) -> list[Measured]:
    """The nearest ancestors' points on the layers that a rung does not take."""
    points = []
    for layer in layer_numbers(workload):
        name: str | None = series.rung
        while name and not measurements.time(workload, layer, N, Series(name, series.transfer), "kernel"):
            name = measurements.ladder.named[name].parent
        point = measurements.find(workload, layer, N, Series(name, series.transfer)) if name else None
        if point and name != series.rung:
            points.append(point)
    return points


def front_named(marks: Sequence[Mark]) -> list[Mark]:
    """The marks, those on the Pareto front with their names."""
    return [
        replace(mark, note=peer_title(mark.name))
        if not any(other.x <= SAME_ERROR * mark.x and other.y.median < mark.y.median for other in marks)
        else mark
        for mark in marks
    ]


def peer_titles(marks: Sequence[Mark]) -> dict[str, str]:
    """The peers among the marks and what they are."""
    return {mark.name: peer_title(mark.name) for mark in marks if not mark.look.family}
