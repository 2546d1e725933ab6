"""Layers, their sum, and names of series, as all tables and figures of a workload use them."""

from alexconv.reports.comparison import peer_title
from alexconv.reports.measurements import Measurements, layer_numbers
from alexconv.reports.published import Series


def label(layer: int | None) -> str:
    """A layer, or all of them, in words."""
    return "all layers" if layer is None else f"layer {layer}"


def slices(measurements: Measurements, workload: str) -> list[int | None]:
    """The measured layers, and None for their sum if all were measured."""
    layers: list[int | None] = [*measurements.layers(workload)]
    return [*layers, None] if layers == list(layer_numbers(workload)) else layers


def title_of(series: Series) -> str:
    """A rung's name, or what a peer is."""
    return peer_title(series.rung)
