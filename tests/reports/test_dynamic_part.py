"""Times of builds for every shape and first calls, on records made up here."""

from dataclasses import asdict

from alexconv.records.store import RecordFile
from alexconv.reports import dynamic
from alexconv.shapes import WORKLOADS


def trial(rung, ms, every=False, **constants):
    return {"rung": rung, "dynamic": every, "constants": constants, **({"ms": ms} if ms else {"failure": "no"})}


def test_builds_for_every_shape_are_compared_with_the_same_rung_and_the_choice(tmp_path):
    file = RecordFile(tmp_path / "dynamic.jsonl")
    headers = {
        "device": file.header("device", {"name": "GPU", "uuid": "GPU-12"}),
        "run": file.header("run", {"commit": "a" * 40, "packages": {"torch": "2"}}),
    }
    facts = {**headers, "kind": "alexnet", "N": 32, "precision": "fp32", "memory": "nchw"}
    for number, trials in (
        (2, [trial("a", 0.02), trial("b", 0.06, True, T=2), trial("b", 0.03), trial("b", 0.05, T=2)]),
        (3, [trial("b", 0.01, T=1), trial("b", 0.011, True, T=1)]),  # the choice is the same rung
        (4, [trial("a", 0.01), trial("b", None, True, T=1), trial("b", 0.02, T=1)]),
    ):
        conv = asdict(WORKLOADS["alexnet"].layer(number))
        file.header("library-dynamic", {**facts, "conv": conv, "trials": trials})
    seconds = {"nothing cached": {"process": 1.5, "shapes": {"fp32": [0.1, 0.2]}}}
    file.header("library-first", {**headers, "seconds": seconds, "warm": 30.0})
    parts = dynamic.parts([file.path])
    assert "| fp32 | 32 | 2 | 1.15 | 1.20 | 1.82 | 3.00 |" in parts["dynamic-summary"]
    assert "| `b` | 60.0 | `b` | 50.0 | `a` | 20.0 | 3.00 |" in parts["dynamic-layers"]
    assert "| nothing cached | fp32 | 100.0 | 200.0 | 1,500 |" in parts["dynamic-first"]
    assert "GPU-12" in parts["dynamic-first"]


def test_without_records_nothing_is_measured():
    assert set(dynamic.parts([]).values()) == {dynamic.NOT_MEASURED}
