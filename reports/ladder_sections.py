"""What the studies did not draw: the ladder step by step, cuDNN beside it, roofline, error, transfers and orderings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import sqrt

from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.planning.transfers import TRANSFERS, transfer_named
from alexconv.records.statistics import Summary
from alexconv.records.store import identity
from alexconv.reports import charts, published
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import DIRECTIONS, Best, Dot, Duel, Line, Mark, Reference, Stack, Step
from alexconv.reports.comparison import (
    CONTRACTS,
    LAYERS,
    MANY,
    Contract,
    Frontier,
    Source,
    hot,
    largest,
    over,
    peer_title,
)
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.frontier import class_table, summary_table
from alexconv.reports.measurements import (
    Measured,
    Measurements,
    added,
    at_study_batch,
    footnote,
    layer_numbers,
    sum_or_none,
)
from alexconv.reports.published import Series
from alexconv.reports.roofline import Roof, intensity_figure, roof_of, roofs
from alexconv.shapes import WORKLOADS

MS = 1000  # in a second
LEAST_RUNGS = 6  # of a ladder worth drawing beside its waterfall
SAME_ERROR = 1.05  # errors closer than this factor are no reason to prefer one
Ours = dict[Series, float]


def headline(measurements: Measurements, found: Frontier | None) -> list[Section]:
    """What a reader wants first; sections without items are dropped by the page."""
    if not measurements.timed:
        return []
    workloads = measurements.workloads
    return [
        Section(
            "ladder",
            "The ladder, step by step",
            "Kernel times. Each rung starts from its parent's time: a bar to the left is a gain.",
            [item for workload in workloads for item in ladder(measurements, workload, found)],
        ),
        Section(
            "peers",
            "Beside cuDNN and cuBLAS",
            "Peers are cuDNN's convolution and cuBLAS's matrix product, called through torch in the same run, with the "
            "same data, and checked and timed like the rungs. The engine is the one that cuDNN's benchmark finds "
            "fastest. Ours is the fastest rung of each layer, with its fastest constants.",
            [item for workload in workloads for item in peers(measurements, workload, found)],
        ),
    ]


def sections(measurements: Measurements) -> list[Section]:
    """The rest; sections without items are dropped by the page."""
    if not measurements.timed:
        return []
    workloads = measurements.workloads
    return [
        Section(
            "orderings",
            "The order of the rungs, here and in the study",
            "Ranks by kernel time, then by speedup with the copies; 1 is the fastest. Kendall's tau-b is 1 for "
            "the same order and -1 for the opposite one; a reversal is a pair that one side orders the other way.",
            [item for workload in workloads for item in orderings(measurements, workload)],
        ),
        Section(
            "roofline",
            "Roofline",
            "Achieved arithmetic against arithmetic intensity, each rung under the roof of the unit that multiplies "
            "for it. A multiply-add counts as two operations.",
            [item for workload in workloads for item in rooflines(measurements, workload)],
        ),
        Section(
            "accuracy",
            "Speed and error",
            "The error is the largest deviation from the float64 reference, divided by the norms of the input "
            "patch and the filter; each precision has its tolerance. Inputs and filters are uniform in [-1, 1]: for "
            "data of very different magnitudes see docs/precision.md.",
            [item for workload in workloads for item in accuracy(measurements, workload)],
        ),
        Section(
            "transfers",
            "Host-device transfers",
            "The copies' share of the total under each transfer. With unified memory the kernel's time "
            "includes page migration; with several streams copies and kernels overlap, so that only the total "
            "is theirs alone. The floor is the bytes of all arrays over the bus's measured rates, if recorded.",
            [item for workload in workloads for item in transfers(measurements, workload)],
        ),
        Section(
            "batches",
            "Time per image",
            "A GPU that is full takes the same time for every image; below that, larger batches are cheaper.",
            [item for workload in workloads for item in per_image(measurements, workload)],
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


def ladder(measurements: Measurements, workload: str, found: Frontier | None) -> list[Table | Plot]:
    """The whole ladder and its waterfall, all layers (or the last, if some are missing), and a table of gains."""
    N = ladder_batch(measurements, workload)
    layers = slices(measurements, workload)
    items: list[Table | Plot] = []
    for layer in layers[-1:]:
        climbed = steps(measurements, workload, layer, N)
        if climbed:
            lines, bests = comparisons(found, workload, N) if layer is None else ([], [])
            unit = "kernel time (ms per batch)"
            runs = measurements.footnote(
                [Series(each.rung, measurements.transfer) for each in climbed], workload, N, serial=False
            )
            title = f"{workload}: the ladder, {label(layer)}, N={N}"
            caption = (
                "Rungs in ladder order, a band and colour for each family; the figure is the family's shortest time "
                "in ms, the grey line the shortest so far."
            )
            draw = partial(charts.ladder, climbed, unit, lines, bests)
            if len(climbed) >= LEAST_RUNGS:
                told = f"{caption}{partly_text(climbed)} {runs}"
                items.append(Plot(f"{workload}-ladder", title, told, draw, wide=True))
            title = f"{workload}: from rung to rung, {label(layer)}, N={N}"
            caption = (
                "Right margin: the rung's time, and how many times faster than its parent it is, both in one run as in "
                "the table of gains. The parent's mark is the rung's time multiplied by that."
            )
            draw = partial(charts.waterfall, climbed, unit, lines, bests)
            items.append(Plot(f"{workload}-waterfall", title, f"{caption}{partly_text(climbed)} {runs}", draw))
    found_tables = (ladder_table(measurements, workload), gains_table(measurements, workload))
    return [*items, *(table for table in found_tables if table.rows)]


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
    title = f"{workload}: gain of each rung over its parent, N={N} (×)"
    caption = (
        "Parent's kernel time over the rung's: above 1 is a gain. Both are of one run where any holds both, else of "
        "two runs on cards of the same kind."
    )
    return Table(f"{workload}-gains", title, caption, columns, gain_rows(measurements, workload, N))


def gain_rows(measurements: Measurements, workload: str, N: int) -> list[tuple[Cell, ...]]:
    """Rows of the rungs whose parent was measured too, in some layer."""
    rows: list[tuple[Cell, ...]] = []
    for series in measurements.series(workload, N):
        rung = RUNGS.get(series.rung)
        if rung and rung.parent and series.transfer == measurements.transfer:
            parent, layers = Series(rung.parent, series.transfer), slices(measurements, workload)
            found = [gain_of(measurements, workload, layer, N, parent, series) for layer in layers]
            gains = [gain for gain, _ in found]
            if any(gains):
                together = all(same for gain, same in found if gain)
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
    listed = [each for each in measurements.series(workload) if each.transfer == measurements.transfer]
    for series in listed:
        cells: list[Cell] = []
        for N in batches:
            times = [measurements.time(workload, None, N, series, figure) for figure in ("kernel", "total")]
            speedup = measurements.speedup(workload, None, N, series)
            cells += [time.median if time else None for time in (*times, speedup)]
        points = [point for point in measurements.of(workload) if point.series == series]
        if any(cell is not None for cell in cells):
            rows.append((title_of(series), *cells, largest(points)))
        else:
            partly.append(title_of(series))
    figures = ("kernel (ms)", "total (ms)", "speedup (×)")
    columns = ("rung", *(f"N={N}, {figure}" for N in batches for figure in figures), "max error")
    absent = f" Of some layers only, and so not here: {', '.join(partly)}." if partly else ""
    caption = (
        f"All layers, {measurements.transfer} memory. Kernel: all kernels of the rung; total: host arrays to host "
        "arrays; medians of ms per batch. Speedup: one core's serial C++ over the total. Max error: over the norms of "
        f"patch and filter.{absent} {measurements.footnote(listed)}"
    )
    return Table(f"{workload}-rungs", f"{workload}: every rung, all layers", caption, columns, rows)


def partly_text(climbed: Sequence[Step]) -> str:
    """What hollow markers mean, where there are any."""
    if not any(step.partly for step in climbed):
        return ""
    return " A hollow marker: the rung takes only some of the layers, and its parent the others."


def comparisons(found: Frontier | None, workload: str, N: int) -> tuple[list[Reference], list[Best]]:
    """cuDNN's times over all layers, and those of our fastest rung of each layer, class by class."""
    source = found.many if found and workload == WORKLOAD and N == MANY else None
    if source is None:
        return [], []
    lines = [
        Reference(peer_title(contract.peer), contract.peer, ms)
        for contract in CONTRACTS
        if (ms := source.named_sum(contract.peer, N))
    ]
    bests = [
        Best(f"best of each layer, {contract.name}", ms, point.series.rung)
        for contract in CONTRACTS
        if (ms := source.sum_of(contract, N)) and (point := source.best(contract, LAYERS[-1], N))
    ]
    return lines, bests


