"""Arrivals at a counter in global memory: a warp's or a block's barrier comes right before and right after each.

Blocks run one after the other on a CPU, so a run there cannot show that one of these barriers is missing.
"""

import re

import pytest

from alexconv.compiling.sources import source_files
from alexconv.kernels.ladder import LADDER

ARRIVAL = re.compile(r"\batomic_\w+_acq_rel\((?=[^;]*;)(?!unsigned)")
BARRIER = re.compile(r"__sync(?:warp|threads)\(")
ALONE = re.compile(r"if \(threadIdx\.x > 0\) return$")  # one thread goes on: what it reads needs no barrier
NEAR = 3  # statements
FILES = sorted({file for rung in LADDER for file in source_files(rung.path) if file.parent.name != "arch"})


def unguarded(source: str) -> list[str]:
    """Which barriers its arrivals lack."""
    code = re.sub(r"//[^\n]*", "", source)
    missing = []
    for arrival in ARRIVAL.finditer(code):
        before = code[: arrival.start()].split(";")[-NEAR - 1 : -1]
        after = code[arrival.start() :].split(";")[1 : NEAR + 1]
        sides = {"before": before} if any(map(ALONE.search, before)) else {"before": before, "after": after}
        missing += [
            f"{arrival[0]}: no barrier {where}" for where, near in sides.items() if not any(map(BARRIER.search, near))
        ]
    return missing


def test_every_arrival_has_its_barriers() -> None:
    with_arrivals = [file for file in FILES if ARRIVAL.search(file.read_text())]
    assert with_arrivals
    assert {file.name: lacking for file in with_arrivals if (lacking := unguarded(file.read_text()))} == {}


@pytest.mark.parametrize("name", ["mma_tile.cuh", "split_tiles.cuh"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_missing_barrier_is_named(where: str, name: str) -> None:
    (file,) = (file for file in FILES if file.name == name)
    text = file.read_text()
    arrival = ARRIVAL.search(text)
    assert arrival
    cut = (
        text.rindex("__syncwarp();", 0, arrival.start())
        if where == "before"
        else text.index("__syncwarp();", arrival.end())
    )
    assert unguarded(text[:cut] + text[cut + len("__syncwarp();") :]) == [f"{arrival[0]}: no barrier {where}"]
