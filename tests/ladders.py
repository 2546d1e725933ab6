"""A ladder of a test's own: the real one is read-only, and its order is what commands and tables show."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from alexconv.kernels import ladder
from alexconv.kernels.rung import Rung


@contextmanager
def ladder_with(*rungs: Rung, without: str | None = None, former: Mapping[str, str] | None = None) -> Iterator[None]:
    """The ladder with these rungs in the places of those with their names, or at its end, and more former names.

    Afterwards it is as it was, in its order.
    """
    tables = ladder._rungs, ladder._former_names
    before = [dict(table) for table in tables]
    ladder._rungs.update({rung.name: rung for rung in rungs})
    ladder._former_names.update(former or {})
    if without:
        del ladder._rungs[without]
    try:
        yield
    finally:
        for table, entries in zip(tables, before, strict=True):
            table.clear()
            table.update(entries)
