"""What the studies did not draw: the ladder as a waterfall, roofline, accuracy, peers, transfers and orderings."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from math import sqrt

from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.transfers import TRANSFERS, transfer_named
from alexconv.records.statistics import Summary
from alexconv.records.store import Record, identity
from alexconv.reports import charts, published
from alexconv.reports.charts import DIRECTIONS, Dot, Line, Mark, Stack, Step
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import Measured, Measurements, layer_numbers, sum_or_none
from alexconv.reports.published import Series
from alexconv.reports.roofline import intensity_figure

MS = 1000  # in a second
Ours = dict[Series, float]


def sections(measurements: Measurements) -> list[Section]:
    """All of them; those without items are dropped by the page."""
    if not measurements.timed:
        return []
    found = measurements.workloads
    return [
        Section(
            "ladder",
            "The ladder, step by step",
            "Each rung starts from its parent's time: a bar to the left is a gain. Times are the kernels alone.",
            [item for workload in found for item in ladder(measurements, workload)],
        ),
        Section(
            "orderings",
            "The order of the rungs, here and in the study",
            "Ranks by kernel time, then by speedup with the copies; 1 is the fastest. Kendall's tau-b is 1 for "
            "the same order and -1 for the opposite one; a reversal is a pair that one side orders the other way.",
            [item for workload in found for item in orderings(measurements, workload)],
        ),
        Section(
            "roofline",
            "Roofline",
            "Achieved arithmetic against arithmetic intensity. A multiply-add counts as two operations.",
            [item for workload in found for item in rooflines(measurements, workload)],
        ),
        Section(
            "accuracy",
            "Speed and error",
            "The error is the largest deviation from the float64 reference, divided by the norms of the input "
            "patch and the filter; each precision has its tolerance.",
            [item for workload in found for item in accuracy(measurements, workload)],
        ),
        Section(
            "peers",
            "Rungs and peers",
            "Peers are other people's implementations, timed in the same way.",
            [item for workload in found for item in peers(measurements, workload)],
        ),
        Section(
            "transfers",
            "How the arrays travel",
            "What share of the total the copies take under each transfer. With unified memory the kernel's time "
            "includes the pages that it moves; with several streams copies and kernels overlap, so that only the total "
            "is theirs alone. The floor is the bytes of all arrays over the bus's measured rates, if recorded.",
            [item for workload in found for item in transfers(measurements, workload)],
        ),
        Section(
            "batches",
            "Time per image",
            "A GPU that is full takes the same time for every image; below that, larger batches are cheaper.",
            [item for workload in found for item in per_image(measurements, workload)],
        ),
    ]


def label(layer: int | None) -> str:
    """A layer, or all of them, in words."""
    return "all layers" if layer is None else f"layer {layer}"


def slices(measurements: Measurements, workload: str, *, overall: bool = True) -> list[int | None]:
    """The layers there are, and None for their sum if they are all there."""
    layers: list[int | None] = [*measurements.layers(workload)]
    return [*layers, None] if overall and layers == list(layer_numbers(workload)) else layers


# The ladder


def ladder(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """The waterfall of all layers (or of each, if some are missing), and a table of gains by layer."""
    N = measurements.main_batch(workload)
    items: list[Table | Plot] = []
    for layer in slices(measurements, workload)[-1:]:
        found = steps(measurements, workload, layer, N)
        if found:
            title = f"{workload}: from rung to rung, {label(layer)}, N={N}"
            draw = partial(charts.waterfall, found, "kernel time (ms per batch)")
            caption = "Right margin: the rung's time, and how many times faster than its parent it is."
            items.append(Plot(f"{workload}-waterfall", title, caption, draw))
    layers = slices(measurements, workload)
    rows: list[tuple[Cell, ...]] = []
    for series in measurements.series(workload, N):
        rung = RUNGS.get(series.rung)
        if rung and rung.parent and series.transfer == measurements.transfer:
            parent = Series(rung.parent, series.transfer)
            gains = [ratio(measurements, workload, layer, N, parent, series) for layer in layers]
            rows.append((series.rung, rung.parent, rung.idea, *gains))
    columns = ("rung", "parent", "what changed", *(label(layer) for layer in layers))
    table = Table(
        f"{workload}-gains",
        f"{workload}: gain of each rung over its parent, N={N} (×)",
        "Parent's kernel time over the rung's: above 1 is a gain.",
        columns,
        rows,
    )
    return [*items, table] if rows else items


def steps(measurements: Measurements, workload: str, layer: int | None, N: int) -> list[Step]:
    """The ladder's rungs with their own and their parents' kernel times."""
    found = []
    for rung in RUNGS.values():
        series = Series(rung.name, measurements.transfer)
        own = measurements.time(workload, layer, N, series, "kernel")
        parent = rung.parent and measurements.time(
            workload, layer, N, Series(rung.parent, measurements.transfer), "kernel"
        )
        if own:
            known = published.kernel_ms(workload, layer, N, Series(rung.name))
            found.append(Step(rung.name, own, parent.median if parent else None, known))
    return found


def ratio(
    measurements: Measurements, workload: str, layer: int | None, N: int, slow: Series, fast: Series
) -> float | None:
    """How many times less time the second series takes."""
    times = [measurements.time(workload, layer, N, series, "kernel") for series in (slow, fast)]
    return times[0].median / times[1].median if times[0] and times[1] else None


# Orderings


def orderings(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Ranks by layer, ours and the study's, and how far they agree."""
    N = measurements.main_batch(workload)
    items: list[Table | Plot] = []
    for what in ("kernel time", "speedup"):
        ranked: dict[int | None, tuple[Ours, Ours]] = {}
        for layer in slices(measurements, workload):
            ours, theirs = comparable(measurements, workload, layer, N, what)
            if len(ours) > 1:
                ranked[layer] = ours, theirs
        if ranked:
            key = f"{workload}-order-{what.split()[0]}"
            items += [
                rank_table(key, f"{workload}: order by {what}, N={N}", ranked, measurements),
                agreement(key, what, ranked),
            ]
    return items


