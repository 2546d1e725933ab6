"""The script that compares compute-sanitizer's tools with the check on a CPU: its sample, how it reads the tools."""

import importlib
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))
planted = importlib.import_module("hazard_mutants")
sanitizers = importlib.import_module("hazard_sanitizers")
sys.path.remove(str(SCRIPTS))


def test_the_sample_has_every_kind_of_bug():
    found = sanitizers.sample()
    assert len({mutant.name for mutant in found}) == len(sanitizers.SAMPLE)
    every = {mutant.operator for mutant in planted.mutants()}
    assert {mutant.operator for mutant in found} == every


TOOL_LINES = """========= COMPUTE-SANITIZER
========= Error: Potential WAR hazard detected at __shared__ 0x0 in block (0,0,0) :
=========     Write Thread (32,0,0) at igemm+0x6d0 in igemm.cu:44
=========     Current Value : 0
""".splitlines(keepends=True)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (TOOL_LINES, "Error: Potential WAR hazard detected at __shared__ 0x0 in block (0,0,0) : (igemm.cu:44)"),
        (TOOL_LINES[:1], ""),
        (["a hazard that a kernel prints\n"], ""),
        (["========= RACECHECK SUMMARY: 34 hazards displayed\n"], ""),
    ],
)
def test_a_tool_s_first_finding_and_its_place(lines, expected):
    assert sanitizers._first(lines) == expected


def test_the_table_has_a_row_for_each_mutant_and_counts_findings():
    mutants = sanitizers.sample()
    found = {(way, number): "" for way in sanitizers.WAYS for number in range(len(mutants))}  # no time for the last
    found |= {(sanitizers.ALONE, number): "right" for number in range(len(mutants))}
    found |= {("racecheck", 1): "Error: Race reported", ("racecheck", 2): "hangs"}
    record = {"device": "a GPU", "sanitizer": "Version 1", "images": 3, "rows": sanitizers.rows_of(found, mutants)}
    record = json.loads(json.dumps(record))
    page = f"before\n{sanitizers.BEGIN}old\n{sanitizers.END}after\n"
    written = sanitizers.with_table(page, record, {mutants[0].name: "x; missing: a barrier (igemm, block 0, thread 1)"})
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert (
        "a plain run comes out right for 25; `alexconv check` finds 1; memcheck 0, racecheck 1, initcheck 0" in written
    )
    rows = [line for line in written.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(mutants) + 1
    assert "| a barrier |" in rows[1]
    assert "Race reported" in rows[1]
    assert rows[-1].count("no time left") == 5


def test_the_page_shows_the_record():
    checked = {row["name"]: row["report"] for row in json.loads(planted.RECORDS.read_text()) if "report" in row}
    page, record = planted.PAGE.read_text(), json.loads(sanitizers.RECORDS.read_text())
    assert sanitizers.with_table(page, record, checked) == page, "run scripts/hazard_sanitizers.py --page"
    assert {row["mutant"] for row in record["rows"]} == {sanitizers.NONE, *(each.name for each in sanitizers.sample())}
