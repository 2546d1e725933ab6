"""What a record says of the checkout that made it."""

import subprocess
from pathlib import Path

import pytest

from alexconv.records import environment


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit, from which the package seems to run."""
    monkeypatch.delenv(environment.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "alexconv" / "records" / "environment.py"))
    (tmp_path / "pyproject.toml").touch()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=one", "-c", "user.email=one@example.org", "commit", "--quiet", "--message=first")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_checkout_is_dirty_when_a_tracked_file_differs(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "notes").touch()
    assert environment.git_facts() == {"commit": commit, "dirty": False}
    (checkout / "pyproject.toml").write_text("changed")
    assert environment.git_facts() == {"commit": commit, "dirty": True}


def test_without_history_the_commit_comes_from_the_environment(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.COMMIT_VARIABLE, "a" * 40)
    assert environment.git_facts() == {"commit": "a" * 40, "dirty": False}


def test_outside_a_checkout_there_is_no_commit(checkout: Path) -> None:
    (checkout / "pyproject.toml").unlink()
    assert environment.git_facts() == {}


MIB = 1 << 20
GROUPS = {
    "none": ("", {}, 1000 * MIB),
    "version 2": (
        "0::/a/b\n",
        {
            "a/memory.max": f"{500 * MIB}\n",
            "a/memory.current": f"{450 * MIB}\n",
            "a/memory.stat": f"anon 1\ninactive_file {30 * MIB}\n",
            "a/b/memory.max": "max\n",
            "a/b/memory.current": "0\n",
            "a/b/memory.stat": "inactive_file 0\n",
        },
        80 * MIB,
    ),
    "version 1, in a container": (
        "4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n",
        {
            "memory/memory.limit_in_bytes": f"{500 * MIB}\n",
            "memory/memory.usage_in_bytes": f"{200 * MIB}\n",
            "memory/memory.stat": "total_inactive_file 0\n",
        },
        300 * MIB,
    ),
    "beyond the limit": (
        "0::/\n",
        {"memory.max": "1\n", "memory.current": "2\n", "memory.stat": "inactive_file 0\n"},
        0,
    ),
}


@pytest.mark.parametrize("groups", GROUPS)
def test_available_memory_is_what_control_groups_leave(
    groups: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, files, available = GROUPS[groups]
    proc = {"proc/meminfo": f"MemTotal: 1\nMemAvailable: {1000 * MIB >> 10} kB\n"}
    if own:
        proc["proc/self/cgroup"] = own
    for name, text in {**proc, **{f"cgroup/{name}": text for name, text in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(environment, "PROC", tmp_path / "proc")
    monkeypatch.setattr(environment, "CGROUPS", tmp_path / "cgroup")
    assert environment.available_memory() == available
