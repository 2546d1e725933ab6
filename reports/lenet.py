"""The LeNet-style studies: each study's own variants, measured here with its constants, beside what it printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.studies import PUBLISHED, STUDY_WORKLOADS, Variant
from alexconv.records.statistics import Summary
from alexconv.records.store import Record
from alexconv.reports import charts, findings, published
from alexconv.reports.alexnet import breakdown_plot
from alexconv.reports.charts import Dot, Line, Step, dots, lines, one
from alexconv.reports.elements import Cell, Faster, Plot, Section, Table
from alexconv.reports.measurements import (
    COPIES,
    KERNELS,
    Measured,
    Measurements,
    added,
    footnote,
    layer_numbers,
    sum_or_none,
)
from alexconv.reports.published import Figure, Series
from alexconv.reports.style import look
from alexconv.reports.why import COUNTERS, counter_row, longest_stall
from alexconv.shapes import WORKLOADS

FIGURES = {"op_time": "kernel", "layer_time_with_memcpy": "total"}  # our figure for each quantity of the study
SUM = "total_op_time"  # of both layers, in a sweep
VARIANTS = "Variants of the studies"  # the title of the table that says why programs differ
BASELINES = ("tiled-grid-baseline", "baseline")
CURVES = 6  # rungs in one figure
EFFICIENCIES = {  # of table 1 of 2018
    "global_load_efficiency": "global load efficiency",
    "global_store_efficiency": "global store efficiency",
    "warp_execution_efficiency": "warp execution efficiency",
    "achieved_occupancy": "occupancy achieved",
}

# Why a study's variant and the rung that stands for it are not the same program, where they are not.
UNLIKE = {
    ("ece408-2018", "unroll-matmul-constant-weights"): "its op time includes copying the filters to constant memory",
    ("ece408-2019", "unroll-matmul-batched-chunked"): "its op time includes 0.4 s of cudaMalloc and cudaFree",
    ("ece408-2019", "unroll-register-tiled-matmul"): "there registers hold filters, here sums",
    ("ece408-2019", "fused-unroll-matmul"): "the study does not print its block size: 16 taken",
    ("ece408-2019", "fused-swept-tiles-16-24"): "there one pointer is __restrict__, here none",
    ("ece408-2023", "streams-overlap"): "its layer time includes page-locking the host arrays and making the streams",
    ("ece408-2024", "fused-unroll-matmul"): "there the one kernel still writes the unrolled matrix",
    ("ece408-2024", "fp16"): "there arrays stay float32 and are converted in the kernel, without fused multiply-adds",
}


@dataclass(frozen=True)
class Row:
    """A variant of a study in one layer, or the sum of all layers (``layer`` None)."""

    study: str
    name: str
    quantity: str
    layer: int | None

    @property
    def variant(self) -> Variant | None:
        """Its counterpart in the ladder; None for the serial CPU."""
        return PUBLISHED.get((self.study, self.name))

    @property
    def workload(self) -> str:
        """The study's workload."""
        return STUDY_WORKLOADS[self.study]


def section(measurements: Measurements, study: str) -> Section:
    """A study's tables and figures."""
    text = (
        "Op time is the time of one layer's kernels. Each variant that the study timed is a rung with the study's own "
        "constants (tile, restrict, unrolling, images at a time); 'here' is that rung, 'study' what the study printed "
        "for its GPU, 'here / study' their ratio: below 1 is faster here. A * marks variants that are not the same "
        "program on both sides; the table linked above says why."
    )
    if not measurements.timed or STUDY_WORKLOADS[study] not in measurements.workloads:
        return Section("op-times", "Op times", text)
    parts = (part(measurements, study) for part in (side_by_side, waterfall, gains, swept))
    tables = [by_batch(measurements, study), op_times(measurements, study)]
    items = [*tables, *(item for items in parts for item in items)]
    items += [*properties(measurements, study), *counters(measurements, study)]
    return Section("op-times", "Op times", text, items)


def defaults(measurements: Measurements, workload: str) -> Section:
    """A studies' workload with the rungs' own constants."""
    N = measurements.main_batch(workload)
    title = f"{workload}: kernels and copies of both layers, default constants, N={N}"
    items = [
        breakdown_plot(
            measurements, f"{workload}-breakdown", title, (workload, None, N), measurements.series(workload, N)
        ),
        *curves(measurements, workload),
    ]
    return Section("op-times", "Op times", "Kernel times of one layer, with the rungs' default constants.", items)


