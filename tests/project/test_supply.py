"""What is installed is what was tested; archives are reproducible; nothing is downloaded at run time."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import advisories
import pytest
from dist import distribute
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from alexconv.compiling import toolchain

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKED = re.compile(r"^(\S+==[^\\\n]+?) ?\\?\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
PYTHONS = ("3.11.9", "3.12.4", "3.13.1", "3.14.2")  # as in the CI workflow


def locked(python: str) -> dict[str, str]:
    """Versions by name, as a Python on Linux installs them."""
    requirements = [Requirement(match[1]) for match in LOCKED.finditer((ROOT / ".ci" / "lock.txt").read_text())]
    about = {"python_full_version": python, "python_version": python.rpartition(".")[0], "sys_platform": "linux"}
    environment = default_environment() | about
    return {
        canonicalize_name(requirement.name): next(iter(requirement.specifier)).version
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_a_version_in_the_range_of_each_requirement(python: str) -> None:
    versions = locked(python)
    wanted = [Requirement(text) for text in (*PROJECT["dependencies"], *EXTRAS["test"])]
    assert len(wanted) > 15
    for requirement in wanted:
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


def test_every_line_of_the_lock_has_hashes() -> None:
    text = (ROOT / ".ci" / "lock.txt").read_text()
    assert len(LOCKED.findall(text)) == len(re.findall("^[a-z0-9]", text, re.MULTILINE)) > 40


def test_the_workflow_and_the_lock_have_the_same_python_versions() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (named,) = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r"[\d.]+", named) == [version.rpartition(".")[0] for version in PYTHONS]
    assert "LOCK=.ci/lock.txt" in (ROOT / ".ci" / "run").read_text()


def test_archives_are_the_same_bytes_whenever_and_wherever_they_are_built(tmp_path: Path) -> None:
    """Other times, another folder, another umask, and files left by an earlier build."""
    archives = []
    for number, umask in enumerate((0o022, 0o077)):
        copy = tmp_path / f"checkout{number}" / ("deeper" * number)
        ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "docs", "results", "study")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for file in copy.rglob("*"):
            os.utime(file, (10**9 * (number + 1),) * 2)
        before = os.umask(umask)
        try:
            archives.append(distribute(copy, tmp_path / f"dist{number}", 1700000000))
        finally:
            os.umask(before)
    assert [[archive.name for archive in pair] for pair in archives] == [[archive.name for archive in archives[0]]] * 2
    assert [archive.read_bytes() for archive in archives[0]] == [archive.read_bytes() for archive in archives[1]]
    with tarfile.open(archives[0][0]) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    assert {"pyproject.toml", "LICENSE", "README.md", "alexconv/kernels/single/direct.cu", "alexconv/py.typed"} <= names
    assert {member.mtime for member in members} == {1700000000}
    assert not any(name.startswith(("tests", "docs", "results")) for name in names)


NO_NETWORK = """
import os, sys
def refuse(event, arguments):
    if event.startswith(("socket.getaddrinfo", "socket.gethostby", "urllib.", "http.", "ftplib.", "smtplib.")) or (
        event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple)
    ):
        with open(os.environ["NETWORK_LOG"], "a") as log:
            log.write(f"{event} {arguments[1:]}\\\\n")
        raise OSError("no network here")
