"""Changes the ladder for a test: the real one is read-only, and commands and tables show its order."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from alexconv.compiling.sources import source_files
from alexconv.kernels import ladder
from alexconv.kernels.rung import FOLDER, Rung


@contextmanager
def ladder_with(*rungs: Rung, without: str | None = None) -> Iterator[None]:
    """The ladder with these rungs in place of those of the same names, or at its end; restored afterwards."""
    before = dict(ladder._rungs)
    ladder._rungs.update({rung.name: rung for rung in rungs})
    if without:
        del ladder._rungs[without]
    try:
        yield
    finally:
        ladder._rungs.clear()
        ladder._rungs.update(before)


def planted(name: str, right: str, wrong: str, folder: Path) -> Rung:
    """A rung with copies of its sources in ``folder``, in which ``wrong`` replaces ``right``."""
    rung, found = ladder.RUNGS[name], 0
    for file in source_files(rung.path):
        text = file.read_text()
        found += right in text
        copy = folder / file.relative_to(FOLDER)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text.replace(right, wrong))
    assert found, "no file of the rung has the text that this bug changes"
    return replace(rung, file=str(folder / rung.file))
