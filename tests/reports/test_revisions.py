"""The table of two revisions on one card, from made-up records."""

from collections.abc import Iterable
from pathlib import Path

from report_records import record, write

from alexconv.records.store import Record
from alexconv.reports import revisions
from alexconv.reports.frontier import NOT_MEASURED


def times(layers: dict[int, float]) -> list[Record]:
    """Records of one rung by layer, in ms."""
    return [record("alexnet", layer, 128, "igemm") | {"samples": {"kernel": [ms] * 10}} for layer, ms in layers.items()]


def files(folder: Path, runs: Iterable[dict[int, float]]) -> list[Path]:
    """The record files of two revisions, each run twice."""
    return [write(folder / name, times(layers)) for name, layers in zip(revisions.FILES, runs, strict=True)]


def test_sums_and_slower_layers_of_each_rung(tmp_path: Path):
    runs = [{2: 2.0, 3: 2.0}, {2: 1.0, 3: 2.5}, {2: 2.0, 3: 2.0}, {2: 1.0, 3: 1.0}]
    text = revisions.parts(files(tmp_path, runs))["revisions"]
    (row,) = [line for line in text.splitlines() if line.startswith("| `igemm` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:6] == ["`igemm`", "128", "2, 3", "4.000", "3.500", "1.14× faster"]
    assert cells[7:] == ["2.00× faster", "as fast", "3"]
    assert "1 FASTER, 1 SLOWER, 0 SAME, 0 UNCLEAR" in text


def test_without_one_of_the_files_the_table_names_it(tmp_path: Path):
    some = files(tmp_path, [{2: 1.0}] * 4)[:-1]
    assert revisions.parts(some)["revisions"] == f"{NOT_MEASURED} ({revisions.FILES[-1]})"
