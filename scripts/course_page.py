"""Writes the tables of docs/course.md and docs/own-kernels.md: the studies' limits, the grades of many submissions and
of a few with op time on a GPU, and a wrapped kernel's times.

python scripts/course_page.py
"""

import csv
import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

from alexconv.grade.assignment import largest_batch, time_limits
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.records.store import read
from alexconv.reports.generated import updated
from alexconv.shapes import WORKLOADS

CHECKOUT = Path(__file__).resolve().parent.parent
PAGE, OWN = CHECKOUT / "docs" / "course.md", CHECKOUT / "docs" / "own-kernels.md"
RECORD = CHECKOUT / "results" / "course" / "submissions.json"
TIMED = CHECKOUT / "results" / "course" / "h200-scores.csv"
WRAPPED = CHECKOUT / "results" / "course" / "h200-wrapped.jsonl"


def studies() -> str:
    """A row for each study that prints op times: its layers, batch, and limits."""
    lines = [
        "| study | layers | N | op time of both layers for half, three quarters, all of its points |",
        "|---|---|---:|---|",
    ]
    for study, workload in STUDY_WORKLOADS.items():
        N = largest_batch(study)
        layers = "; ".join(f"C={conv.C} {conv.H}x{conv.W} M={conv.M} K={conv.R}" for conv in WORKLOADS[workload].layers)
        times = ", ".join(f"{limit.ms:g} ms" for limit in time_limits(study, N, 1.0))
        lines.append(f"| {study} | {layers} | {N} | {times} |")
    return "\n".join(lines)


def graded() -> str:
    """Grades by kind of submission."""
    if not RECORD.exists():
        return "No run is on record yet."
    record = json.loads(RECORD.read_text())
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in record["rows"]:
        totals[row["kind"]][row.get("total", "none")] += 1
    lines = [
        f"`{record['command']}` ({record['machine']}): {record['submissions']} submissions of {len(totals)} kinds in"
        f" one run of {record['seconds'] / 60:.0f} min; not as expected: {len(record['unexpected'])}."
        + ("  The right ones have the points that they get alone, in every check." * ("--beside" in record["command"]))
        + "  Points, of 85 without op time:",
        "",
        "| kind | submissions | points |",
        "|---|---:|---|",
    ]
    for kind, found in totals.items():
        lines.append(f"| {kind} | {found.total()} | {', '.join(sorted(found, key=float))} |")
    return "\n".join(lines)


def timed() -> str:
    """The scores of submissions that a GPU timed."""
    if not TIMED.exists():
        return "No op time of a submission is on record yet."
    with TIMED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [name for name in rows[0] if name not in ("outcome", "feedback")]
    lines = [
        "Three submissions graded on an NVIDIA H200 (ece408-2024, N = 1000): `tests/sources/course.cu` as it is, with"
        " tiles of 16, and without its barriers.",
        "",
        f"| {' | '.join(shown)} |",
        f"|---|{'---:|' * (len(shown) - 1)}",
    ]
    lines += [f"| {' | '.join(row[name] or '–' for name in shown)} |" for row in rows]
    return "\n".join(lines)


def wrapped() -> str:
    """Kernel times of the wrapped file and of rungs beside it, by layer; empty without a record."""
    if not WRAPPED.exists():
        return ""
    found = read([WRAPPED])
    times: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for record in found.latest():
        ms = f"{median(record['samples']['kernel']):.3g}" if record["status"] == "ok" else record["status"]
        times[record["point"]["rung"]][record["point"]["layer"]] = ms
        point, device = record["point"], found.headers[record["device"]]["name"]
    layers = sorted({layer for each in times.values() for layer in each})
    lines = [
        f"Kernel times in ms, {point['workload']}, N = {point['N']}, {device}: `tests/sources/course.cu`, a student's"
        " tiled kernel, beside rungs.",
        "",
        f"| kernel | {' | '.join(f'layer {layer}' for layer in layers)} |",
        f"|---|{'---:|' * len(layers)}",
    ]
    lines += [f"| `{rung}` | {' | '.join(each.get(layer, '–') for layer in layers)} |" for rung, each in times.items()]
    return "\n".join(lines)


def pages() -> dict[Path, dict[str, str]]:
    """The generated parts of each page."""
    return {PAGE: {"studies": studies(), "graded": graded(), "timed": timed()}, OWN: {"wrapped": wrapped()}}


def main() -> None:
    """Writes the pages."""
    for path, parts in pages().items():
        path.write_text(updated(path.read_text(), parts))


if __name__ == "__main__":
    main()
