"""Writes a report: Markdown, CSV, PNG, SVG, and a site of HTML pages."""

import json
import multiprocessing
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from threading import current_thread, main_thread

import jinja2
import matplotlib
from markupsafe import Markup, escape

from alexconv.errors import UsageError
from alexconv.records.statistics import summarize
from alexconv.reports.elements import LEAD, Cell, Plot, Table, exact, shown, sourced
from alexconv.reports.links import name_in, page_links
from alexconv.reports.listing import listing
from alexconv.reports.markdown import markdown_pages
from alexconv.reports.site import FIGURES, FIRST_FACTS, INDEX, KINDS, TABLES, UNTIMED, Report
from alexconv.reports.style import RC, save_png, settle, svg_text

TEMPLATES = Path(__file__).parent / "templates"
SEARCH = "search.js"
PAGE = f"{INDEX}.html"
ASSETS = ("site.css", "site.js", "charts.js")
BOOK = "book/index.html"
MOST_OPEN_LINES = 128  # of a source file
MOST_OPEN_ROWS, MOST_COLUMNS = 64, 24  # of a table that is initially open; of one that is on the page
LEAST_CHOSEN, LEAST_LISTED = 20, 6  # rows of a table with tools above it; items of a page with a list of them
MOST_WORKERS = 4  # each has to start Python and matplotlib, which more of them would not recoup


def write(report: Report, folder: Path, *, png: bool = True) -> Path:
    """Writes all files of the report into the folder; returns the page.  Raises UsageError if it cannot."""
    try:
        for name in (TABLES, FIGURES):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for table in report.tables():
            if table.csv:
                (folder / TABLES / f"{table.key}.csv").write_text(csv_text(table))
        draw_all(list(report.plots()), folder / FIGURES, png=png)
        for name, text in (markdown_pages(report) | site(report, folder)).items():
            (folder / name).write_text(text)
        for name in ASSETS:
            shutil.copyfile(TEMPLATES / name, folder / name)
    except OSError as error:
        raise UsageError(f"cannot write the report into {folder}: {error.strerror}") from None
    return folder / PAGE


def draw_all(plots: Sequence[Plot], folder: Path, *, png: bool = True) -> None:
    """Draws the figures on all cores; in turn where there is no place for the locks that processes share."""
    processes = multiprocessing.get_context("forkserver")  # a fork of this process would copy its threads' locks
    processes.set_forkserver_preload([__name__])
    drawn = partial(draw, folder=folder, png=png)
    try:
        pool = ProcessPoolExecutor(min(MOST_WORKERS, os.cpu_count() or 1), processes)
    except OSError:  # such as a /dev/shm that is not writable
        list(map(drawn, plots))
        return
    with pool:
        try:
            with _interrupted_later():
                drawings = pool.map(drawn, plots)  # starts the processes
            list(drawings)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """A Ctrl-C counts at the end; processes that start within it, and theirs, take none: this process ends them."""
    if current_thread() is not main_thread():  # which gets signals
        yield
        return
    resource_tracker.ensure_running()  # now: it unblocks the signal
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def draw(plot: Plot, folder: Path, *, png: bool) -> None:
    """Draws a figure once, writes it as SVG and perhaps as PNG."""
    with matplotlib.rc_context(RC):
        figure = plot.draw()
        settle(figure)
        (folder / f"{plot.key}.svg").write_text(svg_text(figure, plot.key))
        if png:
            save_png(figure, folder / f"{plot.key}.png")


def site(report: Report, folder: Path) -> dict[str, str]:
    """The HTML pages and the search index, by file name; the folder has the figures already."""
    sizes = {plot.key: size for plot in report.plots() if (size := size_of(folder / FIGURES / f"{plot.key}.svg"))}
    pages = html(report, sizes, BOOK if (folder / BOOK).is_file() else None)
    return pages | {SEARCH: search_script(report)}


def size_of(drawing: Path) -> tuple[int, int] | None:
    """A drawing's width and height in pixels, which the page reserves for it; None where there is none."""
    start = drawing.read_text()[:500] if drawing.is_file() else ""
    sizes = re.search(r'<svg[^>]* width="([\d.]+)pt"', start), re.search(r'<svg[^>]* height="([\d.]+)pt"', start)
    return (round(float(sizes[0][1]) * 4 / 3), round(float(sizes[1][1]) * 4 / 3)) if sizes[0] and sizes[1] else None


