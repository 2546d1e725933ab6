"""The same points in every run that has them, in the order in which they were measured."""

from collections import Counter, defaultdict
from functools import partial

from alexconv.records.statistics import Summary
from alexconv.reports import charts
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import Line
from alexconv.reports.comparison import CONTRACTS, Frontier, peer_title
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import SHORT, Measured, Measurements, Run, added, kernels_alone, layer_numbers, place
from alexconv.reports.published import Series
from alexconv.reports.slices import title_of
from alexconv.reports.style import look

MOST_LINES = 6
DATE = 10  # characters of a record's time
Times = dict[tuple[Series, int], dict[Run, Summary]]  # of all layers, by series and batch


def section(measurements: Measurements, frontier: Frontier | None) -> Section:
    """Times of all AlexNet's layers by run, of rungs and peers that several runs have."""
    times, days = times_of_runs(measurements)
    rows: list[tuple[Cell, ...]] = []

    def where(key: tuple[Series, int]) -> tuple[object, ...]:
        series, N = key
        return place(series, measurements.rung(series)), N

    for series, N in sorted(times, key=where):
        of_runs = times[series, N]
        ordered = sorted(of_runs, key=lambda run: days[run])
        first = of_runs[ordered[0]].median
        for run in ordered if len(ordered) > 1 else ():
            ms = of_runs[run].median
            cells = title_of(series), series.transfer, N, days[run][:DATE], run.commit[:SHORT], run.card, run.name
            rows.append((*cells, ms, ms / first))
    columns = ("rung", "transfer", "N", "day", "commit", "card", "run", "all layers, ms", "over its first run")
    caption = "Sums of the layers' medians, each of one run. Cards of a kind differ by a few percent."
    table = Table("history", "Every run", caption, columns, rows, True, filters=("rung", "N", "transfer"))
    text = "The same points at earlier commits and on other cards."
    return Section("history", "History", text, [*figure(measurements, times, days, frontier), table] if rows else [])


def times_of_runs(measurements: Measurements) -> tuple[Times, dict[Run, str]]:
    """Kernel times of all layers by series, batch and run, and when each run began."""
    points: dict[tuple[Series, int, Run], dict[int, Measured]] = defaultdict(dict)
    days: dict[Run, str] = {}
    for point in measurements.every:
        if point.workload == WORKLOAD and not point.changed and kernels_alone(point.series.transfer):
            points[point.series, point.N, point.run][point.layer] = point
            when = str(point.record.get("time") or "")
            days[point.run] = min(days.get(point.run, when), when)
    times: Times = defaultdict(dict)
    for (series, N, run), layers in points.items():
        if set(layers) == set(layer_numbers(WORKLOAD)):
            whole = added(layers[number].time("kernel") for number in sorted(layers))
            if whole:
                times[series, N][run] = whole
    return times, days


def figure(
    measurements: Measurements, times: Times, days: dict[Run, str], frontier: Frontier | None
) -> list[Table | Plot]:
    """cuDNN's classes and the rungs that most runs have, each over its first run."""
    peers = {contract.peer for contract in CONTRACTS} if frontier else set()
    several = {key: runs for key, runs in times.items() if len(runs) > 1 and key[0].transfer == "pageable"}
    counts: Counter[int] = Counter()
    for (_, N), of_runs in several.items():
        counts[N] += len(of_runs)
    N = max(counts, key=lambda N: counts[N], default=0)

    def rank(series: Series) -> tuple[bool, bool, int, object]:
        """cuDNN's classes first, then the rungs that most runs have."""
        rung = measurements.rung(series)
        return series.rung not in peers, rung is None, -len(several[series, N]), place(series, rung)

    names = sorted((series for series, n in several if n == N), key=rank)
    chosen = names[:MOST_LINES]
    runs = sorted({run for series in chosen for run in several[series, N]}, key=lambda run: days[run])
    if not chosen:
        return []
    lines = []
    for series in chosen:
        of_runs = several[series, N]
        first = of_runs[min(of_runs, key=lambda run: days[run])].median
        values = [
            Summary(time.median / first, time.low / first, time.high / first, time.count)
            if (time := of_runs.get(run))
            else None
            for run in runs
        ]
        label = peer_title(series.rung) if series.rung in peers else series.label
        lines.append(Line(label, look(series.rung, measurements.ladder), range(1, len(runs) + 1), values))
    legend = "; ".join(f"{number}: {run.text}" for number, run in enumerate(runs, start=1))
    caption = f"Kernel time of all layers over the first run's. Runs: {legend}."
    title = f"{WORKLOAD}: the same points in {len(runs)} runs, N={N}"
    return [Plot("history-figure", title, caption, partial(charts.history, lines), wide=True)]
