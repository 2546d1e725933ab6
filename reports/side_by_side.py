"""Two record files beside each other, as a site: what ``alexconv compare A B -o DIR`` writes."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.records.statistics import Ratio, Summary, faster_between, summarize
from alexconv.records.store import Record, Records
from alexconv.reports import charts
from alexconv.reports.charts import Dot
from alexconv.reports.elements import Cell, Faster, Page, Plot, Section, Table, shown
from alexconv.reports.page import write as write_report
from alexconv.reports.site import INDEX, Report
from alexconv.reports.style import look

MOST_DRAWN = 60  # points in a figure
MOST_LETTERS = 60  # of a label in it; the table has all of them
SHORT = 12  # digits of a commit


class Compared(Protocol):
    """A point of both files: B's median over A's with its interval, and the samples in ms."""

    label: str
    point: Record
    verdict: str
    ratio: float
    low: float
    high: float
    before: Sequence[float]
    after: Sequence[float]


def write(
    compared: Sequence[Compared],
    figure: str,
    files: Sequence[tuple[Path, Records]],
    folder: Path,
    ladder: Ladder = LADDER,
) -> Path:
    """Writes the site into the folder; returns its first page.  ``files`` are A and B with what they hold."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(pair.verdict for pair in compared).items())
    text = f"{figure} time of B over A in {len(compared)} points of both: {counts or 'none'}."
    items: list[Table | Plot] = [table(compared, figure)]
    if 0 < len(compared) <= MOST_DRAWN:
        items.append(drawing(compared, figure, ladder))
    facts = [fact for letter, file in zip("AB", files, strict=True) for fact in facts_of(letter, *file)]
    title = " and ".join(path.name for path, _ in files)
    pages = [Page(INDEX, "", title, text, [Section("points", "Every point of both files", "", items)], facts)]
    return write_report(Report(title, [], [], pages, timed=True), folder)


def table(compared: Sequence[Compared], figure: str) -> Table:
    """A row for each point."""
    rows: list[tuple[Cell, ...]] = []
    for pair in compared:
        point, times = pair.point, [summarize(pair.before), summarize(pair.after)]
        axes = (str(point[name]) for name in ("workload", "layer", "N", "transfer"))
        sides = [cell for time in times for cell in (time.median, span(time.low, time.high))]
        within = faster_between(Ratio(pair.ratio, pair.low, pair.high).inverse())
        rows.append((*axes, pair.label, *sides, Faster(1 / pair.ratio), within, pair.verdict))
    columns = (
        *("workload", "layer", "N", "transfer", "point", "A, ms", "A, 95 %", "B, ms", "B, 95 %"),
        *("B than A", "95 %", "verdict"),
    )
    caption = f"Medians of {figure} time in ms per batch, speeds with the bootstrap's interval. The samples are B's."
    samples = [pair.after for pair in compared]
    filters = ("workload", "layer", "N", "transfer", "verdict")
    return Table("points", "Both files", caption, columns, rows, samples=samples, filters=filters)


def drawing(compared: Sequence[Compared], figure: str, ladder: Ladder) -> Plot:
    """Bars away from 1."""
    rows = [
        Dot(
            pair.label if len(pair.label) <= MOST_LETTERS else f"{pair.label[:MOST_LETTERS]}…",
            look(pair.point["rung"], ladder),
            Summary(pair.ratio, pair.low, pair.high, len(pair.after)),
        )
        for pair in compared
    ]
    caption = "Left of 1, B is faster. The whisker is the 95 % interval."
    return Plot("ratios", f"{figure} time of B over A", caption, partial(charts.relative, rows, "B / A"), wide=True)


def span(low: float, high: float) -> str:
    """An interval."""
    return f"{shown(low)} to {shown(high)}"


def facts_of(letter: str, path: Path, records: Records) -> list[tuple[str, str]]:
    """Where a file was measured."""
    facts = [(letter, str(path))]
    for header in records.headers.values():
        if header["type"] == "device":
            parts = (header.get("name") or header.get("backend"), header.get("uuid"), header.get("driver"))
            facts.append((f"{letter}, device", ", ".join(str(part) for part in parts if part)))
        if header["type"] == "run" and header.get("commit"):
            facts.append((f"{letter}, commit", str(header["commit"])[:SHORT]))
    return list(dict.fromkeys(facts))
