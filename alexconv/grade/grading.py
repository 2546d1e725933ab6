"""Grades submissions: each is read, screened, run in sandboxes and compared outside them.

Whatever a submission prints, returns or computes may tell what it has read.  So its words, its compiler's and the
checks' lines are quoted from sandboxes that know only public shapes; what those with hidden shapes answer becomes
points and fixed sentences.
"""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any

import numpy as np

from alexconv.check.hazards import BUILD
from alexconv.check.kinds import ORDERS, SHAPES, WATCHED_IMAGES
from alexconv.errors import MissingTool, UsageError
from alexconv.executors.host.runtime import missing_environment
from alexconv.files import locked
from alexconv.grade import sandbox
from alexconv.grade.assignment import FILE, LETTERS, SOURCE_BYTES, Assignment, Shape
from alexconv.grade.data import INTEGERS, UNIFORM, fault, inputs
from alexconv.grade.sandbox import WORKER, Ended, environment
from alexconv.messages import print_to_stderr
from alexconv.own.wrapping import PROBE, understood
from alexconv.paths import CACHE_VARIABLE, cache_dir
from alexconv.shapes import Conv

ADDRESSES = "addresses"
CHECKS = {ADDRESSES: "asan", "races": "trace", "async": BUILD}  # kind of check: build of the host executor
BUILDS = ("fast", *CHECKS.values())
MOST_LINES = 5  # of feedback for a check
LINE_LENGTH = 300
HEADER_BYTES = 1 << 12  # of a run's line before its outputs
ANSWER_BYTES = 1 << 23  # of JSON
CUBIN_BYTES = 1 << 24  # of machine code
MAC_FOLDER = "__MACOSX"  # of archives
GRADED, REFUSED, FAILED = "graded", "refused", "does not run"
PUBLIC = (PROBE, *(shape for shape in SHAPES if shape.R == shape.S and not any(shape.padding)))
EARLY = "its process ends early"
UNRECORDED = "its launches for a hidden shape cannot be recorded: `make check` tries other shapes"
HIDDEN_ONLY = "a hidden shape fails, the public ones do not"
NOTHING_RIGHT = "no points, since no hidden shape is correct"
ADDRESSES_FIRST = "addresses must pass first"  # what a load outside the arrays reads, and whether it faults, varies
REASONS = {  # why a hidden shape has no outputs, by the exception's name
    "LaunchError": "a launch fails: too large, or at an address outside the arrays",
    "CompileError": "its kernels do not compile",
    "OutOfMemory": "its arrays take too much memory",
    "UsageError": "its launches are not those of other shapes",
}


@dataclass
class Grade:
    """A submission's grade: points and feedback of each check; ``outcome`` in a word, and the seconds it took."""

    submission: str
    outcome: str = GRADED
    points: dict[str, float] = field(default_factory=dict)
    feedback: dict[str, list[str]] = field(default_factory=dict)
    op_time: float | None = None  # ms
    seconds: float = 0.0

    @property
    def total(self) -> float:
        """The sum of its points."""
        return round(sum(self.points.values()), 2)

    def say(self, check: str, lines: Iterable[str]) -> None:
        """Adds feedback, up to MOST_LINES lines for a check."""
        remarks = self.feedback.setdefault(check, [])
        for line in map(line_of, lines):
            if line not in remarks:
                remarks.append(line)
        if len(remarks) > MOST_LINES:
            more = len(remarks) - MOST_LINES
            self.feedback[check] = [*remarks[:MOST_LINES], f"and {more} more"]


class Failed(Exception):
    """A sandbox's answer cannot be used; the text tells the student why."""