sys.addaudithook(refuse)
"""


def test_nothing_is_downloaded_at_run_time(tmp_path: Path, fresh_cache: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    log, out = tmp_path / "log", tmp_path / "records.jsonl"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "NETWORK_LOG": str(log),
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
        )

    quick = ["--workload", "lenet-70-k5", "--rungs", "direct", "--N", "1", "--backend", "host", "--out", str(out)]
    for command in (["run", *quick], ["compare", str(out), str(out)], ["report", str(out), "-o", str(tmp_path / "r")]):
        done = run("-m", "alexconv", *command)
        assert done.returncode == 0, done.stderr
    assert not log.exists(), log.read_text()
    assert run("-c", "import urllib.request; urllib.request.urlopen('http://localhost:9')").returncode
    assert log.exists()  # the hook does see a connection


def program(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


ANSWERS = {
    "none": (
        '{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}',
        0,
        "1 packages checked, 0 advisories",
        "",
    ),
    "some": (
        '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}]}',
        1,
        "a 1: X-1, fixed in 2",
        "",
    ),
    "skipped": (
        '{"dependencies": [{"name": "a", "skip_reason": "unknown"}]}',
        2,
        "",
        "Nothing was checked: a: unknown",
    ),
    "offline": ("", 2, "", "Nothing was checked: no such host"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_advisories_are_reported_and_no_answer_is_a_failure(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, status, out, err = ANSWERS[answer]
    audit = program(tmp_path / "audit", f"echo '{text}'\necho trace >&2; echo no such host >&2\n")
    monkeypatch.setattr(sys, "argv", ["advisories.py", "--pip-audit", str(audit)])
    assert advisories.main() == status
    printed = capsys.readouterr()
    assert out in printed.out
    assert err in printed.err


def test_without_pip_audit_nothing_is_reported_as_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["advisories.py", "--pip-audit", "/nowhere/pip-audit"])
    assert advisories.main() == 2
    assert "does not run" in capsys.readouterr().err


GPU_MACHINES = {
    "a driver alone": (False, "toolkit,gpu,test", True),
    "a driver and nvcc": (True, "gpu,test", False),
}


@pytest.mark.parametrize("machine", GPU_MACHINES)
def test_make_installs_the_toolkit_where_only_a_driver_is(machine: str, tmp_path: Path) -> None:
    nvcc, extras, builds = GPU_MACHINES[machine]
    for name in ("sh", "sed", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    program(tmp_path / "nvidia-smi", "exit 0\n")
    program(tmp_path / "python", "echo 3.12\n")
    if nvcc:
        program(tmp_path / "nvcc", "exit 0\n")
    make = [shutil.which("make") or "make", "-n", "-f", ROOT / "Makefile", "SYSTEM_TOOLKIT=/nowhere", "study"]
    settings = {"PATH": str(tmp_path), "MAKEFLAGS": ""}
    done = subprocess.run(
        [*make, "PYTHON=python", "VENV=absent"], cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )
    assert f"-e '.[{extras}]'" in done.stdout, done.stderr
    assert ("pycuda_for_wheels.py" in done.stdout) == builds
    assert "--N 128" in done.stdout


DRIVER = """extern "C" int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }"""


def set_up_with_driver(version: int, folder: Path) -> str:
    """What the set-up of PyCUDA says with a driver that only LD_LIBRARY_PATH leads to, as in some containers."""
    (folder / "driver.cpp").write_text(DRIVER)
    build = [toolchain.find_cxx(), "-shared", "-fPIC", f"-DVERSION={version}", folder / "driver.cpp"]
    subprocess.run([*build, "-o", folder / "libcuda.so.580.1"], check=True)
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": f"{ROOT / 'scripts' / 'release'}:{ROOT}"}
    steps = "import pycuda_for_wheels as p; p.NVCC_WHEEL = 'absent'; print(p.driver(), flush=True); p.main()"
    done = subprocess.run([sys.executable, "-c", steps], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stdout + done.stderr


def test_the_driver_is_where_the_linker_finds_it(tmp_path: Path) -> None:
    library = tmp_path.resolve() / "libcuda.so.580.1"
    assert set_up_with_driver(13000, tmp_path).startswith(f"{library}\nno toolkit in this environment")


def test_a_driver_too_old_for_the_wheels_is_reported(tmp_path: Path) -> None:
    assert "the driver runs CUDA 12.8 and the toolkit's wheels are of CUDA 13" in set_up_with_driver(12080, tmp_path)
