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
