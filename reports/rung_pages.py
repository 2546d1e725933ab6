"""A page for each rung, and the table of all: idea, technique, times, launches, counters, source."""

import re
from collections.abc import Iterator

from alexconv.kernels.ladder import Ladder
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import Rung
from alexconv.records.store import Record
from alexconv.reports import rung_figure
from alexconv.reports.alexnet import WORKLOAD, known_to_study
from alexconv.reports.comparison import CONTRACTS, Frontier, Source, hot, interval, over, speed
from alexconv.reports.diagnostics import launch_cells
from alexconv.reports.diagrams import diagrams
from alexconv.reports.elements import LEAD, Cell, Code, Faster, Page, Plot, Section, Table
from alexconv.reports.ladder import family_technique, gain_of, ladder_batch
from alexconv.reports.measurements import Measured, Measurements, layer_numbers, sum_or_none
from alexconv.reports.published import Series, kernel_ms
from alexconv.reports.why import COUNTERS, Reasons, busy_text, counter_row
from alexconv.shapes import WORKLOADS

TIMES = (
    *("workload", "layer", "N", "ms", "with copies, ms", "than its parent", "TFLOP/s", "% of roofline"),
    *("cuDNN, ms", "than cuDNN", "predicted, ms", "predicted / measured", "study, ms", "max error", "run"),
)
TECHNIQUE = re.compile(r"// Technique:(.*?)\n//\s*(?:\n|[A-Z][a-z ]+:)", re.DOTALL)


def source_of(rung: Rung) -> str:
    """The text of a rung's file; empty if it is gone, as a user's own may be."""
    return rung.path.read_text() if rung.path.is_file() else ""


def technique(text: str) -> str:
    """What a source's opening says of its technique, in one line."""
    match = TECHNIQUE.search(text)
    return " ".join(match[1].replace("//", " ").split()) if match else ""


def pages(measurements: Measurements, frontier: Frontier | None) -> Iterator[Page]:
    """The table of all rungs, then a page for each."""
    reasons = Reasons(measurements)
    rows = Section("ladder", "The ladder", "", [rungs_table(measurements)])
    text = "From the naive kernel to the fastest: each starts from its parent and changes one thing."
    yield Page("rungs", "topic", "All rungs", text, [rows])
    for rung in measurements.ladder:
        yield page(measurements, frontier, reasons, rung)


def rungs_table(measurements: Measurements) -> Table:
    """Every rung with its idea, and its times of one workload's layers."""
    workload = WORKLOAD if WORKLOAD in measurements.workloads else measurements.workloads[0]
    N, layers = ladder_batch(measurements, workload), [*layer_numbers(workload)]
    rows: list[tuple[Cell, ...]] = []
    for rung in measurements.ladder:
        series = Series(rung.name, measurements.transfer)
        times = [measurements.time(workload, layer, N, series, "kernel") for layer in layers]
        cells = [time.median if time else None for time in times]
        rows.append((rung.name, rung.family, rung.precision, rung.idea, rung.parent, *cells, sum_or_none(cells)))
    columns = ("rung", "family", "class", "idea", "parent", *(f"layer {layer}, ms" for layer in layers), "all, ms")
    runs = measurements.footnote(
        [Series(rung.name, measurements.transfer) for rung in measurements.ladder], workload, N, of=0
    )
    caption = f"Kernel times of {workload}, N={N}: medians of ms per batch. {runs}"
    return Table("rungs-table", "Rungs", caption, columns, rows, filters=("family", "class"), csv=False)


def page(measurements: Measurements, frontier: Frontier | None, reasons: Reasons, rung: Rung) -> Page:
    """One rung's page."""
    text = source_of(rung)
    sections = [
        Section(LEAD, "", "", rung_figure.figure(measurements, frontier, rung)),
        Section("works", "How it works", "", charts=diagrams(rung)),
        Section("source", "Source", "", [], code(rung, measurements.ladder, text)),
        Section("times", "Times", "", [*times(measurements, frontier, reasons, rung), *refused(measurements, rung)]),
        Section("counters", "Counters", "", counters(reasons, rung)),
        Section("launches", "Launches", "", launches(measurements, rung)),
        Section("constants", "Constants", "", constants(measurements, rung)),
    ]
    filled = [section for section in sections if section.items or section.code or section.charts]
    facts = facts_of(rung, measurements.ladder, text)
    idea = rung.idea[:1].upper() + rung.idea[1:] + "."
    return Page(f"rung-{rung.name}", "rung", rung.name, idea, filled, facts, rung.name)


