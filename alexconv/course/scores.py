"""The scores of an assignment as a table, a page, and a file of feedback for each student."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader

from alexconv.course.assignment import Assignment
from alexconv.course.grading import Grade
from alexconv.files import replacing

CSV, PAGE, FEEDBACK = "scores.csv", "scores.html", "feedback"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of cells that a spreadsheet evaluates


def write(grades: Sequence[Grade], assignment: Assignment, folder: Path, timed: bool, note: str) -> None:
    """Writes the table, the page and the feedback, each file atomically.  Raises UsageError if the disk is full."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FEEDBACK).mkdir(exist_ok=True)
    checks = counted(assignment, timed)
    _write(folder / CSV, table(grades, checks))
    _write(folder / PAGE, page(grades, assignment, checks, note))
    for grade in grades:
        _write(folder / FEEDBACK / f"{file_name(grade.submission)}.txt", feedback(grade, assignment, checks))


def counted(assignment: Assignment, timed: bool) -> list[str]:
    """The checks whose points count: op time only where there was a GPU."""
    return [check for check in assignment.points if timed or check != "op time"]


def table(grades: Sequence[Grade], checks: Sequence[str]) -> str:
    """The scores as CSV."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["submission", "outcome", "total", *checks, "op time (ms)", "feedback"])
    for grade in grades:
        said = [f"{check}: {line}" for check, lines in grade.feedback.items() for line in lines]
        ms = "" if grade.op_time is None else f"{grade.op_time:.4f}"
        points = [f"{grade.points.get(check, 0.0):g}" for check in checks]
        rows.writerow([inert(grade.submission), grade.outcome, f"{grade.total:g}", *points, ms, inert("; ".join(said))])
    return text.getvalue()


def inert(text: str) -> str:
    """Text that a spreadsheet shows and does not evaluate."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def page(grades: Sequence[Grade], assignment: Assignment, checks: Sequence[str], note: str) -> str:
    """The scores as one HTML page; all text from outside is escaped."""
    environment = Environment(loader=PackageLoader("alexconv.course"), autoescape=True, trim_blocks=True)
    return environment.get_template("scores.html").render(
        assignment=assignment,
        checks=checks,
        most=sum(assignment.points[check] for check in checks),
        grades=grades,
        outcomes=Counter(grade.outcome for grade in grades),
        note=note,
    )


def feedback(grade: Grade, assignment: Assignment, checks: Sequence[str]) -> str:
    """The feedback for a student."""
    most = sum(assignment.points[check] for check in checks)
    lines = [f"{assignment.name}: {grade.submission}: {grade.total:g} of {most:g} points ({grade.outcome})", ""]
    for check in ["file", *checks]:
        if check in grade.points:
            lines.append(f"{check}: {grade.points[check]:g} of {assignment.points[check]:g}")
        lines += [f"  {line}" for line in grade.feedback.get(check, ())]
    return "\n".join(lines) + "\n"


def file_name(submission: str) -> str:
    """A name for a file, whatever the submission is called."""
    plain = re.sub(r"[^\w.-]", "_", submission).lstrip(".") or "_"
    return plain[:100] if plain == submission else f"{plain[:80]}-{sum(submission.encode(errors='replace')) % 9973}"


def _write(path: Path, text: str) -> None:
    with replacing(path) as target:
        target.write_text(text, errors="backslashreplace")
