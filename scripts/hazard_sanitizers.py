"""Runs a sample of the mutants of scripts/hazard_mutants.py on a GPU: alone, and under compute-sanitizer's four tools.

    python scripts/hazard_sanitizers.py                  into results/hazard-sanitizers.json; docs/hazards.md follows
    python scripts/hazard_sanitizers.py --out FILE       into a file that is rewritten after every mutant
    python scripts/hazard_sanitizers.py --page           write the recorded table into docs/hazards.md

Needs an NVIDIA GPU, nvcc and compute-sanitizer.  The sample has every kind of bug.  The five ways to run them share the
GPU, each mutant in a process of its own.  Mutants for which no time is left say so.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

import hazard_mutants as planted
import numpy as np

from alexconv.cpu_reference.reference import reference
from alexconv.errors import AlexconvError
from alexconv.executors import choose_executor
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import FOLDER
from alexconv.paths import CACHE_VARIABLE
from alexconv.planning.checks import PRECISIONS, exact_inputs
from alexconv.planning.planner import Plan, plan
from alexconv.planning.transfers import TRANSFERS

RECORDS = planted.CHECKOUT / "results" / "hazard-sanitizers.json"
ALONE = "alone"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
WAYS = (ALONE, *TOOLS)
FINDING = re.compile(
    r"(?!.*(SUMMARY|Maximum number))(.*hazard|Error|Warning|Invalid|Uninitialized|Race|Barrier|Divergent|Program hit)"
)  # a tool's line that says what is wrong
SECONDS = 170.0  # for everything
COMPILE_SECONDS = 70.0  # of them
MUTANT_SECONDS = {ALONE: 15.0, **dict.fromkeys(TOOLS, 30.0)}  # a process that takes longer hangs
LEAST_SECONDS = 5.0
AT_A_TIME = 10  # processes on one GPU
OUTPUT_BYTES = 1 << 24
IMAGES = 64
PRINTED = "1000"  # errors of a tool
NONE, NO_TIME = "no bug", "no time left"
RUNS = 3  # of a mutant alone, in which its numbers may come out wrong
# Every kind of bug; those whose waits may never end come last.
SAMPLE = (
    "igemm/igemm.cu: no barrier: __syncthreads();",
    "igemm/pipeline.cuh: no barrier: __syncthreads(); #2",
    "igemm/pipeline.cuh: no commit: copy_async_commit_group();",
    "igemm/pipeline.cuh: half of the threads commit: copy_async_commit_group();",
    "igemm/pipeline.cuh: no wait: copy_async_wait_group<STAGES - 2>(); #2",
    "igemm/pipeline.cuh: wait for an older group: copy_async_wait_group<STAGES - 2>(); #2",
    "igemm/pipeline.cuh: one thread waits: copy_async_wait_group<STAGES - 2>(); #2",
    "igemm/pipeline.cuh: early refill: pipeline.issue(free_stage)",
    "igemm/pipeline.cuh: barrier before the wait: copy_async_wait_group<STAGES - 2>(); __syncthreads();",
    "mma/mma_tile.cuh: no barrier: __syncthreads();",
    "mma/mma_tile.cuh: no wait: copy_async_wait_group<STAGES - 2>();",
    "mma/mma_tile.cuh: no wait for launches: wait_for_primary_launches();",
    "wgmma/warpgroups.cuh: no barrier: __syncthreads();",
    "wgmma/warpgroups.cuh: arrival before the wait: warpgroup_wait_group<1>(); if (!first)",
    "wgmma/warpgroups.cuh: no fence: warpgroup_fence();",
    "wgmma/warpgroups.cuh: no commit: warpgroup_commit_group();",
    "wgmma/warpgroups.cuh: no wait: warpgroup_wait_group<0>();",
    "wgmma/warpgroups.cuh: wait for an older group: warpgroup_wait_group<0>();",
    "wgmma/warpgroups.cuh: no wait: mbarrier_wait(&shared.full[state.stage], state.parity);",
    "wgmma/warpgroups.cuh: no proxy fence: mbarrier_init_fence();",
    "wgmma/warpgroups.cuh: wait for another stage: mbarrier_wait(&shared.full[state.stage]",
    "wgmma/warpgroups.cuh: wrong parity: mbarrier_wait(&shared.full[state.stage], state.parity);",
    "wgmma/warpgroups.cuh: arrival at another stage: release(&shared.empty[previous])",
    "wgmma/warpgroups.cuh: no arrival: if (!first) release(&shared.empty[previous]);",
    "wgmma/warpgroups.cuh: too few bytes: mbarrier_arrive_expect_tx(full, sizeof(Stage<terms>));",
    "wgmma/warpgroups.cuh: too many bytes: mbarrier_arrive_expect_tx(full, sizeof(Stage<terms>));",
)
BEGIN, END = "<!-- sanitizers: begin -->\n", "<!-- sanitizers: end -->\n"


def sample() -> list[planted.Mutant]:
    """The mutants to run; raises StopIteration if the kernels no longer have one of the sample."""
    everyone = list(planted.mutants())
    return [next(each for each in everyone if each.name.startswith(start)) for start in SAMPLE]


def plans(folder: Path) -> list[tuple[str, Plan]]:
    """Each mutant's name and plan, after the kernels without a bug; the sources lie in the folder, written once."""
    found = []
    for number, mutant in enumerate((None, *sample())):
        kernels = folder / str(number)
        if not kernels.is_dir():
            shutil.copytree(FOLDER, kernels, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
            if mutant:
                (kernels / mutant.file).write_text(mutant.text)
        name = planted.FILES[mutant.file][0] if mutant else "wgmma-half"
        conv, _, chosen = planted.CASES.get(name, planted.USUAL_CASE)[0]
        rung = replace(RUNGS[name], file=str(kernels / RUNGS[name].file))
        bound = BoundRung(rung, conv, rung.resolve(conv, chosen, IMAGES))
        found.append((mutant.name if mutant else NONE, plan(bound, IMAGES, 1 << 34)))
    return found


def compile_all(folder: Path, backend: str) -> None:
    """Compiles every mutant into the cache."""
    executor = choose_executor(backend)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda each: executor.build(each[1].bound), plans(folder)))


