"""The tables of the board's page, from made-up records."""

from pathlib import Path

import pytest
from report_records import GPU, HOST, RUN, record, write

from alexconv.records.store import RecordFile
from alexconv.reports import board
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.shapes import WORKLOADS


def test_without_records_the_page_says_so_and_counts_products():
    parts = board.parts([])
    assert parts["board-times"] == parts["board-rule"] == parts["board-large"] == NOT_MEASURED
    assert "| 32 x 32 | 1024 | 448.0 | 2.3x |" in parts["board-counts"]


def test_each_class_stands_beside_cudnn_with_its_prediction(tmp_path: Path):
    ours = record("conv2d-v2", 4, 1, "wgmma-winograd", precision="fp32-tile")
    ours["samples"] = {"kernel": [3.0] * 10, "prepare": [0.5] * 10}
    peer = record("conv2d-v2", 4, 1, "torch-nchw-fp32")
    peer["samples"] = {"kernel": [48.0] * 10}
    large = [record("large-filters", 1, 8, name) for name in ("wgmma-split", "torch-nchw-fp32")]
    parts = board.parts([write(tmp_path / "r.jsonl", [ours, peer, *large])])
    (row,) = [line for line in parts["board-times"].splitlines() if "wgmma-winograd" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == GPU["name"]  # which is no H100, for which the prediction is
    assert cells[:1] + cells[2:9] == ["4", "1", "32 x 32", "fp32-tile", "`wgmma-winograd`", "–", "3.000", "3.500"]
    assert cells[9] == f"{2 * WORKLOADS['conv2d-v2'].layer(4).macs(1) / 3e9:.1f}"
    assert cells[-1] == "16.0× faster"
    assert "| 9 x 9 | 8 | fp32 | `wgmma-split` |" in parts["board-large"]


@pytest.mark.parametrize("beyond, passes", [(0, "yes"), (1, "no")])
def test_a_contender_passes_the_rule_if_no_output_is_beyond_it(tmp_path: Path, beyond: int, passes: str):
    file = RecordFile(tmp_path / "rule.jsonl")
    keys = {kind: file.header(kind, data) for kind, data in (("device", GPU), ("host", HOST), ("run", RUN))}
    figures = {"outputs": 1000, "beyond": beyond, "apart": 0.01, "error": 0.02, "rms_error": 0.003, "ms": [2.0, 4.0]}
    file.header(board.RULE, {**keys, "layer": 4, "contender": "somebody", **figures})
    rows = board.parts([tmp_path / "rule.jsonl"])["board-rule"]
    assert f"| 4 | somebody | {passes} | {beyond} | {beyond / 10:.4f} | 0.0100 | 0.0200 | 0.0030 | 2.000 |" in rows


def test_a_rung_stands_beside_cudnn_of_its_own_card(tmp_path: Path):
    files = []
    for name, own, other in (("NVIDIA H100 80GB HBM3", 6.0, 40.0), ("NVIDIA H200", 5.0, 30.0)):
        ours, peer = record("conv2d-v2", 4, 1, "wgmma-split"), record("conv2d-v2", 4, 1, "torch-nchw-fp32")
        ours["samples"], peer["samples"] = {"kernel": [own] * 10}, {"kernel": [other] * 10}
        files.append(write(tmp_path / f"{name}.jsonl", [ours, peer], GPU | {"name": name}))
    rows = board.parts(files)["board-times"].splitlines()
    kept = [row for row in rows if "| fp32 | `wgmma-split`" in row]
    first, second = ([cell.strip() for cell in row.strip("|").split("|")] for row in kept)
    assert (first[1], first[6], first[7], first[-1]) == ("NVIDIA H100 80GB HBM3", "6.300", "6.000", "6.67× faster")
    assert (second[1], second[6], second[7], second[-1]) == ("NVIDIA H200", "–", "5.000", "6.00× faster")