def facts_of(rung: Rung, ladder: Ladder, text: str) -> list[tuple[str, str]]:
    """What the ladder says of a rung."""
    family = ": ".join(filter(None, (rung.family, family_technique(rung.family))))
    facts = [("Technique", technique(text)), ("Family", family)]
    facts += [("Class", f"{rung.precision}, {rung.layout.upper()} {rung.dtype}")]
    facts += [
        ("Parent", rung.parent or ""),
        ("In the AlexNet study", rung.alias if known_to_study(Series(rung.name)) else ""),
    ]
    facts += [("Child", child.name) for child in ladder if child.parent == rung.name]
    facts += [("Needs a GPU", rung.gpu_only or ""), ("File", f"kernels/{rung.file}")]
    return [(name, fact) for name, fact in facts if fact]


def times(measurements: Measurements, frontier: Frontier | None, reasons: Reasons, rung: Rung) -> list[Table | Plot]:
    """With default constants; then with others, and under other transfers."""
    own = [point for point in measurements.points if point.series.rung == rung.name and point.median("kernel")]
    usual = [point for point in own if not point.changed and point.series.transfer == measurements.transfer]
    others = [point for point in own if point not in usual]
    sources = {source.file.removesuffix(".jsonl"): source for source in frontier.sources} if frontier else {}
    items: list[Table | Plot] = []
    if usual:
        rows = [time_row(measurements, sources, reasons, rung, point) for point in usual]
        caption = (
            "Medians of kernel time in ms per batch. cuDNN: in the class's "
            "layout, same run. Predicted: from the machine code and the card's ceilings, not from times."
        )
        key, samples = f"{rung.name}-times", [point.samples("kernel") for point in usual]
        items.append(
            Table(key, "Default constants", caption, TIMES, rows, samples=samples, filters=("workload", "N"), csv=False)
        )
    if others:
        rows = [
            (
                point.workload,
                point.layer,
                point.N,
                point.label,
                time.median if (time := point.time("kernel")) else None,
                interval(time),
                point.median("total"),
                point.error,
                point.run.name,
            )
            for point in others
        ]
        columns = ("workload", "layer", "N", "rung", "ms", "95 %", "with copies, ms", "max error", "run")
        samples = [point.samples("kernel") for point in others]
        title = "Other constants and transfers"
        items.append(
            Table(f"{rung.name}-others", title, "", columns, rows, samples=samples, filters=("layer", "N"), csv=False)
        )
    return items


def problems_of(measurements: Measurements, rung: Rung, workload: str) -> dict[int, Problem]:
    """A workload's layers, with the rung's default constants."""
    N = measurements.main_batch(workload)
    convs = {layer: WORKLOADS[workload].layer(layer) for layer in layer_numbers(workload)}
    return {layer: Problem(conv, N, rung.resolve(conv, {}, N)) for layer, conv in convs.items()}


def refused(measurements: Measurements, rung: Rung) -> list[Table | Plot]:
    """The layers that the rung does not take, and why: from the ladder."""
    rows: list[tuple[Cell, ...]] = []
    for workload in measurements.workloads:
        for layer, problem in problems_of(measurements, rung, workload).items():
            if reason := rung.refuses(problem):
                rows.append((workload, layer, reason))
    columns = ("workload", "layer", "why")
    return [Table(f"{rung.name}-refused", "Layers that it does not take", "", columns, rows, csv=False)] if rows else []


