"""The figure of a rung's page: its time of each layer, its parent's, the fastest of its class and cuDNN's."""

from functools import partial

from alexconv.kernels.rung import Rung
from alexconv.records.statistics import faster
from alexconv.reports import charts
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import Standing
from alexconv.reports.comparison import CONTRACTS, Frontier, hot, quickest
from alexconv.reports.elements import Plot, Table
from alexconv.reports.ladder import gain_of
from alexconv.reports.measurements import Measured, Measurements
from alexconv.reports.published import Series
from alexconv.reports.style import look


def figure(measurements: Measurements, frontier: Frontier | None, rung: Rung) -> list[Table | Plot]:
    """The figure of the workload and batch at which the rung has most layers; none without a time."""
    place = place_of(measurements, rung)
    if place is None:
        return []
    workload, N = place
    rows = [
        row
        for layer in measurements.layers(workload)
        if (row := standing(measurements, frontier, rung, (workload, layer, N)))
    ]
    best = [row.label for row in rows if row.own.median <= row.best]
    title = f"{rung.name}, {workload}, N={N}: {verdict(rung, rows, best)}"
    footnote = measurements.footnote([Series(rung.name, measurements.transfer)], workload, N, of=0)
    caption = f"Kernel time, median; the right margin compares it with the parent's, both of one run. {footnote}"
    draw = partial(charts.standing, rows, "kernel time (ms per batch)", rung.parent or "")
    return [Plot(f"{rung.name}-standing", title, caption, draw)]


def place_of(measurements: Measurements, rung: Rung) -> tuple[str, int] | None:
    """The workload and batch with the rung's times of most layers: the study's workload and the larger batch first."""
    layers: dict[tuple[str, int], set[int]] = {}
    for point in measurements.points:
        if point.series == Series(rung.name, measurements.transfer) and not point.changed and point.median("kernel"):
            layers.setdefault((point.workload, point.N), set()).add(point.layer)
    usual = {workload: measurements.main_batch(workload) for workload, _ in layers}
    return max(layers, key=lambda at: (at[0] == WORKLOAD, len(layers[at]), at[1] == usual[at[0]], at[1]), default=None)


def standing(
    measurements: Measurements, frontier: Frontier | None, rung: Rung, axes: tuple[str, int, int]
) -> Standing | None:
    """A layer's row; None without the rung's time."""
    series = Series(rung.name, measurements.transfer)
    point = measurements.find(*axes, series)
    own = point.time("kernel") if point else None
    if point is None or own is None:
        return None
    gain = gain_of(measurements, *axes, Series(rung.parent, series.transfer), series)[0] if rung.parent else None
    leader = fastest(measurements, rung, axes)
    best = own.median if leader is None or leader.series.rung == rung.name else hot(leader) or own.median
    peer = peer_time(frontier, rung, point)
    return Standing(
        f"layer {point.layer}", look(rung.name, measurements.ladder), own, gain and own.median * gain, best, peer
    )


def fastest(measurements: Measurements, rung: Rung, axes: tuple[str, int, int]) -> Measured | None:
    """The fastest point of the rung's class."""
    points = (point for point in measurements.of_points(*axes) if point.series.transfer == measurements.transfer)
    return quickest(point for point in points if point.rung and point.rung.precision == rung.precision and hot(point))


def peer_time(frontier: Frontier | None, rung: Rung, point: Measured) -> float | None:
    """cuDNN's time in its faster layout, of the run that has the rung's."""
    contract = next((candidate for candidate in CONTRACTS if candidate.kept_by(rung)), None)
    file = point.run.name.partition("/")[0]
    source = (
        next((source for source in frontier.sources if source.file.removesuffix(".jsonl") == file), None)
        if frontier
        else None
    )
    if not contract or not source or point.workload != WORKLOAD:
        return None
    return hot(source.faster(contract, point.layer, point.N))


def verdict(rung: Rung, rows: list[Standing], best: list[str]) -> str:
    """What the figure shows."""
    if len(best) == len(rows):
        return f"the fastest {rung.precision} rung on every layer that it takes"
    if best:
        numbers = ", ".join(label.removeprefix("layer ") for label in best)
        return f"the fastest {rung.precision} rung on layer{'s' if len(best) > 1 else ''} {numbers}"
    slower = [faster(row.best / row.own.median) for row in sorted(rows, key=lambda row: row.own.median / row.best)]
    span = slower[0] if slower[0] == slower[-1] else f"{slower[0].removesuffix(' slower')} to {slower[-1]}"
    return f"{span} than the fastest {rung.precision} rungs"
