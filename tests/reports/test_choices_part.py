"""What choices lose, on records made up here."""

import runpy
from dataclasses import asdict
from pathlib import Path

import pytest

from alexconv.profile.ncu import Kernel
from alexconv.records.store import RecordFile
from alexconv.reports import choices
from alexconv.shapes import WORKLOADS

MEASURE = Path(__file__).parents[2] / "scripts" / "measure"


@pytest.fixture
def slower(monkeypatch):
    monkeypatch.syspath_prepend(str(MEASURE))
    return runpy.run_path(str(MEASURE / "slower.py"))


def record(kind, *times):
    rungs = [
        {"rung": f"rung-{place}", "ms": ms} if ms else {"rung": "x", "failure": "no"} for place, ms in enumerate(times)
    ]
    conv = asdict(WORKLOADS["depthwise"].layer(2))
    return {"kind": kind, "N": 32, "precision": "fp16", "memory": "nhwc", "conv": conv, "trials": rungs}


def test_choices_are_compared_with_the_fastest_that_ran():
    tried = choices.trials(
        [record("3x3", 0.2, None, 0.1), record("3x3", 0.05, 0.1), record("1x1", None, 0.1), record("1x1")]
    )
    assert [trial.lost for trial in tried] == [2, 1]
    assert choices.kinds_part(tried).splitlines()[2:] == ["| 3x3 | 2 | 1.41 | 2.00 |", "| all | 2 | 1.41 | 2.00 |"]
    (line,) = choices.layers_part(tried).splitlines()[2:]
    shape = "96 x 112 x 112, 96 of 3 x 3, stride 2, 96 groups"
    assert line == f"| {shape} | 32 | fp16 | nhwc | `rung-0` | 200.0 | `rung-2` | 100.0 | 2.00 |"
    assert choices.layers_part(tried[1:]) == "None above 1.25."


def test_layers_beside_cudnn(tmp_path):
    file = RecordFile(tmp_path / "h100.jsonl")
    headers = {"device": file.header("device", {"name": "H100"}), "run": file.header("run", {"packages": {}})}
    for precision, ours, peer in (("fp16", 1.0, 2.0), ("fp16", 3.0, 1.5), ("tf32", 1.0, 4.0)):
        times = {"alexconv-nchw": ours, "alexconv-nhwc": 9.0, "cudnn-nchw": 9.0, "cudnn-nhwc": peer}
        conv = asdict(WORKLOADS["depthwise"].layer(2))
        facts = {"kind": "3x3", "N": 1, "precision": precision, "conv": conv, "graph_ms": times, "error": {}}
        file.header(choices.OUTSIDE, {**headers, **facts, "rungs": {"nchw": None, "nhwc": None}})
    parts = choices.outside_parts([file.path])
    assert parts["outside-classes"].splitlines()[2:4] == [
        "| tf32 | 1 | 4.00× faster | 1.54× faster | 4.00× faster | 1 of 1 |",
        "| fp16 | 2 | as fast | 1.33× faster | 2.00× slower | 1 of 2 |",
    ]
    (slower,) = parts["outside-slower"].splitlines()[2:]
    assert slower.endswith("| 1 | fp16 | 3000.0 | 1500.0 | 2.00× slower | any shape |")
    assert choices.outside_parts([])["outside-slower"] == "Not measured."


def test_counters_of_a_call_are_those_of_its_longest_kernel(tmp_path):
    file = RecordFile(tmp_path / "h100.jsonl")
    headers = {"device": file.header("device", {"name": "H100"}), "run": file.header("run", {"packages": {}})}
    shares = dict.fromkeys(choices.THROUGHPUTS, 10.0)
    kernels = [
        {"entry": "copy", "duration_ns": 2000.0, "waves": 1.0, **shares},
        {"entry": "multiply", "duration_ns": 7500.0, "waves": 0.5, **shares, "l2_throughput": 81.6},
    ]
    facts = {"kind": "1x1", "N": 1, "precision": "tf32", "conv": asdict(WORKLOADS["depthwise"].layer(2))}
    file.header(choices.COUNTERS, {**headers, **facts, "contender": "alexconv-nhwc", "kernels": kernels})
    row = choices.counters_part([file.path])["outside-counters"].splitlines()[2]
    assert row.endswith("| 1 | tf32 | `multiply` | 2 | 9.5 | 0.5 | 10 % | 82 % | 10 % | 10 % | 10 % |")
    assert choices.counters_part([])["outside-counters"] == "Not measured."


def test_the_slowest_layers_are_counted_in_their_faster_layout(tmp_path, slower):
    file = RecordFile(tmp_path / "h100.jsonl")
    for kind, ours, peer in (("1x1", 1.2, 1.0), ("3x3", 1.0, 1.0), ("last", 3.0, 1.0)):
        times = {"alexconv-nchw": 9.0, "alexconv-nhwc": ours, "cudnn-nchw": peer, "cudnn-nhwc": 9.0}
        file.header(choices.OUTSIDE, {"kind": kind, "graph_ms": times})
    chosen = [(layer["kind"], layout) for layer, layout in slower["slower"]([file.path], 1.03)]
    assert chosen == [("last", "nhwc"), ("1x1", "nhwc")]


def test_kernels_belong_to_the_call_after_their_mark(slower):
    names = ("fill", slower["BETWEEN"], "prepare", "multiply", slower["BETWEEN"], "direct_any")
    calls = slower["by_call"]([Kernel(name, {}) for name in names])
    assert [[kernel.entry for kernel in call] for call in calls] == [["prepare", "multiply"], ["direct_any"]]
