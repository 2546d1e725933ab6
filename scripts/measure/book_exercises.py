"""Types the commands of the book's chapters and records what they print.

python scripts/measure/book_exercises.py results/book/exercises.json.xz [CHAPTER ...]

Each chapter has a new folder with links to the checkout's kernels and examples.  Before its first `alexconv check` the
chapter's solution (reports/book/*.diff) is applied.  Nothing is cached, and no GPU is used.  Chapters that are not
named keep their recording.
"""

import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

from alexconv.compiling.nvcc import find_nvcc
from alexconv.compiling.toolchain import compiler_version, find_cxx
from alexconv.paths import CACHE_VARIABLE
from alexconv.predict.disassembly import find_nvdisasm
from alexconv.reports import book

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("kernels", "examples")  # that commands use
COLUMNS = 110  # of the terminal


def environment(folder: Path) -> dict[str, str]:
    """Variables with which `alexconv`, `python` and CUDA's tools are on the PATH, and no GPU is visible."""
    programs = folder / "bin"
    programs.mkdir()
    for name, words in {"alexconv": "-m alexconv", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    tools = [Path(find_nvcc()).parent, Path(find_nvdisasm()).parent]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, (programs, *tools)), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": str(COLUMNS),
        "CUDA_VISIBLE_DEVICES": "",
        CACHE_VARIABLE: str(folder / "cache"),  # so that times are those of a first run
    }


def recorded(chapter: book.Chapter) -> list[dict[str, Any]]:
    """A chapter's commands with their status, seconds and output."""
    answers = []
    solution = book.TEMPLATES / f"{chapter.name}.diff"
    with tempfile.TemporaryDirectory() as tools, tempfile.TemporaryDirectory() as name:
        folder, variables = Path(name), environment(Path(tools))
        for part in FOLDERS:
            (folder / part).symlink_to(ROOT / part)
        for command in book.commands(chapter.text):
            if command.startswith("alexconv check") and solution.is_file():
                subprocess.run(["patch", "-p0", "-i", solution], cwd=folder, check=True)
                solution = folder  # applied
            begun = monotonic()
            words, streams = ["bash", "-c", command], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            done = subprocess.run(words, cwd=folder, env=variables, text=True, check=False, **streams)
            facts = {"status": done.returncode, "seconds": round(monotonic() - begun, 1), "output": done.stdout}
            print(f"{chapter.name}: {command}: {facts['seconds']} s", flush=True)
            answers.append({"chapter": chapter.name, "command": command, **facts})
    return answers


def record(file: Path, names: list[str]) -> None:
    """Runs chapters and writes the recording."""
    book_chapters = book.chapters(ROOT / "results", with_answers=False)
    before = json.loads(lzma.decompress(file.read_bytes()))["commands"] if file.exists() else []
    answers = []
    for chapter in book_chapters:
        if names and chapter.name not in names:
            answers += [answer for answer in before if answer["chapter"] == chapter.name]
        else:
            answers += recorded(chapter)
    nvcc = subprocess.run([find_nvcc(), "--version"], capture_output=True, text=True, check=True)
    machine = {
        "cores": os.cpu_count(),
        "compiler": compiler_version(find_cxx()),
        "nvcc": nvcc.stdout.strip().splitlines()[-2],
    }
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(lzma.compress(json.dumps({**machine, "commands": answers}, indent=1).encode()))


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2:])
