"""Records what a terminal shows when `alexconv check` finds a race in a kernel whose outputs are right, without a GPU.

python scripts/measure/record_race.py results/host/race.cast

The file is an asciicast (version 2): a line of JSON for each text, with its second.  The race is that of the book's
chapter 6, planted in a copy of the checkout: igemm-async waits for one group of copies too few.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ("alexconv", "kernels", "cpu_reference", "reports")
PIPELINE, WAIT = "kernels/igemm/pipeline.cuh", "copy_async_wait_group<STAGES - 2>"
WIDTH, HEIGHT = 64, 20  # columns and lines


def commands() -> Sequence[str]:
    """The main loop's wait, the race, and the check."""
    line = max(number for number, text in enumerate((ROOT / PIPELINE).read_text().splitlines(), 1) if WAIT in text)
    return (
        f"sed -n {line}p {PIPELINE}",
        f"sed -i '{line}s/- 2/- 1/' {PIPELINE}",
        "alexconv check igemm-async --kinds correct,async",
    )


def shown(command: str, folder: Path) -> Iterator[str]:
    """A command after its prompt, then its output, line by line."""
    yield f"$ {command}\n"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1"}
    words, streams = ["bash", "-c", command], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, cwd=folder, env=environment, text=True, **streams) as child:
        assert child.stdout
        yield from child.stdout


def record(file: Path) -> None:
    """Runs the commands in a copy of the checkout and writes the recording."""
    events: list[tuple[float, str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in PACKAGE:
            shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        begun = monotonic()
        for command in commands():
            events += ((round(monotonic() - begun, 2), "o", text) for text in shown(command, folder))
    header = {"version": 2, "width": WIDTH, "height": HEIGHT}
    lines = [header, *((second, kind, text.replace("\n", "\r\n")) for second, kind, text in events)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
