"""The record files of results/ are whole and name present rungs; records with other names are shown as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
from report_records import record, whole_text, write

from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.records import store
from alexconv.records.compressed import files_in, stored
from alexconv.records.labels import changed_in, label_with
from alexconv.reports.losses import REMOVED
from alexconv.reports.measurements import measurements
from alexconv.reports.site import compose

OWN_KERNELS = {"course"}  # of docs/own-kernels.md
# One outcome of a test or mutant per line.
OTHER_LINES = {"attacks.jsonl", "mutants.jsonl", "mutants-2.jsonl", "suite-mutants.jsonl"}
OLDER = {"h200-contenders"}  # some points are older than a constant of their rung
RENAMED = {"wgmma-before", "wgmma-after"}  # a constant has another name since: IMAGES_AT_A_TIME
RUNGS = ALL_DIRECTIONS.named
FOLDER = Path(__file__).resolve().parent.parent.parent / "results"
RESULTS = [path for path in files_in(FOLDER, "**/*.jsonl") if path.name not in OTHER_LINES]
LARGE = 200 << 10  # bytes


def is_peer(point: dict[str, Any]) -> bool:
    """Whether another library computed a record's point."""
    return point["rung"].startswith(("torch-", "cudnn-", "cublaslt-", "triton-"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_measured_record_has_current_names(path):
    records = store.read([path])
    assert records.unreadable == []
    lines = [line for line in store.lines_of(path) if json.loads(line)["type"] == "point"]
    assert len(records.points) == len(lines)
    for measurement in records.points:
        for point in measurement.get("layers", [measurement["point"]]):
            if not is_peer(point) and point["rung"] not in {*OWN_KERNELS, *REMOVED}:
                rung = RUNGS[point["rung"]]
                names, own = set(rung.recorded(point["constants"])), {constant.name for constant in rung.constants}
                assert names == own or path.stem in RENAMED or (path.stem in OLDER and names < own)
    for header in records.headers.values():
        if "point" in header and not is_peer(header["point"]):  # profiles may be older than a constant
            point = header["point"]
            assert set(point["constants"]) <= {constant.name for constant in RUNGS[point["rung"]].constants}
        assert header.get("rung") in {None, *RUNGS}


def test_large_files_are_compressed_and_none_is_there_twice():
    plain = [path for path in RESULTS if path.exists()]
    assert [path for path in plain if path.stat().st_size > LARGE] == []
    assert [path for path in plain if stored(path.with_name(path.name + ".xz")).exists()] == []


def test_records_with_names_that_the_ladder_lacks_are_read_and_shown_as_they_are(tmp_path):
    gone, renamed, present = (record("alexnet", layer, 1, "direct") for layer in (1, 2, 3))
    gone["point"].update(rung="naive", constants={"PER_THREAD": 3})
    gone["launches"][0]["entry"] = "naive"
    renamed["point"].update(constants={"PER_THREAD": 3, "COALESCED": 1})
    records = store.read([write(tmp_path / "old.jsonl", [gone, renamed, present])])
    assert [line["point"] for line in records.points] == [line["point"] for line in (gone, renamed, present)]
    names = [label_with(record["point"]["rung"], changed_in(record)) for record in records.points]
    assert names == ["naive", "direct [PER_THREAD=3]", "direct"]
    assert "| 1 | naive |" in whole_text(compose(measurements(records)))
