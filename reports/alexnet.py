"""The AlexNet study's tables and figures, ours and the published ones.  Table and figure numbers are the study's."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import fsum

import numpy as np

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALIASES, RUNGS, TRANSFER_ALIASES
from alexconv.kernels.rung import Rung
from alexconv.records.statistics import Summary
from alexconv.reports import findings, mapping, published
from alexconv.reports.charts import DIRECTIONS, Dot, Line, Stack, dots, layer_marker, lines, one, stacks
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import (
    COPIES,
    KERNELS,
    Measured,
    Measurements,
    Run,
    at_study_batch,
    layer_numbers,
    order,
    speedup_over,
)
from alexconv.reports.published import ALEXNET_GPU, ALEXNET_STUDY, COALESCED, STUDY_TRANSFER, Series, variant_of
from alexconv.reports.style import look
from alexconv.shapes import WORKLOADS

WORKLOAD = "alexnet"
BREAKDOWNS = ("mk-sw-mt-si-c-vec", "mk-sw-mt-si-c-half", "mk-sw-mt-si-c")  # figures 12a, b, c
SCALED = (("14", "10", "rswmtla2m"), ("15", "11", "exp-mk-sw-mt-si-c-vec"))  # figures, table, variant
LAYERWISE = (("13a", "rswmtla2m"), ("13b", "mk-sw-mt-si-c-vec"))
HEADLINE = "mk-sw-mt-si-c-vec"
PAIR = ("mk-sw-mt-si-c-vec", "exp-mk-sw-mt-si-c-vec")  # figure 16
STUDY, DERIVED = "study", "derived from the study"
LEAST_TO_FIT = 3  # batch sizes
SHOWN_LAYER = 3  # of table 1
STUDY_BLOCKS = ("28×28", "27×27", "13×13", "13×13", "13×13")  # by layer
STUDY_SCALING = (1, 32, 128, 256, 512, 1024, 2048)  # batch sizes
Fit = tuple[float, float, float]  # fixed part and slope in ms, largest relative deviation


def section(measurements: Measurements) -> Section:
    """The study's tables and figures that have points."""
    items: list[Table | Plot] = []
    if WORKLOAD in measurements.workloads:
        tables = measurements.of_one_run(lambda point: point.workload == WORKLOAD and at_study_batch(point))
        tables = tables if tables.points else measurements
        items += [abbreviations(), blocks()]
        if measurements.timed:
            items += headline(tables)
            items += result_tables(tables)
            items += layer_figures(tables)
        items += mapping_figures()
        if measurements.timed:
            items += coalescing(measurements)
            items += breakdowns(tables)
            items += layerwise(tables)
            for figure, table, variant in SCALED:
                items += scaling(measurements, figure, table, Series(ALIASES[variant]))
            items += pair(tables)
    text = (
        f"The figures of the study {ALEXNET_STUDY}, in its order and numbering: measured here, and as published "
        f"for its {ALEXNET_GPU}. Columns headed by a rung's name are ours; columns headed by the study's "
        "abbreviation are the study's. Speedups are over each side's own serial CPU run and include the copies. "
        "Where several runs hold a rung, its column or line comes from the run with most of its points."
    )
    if not measurements.timed:
        text = f"Tables and figures of the study {ALEXNET_STUDY} that need no GPU, in its numbering."
    return Section("alexnet-study", "The AlexNet study", text, items)


# Tables 1 and 2, from the ladder alone


def abbreviations() -> Table:
    """Table 1: the study's names, and which rung is which."""
    conv = WORKLOADS[WORKLOAD].layer(SHOWN_LAYER)
    rows: list[tuple[Cell, ...]] = []
    for alias, name, transfer in named_variants():
        rung = RUNGS[name]
        launches = BoundRung(rung, conv, rung.resolve(conv, {})).launches(1)
        grids = ", then ".join("×".join(map(str, launch.grid)) for launch in launches)
        rows.append((alias, "N×M" if rung.family == "single" else "N×M×C", name, transfer, rung.idea, grids))
    columns = ("the study's name", "its grid", "rung here", "transfer", "idea", f"grid here, layer {SHOWN_LAYER}, N=1")
    caption = (
        "The study's 13 variants in its order; N images, M filters, C channels. Each is a rung here, or a rung under "
        "another transfer. A block here may take several channels: the third number is C over their count."
    )
    return Table("table-1", "Table 1: the study's abbreviations and the rungs here", caption, columns, rows)


