"""The notebook of the first hour runs from end to end, and is committed with the outputs of such a run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK, PROGRAM = ROOT / "examples" / "first_hour.ipynb", ROOT / "scripts" / "measure" / "notebook.py"
MISSING = [name for name in ("nbclient", "ipykernel") if importlib.util.find_spec(name) is None]


def has_terminals() -> bool:
    """Whether this system gives pseudo-terminals, in which the notebook's shell commands run."""
    try:
        for descriptor in os.openpty():
            os.close(descriptor)
    except OSError:
        return False
    return True


def cells_of(path: Path) -> list[dict]:
    """The cells with code."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def printed(cells: list[dict]) -> str:
    """What they printed."""
    return "".join("".join(output.get("text", ())) for cell in cells for output in cell["outputs"])


def assert_whole(cells: list[dict]) -> None:
    """All cells ran in order; a kernel was verified, its race found, and a figure drawn."""
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    text = printed(cells)
    assert "races      ok" in text
    assert "races      1 found" in text
    assert "my_tile: shared store at my_tile.cu" in text
    assert "my-tile               ok" in text
    figures = [output["data"] for cell in cells for output in cell["outputs"] if "data" in output]
    assert ["image/png" in figure for figure in figures] == [True]


@pytest.mark.long
@pytest.mark.skipif(not has_terminals(), reason="no pseudo-terminals for the notebook's commands: mount /dev/pts")
@pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} are missing: pip install 'alexconv[test]'")
def test_it_runs_from_end_to_end(tmp_path):
    parameters = ['LAYERS="3"', "N=1", "RUNGS=2", f"OUT={str(tmp_path / 'out')!r}"]
    quiet = {"JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, str(PROGRAM), "--out", str(tmp_path / "run.ipynb"), *parameters]
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = cells_of(tmp_path / "run.ipynb")
    assert_whole(cells)
    assert "2 points: 2 ok" in printed(cells)
    assert [cell["source"] for cell in cells] == [cell["source"] for cell in cells_of(NOTEBOOK)]
    done = subprocess.run([*command, "SIZE=1"], env=os.environ | quiet, capture_output=True, text=True, check=False)
    assert "the notebook has no parameter SIZE: LAYERS, N, OUT, REPOSITORY, RUNGS" in done.stderr


def test_its_outputs_are_those_of_a_run_and_name_no_machines_folders():
    cells = cells_of(NOTEBOOK)
    assert_whole(cells)
    text = printed(cells)
    assert "50 points: " in text, "ten rungs on five layers"
    assert [place for place in ("/home", "/root", "/work", "/tmp", "/usr", "\x1b") if place in text] == []
