"""What choices lose, on records made up here."""

from dataclasses import asdict

from alexconv.reports import choices
from alexconv.shapes import WORKLOADS


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