@dataclass(frozen=True)
class Grader:
    """Grades an assignment's submissions in sandboxes of one kind.  They never see the folders ``hidden``.

    ``slots`` has the cores of each submission graded at a time: none can slow another down.
    """

    assignment: Assignment
    kind: str
    prepared: Path
    hidden: tuple[Path, ...]
    timed: Callable[["Grader", "Source"], float] | None = None  # the op time in ms, where there is a GPU
    slots: "SimpleQueue[tuple[int, ...]]" = field(default_factory=lambda: slots_of(1))

    def grade(self, submission: "Submission") -> Grade:
        """The grade of a submission, whatever it does."""
        cpus, start = self.slots.get(), monotonic()
        grade = Grade(submission.name)
        try:
            self._grade(grade, replace(submission.read(), cpus=cpus))
        except UsageError as error:
            grade.outcome = REFUSED
            grade.say("file", [str(error)])
        except Failed as error:
            grade.outcome = FAILED
            grade.say("file", [str(error)])
        except MissingTool:
            raise
        except Exception as error:  # a bug in the grader: the others are still graded
            grade.outcome = FAILED
            grade.say("file", [f"the grader failed: {type(error).__name__}: {error}"])
        finally:
            self.slots.put(cpus)
        grade.seconds = round(monotonic() - start, 2)
        return grade

    def _grade(self, grade: Grade, source: "Source") -> None:
        if self.assignment.screen:
            text, problems = self.screened(source)
            if problems:
                grade.outcome = REFUSED
                grade.say("file", problems)
                return
            source = replace(source, text=text)
        launches = self.launch_table(source)
        unchecked = stopped = self._outputs(grade, source, launches)
        for check in CHECKS:
            if unchecked:
                grade.points[check] = 0.0
                grade.say(check, [f"not checked: {unchecked}"])
            elif self._check(grade, check, source, launches) and check == ADDRESSES:
                unchecked = ADDRESSES_FIRST
        if stopped:
            return
        if self.timed and grade.points["correct"] == self.assignment.points["correct"]:
            try:
                grade.op_time = self.timed(self, source)
                share = self.assignment.share(grade.op_time)
                grade.points["op time"] = self.assignment.points["op time"] * share
                slower = [limit for limit in self.assignment.times if grade.op_time > limit.ms]
                for limit in slower[-1:] if share < 1 else []:
                    grade.say("op time", [f"{grade.op_time:.3f} ms; {limit.ms:g} ms would be {limit.share:.0%}"])
            except Failed as error:
                grade.say("op time", [str(error)])

    def screened(self, source: "Source") -> tuple[str, list[str]]:
        """The text that later steps compile, and what a submission may not use; raises Failed."""
        answer = self.answered({"kind": "screen"}, source, "fast", ANSWER_BYTES)
        text, problems = answer.get("text"), answer.get("problems")
        if not isinstance(text, str) or not _are_lines(problems):
            raise Failed(placed(source.file, line_of(answer.get("problem", EARLY))))
        return text, list(problems or ())

    def launch_table(self, source: "Source") -> list[Any]:
        """The launches for every shape and number of images that a check may use; raises Failed and UsageError."""
        public = [(conv, images) for conv in PUBLIC for images in range(1, WATCHED_IMAGES + 1)]
        hidden = [
            (shape.conv, images)
            for shape in self.assignment.shapes
            for images in range(1, max(shape.images, WATCHED_IMAGES) + 1)
        ]
        launches = self.ask(source, public)
        try:
            return launches + self.ask(source, hidden)
        except (Failed, UsageError):
            raise Failed(UNRECORDED) from None

    @staticmethod
    def probes() -> list[tuple[Conv, int]]:
        """The shapes that every table of launches must contain."""
        return [(PROBE, 1), (PROBE, 2)]

    def ask(self, source: "Source", calls: Sequence[tuple[Conv, int]]) -> list[Any]:
        """What the launch code prints for shapes and numbers of images; raises Failed and UsageError."""
        calls = list(dict.fromkeys(calls))
        sizes = [(sizes_of(conv), images) for conv, images in calls]
        answer = self.answered({"kind": "tell", "asked": sizes}, source, "fast", ANSWER_BYTES)
        printed = answer.get("said")
        if not isinstance(printed, list) or len(printed) != len(calls) or not all(map(_are_lines, printed)):
            raise Failed(placed(source.file, line_of(answer.get("problem", EARLY))))
        for (conv, _), lines in zip(calls, printed, strict=True):
            understood(lines, conv, Path(source.file))
        return [[*size, lines] for size, lines in zip(sizes, printed, strict=True)]

    def _outputs(self, grade: Grade, source: "Source", launches: Sequence[Any]) -> str | None:
        """Awards ``correct`` and ``exact`` for outputs, compared here; returns why the run was stopped, or None."""
        shapes, seed = self.assignment.shapes, self.assignment.seed
        runs = [(number, shape, UNIFORM, 0) for number, shape in enumerate(shapes)]
        runs += [(number, shape, INTEGERS, order) for number, shape in enumerate(shapes) for order in ORDERS]
        rows = [(sizes_of(shape.conv), shape.images, data, order) for _, shape, data, order in runs]
        expected = sum(HEADER_BYTES + _bytes(shape) for _, shape, _, _ in runs)
        job = {"kind": "outputs", "told": launches, "runs": rows, "seed": seed}
        ended = self._run(job, source, "fast", expected)
        right: dict[tuple[str, int], bool] = {}
        answers = parts(ended, [_bytes(shape) for _, shape, _, _ in runs])
        for (number, shape, data, order), answer in zip(runs, answers, strict=True):
            check = "correct" if data == UNIFORM else "exact"
            problem = answer if isinstance(answer, str) else self._compared(shape, data, answer)
            if problem and right.get((check, number), True):
                grade.say(check, [f"hidden shape {number + 1}: {problem}{f' (order {order})' * (order > 0)}"])
            right[check, number] = right.get((check, number), True) and problem is None
        for check in ("correct", "exact"):
            share = sum(right[check, number] for number in range(len(shapes))) / len(shapes)
            grade.points[check] = self.assignment.points[check] * share
        return ended.stopped

    def _compared(self, shape: Shape, data: str, answer: bytes) -> str | None:
        x, w = inputs(shape.conv, shape.images, data, self.assignment.seed)
        y = np.frombuffer(answer, np.float32).reshape(shape.conv.y_shape(shape.images))
        return fault(shape.conv, x, w, y, data)

    def _check(self, grade: Grade, check: str, source: "Source", launches: Sequence[Any]) -> bool:
        """Awards a hazard check's points for hidden shapes, and returns whether it finds anything.

        A submission that computes nothing right gets none.  The lines of what is wrong come from public shapes.
        """
        hidden = [shape.conv for shape in self.assignment.shapes[: self.assignment.hazard_shapes]]
        wrong = self._problems(check, source, launches, hidden) != []
        if wrong:
            shown = [row for row in launches if Conv(**row[0]) in PUBLIC]
            grade.say(check, self._problems(check, source, shown, PUBLIC) or [HIDDEN_ONLY])
        elif not grade.points["correct"]:
            grade.say(check, [NOTHING_RIGHT])
        grade.points[check] = self.assignment.points[check] if grade.points["correct"] and not wrong else 0.0
        return wrong

    def _problems(self, check: str, source: "Source", launches: Sequence[Any], shapes: Sequence[Conv]) -> list[str]:
        """What a hazard check finds, or why it ends without an answer."""
        sizes = [sizes_of(conv) for conv in shapes]
        job = {"kind": check, "told": launches, "shapes": sizes, "most": 4 * MOST_LINES}
        try:
            lines = self.answered(job, source, CHECKS[check], ANSWER_BYTES).get("problems")
        except Failed as error:
            return [str(error)]
        return list(map(line_of, lines)) if isinstance(lines, list) else [EARLY]

    def answered(self, job: Mapping[str, Any], source: "Source", build: str, most: int) -> dict[str, Any]:
        """The JSON that a job answers with; raises Failed."""
        ended = self._run(job, source, build, most)
        content = _object(ended.answer)
        if content is None:
            raise Failed(ended.problem or EARLY)
        return content

    def _run(self, job: Mapping[str, Any], source: "Source", build: str, most: int) -> Ended:
        """Runs a worker's job in a new sandbox; raises MissingTool if none can be made."""
        needed = {**environment(), **missing_environment(build)}
        shared = {"file": source.file, "text": source.text, "prepared": str(self.prepared)}
        confined = sandbox.Sandbox(
            self.kind, [self.prepared], self.hidden, source.cpus, address_space=build != CHECKS[ADDRESSES]
        )
        worker = [sys.executable, "-P", "-m", WORKER]
        limits = replace(self.assignment.limits, answer=most)
        return confined.run(worker, json.dumps({**shared, **job}).encode(), limits, needed)