def named_variants() -> list[tuple[str, str, str]]:
    """The study's name, the rung and the transfer of each of its variants, in its order."""
    singles = [(rung.alias, rung.name, STUDY_TRANSFER) for rung in RUNGS.values() if known_to_study(Series(rung.name))]
    copied = [(alias, *names) for alias, names in TRANSFER_ALIASES.items()]
    return [*singles[:1], *copied, *singles[1:]]


def blocks() -> Table:
    """Table 2: each layer's block of threads."""
    rung = RUNGS[ALIASES["rla2m"]]
    rows: list[tuple[Cell, ...]] = []
    for layer in layer_numbers(WORKLOAD):
        conv = WORKLOADS[WORKLOAD].layer(layer)
        constants = rung.resolve(conv, {})
        x, y, _ = BoundRung(rung, conv, constants).launches(1)[0].block
        rows.append((layer, f"{conv.E}×{conv.F}", STUDY_BLOCKS[layer - 1], f"{x}×{y}", constants["THREAD_OUTPUTS"]))
    columns = ("layer", "output", "block in the study", "block here", "outputs per thread along each side")
    caption = f"{rung.name}, from its ladder entry. A block has at most 1024 threads, fewer than 55×55."
    return Table("table-2", "Table 2: block of each layer", caption, columns, rows)


# The headline, tables 3 to 9


def headline(measurements: Measurements) -> list[Table | Plot]:
    """The study's best variant over all layers, in its own figures, beside ours."""
    series, N = Series(ALIASES[HEADLINE]), WORKLOADS[WORKLOAD].batches[-1]
    kernel, total = (measurements.time(WORKLOAD, None, N, series, figure) for figure in ("kernel", "total"))
    serial = measurements.serial(WORKLOAD, None, N)
    over = {name: speedup_over(serial, time) for name, time in (("kernel", kernel), ("total", total))}
    quantities: list[tuple[str, float | None, str]] = [
        ("kernels (ms)", kernel.median if kernel else None, "total_kernel_time"),
        ("kernels and copies (ms)", total.median if total else None, "total_time_with_memcpy"),
        ("serial CPU (s)", seconds(serial), "total_cpu_time"),
        ("speedup, kernels (×)", over["kernel"].median if over["kernel"] else None, "total_speedup_kernel_only"),
        ("speedup, with copies (×)", over["total"].median if over["total"] else None, "total_speedup_with_memcpy"),
    ]
    rows = [(label, own, published.value(WORKLOAD, None, N, HEADLINE, quantity)) for label, own, quantity in quantities]
    if not any(own for _, own, _ in rows):
        return []
    title = f"The study's headline: {series.rung} over all layers, N={N}"
    caption = f"The study's {HEADLINE}, its best, on {ALEXNET_GPU}. {measurements.footnote([series])}"
    return [Table("headline", title, caption, ("what", "here", "study"), rows)]


def result_tables(measurements: Measurements) -> list[Table | Plot]:
    """Tables 3 to 7."""
    single = members(measurements, lambda rung: rung.family == "single")
    multi = members(measurements, lambda rung: rung.family == "multi" and not rung.order_varies)
    kernel = partial(measurements.time, figure="kernel")
    both = "with the copies, over the serial CPU run"
    return [
        *copies_table(measurements),
        *pairs(
            measurements,
            "table-4",
            "Table 4: kernel time, one kernel per layer (ms)",
            single,
            kernel,
            published.kernel_ms,
        ),
        *pairs(
            measurements,
            "table-5",
            f"Table 5: speedup {both}, one kernel per layer",
            single,
            measurements.speedup,
            published.speedup,
        ),
        *pairs(
            measurements,
            "table-6",
            "Table 6: kernel time, channels in parallel (ms)",
            multi,
            kernel,
            published.kernel_ms,
        ),
        *pairs(
            measurements,
            "table-7",
            f"Table 7: speedup {both}, channels in parallel",
            multi,
            measurements.speedup,
            published.speedup,
        ),
    ]