def comparable(measurements: Measurements, workload: str, layer: int | None, N: int, what: str) -> tuple[Ours, Ours]:
    """Costs of the series that both sides have: smaller is better."""
    ours: Ours = {}
    theirs: Ours = {}
    for series in measurements.series(workload, N):
        if what == "speedup":
            own, known = measurements.speedup(workload, layer, N, series), published.speedup(workload, layer, N, series)
            costs = (1 / own.median if own else None), (1 / known if known else None)
        else:
            own = measurements.time(workload, layer, N, series, "kernel")
            costs = (own.median if own else None), published.kernel_ms(workload, layer, N, series)
        if costs[0] is not None and costs[1] is not None:
            ours[series], theirs[series] = costs[0], costs[1]
    return ours, theirs


def rank_table(key: str, title: str, ranked: dict[int | None, tuple[Ours, Ours]], measurements: Measurements) -> Table:
    """Rank here and rank published, for each layer and in all."""
    every = {series: None for ours, _ in ranked.values() for series in ours}
    rows: list[tuple[Cell, ...]] = []
    for series in every:
        cells = [cell for pair in ranked.values() for cell in (rank(side, series) for side in pair)]
        rows.append((series.label, *cells))
    columns = ("rung", *(f"{label(layer)}, {who}" for layer in ranked for who in ("here", "study")))
    caption = f"Here: {measurements.device['name']}. Equal figures share a rank."
    return Table(key, title, caption, columns, rows)


def rank(costs: Ours, series: Series) -> int | None:
    """1 for the smallest cost; equal ones share a rank."""
    return None if series not in costs else 1 + sum(cost < costs[series] for cost in costs.values())


