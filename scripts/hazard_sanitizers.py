"""Runs a sample of the mutants of scripts/hazard_mutants.py on a GPU: alone, and under compute-sanitizer's four tools.

    python scripts/hazard_sanitizers.py                  into results/hazard-sanitizers.json; docs/hazards.md follows
    python scripts/hazard_sanitizers.py --out FILE       into a file that is written again after every mutant
    python scripts/hazard_sanitizers.py --page           write the recorded table into docs/hazards.md

Needs an NVIDIA GPU, nvcc and compute-sanitizer.  The sample has every kind of bug.  The five ways to run them share the
GPU, each in a process that is started again after a mutant that hangs.  Mutants for which the time does not suffice say
so.
"""

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
FINDING = re.compile(
    r"^(Error|Warning|Invalid|Uninitialized|Race|Barrier|Divergent|Program hit|Potential)|hazard"
)  # how a tool's line begins
SECONDS = 170.0  # for everything
COMPILE_SECONDS = 70.0  # of them
MUTANT_SECONDS = {ALONE: 8.0, **dict.fromkeys(TOOLS, 14.0)}  # a mutant that says nothing for so long hangs
IMAGES = 64
PRINTED = "2000"  # errors of a tool, over all mutants of a process
NONE = "no bug"
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
    """The mutants to run; raises StopIteration where the kernels have one of the sample no more."""
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


def run_some(folder: Path, backend: str, chosen: Sequence[int], runs: int) -> None:
    """Runs mutants one after the other, and says so before and after each."""
    executor = choose_executor(backend)
    asked = plans(folder)
    for number in chosen:
        cut = asked[number][1]
        print(f"mutant {number}", flush=True)
        rung, conv = cut.bound.rung, cut.bound.conv
        x, w = exact_inputs(conv, IMAGES, PRECISIONS[rung.precision], seed=1)
        expected = reference(conv, x, w)
        try:
            with open_rung(executor, cut, x, w, TRANSFERS["pageable"]) as opened:
                right = [np.array_equal(opened.outputs().astype(np.float32), expected) for _ in range(runs)]
            print("numbers", "right" if all(right) else "wrong", flush=True)
        except AlexconvError as error:
            print("numbers", error, flush=True)
            os._exit(1)  # the context is lost


