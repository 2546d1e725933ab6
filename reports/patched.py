"""Whole networks patched by alexconv: a part of docs/networks.md.

From the records of scripts/measure/network_bench.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from alexconv.records.store import Record, read
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import goals, source

TYPE, OURS, COMPILED = "library-network", "alexconv", ("compile", "inductor")
SUMMARY = (
    "class",
    "N",
    "networks",
    "than the fastest other, geometric mean",
    "goal",
    "worst",
    "not slower",
    "with torch.compile",
)
ROWS = (
    *("network", "class", "N", "ms", "layout", "fastest other, ms", "which", "than it"),
    *("error / largest output", "its error"),
)


@dataclass(frozen=True)
class Comparison:
    """A network with a batch size and a class: our fastest record and the fastest of the others, on one card."""

    ours: Record
    other: Record
    compiled: bool  # whether torch.compile is among the others

    @property
    def ratio(self) -> float:
        """Our time over the other's."""
        return float(self.ours["ms"] / self.other["ms"])


def time(record: Record) -> float:
    """Milliseconds."""
    return float(record["ms"])


def comparisons(records: Sequence[Record]) -> list[Comparison]:
    """Those of all networks that both sides ran on a card, of the last card, if possible with torch.compile.

    The last record of each contender counts.
    """
    points: dict[tuple[str, int, str, str], dict[str, Record]] = {}
    for record in records:
        if "ms" in record:
            key = record["precision"], record["N"], record["network"], record["device"]
            points.setdefault(key, {})[record["contender"]] = record
    compared: dict[tuple[str, int, str], Comparison] = {}
    for (precision, N, network, _), of_point in points.items():
        ours = [record for name, record in of_point.items() if name.startswith(OURS)]
        others = [record for name, record in of_point.items() if not name.startswith(OURS)]
        if ours and others:
            compiled = any(record["contender"].startswith(COMPILED) for record in others)
            comparison = Comparison(min(ours, key=time), min(others, key=time), compiled)
            before = compared.get((precision, N, network))
            if before is None or compiled >= before.compiled:
                compared[precision, N, network] = comparison
    return list(compared.values())


def summary_rows(compared: Sequence[Comparison]) -> Iterator[tuple[Cell, ...]]:
    """A row for each class and batch size."""
    groups: dict[tuple[str, int], list[Comparison]] = {}
    for comparison in compared:
        groups.setdefault((comparison.ours["precision"], comparison.ours["N"]), []).append(comparison)
    for precision, N in sorted(groups, key=lambda key: (list(goals()).index(key[0]), key[1])):
        some = groups[precision, N]
        ratios = [comparison.ratio for comparison in some]
        faster = (Faster(1 / ratio) for ratio in (geometric_mean(ratios), goals()[precision].networks, max(ratios)))
        not_slower = f"{sum(ratio <= 1 for ratio in ratios)} of {len(ratios)}"
        yield precision, N, len(some), *faster, not_slower, sum(comparison.compiled for comparison in some)


def place(comparison: Comparison) -> tuple[str, int, int]:
    """Where a table has it: by network, class and batch size."""
    ours = comparison.ours
    return ours["network"], list(goals()).index(ours["precision"]), ours["N"]


def network_rows(compared: Sequence[Comparison]) -> Iterator[tuple[Cell, ...]]:
    """A row for each network, class and batch size."""
    for comparison in sorted(compared, key=place):
        ours, other = comparison.ours, comparison.other
        where = ours["network"], ours["precision"], ours["N"]
        times = ours["ms"], ours["contender"].partition("-")[2], other["ms"], other["contender"]
        yield *where, *times, Faster(1 / comparison.ratio), f"{ours['error']:.1e}", f"{other['error']:.1e}"


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's parts by their keys."""
    records = read(files)
    of_type = [header for header in records.headers.values() if header["type"] == TYPE]
    if not (compared := comparisons(of_type)):
        return dict.fromkeys(("patched-summary", "patched-networks"), NOT_MEASURED)
    measured = [record for comparison in compared for record in (comparison.ours, comparison.other)]
    tables = {
        "patched-summary": markdown_table(SUMMARY, list(summary_rows(compared))),
        "patched-networks": markdown_table(ROWS, list(network_rows(compared))),
    }
    return {name: "\n".join([*lines, "", source(records, measured, files)]) for name, lines in tables.items()}