def agreement(key: str, what: str, ranked: dict[int | None, tuple[Ours, Ours]]) -> Table:
    """Kendall's tau and every reversed pair."""
    rows = []
    for layer, (ours, theirs) in ranked.items():
        swapped = [f"{fast} before {slow}" for fast, slow in reversals(ours, theirs)]
        rows.append((label(layer), len(ours), kendall_tau(ours, theirs), len(swapped), "; ".join(swapped) or "none"))
    columns = ("layer", "rungs", "Kendall's tau-b", "reversals", "here, against the study's order")
    return Table(f"{key}-agreement", f"Agreement of the orders by {what}", "", columns, rows)


def signs(ours: Ours, theirs: Ours) -> Iterator[tuple[Series, Series, int, int]]:
    """Every pair, the side it falls on in either order: -1 first is faster, 0 tie, 1 second is faster."""
    for first, second in combinations(ours, 2):
        pair = [(side[first] > side[second]) - (side[first] < side[second]) for side in (ours, theirs)]
        yield first, second, pair[0], pair[1]


def kendall_tau(ours: Ours, theirs: Ours) -> float | None:
    """Kendall's tau-b, which allows for ties; None if one side is all ties.  (Kendall, Biometrika 33, 1945.)"""
    found = [(a, b) for _, _, a, b in signs(ours, theirs)]
    untied = [sum(pair[side] != 0 for pair in found) for side in (0, 1)]
    return sum(a * b for a, b in found) / sqrt(untied[0] * untied[1]) if all(untied) else None


def reversals(ours: Ours, theirs: Ours) -> list[tuple[str, str]]:
    """Pairs that are faster and slower here, and the other way in the study."""
    return [
        (first.label, second.label) if here < 0 else (second.label, first.label)
        for first, second, here, there in signs(ours, theirs)
        if here * there < 0
    ]


# Roofline


