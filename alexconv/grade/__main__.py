"""Grades submissions in a sandbox: correctness, hazards, op time.

alexconv grade hw3 submissions -o scores
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alexconv.cli import display
from alexconv.errors import MissingTool, UsageError
from alexconv.grade import assignment, sandbox, scores, timing
from alexconv.grade.grading import MOST_LINES, Grade, Grader, left_out, prepare, slots_of, submissions
from alexconv.machine import cores
from alexconv.messages import print_to_stderr
from alexconv.options import exits_cleanly, natural, program

MODULE = "alexconv.grade"


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("assignment", type=Path, help="a folder that alexconv assignment has written")
    add("submissions", type=Path, help="a folder with files NAME.cu, or folders NAME with conv.cu")
    add(
        "-o",
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder for scores.csv, scores.html and feedback/",
    )
    add(
        "--backend",
        default="auto",
        choices=("auto", "cuda", "host"),
        help="host: without op times (default: auto, the GPU if there is one)",
    )
    add("--jobs", type=natural, default=0, help="submissions graded at a time (default: number of cores)")
    add(
        "--only",
        action="append",
        metavar="NAME",
        help="grade only this submission, into a folder of its own; repeatable",
    )
    add(
        "--own-container",
        action="store_true",
        help="this machine is a container for grading alone: no bubblewrap, one submission at a time (docs/course.md)",
    )
    return options


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Grades and writes the scores, after every submission; raises UsageError and MissingTool."""
    options = parser().parse_args(arguments)
    say = display.console()
    homework = assignment.read(options.assignment)
    entries, last = submissions(options.submissions), scores.submissions_in(options.out)
    if ignored := left_out(options.submissions):
        more = f" and {len(ignored) - MOST_LINES} more" if len(ignored) > MOST_LINES else ""
        names = ", ".join(map(repr, ignored[:MOST_LINES]))
        print_to_stderr(f"not graded, neither NAME.cu nor a folder: {names}{more}")
    hidden = tuple(Path(os.path.realpath(path)) for path in (options.assignment, options.submissions, options.out))
    if hidden[2].is_relative_to(hidden[1]):
        raise UsageError(f"{options.out} would be among the submissions: choose another -o")
    if options.only:
        if unknown := set(options.only) - {entry.name for entry in entries}:
            raise UsageError(f"no submission {', '.join(sorted(unknown))} in {options.submissions}")
        entries = [entry for entry in entries if entry.name in options.only]
        if last - {scores.inert(entry.name) for entry in entries}:
            raise UsageError(
                f"{options.out / scores.CSV} has other submissions' scores, which --only would drop: choose another -o"
            )
    kind = sandbox.CONTAINER if options.own_container else sandbox.BUBBLEWRAP
    if problem := sandbox.missing(kind):
        raise MissingTool(
            f"{problem}, or use --own-container in a container for grading" if kind == sandbox.BUBBLEWRAP else problem
        )
    note = sandbox.protections(kind)
    say.print(note, soft_wrap=True)
    gpu = timing.gpu(options.backend)
    say.print(f"op times: {'on the GPU' if gpu else 'none, there is no GPU'}")
    jobs = 1 if options.own_container else options.jobs or cores()
    scores.open_folder(options.out)  # one that cannot be written is known now
    grader = Grader(homework, kind, prepare(), hidden, gpu.time if gpu else None, slots_of(jobs))
    grades: dict[str, Grade] = {}

    def write(grade: Grade) -> None:
        """The last run's table and page stay until these drop none of its submissions, or all are graded."""
        grades[grade.submission] = grade
        scores.write_feedback(grade, homework, options.out, gpu is not None)
        if len(grades) == len(entries) or last <= set(map(scores.inert, grades)):
            scores.write([*grades.values()], homework, options.out, gpu is not None, note)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for number, grade in enumerate(pool.map(grader.grade, entries), 1):
                write(grade)
                line = f"[{number}/{len(entries)}] {grade.submission!r}: {grade.total:g} ({grade.outcome})"
                say.print(line, soft_wrap=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            if last - set(map(scores.inert, grades)):
                print_to_stderr(f"{options.out / scores.CSV} and {scores.PAGE} are as before this run")
            raise
    say.print(f"scores: {options.out / scores.CSV}, {options.out / scores.PAGE}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
