"""The ladder step by step: figures of all rungs, and each rung's gain over its parent."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module

from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.rung import Rung
from alexconv.records.statistics import Summary
from alexconv.reports import charts, findings, published
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import Level, Step
from alexconv.reports.comparison import (
    CONTRACTS,
    LAYERS,
    MANY,
    Frontier,
    largest,
    peer_title,
)
from alexconv.reports.elements import Cell, Faster, Plot, Section, Table
from alexconv.reports.measurements import (
    KERNELS,
    Measurements,
    added,
    at_study_batch,
    layer_numbers,
    sum_or_none,
)
from alexconv.reports.published import Series
from alexconv.reports.slices import label, slices, title_of
from alexconv.reports.style import look
from alexconv.shapes import WORKLOADS

LEAST_RUNGS = 6  # of a ladder worth drawing


def section(measurements: Measurements, workload: str, frontier: Frontier | None) -> Section:
    """Figures and tables of a workload."""
    return Section(
        "ladder",
        "The ladder, step by step",
        "Kernel times. Each rung starts from its parent's time: a bar to the left is a gain.",
        ladder(measurements, workload, frontier),
    )


def ladder(measurements: Measurements, workload: str, frontier: Frontier | None) -> list[Table | Plot]:
    """The whole ladder and its waterfall, all layers (or the last, if some are missing), and a table of gains."""
    N = ladder_batch(measurements, workload)
    layers = slices(measurements, workload)
    items: list[Table | Plot] = []
    for layer in layers[-1:]:
        climbed = steps(measurements, workload, layer, N)
        if climbed:
            lines, bests = comparisons(frontier, workload, N, ladder=measurements.ladder) if layer is None else ([], [])
            unit = "kernel time (ms per batch)"
            runs = measurements.footnote(
                [Series(step.rung, measurements.transfer) for step in climbed], workload, N, of=KERNELS
            )
            name = f"{workload}, the ladder, {label(layer)}, N={N}"
            title = findings.titled(name, findings.climb(climbed))
            caption = (
                "Rungs in ladder order, a band and colour for each family; the figure is the family's shortest time "
                "in ms; grey line: best so far."
            )
            draw = partial(charts.ladder, climbed, unit, lines, bests)
            if len(climbed) >= LEAST_RUNGS:
                text = f"{caption}{partly_text(climbed)} {runs}"
                items.append(Plot(f"{workload}-ladder", title, text, draw, wide=True))
            title = findings.titled(f"{workload}, from rung to rung, {label(layer)}, N={N}", findings.leap(climbed))
            caption = (
                "Right margin: the rung's time, and its gain over its parent, both from one run as in the table of "
                "gains. The parent's mark is the rung's time multiplied by the gain."
            )
            draw = partial(charts.waterfall, climbed, unit, lines, bests)
            if len(climbed) >= LEAST_RUNGS:
                items.append(Plot(f"{workload}-waterfall", title, f"{caption}{partly_text(climbed)} {runs}", draw))
    tables = (ladder_table(measurements, workload), gains_table(measurements, workload))
    return [*items, *(table for table in tables if table.rows)]


def family_technique(family: str) -> str:
    """What a family's rungs do: the first line of its package's docstring, without the full stop; empty for others."""
    if family not in {rung.family for rung in LADDER}:
        return ""
    return (import_module(f"alexconv.kernels.{family}").__doc__ or "").removesuffix(".")


def ladder_batch(measurements: Measurements, workload: str) -> int:
    """The batch size at which most rungs and their parents were measured; of several the usual one, or the largest."""
    usual = measurements.main_batch(workload)
    counts = {N: len(gain_rows(measurements, workload, N)) for N in measurements.batches(workload)}
    return max(counts, key=lambda N: (counts[N], usual == N, N), default=usual)


def gains_table(measurements: Measurements, workload: str) -> Table:
    """Each rung's gain over its parent by layer."""
    N = ladder_batch(measurements, workload)
    layers = slices(measurements, workload)
    columns = ("rung", "parent", "what changed", *(label(layer) for layer in layers), "measured")
    title = f"{workload}: each rung against its parent, N={N}"
    caption = "Kernel times, both of one run where any holds both, else of two runs on cards of the same kind."
    return Table(f"{workload}-gains", title, caption, columns, gain_rows(measurements, workload, N))


def gain_rows(measurements: Measurements, workload: str, N: int) -> list[tuple[Cell, ...]]:
    """Rows of the rungs whose parent was measured too, in some layer."""
    rows: list[tuple[Cell, ...]] = []
    for series in measurements.series(workload, N):
        rung = measurements.rung(series)
        if rung and rung.parent and series.transfer == measurements.transfer:
            parent, layers = Series(rung.parent, series.transfer), slices(measurements, workload)
            pairs = [gain_of(measurements, workload, layer, N, parent, series) for layer in layers]
            gains = [Faster(gain) if gain else None for gain, _ in pairs]
            if any(gains):
                together = all(same for gain, same in pairs if gain)
                rows.append((series.rung, rung.parent, rung.idea, *gains, "in one run" if together else "in two runs"))
    return rows


def gain_of(
    measurements: Measurements, workload: str, layer: int | None, N: int, parent: Series, series: Series
) -> tuple[float | None, bool]:
    """The parent's kernel time over the rung's, and whether one run has both."""
    slow, fast, same = measurements.pair(workload, layer, N, parent, series)
    return (slow.median / fast.median if slow and fast else None), same