def constants(measurements: Measurements, rung: Rung) -> list[Table | Plot]:
    """What ``--set`` changes: each constant's meaning, values and defaults, on AlexNet or a workload that it takes."""
    for workload in sorted(measurements.workloads, key=lambda name: name != WORKLOAD):
        problems = problems_of(measurements, rung, workload)
        if taken := {layer: problem for layer, problem in problems.items() if not rung.refuses(problem)}:
            break
    rows: list[tuple[Cell, ...]] = [
        (
            constant.name,
            constant.meaning,
            constant.allowed,
            *(taken[layer][constant.name] if layer in taken else None for layer in problems),
        )
        for constant in rung.constants
    ]
    if not rows:
        return []
    columns = ("constant", "meaning", "values", *(f"layer {layer}" for layer in problems))
    place = f"{workload}, N={measurements.main_batch(workload)}, on an {H200.name}"
    commands = f"alexconv run --rungs {rung.name} --set {rows[0][0]}=VALUE, or alexconv tune --rungs {rung.name}"
    caption = f"Defaults for {place}. Other values: {commands}."
    return [Table(f"{rung.name}-constants", "Constants and defaults", caption, columns, rows, csv=False)]


def time_row(
    measurements: Measurements, sources: dict[str, Source], reasons: Reasons, rung: Rung, point: Measured
) -> tuple[Cell, ...]:
    """A point's cells, in the order of TIMES."""
    axes = point.workload, point.layer, point.N
    time, total, series = point.time("kernel"), point.median("total"), point.series
    parent = Series(rung.parent or "", series.transfer)
    gain = gain_of(measurements, *axes, parent, series)[0] if rung.parent else None
    contract = next((candidate for candidate in CONTRACTS if candidate.kept_by(rung)), None)
    source = sources.get(point.run.name.partition("/")[0])
    peer = (
        hot(source.named(contract.peer, point.layer, point.N))
        if source and contract and point.workload == WORKLOAD
        else None
    )
    prediction = reasons.predicted(point)
    predicted = float(prediction["ms"]) if prediction else None
    ms = time.median if time else None
    theirs = kernel_ms(*axes, series) if point.workload == WORKLOAD else None
    return (
        *axes,
        ms,
        total,
        Faster(gain) if gain else None,
        point.tflops,
        reasons.share_of_roof(point),
        peer,
        speed(ms, peer),
        predicted,
        over(predicted, ms),
        theirs,
        point.error,
        point.run.name,
    )


def counters(reasons: Reasons, rung: Rung) -> list[Table | Plot]:
    """What Nsight Compute counted for each of its kernels."""
    profiles = reasons.counters(rung.name)
    if not profiles:
        return []
    rows = [counter_row(profile) for profile in profiles]
    busy = busy_text(rung, longest(profiles))
    caption = f"Counted by Nsight Compute. Of the longest kernel: {busy}." if busy else "Counted by Nsight Compute."
    columns = ("workload", "layer", "N", "kernel", *COUNTERS.values())
    return [Table(f"{rung.name}-counters", "Each kernel", caption, columns, rows, filters=("layer",), csv=False)]


def longest(profiles: list[Record]) -> Record:
    """The profile of the kernel that took longest."""
    return max(profiles, key=lambda profile: profile["metrics"].get("duration_ns", 0.0))


def launches(measurements: Measurements, rung: Rung) -> list[Table | Plot]:
    """Grid, block and resources on each layer, at the usual batch."""
    rows: list[tuple[Cell, ...]] = []
    for workload in measurements.workloads:
        N = measurements.main_batch(workload)
        for layer in layer_numbers(workload):
            point = measurements.find(workload, layer, N, Series(rung.name, measurements.transfer))
            for launch in (point.record.get("launches") or ()) if point else ():
                rows.append((workload, layer, N, *launch_cells(launch)))
    sizes = ("registers", "shared (bytes)", "local (bytes)", "occupancy (%)")
    columns = ("workload", "layer", "N", "kernel", "grid", "block", *sizes)
    caption = "Launches of the first piece. Occupancy: theoretical. Local bytes: registers spilled, per thread."
    return [Table(f"{rung.name}-launches", "Launches", caption, columns, rows, csv=False)] if rows else []


def code(rung: Rung, ladder: Ladder, text: str) -> list[Code]:
    """What changed since the parent's file, and the file."""
    listings = [Code(f"{rung.name}-source", f"kernels/{rung.file}", "", text)] if text else []
    parent = ladder.named.get(rung.parent or "")
    before = source_of(parent) if parent else ""
    if text and parent and before and parent.file != rung.file:
        caption = "Between the two files, without the headers that they include."
        listings.insert(0, Code(f"{rung.name}-diff", f"What changed since {parent.name}", caption, text, before))
    return listings
