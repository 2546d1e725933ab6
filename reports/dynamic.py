"""Builds for every shape: their times, and first calls, from scripts/measure's dynamic.py and library_bench.py.

A part of docs/library.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alexconv.records.store import Record, read
from alexconv.reports.elements import Cell, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import mean, source
from alexconv.reports.networks import shape
from alexconv.shapes import Conv

LAYER, FIRST = "library-dynamic", "library-first"  # types of records
SUMMARY = ("class", "N", "layers", "over the same rung for the shape", "worst", "over the choice", "worst ")
LAYERS = ("class", "N", "layer", "for every shape", "µs", "for the shape", "µs ", "choice", "µs  ", "over the choice")
CALLS = ("cache", "class", "fastest ms", "slowest ms", "first of the process, ms")
MICROSECONDS = "{:.1f}"


@dataclass(frozen=True)
class Comparison:
    """A layer's trials: the build for every shape, the same rung and constants for the shape, and the choice."""

    record: Record
    every: Record
    same: Record
    choice: Record

    @property
    def over_same(self) -> float:
        """The time for every shape over that for the shape."""
        return float(self.every["ms"] / self.same["ms"])

    @property
    def over_choice(self) -> float:
        """The time for every shape over the choice's."""
        return float(self.every["ms"] / self.choice["ms"])


def comparisons(records: Sequence[Record]) -> Iterator[Comparison]:
    """Those of the records whose trials all have times."""
    for record in records:
        choice, *others = record["trials"]
        every = next((trial for trial in others if trial["dynamic"]), None)
        if every is None:
            continue
        alone = (trial for trial in record["trials"] if not trial["dynamic"] and of_one_code(trial, every))
        same = next(alone, None)
        if same and all("ms" in trial for trial in (choice, every, same)):
            yield Comparison(record, every, same, choice)


def of_one_code(trial: Record, other: Record) -> bool:
    """Whether two trials are of one rung with one set of constants."""
    return (trial["rung"], trial["constants"]) == (other["rung"], other["constants"])


def summary_rows(compared: Sequence[Comparison]) -> Iterator[tuple[Cell, ...]]:
    """A row for each class and batch size."""
    groups: dict[tuple[str, int], list[Comparison]] = {}
    for one in compared:
        groups.setdefault((one.record["precision"], one.record["N"]), []).append(one)
    for (precision, N), some in groups.items():
        pairs = ([one.over_same for one in some], [one.over_choice for one in some])
        yield precision, N, len(some), *(f"{figure:.2f}" for ratios in pairs for figure in (mean(ratios), max(ratios)))


def layer_rows(compared: Sequence[Comparison]) -> Iterator[tuple[Cell, ...]]:
    """A row for each layer."""
    for one in compared:
        sides = (
            cell
            for side in (one.every, one.same, one.choice)
            for cell in (f"`{side['rung']}`", MICROSECONDS.format(1e3 * side["ms"]))
        )
        facts = one.record
        where = facts["precision"], facts["N"], shape(Conv(**facts["conv"]))
        yield *where, *sides, f"{one.over_choice:.2f}"


def call_rows(record: Record) -> Iterator[tuple[Cell, ...]]:
    """A row for each state of the cache and class."""
    for state, times in record["seconds"].items():
        for precision, seconds in times["shapes"].items():
            yield state, precision, *(1e3 * value for value in (min(seconds), max(seconds))), 1e3 * times["process"]


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's parts by their keys, of the last measurement of each layer and of first calls."""
    if not files:
        return dict.fromkeys(("dynamic-summary", "dynamic-layers", "dynamic-first"), NOT_MEASURED)
    records = read(files)
    of_layers = {
        (str(header["conv"]), header["N"], header["precision"]): header
        for header in records.headers.values()
        if header["type"] == LAYER
    }
    compared = list(comparisons(list(of_layers.values())))
    calls = [header for header in records.headers.values() if header["type"] == FIRST][-1:]
    tables: dict[str, tuple[Sequence[str], list[tuple[Cell, ...]], list[Record]]] = {
        "dynamic-summary": (SUMMARY, list(summary_rows(compared)), list(of_layers.values())),
        "dynamic-layers": (LAYERS, list(layer_rows(compared)), list(of_layers.values())),
        "dynamic-first": (CALLS, [row for record in calls for row in call_rows(record)], calls),
    }
    return {
        name: "\n".join([*markdown_table(columns, rows), "", source(records, measured, files)])
        if rows
        else NOT_MEASURED
        for name, (columns, rows, measured) in tables.items()
    }
