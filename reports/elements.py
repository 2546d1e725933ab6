"""The elements of a report, independent of file formats: pages, sections, tables, plots and code."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from alexconv.records.published import Printed
from alexconv.records.statistics import faster

Cell = str | int | float | None


class Faster(float):
    """A time over ours, shown as ``2.29× faster`` or ``1.18× slower``."""


MISSING = "–"
LEAD = "lead"  # the section that stands beside a page's facts


@dataclass(frozen=True)
class Table:
    """Columns and rows.  ``long`` tables are left out of the Markdown pages, which link to their CSV file instead.

    ``samples`` are each row's, in ms, drawn as its last column on the site.  ``filters`` names the columns that readers
    of the site can filter by, and ``chosen`` the initial choice.  A table without ``csv`` has no file: its numbers are
    in other tables too.  A ``stacked`` one shows its cells one below the other on a phone, and drops its ``minor``
    columns where they do not fit beside its prose.
    """

    key: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    long: bool = False
    samples: Sequence[Sequence[float]] = ()
    filters: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)
    csv: bool = True
    stacked: bool = False
    minor: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code:
    """A source file, or its difference to the text ``before``."""

    key: str
    title: str
    caption: str
    text: str
    before: str | None = None


@dataclass(frozen=True)
class Plot:
    """A figure, drawn when it is written, possibly in another process: ``draw`` must be picklable.

    A ``wide`` one takes the page's whole width.
    """

    key: str
    title: str
    caption: str
    draw: Callable[[], Figure]
    wide: bool = False


@dataclass(frozen=True)
class Chart:
    """What the site's charts.js draws from data that JSON can hold; ``kind`` names the function.

    Only the site has it: its numbers are in other items too.
    """

    key: str
    title: str
    caption: str
    kind: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class Section:
    """A titled part of the report; one without items and text is left out."""

    key: str
    title: str
    text: str
    items: list[Table | Plot] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)  # after the items
    charts: list[Chart] = field(default_factory=list)  # before them


@dataclass(frozen=True)
class Page:
    """A page of the site: its file is named after its key.

    ``kind`` is the list that it is in (``layer``, ``workload``, ``rung``, ``study``, ``topic``).  ``facts`` stand at
    its top.  A cell equal to its ``name`` links to it.
    """

    key: str
    kind: str
    title: str
    text: str
    sections: list[Section]
    facts: list[tuple[str, str]] = field(default_factory=list)
    name: str = ""

    @property
    def file(self) -> str:
        """Its file's name."""
        return f"{self.key}.html"


def shown(cell: Cell) -> str:
    """A cell for readers: as printed, or else at most four significant digits, no exponent from 0.001 on."""
    if cell is None:
        return MISSING
    if isinstance(cell, Faster):
        return faster(cell)
    if isinstance(cell, Printed):
        return f"{cell:,.10g}"
    if not isinstance(cell, float):
        return str(cell)
    size = abs(cell)
    if cell and size < 0.001:
        return f"{cell:.1e}"
    digits = next((digits for bound, digits in ((1, 4), (10, 3), (100, 2), (1000, 1)) if size < bound), 0)
    return f"{cell:,.{digits}f}"


def exact(cell: Cell) -> str:
    """A cell for programs, with full precision; empty when missing."""
    return "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)


SOURCE = re.compile(r"(?:^| )(?:Runs?: |From `|CPU times: those of )")


def sourced(text: str) -> tuple[str, str]:
    """A caption's words, and the runs or files that it ends with."""
    match = SOURCE.search(text)
    return (text[: match.start()], text[match.start() :].strip()) if match else (text, "")


ESCAPED = {"<": "&lt;", "](": "]\\(", "_": "\\_"}
CODE_OR_MARKUP = re.compile(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)|<|\]\(|(?<![^\W_])_", re.DOTALL)


def plain(text: str) -> str:
    """Text escaped for Markdown: no HTML, links or images; in code, which has none, nothing is escaped."""
    return CODE_OR_MARKUP.sub(lambda match: ESCAPED.get(match[0], match[0]), text)


def markdown_table(columns: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> list[str]:
    """A table's lines in Markdown; numeric columns are right-aligned."""
    numeric = [any(isinstance(row[i], (int, float)) for row in rows) for i in range(len(columns))]
    rule = ["---:" if right else "---" for right in numeric]
    cells = [[" ".join(plain(shown(cell)).replace("|", "\\|").split("\n")) for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (columns, rule, *cells)]
