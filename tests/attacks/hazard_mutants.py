"""Plants synchronization bugs in the kernels, each of which the host executor's build for async hazards must find.

    python tests/attacks/hazard_mutants.py                    all, into results/hazard-mutants.json
    python tests/attacks/hazard_mutants.py --only resident    those whose name contains this; records nothing

Mutants come from the sources by patterns: every statement that synchronizes is left out, weakened or moved.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from alexconv.check.hazards import BUILD, Inputs, Schedule, watch_rung
from alexconv.errors import AlexconvError
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200
from alexconv.kernels.rung import FOLDER
from alexconv.machine import cores
from alexconv.paths import CACHE_VARIABLE
from alexconv.shapes import Conv

RECORDS = Path(__file__).resolve().parents[2] / "results" / "hazard-mutants.json"
SECONDS = 120  # a mutant that runs longer hangs

# The files to plant bugs in, and the rungs that show them.
FILES: dict[str, tuple[str, ...]] = {
    "igemm/igemm.cu": ("igemm",),
    "igemm/pipeline.cuh": ("igemm-async",),
    "igemm/igemm_stream_k.cu": ("igemm-stream-k",),
    "mma/mma_tile.cuh": ("mma-tf32", "mma-half"),
    "wgmma/warpgroups.cuh": ("wgmma-half", "wgmma-split", "wgmma-half-split-k"),
    "wgmma/study_epilogue.cuh": ("wgmma-split",),
    "wgmma/wgmma_split.cu": ("wgmma-split",),
    "wgmma/study_full_range.cuh": ("wgmma-split",),
    "wgmma/window.cuh": ("wgmma-window-half", "wgmma-window-scaled"),
    "wgmma/resident.cuh": ("wgmma-split-resident",),
    "wgmma/winograd_gemm.cuh": ("wgmma-winograd",),
    "wgmma/wgmma_winograd.cu": ("wgmma-winograd",),
}
FEW_CHANNELS = Conv(C=3, H=59, W=59, M=24, R=5, S=5, U=2)
USUAL = Conv(C=64, H=13, W=13, M=40, R=3, S=3)
# Shape, images and constants, such that stages are refilled and a block has several tiles.
CASES: dict[str, tuple[tuple[Conv, int, dict[str, int]], ...]] = {
    "igemm-stream-k": ((Conv(C=16, H=13, W=13, M=40, R=3, S=3), 7, {}),),
    "mma-tf32": ((USUAL, 2, {"CHANNELS": 16}), (Conv(C=64, H=13, W=13, M=40, R=1, S=1), 2, {"CHANNELS": 16})),
    "mma-half": ((USUAL, 2, {"CHANNELS": 16}), (USUAL, 1, {"CHANNELS": 32, "SPLITS": 2, "CLUSTER": 2})),
    "wgmma-half": ((USUAL, 12, {}),),
    "wgmma-half-split-k": ((USUAL, 12, {}),),
    "wgmma-window-half": ((FEW_CHANNELS, 3, {}),),
    "wgmma-window-scaled": ((FEW_CHANNELS, 3, {}),),
    "wgmma-split-resident": ((FEW_CHANNELS, 3, {}),),
}
USUAL_CASE = ((USUAL, 4, {}),)
MULTIPROCESSORS = 2  # so that a block has several tiles


@dataclass(frozen=True)
class Operator:
    """A kind of bug: statements that match become ``replacement``."""

    name: str
    pattern: str
    replacement: str


CALL = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"  # parentheses up to three deep
OPERATORS = (
    Operator("no barrier", r"(?:if \([^;{}]*\) )?__syncthreads\(\);", ";"),
    Operator("no barrier", rf"named_barrier{CALL};", ";"),
    Operator("no commit", r"copy_async_commit_group\(\);", ";"),
    Operator("half of the threads commit", r"(copy_async_commit_group\(\);)", r"if (threadIdx.x % 2) \1"),
    Operator("no wait", r"copy_async_wait_group<\w[^<>]*>\(\);", ";"),
    Operator("wait for an older group", r"copy_async_wait_group<(\w[^<>]*)>\(\);", r"copy_async_wait_group<\1 + 1>();"),
    Operator("one thread waits", r"(copy_async_wait_group<\w[^<>]*>\(\);)", r"if (threadIdx.x == 0) \1"),
    Operator("no wait", r"(?:if \([^;{}]*?\) )?mbarrier_wait" + CALL + ";", ";"),
    Operator("wrong parity", r"mbarrier_wait\((&[^;]*), ([^,;]+)\);", r"mbarrier_wait(\1, (\2) ^ 1);"),
    Operator("too few bytes", r"mbarrier_arrive_expect_tx\(([^;]*)\);", r"mbarrier_arrive_expect_tx(\1 - 16);"),
    Operator("too many bytes", r"mbarrier_arrive_expect_tx\(([^;]*)\);", r"mbarrier_arrive_expect_tx(\1 + 16);"),
    Operator("no proxy fence", r"mbarrier_init_fence\(\);", ";"),
    Operator("no arrival", r"(?:if \([^;{}]*?\) )?(?<!void )release" + CALL + ";", ";"),
    Operator(
        "arrival before the wait",
        r"(warpgroup_wait_group<\d>\(\);)\s*((?:if \([^;{}]*\) )?release" + CALL + ";)",
        r"\2 \1",
    ),
    Operator("no fence", r"warpgroup_fence\(\);", ";"),
    Operator("no commit", r"warpgroup_commit_group\(\);", ";"),
    Operator("no wait", r"warpgroup_wait_group<\d>\(\);", ";"),
    Operator("wait for an older group", r"warpgroup_wait_group<0>\(\);", "warpgroup_wait_group<1>();"),
    Operator("wait for an older group", r"warpgroup_wait_group<1>\(\);", "warpgroup_wait_group<2>();"),
    Operator("no wait for launches", r"wait_for_primary_launches\(\);", ";"),
)
# Bugs of one place.
SPECIAL: dict[str, tuple[Operator, ...]] = {
    "igemm/pipeline.cuh": (
        Operator("early refill", r"pipeline\.issue\(free_stage\)", "pipeline.issue(stage)"),
        Operator("early refill", r"pipeline\.issue\(free_stage\)", "pipeline.issue(next_stage)"),
        Operator(
            "barrier before the wait",
            r"(copy_async_wait_group<[^>]*>\(\);)\s*((?://[^\n]*\s*)*__syncthreads\(\);)",
            r"\2\n\1",
        ),
    ),
    "mma/mma_tile.cuh": (
        Operator(
            "early refill",
            r"issue\(stage == 0 \? STAGES - 1 : stage - 1\)",
            "issue(stage == STAGES - 1 ? 0 : stage + 1)",
        ),
        Operator(
            "early refill",
            r"\(k_tile \+ 1 - slice\.first_k_tile\) % BUFFERS",
            "(k_tile - slice.first_k_tile) % BUFFERS",
        ),
        Operator("wait for an older group", r"smaller\(STAGES - 1, STEPS / WARPS_ALONG\)", "STEPS / WARPS_ALONG + 2"),
    ),
    "wgmma/warpgroups.cuh": (
        Operator(
            "wait for another stage", r"mbarrier_wait\(&shared\.full\[state\.stage\]", "mbarrier_wait(&shared.full[0]"
        ),
        Operator(
            "arrival at another stage", r"release\(&shared\.empty\[previous\]\)", "release(&shared.empty[state.stage])"
        ),
        Operator(
            "early refill",
            r"shared\.stages\[state\.stage\];(?=\n#pragma unroll\n\s*for \(int term)",
            "shared.stages[(state.stage + 1) % STAGES];",
        ),
    ),
    "wgmma/wgmma_split.cu": (),
}
# Mutants that are not bugs, and why.
EQUIVALENT = {
    **{
        f"mma/mma_tile.cuh: {operator}: copy_async_wait_group<0>(); #2": "every copy has been waited for before it was"
        " read; at the end only empty groups are open"
        for operator in ("no wait", "wait for an older group", "one thread waits")
    },
    "wgmma/warpgroups.cuh: no wait for launches: wait_for_primary_launches(); #2": "pixels arrive after the producer"
    " has waited, and a consumer uses arrays after pixels",
}


@dataclass(frozen=True)
class Mutant:
    """A source with one bug."""

    file: str
    operator: str
    statement: str
    line: int
    number: int  # among those of the file with this operator and statement
    text: str

    @property
    def name(self) -> str:
        """Identifies it even when lines move."""
        return f"{self.file}: {self.operator}: {self.statement}" + (f" #{self.number}" if self.number > 1 else "")


def mutants() -> Iterator[Mutant]:
    """Every mutant of the kernels as they are."""
    for file in FILES:
        source = (FOLDER / file).read_text()
        counts: dict[tuple[str, str], int] = {}
        for operator in (*OPERATORS, *SPECIAL.get(file, ())):
            for match in re.finditer(operator.pattern, source):
                line_start = source.rfind("\n", 0, match.start()) + 1
                if "//" in source[line_start : match.start()]:
                    continue
                statement = " ".join(match[0].split())
                changed = source[: match.start()] + match.expand(operator.replacement) + source[match.end() :]
                number = counts[operator.name, statement] = counts.get((operator.name, statement), 0) + 1
                line = source.count("\n", 0, match.start()) + 1
                yield Mutant(file, operator.name, statement, line, number, changed)


def examine(mutant: Mutant | None, rungs: tuple[str, ...]) -> dict[str, str]:
    """The rung, the moment of asynchronous effects and the report that reveal a mutant; empty if none does."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / "kernels"
        shutil.copytree(FOLDER, kernels, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        if mutant:
            (kernels / mutant.file).write_text(mutant.text)
        for name in rungs:
            for case in CASES.get(name, USUAL_CASE):
                for moment in ("latest", "earliest"):
                    if report := watched(kernels, name, moment, *case):
                        return {"rung": name, "moment": moment, "report": report}
    return {}


def watched(kernels: Path, name: str, moment: str, conv: Conv, N: int, chosen: dict[str, int]) -> str:
    """The first report on a rung of these sources, in words; empty if there is none."""
    device = replace(H200, multiprocessors=MULTIPROCESSORS)
    rung = replace(RUNGS[name], file=str(kernels / RUNGS[name].file))
    bound = BoundRung(rung, conv, rung.resolve(conv, chosen, N, device), device)
    values = np.random.default_rng(0)
    x = values.integers(-2, 3, rung.x_shape(conv, N)).astype(rung.dtype)
    w = values.integers(-2, 3, conv.w_shape()).astype(rung.dtype)
    try:
        watch = watch_rung(HostRuntime(build=BUILD), bound, Inputs(x, w), Schedule(moment, seed=1))
    except AlexconvError as error:
        return str(error)
    return str(watch.hazards[0]) if watch.hazards else watch.failure or ""


def in_a_process(number: int) -> dict[str, str]:
    """What ``examine`` says of a mutant, in a process that may crash."""
    words = [sys.executable, __file__, "--one", str(number)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode > 0:
        raise SystemExit(done.stderr)
    if done.returncode < 0:  # a crash names no line
        return {}
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> int:
    """Parses the command line and plants; the exit status is 1 if a bug is not found."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="")
    options.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options.add_argument("--workers", type=int, default=cores())
    chosen = options.parse_args()
    everyone = list(mutants())
    if chosen.one is not None:
        mutant = everyone[chosen.one]
        print(json.dumps(examine(mutant, FILES[mutant.file])))
        return 0
    numbers = [number for number, mutant in enumerate(everyone) if chosen.only in mutant.name]
    rows = []
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(chosen.workers) as pool:
        os.environ[CACHE_VARIABLE] = cache
        for number, outcome in zip(numbers, pool.map(in_a_process, numbers), strict=True):
            mutant = everyone[number]
            row = {**asdict(replace(mutant, text="")), "name": mutant.name, **outcome}
            del row["text"]
            if reason := EQUIVALENT.get(mutant.name):
                row["equivalent"] = reason
            rows.append(row)
            print(
                f"{mutant.file}:{mutant.line} {mutant.operator}: {mutant.statement[:60]}",
                "->",
                outcome.get("report", "NOT FOUND")[:230],
                flush=True,
            )
    missed = [row for row in rows if "report" not in row and "equivalent" not in row]
    print(f"{len(rows)} mutants, {sum('report' in row for row in rows)} found, {len(missed)} missed")
    if not chosen.only:
        RECORDS.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
