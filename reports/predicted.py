"""The ladder's times without a GPU: what the model predicts of each rung, beside what a GPU measured."""

from collections.abc import Sequence
from functools import partial

from alexconv.kernels.ladder import Ladder
from alexconv.predict.ladder import PredictedTime, predicted_ladder
from alexconv.records.statistics import Summary
from alexconv.records.store import Records
from alexconv.reports import charts
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.charts import Dot
from alexconv.reports.comparison import MANY, over
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import Measurements, layer_numbers
from alexconv.reports.style import look
from alexconv.reports.why import Reasons
from alexconv.shapes import WORKLOADS

COLUMNS = (
    *("rung", "layer", "N", "predicted, ms", "band from", "to", "measured, ms", "predicted / measured"),
    *("busiest unit", "longest kernel", "why there is none"),
)
BAND = "Band: where nine of ten measured times lie."


def section(measurements: Measurements) -> Section:
    """Figure and table of all rungs on AlexNet's layers, as far as the records have predictions."""
    by_batch = {N: times(measurements, N) for N in WORKLOADS[WORKLOAD].batches}
    rows = [row(time, N) for N, of_batch in by_batch.items() for time in of_batch]
    if not rows:
        return Section("predicted", "", "")
    text = (
        "What `alexconv predict` computes for each rung from its machine code and a description of the GPU, without "
        "a GPU. docs/predict.md says how, and how accurate it is."
    )
    title = f"{WORKLOAD}: predicted times, all rungs"
    table = Table("predicted", title, f"Kernel times. {BAND}", COLUMNS, rows, True, filters=("layer", "N", "rung"))
    return Section(
        "predicted", "The ladder's times without a GPU", text, [*figure(by_batch[MANY], measurements.ladder), table]
    )


def times(measurements: Measurements, N: int) -> list[PredictedTime]:
    """Each rung on each layer, in the ladder's order."""
    predictions = {str(number): prediction for number, prediction in enumerate(Reasons(measurements).predictions)}
    measured = Records(points=[point.record for point in measurements.points])
    return predicted_ladder(Records(predictions), measured, WORKLOAD, N, measurements.ladder)


def row(time: PredictedTime, N: int) -> tuple[Cell, ...]:
    """The cells, in the order of COLUMNS."""
    low, high = time.band or (None, None)
    longest = max(time.launches, key=lambda launch: launch[1], default=(None, 0.0))[0]
    ratio = over(time.predicted, time.measured)
    return time.rung, time.layer, N, time.predicted, low, high, time.measured, ratio, time.limit, longest, time.reason


def figure(predictions: Sequence[PredictedTime], ladder: Ladder) -> list[Table | Plot]:
    """Predictions with their bands over measured times, a panel for each layer."""
    dots = {
        layer: [dot(time, ladder) for time in predictions if time.layer == layer] for layer in layer_numbers(WORKLOAD)
    }
    panels = [(f"layer {layer}", rungs) for layer, rungs in dots.items() if any(mark.ours for mark in rungs)]
    if not panels:
        return []
    draw = partial(charts.dots, panels, "over measured", "measured on a GPU", "predicted, and the band of nine in ten")
    title = f"{WORKLOAD}: predicted over measured times, N={MANY}"
    return [Plot("predicted-times", title, BAND, draw, wide=True)]


def dot(time: PredictedTime, ladder: Ladder) -> Dot:
    """A rung's row: nothing where either is missing."""
    if not (time.predicted and time.band and time.measured):
        return Dot(time.rung, look(time.rung, ladder), None)
    low, high = time.band
    ratio = Summary(time.predicted / time.measured, low / time.measured, high / time.measured, 1)
    return Dot(time.rung, look(time.rung, ladder), ratio, 1.0)
