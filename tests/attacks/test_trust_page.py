"""docs/trust.md says what the attacks' tests and records say."""

import subprocess
import sys
from pathlib import Path

import test_cheating_rungs  # noqa: F401  importing them fills the table
import test_timed_cheats  # noqa: F401
from attacks import CAUGHT_BY, SHOWN

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_attack_of_the_table_is_tried_by_a_test() -> None:
    assert CAUGHT_BY.keys() == SHOWN.keys()


def test_the_page_is_what_tests_and_records_say() -> None:
    command = [sys.executable, ROOT / "scripts" / "trust_tables.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
