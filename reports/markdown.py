"""Markdown pages of a report, as a hosting site shows them: the site's pages and sections, except those of rungs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from alexconv.kernels.ladder import LADDER
from alexconv.reports.elements import Cell, Page, Plot, Table, markdown_table, plain, sourced
from alexconv.reports.links import name_in, page_links
from alexconv.reports.site import FIGURES, FIRST_FACTS, INDEX, KINDS, TABLES, UNTIMED, Report

README = "README.md"
MOST_OPEN_ROWS, MOST_ROWS = 40, 160  # of a table that is initially open; of one that is on the page
SLUG = re.compile(r"[^\w\- ]")


def markdown_pages(report: Report, sources: Path | None = None) -> dict[str, str]:
    """The pages by file name; rungs' names link to their files in ``sources``, if there is such a folder."""
    pages = pages_of(report)
    links = {rung.name: f"{sources}/{rung.file}" for rung in LADDER} if sources else {}
    links |= page_links(pages, address)
    return {address(page): page_text(report, page, pages, links) for page in pages}


def pages_of(report: Report) -> list[Page]:
    """The pages that are written: a rung's times are on other pages, too."""
    return [page for page in report.pages if page.kind != "rung"]


def items_of(report: Report) -> list[Table | Plot]:
    """The tables and figures that the pages show or link to, each once."""
    return [*{item.key: item for page in pages_of(report) for item in on_page(page)}.values()]


def address(page: Page, item: Table | Plot | None = None) -> str:
    """A page's file, and the heading of a table or figure on it."""
    file = README if page.key == INDEX else f"{page.key}.md"
    return f"{file}#{slug(item.title)}" if item else file


def slug(title: str) -> str:
    """A heading's anchor, as hosting sites make it."""
    return SLUG.sub("", title.lower()).replace(" ", "-")


def in_file(item: Table | Plot) -> bool:
    """Whether a table is left to its CSV file."""
    return isinstance(item, Table) and (item.long or len(item.rows) > MOST_ROWS)


def on_page(page: Page) -> Iterator[Table | Plot]:
    """Its tables and figures, without those that are neither shown nor in a file."""
    for section in page.sections:
        yield from (item for item in section.items if isinstance(item, Plot) or item.csv or not in_file(item))


def page_text(report: Report, page: Page, pages: Sequence[Page], links: Mapping[str, str]) -> str:
    """One page."""
    index = page.key == INDEX
    headline, runs = sourced(report.headline if index else "")
    facts = [fact for fact in report.facts if fact[0] in FIRST_FACTS] if index else page.facts
    shown = {item.key for item in on_page(page)}
    own = {name: href for name, href in links.items() if href.partition("#")[0] != address(page)}
    lines = [f"# {plain(page.title)}", *([] if index else ["", f"[Report]({README})"])]
    notice = "" if report.timed else UNTIMED
    lines += [part for text in (headline, notice, page.text) if text for part in ("", plain(text))]
    lines += ["", *bullets(facts, own)] if facts else []
    for section in page.sections:
        items = [item for item in section.items if item.key in shown]
        if items or section.text:
            lines += ["", f"## {plain(section.title)}", *(["", plain(section.text)] if section.text else [])]
        for item in items:
            lines += item_lines(item, own)
    lines += lists(pages) if index else []
    lines += folded("Source", [*([f"- {plain(runs)}"] if runs else []), *source_lines(page)])
    lines += report_source(report) if index else []
    return "\n".join([*lines, "", *definitions("\n".join(lines), own)]).strip() + "\n"


def bullets(facts: Sequence[tuple[str, str]], links: Mapping[str, str] | None = None) -> list[str]:
    """Names and values as a list; a value that names a page is a link."""
    hrefs = links or {}
    texts = [(name, plain(one_line(value)), hrefs.get(value)) for name, value in facts]
    return [f"- **{name}**: {f'[{text}]({href})' if href else text}" for name, text, href in texts]


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.splitlines())


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that a click unfolds."""
    return ["", f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"] if lines else []


def item_lines(item: Table | Plot, links: Mapping[str, str]) -> list[str]:
    """A figure, or a table: open, folded where it is long, or a link to its file."""
    words = plain(sourced(item.caption)[0])
    lines = ["", f"### {plain(item.title)}", *(["", words] if words else [])]
    if isinstance(item, Plot):
        return [*lines, "", f"![{plain(item.title)}]({FIGURES}/{item.key}.svg)"]
    if in_file(item):
        return [*lines, "", f"[{len(item.rows)} rows]({TABLES}/{item.key}.csv)"]
    rows = markdown_table(item.columns, [tuple(linked(cell, links) for cell in row) for row in item.rows])
    if len(item.rows) <= MOST_OPEN_ROWS:
        return [*lines, "", *rows]
    return [*lines, *folded(f"{len(item.rows)} rows", rows)]


def linked(cell: Cell, links: Mapping[str, str]) -> Cell:
    """A cell with the name in it in brackets, which ``definitions`` makes a link."""
    name = name_in(cell, links)
    return f"[{name}]{str(cell).removeprefix(name)}" if name and not set(name) & set("[]|\\") else cell


def definitions(text: str, links: Mapping[str, str]) -> list[str]:
    """The addresses of the links in a page's text."""
    return [f"[{name}]: {href}" for name, href in links.items() if f"| [{name}]" in text]


def lists(pages: Sequence[Page]) -> list[str]:
    """The lists of pages."""
    lines: list[str] = []
    for kind, title in KINDS.items():
        entries = [f"- [{plain(page.title)}]({address(page)})" for page in pages if page.kind == kind]
        lines += ["", f"## {title}", "", *entries] if entries else []
    return lines


def source_lines(page: Page) -> list[str]:
    """The runs of each table and figure."""
    titles: dict[str, list[str]] = {}
    for item in on_page(page):
        if runs := sourced(item.caption)[1]:
            titles.setdefault(runs, []).append(item.title)
    return [f"- {plain(runs)} Of: {plain('; '.join(names))}." for runs, names in titles.items()]


def report_source(report: Report) -> list[str]:
    """What speedups are relative to, machines, software and commands."""
    facts = [fact for fact in report.facts if fact[0] not in FIRST_FACTS]
    commands = [f"    {one_line(value)}" for name, value in facts if name == "Command"]
    rest = [fact for fact in facts if fact[0] != "Command"]
    return [
        *folded("What a speedup is relative to", bullets(report.bases)),
        *folded("Machines and software", bullets(rest)),
        *folded("Commands", commands),
    ]
