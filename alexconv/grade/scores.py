"""The scores of an assignment as a table, a page, and a file of feedback for each student."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile

from jinja2 import Environment, PackageLoader

from alexconv.errors import UsageError
from alexconv.files import replacing
from alexconv.grade.assignment import Assignment
from alexconv.grade.grading import Grade

CSV, PAGE, FEEDBACK = "scores.csv", "scores.html", "feedback"
MOST_LETTERS, DIGEST_LETTERS = 80, 32  # of a feedback file's name
_PLAIN = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9._-]{{0,{MOST_LETTERS}}}")
_DIGEST = re.compile(rf"-[0-9a-f]{{{DIGEST_LETTERS}}}$")  # only names that this module makes end so
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of cells that a spreadsheet evaluates


def open_folder(folder: Path) -> None:
    """Makes the folder of the scores and leaves those in it as they are; raises UsageError if none can be written."""
    with _writing(folder):
        for place in (folder, folder / FEEDBACK):
            place.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=place).close()


def write_feedback(grade: Grade, assignment: Assignment, folder: Path, timed: bool) -> None:
    """Writes a student's feedback, atomically; raises UsageError if that is impossible."""
    with _writing(folder):
        text = feedback(grade, assignment, counted(assignment, timed))
        _write(folder / FEEDBACK / f"{file_name(grade.submission)}.txt", text)


def write(grades: Sequence[Grade], assignment: Assignment, folder: Path, timed: bool, note: str) -> None:
    """Writes the table and the page, each atomically; raises UsageError if that is impossible."""
    checks = counted(assignment, timed)
    with _writing(folder):
        _write(folder / CSV, table(grades, checks))
        _write(folder / PAGE, page(grades, assignment, checks, note))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write the scores into {folder} ({error.strerror}): choose another -o") from None


def submissions_in(folder: Path) -> set[str]:
    """The submissions that the folder's table has, as it writes their names."""
    try:
        with (folder / CSV).open(newline="", errors="replace") as file:
            return {row["submission"] for row in csv.DictReader(file) if row.get("submission")}
    except (OSError, csv.Error):
        return set()


def counted(assignment: Assignment, timed: bool) -> list[str]:
    """The checks whose points count: op time only where there was a GPU."""
    return [check for check in assignment.points if timed or check != "op time"]


def table(grades: Sequence[Grade], checks: Sequence[str]) -> str:
    """The scores as CSV."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["submission", "outcome", "total", *checks, "op time (ms)", "feedback"])
    for grade in grades:
        remarks = [f"{check}: {line}" for check, lines in grade.feedback.items() for line in lines]
        ms = "" if grade.op_time is None else f"{grade.op_time:.4f}"
        points = [f"{grade.points.get(check, 0.0):g}" for check in checks]
        rows.writerow(
            [inert(grade.submission), grade.outcome, f"{grade.total:g}", *points, ms, inert("; ".join(remarks))]
        )
    return text.getvalue()


def inert(text: str) -> str:
    """Text that a spreadsheet shows and does not evaluate."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def page(grades: Sequence[Grade], assignment: Assignment, checks: Sequence[str], note: str) -> str:
    """The scores as one HTML page; all text from outside is escaped."""
    environment = Environment(loader=PackageLoader("alexconv.grade"), autoescape=True, trim_blocks=True)
    return environment.get_template("scores.html").render(
        assignment=assignment,
        checks=checks,
        timed="op time" in checks,
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
    """A name for a file, whatever the submission is called: short, and another one for every other name."""
    if _PLAIN.fullmatch(submission) and not _DIGEST.search(submission):
        return submission
    digest = sha256(os.fsencode(submission)).hexdigest()[:DIGEST_LETTERS]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', submission).lstrip('.')[:MOST_LETTERS]}-{digest}"


def _write(path: Path, text: str) -> None:
    with replacing(path) as target:
        target.write_text(text, errors="backslashreplace")
