"""What runs in the sandbox: ``python -m alexconv.grade.worker`` reads a job as JSON and answers on standard output.

A job has a ``kind``, the submission's ``file`` name and ``text``, and ``told``, what its launch code has printed:

* ``screen`` answers with the file's text after the preprocessor, or with what a submission may not use: no code of it
  runs;
* ``tell`` answers with what the launch code prints for each of ``asked``, shapes with numbers of images;
* ``outputs`` answers, for each of ``runs``, with a line of JSON and, where there is no problem, the outputs as bytes:
  they are compared outside; a problem is an exception's name;
* ``addresses``, ``races`` and ``async`` answer with the problems that alexconv.check finds, a line each;
* ``cubins`` answers with the machine code for each of ``points`` for a GPU.

The submission's code runs in this process and in its children: none of their answers is trusted without a check, and
nothing secret is here.
"""

import json
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np

from alexconv.check.kinds import KINDS, all_of
from alexconv.compiling import nvcc
from alexconv.errors import AlexconvError, UsageError
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.executors.interface import open_rung
from alexconv.grade.data import inputs
from alexconv.grade.screen import MOST_PROBLEMS, preprocessed, reference_problems, token_problems
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.own.wrapping import Recording, as_written, launch_code, rung_of, tell, understood
from alexconv.paths import cache_dir
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import Conv

Job = dict[str, Any]
BUDGET = 1 << 30  # bytes of a kernel's arrays


def recorded_launches(table: Sequence[Sequence[Any]], file: Path) -> Callable[[Conv, int], Recording]:
    """A submission's launches, from a table of shape, images and the lines that it printed."""
    lines = {(Conv(**sizes), images): lines for sizes, images, lines in table}

    @cache
    def launches(conv: Conv, images: int) -> Recording:
        if (conv, images) not in lines:
            raise UsageError(f"{file}: no launches were recorded for {images} images: does the batch fit in memory?")
        return understood(lines[conv, images], conv, file)

    return launches


def rung_from(job: Job) -> Rung:
    """The submission as a rung."""
    file = Path(job["file"])
    return rung_of(job["text"], file, recorded_launches(job["told"], file))


def screens(job: Job, answer: BinaryIO) -> None:
    """Answers ``screen``: the text to compile, with problems, or why it does not compile."""
    file = Path(job["file"])
    try:
        with TemporaryDirectory() as folder:
            unit = preprocessed(job["text"], file.name, Path(folder))
            problems = [*unit.problems, *islice(token_problems(unit.text, file.name), MOST_PROBLEMS)]
            if not problems:
                launch_code(unit.text, file)
                target = Path(folder) / "object.o"
                HostRuntime().object_file(as_written(unit.text, file), target)
                problems = list(islice(reference_problems(target, unit.text, file.name), MOST_PROBLEMS))
        answer.write(json.dumps({"text": unit.text, "problems": problems}).encode())
    except AlexconvError as error:
        answer.write(json.dumps({"problem": str(error)}).encode())


def tells(job: Job, answer: BinaryIO) -> None:
    """Answers ``tell``: the lines of each call, or a problem."""
    file = Path(job["file"])
    try:
        library = launch_code(job["text"], file)
        printed = tell(library, [(Conv(**sizes), images) for sizes, images in job["asked"]], file)
        answer.write(json.dumps({"said": printed}).encode())
    except AlexconvError as error:
        answer.write(json.dumps({"problem": str(error)}).encode())


def computes(job: Job, answer: BinaryIO) -> None:
    """Answers ``outputs``: for each run the outputs, float32 ``[N][M][E][F]``."""
    rung = rung_from(job)
    for sizes, images, data, order in job["runs"]:
        conv = Conv(**sizes)
        x, w = inputs(conv, images, data, job["seed"])
        try:
            cut = plan(BoundRung(rung, conv, rung.resolve(conv, {}, images)), images, BUDGET)
            with open_rung(HostExecutor(order=order), cut, x, w, TRANSFERS["pageable"]) as opened:
                y = np.ascontiguousarray(opened.outputs(), np.float32)
        except AlexconvError as error:
            answer.write(json.dumps({"problem": type(error).__name__}).encode() + b"\n")
        else:
            answer.write(json.dumps({"problem": None}).encode() + b"\n" + y.tobytes())
        answer.flush()


def checks(job: Job, answer: BinaryIO) -> None:
    """Answers a kind of check: its problems, in the order found."""
    shapes = [Conv(**sizes) for sizes in job["shapes"]]
    problems = all_of(lambda: KINDS[job["kind"]].find(rung_from(job), shapes))
    answer.write(json.dumps({"problems": problems[: job["most"]]}).encode())


def compiles(job: Job, answer: BinaryIO) -> None:
    """Answers ``cubins``: the machine code for each shape, as text."""
    rung = rung_from(job)
    try:
        cubins = []
        for sizes, images in job["points"]:
            conv = Conv(**sizes)
            bound = BoundRung(rung, conv, rung.resolve(conv, {}, images))
            cubins.append(b64encode(nvcc.compile_cubin(bound.rung.path, bound.macros, job["arch"])).decode())
        answer.write(json.dumps({"cubins": cubins}).encode())
    except AlexconvError as error:
        answer.write(json.dumps({"problem": str(error)}).encode())


def use_prepared(folder: Path) -> None:
    """Links what was compiled ahead for all submissions into this process's cache.

    Nothing where it is out of reach, as root's home is for a submission without bubblewrap: it is compiled again.
    """
    if not os.access(folder, os.R_OK):
        return
    for file in [*folder.glob("host/runtime-*"), *folder.glob("host/launcher-*"), *folder.glob("host-headers/*/*")]:
        place = cache_dir(str(file.parent.relative_to(folder))) / file.name
        if not place.exists():
            place.symlink_to(file)


def prepare(build: str) -> None:
    """Compiles into the cache what all submissions need from a build of the host executor."""
    rung, conv = RUNGS["direct-register"], Conv(C=1, H=3, W=3, M=1, R=3, S=3)
    bound = BoundRung(rung, conv, rung.resolve(conv, {}, 1))
    HostRuntime(build=build).compile(rung.path, bound.macros, bound.entries())


def run_one() -> int:
    """Does one job, or prepares a build."""
    if len(sys.argv) > 1:
        prepare(sys.argv[1])
        return 0
    job = json.loads(sys.stdin.buffer.read())
    nowhere = os.open(os.devnull, os.O_RDWR)
    with os.fdopen(os.dup(1), "wb") as answer:  # what the submission prints is discarded
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        if job["prepared"]:
            use_prepared(Path(job["prepared"]))
        {"screen": screens, "tell": tells, "outputs": computes, "cubins": compiles}.get(job["kind"], checks)(
            job, answer
        )
    return 0


if __name__ == "__main__":
    sys.exit(run_one())
