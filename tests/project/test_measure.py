"""The script that makes the record files: it says what it does not know, and what failed."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "results" / "measure.sh"


def measure(*arguments: str, stages: str, python: str, variable: str = "STAGES") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, variable: stages, "PYTHON": python}
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_without_a_name_it_says_how_it_is_used():
    done = measure(stages="", python="false")
    assert done.returncode != 0
    assert "usage: results/measure.sh NAME" in done.stderr


def test_an_unknown_stage_is_refused_before_anything_is_measured(tmp_path):
    done = measure("gpu", str(tmp_path), stages="ceilings nothing", python="false")
    assert done.returncode == 2
    assert done.stderr.startswith("there is no stage nothing: ceilings study")
    assert "measured" not in done.stderr


@pytest.mark.parametrize("variable", ["STAGES", "PARTS"])
@pytest.mark.parametrize(("python", "status"), [("true", 0), ("false", 1)])
def test_a_failure_shows_in_the_status_after_the_rest(tmp_path, python, status, variable):
    done = measure("gpu", str(tmp_path), stages="ceilings study", python=python, variable=variable)
    assert done.returncode == status
    assert done.stderr.count("failed") == (3 if status else 0)
