"""The roofline chart (Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from alexconv.records.statistics import Summary
from alexconv.records.store import Record
from alexconv.reports.charts import Mark, layer_marker, scatter
from alexconv.reports.measurements import Measured

MS = 1000  # in a second
TERA = 1e12
ROOM = 3.0  # how far the axes go beyond the points, as a factor


def intensity_figure(points: Sequence[Measured], traffic: Sequence[float], ceilings: Record | None) -> Figure:
    """Operations a second over operations a byte; ``traffic`` gives each point's bytes."""
    marks = []
    for point, moved in zip(points, traffic, strict=True):
        time, flops = point.time("kernel"), 2 * point.conv.macs(point.N)
        if time:
            median, low, high = (flops / ms * MS / TERA for ms in (time.median, time.high, time.low))
            intensity = flops / moved
            marks.append(
                Mark(point.series.rung, intensity, Summary(median, low, high, time.count), layer_marker(point.layer))
            )
    layers = {f"layer {layer}": layer_marker(layer) for layer in sorted({point.layer for point in points})}
    figure = scatter(marks, "arithmetic intensity (FLOP per byte)", "achieved (TFLOP/s)", layers)
    axes = figure.axes[0]
    left, right = axes.get_xlim()
    left, right = left / ROOM, right * ROOM
    if ceilings:
        draw_roof(axes, ceilings, left, right)
    axes.set_xlim(left, right)
    return figure


def draw_roof(axes: Any, ceilings: Record, left: float, right: float) -> None:
    """The measured copy rate as the slope, each precision's measured arithmetic rate as a level."""
    x = np.geomspace(left, right, 200)
    slope = x * ceilings["copy_bytes_per_s"] / TERA
    levels = {name: value / TERA for name, value in ceilings.get("flops", {}).items() if value}
    for name, level in levels.items():
        axes.plot(x, np.minimum(slope, level), color="#555555", linewidth=0.9)
        axes.text(right, level, f"{name} {level:.0f}", ha="right", va="bottom", fontsize=7.5, color="#333333")
    if not levels:
        axes.plot(x, slope, color="#555555", linewidth=0.9)
