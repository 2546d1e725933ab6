"""Op times of submissions: ``python -m alexconv.grade.timing`` times one on a GPU, in a separate process.

No code of a submission runs on the CPU here: its machine code was compiled, and its launches recorded, in sandboxes.
So the references, the clocks and the check of the outputs are out of its reach; its kernels are audited on the device
like any rung's (docs/trust.md).
"""

import json
import os
import signal
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alexconv.compiling import nvcc
from alexconv.compiling.compiled import compiled
from alexconv.errors import MissingTool
from alexconv.executors import choose_executor
from alexconv.grade.grading import CUBIN_BYTES, Failed, Grader, Source, line_of, placed, sizes_of
from alexconv.grade.worker import rung_from
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import EXACT_IMAGES, Runner, Settings
from alexconv.paths import cache_dir
from alexconv.planning.points import Point, batches_of
from alexconv.records.statistics import summarize
from alexconv.shapes import WORKLOADS

SECONDS = 180.0  # for a submission, including the references that the first one computes
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Gpu:
    """Times submissions on a backend; ``arch`` is the target of machine code, None where the CPU runs kernels."""

    backend: str
    arch: str | None

    def time(self, grader: Grader, source: Source) -> float:
        """The op time in ms of all layers together; raises Failed."""
        assignment = grader.assignment
        layers = WORKLOADS[assignment.workload].layers
        launches = grader.ask(
            source, [*grader.probes(), *((conv, images) for conv in layers for images in image_counts(assignment.N))]
        )
        job: dict[str, Any] = {"file": source.file, "text": source.text, "told": launches}
        points = [[sizes_of(conv), assignment.N] for conv in layers]
        cubins: list[str] = []
        if self.arch:
            compile_job = {"kind": "cubins", "told": launches, "points": points, "arch": self.arch}
            compilation = grader.answered(compile_job, source, "fast", CUBIN_BYTES)
            if "cubins" not in compilation:
                raise Failed(placed(source.file, line_of(compilation.get("problem", "no machine code"))))
            cubins = compilation["cubins"]
        job |= {"workload": assignment.workload, "N": assignment.N, "seed": assignment.seed, "backend": self.backend}
        with _ONE_AT_A_TIME:
            answer = in_a_process(job | {"arch": self.arch, "cubins": cubins})
        if "ms" not in answer:
            raise Failed(line_of(answer.get("problem", "no op time")))
        return float(answer["ms"])


def image_counts(N: int) -> list[int]:
    """Numbers of images whose launches the planner and the checks ask for, if the batch fits in memory."""
    counts, low = [*range(1, EXACT_IMAGES + 1), N], 0
    while low < N:
        low = (low + N) // 2 + 1
        counts.append(low)
    return sorted(set(counts))


def gpu(backend: str) -> Gpu | None:
    """The timer of submissions; None without a GPU under ``auto``, and on the host.  Raises MissingTool."""
    try:
        executor = choose_executor("cuda" if backend == "auto" else backend)
    except MissingTool:
        if backend == "auto":
            return None
        raise
    return Gpu("cuda", getattr(executor, "arch", None)) if executor.measures else None


def in_a_process(job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a timing process; a broken GPU context ends with it."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "alexconv.grade.timing"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        try:
            output, _ = child.communicate(json.dumps(job).encode(), SECONDS)
        except subprocess.TimeoutExpired:
            return {"problem": f"no op time after {SECONDS:g} s: does a loop end?"}
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        return {"problem": f"its process ends with status {child.returncode}"}
    return answer


def place_cubin(rung: Rung, point: Point, content: bytes, arch: str) -> None:
    """Puts machine code that a sandbox compiled where the executor looks for it."""
    bound = point.bound(point.device)
    key = nvcc.cubin_key(rung.path, bound.macros, arch)

    def build(target: Path) -> None:
        target.write_bytes(content)

    compiled(cache_dir("cubin") / f"{rung.path.stem}-{key}.cubin", build)


def timed(job: dict[str, Any]) -> dict[str, Any]:
    """The op time of a job's submission, or why it has none."""
    rung = rung_from(job)
    workload, executor = WORKLOADS[job["workload"]], choose_executor(job["backend"])
    batches = batches_of(workload, range(1, len(workload.layers) + 1), [job["N"]])
    points = [Point.with_defaults(batch, rung, executor.device) for batch in batches]
    if job["arch"]:
        for point, text in zip(points, job["cubins"], strict=True):
            place_cubin(rung, point, b64decode(text), job["arch"])
    runner = Runner(executor, points, Settings(seed=job["seed"], baseline=False))
    total = 0.0
    for point in points:
        record = runner.record(point)
        if record["status"] != "ok":
            return {"problem": f"layer {point.layer}: {record['status']}: {record['reason']}"}
        if not record["samples"]:
            return {"problem": f"the {executor.name} executor has no times"}
        total += summarize(record["samples"]["kernel"]).median
    return {"ms": total}


def run_one() -> int:
    """Times the submission of the job on standard input; discards what its kernels print."""
    job = json.loads(sys.stdin.buffer.read())
    with os.fdopen(os.dup(1), "w") as answer, open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
        answer.write(json.dumps(timed(job)))
    return 0


if __name__ == "__main__":
    sys.exit(run_one())
