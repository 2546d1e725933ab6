"""Writes the tables of docs/course.md anew: the studies' limits, and what came of grading many submissions.

python scripts/course_page.py
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

from alexconv.course.assignment import largest_batch, time_limits
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.reports.generated import updated
from alexconv.shapes import WORKLOADS

CHECKOUT = Path(__file__).resolve().parent.parent
PAGE = CHECKOUT / "docs" / "course.md"
RECORD = CHECKOUT / "results" / "course" / "submissions.json"


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
    """What came of grading, by kind of submission; empty without a record."""
    if not RECORD.exists():
        return ""
    record = json.loads(RECORD.read_text())
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in record["rows"]:
        totals[row["kind"]][row.get("total", "none")] += 1
    lines = [
        f"`{record['command']}` ({record['machine']}): {record['submissions']} submissions of {len(totals)} kinds in"
        f" one run of {record['seconds'] / 60:.0f} min; not as expected: {len(record['unexpected'])}.  Points, of 85"
        " without op time:",
        "",
        "| kind | submissions | points |",
        "|---|---:|---|",
    ]
    for kind, found in totals.items():
        lines.append(f"| {kind} | {found.total()} | {', '.join(sorted(found, key=float))} |")
    return "\n".join(lines)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(updated(PAGE.read_text(), {"studies": studies(), "graded": graded()}))


if __name__ == "__main__":
    main()