def members(measurements: Measurements, chosen: Callable[[Rung], bool]) -> list[Series]:
    """The series that the study has a name for and whose rung is chosen."""
    return [
        series
        for series in measurements.series(WORKLOAD)
        if (rung := measurements.rung(series)) and chosen(rung) and known_to_study(series)
    ]


def known_to_study(series: Series) -> bool:
    """Whether the study published kernel times of the series."""
    return any(published.kernel_ms(WORKLOAD, 1, N, series) for N in WORKLOADS[WORKLOAD].batches)


def studied(series: Sequence[Series]) -> list[Series]:
    """The series that the study has, or all if it has none of them."""
    return [variant for variant in series if known_to_study(variant)] or list(series)


def study_points(measurements: Measurements) -> list[tuple[int, int]]:
    """Layers and batch sizes that are both in the study's tables and in the records."""
    batches = [N for N in WORKLOADS[WORKLOAD].batches if N in measurements.batches(WORKLOAD)]
    return [(layer, N) for layer in measurements.layers(WORKLOAD) for N in batches]


def pairs(
    measurements: Measurements,
    key: str,
    title: str,
    series: Sequence[Series],
    ours: Callable[[str, int | None, int, Series], Summary | None],
    theirs: Callable[[str, int | None, int, Series], float | None],
) -> list[Table | Plot]:
    """A table with two columns per series, ours and the study's."""
    if not series or not study_points(measurements):
        return []
    heads = [head for variant in series for head in (variant.label, variant_of(variant) or "")]
    rows: list[tuple[Cell, ...]] = []
    for layer, N in study_points(measurements):
        cells: list[Cell] = [
            seconds(measurements.serial(WORKLOAD, layer, N)),
            published.serial_seconds(WORKLOAD, layer, N),
        ]
        for variant in series:
            own = ours(WORKLOAD, layer, N, variant)
            cells += [own.median if own else None, theirs(WORKLOAD, layer, N, variant)]
        rows.append((layer, N, *cells))
    caption = f"Medians here; the study's own figures ({ALEXNET_GPU}) under its abbreviations."
    caption = f"{caption} {measurements.footnote(series)}"
    return [Table(key, title, caption, ("layer", "N", "CPU here (s)", "CPU study (s)", *heads), rows)]


def seconds(ms: float | None) -> float | None:
    """Milliseconds as seconds."""
    return None if ms is None else ms / 1000


def copies_table(measurements: Measurements) -> list[Table | Plot]:
    """Table 3: copies of the first rung of each family and precision."""
    chosen = [Series(ALIASES[alias]) for alias in ("mcpy", "half", "mk", "mk-sw-mt-si-c-half")]
    names = ("memcpy", "memcpy half", "memcpy mk", "memcpy mk half")
    rows = []
    for layer, N in study_points(measurements):
        cells: list[Cell] = []
        for variant in chosen:
            own = measurements.time(WORKLOAD, layer, N, variant, "copies")
            cells += [own.median if own else None, published.copies_ms(WORKLOAD, layer, N, variant)]
        rows.append((layer, N, *cells))
    heads = [head for variant, name in zip(chosen, names, strict=True) for head in (variant.rung, name)]
    caption = "Both copies: input and filters to the device, output back; pageable memory."
    caption = f"{caption} {measurements.footnote(chosen, of=COPIES)}"
    table = Table("table-3", "Table 3: copying overhead (ms)", caption, ("layer", "N", *heads), rows)
    return [table] if rows else []


