"""Runs a sample of the mutants of scripts/hazard_mutants.py on a GPU, alone and under compute-sanitizer's four tools.

    python scripts/hazard_sanitizers.py OUT.json       needs an NVIDIA GPU, nvcc and compute-sanitizer

A row for each mutant: whether the numbers of a usual run come out right, and the first line of each tool's report.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hazard_mutants as planted
import numpy as np

from alexconv.cpu_reference.reference import reference
from alexconv.errors import AlexconvError
from alexconv.executors import choose_executor
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import FOLDER
from alexconv.planning.checks import PRECISIONS, exact_inputs
from alexconv.planning.planner import Plan, plan
from alexconv.planning.transfers import TRANSFERS

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SECONDS = 60  # of a tool on all mutants
IMAGES = 64
# Mutants that end: those whose waits never would are left out.
SAMPLE = (
    "igemm/pipeline.cuh: no barrier: __syncthreads(); #2",
    "igemm/pipeline.cuh: no wait: copy_async_wait_group<STAGES - 2>(); #2",
    "igemm/pipeline.cuh: wait for an older group: copy_async_wait_group<STAGES - 2>(); #2",
    "igemm/pipeline.cuh: no commit: copy_async_commit_group();",
    "igemm/pipeline.cuh: early refill: pipeline.issue(free_stage)",
    "mma/mma_tile.cuh: no wait: copy_async_wait_group<STAGES - 2>();",
    "mma/mma_tile.cuh: no barrier: __syncthreads();",
    "mma/mma_tile.cuh: no wait for launches: wait_for_primary_launches();",
    "wgmma/warpgroups.cuh: arrival before the wait: warpgroup_wait_group<1>()",
    "wgmma/warpgroups.cuh: no wait: warpgroup_wait_group<0>();",
    "wgmma/warpgroups.cuh: no fence: warpgroup_fence();",
    "wgmma/warpgroups.cuh: no proxy fence: mbarrier_init_fence();",
)


def plans(folder: Path) -> list[tuple[str, Plan]]:
    """Each mutant's name and plan; the sources lie in the folder, written once."""
    found = []
    everyone = list(planted.mutants())
    for number, start in enumerate(("none", *SAMPLE)):
        mutant = None if start == "none" else next(each for each in everyone if each.name.startswith(start))
        kernels = folder / str(number)
        if not kernels.is_dir():
            shutil.copytree(FOLDER, kernels, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
            if mutant:
                (kernels / mutant.file).write_text(mutant.text)
        name = planted.FILES[mutant.file][0] if mutant else "wgmma-half"
        conv, _, chosen = planted.CASES.get(name, planted.USUAL_CASE)[0]
        rung = replace(RUNGS[name], file=str(kernels / RUNGS[name].file))
        bound = BoundRung(rung, conv, rung.resolve(conv, chosen, IMAGES))
        found.append((mutant.name if mutant else "none", plan(bound, IMAGES, 1 << 34)))
    return found


def run_all(folder: Path) -> None:
    """Runs every mutant once, and says so before and after it."""
    executor = choose_executor("cuda")
    asked = plans(folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda each: executor.build(each[1].bound), asked))
    for name, cut in asked:
        print(f"mutant {name}", flush=True)
        rung, conv = cut.bound.rung, cut.bound.conv
        x, w = exact_inputs(conv, IMAGES, PRECISIONS[rung.precision], seed=1)
        try:
            with open_rung(executor, cut, x, w, TRANSFERS["pageable"]) as opened:
                y = opened.outputs().astype(np.float32)
            print("numbers", "right" if np.array_equal(y, reference(conv, x, w)) else "wrong", flush=True)
        except AlexconvError as error:
            print("numbers", error, flush=True)


def reports(text: str) -> dict[str, list[str]]:
    """What is printed while each mutant runs, without the tool's rulers."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("mutant "):
            found[line.removeprefix("mutant ")] = []
        elif found:
            found[list(found)[-1]].append(line)
    return found


def main() -> int:
    """Writes the rows."""
    if sys.argv[1] == "--child":
        run_all(Path(sys.argv[2]))
        return 0
    rows: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for tool in ("", *TOOLS):
            words = ["compute-sanitizer", "--tool", tool] if tool else []
            command = [*words, sys.executable, __file__, "--child", folder]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
                text = done.stdout
            except subprocess.TimeoutExpired as late:
                text = (late.stdout or b"").decode(errors="replace")
            for name, lines in reports(text).items():
                row = rows.setdefault(name, {})
                if tool:
                    said = [re.sub(r"^=+ *", "", line) for line in lines if line.startswith("=")]
                    row[tool] = next(
                        (line for line in said if "Error" in line or "hazard" in line or "Invalid" in line), ""
                    )
                else:
                    row["numbers"] = next((line for line in lines if line.startswith("numbers")), "numbers none")[8:]
            Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