def steps(measurements: Measurements, workload: str, layer: int | None, N: int) -> list[Step]:
    """The ladder's rungs with their own kernel times, and their parents' by the gains of ``gains_table``.

    A rung that does not take all layers is shown with its parent on the others.
    """
    found = []
    for rung in RUNGS.values():
        series = Series(rung.name, measurements.transfer)
        own = measurements.time(workload, layer, N, series, "kernel")
        partly = own is None and layer is None
        if partly:
            own = mixed(measurements, workload, N, rung.name)
        if own:
            before = parent_time(measurements, workload, layer, N, rung, own.median)
            known = published.kernel_ms(workload, layer, N, Series(rung.name))
            found.append(Step(rung.name, own, before, known, partly))
    return found


def parent_time(
    measurements: Measurements, workload: str, layer: int | None, N: int, rung: Rung, own: float
) -> float | None:
    """The parent's time: the rung's own by its gain.  A sum is by layer where one of both does not take all layers.

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
    return own or inherited(measurements, workload, layer, N, RUNGS[name].parent)


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
                rank_table(key, f"{workload}: order by {what}, N={N}", ranked, measurements, workload, N),
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


def rank_table(
    key: str, title: str, ranked: dict[int | None, tuple[Ours, Ours]], measurements: Measurements, workload: str, N: int
) -> Table:
    """Rank here and rank published, for each layer and in all."""
    every = {series: None for ours, _ in ranked.values() for series in ours}
    rows: list[tuple[Cell, ...]] = []
    for series in every:
        cells = [cell for pair in ranked.values() for cell in (rank(side, series) for side in pair)]
        rows.append((series.label, *cells))
    columns = ("rung", *(f"{label(layer)}, {who}" for layer in ranked for who in ("here", "study")))
    runs = measurements.footnote(every, workload, N)
    caption = f"Here: {measurements.device['name']}. Equal figures share a rank. {runs}"
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
    known = roofs(ceilings, measurements.device)
    rate = float(ceilings["copy_bytes_per_s"]) if ceilings else None
    told, runs = roof_text(known.values()), footnote(points)
    items: list[Table | Plot] = [
        Plot(
            f"{workload}-roofline",
            f"{workload}: roofline with compulsory bytes, N={N}",
            "Bytes: input, filters and output once: rungs of one layer and precision are above each other. "
            f"{told} {runs}",
            partial(intensity_figure, points, least, known, rate),
        )
    ]
    profiled = [point for point in points if point.name in measured]
    if profiled:
        title = f"{workload}: roofline with measured DRAM bytes, N={N}"
        draw = partial(intensity_figure, profiled, [measured[point.name] for point in profiled], known, rate)
        caption = f"Bytes: DRAM traffic that Nsight Compute counted. {told} {runs}"
        items.append(Plot(f"{workload}-roofline-dram", title, caption, draw))
    rows = [roofline_row(point, measured.get(point.name), roof_of(point.rung, known), rate) for point in points]
    columns = (
        "layer",
        "rung",
        "kernel (ms)",
        "TFLOP/s",
        "compulsory MB",
        "FLOP/byte",
        "measured MB",
        "FLOP/byte, measured",
        "roof",
        "% of roofline",
    )
    caption = (
        "Share of the roofline: achieved rate over the lower of two roofs, that of the bytes at the compulsory "
        f"intensity and that of the rung's own unit. {told} None for peers, whose algorithm is not on record, and for "
        f"Winograd, which computes fewer products than are counted here. {runs}"
    )
    return [
        *items,
        Table(f"{workload}-roofline-table", f"{workload}: arithmetic and bytes, N={N}", caption, columns, rows),
    ]


def roof_text(known: Iterable[Roof]) -> str:
    """Whose figures the roofs are."""
    names: dict[str, list[str]] = {}
    for roof in known:
        names.setdefault(roof.source, []).append(f"{roof.unit} {roof.name}")
    told = [f"{source}: {', '.join(found)}" for source, found in names.items()]
    return f"Roofs, {'; '.join(told)}." if told else "No ceilings were measured for this GPU."


def roofline_row(point: Measured, dram: float | None, roof: Roof | None, bytes_per_s: float | None) -> tuple[Cell, ...]:
    """Figures of one point."""
    flops, ms, least = 2 * point.conv.macs(point.N), point.median("kernel") or 0.0, float(point.compulsory_bytes)
    rate = flops / ms * MS
    bound = min(roof.rate, bytes_per_s * flops / least) if roof and bytes_per_s else None
    return (
        point.layer,
        point.label,
        ms,
        rate / 1e12,
        least / 1e6,
        flops / least,
        dram / 1e6 if dram else None,
        flops / dram if dram else None,
        f"{roof.unit}, {roof.name}" if roof else None,
        100 * rate / bound if bound else None,
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
    partly: list[str] = []
    listed: list[Series] = []
    for series in measurements.series(workload, N):
        points = [
            point for layer in measurements.layers(workload) if (point := measurements.find(workload, layer, N, series))
        ]
        timed = measurements.time(workload, slices(measurements, workload)[-1], N, series, "kernel")
        if not timed and slices(measurements, workload)[-1] is None and series.rung in RUNGS:
            timed = mixed(measurements, workload, N, series.rung)
            points += ancestors(measurements, workload, N, series)
            partly.append(series.rung)
        errors = [point.error for point in points if point.error is not None]
        if series.transfer != measurements.transfer or not timed or not errors:
            continue
        per_image = Summary(timed.median / N, timed.low / N, timed.high / N, timed.count)
        if max(errors) > 0:
            marks.append(Mark(series.rung, max(errors), per_image))
        listed.append(series)
        tolerance = max(point.record["error"]["tolerance"] for point in points if point.error is not None)
        rows.append((series.rung, points[0].precision, max(errors), tolerance, per_image.median))
    if not rows:
        return []
    what = label(slices(measurements, workload)[-1])
    x, y = "largest error over norms", f"kernel time, {what} (ms per image)"
    columns = ("rung", "precision", "largest error", "its tolerance", "ms per image")
    title = f"{workload}: speed against error, {what}, N={N}"
    runs = measurements.footnote(listed, workload, N, serial=False)
    if any(row[0] in partly for row in rows):
        names = ", ".join(str(row[0]) for row in rows if row[0] in partly)
        runs = f"Of some layers, with the time and error of the parent on the others: {names}. {runs}"
    return [
        Plot(
            f"{workload}-accuracy",
            title,
            f"Down is faster, left is closer. Named: what no other rung or peer beats in both. {runs}",
            partial(charts.scatter, front_named(marks), x, y, peer_titles(marks)),
        ),
        Table(f"{workload}-accuracy-table", f"{workload}: error and time, {what}, N={N}", runs, columns, rows),
    ]


def ancestors(measurements: Measurements, workload: str, N: int, series: Series) -> list[Measured]:
    """The nearest ancestors' points on the layers that a rung does not take."""
    found = []
    for layer in layer_numbers(workload):
        name: str | None = series.rung
        while name and not measurements.time(workload, layer, N, Series(name, series.transfer), "kernel"):
            name = RUNGS[name].parent
        point = measurements.find(workload, layer, N, Series(name, series.transfer)) if name else None
        if point and name != series.rung:
            found.append(point)
    return found


