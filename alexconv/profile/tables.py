"""Tables of profiles."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from alexconv.cli.matrix import print_fitted
from alexconv.planning.points import Kind, PeerPoint, Point
from alexconv.profile.profiles import Profile
from alexconv.profile.timeline import Timeline
from alexconv.profile.trace import Trace
from alexconv.records.labels import rung_label
from alexconv.records.profiles import COMPARED, figure

SHOWN = {
    "ncu": {
        "duration_ns": "ns",
        "share": "share %",
        "achieved_occupancy": "occupancy %",
        "warp_execution_efficiency": "warp %",
        "branch_efficiency": "branch %",
        "global_load_sectors_per_request": "sectors per load",
        "shared_load_wavefronts_per_request": "wavefronts per load",
        "dram_throughput": "DRAM %",
        "l2_throughput": "L2 %",
        "l1_throughput": "L1 %",
        "sm_throughput": "SM %",
        "registers": "registers",
    },
    "driver": {
        "registers": "registers",
        "static_shared_bytes": "static shared",
        "dynamic_shared_bytes": "dynamic shared",
        "local_bytes": "local",
        "theoretical_occupancy": "occupancy %",
    },
    "host": {
        "active_lanes": "lanes",
        **dict(zip(COMPARED, ("gld sectors", "gst sectors", "lds waves", "sts waves"), strict=True)),
        "global_load_efficiency": "gld eff. %",
        "races": "races",
    },
}
SPAN = {"start_us": "start, us", "us": "us"}
COUNTED = {
    "waves": "waves",
    "tensor_pipe": "tensor %",
    "fma_pipe": "FMA %",
    "l1_throughput": "L1 %",
    "l2_throughput": "L2 %",
    "dram_throughput": "DRAM %",
    "achieved_occupancy": "occupancy %",
}
CAPTIONS = {
    "host": "per request of a warp: sectors of global loads (gld) and stores (gst), "
    "wavefronts of shared loads (lds) and stores (sts)"
}


def show(console: Console, profiles: Sequence[Profile], *, lines: bool) -> None:
    """Tables per source, workload, layer and N; races; with ``lines`` the source lines of every traced kernel."""
    groups: dict[tuple[str, str, int, int], list[Profile]] = defaultdict(list)
    for profile in profiles:
        point = profile.point
        groups[profile.source, point.workload, point.layer, point.N].append(profile)
    for (source, workload, layer, N), group in groups.items():
        print_fitted(console, profile_table(f"{workload}, layer {layer}, N={N} ({source})", source, group))
    for profile in profiles:
        if profile.trace and lines:
            print_fitted(console, line_table(f"{profile.point.label()}: {profile.entry}", profile.trace))
        for race in profile.trace.races if profile.trace else ():
            console.print(f"race in {profile.entry} of {profile.point.label()}: {race}", soft_wrap=True)


def profile_table(title: str, source: str, profiles: Iterable[Profile]) -> Table:
    """A row per kernel, a column per figure that the source has."""
    shown = SHOWN[source]
    names = Column("rung", no_wrap=True), Column("kernel", no_wrap=True)
    table = Table(*names, *shown.values(), title=title, box=SIMPLE_HEAD, caption=CAPTIONS.get(source))
    for profile in profiles:
        point = profile.point
        table.add_row(label_of(point), profile.entry, *(figure(profile.metrics.get(name)) for name in shown))
    return table


def label_of(point: Point | PeerPoint) -> str:
    """What computes a point, for a table's cell."""
    name = rung_label(point.entry, point.constants, point.conv) if point.kind is Kind.RUNG else point.rung
    return name.replace("[", r"\[")


def show_timelines(console: Console, timelines: Iterable[Timeline]) -> None:
    """A table for each point: a row per kernel, in the order that they run."""
    for timeline in timelines:
        ms, point = median(timeline.facts["samples"]["kernel"]), timeline.point
        title = f"{point.workload}, layer {point.layer}, N={point.N}, {label_of(point)}: {ms:.4f} ms"
        table = Table(
            Column("kernel", overflow="fold"), *SPAN.values(), *COUNTED.values(), title=title, box=SIMPLE_HEAD
        )
        for kernel in timeline.operations:
            counters = kernel.get("metrics", {})
            spans = (figure(kernel[name]) for name in SPAN)
            table.add_row(kernel["entry"], *spans, *(figure(counters.get(name)) for name in COUNTED))
        print_fitted(console, table)


def line_table(title: str, trace: Trace) -> Table:
    """A row per source line and kind of access."""
    columns = ("access", "bytes", "requests", "lanes per request", "sectors or wavefronts per request", "efficiency %")
    table = Table(Column("line", no_wrap=True), *columns, title=title.replace("[", r"\["))
    for line in trace.lines:
        efficiency = figure(line.efficiency) if line.space == "global" else "-"
        access = f"{line.space} {line.operation}"
        numbers = (figure(line.requests), figure(line.lanes_per_request), figure(line.per_request), efficiency)
        table.add_row(str(line.place), access, str(line.bytes), *numbers)
    return table
