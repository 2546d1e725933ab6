"""Source, machine code and predicted cycles of some rungs, side by side on their pages."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from alexconv.records.compressed import contents
from alexconv.reports.elements import Chart, Page, Section
from alexconv.reports.site import Report

RECORDING = Path("predicted", "machine-code.json")  # of scripts/measure/machine_code.py


def with_machine_code(report: Report, results: Path) -> Report:
    """The report with a listing on the page of each rung that was recorded."""
    charts = {f"rung-{name}": chart for name, chart in listings(results)}

    def added(page: Page) -> Page:
        if page.key not in charts:
            return page
        section = Section("machine-code", "Source, machine code, cycles", "", charts=[charts[page.key]])
        return replace(page, sections=[*page.sections, section])

    return replace(report, pages=[added(page) for page in report.pages])


def listings(results: Path) -> Iterator[tuple[str, Chart]]:
    """Those on record, by rung."""
    recording = json.loads(contents(results / RECORDING))
    for name, listing in recording["rungs"].items():
        caption = (
            f"AlexNet layer {listing['layer']}, N={listing['N']}: predicted shares of the warps' cycles on an H200, in "
            f"per cent; SASS by nvcc {recording['nvcc']}. Choose a line of the source to see its instructions."
        )
        data = {
            "kernels": listing["kernels"],
            "files": {file: text.splitlines() for file, text in listing["files"].items()},
        }
        yield name, Chart(f"{name}-code", f"{name}: source and SASS", caption, "listing", data)
