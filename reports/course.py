"""Tables of docs/course.md and docs/own-kernels.md: limits of op time, grades of submissions, a wrapped kernel."""

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from alexconv.grade.assignment import largest_batch, time_limits
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.records.store import read
from alexconv.reports.elements import Cell, markdown_table
from alexconv.shapes import WORKLOADS

TIMED = (
    "Three submissions graded on an NVIDIA H200 (ece408-2024, N = 1000): `tests/sources/course.cu` as it is, with tiles"
    " of 16, and without its barriers."
)
LIMITS = ("study", "layers", "N", "op time of both layers for half, three quarters, all of its points")


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The tables of docs/course.md from the record of many submissions and the scores of timed ones."""
    submissions, scores = files
    return {"studies": studies(), "graded": graded(submissions), "timed": timed(scores)}


def studies() -> str:
    """A row for each study that prints op times: its layers, batch, and limits."""
    rows: list[tuple[Cell, ...]] = []
    for study, workload in STUDY_WORKLOADS.items():
        N = largest_batch(study)
        layers = "; ".join(f"C={conv.C} {conv.H}x{conv.W} M={conv.M} K={conv.R}" for conv in WORKLOADS[workload].layers)
        times = ", ".join(f"{limit.ms:g} ms" for limit in time_limits(study, N, 1.0))
        rows.append((study, layers, N, times))
    return "\n".join(markdown_table(LIMITS, rows))


def graded(file: Path) -> str:
    """Grades by kind of submission."""
    record = json.loads(file.read_text())
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in record["rows"]:
        totals[row["kind"]][row.get("total", "none")] += 1
    text = (
        f"`{record['command']}` ({record['machine']}): {record['submissions']} submissions of {len(totals)} kinds in"
        f" one run of {record['seconds'] / 60:.0f} min; not as expected: {len(record['unexpected'])}."
        + ("  The right ones have the points that they get alone, in every check." * ("--beside" in record["command"]))
        + "  Points, of 85 without op time:"
    )
    rows = [(kind, points.total(), ", ".join(sorted(points, key=float))) for kind, points in totals.items()]
    return "\n".join([text, "", *markdown_table(("kind", "submissions", "points"), rows)])


def timed(file: Path) -> str:
    """The scores of submissions that a GPU timed."""
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    shown = [name for name in rows[0] if name not in ("outcome", "feedback")]
    cells = [(row[shown[0]], *(number(row[name]) for name in shown[1:])) for row in rows]
    return "\n".join([TIMED, "", *markdown_table(shown, cells)])


def number(text: str) -> float | None:
    """A whole number without a point, another number, or none where there is no text."""
    return None if not text else int(text) if text.isdigit() else float(text)


def wrapped(files: Sequence[Path]) -> dict[str, str]:
    """The table of docs/own-kernels.md: kernel times of the wrapped file and of rungs beside it, by layer."""
    records = read(files)
    times: defaultdict[str, dict[int, Cell]] = defaultdict(dict)
    for record in records.latest():
        ms: Cell = median(record["samples"]["kernel"]) if record["status"] == "ok" else record["status"]
        times[record["point"]["rung"]][record["point"]["layer"]] = ms
        point, device = record["point"], records.headers[record["device"]]["name"]
    layers = sorted({layer for by_layer in times.values() for layer in by_layer})
    text = (
        f"Kernel times in ms, {point['workload']}, N = {point['N']}, {device}: `tests/sources/course.cu`, a student's"
        " tiled kernel, and rungs."
    )
    rows = [(f"`{rung}`", *(by_layer.get(layer) for layer in layers)) for rung, by_layer in times.items()]
    return {"wrapped": "\n".join([text, "", *markdown_table(("kernel", *(f"layer {n}" for n in layers)), rows)])}