# Figures 3a to 8c


def layer_figures(measurements: Measurements) -> list[Table | Plot]:
    """Speedup and breakdown of each layer, and the overall speedups."""
    items: list[Table | Plot] = []
    N = measurements.main_batch(WORKLOAD)
    batches = [N for N in WORKLOADS[WORKLOAD].batches if N in measurements.batches(WORKLOAD)] or [N]
    for layer in measurements.layers(WORKLOAD):
        title = f"Fig. {layer + 2}a, speedup of layer {layer}, N={batches[-1]}"
        items.append(speedup_plot(measurements, f"fig-{layer + 2}a", title, layer, batches))
        title = f"Fig. {layer + 2}b, kernels and copies of layer {layer}, N={N}"
        drawn = studied(measurements.series(WORKLOAD, N))
        items.append(breakdown_plot(measurements, f"fig-{layer + 2}b", title, (WORKLOAD, layer, N), drawn))
    if measurements.layers(WORKLOAD) == list(layer_numbers(WORKLOAD)):
        for letter, batch in zip("abc", batches, strict=False):
            title = f"Fig. 8{letter}, overall speedup of all layers, N={batch}"
            items.append(speedup_plot(measurements, f"fig-8{letter}", title, None, [batch]))
    return items


def speedup_plot(measurements: Measurements, key: str, title: str, layer: int | None, batches: Sequence[int]) -> Plot:
    """Speedup over the serial CPU, copies included, one panel per batch size, of the study's rungs."""
    drawn = studied(measurements.series(WORKLOAD))
    panels = [
        (
            f"N={N}",
            [
                Dot(
                    series.label,
                    look(series.rung, measurements.ladder),
                    measurements.speedup(WORKLOAD, layer, N, series),
                    published.speedup(WORKLOAD, layer, N, series),
                )
                for series in drawn
            ],
        )
        for N in batches
    ]
    caption = (
        "Serial CPU time over total time, host arrays to host arrays; each study over its own CPU. Higher is faster. "
        + measurements.footnote(drawn)
    )
    theirs = theirs_from((layer, N, series) for series in drawn for N in batches)
    draw = partial(dots, panels, "speedup (×)", theirs)
    return Plot(key, findings.titled(title, findings.fastest(panels[-1][1])), caption, draw)


def theirs_from(places: Iterable[tuple[int | None, int, Series]]) -> str:
    """The legend of the study's speedups: printed by it, or computed here from the times that it prints."""
    known = [place for place in places if published.speedup(WORKLOAD, *place)]
    names = list(
        dict.fromkeys(series.label for layer, N, series in known if published.derived(WORKLOAD, layer, N, series))
    )
    if known and all(published.derived(WORKLOAD, *place) for place in known):
        return f"derived from the study's times ({ALEXNET_GPU})"
    return f"published ({ALEXNET_GPU})" + (f"; derived for {', '.join(names)}" if names else "")


def stack(
    measurements: Measurements, workload: str, layer: int | None, N: int, series: Series, label: str = ""
) -> Stack:
    """A bar of kernels and copies with the published pair."""
    copies = {name: measurements.time(workload, layer, N, series, name) for name in DIRECTIONS}
    return Stack(
        label or series.label,
        look(series.rung, measurements.ladder),
        measurements.time(workload, layer, N, series, "kernel"),
        {name: time.median for name, time in copies.items() if time},
        published_kernel=published.kernel_ms(workload, layer, N, series),
        published_copies=published.copies_ms(workload, layer, N, series),
    )


def breakdown_plot(
    measurements: Measurements,
    key: str,
    title: str,
    place: tuple[str, int | None, int],
    drawn: Sequence[Series],
) -> Plot:
    """Stacked kernels and copies of series; ``place`` is workload, layer (None: all of them) and N."""
    workload, layer, N = place
    bars = [stack(measurements, workload, layer, N, series) for series in drawn]
    panels = [(f"N={N}", [bar for bar in bars if bar.kernel])]
    caption = (
        "Medians; the whisker is the 95 % interval of the kernels' median. Lower is faster. "
        + measurements.footnote(drawn, workload, N, of=COPIES)
    )
    theirs = f"published ({ALEXNET_GPU})" if layer else f"sum of the published layers ({ALEXNET_GPU})"
    draw = partial(stacks, panels, "ms per batch", theirs)
    return Plot(key, findings.titled(title, findings.copies(bars)), caption, draw)


