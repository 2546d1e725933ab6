"""Constants tried, streams, profiles, and for every point: correctness, launches, memory, and what went wrong."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import fsum

from alexconv.kernels.bound import BoundRung
from alexconv.planning.planner import MEBIBYTE
from alexconv.records.statistics import Summary
from alexconv.records.store import Record
from alexconv.reports import charts, mapping
from alexconv.reports.charts import Dot, Grid
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import COPIES, Measured, Measurements, Run, footnote
from alexconv.reports.published import Series
from alexconv.reports.style import look
from alexconv.reports.why import COUNTERS, counter_row, kernel_of

COUNTED_BY = {
    "ncu": "Counted by Nsight Compute.",
    "driver": "Reported by the compiler and the driver: nothing was counted.",
    "host": "Counted by the host executor: no GPU figures.",
}
BRANCHES, NO_BRANCHES = "branch_efficiency", "n/a"
PLACE = ("workload", "layer", "N", "rung", "run")  # the columns of ``place_of``
LEAST_CELLS = 4  # of a sweep that deserves a heat map
Group = tuple[str, Series, int, int, Run]  # workload, rung and transfer, N, layer


def sections(measurements: Measurements) -> dict[str, Section]:
    """Sections by key."""
    ordered = [
        Section(
            "constants",
            "Constants: ablations and sweeps",
            "One constant changed at a time against the rung's default, and pairs of constants swept together.",
            [*ablations(measurements), *sweeps(measurements)] if measurements.timed else [],
        ),
        Section("streams", "Streams", "What each stream did when.", timelines(measurements)),
        Section("profiles", "Profiles", "Counters of the kernels, by source.", profiles(measurements)),
        Section(
            "correctness",
            "Correctness",
            "Every output is compared with the float64 reference; a point passes if its error is at most the tolerance "
            "of its precision.",
            [correctness(measurements), *([spread(measurements)] if spread(measurements).rows else [])],
        ),
        Section(
            "launches",
            "Launches and memory",
            "What was launched, and the memory planned for it before allocation.",
            [launches(measurements), memory(measurements)],
        ),
    ]
    return {section.key: section for section in ordered}


# Constants


def groups(points: Iterable[Measured]) -> dict[Group, list[Measured]]:
    """Groups of timed points of one run that differ only in their constants."""
    by_axes: dict[Group, list[Measured]] = defaultdict(list)
    for point in points:
        if point.median("kernel"):
            by_axes[point.workload, point.series, point.N, point.layer, point.run].append(point)
    return {key: members for key, members in by_axes.items() if len(members) > 1}


def ablations(measurements: Measurements) -> list[Table | Plot]:
    """Points with one changed constant against the default; the figure at the largest batch that has any."""
    rows: list[tuple[Cell, ...]] = []
    bars: dict[tuple[str, int], list[Dot]] = defaultdict(list)
    for (workload, series, N, layer, run), members in groups(measurements.every).items():
        default = next((point for point in members if not point.changed), None)
        for point in members:
            if default and len(point.changed) == 1:
                own, base = point.time("kernel"), default.time("kernel")
                assert own and base, "groups holds timed points"
                name = "=".join(map(str, point.changed[0]))
                ratio = Summary(own.median / base.median, own.low / base.high, own.high / base.low, own.count)
                rows.append((workload, layer, N, series.label, run.name, name, base.median, own.median, ratio.median))
                style = look(series.rung, measurements.ladder)
                bars[workload, N].append(Dot(f"{series.label}, layer {layer}, {name}", style, ratio))
    items: list[Table | Plot] = []
    for workload in measurements.workloads:
        batches = [N for name, N in bars if name == workload]
        if batches:
            N = max(batches)
            draw = partial(charts.relative, bars[workload, N], "kernel time over the time with default constants")
            title = f"{workload}: one constant changed, N={N}"
            items.append(
                Plot(
                    f"{workload}-ablations",
                    title,
                    "Right of 1: the change made it slower. Each pair is of one run.",
                    draw,
                )
            )
    columns = (*PLACE, "changed", "default (ms)", "changed (ms)", "changed / default (×)")
    table = Table("ablations", "One constant changed", "Kernel times, both of one run.", columns, rows, long=True)
    return [*items, table] if rows else []


def sweeps(measurements: Measurements) -> list[Table | Plot]:
    """A heat map of the two constants with the most values, for each layer of a rung, at its largest batch."""
    grids: dict[tuple[str, Series, int, Run], list[Grid]] = defaultdict(list)
    for (workload, series, N, layer, run), members in groups(measurements.every).items():
        grid = swept(members, f"layer {layer}")
        if grid:
            grids[workload, series, N, run].append(grid)
    largest: dict[tuple[str, str], tuple[int, int, Series, Run]] = {}  # N, cells, ...: one figure for each rung
    for (workload, series, N, run), panels in grids.items():
        cells = sum(value is not None for grid in panels for row in grid.values for value in row)
        if (N, cells) > largest.get((workload, series.rung), (0, 0))[:2]:
            largest[workload, series.rung] = N, cells, series, run
    items: list[Table | Plot] = []
    for (workload, series, N, run), panels in grids.items():
        most, _, *shown = largest[workload, series.rung]
        if [most, *shown] == [N, series, run]:
            title = f"{workload}: sweep of {series.label}, N={N}"
            caption = (
                "Kernel time in ms per batch; dark is slow, the fastest in brackets. Other constants: the best tried. "
                f"Run: {run.text}."
            )
            draw = partial(charts.heat_maps, panels)
            items.append(Plot(f"{workload}-sweep-{series.rung}", title, caption, draw))
    return items


def swept(members: Sequence[Measured], title: str) -> Grid | None:
    """The points as a grid of two constants, if they vary together."""
    known = [point.record["point"]["constants"] for point in members]
    names = set(known[0]).intersection(*known)  # an old record may lack a constant of today
    values = {name: sorted({constants[name] for constants in known}) for name in names}
    varied = sorted((name for name in values if len(values[name]) > 1), key=lambda name: (-len(values[name]), name))
    if len(varied) < 2 or len(members) < LEAST_CELLS:
        return None
    across, down = varied[:2]
    best: dict[tuple[int, int], float] = {}
    for constants, point in zip(known, members, strict=True):
        cell, time = (constants[down], constants[across]), point.median("kernel") or float("inf")
        best[cell] = min(time, best.get(cell, time))
    cells = [[best.get((row, column)) for column in values[across]] for row in values[down]]
    return Grid(title, down, across, values[down], values[across], cells)


# Streams and profiles


def timelines(measurements: Measurements) -> list[Table | Plot]:
    """The fastest streamed point of each layer as a figure; the overlap of all of them as a table."""
    points = [point for point in measurements.points if point.record.get("timeline") and point.record["status"] == "ok"]
    items: list[Table | Plot] = []
    for workload in measurements.workloads:
        own = [point for point in points if point.workload == workload]
        N = max((point.N for point in own), default=0)
        fastest: dict[int, Measured] = {}
        for point in sorted((point for point in own if point.N == N), key=lambda point: point.median("total") or 0.0):
            fastest.setdefault(point.layer, point)
        if fastest:
            panels = [(f"layer {n}, {fastest[n].label}", fastest[n].record["timeline"]) for n in sorted(fastest)]
            runs = footnote(list(fastest.values()), of=COPIES)
            caption = f"The fastest of {len(own)} timelines in each layer; numbers are the pieces of the batch. {runs}"
            draw = partial(charts.timeline, panels)
            items.append(Plot(f"{workload}-timeline", f"{workload}: streams, N={N}", caption, draw))
    rows = [overlap_row(point) for point in points]
    columns = (*PLACE, "streams", "busy (ms)", "elapsed (ms)", "busy / elapsed")
    caption = "Busy: the sum of all copies and kernels. Above 1 they overlapped."
    return [*items, Table("overlap", "Overlap of copies and kernels", caption, columns, rows)] if rows else []


def overlap_row(point: Measured) -> tuple[Cell, ...]:
    """How much of a timeline's work overlapped."""
    events = point.record["timeline"]
    busy = fsum(event["end"] - event["start"] for event in events)
    elapsed = max(event["end"] for event in events) - min(event["start"] for event in events)
    streams = len({event["stream"] for event in events})
    return *place_of(point), streams, float(busy), float(elapsed), float(busy / elapsed)


