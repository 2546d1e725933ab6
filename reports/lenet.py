"""The LeNet-style studies: op times (a layer's kernels) by batch, ours above the published ones."""

from functools import partial

from alexconv.reports import published
from alexconv.reports.alexnet import breakdown_plot
from alexconv.reports.charts import Line, lines
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import Measurements
from alexconv.shapes import WORKLOADS

PREFIX = "lenet"
OP_TIMES = ("op_time", "layer_time_with_memcpy")
HERE = "here"
CURVES = 6  # rungs in one figure


def section(measurements: Measurements) -> Section:
    """One table for each workload, and its figures."""
    items: list[Table | Plot] = []
    for workload in measurements.workloads:
        if workload.startswith(PREFIX) and measurements.timed:
            items.append(op_times(measurements, workload))
            N = measurements.main_batch(workload)
            title = f"{workload}: kernels and copies of both layers, N={N}"
            items.append(breakdown_plot(measurements, f"{workload}-breakdown", title, None, N, workload))
            items += curves(measurements, workload)
            items += swept(workload)
    text = (
        "Op time is the time of one layer's kernels. Rows of 'here' are ours; the other rows are what the studies "
        "printed, under their own names for what they did, on the GPU they name."
    )
    return Section("lenet-studies", "The LeNet-style studies", text, items)


def op_times(measurements: Measurements, workload: str) -> Table:
    """Rows: our rungs, then the published variants; columns: layer by batch."""
    layers = range(1, len(WORKLOADS[workload].layers) + 1)
    found = [figure for figure in published.figures() if figure.workload == workload and figure.quantity in OP_TIMES]
    batches = sorted({*measurements.batches(workload), *(figure.N for figure in found)})
    rows: list[tuple[Cell, ...]] = []
    for series in measurements.series(workload):
        own = [measurements.time(workload, layer, N, series, "kernel") for layer in layers for N in batches]
        rows.append((HERE, measurements.device["name"], series.label, *(time.median if time else None for time in own)))
    for study, gpu, variant, quantity in dict.fromkeys((f.study, f.gpu, f.variant, f.quantity) for f in found):
        values = {
            (f.layer, f.N): f.value
            for f in found
            if (f.study, f.gpu, f.variant, f.quantity) == (study, gpu, variant, quantity)
        }
        name = variant if quantity == OP_TIMES[0] else f"{variant} (copies included)"
        rows.append((study, gpu, name, *(values.get((layer, N)) for layer in layers for N in batches)))
    columns = ("who", "device", "variant", *(f"layer {layer}, N={N} (ms)" for layer in layers for N in batches))
    caption = "Medians of ms per batch here; single figures of the studies. CPU rows are the studies' serial CPU."
    return Table(f"{workload}-op-times", f"{workload}: op times", caption, columns, rows)


def curves(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Op time against the batch, for the fastest rungs."""
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
                    series.rung,
                    batches,
                    [measurements.time(workload, layer, batch, series, "kernel") for batch in batches],
                )
                for _, series in ranked
            ],
        )
        for layer in measurements.layers(workload)
    ]
    title = f"{workload}: op time against the batch"
    caption = f"The {len(ranked)} fastest of {len(totals)} rungs at N={N}; the table has them all."
    return [Plot(f"{workload}-scaling", title, caption, partial(lines, panels, "op time (ms per batch)"))]


def swept(workload: str) -> list[Table | Plot]:
    """The studies' own tile sweeps, which belong beside ours."""
    found = [
        figure for figure in published.figures() if figure.workload == workload and figure.quantity == "total_op_time"
    ]
    rows = [(figure.study, figure.variant, figure.N, figure.value) for figure in found]
    title, columns = f"{workload}: published tile sweep", ("study", "tiles of layer 1, 2", "N", "both layers (ms)")
    caption = "Both layers' op time for pairs of tile sizes."
    return [Table(f"{workload}-published-sweep", title, caption, columns, rows)] if rows else []
