"""The further goals of docs/frontier.md beside the limits of the card, and how much of a limit is reached."""

from collections.abc import Iterator, Sequence
from math import ceil

from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import (
    CONTRACTS,
    LAYERS,
    MANY,
    MS,
    ONE,
    SUSTAINED,
    TERA,
    Contract,
    Frontier,
    flops,
    hot,
    rate,
)
from alexconv.reports.elements import Cell, shown
from alexconv.reports.goals import verdict
from alexconv.reports.losses import MULTIPLY_ADDS
from alexconv.reports.measurements import Measured, sum_or_none
from alexconv.shapes import WORKLOADS, Conv

TENSOR_LAYERS = 2, 3, 4, 5  # whose K fills wgmma's stages
RATE, ONE_RATE, SHARE_UNDER_LOAD = 720.0, 780.0, 0.8  # fp16: TFLOP/s, and of the peak at the clock under load
FIRST_RATE = 0.45 * 989.4  # fp16, layer 1: of the data sheet's peak
RETIRED = 0.9  # of the limit, to a percent, by which cards differ: goals beyond it are retired
LAYER_2_MS = 0.47  # fp32
ALL_MS = {"fp32": 1.20, "fp32-tile": 0.85, "tf32": 0.55}
GRAPH_US = {"fp32": 52.0, "tf32": 33.0, "fp16": 24.0}
MEGAHERTZ = 1e6

COLUMNS = ("what", "wanted", "limit", "ours", "of the limit, %", "verdict")


def contract_of(name: str) -> Contract:
    """A contract by its name."""
    return next(contract for contract in CONTRACTS if contract.name == name)


def full_waves(point: Measured | None, layer: int) -> float:
    """The share of its waves that a persistent kernel's tiles fill; 1 for rungs without tiles of outputs."""
    constants = point.record["point"]["constants"] if point else {}
    if not {"TILE_PIXELS", "TILE_FILTERS", "GRID_BLOCKS"} <= constants.keys() or layer not in TENSOR_LAYERS:
        return 1.0
    conv = WORKLOADS[WORKLOAD].layer(layer)
    tiles = ceil(MANY * conv.E * conv.F / constants["TILE_PIXELS"]) * ceil(conv.M / constants["TILE_FILTERS"])
    return float(tiles / (ceil(tiles / constants["GRID_BLOCKS"]) * constants["GRID_BLOCKS"]))


def multiplied_taps(conv: Conv) -> int:
    """K of the product: of strided layers by space-to-depth, whose last rows and columns of taps are partly zeros."""
    down, across = conv.strides
    return conv.C * down * across * ceil(conv.R / down) * ceil(conv.S / across)


def least_ms(frontier: Frontier, contract: Contract, layer: int) -> float | None:
    """Ms of a layer's products at the measured dense rate, in waves of whole tiles, and of the pass over its input.

    The pass rounds floats to fp16 terms, or brings space to depth.
    """
    per_second, _ = frontier.tensor_rate
    if not (per_second and frontier.copy_rate and frontier.many):
        return None
    products = contract.precision.tensor_products
    point, conv = frontier.many.best(contract, layer, MANY), WORKLOADS[WORKLOAD].layer(layer)
    padded = multiplied_taps(conv) / (conv.C * conv.R * conv.S)
    arithmetic = flops([layer], MANY) * padded * products / per_second / full_waves(point, layer) * MS
    inputs = MANY * conv.C * conv.H * conv.W
    if contract.dtype == "float16":
        passed = inputs * (2 + 2) if max(conv.strides) > 1 else 0  # read; blocks written
    else:
        passed = inputs * (4 + (4 if products > 1 else 2))  # read; terms written
    return arithmetic + passed / frontier.copy_rate * MS


def judged(met: bool | None, wanted: float | None) -> str:
    """A goal's verdict; ``wanted`` is its share of the limit, where there is one."""
    return "retired" if met is False and wanted and round(wanted, 2) > RETIRED else verdict(met)


def in_ms(what: str, wanted: float, limit: float | None, ours: float | None) -> tuple[Cell, ...]:
    """A goal on a time."""
    share = 100 * limit / ours if limit and ours else None
    met = ours <= wanted if ours else None
    cells = f"at most {wanted:g} ms", f"{shown(limit)} ms" if limit else None
    return what, *cells, ours, share, judged(met, limit / wanted if limit else None)


def in_tera(what: str, wanted: float, limit: float | None, ours: float | None) -> tuple[Cell, ...]:
    """A goal on a rate."""
    share = 100 * ours / limit if limit and ours else None
    met = ours >= wanted if ours else None
    cells = f"at least {shown(wanted)} TFLOP/s", f"{shown(limit)} TFLOP/s" if limit else None
    return what, *cells, ours, share, judged(met, wanted / limit if limit else None)


def under_load(frontier: Frontier, contract: Contract, layers: Sequence[int]) -> Iterator[tuple[Cell, ...]]:
    """Each layer's rate without rests, beside the peak at its clock."""
    for layer in layers:
        point = frontier.sustained.best(contract, layer, MANY) if frontier.sustained else None
        if not point or not point.clock:
            continue
        multiprocessors = point.record["point"]["constants"]["GRID_BLOCKS"]  # one block each
        peak = 2 * MULTIPLY_ADDS * multiprocessors * point.clock * MEGAHERTZ / TERA
        ours = rate([layer], MANY, point.median(SUSTAINED))
        yield in_tera(f"{contract.name}, layer {layer}, without rests", SHARE_UNDER_LOAD * peak, peak, ours)


def rows(frontier: Frontier) -> Iterator[tuple[Cell, ...]]:
    """A row for each goal."""
    source = frontier.many
    if not source or source.sum_of(contract_of("fp16"), MANY, TENSOR_LAYERS) is None:
        return
    fp16 = contract_of("fp16")
    limits = {layer: least_ms(frontier, fp16, layer) for layer in TENSOR_LAYERS}
    ours = {layer: hot(source.best(fp16, layer, MANY)) for layer in TENSOR_LAYERS}
    whole, own = sum_or_none(list(limits.values())), sum_or_none(list(ours.values()))
    yield in_tera("fp16, layers 2 to 5", RATE, rate(TENSOR_LAYERS, MANY, whole), rate(TENSOR_LAYERS, MANY, own))
    rates = {layer: rate([layer], MANY, ours[layer]) or 0.0 for layer in TENSOR_LAYERS}
    best = max(rates, key=lambda layer: rates[layer])
    yield in_tera(f"fp16, fastest of them: layer {best}", ONE_RATE, rate([best], MANY, limits[best]), rates[best])
    first = least_ms(frontier, fp16, 1), hot(source.best(fp16, 1, MANY))
    yield in_tera("fp16, layer 1", FIRST_RATE, *(rate([1], MANY, ms) for ms in first))
    yield from under_load(frontier, fp16, TENSOR_LAYERS)
    fp32 = contract_of("fp32")
    yield in_ms("fp32, layer 2", LAYER_2_MS, least_ms(frontier, fp32, 2), hot(source.best(fp32, 2, MANY)))
    for name, wanted in ALL_MS.items():
        contract = contract_of(name)
        least = [least_ms(frontier, contract, layer) for layer in LAYERS] if name != "fp32-tile" else [None]
        yield in_ms(f"{name}, five layers", wanted, sum_or_none(least), source.sum_of(contract, MANY))
    for name, micros in GRAPH_US.items():
        graphs = frontier.graphs.graphs(contract_of(name), ONE) if frontier.graphs else []
        yield in_ms(f"{name}, one image, one graph", micros / MS, None, min((ms for ms, _ in graphs), default=None))
