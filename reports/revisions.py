"""Two revisions of the project on one card, run in turn: the passage of docs/frontier.md."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from pathlib import Path

from alexconv.records.comparisons import SLOWER, VERDICTS, Comparison, compare
from alexconv.records.statistics import Ratio, faster_between, ratio_of, summarize
from alexconv.records.store import read
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source

FIGURE = "kernel"
BEFORE, AFTER, BEFORE_AGAIN, AFTER_AGAIN = FILES = (
    *("h100-before.jsonl", "h100-after.jsonl"),
    *("h100-before-2.jsonl", "h100-after-2.jsonl"),
)
COLUMNS = (
    *("rung", "N", "layers", "before, ms", "after, ms", "after", "95 %", "after, again", "before, again"),
    "slower layers",
)

Groups = Mapping[tuple[str, int], Sequence[Comparison]]  # by rung and N


def grouped(pairs: Sequence[Comparison]) -> Groups:
    """The layers of each rung and N."""
    groups: dict[tuple[str, int], list[Comparison]] = {}
    for pair in pairs:
        groups.setdefault((pair.point["rung"], pair.point["N"]), []).append(pair)
    return groups


def speed(pairs: Sequence[Comparison]) -> Ratio:
    """How much less time the second of two runs takes over all layers."""
    return ratio_of([pair.before for pair in pairs], [pair.after for pair in pairs])


def rows(pairs: Groups, again: Groups, repeated: Groups) -> Iterator[tuple[Cell, ...]]:
    """Each rung's sums, and the speed in a second run of both revisions, and of the first over its first run."""
    for (rung, N), layers in pairs.items():
        before, after = (
            fsum(summarize(samples).median for samples in side)
            for side in ([pair.before for pair in layers], [pair.after for pair in layers])
        )
        ratio = speed(layers)
        others = (Faster(speed(group[rung, N]).value) if (rung, N) in group else None for group in (again, repeated))
        slower = ", ".join(str(pair.point["layer"]) for pair in layers if pair.verdict == SLOWER)
        numbers = ", ".join(str(pair.point["layer"]) for pair in layers)
        cells = f"`{rung}`", N, numbers, before, after, Faster(ratio.value), faster_between(ratio)
        yield *cells, *others, slower or None


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The passage's table and counts of verdicts; ``files`` by their names in FILES."""
    named = {file.name: file for file in files}
    if missing := [name for name in FILES if name not in named]:
        return {"revisions": f"{NOT_MEASURED} ({', '.join(missing)})"}
    of_file = {name: read([named[name]]) for name in FILES}

    def compared(first: str, second: str) -> list[Comparison]:
        return compare(of_file[first], of_file[second], FIGURE)

    pairs = compared(BEFORE, AFTER)
    groups = map(grouped, (pairs, compared(BEFORE_AGAIN, AFTER_AGAIN), compared(BEFORE, BEFORE_AGAIN)))
    verdicts = Counter(pair.verdict for pair in pairs)
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS)
    records = read([named[name] for name in FILES])
    origin = source(records, records.points, [named[name] for name in FILES])
    return {"revisions": "\n".join([*markdown_table(COLUMNS, list(rows(*groups))), "", f"{counts}. {origin}"])}
