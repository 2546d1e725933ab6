"""Time per image against the batch."""

from collections.abc import Mapping, Sequence
from functools import partial

from alexconv.kernels.ladder import Ladder
from alexconv.kernels.rung import Rung
from alexconv.records.statistics import Summary
from alexconv.reports import charts, findings
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import Line, one
from alexconv.reports.comparison import CONTRACTS, LAYERS, Frontier
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import COPIES, Measurements, footnote, kernels_alone, place
from alexconv.reports.published import Series
from alexconv.reports.slices import label as label_of
from alexconv.reports.slices import slices, title_of
from alexconv.reports.style import look

MOST_LINES = 6  # highlighted in a figure
SHOWN_BESTS = CONTRACTS[0], CONTRACTS[-1]  # of the classes, the strictest and the fastest
FIGURES = (("kernels", "kernel"), ("kernels and copies", "total"))


def section(measurements: Measurements, workload: str, frontier: Frontier | None) -> Section:
    """A workload that was measured at several batch sizes."""
    return Section(
        "batches",
        "Time per image",
        "Once the GPU is full, cost per image hardly depends on the batch with most rungs; below that, larger batches "
        "usually cost less per image.",
        per_image(measurements, workload, frontier),
    )


def per_image(measurements: Measurements, workload: str, frontier: Frontier | None) -> list[Table | Plot]:
    """Time per image against the batch, all layers if all were measured: the kernels alone, and with the copies."""
    batches = measurements.batches(workload)
    if len(batches) < 2:
        return []
    layer = slices(measurements, workload)[-1]
    measurements = measurements.of_one_run(
        lambda point: point.workload == workload and not point.changed and kernels_alone(point.series.transfer)
    )
    rungs = {point.series.rung: point.rung for point in measurements.of(workload)}
    names = sorted(rungs, key=lambda name: place(Series(name), rungs[name]))
    usual = measurements.transfer
    others = sorted({point.series.transfer for point in measurements.of(workload)} - {usual})

    def time(name: str, N: int, figure: str) -> Summary | None:
        """Kernel time under any transfer, the usual one first; with the copies, under the usual one alone."""
        known = (
            measurements.time(workload, layer, N, Series(name, transfer), figure)
            for transfer in (usual, *(others if figure == "kernel" else ()))
        )
        return next((per_batch(summary, N) for summary in known if summary), None)

    def line(name: str, figure: str) -> Line:
        times = [time(name, N, figure) for N in batches]
        style = look(name, measurements.ladder)
        return Line(title_of(Series(name)), style, batches, times, quiet=name not in highlighted)

    of_layers = bests(frontier, workload, batches, measurements.ladder) if layer is None else []
    times = {(name, N): time(name, N, "kernel") for name in names for N in batches}
    room = MOST_LINES - sum(not curve.quiet for curve in of_layers)
    highlighted = foremost(times, rungs, alone=not of_layers)[:room]
    panels = [(name, [line(rung_name, figure) for rung_name in names]) for name, figure in FIGURES]
    panels[0][1].extend(of_layers)
    rows: list[tuple[Cell, ...]] = [
        (label, *(value.median if value else None for _, drawn in panels for value in values_of(drawn, label, batches)))
        for label in dict.fromkeys(curve.label for _, drawn in panels for curve in drawn)
    ]
    columns = ("rung", *(f"{name}, N={N}" for name, _ in FIGURES for N in batches))
    name = f"{workload}, time per image against the batch, {label_of(layer)}"
    title = findings.titled(name, findings.batching(panels[0][1]))
    runs = footnote(measurements.of(workload), of=COPIES)
    elsewhere = f" Kernels under {', '.join(others)} copies where there is no point under {usual}." if others else ""
    file = frontier.scaling.file if frontier and frontier.scaling and len(rows) > len(names) else ""
    source = f" Best of each layer: from `{file}`." if file else ""
    note = f"{elsewhere}{source} {runs}"
    caption = f"Medians; log axes. The rungs in grey are in the table.{note}"
    return [
        Plot(f"{workload}-per-image", title, caption, partial(charts.lines, panels, "ms per image")),
        Table(f"{workload}-per-image-table", f"{name} (ms)", f"Medians.{note}", columns, rows),
    ]


def per_batch(time: Summary, N: int) -> Summary:
    """A batch's time as one image's."""
    return Summary(time.median / N, time.low / N, time.high / N, time.count)


def values_of(drawn: Sequence[Line], label: str, batches: Sequence[int]) -> Sequence[Summary | None]:
    """The values of the line with a label; none where a panel lacks it."""
    return next((line.ours for line in drawn if line.label == label), [None] * len(batches))


def bests(frontier: Frontier | None, workload: str, batches: Sequence[int], ladder: Ladder) -> list[Line]:
    """A line for each class: the fastest rung of every layer, from the run of larger batches."""
    source = frontier.scaling if frontier and workload == WORKLOAD else None
    lines: list[Line] = []
    for contract in CONTRACTS if source else ():
        assert source
        times = [source.sum_of(contract, N) for N in batches]
        point = source.best(contract, LAYERS[-1], max(source.batches()))
        if any(times) and point:
            values = [None if ms is None else one(ms / N) for ms, N in zip(times, batches, strict=True)]
            quiet = contract not in SHOWN_BESTS
            style = look(point.series.rung, ladder)
            lines.append(Line(f"best of each layer, {contract.name}", style, batches, values, quiet=quiet))
    return lines


def foremost(
    times: Mapping[tuple[str, int], Summary | None], rungs: Mapping[str, Rung | None], *, alone: bool
) -> list[str]:
    """The first rung, cuDNN's classes, and with ``alone`` the fastest of each class timed at two batch sizes."""
    names = list(dict.fromkeys(name for name, _ in times))
    chosen = [names[0], *(name for name in dict.fromkeys(contract.peer for contract in CONTRACTS) if name in names)]
    for contract in CONTRACTS if alone else ():
        fastest: list[tuple[float, str]] = []
        for name in names:
            known = [time.median for (rung_name, _), time in times.items() if rung_name == name and time]
            rung = rungs[name]
            if rung and rung.precision == contract.name and len(known) > 1:
                fastest.append((min(known), name))
        chosen += [min(fastest)[1]] if fastest else []
    return list(dict.fromkeys(chosen))