@cache
def figures_of(study: str) -> dict[Row, dict[int, list[Figure]]]:
    """What a study printed: figures by variant, layer and batch, two where it printed two."""
    by_row: dict[Row, dict[int, list[Figure]]] = {}
    for figure in published.figures():
        if figure.study == study and figure.quantity in (*FIGURES, SUM):
            row = Row(study, figure.variant, figure.quantity, figure.layer)
            by_row.setdefault(row, {}).setdefault(figure.N, []).append(figure)
    return by_row


def of_study(measurements: Measurements, study: str) -> Measurements:
    """The points of the study's own variants, with its constants."""
    wanted = {(variant.rung, variant.transfer) for (name, _), variant in PUBLISHED.items() if name == study}

    def own(point: Measured) -> bool:
        if point.workload != STUDY_WORKLOADS[study] or tuple(point.series) not in wanted:
            return False
        return any(stands_for(point, variant) for (name, _), variant in PUBLISHED.items() if name == study)

    return measurements.of_one_run(own)


def stands_for(point: Measured, variant: Variant) -> bool:
    """Whether a point is the variant's, with its constants."""
    if tuple(point.series) != (variant.rung, variant.transfer):
        return False
    return not other_constants(point.record, variant)


def other_constants(record: Record, variant: Variant) -> dict[str, tuple[int, int]]:
    """The constants in which a record of the variant's rung is not the variant: its value, and the variant's."""
    point = record["point"]
    layer, constants = point["layer"], point["constants"]
    chosen = {
        name: value[layer - 1] if isinstance(value, tuple) else value for name, value in variant.constants.items()
    }
    expected = RUNGS[variant.rung].resolve(WORKLOADS[point["workload"]].layer(layer), chosen, point["N"])
    return {name: (constants[name], value) for name, value in expected.items() if constants.get(name, value) != value}


def ours(measurements: Measurements, row: Row, N: int) -> Summary | None:
    """Our time of a variant, in the study's quantity; None if not measured."""
    if row.layer is None:
        rows = [Row(row.study, row.name, row.quantity, layer) for layer in layer_numbers(row.workload)]
        return added(ours(measurements, layer_row, N) for layer_row in rows)
    if row.variant is None:
        ms = measurements.serial(row.workload, row.layer, N)
        return None if ms is None else one(ms)
    points = (point for point in measurements.of_points(row.workload, row.layer, N) if stands_for(point, row.variant))
    point = next(points, None)
    return point.time(FIGURES.get(row.quantity, "kernel")) if point else None


def name_of(row: Row) -> str:
    """The variant's name, starred where it is not like for like."""
    return f"{row.name} *" if (row.study, row.name) in UNLIKE else row.name


def printed_name(row: Row) -> str:
    """The name, and whether the study's time has the copies too."""
    return f"{name_of(row)}{' (copies included)' if FIGURES[row.quantity] == 'total' else ''}"


def stand_in(row: Row) -> str:
    """The rung that stands for a variant, its transfer and the study's constants, of one layer."""
    variant = row.variant
    if variant is None:
        return "serial CPU"
    constants = " ".join(
        f"{name}={value if isinstance(value, int) or row.layer is None else value[row.layer - 1]}"
        for name, value in variant.constants.items()
    )
    label = Series(variant.rung, variant.transfer).label
    return f"{label} [{constants}]" if constants else label


def op_times(measurements: Measurements, study: str) -> Table:
    """Rows: a study's variants by layer; columns: batches, each with the study's time, ours and the ratio."""
    by_row = {row: figures for row, figures in figures_of(study).items() if row.layer}
    batches = sorted({N for figures in by_row.values() for N in figures})
    points = of_study(measurements, study)
    rows: list[tuple[Cell, ...]] = []
    for row, figures in by_row.items():
        cells: list[Cell] = []
        for N in batches:
            theirs = figures[N][0].value if N in figures else None
            own = ours(points, row, N) if theirs else None
            cells += [theirs, *against(own, theirs)]
        gpu = next(iter(figures.values()))[0].gpu
        rows.append((row.study, gpu, printed_name(row), stand_in(row), row.layer, *cells))
    of_batch = [f"N={N}, {heading}" for N in batches for heading in ("study (ms)", "here (ms)", "here / study")]
    caption = (
        "Here: medians of ms per batch; the studies: single figures. CPU rows: the studies' serial CPU and ours. "
        + footnote(points.points, by_series=False)
    )
    columns = ("study", "GPU", "variant", "rung here", "layer", *of_batch)
    return Table(f"{study}-op-times", f"{study}: op times of its variants", caption, columns, rows)


