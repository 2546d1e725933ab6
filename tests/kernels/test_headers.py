"""A header says at its top what it takes from the rungs that include it."""

import re
from pathlib import Path

import pytest
from ladders import PERSISTENT

from alexconv.compiling.sources import source_files
from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.kernels.rung import FOLDER
from alexconv.kernels.stages.ladder import STAGE_RUNGS

RUNGS = {rung: source_files(rung.path) for rung in (*ALL_DIRECTIONS, *STAGE_RUNGS, PERSISTENT)}
HEADERS = sorted(FOLDER.glob("*/*.cuh"))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_header_names_the_constants_that_it_needs(header: Path):
    opening, _, code = header.read_text().partition("#pragma once\n")
    assert code, "a header begins with a comment and #pragma once"
    rungs = [rung for rung, files in RUNGS.items() if header in files]
    assert rungs, "no rung includes it"
    taken = {constant.name for rung in rungs for constant in rung.constants}
    taken |= {f"LADDER_{name}" for rung in rungs for name, _ in rung.sizes}
    assert taken & words(re.sub(r"//.*", "", code)) <= words(opening)
