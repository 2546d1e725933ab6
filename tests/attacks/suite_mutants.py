"""Whether the suite notices recorded mutants, and which of its tests does first.

python tests/attacks/suite_mutants.py results/trust/suite-mutants.jsonl [--count 24] [--seed 7]

The mutants are a sample of those that mutants.py has noticed by more than the compiler, one of a rung.  Each is planted
in a copy of the checkout, in which the suite's tests of that rung run, then those of asynchronous hazards and of the
edges of ranges, of all rungs that have any: several share a header.  A line of FILE per mutant; ``test`` is the first
that fails, null if none does.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mutants import placed

CHECKOUT = Path(__file__).resolve().parents[2]
RECORDS = CHECKOUT / "results" / "trust" / "mutants.jsonl"
LEFT_OUT = (".*", "build", "site", "__pycache__", "*.egg-info")
RUNGS = tuple(f"tests/kernels/test_{name}.py" for name in ("rungs", "hard_data", "guarantees", "ranges"))
HAZARDS = ("tests/kernels/test_arrivals.py", "tests/check/test_hazards.py")
EDGES = ("tests/kernels/test_mutants.py",)
SECONDS = "300"  # for a test: an endless kernel is noticed too
FAILED = re.compile(r"^FAILED (\S+?(?:\[.*?\])?)(?: - |$)", re.M)


def sample(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """The mutants, each of another rung, with the line numbers of today's sources."""
    lines = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    lines = [line for line in lines if line["noticed"] and not {"compiler", "crash"} & {*line["noticed"]}]
    random.Random(seed).shuffle(lines)
    rungs: set[str] = set()
    for mutant in filter(None, map(placed, lines)):
        if mutant["rung"] not in rungs and mutant["code"].count(mutant["before"]) == 1:
            rungs.add(mutant["rung"])
            yield mutant
            if len(rungs) == count:
                return


def first_failure(tree: Path, rung: str) -> str | None:
    """The first test of a tree that fails; raises RuntimeError if tests do not run."""
    of_rung = f"[{rung}-", f"[{rung}]"
    for files, parts in ((RUNGS, of_rung), (HAZARDS, ("no_async_rung", "arrival")), (EDGES, ("at_the_edge",))):
        listed = ran(tree, "--collect-only", *files)
        tests = [name for name in listed.stdout.splitlines() if any(part in name for part in parts)]
        if not tests:
            raise RuntimeError(listed.stdout)
        done = ran(tree, "-x", "--timeout", SECONDS, *tests)
        if done.returncode > 1:
            raise RuntimeError(done.stdout + done.stderr)
        if done.returncode:
            return FAILED.findall(done.stdout)[0]
    return None


def ran(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The suite's tests that need no GPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    """Writes a line per mutant; the status is 1 if one goes unnoticed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--count", type=int, default=24)
    options.add_argument("--seed", type=int, default=7)
    chosen = options.parse_args()
    lines = []
    with TemporaryDirectory() as folder:
        tree = Path(
            shutil.copytree(CHECKOUT, Path(folder) / "tree", ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        )
        for mutant in sample(chosen.count, chosen.seed):
            file = tree / "kernels" / mutant["file"]
            source = file.read_text().splitlines(keepends=True)
            changed = [*source]
            changed[mutant["line"] - 1] = source[mutant["line"] - 1].replace(mutant["before"], mutant["after"])
            file.write_text("".join(changed))
            facts = {name: mutant[name] for name in ("rung", "file", "line", "before", "after", "code")}
            lines.append({**facts, "test": first_failure(tree, mutant["rung"])})
            file.write_text("".join(source))
            print(lines[-1]["rung"], lines[-1]["test"], flush=True)
            chosen.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return int(any(line["test"] is None for line in lines))


if __name__ == "__main__":
    sys.exit(main())
