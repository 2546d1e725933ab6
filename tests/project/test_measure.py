"""The script that makes the record files: it says what it does not know, and what failed."""

import os
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from alexconv import run

SCRIPT = Path(__file__).resolve().parent.parent.parent / "results" / "measure.sh"


def measure(*arguments: str, stages: str, python: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STAGES": stages, "PYTHON": python}
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_without_a_name_it_prints_its_usage():
    done = measure(stages="", python="false")
    assert done.returncode != 0
    assert "usage: results/measure.sh NAME" in done.stderr


def test_an_unknown_stage_is_refused_before_anything_is_measured(tmp_path):
    done = measure("gpu", str(tmp_path), stages="ceilings nothing", python="false")
    assert done.returncode == 2
    assert done.stderr.startswith("there is no stage nothing: main_job ceilings study")
    assert "measured" not in done.stderr


@pytest.mark.parametrize(("python", "status"), [("true", 0), ("false", 1)])
def test_a_failure_shows_in_the_status_after_the_rest(tmp_path, python, status):
    done = measure("gpu", str(tmp_path), stages="ceilings study", python=python)
    assert done.returncode == status
    assert done.stderr.count("failed") == (3 if status else 0)


def recorder(folder):
    """A stand-in for Python that records its arguments and makes the record file that they name last."""
    script = folder / "python"
    makes = 'case "$last" in *.jsonl) echo 1 > "$last";; esac'
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\nfor last; do :; done\n{makes}\n')
    script.chmod(0o755)
    return str(script)


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def test_the_parts_make_every_stage_once_in_at_most_eight_files_each(tmp_path):
    calls_made = []
    parts = len(re.findall(r"^    \[part-\d+\]=", SCRIPT.read_text(), re.MULTILINE))
    for part in range(1, parts + 1):
        folder = tmp_path / f"part-{part}"
        folder.mkdir()
        done = measure("gpu", str(folder / "out"), stages=f"part-{part}", python=recorder(folder))
        assert done.returncode == 0, done.stderr
        files = {path.name for path in (folder / "out").rglob("*.jsonl")}
        assert 0 < len(files) <= 8, part
        calls_made += calls(folder)
    assert len(calls_made) == len(set(calls_made))
    for file in ("library/gpu-fp16", "gradients/gpu", "groups/gpu-groups", "patched/gpu", "training/gpu-resnet18"):
        assert list(tmp_path.glob(f"part-*/out/{file}.jsonl")), file
    everything = tmp_path / "all"
    everything.mkdir()
    assert measure("gpu", str(everything / "out"), stages="", python=recorder(everything)).returncode == 0
    assert len(calls(everything)) == len(calls_made)


def test_a_finished_file_is_not_measured_again(tmp_path):
    python = recorder(tmp_path)
    for _ in range(2):
        assert measure("gpu", str(tmp_path / "out"), stages="ceilings", python=python).returncode == 0
    assert len(calls(tmp_path)) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gpu-ceilings.jsonl"]


def test_a_file_whose_command_failed_or_was_killed_is_remade(tmp_path):
    python, broken = recorder(tmp_path), tmp_path / "broken"
    broken.write_text('#!/bin/sh\nfor last; do :; done\necho 1 > "$last"\nexit 1\n')
    broken.chmod(0o755)
    assert measure("gpu", str(tmp_path / "out"), stages="ceilings", python=str(broken)).returncode == 1
    assert measure("gpu", str(tmp_path / "out"), stages="ceilings", python=python).returncode == 0
    assert len(calls(tmp_path)) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gpu-ceilings.jsonl"]


def test_a_part_is_made_by_name_and_each_stage_says_what_it_took(tmp_path):
    done = measure("gpu", str(tmp_path / "out"), stages="part-7", python=recorder(tmp_path))
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in (tmp_path / "out" / "library").glob("*.jsonl"))
    assert files == ["gpu-calls.jsonl", "gpu-fp32.jsonl", "gpu-tf32.jsonl"]
    stages = re.findall(r"^(\w+): \d+ s$", done.stdout, re.MULTILINE)
    assert stages == ["library_calls", "library_fp32", "library_tf32", "dynamic"]


def test_the_short_form_makes_the_files_of_another_card_in_a_folder_of_its_own(tmp_path):
    done = measure("h100", str(tmp_path / "out"), stages="short", python=recorder(tmp_path))
    assert done.returncode == 0, done.stderr
    files = {path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.jsonl")}
    assert {file.parent for file in files} == {Path("h100")}
    assert len(files) <= 8
    assert {file.name for file in files} <= {
        path.name.removesuffix(".xz") for path in (SCRIPT.parent / "h100").iterdir()
    }


def points_of_run(folder):
    """The arguments of the calls of alexconv.run, without what only a GPU has."""
    with_value = {"--peers", "--sustained", "--transfer", "--out"}
    for call in calls(folder):
        python, module, *words = call.split()
        if (python, module) == ("-m", "alexconv.run") and not {"--together", "--mix"} & set(words):
            yield [word for before, word in pairwise(["", *words]) if not {before, word} & with_value]


@pytest.mark.parametrize("part", ["part-6", "part-13", "short", "bits"])
def test_the_points_of_a_part_can_be_planned(tmp_path, capsys, part):
    assert measure("gpu", str(tmp_path / "out"), stages=part, python=recorder(tmp_path)).returncode == 0
    for arguments in dict.fromkeys(map(tuple, points_of_run(tmp_path))):
        assert run.main([*arguments, "--dry-run", "--backend", "host"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("stages", "parts"), [("errors", "hard accuracy"), ("counted", "references counters lenet_counters")]
)
def test_stages_run_together_make_the_same_calls_as_apart(tmp_path, stages, parts):
    folders, calls_of = [tmp_path / name for name in ("together", "apart")], []
    for folder, names in zip(folders, (stages, parts), strict=True):
        folder.mkdir()
        assert measure("gpu", str(folder / "out"), stages=names, python=recorder(folder)).returncode == 0
        calls_of.append(sorted(call.replace(str(folder), "") for call in calls(folder)))
    assert calls_of[0] == calls_of[1]
    assert measure("gpu", str(tmp_path / "failing"), stages=stages, python="false").returncode == 1


def test_a_failed_background_job_fails_its_stage(tmp_path):
    failing = tmp_path / "failing"
    failing.write_text(
        '#!/bin/sh\ncase "$*" in *alexconv.reference*) exit 1;; esac\nfor last; do :; done\necho 1 > "$last"\n'
    )
    failing.chmod(0o755)
    done = measure("gpu", str(tmp_path / "out"), stages="counted", python=str(failing))
    assert (done.returncode, done.stderr.count("references of")) == (1, 4)
    assert len(list((tmp_path / "out").rglob("*.jsonl"))) == 7


def test_references_are_made_without_records(tmp_path):
    done = measure("gpu", str(tmp_path / "out"), stages="references", python=recorder(tmp_path))
    assert done.returncode == 0, done.stderr
    assert all(call.startswith("-m alexconv.reference --workload ") for call in calls(tmp_path))
    assert not list((tmp_path / "out").rglob("*.jsonl"))


def test_points_are_asked_for_again_and_resume(tmp_path):
    python = recorder(tmp_path)
    for _ in range(2):
        assert measure("gpu", str(tmp_path / "out"), stages="main_job", python=python).returncode == 0
    assert len(calls(tmp_path)) == 2
    assert all("--resume" in call for call in calls(tmp_path))