def by_batch(measurements: Measurements, study: str) -> Table:
    """The study's op times in its own form: a variant's batches below each other, the layers side by side."""
    points, by_row = of_study(measurements, study), figures_of(study)
    layers = [*layer_numbers(STUDY_WORKLOADS[study])]
    rows: list[tuple[Cell, ...]] = []
    for name, quantity in dict.fromkeys((row.name, row.quantity) for row in by_row if row.layer):
        of_layers = [Row(study, name, quantity, layer) for layer in layers]
        for N in sorted({N for row in of_layers for N in by_row.get(row, {})}):
            theirs = [figures[N][0].value if N in (figures := by_row.get(row, {})) else None for row in of_layers]
            times = [ours(points, row, N) for row in of_layers]
            here = [time.median if time else None for time in times]
            cells = [cell for pair in zip(theirs, here, strict=True) for cell in pair]
            whole, total = sum_or_none(here), sum_or_none(theirs)
            rows.append((printed_name(of_layers[0]), N, *cells, whole / total if whole and total else None))
    heads = [f"Op Time {layer}, {who} (ms)" for layer in layers for who in ("study", "here")]
    caption = f"Medians here. A * marks a different program. {footnote(points.points, by_series=False)}"
    columns = ("variant", "dataset size", *heads, "both, here / study")
    title = f"{study}: op times as the study prints them"
    return Table(f"{study}-by-batch", title, caption, columns, rows, filters=("variant", "dataset size"))


def against(own: Summary | None, theirs: float | None) -> tuple[float | None, float | None]:
    """Our median and its ratio to the study's time."""
    return (None, None) if own is None else (own.median, own.median / theirs if theirs else None)


def side_by_side(measurements: Measurements, study: str) -> list[Table | Plot]:
    """A study's variants at its largest batch, ours and the published, layer by layer."""
    own = of_study(measurements, study)
    by_row = {row: figures for row, figures in figures_of(study).items() if row.layer and row.variant}
    N = max((N for figures in by_row.values() for N in figures), default=0)
    panels = []
    for layer in layer_numbers(STUDY_WORKLOADS[study]):
        drawn = [
            Dot(name_of(row), look(row.variant.rung if row.variant else ""), ours(own, row, N), figures[N][0].value)
            for row, figures in by_row.items()
            if row.layer == layer and N in figures
        ]
        panels.append((f"layer {layer}, N={N}", drawn))
    if not any(dot.ours for _, drawn in panels for dot in drawn):
        return []
    gpu = next(iter(next(iter(by_row.values())).values()))[0].gpu
    caption = f"The study's variants with its constants. Left is faster. {own.footnote(of=COPIES)}"
    draw = partial(dots, panels, "op time (ms per batch)", f"published ({gpu})")
    title = findings.titled(f"{study}, op times of its variants, N={N}", findings.by_panel(panels))
    return [Plot(f"{study}-variants", title, caption, draw)]


def waterfall(measurements: Measurements, study: str) -> list[Table | Plot]:
    """A study's variants over its baseline, both layers added up, at the largest batch at which that was measured."""
    own, by_row = of_study(measurements, study), figures_of(study)
    names = list(dict.fromkeys(row.name for row in by_row if row.layer and row.quantity == "op_time" and row.variant))
    baseline = Row(study, next((name for name in BASELINES if name in names), ""), "op_time", None)
    batches = sorted({N for row, figures in by_row.items() if row.name == baseline.name for N in figures})
    N = next((N for N in reversed(batches) if ours(own, baseline, N)), 0)
    base = ours(own, baseline, N) if N else None
    if base is None:
        return []
    steps: list[Step] = []
    for name in names:
        row = Row(study, name, "op_time", None)
        printed = [
            figures.get(N)
            for printed_row, figures in by_row.items()
            if printed_row.name == name and printed_row.quantity == "op_time"
        ]
        theirs = sum_or_none([figures[0].value if figures else None for figures in printed])
        if row.variant and (time := ours(own, row, N)):
            over = None if name == baseline.name else base.median
            steps.append(Step(row.variant.rung, look(row.variant.rung), time, over, theirs, label=stand_in(row)))
    gpu = next(iter(next(iter(by_row.values())).values()))[0].gpu
    unit = "op time, both layers (ms per batch)"
    draw = partial(charts.waterfall, steps, unit, parent=f"the study's baseline, {baseline.name}", gpu=gpu)
    caption = (
        "Each variant as a rung with the study's constants. Right margin: its time, and how many times faster than the "
        f"study's baseline it is. {own.footnote(of=KERNELS)}"
    )
    dots = [Dot(step.name, step.look, step.own, step.published) for step in steps]
    title = findings.titled(f"{study}, from variant to variant, both layers, N={N}", findings.fastest(dots, least=True))
    return [Plot(f"{study}-waterfall", title, caption, draw)]


