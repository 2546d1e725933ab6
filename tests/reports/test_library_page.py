"""The tables of docs/library.md: ratios recomputed from records, misses included, and the page is up to date."""

import math
from pathlib import Path

import pytest

from alexconv.records.store import RecordFile
from alexconv.reports import library

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = sorted((ROOT / "results" / "library").glob("*.jsonl"))
RUNG = {"rung": "mma-split", "padded": True, "x_in_place": True, "y_in_place": True}
COPIED = {**RUNG, "rung": "wgmma-split", "x_in_place": False}


def layer(number, ours, cudnn, rungs, **more):
    times = {f"{who}-{layout}": ms for who, layouts in (("alexconv", ours), ("cudnn", cudnn))
             for layout, ms in zip(("nchw", "nhwc"), layouts, strict=False)}  # fmt: skip
    return {"workload": "alexnet", "layer": number, "N": 1, "precision": "fp32", "graph_ms": times,
            "eager_ms": {name: 2 * ms for name, ms in times.items()}, "error": dict.fromkeys(times, 1e-7),
            "rungs": rungs, **more}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    records = RecordFile(tmp_path / "library.jsonl")
    device = records.header("device", {"name": "NVIDIA H200", "uuid": "GPU-12-34", "driver": "580"})
    headers = {"device": device, "run": records.header("run", {"commit": "a" * 40, "packages": {"torch": "2.9"}})}
    for record in (
        layer(1, (9.0, 8.0), (4.0, 5.0), {"nchw": RUNG, "nhwc": RUNG}),  # measured again below
        layer(1, (1.0, 3.0), (4.0, 5.0), {"nchw": RUNG, "nhwc": None}),
        layer(2, (3.0, 2.0), (2.0, 1.6), {"nchw": RUNG, "nhwc": COPIED}),
        layer(
            1,
            (1.7,),
            (2.0, 1.6),
            {"nchw": COPIED},
            workload="vgg16",
            eager_ms={},
            error={"alexconv-nchw": 1e-7, "alexconv-nhwc": "LaunchError: no"},
        ),
        layer(2, (1.6, 2.0), (2.0, 1.6), {"nchw": RUNG, "nhwc": RUNG}, workload="vgg16"),
        layer(1, (1.7, 2.0), (2.0, 1.6), {"nchw": RUNG, "nhwc": RUNG}, workload="vgg16", precision="tf32"),
        layer(2, (), (2.0, 1.6), {}, workload="vgg16", precision="tf32", error={"alexconv-nchw": "LaunchError: no"}),
    ):
        records.header("library-layer", {**headers, **record})
    records.header("library-host", {**headers, "us": {"fp32 N=1 Conv2d, out": 7.5}})
    return records.path


def rows(part):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if "|" in line][2:]


def test_ratios_are_of_the_faster_layouts(file):
    parts = library.parts([file])
    first, second = rows(parts["library-alexnet"])
    assert first == [
        "fp32",
        "1",
        "alexnet 1",
        "1.000",
        "4.000",
        "4.00× faster",
        "2.000",
        "8.000",
        "mma-split",
        "1.0e-07",
    ]
    assert second[3:6] == ["2.000", "1.600", "1.25× slower"] and second[8] == "wgmma-split (x copied)"
    assert rows(parts["library-slower"])[-1][8] == "wgmma-split (x copied, nhwc failed)"
    misses = [row[:3] for row in rows(parts["library-slower"])]
    assert misses == [["fp32", "1", "alexnet 2"], ["tf32", "1", "vgg16 1"], ["fp32", "1", "vgg16 1"]]
    assert rows(parts["library-goals"]) == [
        ["fp32", "AlexNet", "2", "1.79× faster", "50.0% at least as fast (goal 100%)", "1.25× slower"],
        [
            "fp32",
            "networks",
            "2",
            "1.03× slower (goal 2.50× faster)",
            "50.0% at least as fast (goal 100%)",
            "1.06× slower",
        ],
        [
            "tf32",
            "networks",
            "2",
            "1.06× slower (goal 1.18× faster)",
            "0.0% at most 1.05× slower (goal 95%)",
            "1.06× slower",
        ],
    ]
    mean = math.sqrt(0.25 * 1.25)
    assert rows(parts["library-summary"])[:1] == [
        ["fp32", "alexnet", "1", "2", f"{1 / mean:.2f}× faster", "4.00× faster", "1.25× slower", "1 of 2"]
    ]
    assert rows(parts["library-host"]) == [["fp32", "1", "Conv2d, out", "7.500"]]
    assert "GPU-12" in parts["library-host"] and "aaaaaaa" in parts["library-host"]
