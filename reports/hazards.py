"""Tables of docs/hazards.md: planted bugs and the reports on them; compute-sanitizer's tools on a sample of them."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alexconv.reports.elements import Cell, markdown_table

ALONE, TOOLS = "alone", ("memcheck", "racecheck", "initcheck", "synccheck")
NONE, NO_TIME = "no bug", "no time left"  # the row of the unchanged kernels; a cell of what did not run
CELL = 110  # characters of a tool's finding


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's tables from the records of the mutants and of the sanitizers."""
    mutants, sanitizers = (json.loads(file.read_text()) for file in files)
    reports = {row["name"]: row["report"] for row in mutants if "report" in row}
    return {"mutants": mutant_table(mutants), "sanitizers": sanitizer_table(sanitizers, reports)}


def mutant_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each mutant with its report, or why it is no bug."""
    bugs = sum("report" in row for row in rows)
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        report = row.get("report") or f"no bug: {row['equivalent']}"
        where = f"{row['file']}:{row['line']}"
        cells.append((f"{row['operator']}: `{row['statement']}`", where, report.removeprefix("multiply: ")))
    text = f"{len(rows)} mutants: {bugs} found, {len(rows) - bugs} that are not bugs."
    return "\n".join([text, "", *markdown_table(("bug", "at", "what the report says"), cells)])


def sanitizer_table(record: Mapping[str, Any], reports: Mapping[str, str]) -> str:
    """A row for each mutant of a sample; ``reports`` are those of the check on a CPU, by mutant."""
    rows = record["rows"]
    bugs = [row for row in rows if row["mutant"] != NONE]
    base = next(row for row in rows if row["mutant"] == NONE)  # what a tool says of it is no finding
    counts = ", ".join(f"{tool} {sum(reported(row[tool], base[tool]) for row in bugs)}" for tool in TOOLS)
    text = (
        f"{len(bugs)} mutants with every kind of bug on {record['device']}, {record['images']} images,"
        f" {record['sanitizer']}: a plain run comes out right for {sum(row[ALONE] == 'right' for row in bugs)};"
        f" `alexconv check` finds {sum(row['mutant'] in reports for row in bugs)}; {counts}."
    )
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        file, _, bug = row["mutant"].partition(": ")
        bug, _, statement = bug.partition(": ")
        findings = [None if row[tool] == base[tool] else short(row[tool]) for tool in TOOLS]
        report = re.sub(r".*missing: (.*) \(\w+, block.*", r"\1", reports.get(row["mutant"], ""))
        bug_and_file = (f"{bug}: `{statement}`", file) if statement else (NONE, "")
        cells.append((*bug_and_file, row[ALONE], report or None, *findings))
    columns = ("bug", "at", ALONE, "`alexconv check`, on a CPU", *TOOLS)
    return "\n".join([text, "", *markdown_table(columns, cells)])


def reported(finding: str, base: str) -> bool:
    """Whether a tool has found something: more than without a bug, and not that it hung or ran out of time."""
    return finding not in ("", base, "hangs", NO_TIME) and not finding.startswith("the process ends")


def short(finding: str) -> str | None:
    """A tool's finding in a table's cell."""
    return re.sub(r" (?:at|by|in) 0x\w+| \(hazard .*", "", re.sub(r"^(Error|Warning): ", "", finding))[:CELL] or None