# Figures 9 to 11, table 8


def mapping_figures() -> list[Table | Plot]:
    """Figures 9 and 10, from the constants of layer 1 as a rung resolves them."""
    rung, conv = RUNGS[ALIASES["rla2m"]], WORKLOADS[WORKLOAD].layer(1)
    items: list[Table | Plot] = []
    for number, name, coalesced in ((9, "coalesced", 1), (10, "non-coalesced", 0)):
        constants = rung.resolve(conv, {"COALESCED": coalesced})
        touched = mapping.sectors_per_store(conv, constants)
        caption = (
            f"Drawn from the rung's constants ({', '.join(f'{k}={v}' for k, v in constants.items())}): which thread of "
            f"the block computes which output. A warp's store touches {touched:.1f} sectors of {mapping.SECTOR} bytes "
            "on average."
        )
        title = f"Fig. {number}: {name} accesses in layer 1"
        items.append(Plot(f"fig-{number}", title, caption, partial(mapping.draw, conv, constants)))
    return items


def coalescing(measurements: Measurements) -> list[Table | Plot]:
    """Table 8 and figure 11: layer 1 with both mappings, where both were measured."""
    rows: list[tuple[Cell, ...]] = []
    dots_by_batch: dict[int, list[Dot]] = {}
    pairs = mapped_twice(measurements)
    both = [point for *_, by_value in pairs for point in by_value.values()]
    measurements = replace(measurements, points=tuple(sorted(both, key=order)))
    for rung, N, by_value in pairs:
        serial = measurements.serial(WORKLOAD, 1, N)
        speedups = {value: speedup_over(serial, point.time("total")) for value, point in by_value.items()}
        theirs = {value: published_mapping(rung, N, value) for value in (0, 1)}
        cells: list[Cell] = [speedup.median if (speedup := speedups[value]) else None for value in (0, 1)]
        kernels = [by_value[value].median("kernel") for value in (0, 1)]
        rows.append((rung, N, cells[0], theirs[0], cells[1], theirs[1], *kernels))
        for value, name in ((0, "apart"), (1, "coalesced")):
            dot = Dot(f"{rung}, {name}", look(rung), speedups[value], theirs[value])
            dots_by_batch.setdefault(N, []).append(dot)
    if not rows:
        return []
    columns = ("rung", "N", "non-coalesced", "study", "coalesced", "study", "kernel ms, non-coal.", "kernel ms, coal.")
    title = "Table 8: speedup of layer 1, coalesced and non-coalesced"
    caption = "The same rung with COALESCED=0 and 1. The study's last row compares two variants. "
    caption += measurements.footnote()
    panels = [(f"N={N}", dots_by_batch[N]) for N in sorted(dots_by_batch) if N in WORKLOADS[WORKLOAD].batches]
    name = "Fig. 11, coalesced and non-coalesced accesses in layer 1"
    plot = Plot(
        "fig-11",
        findings.titled(name, findings.fastest(panels[-1][1]) if panels else ""),
        f"Speedup over the serial CPU, copies included; 'apart' is COALESCED=0. {measurements.footnote()}",
        partial(dots, panels, "speedup (×)"),
    )
    return [Table("table-8", title, caption, columns, rows), *([plot] if panels else [])]


def mapped(point: Measured) -> bool:
    """Whether a point of layer 1 has both mappings for a choice, and no other constant changed."""
    layer_one = (point.workload, point.layer) == (WORKLOAD, 1) and "COALESCED" in point.record["point"]["constants"]
    return layer_one and all(name == "COALESCED" for name, _ in point.changed)