def run_one(folder: Path, backend: str, number: int, runs: int) -> None:
    """Runs a mutant and says whether its numbers are right."""
    executor = choose_executor(backend)
    cut = plans(folder)[number][1]
    rung, conv = cut.bound.rung, cut.bound.conv
    x, w = exact_inputs(conv, IMAGES, PRECISIONS[rung.precision], seed=1)
    expected = reference(conv, x, w)
    print("begin", flush=True)
    try:
        with open_rung(executor, cut, x, w, TRANSFERS["pageable"]) as opened:
            right = [np.array_equal(opened.outputs().astype(np.float32), expected) for _ in range(runs)]
        print("numbers", "right" if all(right) else "wrong", flush=True)
    except AlexconvError as error:
        print("numbers", error, flush=True)
        os._exit(1)  # the context is lost


def ran(tool: str, number: int, folder: Path, backend: str, deadline: float) -> str:
    """The result of running a mutant one way, in its own process: its numbers, or the tool's first finding."""
    words = [] if tool == ALONE else ["compute-sanitizer", "--tool", tool, "--print-limit", PRINTED]
    if tool == "memcheck":
        words += ["--report-api-errors", "no"]
    words += [sys.executable, __file__, "--child", str(folder), "--backend", backend, "--number", str(number)]
    words += ["--runs", str(RUNS if tool == ALONE else 1)]
    limit = min(MUTANT_SECONDS[tool], deadline - monotonic())
    if limit < LEAST_SECONDS:
        return NO_TIME
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        said = output.read(OUTPUT_BYTES).decode(errors="replace").splitlines()
    found = next((line for line in said if line.startswith("numbers ")), "").removeprefix("numbers ")
    if tool != ALONE:
        found = _first(said)
    if found or (tool != ALONE and status is not None and "begin" in said):
        return found
    if status is None:
        return "hangs" if "begin" in said else NO_TIME
    return f"the process ends with status {status}"


def _first(said: Sequence[str]) -> str:
    """The first finding of a tool, with the place that it names, without its rulers; empty if it has none."""
    lines = [re.sub(r"^=+\s*", "", line).strip() for line in said if line.startswith("=")]
    for number, line in enumerate(lines):
        if FINDING.match(line):
            places = (re.search(r"in (\w+\.cuh?:\d+)", each) for each in lines[number : number + 3])
            place = next((match[1] for match in places if match), "")
            return f"{line[:160]}{f' ({place})' if place and place not in line else ''}"
    return ""


def rows_of(found: Mapping[tuple[str, int], str], mutants: Sequence[planted.Mutant]) -> list[dict[str, str]]:
    """A row for each mutant: whether its numbers come out right alone, and what each tool says first."""
    return [
        {"mutant": mutant.name if mutant else NONE, **{way: found.get((way, number), NO_TIME) for way in WAYS}}
        for number, mutant in enumerate((None, *mutants))
    ]


