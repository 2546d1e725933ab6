"""Writes a report: Markdown, CSV, PNG, SVG, and one HTML page that holds everything."""

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jinja2
import matplotlib
from markupsafe import Markup, escape

from alexconv.errors import UsageError
from alexconv.reports import (
    alexnet,
    batches,
    diagnostics,
    ladder,
    lenet,
    orderings,
    overview,
    peers,
    rooflines,
    scaling,
    speed_error,
    transfers,
)
from alexconv.reports.comparison import Frontier
from alexconv.reports.elements import Cell, Plot, Section, Table, exact, markdown_table, plain, shown
from alexconv.reports.measurements import Measurements
from alexconv.reports.style import RC, save_png, settle, svg_text

TEMPLATES = Path(__file__).parent / "templates"
PAGE, MARKDOWN, TABLES, FIGURES = "index.html", "report.md", "tables", "figures"
BOOK = "book/index.html"
FIRST_FACTS = ("Device", "Cards", "Driver", "Toolkit")  # the others can be opened
MOST_OPEN_ROWS, MOST_COLUMNS = 45, 24  # of a table that is open from the start
MOST_WORKERS = 4  # each starts Python and matplotlib anew, which more of them would not win back


@dataclass(frozen=True)
class Report:
    """A report before it has a file format."""

    title: str
    facts: list[tuple[str, str]]
    bases: list[tuple[str, str]]
    sections: list[Section]
    timed: bool
    headline: str = ""  # the result in a sentence or two; empty where nothing was timed

    def tables(self) -> Iterator[Table]:
        """All tables in order."""
        return (item for section in self.sections for item in section.items if isinstance(item, Table))

    def plots(self) -> Iterator[Plot]:
        """All figures in order."""
        return (item for section in self.sections for item in section.items if isinstance(item, Plot))


def compose(measurements: Measurements, found: Frontier | None = None) -> Report:
    """The sections that the records have something for; the list of problems always comes last.

    ``found`` are the comparisons with cuDNN, each within one of the files.
    """
    of_times = [ladder.section(measurements, found), peers.section(measurements, found)]
    more_times = [part.section(measurements) for part in (orderings, rooflines, speed_error, transfers)]
    more_times.append(batches.section(measurements, found))
    sections = [
        *(of_times if measurements.timed else []),
        overview.section(measurements),
        alexnet.section(measurements),
        lenet.section(measurements),
        *(more_times if measurements.timed else []),
        scaling.section(measurements),
        *diagnostics.sections(measurements),
    ]
    kept = [section for section in sections if section.items]
    title = f"Convolution on {overview.device_line(measurements.device).partition(',')[0]}"
    bases = overview.bases(measurements) if measurements.timed else []
    return Report(
        title,
        overview.facts(measurements),
        bases,
        [*kept, diagnostics.problems(measurements)],
        measurements.timed,
        peers.headline(measurements, found),
    )


def write(report: Report, folder: Path) -> Path:
    """Writes every file of the report into the folder; returns the page.  Raises UsageError if it cannot."""
    try:
        for name in (TABLES, FIGURES):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for table in report.tables():
            (folder / TABLES / f"{table.key}.csv").write_text(csv_text(table))
        drawings = draw_all(list(report.plots()), folder / FIGURES)
        (folder / MARKDOWN).write_text(markdown(report))
        (folder / PAGE).write_text(html(report, drawings, BOOK if (folder / BOOK).is_file() else None))
    except OSError as error:
        raise UsageError(f"cannot write the report into {folder}: {error.strerror}") from None
    return folder / PAGE


def draw_all(plots: Sequence[Plot], folder: Path) -> dict[str, str]:
    """Draws the figures on all cores; returns the SVG elements by key."""
    with ProcessPoolExecutor(min(MOST_WORKERS, os.cpu_count() or 1)) as pool:
        drawn = pool.map(draw, plots, [folder] * len(plots))
        return {plot.key: svg for plot, svg in zip(plots, drawn, strict=True)}


def draw(plot: Plot, folder: Path) -> str:
    """Draws a figure once, writes it twice; returns the SVG element."""
    with matplotlib.rc_context(RC):
        figure = plot.draw()
        settle(figure)
        svg = svg_text(figure, plot.key)
        save_png(figure, folder / f"{plot.key}.png")
    (folder / f"{plot.key}.svg").write_text(svg)
    return svg


def html(report: Report, drawings: dict[str, str], book: str | None = None) -> str:
    """The page: styles, script and figures inside, nothing to load.  ``book`` is where the book's pages begin."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"shown": shown, "sort_key": sort_key, "cells_json": cells_json, "prose": prose}
    environment.tests |= {
        "table": lambda item: isinstance(item, Table),
        "folded": folded,
        "short": short,
        "broad": broad,
    }
    environment.globals |= {"FIRST_FACTS": FIRST_FACTS, "MOST_OPEN_ROWS": MOST_OPEN_ROWS, "MOST_COLUMNS": MOST_COLUMNS}
    text = environment.get_template("report.html").render(report=report, drawings=drawings, book=book)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def prose(text: str) -> Markup:
    """A text with what stands between backticks as code."""
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if i % 2 else escape(part) for i, part in enumerate(text.split("`")))


def folded(table: Table) -> bool:
    """Whether a table can be closed."""
    return table.long or not short(table)


def broad(table: Table) -> bool:
    """Whether a table has too many columns for paper, where its CSV file is named instead."""
    return len(table.columns) > MOST_COLUMNS


def short(table: Table) -> bool:
    """Whether a table is open from the start, and its rows are elements of the page from the start."""
    return len(table.rows) <= MOST_OPEN_ROWS and not broad(table)


def cells_json(table: Table) -> str:
    """The rows' texts as JSON that cannot end the script element that it stands in."""
    return json.dumps([[shown(cell) for cell in row] for row in table.rows], ensure_ascii=False).replace("<", "\\u003c")


def sort_key(cell: Cell) -> str:
    """What a column sorts by: the number behind the digits shown; nothing for what sorts as it reads."""
    return exact(cell) if isinstance(cell, float) and exact(cell) != shown(cell) else ""


def csv_text(table: Table) -> str:
    """The table as comma-separated values with full precision."""
    return "\n".join(",".join(map(csv_cell, row)) for row in (table.columns, *table.rows)) + "\n"


def csv_cell(cell: Cell) -> str:
    """A cell, quoted where it has to be (RFC 4180)."""
    text = exact(cell)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text


def markdown(report: Report) -> str:
    """The page as Markdown, with links to figures and long tables."""
    lines = [f"# {plain(report.title)}", ""]
    lines += [plain(report.headline), ""] if report.headline else []
    lines += markdown_table(("", ""), report.facts)
    if report.bases:
        lines += [
            "",
            "What a speedup is relative to:",
            "",
            *(f"- **{name}**: {plain(text)}" for name, text in report.bases),
        ]
    for section in report.sections:
        lines += ["", f"## {plain(section.title)}", "", plain(section.text)]
        for item in section.items:
            lines += ["", f"### {plain(item.title)}", "", *([plain(item.caption), ""] if item.caption else [])]
            if isinstance(item, Plot):
                lines.append(f"![{plain(item.title)}]({FIGURES}/{item.key}.svg)")
            elif item.long:
                lines.append(f"[{len(item.rows)} rows]({TABLES}/{item.key}.csv)")
            else:
                lines += markdown_table(item.columns, item.rows)
    return "\n".join(lines) + "\n"