def gains(measurements: Measurements, study: str) -> list[Table | Plot]:
    """How many times faster than the study's baseline each of its variants is, in the study and here."""
    own, by_row = of_study(measurements, study), figures_of(study)
    names = list(dict.fromkeys(row.name for row in by_row if row.layer and row.quantity == "op_time" and row.variant))
    baseline = next((name for name in BASELINES if name in names), None)
    layers = [*layer_numbers(STUDY_WORKLOADS[study])]
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        of_layers = [Row(study, name, "op_time", layer) for layer in layers]
        base = [Row(study, baseline or "", "op_time", layer) for layer in layers]
        batches = sorted(set.intersection(*(set(by_row.get(row, {})) for row in (*of_layers, *base))))
        if name == baseline or not batches:
            continue
        N = batches[-1]
        pairs = list(zip(base, of_layers, strict=True))
        theirs = [(by_row[slow][N][0].value, by_row[fast][N][0].value) for slow, fast in pairs]
        here = [(median_of(own, slow, N), median_of(own, fast, N)) for slow, fast in pairs]
        cells = [*(gain([pair]) for pair in theirs), gain(theirs), *(gain([pair]) for pair in here), gain(here)]
        rows.append((name_of(of_layers[0]), stand_in(Row(study, name, "op_time", None)), N, *cells))
    if not rows:
        return []
    places = [*(f"layer {layer}" for layer in layers), "both layers"]
    columns = ("variant", "rung here", "N", *(f"{place}, {who}" for who in ("study", "here") for place in places))
    title = f"{study}: each variant against {baseline}"
    caption = f"Op times at the study's largest batch for the variant. {own.footnote(of=KERNELS)}"
    return [Table(f"{study}-gains", title, caption, columns, rows)]


def median_of(measurements: Measurements, row: Row, N: int) -> float | None:
    """The median alone of our time of a variant."""
    time = ours(measurements, row, N)
    return time.median if time else None


def gain(pairs: Sequence[tuple[float | None, float | None]]) -> Faster | None:
    """Sum of the first times over the sum of the second, or None where one is missing."""
    slow, fast = (sum_or_none([pair[side] for pair in pairs]) for side in (0, 1))
    return Faster(slow / fast) if slow and fast else None