def measure(out: Path, backend: str) -> None:
    """Runs the sample every way and rewrites the file until all have ended."""
    start = monotonic()
    mutants, found = sample(), {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_A_TIME) as pool:
        os.environ.setdefault(CACHE_VARIABLE, str(Path(folder) / "cache"))
        executor = choose_executor(backend)
        sanitizer = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=True)
        facts = {
            "device": executor.describe(),
            "sanitizer": sanitizer.stdout.strip().splitlines()[-1],
            "commit": os.environ.get("ALEXCONV_COMMIT", ""),
            "command": "python scripts/hazard_sanitizers.py",
            "images": IMAGES,
            "seconds": SECONDS,
        }
        words = [sys.executable, __file__, "--compile", folder, "--backend", backend]
        subprocess.run(words, timeout=COMPILE_SECONDS, check=True)
        facts["compiled_after"] = round(monotonic() - start, 1)
        asked = [(way, number) for number in range(len(mutants) + 1) for way in WAYS]
        running = {
            pool.submit(ran, way, number, Path(folder), backend, start + SECONDS): (way, number)
            for way, number in asked
        }
        for done in as_completed(running):
            found[running[done]] = done.result()
            facts["wall_seconds"] = round(monotonic() - start, 1)
            text = json.dumps({**facts, "rows": rows_of(found, mutants)}, indent=1)
            out.with_suffix(".new").write_text(text + "\n")
            out.with_suffix(".new").replace(out)


def with_table(page: str, record: dict[str, object], found: dict[str, str]) -> str:
    """The page with the recorded table between its markers; ``found`` are the reports of the check on a CPU."""
    rows = record["rows"]
    assert isinstance(rows, list)
    bugs = [row for row in rows if row["mutant"] != NONE]
    base = next(row for row in rows if row["mutant"] == NONE)  # what a tool says of it is no finding
    counts = {tool: sum(reported(row[tool], base[tool]) for row in bugs) for tool in TOOLS}
    unseen = sum(row[ALONE] == "right" for row in bugs)
    checked = sum(row["mutant"] in found for row in bugs)
    lines = [
        f"{len(bugs)} mutants with every kind of bug on {record['device']}, {record['images']} images,"
        f" {record['sanitizer']}: a plain run comes out right for {unseen}; `alexconv check` finds {checked}; "
        + ", ".join(f"{tool} {count}" for tool, count in counts.items())
        + ".",
        "",
        f"| bug | at | {ALONE} | `alexconv check`, on a CPU | {' | '.join(TOOLS)} |",
        "|---" * (4 + len(TOOLS)) + "|",
    ]
    for row in rows:
        file, _, bug = row["mutant"].partition(": ")
        bug, _, statement = bug.partition(": ")
        said = ["–" if row[tool] == base[tool] else short(row[tool]) for tool in TOOLS]
        report = re.sub(r".*missing: (.*) \(\w+, block.*", r"\1", found.get(row["mutant"], "")) or "–"
        what = f"{bug}: `{statement}`" if statement else NONE
        cells = (what, file if statement else "", row[ALONE], report, *said)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(lines) + "\n" + END + after


def reported(said: str, base: str) -> bool:
    """Whether a tool has found something: more than without a bug, and not that it hung or ran out of time."""
    return said not in ("", base, "hangs", NO_TIME) and not said.startswith("the process ends")


def short(said: str) -> str:
    """A tool's finding in a table's cell."""
    return re.sub(r" (?:at|by|in) 0x\w+| \(hazard .*", "", re.sub(r"^(Error|Warning): ", "", said))[:110] or "–"


def write_page() -> None:
    """Writes the recorded table into the page."""
    checked = {row["name"]: row["report"] for row in json.loads(planted.RECORDS.read_text()) if "report" in row}
    page = with_table(planted.PAGE.read_text(), json.loads(RECORDS.read_text()), checked)
    planted.PAGE.write_text(page)


def main() -> int:
    """Parses the command line; measures, or writes the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=RECORDS)
    options.add_argument("--page", action="store_true")
    options.add_argument("--backend", default="cuda", help=argparse.SUPPRESS)
    options.add_argument("--compile", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    options.add_argument("--runs", type=int, default=1, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.compile:
        compile_all(chosen.compile, chosen.backend)
    elif chosen.child:
        run_one(chosen.child, chosen.backend, chosen.number, chosen.runs)
    elif chosen.page:
        write_page()
    else:
        measure(chosen.out, chosen.backend)
        if chosen.out == RECORDS:
            write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
