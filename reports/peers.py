"""Our rungs beside cuDNN and cuBLAS."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.records.statistics import Summary, faster
from alexconv.reports import charts, findings
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import Dot, Duel
from alexconv.reports.comparison import (
    CONTRACTS,
    LAYERS,
    MANY,
    Contract,
    Frontier,
    Source,
    hot,
    speed,
    speed_interval,
    times_over,
    total,
)
from alexconv.reports.elements import Cell, Plot, Section, Table, shown
from alexconv.reports.frontier import class_table, summary_table
from alexconv.reports.measurements import (
    KERNELS,
    Measured,
    Measurements,
    layer_numbers,
    sum_or_none,
)
from alexconv.reports.published import Series
from alexconv.reports.slices import label, slices, title_of
from alexconv.reports.style import look

Times = Mapping[tuple[int | None, Series], Summary | None]  # of a kernel, by layer and series


def headline(measurements: Measurements, frontier: Frontier | None) -> str:
    """The report's result: the naive rung's time and the fastest rungs', beside cuDNN's where it was timed."""
    if WORKLOAD not in measurements.workloads or not measurements.timed:
        return ""
    source, first = frontier.many if frontier else None, LADDER[0].name
    N = MANY if source else measurements.main_batch(WORKLOAD)
    naive = measurements.time(WORKLOAD, None, N, Series(first, measurements.transfer), "kernel")
    parts = [f"{shown(naive.median)} ms with `{first}`, the naive kernel"] if naive else []
    for contract in CONTRACTS:
        ms = source.sum_of(contract, N) if source else sum_or_none(fastest_of_layers(measurements, contract, N))
        peer = total(source.faster(contract, layer, N) for layer in LAYERS) if source else None
        beside = f" ({faster(peer / ms)} than cuDNN)" if ms and peer else ""
        parts += [f"{shown(ms)} ms with the fastest {contract.name} rungs{beside}"] if ms else []
    file = Path(source.file).stem if source else ""
    runs = [run for run in measurements.runs if run.name.partition("/")[0] == file] or measurements.runs[:1]
    start = measurements.find(WORKLOAD, LAYERS[0], N, Series(first, measurements.transfer))
    elsewhere = f"; `{first}`: {start.run.text}" if start and start.run not in runs[:1] else ""
    subject = f"AlexNet's {len(LAYERS)} convolution layers, N={N}, kernel time"
    return f"{subject}: {'; '.join(parts)}. Run: {runs[0].text}{elsewhere}." if parts and runs else ""


def fastest_of_layers(measurements: Measurements, contract: Contract, N: int) -> list[float | None]:
    """The shortest time of each layer of a class, in ms."""
    points = [
        point for point in measurements.of(WORKLOAD) if point.N == N and point.rung and contract.kept_by(point.rung)
    ]
    times = [[ms for point in points if point.layer == layer and (ms := hot(point))] for layer in LAYERS]
    return [min(layer_times, default=None) for layer_times in times]


def section(measurements: Measurements, workload: str, frontier: Frontier | None) -> Section:
    """Figures and tables of a workload with peers."""
    return Section(
        "peers",
        "Compared with cuDNN and cuBLAS",
        "Peers are cuDNN's convolution and cuBLAS's matrix product, called through torch in the same run, with the "
        "same data, and checked and timed like the rungs. The engine is the one that cuDNN's benchmark finds "
        "fastest. Ours is the fastest rung of each layer, with its fastest constants.",
        peers(measurements, workload, frontier),
    )


def peers(measurements: Measurements, workload: str, frontier: Frontier | None) -> list[Table | Plot]:
    """Our fastest rung of each layer and class beside cuDNN, then every peer beside the ladder."""
    source = frontier.many if frontier and workload == WORKLOAD else None
    items: list[Table | Plot] = []
    if frontier and source:
        panels = [(contract.title, duels(source, contract, measurements.ladder)) for contract in CONTRACTS]
        name = f"{workload}, the fastest rung of each layer and cuDNN, N={MANY}"
        title = findings.titled(name, findings.duels_won(panels))
        caption = "Right margin: our time, and how many times faster than cuDNN in the class's own layout."
        classes = (class_table(frontier, contract) for contract in CONTRACTS)
        items = [
            *(table for table in (summary_table(frontier),) if table),
            Plot(f"{workload}-cudnn", title, caption, partial(charts.duels, panels, "kernel time (ms per batch)")),
            *(table for table in classes if table),
        ]
    return [*items, *every_peer(measurements, workload)]


def duels(source: Source, contract: Contract, ladder: Ladder) -> list[Duel]:
    """Ours and cuDNN's times of each layer and their sum."""
    rows = []
    for layer in LAYERS:
        point = source.best(contract, layer, MANY)
        theirs = {name: hot(source.named(name, layer, MANY)) for name in contract.peers}
        rung = point.series.rung if point else ""
        rows.append(Duel(f"layer {layer}, {rung}", look(rung, ladder), hot(point), theirs, contract.peer))
    whole = {name: source.named_sum(name, MANY) for name in contract.peers}
    return [*rows, Duel("all layers", rows[-1].look, source.sum_of(contract, MANY), whole, contract.peer)]