def profiles(measurements: Measurements) -> list[Table | Plot]:
    """One table per source, one row per kernel, one column per counter."""
    items: list[Table | Plot] = []
    counted = measurements.of_type("profile")
    for source in sorted({profile["source"] for profile in counted}):
        own = [profile for profile in counted if profile["source"] == source]
        names = sorted({name for profile in own for name in profile["metrics"]})
        rows: list[tuple[Cell, ...]] = []
        for profile in own:
            point, metrics = profile["point"], profile["metrics"]
            values = (counter(name, metrics) for name in names)
            rows.append((point["workload"], point["layer"], point["N"], point["rung"], kernel_of(profile), *values))
        columns = ("workload", "layer", "N", "rung", "kernel", *names)
        caption = COUNTED_BY.get(source, f"Counted by {source}.")
        cards = dict.fromkeys(measurements.cards[profile["device"]] for profile in own if profile.get("device"))
        caption += f" Cards: {', '.join(cards)}; times elsewhere are of the runs named there." if cards else ""
        if any(counter(name, profile["metrics"]) == NO_BRANCHES for profile in own for name in names):
            caption += f" {NO_BRANCHES}: no branch of the kernel was counted."
        title = f"Profiles from {source}"
        items += main_counters(source, own)
        items.append(Table(f"profiles-{source}", title, caption, columns, rows, filters=("workload", "layer", "rung")))
    return items


