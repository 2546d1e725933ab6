"""The tables of docs/whole-networks.md, on records made up here."""

from pathlib import Path

from alexconv.records.store import RecordFile
from alexconv.reports import wholes


def written(path: Path, *points: tuple[str, int, str, float], stages: bool = False) -> Path:
    """A record file with points: schedule, N, rungs, and kernel time in us, each a day newer than the one before."""
    file = RecordFile(path)
    headers = {kind: file.header(kind, {"name": kind, "uuid": "GPU-1-2", "packages": {}}) for kind in ("device", "run")}
    for day, (schedule, N, rungs, us) in enumerate(points, 1):
        headers["started"] = f"2026-01-{day:02}T00:00:00+00:00"
        axes = {"network": "alexnet-torchvision", "schedule": schedule, "N": N, "precision": "fp16", "rungs": rungs}
        stage = {"stage": "conv1", "rung": "mma-half", "bytes": 3_000_000}
        if stages:
            stage["samples"] = {"kernel": [us / 2e3] * 6}
        samples = {"kernel": [us / 1e3] * 6, "latency": [us / 500] * 6}
        more = {} if "-" in rungs else {"sustained": {"joules_per_run": 0.02}}
        more |= {"timeline": [0.5, 2.5]} if schedule == "persistent" else {}
        file.header("network", {"axes": axes, "status": "ok", "stages": [stage], "samples": samples, **more, **headers})
    return path


def test_schedules_are_compared_with_the_one_before_and_networks_with_the_fastest_peer(tmp_path):
    points = [
        (schedule, N, "auto", us * N) for schedule, us in (("epilogue", 100.0), ("dependent", 80.0)) for N in (1, 128)
    ]
    peers = [
        ("graph", 1, f"{name}", us)
        for name, us in {"torch-nchw": 200.0, "torch-nhwc": 160.0, "cudnn-nhwc": 120.0}.items()
    ]
    parts = wholes.parts([written(tmp_path / "made.jsonl", *points, *peers, stages=True)])
    rows = [line for line in parts["whole-schedules"].splitlines() if line.startswith("| dependent")]
    assert rows == ["| dependent | epilogue | 75 | 160.0 | 80.00 | 1.25× faster | 450 | 10,240 | 1.25× faster |"]
    assert (
        "| 1 | dependent | 80.00 | 200.0 | 160.0 | – | – | 120.0 | 1.50× faster | 12,500 | 20.00 | – |"
        in parts["whole-peers"]
    )
    assert "| conv1 | `mma-half` | 40.00 | 0.075" in parts["whole-stages"]
    assert "| 128 | dependent | 10,240 | – | – | – | – | – | – | 12,500 | 0.1562 | – |" in parts["whole-peers"]
    assert "made.jsonl" in parts["whole-peers"]
    assert parts["whole-timeline"] == wholes.NOT_MEASURED
    parts = wholes.parts([written(tmp_path / "whole.jsonl", ("persistent", 1, "auto", 4.0))])
    assert parts["whole-timeline"].splitlines()[2:5] == [
        "| conv1 | 0.5000 | 2.000 | 3.000 | 1.500 |",
        "| the kernel | – | 2.500 | – | – |",
        "| launched and waited for | – | 4.000 | – | – |",
    ]


def test_each_time_is_the_newest_and_the_fastest_schedule_is_shown(tmp_path):
    ours = [("dependent", 1, "auto", 50.0), ("dependent", 1, "auto", 80.0), ("graph", 1, "auto", 90.0)]
    torch = [("graph", 1, "torch-nchw", 200.0), ("graph", 1, "torch-nhwc", 160.0), ("graph", 1, "torch-nchw", 120.0)]
    parts = wholes.parts([written(tmp_path / "made.jsonl", *ours, *torch)])
    (row,) = (line for line in parts["whole-peers"].splitlines() if " fp16 " in line)
    cells = "| dependent | 80.00 | 120.0 | 160.0 | – | – | – | 1.50× faster | 12,500 | 20.00 | – |"
    assert row == f"| alexnet-torchvision | fp16 | 1 {cells}"


def test_nothing_is_shown_of_what_was_not_timed(tmp_path):
    file, record = RecordFile(tmp_path / "wrong.jsonl"), {"status": "wrong", "samples": {"kernel": [0.1] * 6}}
    file.header("network", {"axes": {"network": "alexnet-torchvision", "rungs": "auto"}, **record})
    assert set(wholes.parts([file.path]).values()) == {wholes.NOT_MEASURED}