def every_peer(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """The leading rungs beside every peer, layer by layer."""
    N = measurements.main_batch(workload)
    series = [entry for entry in measurements.series(workload, N) if entry.transfer == measurements.transfer]
    others = [entry for entry in series if measurements.rung(entry) is None]
    if not others:
        return []
    layers = slices(measurements, workload)
    times = {
        (layer, entry): measurements.time(workload, layer, N, entry, "kernel") for layer in layers for entry in series
    }
    shown_ones = {*leaders(measurements, times), *others}
    panels = [
        (
            label(layer),
            [
                Dot(title_of(entry), look(entry.rung, measurements.ladder), times[layer, entry])
                for entry in series
                if entry in shown_ones
            ],
        )
        for layer in layers
    ]
    runs = measurements.footnote(shown_ones, workload, N, of=KERNELS)
    items: list[Table | Plot] = []
    for first in range(0, len(panels), 3):
        key = f"{workload}-peers-{first // 3 + 1}"
        drawn = panels[first : first + 3]
        name = f"{workload}, leading rungs and peers, {drawn[0][0]} to {drawn[-1][0]}, N={N}"
        title = findings.titled(name, findings.by_panel(drawn))
        draw = partial(charts.dots, drawn, "ms per batch")
        caption = (
            "Rungs that are the fastest of their family and precision in some layer; peers in black. Left is faster. "
            + runs
        )
        items.append(Plot(key, title, caption, draw))
    rows = [
        row for layer in layers for peer in others if (row := peer_row(measurements, workload, layer, N, peer, times))
    ]
    caption = f"The rows of all layers have one rung for all of them. {runs}"
    table = Table(f"{workload}-peers-table", f"{workload}: every peer, N={N}", caption, PEER_COLUMNS, rows)
    return [*items, table]


PEER_COLUMNS = (
    *("layer", "peer", "its name in the records", "peer (ms)"),
    *("fastest rung, same precision", "rung (ms)", "rung than peer", "95 %"),
)


def peer_row(
    measurements: Measurements, workload: str, layer: int | None, N: int, peer: Series, times: Times
) -> tuple[Cell, ...] | None:
    """A peer's time beside that of the fastest rung of its precision; None without a time."""
    time, precision = times[layer, peer], precision_of(measurements, workload, peer)
    if not time:
        return None
    rivals = [
        (own.median, rival)
        for (at, rival), own in times.items()
        if at == layer and own and measurements.rung(rival) and precision_of(measurements, workload, rival) == precision
    ]
    ms, rival = min(rivals, key=lambda pair: (pair[0], pair[1].rung), default=(None, None))
    beside = points_of(measurements, workload, layer, N, rival)
    ratio = times_over(beside, points_of(measurements, workload, layer, N, peer))
    ratios = speed(ms, time.median), speed_interval(ratio) if rival else None
    return label(layer), title_of(peer), peer.rung, time.median, rival.rung if rival else None, ms, *ratios


def points_of(
    measurements: Measurements, workload: str, layer: int | None, N: int, series: Series | None
) -> list[Measured | None]:
    """A series' point of a layer, or of all layers; none without a series."""
    layers = layer_numbers(workload) if layer is None else [layer]
    return [measurements.find(workload, number, N, series) for number in layers] if series else []


def leaders(measurements: Measurements, times: Times) -> set[Series]:
    """The rungs that are the fastest of their family and precision in some layer."""
    fastest: dict[tuple[int | None, str, str], tuple[float, Series]] = {}
    for (layer, series), time in times.items():
        rung = measurements.rung(series)
        if rung and time:
            key = layer, rung.family, rung.precision
            fastest[key] = min(fastest.get(key, (time.median, series)), (time.median, series))
    return {series for _, series in fastest.values()}


def precision_of(measurements: Measurements, workload: str, series: Series) -> str:
    """The precision of a series' points."""
    return next(point.precision for point in measurements.of(workload) if point.series == series)
