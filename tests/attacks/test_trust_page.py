"""docs/trust.md agrees with the attacks' tests and records."""

from pathlib import Path

import mutants
import test_cheating_rungs  # noqa: F401  importing them fills the table
import test_timed_cheats  # noqa: F401
from attacks import CAUGHT_BY, SHOWN

from alexconv.records.compressed import files_in
from alexconv.reports import trust

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "results" / "trust"
LINES, KNOWN = trust.lines_of(RECORDS / "mutants.jsonl"), trust.reasons(RECORDS / "equivalent_mutants.toml")


def test_every_attack_of_the_table_is_tried_by_a_test() -> None:
    assert CAUGHT_BY.keys() == SHOWN.keys()


def test_every_unnoticed_mutant_has_a_reason() -> None:
    assert trust.unnoticed(LINES, KNOWN) == []


def test_every_reason_for_an_equivalent_mutant_is_one_of_a_mutant() -> None:
    reasons = {trust.why(line, KNOWN) for line in trust.equivalent(LINES, KNOWN)}
    assert {mutant["why"] for mutant in KNOWN} == reasons


def test_a_reason_is_for_the_change_of_the_source_that_it_names() -> None:
    (line, *_) = trust.equivalent(LINES, KNOWN)
    assert trust.why(line, KNOWN)
    assert trust.why({**line, "code": "another"}, KNOWN) is None
    assert trust.why({**line, "after": "another"}, KNOWN) is None


def test_a_mutant_is_found_by_its_source_not_its_line_number() -> None:
    (line, *_) = trust.equivalent(LINES, KNOWN)
    now = mutants.placed(line)
    assert now
    assert mutants.placed({**line, "line": now["line"] + 1}) == now
    assert mutants.placed({**line, "code": "another"}) is None


def test_identical_machine_code_is_not_a_mutant(tmp_path: Path) -> None:
    rung = mutants.RUNGS["direct-few-half"]
    other = mutants.replace(rung, file=str(tmp_path / rung.file))
    ignored = mutants.shutil.ignore_patterns("__pycache__")
    mutants.shutil.copytree(mutants.FOLDER, tmp_path, dirs_exist_ok=True, ignore=ignored)
    header = tmp_path / "single" / "few_channels.cuh"
    for added, same in (("\nconstexpr int UNUSED = 1;\n", True), ("\nint used = 1;\n", False)):
        header.write_text((mutants.FOLDER / "single" / "few_channels.cuh").read_text() + added)
        assert mutants.same_code(other, mutants.variants(other)[0]) is same


def test_mutants_of_every_rung_have_a_shape() -> None:
    assert all(mutants.variants(rung) for rung in mutants.LADDER if not rung.gpu_only)


def test_tasks_have_disjoint_mutants() -> None:
    mutant, *_ = mutants.mutants_of(mutants.RUNGS["direct"], mutants.random.Random(0))
    facts = {"rung": "direct", "noticed": [], **mutants.asdict(mutant)}
    tasks = mutants.tasks_of("direct", [facts], 4, 1)
    taken = [{(mutant.file, mutant.start, mutant.after) for mutant in task.mutants()} for task in tasks]
    assert len(tasks) == 3
    assert not taken[0] & taken[1] and not taken[0] & taken[2] and not taken[1] & taken[2]
    assert not any((mutant.file, mutant.start, mutant.after) in changes for changes in taken)


def test_the_headline_stands_beside_its_repetitions_on_other_cards() -> None:
    lines = trust.headline(files_in(RECORDS.parent, "h200*frontier*.jsonl")).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert len({row[0] for row in rows}) == len(rows) >= 3
    assert all(row[0].startswith("GPU-") and all("faster" in cell for cell in row[1:4]) for row in rows)
    assert {row[-1] for row in rows} >= {"`h200-frontier.jsonl`", "`h200-2-frontier-again.jsonl`"}
