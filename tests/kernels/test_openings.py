"""Every kernel file opens with what a reader needs: name, technique, what to read next, how to run it, parent."""

import re
from pathlib import Path

import pytest

from alexconv.kernels.ladder import ALL_DIRECTIONS, GRADIENTS, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import FOLDER, Rung
from alexconv.shapes import WORKLOADS

RUN = r"alexconv run --rungs (?P<rung>[\w-]+)(?: --workload (?P<workload>[\w-]+))? --layers (?P<layer>\d)(?: --N \d+)?"
NEXT = r"[\w/]+\.cuh?\b"

each_rung = pytest.mark.parametrize("rung", ALL_DIRECTIONS, ids=lambda rung: rung.name)


def opening(path: Path) -> list[str]:
    """The comment that a file begins with, line by line."""
    lines = path.read_text().splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    return [line[2:].strip() for line in lines[:end]]


def line_of(path: Path, title: str) -> str:
    """What the one line ``// <title>: ...`` of an opening says."""
    (line_of_title,) = [line for line in opening(path) if line.startswith(f"{title}: ")]
    return line_of_title.removeprefix(f"{title}: ")


def next_files(path: Path) -> list[Path]:
    """The files that a kernel's opening says to read next: named from kernels/ or from the file's own folder."""
    named = re.findall(NEXT, line_of(path, "Read next"))
    return [
        next((place / name for place in (FOLDER, path.parent) if (place / name).is_file()), Path()) for name in named
    ]


@each_rung
def test_the_technique_is_named(rung: Rung):
    assert len(line_of(rung.path, "Technique")) > 15


@each_rung
def test_the_files_to_read_next_exist(rung: Rung):
    files = next_files(rung.path)
    assert files
    assert all(file.is_file() for file in files), line_of(rung.path, "Read next")
    assert rung.path not in files


@each_rung
def test_the_command_runs_this_rung_on_a_layer_that_it_takes(rung: Rung):
    match = re.fullmatch(RUN, line_of(rung.path, "Run"))
    assert match
    assert match["rung"] == rung.name
    conv = WORKLOADS[match["workload"] or "alexnet"].layer(int(match["layer"])).toward(rung.direction)
    assert rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))) is None


def test_reading_on_from_the_first_rungs_reaches_every_family():
    reached, waiting = set(), [RUNGS["direct"].path, GRADIENTS[0].path]
    while waiting:
        path = waiting.pop()
        if path.suffix == ".cu" and path not in reached and path in {rung.path for rung in ALL_DIRECTIONS}:
            reached.add(path)
            waiting += next_files(path)
    assert {path.parent.name for path in reached} == {rung.family for rung in ALL_DIRECTIONS}
