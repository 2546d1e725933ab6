"""The same work under each transfer."""

from collections.abc import Sequence
from functools import partial

from alexconv.planning.transfers import TRANSFERS, transfer_named
from alexconv.reports import charts
from alexconv.reports.charts import DIRECTIONS, Stack
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import (
    COPIES,
    Measured,
    Measurements,
    sum_or_none,
)
from alexconv.reports.published import Series
from alexconv.reports.style import look

MS = 1000  # in a second


def section(measurements: Measurements, workload: str) -> Section:
    """Transfers of a workload."""
    return Section(
        "transfers",
        "Host-device transfers",
        "The copies' share of the total under each transfer. With unified memory the kernel's time "
        "includes page migration; with several streams copies and kernels overlap, and only the total is "
        "timed that way. The floor is the bytes of all arrays over the bus's measured rates, if recorded.",
        transfers(measurements, workload),
    )


def transfers(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Every rung with several transfers, at the largest batch with most of them; from one run if one has them all."""
    points = measurements.of(workload)
    by_rung: dict[tuple[str, int], set[str]] = {}
    for point in points:
        by_rung.setdefault((point.series.rung, point.N), set()).add(point.series.transfer)
    compared = {key: names for key, names in by_rung.items() if len(names) > 2}
    if not compared:
        compared = {key: names for key, names in by_rung.items() if len(names) > 1}
    measurements = measurements.of_one_run(
        lambda point: point.workload == workload and not point.changed and (point.series.rung, point.N) in compared
    )
    chosen = measurements.of(workload)
    rows = [row for point in chosen if (row := transfer_row(measurements, point))]
    if not rows:
        return []
    N = max(N for _, N in compared)
    layers = sorted({point.layer for point in chosen if point.N == N})
    bars = [
        transfer_bar(measurements, workload, layers, N, Series(rung, name))
        for rung in dict.fromkeys(rung for rung, batch in compared if batch == N)
        for name in sorted(compared[rung, N], key=transfer_place)
    ]
    bars = [bar for bar in bars if bar.total]
    title = f"{workload}: the same work under each transfer, layers {', '.join(map(str, layers))}, N={N}"
    runs = measurements.footnote(of=COPIES)
    caption = f"Log axis. Where copies overlap kernels (streams) the total is shorter than both added up. {runs}"
    plot = Plot(f"{workload}-transfers", title, caption, partial(charts.breakdown, bars, "ms per batch"))
    columns = (
        "layer",
        "N",
        "rung",
        "transfer",
        "kernel (ms)",
        "to device (ms)",
        "back (ms)",
        "total (ms)",
        "copies, % of total",
        "outside kernels, % of total",
        "floor of the copies (ms)",
    )
    table = Table(f"{workload}-transfers-table", f"{workload}: transfers", f"Medians. {runs}", columns, rows)
    return [*([plot] if bars else []), table]


def transfer_place(name: str) -> tuple[int, str]:
    """Where a transfer stands among the others, whatever its number of streams."""
    return list(TRANSFERS).index(transfer_named(name).kind), name


def transfer_row(measurements: Measurements, point: Measured) -> tuple[Cell, ...] | None:
    """A point's times and shares; None without a total."""
    kernel, h2d, d2h, copies, total = map(point.median, ("kernel", *DIRECTIONS, "copies", "total"))
    if total is None:
        return None
    shares = [100 * copies / total if copies is not None else None]
    shares.append(100 * max(total - kernel, 0.0) / total if kernel is not None else None)
    floor = copy_floor(measurements, point)
    return point.layer, point.N, point.series.rung, point.series.transfer, kernel, h2d, d2h, total, *shares, floor


def copy_floor(measurements: Measurements, point: Measured) -> float | None:
    """Least time of both copies in ms, from the bus's measured rates."""
    ceilings = measurements.ceilings
    if not ceilings or not ceilings.get("h2d_bytes_per_s") or not ceilings.get("d2h_bytes_per_s"):
        return None
    back = point.N * point.conv.M * point.conv.E * point.conv.F * point.itemsize
    there = point.compulsory_bytes - back
    return float(MS * (there / ceilings["h2d_bytes_per_s"] + back / ceilings["d2h_bytes_per_s"]))


def transfer_bar(measurements: Measurements, workload: str, layers: Sequence[int], N: int, series: Series) -> Stack:
    """The sum over the layers that were measured, for one rung under one transfer."""
    points = [point for layer in layers if (point := measurements.find(workload, layer, N, series))]
    complete = len(points) == len(layers)

    def total(figure: str) -> float | None:
        return sum_or_none([point.median(figure) for point in points]) if complete else None

    kernel, whole = total("kernel"), total("total")
    copies = {name: value for name in DIRECTIONS if (value := total(name)) is not None}
    floor = sum_or_none([copy_floor(measurements, point) for point in points]) if complete else None
    bar = charts.one(kernel) if kernel is not None else None
    return Stack(
        f"{series.rung}, {series.transfer}", look(series.rung, measurements.ladder), bar, copies, whole, floor=floor
    )
