"""kernels/README.md names every family and header, and for some rungs the files that they are made of."""

import re

import pytest

from alexconv.compiling.sources import source_files
from alexconv.kernels.ladder import ALL_DIRECTIONS, RUNGS
from alexconv.kernels.rung import FOLDER

MAP = (FOLDER / "README.md").read_text()
ROWS = re.findall(r"^\| `([\w-]+)` \| (.*\.cu`.*) \| (\d+) \|$", MAP, re.MULTILINE)


def test_every_header_and_family_is_on_the_map():
    headers = {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.cuh")}
    assert headers == {name for name in re.findall(r"`([\w/]+\.cuh)`", MAP) if "/" in name}
    families = dict.fromkeys(rung.family for rung in ALL_DIRECTIONS)
    assert list(families) == re.findall(r"^\| \[`(\w+)`\]", MAP, re.MULTILINE)


def test_five_rungs_are_walked():
    assert len(ROWS) == 5


@pytest.mark.parametrize("name, files, lines", ROWS, ids=lambda value: value if value in RUNGS else "")
def test_the_walk_of_a_rung_opens_the_files_that_it_includes(name: str, files: str, lines: str):
    included = [path for path in source_files(RUNGS[name].path) if path.parent.name != "arch"]
    named = re.findall(r"`([\w/]+\.cuh?)`", files)
    assert sorted(named) == sorted(str(path.relative_to(FOLDER)) for path in included)
    assert named[0] == RUNGS[name].file
    counted = sum(len(path.read_text().splitlines()) for path in included)
    assert int(lines) == pytest.approx(counted, rel=0.1)