def ladder_table(measurements: Measurements, workload: str) -> Table:
    """Rungs by batch: kernels and total of all layers in ms, speedup of the total; the largest error."""
    studied = WORKLOADS[workload].batches
    batches = [N for N in measurements.batches(workload) if N in studied] or [measurements.main_batch(workload)]
    rows: list[tuple[Cell, ...]] = []
    partly: list[str] = []
    usual = measurements.of_one_run(lambda point: point.workload == workload and at_study_batch(point))
    measurements = usual if usual.points else measurements
    listed = [series for series in measurements.series(workload) if series.transfer == measurements.transfer]
    for series in listed:
        cells: list[Cell] = []
        for N in batches:
            times = [measurements.time(workload, None, N, series, figure) for figure in ("kernel", "total")]
            speedup = measurements.speedup(workload, None, N, series)
            cells += [time.median if time else None for time in times]
            cells.append(Faster(speedup.median) if speedup else None)
        points = [point for point in measurements.of(workload) if point.series == series]
        if any(cell is not None for cell in cells):
            rows.append((title_of(series), *cells, largest(points)))
        else:
            partly.append(title_of(series))
    figures = ("kernel (ms)", "total (ms)", "than serial CPU")
    columns = ("rung", *(f"N={N}, {figure}" for N in batches for figure in figures), "max error")
    absent = f" Not listed, as they take only some layers: {', '.join(partly)}." if partly else ""
    caption = (
        f"All layers, {measurements.transfer} memory. Kernel: all kernels of the rung; total: host arrays to host "
        "arrays; medians of ms per batch. Speed: the total against one core's serial C++. Max error: over the norms of "
        f"patch and filter.{absent} {measurements.footnote(listed)}"
    )
    return Table(f"{workload}-rungs", f"{workload}: every rung, all layers", caption, columns, rows)


def partly_text(climbed: Sequence[Step]) -> str:
    """What hollow markers mean, where there are any."""
    if not any(step.partly for step in climbed):
        return ""
    return " A hollow marker: the rung takes only some of the layers, and its parent the others."


def comparisons(
    frontier: Frontier | None, workload: str, N: int, layer: int | None = None, ladder: Ladder = LADDER
) -> tuple[list[Level], list[Level]]:
    """cuDNN's times over all layers, or of one, and those of our fastest rung of each layer, class by class."""
    source = frontier.many if frontier and workload == WORKLOAD and N == MANY else None
    if source is None:
        return [], []
    layers = LAYERS if layer is None else (layer,)
    peers = dict.fromkeys(contract.peer for contract in CONTRACTS)
    lines = [Level(peer_title(name), look(name), ms) for name in peers if (ms := source.named_sum(name, N, layers))]
    bests = [
        Level(f"best of each layer, {contract.name}", look(point.series.rung, ladder), ms)
        for contract in CONTRACTS
        if layer is None and (ms := source.sum_of(contract, N)) and (point := source.best(contract, LAYERS[-1], N))
    ]
    return lines, bests


def steps(measurements: Measurements, workload: str, layer: int | None, N: int) -> list[Step]:
    """The ladder's rungs with their own kernel times, and their parents' by the gains of ``gains_table``.

    A rung that does not take all layers is shown with its parent on the others.
    """
    climbed = []
    for rung in measurements.ladder:
        series = Series(rung.name, measurements.transfer)
        own = measurements.time(workload, layer, N, series, "kernel")
        partly = own is None and layer is None
        if partly:
            own = mixed(measurements, workload, N, rung.name)
        if own:
            before = parent_time(measurements, workload, layer, N, rung, own.median)
            known = published.kernel_ms(workload, layer, N, Series(rung.name))
            climbed.append(Step(rung.name, look(rung.name, measurements.ladder), own, before, known, partly))
    return climbed


def parent_time(
    measurements: Measurements, workload: str, layer: int | None, N: int, rung: Rung, own: float
) -> float | None:
    """The parent's time: the rung's own times its gain.  A sum is by layer if either does not take all layers.

    None where no layer has both.
    """
    if rung.parent is None:
        return None
    series, parent = (Series(name, measurements.transfer) for name in (rung.name, rung.parent))
    gain, _ = gain_of(measurements, workload, layer, N, parent, series)
    if gain:
        return own * gain
    if layer is not None:
        return None
    times: list[float | None] = []
    gains: list[float | None] = []
    for number in layer_numbers(workload):
        time = measurements.time(workload, number, N, series, "kernel")
        gain, _ = gain_of(measurements, workload, number, N, parent, series)
        before = inherited(measurements, workload, number, N, rung.parent)
        gains.append(gain)
        times.append(time.median * gain if time and gain else before.median if before else None)
    return sum_or_none(times) if any(gains) else None


def mixed(measurements: Measurements, workload: str, N: int, name: str) -> Summary | None:
    """The sum over all layers of a rung's times, or of its nearest ancestor's where it has none; None without any."""
    own = [
        measurements.time(workload, layer, N, Series(name, measurements.transfer), "kernel")
        for layer in layer_numbers(workload)
    ]
    if not any(own):
        return None
    return added(inherited(measurements, workload, layer, N, name) for layer in layer_numbers(workload))


def inherited(measurements: Measurements, workload: str, layer: int, N: int, name: str | None) -> Summary | None:
    """A rung's time of a layer, or its nearest ancestor's."""
    if name is None:
        return None
    own = measurements.time(workload, layer, N, Series(name, measurements.transfer), "kernel")
    return own or inherited(measurements, workload, layer, N, measurements.ladder.named[name].parent)