def front_named(marks: Sequence[Mark]) -> list[Mark]:
    """The marks, those on the Pareto front with their names."""
    return [
        replace(mark, note=mark.rung if mark.rung in RUNGS else peer_title(mark.rung))
        if not any(other.x <= SAME_ERROR * mark.x and other.y.median < mark.y.median for other in marks)
        else mark
        for mark in marks
    ]


def peer_titles(marks: Sequence[Mark]) -> dict[str, str]:
    """The peers among the marks and what they are."""
    return {mark.rung: peer_title(mark.rung) for mark in marks if mark.rung not in RUNGS}


# Peers


def peers(measurements: Measurements, workload: str, found: Frontier | None) -> list[Table | Plot]:
    """Our fastest rung of each layer and class beside cuDNN, then every peer beside the ladder."""
    source = found.many if found and workload == WORKLOAD else None
    items: list[Table | Plot] = []
    if found and source:
        panels = [(contract.title, duels(source, contract)) for contract in CONTRACTS]
        title = f"{workload}: the fastest rung of each layer beside cuDNN, N={MANY}"
        caption = "Right margin: our time over cuDNN's in the class's own layout. Left is faster."
        classes = (class_table(found, contract) for contract in CONTRACTS)
        items = [
            *(table for table in (summary_table(found),) if table),
            Plot(f"{workload}-cudnn", title, caption, partial(charts.duels, panels, "kernel time (ms per batch)")),
            *(table for table in classes if table),
        ]
    return [*items, *every_peer(measurements, workload)]


