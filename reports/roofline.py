"""The roofline chart (Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009).

A rung's roof is that of the unit that multiplies for it: CUDA cores or tensor cores, in the type of the factors.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from alexconv.errors import UsageError
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.rung import Rung
from alexconv.precisions import PRECISIONS
from alexconv.predict.gpu import Gpu, of_device, peaks_of
from alexconv.records.statistics import Summary
from alexconv.records.store import Record
from alexconv.reports.charts import Mark, draw_marks, family_handles, layer_marker, legend_below, side_labels
from alexconv.reports.comparison import MS, TERA
from alexconv.reports.measurements import Measured, Measurements
from alexconv.reports.style import canvas, look

ROOM = 2.0  # how far the axes extend beyond the points, as a factor
CLOSE = 1.1  # roofs closer than this factor look like one
CUDA, TENSOR = "CUDA cores", "tensor cores"
MEASURED, STATED = "measured", "data sheet"


@dataclass(frozen=True)
class Roof:
    """A unit's highest arithmetic rate in FLOP/s, and the figure's source."""

    unit: str
    factors: str
    products: int  # for a multiply-add
    rate: float
    source: str

    @property
    def name(self) -> str:
        """Type of the factors, and what divides the unit's rate."""
        return self.factors if self.products == 1 else f"{self.factors} / {self.products}"


def roofs(ceilings: Record | None, device: Record, ladder: Ladder = LADDER) -> list[Roof]:
    """All known roofs of a device: measured ones, else the data sheet's.

    Rungs that take several tensor-core products per multiply-add have a roof that much lower.
    """
    measured = {name: rate for name, rate in ((ceilings or {}).get("flops") or {}).items() if rate}
    stated = peaks_of(str(device.get("name")))
    known: list[Roof] = []
    for unit, name, products in sorted({kind for rung in ladder if (kind := kind_of(rung))}):
        source = MEASURED if name in measured else STATED
        rate = measured.get(name, stated.get(name))
        known += [Roof(unit, name, products, rate / products, source)] if rate else []
    return known


def description(device: Record) -> Gpu | None:
    """The model's description of a device, if it has one."""
    try:
        return of_device(str(device.get("name")))
    except UsageError:
        return None


def copy_rate(ceilings: Record | None, device: Record) -> float | None:
    """Bytes per second of device memory: measured, else of the model's description."""
    if ceilings:
        return float(ceilings["copy_bytes_per_s"])
    gpu = description(device)
    return float(gpu["device.dram_bytes_per_s"]) if gpu else None


def share_of_roofline(point: Measured, roof: Roof | None, bytes_per_s: float | None) -> float | None:
    """A point's rate in percent of the lower of two roofs, the memory's at minimum traffic and its unit's."""
    flops, ms = 2 * point.conv.macs(point.N), point.median("kernel")
    if not (roof and bytes_per_s and ms):
        return None
    return 100 * flops / ms * MS / min(roof.rate, bytes_per_s * flops / point.compulsory_bytes)


def kind_of(rung: Rung) -> tuple[str, str, int] | None:
    """The unit that multiplies, the type of its factors, and the products for a multiply-add, if that is fixed."""
    if rung.products is None:
        return None
    # Values of fp16 are converted and summed as floats, unless the class's sums are fp16, too.
    on_cuda_cores = "half" if PRECISIONS[rung.precision].sums == "fp16" else "fp32"
    return unit_of(rung), rung.tensor_factors or on_cuda_cores, rung.products


def unit_of(rung: Rung) -> str:
    """The unit that multiplies."""
    return TENSOR if rung.tensor_factors else CUDA


def roof_of(rung: Rung | None, known: Iterable[Roof]) -> Roof | None:
    """A rung's own roof; None for peers, whose algorithms are not on record, and for transformed convolutions."""
    kind = kind_of(rung) if rung else None
    return next((roof for roof in known if (roof.unit, roof.factors, roof.products) == kind), None)


def intensity_drawing(
    measurements: Measurements, points: Sequence[Measured], traffic: Sequence[float], known: Sequence[Roof]
) -> Callable[[], Figure]:
    """Draws operations a second over operations a byte, a panel for each unit; ``traffic`` gives the points' bytes."""
    layers = sorted({point.layer for point in points})
    rate = copy_rate(measurements.ceilings, measurements.device)
    return partial(intensity_figure, intensities(points, traffic, measurements.ladder), layers, known, rate)


def intensities(points: Sequence[Measured], traffic: Sequence[float], ladder: Ladder) -> dict[str, list[Mark]]:
    """The marks of the rungs' points, by unit."""
    marks: dict[str, list[Mark]] = {}
    for point, moved in zip(points, traffic, strict=True):
        time, flops = point.time("kernel"), 2 * point.conv.macs(point.N)
        if time and point.rung:
            median, low, high = (flops / ms * MS / TERA for ms in (time.median, time.high, time.low))
            achieved, style = Summary(median, low, high, time.count), look(point.rung.name, ladder)
            marks.setdefault(unit_of(point.rung), []).append(
                Mark(point.rung.name, style, flops / moved, achieved, layer_marker(point.layer))
            )
    return marks


def intensity_figure(
    marks: Mapping[str, Sequence[Mark]], numbers: Sequence[int], known: Sequence[Roof], bytes_per_s: float | None
) -> Figure:
    """The figure with these marks by unit; the legend has the layers of these numbers."""
    units = [unit for unit in (CUDA, TENSOR) if unit in marks]
    figure, grid = canvas(4.2, 1, len(units), sharey=True)
    for axes, unit in zip(grid[0], units, strict=True):
        draw_marks(axes, marks[unit], 7 // len(units))
        left, right = axes.get_xlim()
        draw_roofs(axes, [roof for roof in known if roof.unit == unit], bytes_per_s, left / ROOM, right * ROOM)
        axes.set_title(unit)
        axes.set_xlabel("FLOP per byte")
    grid[0][0].set_ylabel("achieved (TFLOP/s)")
    for axes, unit in zip(grid[0], units, strict=True):
        label_roofs(axes, [roof for roof in known if roof.unit == unit])
    layers = [
        Line2D([], [], marker=layer_marker(layer), linestyle="", color="#777777", label=f"layer {layer}")
        for layer in numbers
    ]
    legend_below(figure, [*family_handles(mark.look for unit in units for mark in marks[unit]), *layers], 5)
    return figure


def draw_roofs(axes: Any, known: Sequence[Roof], bytes_per_s: float | None, left: float, right: float) -> None:
    """The copy rate as the slope, each arithmetic rate as a level."""
    x = np.geomspace(left, right, 200)
    slope = x * bytes_per_s / TERA if bytes_per_s else np.full_like(x, np.inf)
    for roof in known:
        axes.plot(x, np.minimum(slope, roof.rate / TERA), color="#555555", linewidth=0.9)
    if not known and bytes_per_s:
        axes.plot(x, slope, color="#555555", linewidth=0.9)
    axes.set_xlim(left, right)


def label_roofs(axes: Any, known: Sequence[Roof]) -> None:
    """The roofs' names and TFLOP/s at their levels; levels that cannot be told apart have one label."""
    together: list[list[Roof]] = []
    for roof in sorted(known, key=lambda roof: roof.rate):
        if together and roof.rate < together[-1][0].rate * CLOSE:
            together[-1].append(roof)
        else:
            together.append([roof])
    side_labels(
        axes,
        [
            (group[-1].rate / TERA, ", ".join(f"{roof.name} {roof.rate / TERA:.0f}" for roof in group))
            for group in together
        ],
    )
