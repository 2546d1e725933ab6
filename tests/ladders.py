"""Ladders with made-up rungs, and rungs with planted bugs."""

from dataclasses import replace
from pathlib import Path

from alexconv.compiling.sources import source_files
from alexconv.kernels.ladder import ALL_DIRECTIONS, RUNGS, Ladder
from alexconv.kernels.rung import FOLDER, Rung
from alexconv.kernels.stages.persistent import Layer, persistent_rung
from alexconv.shapes import Conv


def ladder_with(*rungs: Rung) -> Ladder:
    """The ladder with these rungs in place of those of the same names, or at its end."""
    return Ladder({**RUNGS, **{rung.name: rung for rung in rungs}}.values())


def planted(name: str | Rung, right: str, wrong: str, folder: Path) -> Rung:
    """A rung, or the ladder's of that name, with copies of its sources in which ``wrong`` replaces ``right``."""
    rung, count = ALL_DIRECTIONS.named[name] if isinstance(name, str) else name, 0
    for file in source_files(rung.path):
        text = file.read_text()
        count += right in text
        copy = folder / file.relative_to(FOLDER)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text.replace(right, wrong))
    assert count, "no file of the rung has the text that this bug changes"
    return replace(rung, file=str(folder / rung.file))


# The kernel of a whole network is made for its layers: one with a stage of each kind.
PERSISTENT = persistent_rung(
    [
        Layer(Conv(3, 31, 28, 64, 5, 4, 4, top=1, bottom=1, left=2, right=2, bias=True, relu=True), pool=3, stride=2),
        Layer(Conv(64, 3, 3, 32, 3, 3, bias=True)),
    ],
    blocks=3,
)
