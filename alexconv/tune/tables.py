"""Tables of tuning results: sweeps of constants, the best constants, the fastest rungs."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from alexconv.cli.matrix import milliseconds
from alexconv.kernels.ladder import Ladder
from alexconv.records.labels import rung_label
from alexconv.records.statistics import median_of, summed
from alexconv.records.store import Record
from alexconv.tune.candidates import Comparison
from alexconv.tune.search import Search

MOST_ROWS = 40  # of a sweep: a layer with more candidates shows its fastest


def show_searches(console: Console, searches: Iterable[Search], ladder: Ladder) -> None:
    """A table of each rung's sweep at each N, in the ladder's order, and one of the best."""
    places = {name: place for place, name in enumerate(ladder.named)}

    def group(search: Search) -> tuple[int, int]:
        return search.default.N, places[search.default.rung]

    ordered = sorted(searches, key=group)
    for _, layers in groupby(ordered, key=group):
        console.print(sweep_table(list(layers)))
    console.print(best_table(ordered))


def sweep_table(searches: Sequence[Search]) -> Table:
    """One rung at one N: ms, or a failed candidate's status, by the constants that vary and by layer."""
    first = searches[0].default
    layers = [{tuple(record["point"]["constants"].values()): record for record in s.records} for s in searches]
    rows = sorted({row for layer in layers for row in layer if len(layer) <= MOST_ROWS or row in best_rows(layer)})
    varied = [column for column in range(len(first.constants)) if len({row[column] for row in rows}) > 1]
    names = [list(first.constants)[column] for column in varied]
    numbers = [f"layer {search.default.layer}" for search in searches]
    title = f"{first.workload}, N={first.N}, {first.rung}: kernels, ms per batch"
    table = Table(*(names or [""]), *numbers, "sum", title=title)
    for row in rows:
        cells = [cell(layer.get(row)) for layer in layers]
        times = [median_of(layer[row], "kernel") if row in layer else None for layer in layers]
        table.add_row(*([str(row[column]) for column in varied] or [""]), *cells, milliseconds(summed(times)))
    table.add_section()
    best = [search.best.kernel_ms if search.best else None for search in searches]
    table.add_row("best", *[""] * (len(varied) - 1), *map(milliseconds, best), milliseconds(summed(best)))
    return table


def best_rows(layer: dict[tuple[int, ...], Record]) -> list[tuple[int, ...]]:
    """The values of the constants of a layer's fastest candidates."""
    timed = {row: ms for row, record in layer.items() if (ms := median_of(record, "kernel")) is not None}
    return sorted(timed, key=timed.__getitem__)[:MOST_ROWS]


def cell(record: Record | None) -> str:
    """A candidate's time, or why it has none."""
    if record is None:
        return "-"
    return milliseconds(median_of(record, "kernel")) if record["status"] == "ok" else str(record["status"])


def best_table(searches: Iterable[Search]) -> Table:
    """The best constants of each layer, compared with the defaults."""
    table = Table("workload", "layer", "N", "rung", "best constants", "ms", "default ms", "gain", "candidates", "right")
    for search in searches:
        point, best, default_ms = search.default, search.best, search.default_ms
        table.add_row(
            point.workload,
            str(point.layer),
            str(point.N),
            point.rung,
            changed_constants(search),
            milliseconds(best.kernel_ms if best else None),
            milliseconds(default_ms),
            f"{default_ms / best.kernel_ms:.2f}x" if best and default_ms else "-",
            str(len(search.records)),
            str(search.count("ok")),
        )
    return table


def changed_constants(search: Search) -> str:
    """The best constants where they differ from the defaults, or why there are none."""
    if not search.best:
        return str((search.again or search.records)[0]["reason"])
    label = rung_label(search.default.entry, search.best.constants, search.default.conv)
    return label.removeprefix(search.default.rung).strip(" []") or "the defaults"


def rungs_table(comparisons: Iterable[Comparison]) -> Table:
    """The fastest rung of each kind."""
    table = Table("workload", "layer", "N", "precision", "layout", "fastest rung", "ms", "rungs", "right")
    for comparison in comparisons:
        point, best = comparison.first, comparison.best
        table.add_row(
            point.workload,
            str(point.layer),
            str(point.N),
            point.precision,
            point.entry.layout,
            rung_label(best.rung, best.constants, point.conv) if best else "-",
            milliseconds(best.kernel_ms if best else None),
            str(len(comparison.records)),
            str(sum(record["status"] == "ok" for record in comparison.records)),
        )
    return table