def mapped_twice(measurements: Measurements) -> list[tuple[str, int, dict[int, Measured]]]:
    """Rung, batch and the points by their value of COALESCED, both of one run: of several, of the last."""
    by_value: dict[tuple[str, int, Run], dict[int, Measured]] = {}
    for point in measurements.every:
        if mapped(point) and point.series == Series(point.series.rung):
            value = point.record["point"]["constants"]["COALESCED"]
            by_value.setdefault((point.series.rung, point.N, point.run), {})[value] = point
    pairs = {(rung, N): points for (rung, N, _), points in by_value.items() if len(points) == len(COALESCED)}
    return [(rung, N, points) for (rung, N), points in sorted(pairs.items(), key=lambda pair: order(pair[1][1]))]


def published_mapping(rung: str, N: int, coalesced: int) -> float | None:
    """The study's figure in the row of table 8 that is named after the rung."""
    alias = RUNGS[rung].alias
    for figure in published.figures():
        named = figure.note.lower() == f"row {alias}" and figure.N == N
        if named and COALESCED.get(figure.variant.rpartition("/")[2]) == coalesced:
            return figure.value
    return None


# Table 9, figures 12 to 16


def breakdowns(measurements: Measurements) -> list[Table | Plot]:
    """Table 9 and figures 12a to c: kernels beside copies in every layer."""
    N = measurements.main_batch(WORKLOAD)
    items: list[Table | Plot] = []
    best = Series(ALIASES[BREAKDOWNS[0]])
    bars = {layer: stack(measurements, WORKLOAD, layer, N, best) for layer in measurements.layers(WORKLOAD)}
    rows = [
        (
            layer,
            bar.kernel.median,
            published.kernel_ms(WORKLOAD, layer, N, best, "Table 9"),
            fsum(bar.copies.values()),
            bar.published_copies,
        )
        for layer, bar in bars.items()
        if bar.kernel
    ]
    if rows:
        title = f"Table 9: kernels and copies of {best.rung}, N={N} (ms)"
        columns = ("layer", "kernels here", "kernels study", "copies here", "copies study")
        caption = f"Study: {BREAKDOWNS[0]} on {ALEXNET_GPU}. {measurements.footnote([best], of=COPIES)}"
        items.append(Table("table-9", title, caption, columns, rows))
    for letter, alias in zip("abc", BREAKDOWNS, strict=True):
        series = Series(ALIASES[alias])
        own = [
            stack(measurements, WORKLOAD, layer, N, series, f"layer {layer}") for layer in measurements.layers(WORKLOAD)
        ]
        panels = [(f"{series.rung}, N={N}", [bar for bar in own if bar.kernel])]
        if panels[0][1]:
            name = f"Fig. 12{letter}, copies and kernels in all layers, {series.rung}"
            title = findings.titled(name, findings.copies(own))
            draw = partial(stacks, panels, "ms per batch")
            caption = f"The study's {alias}. {measurements.footnote([series], of=COPIES)}"
            items.append(Plot(f"fig-12{letter}", title, caption, draw))
    return items


def layerwise(measurements: Measurements) -> list[Table | Plot]:
    """Figures 13a and b: a rung's speedup layer by layer at each batch size."""
    items: list[Table | Plot] = []
    batches = sorted({N for _, N in study_points(measurements)})
    for number, alias in LAYERWISE:
        series = Series(ALIASES[alias])
        panels = [
            (f"N={N}", [speedup_dot(measurements, layer, N, series) for layer in measurements.layers(WORKLOAD)])
            for N in batches
        ]
        if any(dot.ours for _, row in panels for dot in row):
            every = [replace(dot, label=f"{dot.label}, {name}") for name, row in panels for dot in row]
            most = findings.fastest(every, "most on {}")
            title = findings.titled(f"Fig. {number}, speedup of {series.rung} by layer and batch", most)
            draw = partial(dots, panels, "speedup (×)")
            caption = f"The study's {alias}; copies included. {measurements.footnote([series])}"
            items.append(Plot(f"fig-{number}", title, caption, draw))
    return items


