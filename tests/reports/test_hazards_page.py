"""The tables of docs/hazards.md, on records made up here."""

from alexconv.reports import hazards

MUTANT = "igemm/igemm.cu: no barrier: __syncthreads();"
QUIET = dict.fromkeys(hazards.TOOLS, "")


def test_findings_are_counted_and_what_a_tool_says_of_the_unchanged_kernels_is_none():
    rows = [
        {"mutant": hazards.NONE, "alone": "right", **QUIET, "initcheck": "Warning: always"},
        {"mutant": MUTANT, "alone": "right", **QUIET, "racecheck": "Error: Race at 0x12 in f", "initcheck": "hangs"},
        {"mutant": f"{MUTANT} #2", "alone": "wrong", **QUIET, "initcheck": "Warning: always"},
        {"mutant": f"{MUTANT} #3", "alone": hazards.NO_TIME, **dict.fromkeys(hazards.TOOLS, hazards.NO_TIME)},
    ]
    record = {"device": "a GPU", "sanitizer": "Version 1", "images": 3, "rows": rows}
    text = hazards.sanitizer_table(record, {MUTANT: "x; missing: a barrier (igemm, block 0, thread 1)"})
    first, _, _, _, *cells = text.splitlines()
    assert first.endswith(
        "a plain run comes out right for 1; `alexconv check` finds 1;"
        " memcheck 0, racecheck 1, initcheck 0, synccheck 0."
    )
    assert cells[0] == "| no bug |  | right | – | – | – | – | – |"
    bug = "no barrier: `__syncthreads();`"
    assert cells[1] == f"| {bug} | igemm/igemm.cu | right | a barrier | – | Race in f | hangs | – |"
    assert cells[3].count("no time left") == 5


def test_a_mutant_without_a_report_has_its_reason():
    place = {"operator": "no wait", "statement": "wait<1>();", "file": "a.cuh"}
    rows = [{**place, "line": 3, "report": "a | b"}, {**place, "line": 5, "equivalent": "empty"}]
    first, _, *table = hazards.mutant_table(rows).splitlines()
    assert first == "2 mutants: 1 found, 1 that are not bugs."
    assert table[2:] == [
        "| no wait: `wait<1>();` | a.cuh:3 | a \\| b |",
        "| no wait: `wait<1>();` | a.cuh:5 | no bug: empty |",
    ]