def rooflines(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """With compulsory bytes, and with measured ones where there are profiles; the figures as a table."""
    N = measurements.main_batch(workload)
    points = [
        point for point in measurements.of(workload) if point.N == N and point.series.transfer == measurements.transfer
    ]
    points = [point for point in points if point.median("kernel")]
    if not points:
        return []
    least = [float(point.compulsory_bytes) for point in points]
    measured = measured_bytes(measurements)
    ceilings = measurements.ceilings
    known = "Lines: ceilings measured on this GPU." if ceilings else "No ceilings were measured for this GPU."
    items: list[Table | Plot] = [
        Plot(
            f"{workload}-roofline",
            f"{workload}: roofline with compulsory bytes, N={N}",
            f"Bytes: input, filters and output once: rungs of one layer and precision are above each other. {known}",
            partial(intensity_figure, points, least, ceilings),
        )
    ]
    profiled = [point for point in points if point.name in measured]
    if profiled:
        title = f"{workload}: roofline with measured DRAM bytes, N={N}"
        draw = partial(intensity_figure, profiled, [measured[point.name] for point in profiled], ceilings)
        items.append(
            Plot(f"{workload}-roofline-dram", title, f"Bytes: DRAM traffic that Nsight Compute counted. {known}", draw)
        )
    rows = [roofline_row(point, measured.get(point.name), ceilings) for point in points]
    columns = (
        "layer",
        "rung",
        "kernel (ms)",
        "TFLOP/s",
        "compulsory MB",
        "FLOP/byte",
        "measured MB",
        "FLOP/byte, measured",
        "% of roofline",
    )
    caption = "Share of the roofline: achieved rate over the lower of both ceilings at the compulsory intensity."
    return [
        *items,
        Table(f"{workload}-roofline-table", f"{workload}: arithmetic and bytes, N={N}", caption, columns, rows),
    ]


def roofline_row(point: Measured, dram: float | None, ceilings: Record | None) -> tuple[Cell, ...]:
    """Figures of one point."""
    flops, ms, least = 2 * point.conv.macs(point.N), point.median("kernel") or 0.0, float(point.compulsory_bytes)
    rate = flops / ms * MS
    roof = None
    if ceilings and ceilings.get("flops", {}).get(point.precision):
        roof = min(ceilings["flops"][point.precision], ceilings["copy_bytes_per_s"] * flops / least)
    return (
        point.layer,
        point.label,
        ms,
        rate / 1e12,
        least / 1e6,
        flops / least,
        dram / 1e6 if dram else None,
        flops / dram if dram else None,
        100 * rate / roof if roof else None,
    )


def measured_bytes(measurements: Measurements) -> dict[str, float]:
    """DRAM bytes of all profiled kernels of a point for its whole batch, by the point's name.

    Of a point that is run in pieces one was profiled: the others move as much per image.
    """
    found: dict[str, float] = defaultdict(float)
    for profile in measurements.of_type("profile"):
        point, moved = profile["point"], dram_bytes(profile["metrics"])
        if moved:
            found[identity(point)] += moved * point["N"] / profile.get("images", point["N"])
    return found


def dram_bytes(metrics: dict[str, float]) -> float | None:
    """Read and written DRAM bytes among a kernel's metrics, under Nsight Compute's names or plain ones."""
    parts = [
        value for name, value in metrics.items() if name.startswith("dram") and "bytes" in name and "per_s" not in name
    ]
    total = metrics.get("dram_bytes", metrics.get("dram__bytes.sum"))
    return total if total is not None else sum(parts) or None


# Accuracy


def accuracy(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Worst error over the layers against time per image, of every rung and peer."""
    N = measurements.main_batch(workload)
    marks: list[Mark] = []
    rows: list[tuple[Cell, ...]] = []
    for series in measurements.series(workload, N):
        points = [
            point for layer in measurements.layers(workload) if (point := measurements.find(workload, layer, N, series))
        ]
        timed = measurements.time(workload, slices(measurements, workload)[-1], N, series, "kernel")
        errors = [point.error for point in points if point.error is not None]
        if series.transfer != measurements.transfer or not timed or not errors:
            continue
        per_image = Summary(timed.median / N, timed.low / N, timed.high / N, timed.count)
        if max(errors) > 0:
            marks.append(Mark(series.rung, max(errors), per_image))
        tolerance = max(point.record["error"]["tolerance"] for point in points)
        rows.append((series.rung, points[0].precision, max(errors), tolerance, per_image.median))
    if not rows:
        return []
    what = label(slices(measurements, workload)[-1])
    x, y = "largest error over norms", f"kernel time, {what} (ms per image)"
    columns = ("rung", "precision", "largest error", "its tolerance", "ms per image")
    title = f"{workload}: speed against error, {what}, N={N}"
    return [
        Plot(f"{workload}-accuracy", title, "Down is faster, left is closer.", partial(charts.scatter, marks, x, y)),
        Table(f"{workload}-accuracy-table", f"{workload}: error and time, {what}, N={N}", "", columns, rows),
    ]


# Peers


def peers(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """The fastest rungs beside every peer, layer by layer."""
    N = measurements.main_batch(workload)
    series = [each for each in measurements.series(workload, N) if each.transfer == measurements.transfer]
    others = [each for each in series if each.rung not in RUNGS]
    if not others:
        return []
    layers = slices(measurements, workload)
    times = {
        (layer, each): measurements.time(workload, layer, N, each, "kernel") for layer in layers for each in series
    }
    panels = []
    rows: list[tuple[Cell, ...]] = []
    for layer in layers:
        panels.append((label(layer), [Dot(each.rung, each.rung, times[layer, each]) for each in series]))
        for peer in others:
            time, precision = times[layer, peer], precision_of(measurements, workload, peer)
            rivals = [
                (own.median, each.rung)
                for each in series
                if each not in others
                and precision_of(measurements, workload, each) == precision
                and (own := times[layer, each])
            ]
            if time:
                ms, rung = min(rivals, default=(None, None))
                rows.append(
                    (label(layer), peer.rung, precision, time.median, rung, ms, time.median / ms if ms else None)
                )
    columns = (
        "layer",
        "peer",
        "precision",
        "peer (ms)",
        "fastest rung, same precision",
        "rung (ms)",
        "peer / rung (×)",
    )
    items: list[Table | Plot] = []
    for first in range(0, len(panels), 3):
        key = f"{workload}-peers-{first // 3 + 1}"
        title = f"{workload}: rungs and peers, {panels[first][0]} to {panels[first:][:3][-1][0]}, N={N}"
        draw = partial(charts.dots, panels[first : first + 3], "kernel time (ms per batch)")
        items.append(Plot(key, title, "Peers in black. Left is faster.", draw))
    table = Table(f"{workload}-peers-table", f"{workload}: peers, N={N}", "Above 1 the rung is faster.", columns, rows)
    return [*items, table]


def precision_of(measurements: Measurements, workload: str, series: Series) -> str:
    """The precision of a series' points."""
    return next(point.precision for point in measurements.of(workload) if point.series == series)


# Transfers


def transfers(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Every rung with two transfers or more, at the largest batch with most of them."""
    points = measurements.of(workload)
    by_rung: dict[tuple[str, int], set[str]] = {}
    for point in points:
        by_rung.setdefault((point.series.rung, point.N), set()).add(point.series.transfer)
    compared = {key: names for key, names in by_rung.items() if len(names) > 2}
    if not compared:
        compared = {key: names for key, names in by_rung.items() if len(names) > 1}
    chosen = [point for point in points if (point.series.rung, point.N) in compared]
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
    panels = [(f"layers {', '.join(map(str, layers))}, N={N}", [bar for bar in bars if bar.total])]
    title = f"{workload}: the same work under each transfer, N={N}"
    caption = "Where copies overlap kernels (streams) the total is shorter than the kernels and copies behind it."
    plot = Plot(f"{workload}-transfers", title, caption, partial(charts.stacks, panels, "ms per batch"))
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
    table = Table(f"{workload}-transfers-table", f"{workload}: transfers", "Medians.", columns, rows)
    return [*([plot] if panels[0][1] else []), table]


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
    return Stack(f"{series.rung}, {series.transfer}", series.rung, bar, copies, whole, floor=floor)


# Batches


def per_image(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Kernel time of one image against the batch, all layers if they are there, and the same with the copies."""
    batches = measurements.batches(workload)
    if len(batches) < 2:
        return []
    layer = slices(measurements, workload)[-1]
    series = [each for each in measurements.series(workload) if each.transfer == measurements.transfer]

    def line(each: Series, figure: str) -> Line:
        times = [measurements.time(workload, layer, N, each, figure) for N in batches]
        scaled = [
            Summary(t.median / N, t.low / N, t.high / N, t.count) if t else None
            for N, t in zip(batches, times, strict=True)
        ]
        return Line(each.rung, each.rung, batches, scaled)

    panels = [(name, [line(each, figure) for each in series]) for name, figure in FIGURES]
    rows: list[tuple[Cell, ...]] = []
    for each in series:
        values = [value for name, figure in FIGURES for value in line(each, figure).ours]
        rows.append((each.rung, *(value.median if value else None for value in values)))
    columns = ("rung", *(f"{name}, N={N}" for name, _ in FIGURES for N in batches))
    title = f"{workload}: time per image against the batch, {label(layer)}"
    return [
        Plot(f"{workload}-per-image", title, "Medians; log axes.", partial(charts.lines, panels, "ms per image")),
        Table(f"{workload}-per-image-table", f"{title} (ms)", "", columns, rows),
    ]


FIGURES = (("kernels", "kernel"), ("kernels and copies", "total"))