def speedup_dot(measurements: Measurements, layer: int, N: int, series: Series) -> Dot:
    """A layer's line in figures 13."""
    ours, theirs = measurements.speedup(WORKLOAD, layer, N, series), published.speedup(WORKLOAD, layer, N, series)
    return Dot(f"layer {layer}", look(series.rung), ours, theirs)


def scaling(measurements: Measurements, figure: str, table: str, series: Series) -> list[Table | Plot]:
    """Tables 10 and 11, figures 14 and 15: time and speedup against the batch, with a linear fit."""
    measurements = measurements.of_one_run(
        lambda point: (point.workload, point.series, point.changed) == (WORKLOAD, series, ())
    )
    theirs = partial(published.kernel_ms, where=f"Table {table}")
    batches, layers = measurements.batches(WORKLOAD), measurements.layers(WORKLOAD)
    times = {
        (layer, N): time
        for layer in layers
        for N in batches
        if (time := measurements.time(WORKLOAD, layer, N, series, "kernel"))
    }
    if len({N for _, N in times}) < 2:
        return []
    alias = variant_of(series) or ""
    rows: list[tuple[Cell, ...]] = []
    for (layer, N), time in times.items():
        serial = seconds(measurements.serial(WORKLOAD, layer, N)), published.serial_seconds(WORKLOAD, layer, N)
        rows.append((layer, N, *serial, time.median, theirs(WORKLOAD, layer, N, series)))
    columns = ("layer", "N", "CPU here (s)", "CPU study (s)", f"{series.rung} (ms)", f"{alias} (ms)")
    title = f"Table {table}: kernel time of {series.rung} against the batch"
    caption = f"The study's {alias} on {ALEXNET_GPU}. {measurements.footnote()}"
    fitted = {layer: fit for layer in layers if (fit := fit_of(layer, times))}
    fits = fit_table(f"table-{table}-fit", series, fitted, measurements.footnote(of=KERNELS))
    time_lines = curves(layers, series, batches, partial(measurements.time, figure="kernel"), theirs, fitted)
    speed_lines = curves(layers, series, batches, measurements.speedup, published.speedup, {})
    by_batch = (
        f"Over the serial CPU, copies included. Pale and dotted: {of_study(speed_lines)}. {measurements.footnote()}"
    )
    return [
        Table(f"table-{table}", title, caption, columns, rows),
        *fits,
        Plot(
            f"fig-{figure}a",
            findings.titled(f"Fig. {figure}a, kernel time of {series.rung} against the batch", linear(fitted)),
            "Log axes; thin lines: the linear fit, with a cross where it bends. Pale and dotted: the study's. "
            + measurements.footnote(of=KERNELS),
            partial(lines, time_lines, "kernel time (ms per batch)"),
        ),
        Plot(
            f"fig-{figure}b",
            findings.titled(
                f"Fig. {figure}b, speedup of {series.rung} against the batch", findings.span(speed_lines[0][1])
            ),
            by_batch,
            partial(lines, speed_lines, "speedup (×)"),
        ),
    ]


def curves(
    layers: Sequence[int],
    series: Series,
    batches: Sequence[int],
    ours: Callable[[str, int | None, int, Series], Summary | None],
    theirs: Callable[[str, int | None, int, Series], float | None],
    fitted: dict[int, Fit],
) -> list[tuple[str, list[Line]]]:
    """One panel for our layers, one for the study's, over the same axis."""
    own = [
        Line(
            f"layer {layer}",
            look(series.rung),
            batches,
            [ours(WORKLOAD, layer, N, series) for N in batches],
            layer_marker(layer),
            fit=fitted[layer][:2] if layer in fitted else None,
        )
        for layer in layers
    ]
    known = [N for N in STUDY_SCALING if theirs(WORKLOAD, 1, N, series)]
    values = {layer: [one(theirs(WORKLOAD, layer, N, series) or np.nan) for N in known] for layer in layers}
    computed = theirs == published.speedup and any(published.derived(WORKLOAD, 1, N, series) for N in known)
    whose = DERIVED if computed else STUDY
    study = [
        Line(f"layer {layer}, {whose}", look(series.rung), known, values[layer], layer_marker(layer), published=True)
        for layer in layers
    ]
    return [("here", own), *([(f"{whose} ({ALEXNET_GPU})", study)] if known else [])]