def main_counters(source: str, own: Sequence[Record]) -> list[Table]:
    """The counters that the pages of rungs show, if the source has them."""
    if not any(set(COUNTERS) & set(profile["metrics"]) for profile in own):
        return []
    cells = [(profile["point"]["rung"], counter_row(profile)) for profile in own]
    rows = [(*row[:3], rung, *row[3:]) for rung, row in cells]
    columns = ("workload", "layer", "N", "rung", "kernel", *COUNTERS.values())
    title, filters = f"Main counters from {source}", ("workload", "layer", "rung")
    return [Table(f"counters-{source}", title, COUNTED_BY.get(source, ""), columns, rows, filters=filters)]


def counter(name: str, metrics: Mapping[str, float]) -> Cell:
    """A counter's value.  Nsight Compute reports 0 % uniform branches if it counts no branch."""
    if name not in metrics:
        return None
    return NO_BRANCHES if name == BRANCHES and not metrics[name] else float(metrics[name])


# Every point


def correctness(measurements: Measurements) -> Table:
    """Errors beside their tolerances."""
    rows = []
    for point in measurements.points:
        error = point.record.get("error") or {}
        known = [
            None if error.get(name) is None else float(error[name]) for name in ("absolute", "scaled", "tolerance")
        ]
        share = known[1] / known[2] if known[1] is not None and known[2] else None
        rows.append((*place_of(point), point.precision, point.record["status"], *known, share))
    columns = (*PLACE, "precision", "status", "absolute error", "over norms", "tolerance", "error / tolerance")
    caption = "Largest absolute error, and the largest over the norms of patch and filter, which the tolerance bounds."
    filters = ("workload", "layer", "N", "precision", "status")
    return Table("correctness", "Errors of every point", caption, columns, rows, long=True, filters=filters)


def spread(measurements: Measurements) -> Table:
    """Run-to-run variation of rungs whose order of additions varies."""
    points = [point for point in measurements.points if point.record.get("spread") is not None]
    rows = [(*place_of(point), float(point.record["spread"])) for point in points]
    caption = "Largest absolute difference between the outputs of repeated runs, for rungs that add in no fixed order."
    return Table("spread", "Run-to-run variation", caption, (*PLACE, "spread"), rows)


def launches(measurements: Measurements) -> Table:
    """Every launch of every point."""
    rows = [
        (*place_of(point), *launch_cells(launch))
        for point in measurements.points
        for launch in point.record.get("launches") or ()
    ]
    sizes = ("registers", "shared (bytes)", "local (bytes)", "occupancy (%)")
    columns = (*PLACE, "kernel", "grid", "block", *sizes)
    caption = "Launches of the first piece. Occupancy: theoretical. Local bytes: registers spilled, per thread."
    return Table("launches", "Launches", caption, columns, rows, long=True, filters=PLACE[:3])