@dataclass(frozen=True)
class Source:
    """A submission's text, its file's name in messages, and the cores on which it is graded."""

    text: str
    file: str = FILE
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Submission:
    """A student's file."""

    name: str
    path: Path

    def read(self) -> Source:
        """Its text; raises UsageError where there is none, or a link, no regular file, or one that is too large."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            others = len(_sources(self.path.parent))
            raise UsageError(f"there is no {FILE}{f', but {others} other .cu files' if others else ''}") from None
        except OSError as error:
            link = self.path.is_symlink()
            raise UsageError(
                f"{self.path.name} {'is a link' if link else f'cannot be read: {error.strerror}'}"
            ) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UsageError(f"{self.path.name} is not a regular file")
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(SOURCE_BYTES + 1)
        if len(content) > SOURCE_BYTES:
            raise UsageError(f"{self.path.name} is larger than {SOURCE_BYTES >> 10} KiB")
        return Source(content.decode(errors="replace").replace("\r\n", "\n"))


def submissions(folder: Path) -> list[Submission]:
    """The submissions in a folder: NAME.cu, or a folder NAME with a file *.cu; raises UsageError if there are none.

    Beside a folder NAME, the submission of NAME.cu is called NAME.cu.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}")
    paths = _shown(folder)
    folders = [path for path in paths if path.is_dir() and not path.is_symlink()]
    taken = {path.name for path in folders}
    entries = [Submission(path.name, _file_of(path)) for path in folders]
    for path in paths:
        if path.suffix == ".cu" and path.name not in taken:
            entries.append(Submission(path.name if path.stem in taken else path.stem, path))
    if not entries:
        raise UsageError(f"{folder} has no submissions: files NAME.cu, or folders NAME with {FILE}")
    return sorted(entries, key=lambda submission: submission.name)