def html(report: Report, sizes: Mapping[str, tuple[int, int]], book: str | None = None) -> dict[str, str]:
    """The pages by file name.  They load styles, script and figures from their own folder alone.

    ``sizes`` are those of the figures, ``book`` is the book's first page.
    """
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    links = page_links(report.pages, lambda page, item: f"{page.file}#{item.key}" if item else page.file)
    environment.filters |= {
        "linked": lambda cell, here: linked(cell, links, here),
        "cells_json": lambda table, here: cells_json(table, links, here),
        "sort_key": sort_key,
        "prose": prose,
        "sourced": sourced,
        "listing": listing,
        "strip": strip,
        "json": json_text,
    }
    environment.tests |= {
        "table": lambda item: isinstance(item, Table),
        "folded": folded,
        "short": short,
        "broad": broad,
        "choosable": lambda table: bool(table.filters) or len(table.rows) >= LEAST_CHOSEN,
        "charted": lambda page: any(section.charts for section in page.sections),
        "contented": lambda page: sum(len(section.items) for section in page.sections) >= LEAST_LISTED,
    }
    environment.globals |= {"UNTIMED": UNTIMED, "LEAD": LEAD, "FIRST_FACTS": FIRST_FACTS}
    environment.globals |= {"MOST_OPEN_ROWS": MOST_OPEN_ROWS, "MOST_OPEN_LINES": MOST_OPEN_LINES}
    kinds = {kind: [page for page in report.pages if page.kind == kind] for kind in KINDS}
    template = environment.get_template("site.html")
    texts = {}
    for page in report.pages:
        text = template.render(
            report=report, page=page, here=page.file, sizes=sizes, book=book, kinds=kinds, KINDS=KINDS
        )
        texts[page.file] = trimmed(text)
    return texts


def trimmed(text: str) -> str:
    """A page without blank lines and spaces at the ends of lines, except in its code."""
    parts = re.split(r"(<pre>.*?</pre>)", text, flags=re.DOTALL)
    lines = ["\n".join(line.rstrip() for line in part.split("\n")) for part in parts[::2]]
    parts[::2] = [re.sub(r"\n{2,}", "\n", part) for part in lines]
    return "".join(parts).strip() + "\n"


def link_of(cell: Cell, links: Mapping[str, str], here: str) -> str | None:
    """The page that a cell names, perhaps with constants or a transfer after it, unless it is the cell's own page."""
    address = links.get(name_in(cell, links))
    return address if address != here else None


def linked(cell: Cell, links: Mapping[str, str], here: str) -> Markup:
    """A cell's text, linked if it names a page."""
    href = link_of(cell, links, here)
    return Markup('<a href="{}">{}</a>').format(href, shown(cell)) if href else escape(shown(cell))


def search_script(report: Report) -> str:
    """The search index: title, address and kind of every page, table and figure."""
    entries = [(page.title, page.file, KINDS.get(page.kind, "page").lower()) for page in report.pages]
    for page in report.pages:
        for section in page.sections:
            for item in section.items:
                kind = "table" if isinstance(item, Table) else "figure"
                entries.append((item.title, f"{page.file}#{item.key}", f"{kind}, {page.title}"))
    return f"searchable({json.dumps(entries, ensure_ascii=False, indent=0)});\n"


def strip(samples: Sequence[float]) -> str:
    """Samples as the script draws them: median, ends of its interval, then each."""
    if not samples:
        return ""
    summary = summarize(samples)
    return " ".join(f"{value:.5g}" for value in (summary.median, summary.low, summary.high, *samples))


def prose(text: str) -> Markup:
    """A text with backticked parts as code elements."""
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if i % 2 else escape(part) for i, part in enumerate(text.split("`")))


def folded(table: Table) -> bool:
    """Whether a table is collapsible."""
    return table.long or not short(table)


def broad(table: Table) -> bool:
    """Whether a table is too wide for a page, which links to its CSV file instead."""
    return table.csv and len(table.columns) > MOST_COLUMNS


def short(table: Table) -> bool:
    """Whether a table is initially open, with its rows as elements of the page."""
    return len(table.rows) <= MOST_OPEN_ROWS and not broad(table)


def cells_json(table: Table, links: Mapping[str, str], here: str) -> str:
    """The rows' texts, links and samples as JSON."""
    rows: list[list[object]] = []
    for row in table.rows:
        hrefs = [link_of(cell, links, here) for cell in row]
        rows.append([[shown(cell), href] if href else shown(cell) for cell, href in zip(row, hrefs, strict=True)])
    for cells, samples in zip(rows, table.samples, strict=False):
        cells.append({"s": strip(samples)})
    return json_text(rows)


def json_text(value: object) -> str:
    """JSON that cannot end its script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def sort_key(cell: Cell) -> str:
    """A cell's sort key: the unrounded number; empty if the cell sorts as text."""
    return exact(cell) if isinstance(cell, float) and exact(cell) != shown(cell) else ""


def csv_text(table: Table) -> str:
    """The table as comma-separated values with full precision."""
    return "\n".join(",".join(map(csv_cell, row)) for row in (table.columns, *table.rows)) + "\n"


def csv_cell(cell: Cell) -> str:
    """A cell, quoted where it has to be (RFC 4180)."""
    text = exact(cell)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text
