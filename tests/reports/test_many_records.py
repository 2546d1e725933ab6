"""A report's work grows with the records: each is read once, and each time of a point is summarized once."""

from collections import Counter
from pathlib import Path

import pytest
import report_records

from alexconv.records import store
from alexconv.records.store import RecordFile
from alexconv.reports import __main__ as command
from alexconv.reports import measurements, page

RUNGS = ("direct", "direct-register", "channels", "tiled")
MOST_IDENTITIES = 5  # digests of a point's axes, for each record


def written(path: Path, batches: int) -> int:
    """A file of points with default constants at many batch sizes; returns their number."""
    file = RecordFile(path)
    headers = {kind: file.header(kind, data) for kind, data in (("device", report_records.GPU), ("run", {}))}
    records = [
        report_records.record("alexnet", layer, N, rung)
        for N in range(1, batches + 1)
        for rung in RUNGS
        for layer in range(1, 6)
    ]
    with file.batched():
        for record in records:
            file.point({**record, **headers})
    return len(records)


def test_each_record_is_read_and_summarized_once(tmp_path, monkeypatch):
    count, calls = written(tmp_path / "r.jsonl", 30), Counter()

    def counted(module, name):
        function = getattr(module, name)

        def counting(*arguments):
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, counting)

    for module, name in ((store, "lines_of"), (measurements, "summarize"), (measurements, "identity")):
        counted(module, name)
    monkeypatch.setattr(page, "draw_all", lambda plots, folder, png: None)
    assert command.main([str(tmp_path / "r.jsonl"), "-o", str(tmp_path / "report")]) == 0
    assert calls["lines_of"] == 1
    assert calls["identity"] <= MOST_IDENTITIES * count
    assert calls["summarize"] <= 4 * 2 * count, "four figures, of the ladder's points and of those beside cuDNN's"


@pytest.mark.parametrize("what", ["of", "layers"])
def test_selections_of_a_workload_are_made_once(tmp_path, what):
    written(tmp_path / "r.jsonl", 3)
    data = measurements.measurements(store.read([tmp_path / "r.jsonl"]))
    assert getattr(data, what)("alexnet") is getattr(data, what)("alexnet")
    assert [len(data.series("alexnet", N)) for N in data.batches("alexnet")] == [len(RUNGS)] * 3