def launch_cells(launch: dict[str, object]) -> tuple[Cell, ...]:
    """One launch."""

    def whole(name: str) -> int | None:
        value = launch.get(name)
        return value if isinstance(value, int) else None

    shared = None if whole("dynamic_shared") is None else (whole("static_shared") or 0) + (whole("dynamic_shared") or 0)
    occupancy = launch.get("occupancy")
    sizes = [
        "×".join(map(str, dims)) if isinstance(dims := launch.get(name), list) else None for name in ("grid", "block")
    ]
    share = 100 * occupancy if isinstance(occupancy, float) else None
    return str(launch["entry"]), *sizes, whole("registers"), shared, whole("local"), share


def memory(measurements: Measurements) -> Table:
    """Planned bytes, pieces, and what the mapping of threads predicts for stores; from the ladder, not from a GPU."""
    rows = []
    for point in measurements.points:
        constants = point.record.get("planned_constants") or point.record["point"]["constants"]
        predicted = None
        if point.rung and {"THREAD_OUTPUTS", "COALESCED"} <= set(constants):
            predicted = mapping.sectors_per_store(point.conv, constants, point.itemsize)
        scratch = None
        if point.rung:
            constants = point.rung.recorded(constants)
        if point.rung and point.rung.scratch and {constant.name for constant in point.rung.constants} <= set(constants):
            images = point.record.get("images_per_piece") or point.N
            scratch = BoundRung(point.rung, point.conv, constants).scratch_bytes(images) / MEBIBYTE
        planned = point.record.get("device_bytes")
        rows.append(
            (
                *place_of(point),
                planned / MEBIBYTE if planned else None,
                scratch,
                point.record.get("pieces"),
                point.compulsory_bytes / MEBIBYTE,
                2 * point.conv.macs(point.N) / point.compulsory_bytes,
                predicted,
            )
        )
    columns = (
        *PLACE,
        "device memory (MiB)",
        "of which partial planes (MiB)",
        "pieces",
        "minimum traffic (MiB)",
        "FLOP/byte",
        "sectors per warp's store",
    )
    caption = (
        "Predicted, not measured. Minimum traffic: input, filters and output, once. Sectors: of 32 bytes, touched "
        "when a warp stores one output per thread, by the mapping of threads to outputs (float32 needs 4)."
    )
    return Table("memory", "Memory behaviour, predicted", caption, columns, rows, long=True, filters=PLACE[:3])


# What went wrong


def problems(measurements: Measurements) -> Section:
    """Failed and skipped points with their reasons, and measurements to distrust."""
    failed = [point for point in measurements.every if point.record["status"] != "ok"]
    rows = [(*place_of(point), point.record["status"], str(point.record.get("reason") or "")) for point in failed]
    items: list[Table | Plot] = []
    if rows:
        caption = "They have no time and no speedup anywhere in this report."
        items.append(Table("problems", "Points without a result", caption, (*PLACE, "status", "reason"), rows))
    doubtful = [(*place_of(point), flags) for point in measurements.every if (flags := doubts(point))]
    if doubtful:
        caption = "Kept in all tables and figures. Noisy: a confidence interval wider than a tenth of the median."
        items.append(Table("doubts", "Measurements to distrust", caption, (*PLACE, "why"), doubtful, long=True))
    missing = [
        rung for rung in measurements.ladder.named if all(point.series.rung != rung for point in measurements.every)
    ]
    points = len(measurements.every)
    text = f"{points} points: {points - len(failed)} ok, {len(failed)} failed or skipped."
    if missing:
        text += f" Rungs missing from these records: {', '.join(missing)}."
    if measurements.unreadable:
        text += f" {measurements.unreadable} lines of the record files could not be read."
    if measurements.unusable:
        text += f" Left out: {'; '.join(measurements.unusable)}."
    return Section("problems", "Failed, skipped and doubtful points", text, items)


def place_of(point: Measured) -> tuple[Cell, ...]:
    """The cells that identify a point in tables of every point."""
    return point.workload, point.layer, point.N, point.label, point.run.name


def doubts(point: Measured) -> str:
    """Why a measurement may mislead; empty if nothing suggests it."""
    reasons = ["the GPU lowered its clocks"] if point.record.get("throttled") else []
    noisy = [name for name in ("kernel", "total") if (time := point.time(name)) and time.noisy]
    return "; ".join([*reasons, *([f"noisy: {', '.join(noisy)}"] if noisy else [])])