def of_study(panels: Sequence[tuple[str, list[Line]]]) -> str:
    """What the pale lines of figures 14b and 15b are."""
    if any(title.startswith(DERIVED) for title, _ in panels):
        return "derived from the study's kernel times, copies and CPU times, as it prints no speedup"
    return "the study's, where it gives one"


def fit_of(layer: int, times: dict[tuple[int, int], Summary]) -> Fit | None:
    """The fit of a layer's times, if there are enough."""
    medians = {N: time.median for (number, N), time in times.items() if number == layer}
    return linear_fit(list(medians), list(medians.values())) if len(medians) >= LEAST_TO_FIT else None


def fit_table(key: str, series: Series, fitted: dict[int, Fit], runs: str) -> list[Table | Plot]:
    """Time = fixed + slope x N for each layer, and the batch at which both parts are equal: there the curve bends."""
    rows: list[tuple[Cell, ...]] = []
    for layer, (fixed, slope, worst) in fitted.items():
        bend = fixed / slope if fixed > slope > 0 else None  # beyond one image
        rows.append((layer, 1000 * fixed, 1000 * slope, bend, 100 * worst))
    columns = ("layer", "fixed part (µs)", "per image (µs)", "bends at N =", "largest deviation (%)")
    caption = (
        "Least squares of relative deviations, kernel time = fixed + per image x N. Below the bend the fixed part "
        f"dominates: the GPU is not full; above it time is linear in N. No bend: linear from N=1 on. {runs}"
    )
    return [Table(key, f"Linear fit of {series.rung}", caption, columns, rows)] if rows else []


def linear(fitted: Mapping[int, Fit]) -> str:
    """How far times are from a straight line."""
    return f"linear within {max(100 * worst for *_, worst in fitted.values()):.0f} %" if fitted else ""


def linear_fit(batches: Sequence[int], times: Sequence[float]) -> Fit:
    """Fixed part and slope in ms, and the largest relative deviation, weighting each time by its inverse."""
    N, t = np.asarray(batches, float), np.asarray(times, float)
    slope, fixed = np.polyfit(N, t, 1, w=1 / t)
    return float(fixed), float(slope), float(np.abs((fixed + slope * N) / t - 1).max())


def pair(measurements: Measurements) -> list[Table | Plot]:
    """Figure 16: partial planes against atomics."""
    N = measurements.main_batch(WORKLOAD)
    rows = [
        Dot(
            f"layer {layer}, {series.rung}",
            look(series.rung),
            measurements.speedup(WORKLOAD, layer, N, series),
            published.speedup(WORKLOAD, layer, N, series),
        )
        for layer in measurements.layers(WORKLOAD)
        for series in (Series(ALIASES[alias]) for alias in PAIR)
    ]
    if not any(row.ours for row in rows):
        return []
    both = [Series(ALIASES[alias]) for alias in PAIR]
    title = findings.titled(
        f"Fig. 16, partial planes in memory against atomic additions, N={N}",
        findings.wins([(row.label.rpartition(", ")[2], row.label.partition(",")[0], row.ours) for row in rows]),
    )
    caption = (
        f"The study's {PAIR[0]} and its less precise {PAIR[1]}; speedup over the serial CPU, copies included. "
        + measurements.footnote(both)
    )
    theirs = theirs_from((layer, N, series) for layer in measurements.layers(WORKLOAD) for series in both)
    return [Plot("fig-16", title, caption, partial(dots, [(f"N={N}", rows)], "speedup (×)", theirs))]
