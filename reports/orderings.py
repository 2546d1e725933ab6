"""The order of the rungs, here and in the studies."""

from collections.abc import Iterator
from itertools import combinations
from math import sqrt

from alexconv.reports import published
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import (
    KERNELS,
    SPEEDUPS,
    Measurements,
)
from alexconv.reports.published import Series
from alexconv.reports.slices import label, slices

Ours = dict[Series, float]


def section(measurements: Measurements, workload: str) -> Section:
    """Ranks of a workload that a study has."""
    return Section(
        "orderings",
        "The order of the rungs, here and in the study",
        "Ranks by kernel time, then by speedup with the copies; 1 is the fastest. Kendall's tau-b is 1 for "
        "the same order and -1 for the opposite one; a reversal is a pair that one side orders the other way.",
        orderings(measurements, workload),
    )


def orderings(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """Ranks by layer, ours and the study's, and how far they agree."""
    N = measurements.main_batch(workload)
    items: list[Table | Plot] = []
    for quantity in ("kernel time", "speedup"):
        ranked: dict[int | None, tuple[Ours, Ours]] = {}
        for layer in slices(measurements, workload):
            ours, theirs = comparable(measurements, workload, layer, N, quantity)
            if len(ours) > 1:
                ranked[layer] = ours, theirs
        if ranked:
            key, every = (
                f"{workload}-order-{quantity.split()[0]}",
                {series for ours, _ in ranked.values() for series in ours},
            )
            runs = measurements.footnote(every, workload, N, of=SPEEDUPS if quantity == "speedup" else KERNELS)
            items += [
                rank_table(key, f"{workload}: order by {quantity}, N={N}", ranked, runs),
                agreement(key, f"{workload}: agreement of the orders by {quantity}, N={N}", ranked, runs),
            ]
    return items


def comparable(
    measurements: Measurements, workload: str, layer: int | None, N: int, quantity: str
) -> tuple[Ours, Ours]:
    """Costs of the series that both sides have: smaller is better."""
    ours: Ours = {}
    theirs: Ours = {}
    for series in measurements.series(workload, N):
        if quantity == "speedup":
            own, known = measurements.speedup(workload, layer, N, series), published.speedup(workload, layer, N, series)
            costs = (1 / own.median if own else None), (1 / known if known else None)
        else:
            own = measurements.time(workload, layer, N, series, "kernel")
            costs = (own.median if own else None), published.kernel_ms(workload, layer, N, series)
        if costs[0] is not None and costs[1] is not None:
            ours[series], theirs[series] = costs[0], costs[1]
    return ours, theirs


def rank_table(key: str, title: str, ranked: dict[int | None, tuple[Ours, Ours]], runs: str) -> Table:
    """Rank here and rank published, for each layer and in all."""
    every = {series: None for ours, _ in ranked.values() for series in ours}
    rows: list[tuple[Cell, ...]] = []
    for series in every:
        cells = [cell for pair in ranked.values() for cell in (rank(side, series) for side in pair)]
        rows.append((series.label, *cells))
    columns = ("rung", *(f"{label(layer)}, {who}" for layer in ranked for who in ("here", "study")))
    return Table(key, title, f"Equal figures share a rank. {runs}", columns, rows)


def rank(costs: Ours, series: Series) -> int | None:
    """1 for the smallest cost; equal ones share a rank."""
    return None if series not in costs else 1 + sum(cost < costs[series] for cost in costs.values())


def agreement(key: str, title: str, ranked: dict[int | None, tuple[Ours, Ours]], runs: str) -> Table:
    """Kendall's tau and every reversed pair."""
    rows = []
    for layer, (ours, theirs) in ranked.items():
        swapped = [f"{fast} before {slow}" for fast, slow in reversals(ours, theirs)]
        rows.append((label(layer), len(ours), kendall_tau(ours, theirs), len(swapped), "; ".join(swapped) or "none"))
    columns = ("layer", "rungs", "Kendall's tau-b", "reversals", "pairs that swapped")
    return Table(f"{key}-agreement", title, runs, columns, rows)


def signs(ours: Ours, theirs: Ours) -> Iterator[tuple[Series, Series, int, int]]:
    """Every pair, the side it falls on in either order: -1 first is faster, 0 tie, 1 second is faster."""
    for first, second in combinations(ours, 2):
        pair = [(side[first] > side[second]) - (side[first] < side[second]) for side in (ours, theirs)]
        yield first, second, pair[0], pair[1]


def kendall_tau(ours: Ours, theirs: Ours) -> float | None:
    """Kendall's tau-b, which allows for ties; None if one side is all ties.  (Kendall, Biometrika 33, 1945.)"""
    pairs = [(a, b) for _, _, a, b in signs(ours, theirs)]
    untied = [sum(pair[side] != 0 for pair in pairs) for side in (0, 1)]
    return sum(a * b for a, b in pairs) / sqrt(untied[0] * untied[1]) if all(untied) else None


def reversals(ours: Ours, theirs: Ours) -> list[tuple[str, str]]:
    """Pairs that are faster and slower here, and the other way in the study."""
    return [
        (first.label, second.label) if here < 0 else (second.label, first.label)
        for first, second, here, there in signs(ours, theirs)
        if here * there < 0
    ]