def duels(source: Source, contract: Contract) -> list[Duel]:
    """Ours and cuDNN's times of each layer and their sum."""
    rows = []
    for layer in LAYERS:
        point = source.best(contract, layer, MANY)
        theirs = {name: hot(source.named(name, layer, MANY)) for name in contract.peers}
        rung = point.series.rung if point else ""
        rows.append(Duel(f"layer {layer}, {rung}", rung, hot(point), theirs, contract.peer))
    whole = {name: source.named_sum(name, MANY) for name in contract.peers}
    return [*rows, Duel("all layers", rows[-1].rung, source.sum_of(contract, MANY), whole, contract.peer)]


def every_peer(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """The leading rungs beside every peer, layer by layer."""
    N = measurements.main_batch(workload)
    series = [each for each in measurements.series(workload, N) if each.transfer == measurements.transfer]
    others = [each for each in series if each.rung not in RUNGS]
    if not others:
        return []
    layers = slices(measurements, workload)
    times = {
        (layer, each): measurements.time(workload, layer, N, each, "kernel") for layer in layers for each in series
    }
    shown_ones = {*leaders(times), *others}
    panels = []
    rows: list[tuple[Cell, ...]] = []
    for layer in layers:
        panels.append(
            (
                label(layer),
                [Dot(title_of(each), each.rung, times[layer, each]) for each in series if each in shown_ones],
            )
        )
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
                rows.append((label(layer), title_of(peer), peer.rung, time.median, rung, ms, over(time.median, ms)))
    columns = (
        "layer",
        "peer",
        "its name in the records",
        "peer (ms)",
        "fastest rung, same precision",
        "rung (ms)",
        "peer / rung (×)",
    )
    items: list[Table | Plot] = []
    for first in range(0, len(panels), 3):
        key = f"{workload}-peers-{first // 3 + 1}"
        title = f"{workload}: leading rungs and peers, {panels[first][0]} to {panels[first:][:3][-1][0]}, N={N}"
        draw = partial(charts.dots, panels[first : first + 3], "ms per batch")
        caption = (
            "Rungs that are the fastest of their family and precision in some layer; peers in black. Left is faster. "
            + measurements.footnote(shown_ones, workload, N, serial=False)
        )
        items.append(Plot(key, title, caption, draw))
    runs = measurements.footnote(shown_ones, workload, N, serial=False)
    caption = f"One rung for all layers in the rows of all layers. Above 1 the rung is faster. {runs}"
    table = Table(f"{workload}-peers-table", f"{workload}: every peer, N={N}", caption, columns, rows)
    return [*items, table]


def leaders(times: Mapping[tuple[int | None, Series], Summary | None]) -> set[Series]:
    """The rungs that are the fastest of their family and precision in some layer."""
    fastest: dict[tuple[int | None, str, str], tuple[float, Series]] = {}
    for (layer, series), time in times.items():
        rung = RUNGS.get(series.rung)
        if rung and time:
            key = layer, rung.family, rung.precision
            fastest[key] = min(fastest.get(key, (time.median, series)), (time.median, series))
    return {series for _, series in fastest.values()}


def title_of(series: Series) -> str:
    """A rung's name, or what a peer is."""
    return series.rung if series.rung in RUNGS else peer_title(series.rung)


def precision_of(measurements: Measurements, workload: str, series: Series) -> str:
    """The precision of a series' points."""
    return next(point.precision for point in measurements.of(workload) if point.series == series)


# Transfers


def transfers(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Every rung with two transfers or more, at the largest batch with most of them; of one run if one holds them."""
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
    runs = measurements.footnote()
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
    return Stack(f"{series.rung}, {series.transfer}", series.rung, bar, copies, whole, floor=floor)


# Batches


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
    runs = measurements.footnote(series, serial=False)
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