def curves(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Op time against the batch, for the fastest rungs with default constants."""
    batches, N = measurements.batches(workload), measurements.main_batch(workload)
    if len(batches) < 2:
        return []
    totals = {
        series: measurements.time(workload, None, N, series, "kernel") for series in measurements.series(workload)
    }
    ranked = sorted((time.median, series) for series, time in totals.items() if time)[:CURVES]
    panels = [
        (
            f"layer {layer}",
            [
                Line(
                    series.label,
                    look(series.rung, measurements.ladder),
                    batches,
                    [measurements.time(workload, layer, batch, series, "kernel") for batch in batches],
                )
                for _, series in ranked
            ],
        )
        for layer in measurements.layers(workload)
    ]
    finding = f"{ranked[0][1].label} is fastest at N={N}" if ranked else ""
    title = findings.titled(f"{workload}, op time against the batch, default constants", finding)
    runs = measurements.footnote([series for _, series in ranked], workload, of=KERNELS)
    caption = f"The {len(ranked)} fastest of {len(totals)} rungs at N={N}. {runs}"
    return [Plot(f"{workload}-scaling", title, caption, partial(lines, panels, "op time (ms per batch)"))]


def swept(measurements: Measurements, study: str) -> list[Table | Plot]:
    """A study's sweep of tile sizes, both layers added up as the study does."""
    own = of_study(measurements, study)
    rows: list[tuple[Cell, ...]] = []
    for row, figures in figures_of(study).items():
        for N, printed in figures.items() if row.quantity == SUM else ():
            time = ours(own, row, N)
            rows += [(row.name, stand_in(row), N, figure.value, *against(time, figure.value)) for figure in printed]
    times = ("study, both layers (ms)", "here (ms)", "here / study")
    columns = ("tiles of layer 1, 2", "rung here", "N", *times)
    caption = (
        "Sums of both layers' op times, each layer with its own tile. The study prints one pair of tiles "
        f"twice, with two times. {own.footnote(of=KERNELS)}"
    )
    return [Table(f"{study}-sweep", f"{study}: the study's sweep", caption, columns, rows)] if rows else []


def properties(measurements: Measurements, study: str) -> list[Table | Plot]:
    """The study's profiler figures of its baseline, beside ours (2018, table 1)."""
    printed = [figure for figure in published.figures() if figure.study == study and figure.quantity in EFFICIENCIES]
    rows: list[tuple[Cell, ...]] = []
    unlike: dict[str, tuple[int, int]] = {}
    for quantity, name in EFFICIENCIES.items():
        for figure in printed:
            if figure.quantity == quantity and figure.layer:
                profile = counted(measurements, figure)
                here = profile["metrics"].get(quantity) if profile else None
                rows.append((name, figure.layer, figure.N, figure.value, None if here is None else float(here)))
                unlike |= other_constants(profile, PUBLISHED[study, figure.variant]) if profile else {}
    if not printed:
        return []
    title = f"{study}: kernel execution properties of the baseline, N={printed[0].N}"
    columns = ("property", "layer", "N", "study (%)", "here (%)")
    ours, theirs = (" ".join(f"{name}={pair[side]}" for name, pair in unlike.items()) for side in (0, 1))
    rung = PUBLISHED[study, printed[0].variant].rung
    of = f", of {rung} with its default constants ({ours}), not the baseline's {theirs}" if unlike else ""
    caption = f"The study's from nvprof on its GPU. Ours: Nsight Compute{of}."
    return [Table(f"{study}-properties", title, caption, columns, rows)]


def counted(measurements: Measurements, figure: Figure) -> Record | None:
    """Our profile of the longest kernel of the rung that stands for a figure's variant."""
    variant = PUBLISHED[figure.study, figure.variant]
    kernels = [
        profile
        for profile in measurements.of_type("profile")
        if (profile["source"], profile["point"]["workload"]) == ("ncu", figure.workload)
        and (profile["point"]["layer"], profile["point"]["rung"]) == (figure.layer, variant.rung)
    ]
    return max(kernels, key=lambda profile: profile["metrics"].get("duration_ns", 0.0), default=None)


def counters(measurements: Measurements, study: str) -> list[Table | Plot]:
    """The data of the study's profiler screenshots: each kernel's duration, use of units and memories, and stalls."""
    variants = [variant for (name, _), variant in PUBLISHED.items() if name == study]
    rungs = {variant.rung for variant in variants}
    profiles = [
        profile
        for profile in measurements.of_type("profile")
        if profile["source"] == "ncu"
        and profile["point"]["workload"] == STUDY_WORKLOADS[study]
        and profile["point"]["rung"] in rungs
    ]
    rows = [
        (profile["point"]["rung"], *counter_row(profile)[1:], longest_stall(profile["metrics"]) or None)
        for profile in profiles
    ]
    columns = ("rung", "layer", "N", "kernel", *COUNTERS.values(), "main stall")
    title = f"{study}: counters of the rungs that stand for its variants"
    unlike = any(
        all(other_constants(profile, variant) for variant in variants if variant.rung == profile["point"]["rung"])
        for profile in profiles
    )
    constants = ", with their default constants, not the study's as in the tables above: durations differ"
    caption = (
        "The data of the study's screenshots of nvprof, Nsight Systems and Nsight Compute, for the kernels here, in "
        f"launch order. Counted by Nsight Compute{constants if unlike else ''}."
    )
    return [Table(f"{study}-counters", title, caption, columns, rows, filters=("layer",))] if rows else []


def coverage(measurements: Measurements) -> Table:
    """How many variants of each study stand beside ours like for like, and why others do not."""
    rows: list[tuple[Cell, ...]] = []
    for study, workload in STUDY_WORKLOADS.items():
        own, by_row = of_study(measurements, study), figures_of(study)
        names = list(dict.fromkeys(row.name for row in by_row if row.variant))
        here = [
            name for name in names if all(ours(own, row, N) for row in by_row if row.name == name for N in by_row[row])
        ]
        like = [name for name in here if (study, name) not in UNLIKE]
        why = [f"{name}: {UNLIKE[study, name]}" for name in names if (study, name) in UNLIKE]
        why += [f"{name}: not measured" for name in names if name not in here]
        printed = sum(
            len(figures) for name in names for row in by_row if row.name == name for figures in by_row[row].values()
        )
        runs = ", ".join(run.text for run in own.runs) or None
        rows.append((study, workload, len(names), printed, len(here), len(like), "; ".join(why) or "none", runs))
    totals = [sum(int(row[column] or 0) for row in rows) for column in range(2, 6)]
    rows.append(("all", "", *totals, "", None))
    counts = ("variants", "their figures", "measured here", "like for like")
    columns = ("study", "workload", *counts, "others, and why", "runs")
    caption = (
        "A variant counts as measured if every figure that the study printed for it has one of ours. Serial CPU "
        "runs are not counted."
    )
    return Table("lenet-coverage", VARIANTS, caption, columns, rows)