def left_out(folder: Path) -> list[str]:
    """The names in a folder that are no submissions, such as NAME.cpp and links to folders."""
    return [path.name for path in _shown(folder) if path.suffix != ".cu" and (path.is_symlink() or not path.is_dir())]


def _shown(folder: Path) -> list[Path]:
    """A folder's files and folders, without those that systems and editors make."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.name != MAC_FOLDER)


def _sources(folder: Path) -> list[Path]:
    return [path for path in _shown(folder) if path.suffix == ".cu"]


def _file_of(folder: Path) -> Path:
    files = _sources(folder)
    preferred = [file for file in files if file.name == FILE] or files
    return preferred[0] if len(preferred) == 1 else folder / FILE


def slots_of(jobs: int) -> "SimpleQueue[tuple[int, ...]]":
    """The cores of each of the submissions graded at a time: the same for two only if there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    slots: SimpleQueue[tuple[int, ...]] = SimpleQueue()
    for number in range(jobs):
        slots.put(tuple(cores[number::jobs]) or (cores[number % len(cores)],))
    return slots


def parts(ended: Ended, sizes: Sequence[int]) -> Iterator[bytes | str]:
    """Each run's outputs, of exactly the expected bytes, or what went wrong: one of a few sentences."""
    answer, place = ended.answer, 0
    for size in sizes:
        line_end = answer.find(b"\n", place, place + HEADER_BYTES)
        header = _object(answer[place:line_end]) if line_end >= 0 else None
        if header is None:
            place = len(answer)
            yield ended.stopped or EARLY
            continue
        place = line_end + 1
        if header.get("problem") is not None:
            yield REASONS.get(str(header["problem"]), EARLY)
        elif len(answer) - place < size:
            place = len(answer)
            yield ended.stopped or EARLY
        else:
            yield answer[place : place + size]
            place += size


def _object(text: bytes) -> dict[str, Any] | None:
    """The JSON object of an untrusted answer, or None."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        return value if isinstance(value, dict) else None
    return None


def _are_lines(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def prepare() -> Path:
    """Compiles the parts of the host executor that all submissions share; returns their folder, readable in sandboxes.

    One process at a time: files that another has prepared are never replaced by ones that its sandboxes cannot read
    yet.  Raises MissingTool.
    """
    folder = cache_dir("sandbox")
    words = [sys.executable, "-P", "-m", WORKER]

    def one(build: str) -> None:
        variables = {**os.environ, **environment(), CACHE_VARIABLE: str(folder), **missing_environment(build)}
        done = subprocess.run([*words, build], env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingTool((done.stderr.strip().splitlines() or [f"{build}: status {done.returncode}"])[-1])

    with locked(folder, print_to_stderr):
        with ThreadPoolExecutor(len(BUILDS)) as pool:
            list(pool.map(one, BUILDS))
        for path in [folder, *folder.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IRGRP | stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0))
    return folder


def sizes_of(conv: Conv) -> dict[str, int]:
    """A shape's sizes by letter, from which a worker rebuilds it."""
    return {letter: getattr(conv, letter) for letter in LETTERS}


def _bytes(shape: Shape) -> int:
    return 4 * prod(shape.conv.y_shape(shape.images))


def placed(file: str, problem: str) -> str:
    """A problem after its place in the file, or after the file's name alone; either appears once."""
    while problem.startswith(f"{file}: {file}:"):
        problem = problem.removeprefix(f"{file}: ")
    return problem if problem.startswith(f"{file}:") else f"{file}: {problem}"


def line_of(text: object) -> str:
    """Untrusted text as one line without control characters."""
    words = " ".join(str(text).split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:LINE_LENGTH]