class Way:
    """One way to run the mutants, alone or under a tool, and what came of each."""

    def __init__(self, tool: str, folder: Path, backend: str, deadline: float) -> None:
        self.tool, self._folder, self._backend, self._deadline = tool, folder, backend, deadline
        self.found: dict[int, str] = {}
        self.numbers: dict[int, str] = {}

    def run(self) -> None:
        """Runs all mutants; one that hangs or ends its process is left behind."""
        left = list(range(len(SAMPLE) + 1))
        while left and monotonic() < self._deadline:
            last = self._process(left)
            left = [number for number in left if number > last]

    def _process(self, chosen: Sequence[int]) -> int:
        """One process over these mutants; returns the last that it came to."""
        words = [] if self.tool == ALONE else ["compute-sanitizer", "--tool", self.tool, "--print-limit", PRINTED]
        runs = RUNS if self.tool == ALONE else 1
        words += [sys.executable, __file__, "--child", str(self._folder), "--backend", self._backend]
        words += ["--runs", str(runs), "--numbers", ",".join(map(str, chosen))]
        child = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(child, lines), daemon=True).start()
        now, said = chosen[0], [""]
        limit = MUTANT_SECONDS[self.tool] + 30.0  # the process starts
        try:
            while True:
                wait = min(limit, self._deadline - monotonic())
                try:
                    line = lines.get(timeout=max(wait, 0.1))
                except queue.Empty:
                    late = monotonic() >= self._deadline
                    self.found[now] = "no time left" if late else "hangs"
                    return now
                if line is None or line.startswith("mutant "):
                    if now in self.numbers:
                        self.found[now] = _first(said)
                    if line is None:
                        self.found.setdefault(now, _first(said) or f"the process ends with status {child.wait()}")
                        return now
                    now, said, limit = int(line.split()[1]), [], MUTANT_SECONDS[self.tool]
                elif line.startswith("numbers "):
                    self.numbers[now] = line.removeprefix("numbers ").strip()
                else:
                    said.append(line)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _read(child: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    assert child.stdout
    for line in child.stdout:
        lines.put(line)
    lines.put(None)


def _first(said: Sequence[str]) -> str:
    """The first finding of a tool, with the place that it names, without its rulers; empty if it has none."""
    lines = [re.sub(r"^=+\s*", "", line).strip() for line in said if line.startswith("=")]
    for number, line in enumerate(lines):
        if re.search(
            r"^(Error|Warning|Invalid|Uninitialized|Race|Barrier|Divergent|Program hit|Potential)|hazard", line
        ):
            places = (re.search(r"in (\w+\.cuh?:\d+)", each) for each in lines[number : number + 3])
            place = next((match[1] for match in places if match), "")
            return f"{line[:160]}{f' ({place})' if place and place not in line else ''}"
    return ""


def rows_of(ways: Sequence[Way], mutants: Sequence[planted.Mutant]) -> list[dict[str, str]]:
    """A row for each mutant: whether its numbers come out right alone, and what each tool says first."""
    rows = []
    for number, mutant in enumerate((None, *mutants)):
        row = {"mutant": mutant.name if mutant else NONE}
        for way in ways:
            said = way.found.get(number, "no time left")
            row[way.tool] = (way.numbers.get(number) or said) if way.tool == ALONE else said
        rows.append(row)
    return rows


def measure(out: Path, backend: str) -> None:
    """Runs the sample every way and writes the file again and again until all have ended."""
    start = monotonic()
    mutants = sample()
    with tempfile.TemporaryDirectory() as folder:
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
        ways = [Way(tool, Path(folder), backend, start + SECONDS) for tool in (ALONE, *TOOLS)]
        threads = [threading.Thread(target=way.run) for way in ways]
        for thread in threads:
            thread.start()
        running = True
        while running:
            for thread in threads:
                thread.join(0.5)
            running = any(thread.is_alive() for thread in threads)
            facts["wall_seconds"] = round(monotonic() - start, 1)
            text = json.dumps({**facts, "rows": rows_of(ways, mutants)}, indent=1)
            out.with_suffix(".new").write_text(text + "\n")
            out.with_suffix(".new").replace(out)


def with_table(page: str, record: dict[str, object], found: dict[str, str]) -> str:
    """The page with the recorded table between its marks; ``found`` are the reports of the check on a CPU."""
    rows = record["rows"]
    assert isinstance(rows, list)
    bugs = [row for row in rows if row["mutant"] != NONE]
    counts = {tool: sum(reported(row[tool]) for row in bugs) for tool in TOOLS}
    wrong = sum(row[ALONE] not in ("right", "no time left") for row in bugs)
    checked = sum(row["mutant"] in found for row in bugs)
    lines = [
        f"{len(bugs)} mutants with every kind of bug on {record['device']}, {record['images']} images,"
        f" {record['sanitizer']}: a plain run goes wrong or hangs for {wrong}; `alexconv check` finds {checked}; "
        + ", ".join(f"{tool} {count}" for tool, count in counts.items())
        + ".",
        "",
        f"| bug | at | {ALONE} | `alexconv check`, on a CPU | {' | '.join(TOOLS)} |",
        "|---" * (4 + len(TOOLS)) + "|",
    ]
    for row in rows:
        file, _, bug = row["mutant"].partition(": ")
        bug, _, statement = bug.partition(": ")
        said = [short(row[tool]) for tool in TOOLS]
        report = re.sub(r".*missing: (.*) \(\w+, block.*", r"\1", found.get(row["mutant"], "")) or "–"
        what = f"{bug}: `{statement}`" if statement else NONE
        cells = (what, file if statement else "", row[ALONE], report, *said)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(lines) + "\n" + END + after


def reported(said: str) -> bool:
    """Whether a tool has found something: it neither kept silent nor hung nor ran out of time."""
    return bool(said) and said not in ("hangs", "no time left") and not said.startswith("the process ends")


def short(said: str) -> str:
    """A tool's finding in a table's cell."""
    return said.replace("Error: ", "").replace("Warning: ", "")[:110] or "–"


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
    options.add_argument("--numbers", default="", help=argparse.SUPPRESS)
    options.add_argument("--runs", type=int, default=1, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.compile:
        compile_all(chosen.compile, chosen.backend)
    elif chosen.child:
        run_some(chosen.child, chosen.backend, [int(word) for word in chosen.numbers.split(",")], chosen.runs)
    elif chosen.page:
        write_page()
    else:
        measure(chosen.out, chosen.backend)
        if chosen.out == RECORDS:
            write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
