"""Which page, table or figure a cell names, in any file format."""

import re
from collections.abc import Callable, Mapping, Sequence

from alexconv.reports.elements import Cell, Page, Plot, Table

Address = Callable[[Page, Table | Plot | None], str]  # of a page, or of a table or figure on it
NAMED = re.compile(r"([\w-]+)(?: [\[(][^\])]*[\])])+")  # a name with constants or a transfer after it


def page_links(pages: Sequence[Page], address: Address) -> dict[str, str]:
    """The addresses of pages, and of tables and figures, by the names and titles that cells have for them."""
    items = {
        item.title: address(page, item)
        for page in reversed(pages)
        for section in page.sections
        for item in section.items
    }
    return items | {page.name: address(page, None) for page in pages if page.name}


def name_in(cell: Cell, links: Mapping[str, str]) -> str:
    """The name that a cell is, perhaps with constants or a transfer after it; empty if it names nothing."""
    if not isinstance(cell, str):
        return ""
    named = NAMED.fullmatch(cell)
    return next((name for name in (cell, named[1] if named else "") if name in links), "")
