"""Records that were carried over to other keys report what they reported before."""

import json
import re
from pathlib import Path

from alexconv.records.store import KEYS, read
from alexconv.reports.comparison import gather
from alexconv.reports.elements import Plot
from alexconv.reports.measurements import measurements
from alexconv.reports.page import csv_text
from alexconv.reports.site import Report, compose

RESULTS = sorted((Path(__file__).resolve().parent.parent.parent / "results").glob("*.jsonl"))


def report(files: list[Path]) -> Report:
    return compose(measurements(read(files)), gather(files))


def without_keys(plot: Plot) -> str:
    """Everything that a figure is drawn from, except the keys of its records."""
    return re.sub(r"'[0-9a-f]{16}'", "'key'", repr(plot))


def test_the_report_of_files_without_their_new_keys_is_the_same(tmp_path: Path) -> None:
    before, headers = [], 0
    for file in RESULTS:
        lines = file.read_text().splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["type"] != KEYS]
        headers += len(lines) - len(kept)
        before.append(tmp_path / file.name)
        before[-1].write_text("".join(kept))
    assert headers > 0
    old, new = report(before), report(RESULTS)
    assert [csv_text(table) for table in old.tables()] == [csv_text(table) for table in new.tables()]
    assert [(table.title, table.caption) for table in old.tables()] == [
        (table.title, table.caption) for table in new.tables()
    ]
    assert [without_keys(plot) for plot in old.plots()] == [without_keys(plot) for plot in new.plots()]
    assert (old.title, old.facts, old.bases) == (new.title, new.facts, new.bases)
