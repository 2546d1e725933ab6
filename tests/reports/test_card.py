"""A card's own page: its distance from its predictions and its roofline, and what readers may expect of others."""

import pytest
from report_records import GPU, HOST, RUN, record

from alexconv.predict.predictions import TYPE
from alexconv.records.store import RecordFile, read
from alexconv.reports import laptop
from alexconv.reports.measurements import measurements
from alexconv.reports.roofline import CUDA, TENSOR, roofs
from alexconv.reports.site import report_of
from alexconv.reports.why import Reasons

A100 = GPU | {"name": "NVIDIA A100-SXM4-80GB"}
POINTS = [record("alexnet", layer, 128, "direct") for layer in (2, 3)]


def written(path, device, ratio=None):
    """A record file of two points, with predictions at a ratio to the measured times."""
    file = RecordFile(path)
    keys = {kind: file.header(kind, header) for kind, header in (("device", device), ("host", HOST), ("run", RUN))}
    for number, point in enumerate(POINTS, 1):
        file.point(point | keys)
        if ratio:
            samples = sorted(point["samples"]["kernel"])
            ms = ratio**number * (samples[4] + samples[5]) / 2
            prediction = {"point": point["point"], "gpu": "a100", "status": "ok", "ms": ms, "band_ms": [ms, ms]}
            file.header(TYPE, {**prediction, "launches": [], **keys})
    return path


def section_of(path):
    (page,) = (page for page in report_of([path]).pages if page.key == "card")
    return page.sections[0]


def test_a_card_with_a_description_stands_beside_its_predictions_and_roofs(tmp_path):
    section = section_of(written(tmp_path / "r.jsonl", A100, ratio=1.1))
    assert section.text.startswith(
        "NVIDIA A100-SXM4-80GB: predictions of 2 points differ from measured times by 15.5 % on the mean and 21 % at "
        "most, direct on layer 3 "
        "of alexnet, N = 128. The description had not been compared with any measurement. Roofs, data sheet: "
    )
    ((row,),) = (table.rows for table in section.items)
    assert row[:2] == ("single", 2)
    assert row[2:5] == pytest.approx((1.155, 1.1, 1.21))
    samples = POINTS[0]["samples"]["kernel"]
    macs = 447.9e6 * 128  # the direct rung's layer 2 is bound by arithmetic: 108 multiprocessors of 64 lanes
    assert row[7] == pytest.approx(100 * macs / (108 * 64 * 1.41e9) * 1e3 / (sum(samples) / len(samples)), rel=1e-3)


def test_of_several_predictions_of_a_point_the_last_counts(tmp_path):
    file = RecordFile(written(tmp_path / "r.jsonl", A100, ratio=1.1))
    prediction = {"point": POINTS[0]["point"], "gpu": "a100"}
    data = measurements(read([file.path]))
    assert Reasons(data).predicted(data.points[0])["ms"] == pytest.approx(1.1 * data.points[0].median("kernel"))
    file.header(TYPE, {**prediction, "status": "ok", "ms": 7.0, "band_ms": [6.0, 8.0]})
    data = measurements(read([file.path]))
    assert Reasons(data).predicted(data.points[0])["ms"] == 7
    file.header(TYPE, {**prediction, "status": "refused", "reason": "an opcode"})
    data = measurements(read([file.path]))
    assert Reasons(data).predicted(data.points[0]) is None


def test_without_predictions_or_a_description_one_line_says_so(tmp_path):
    text = section_of(written(tmp_path / "a.jsonl", A100)).text
    assert "the same `alexconv run` with `--resume --predict` adds them. Roofs, data sheet: CUDA cores fp32, " in text
    section = section_of(written(tmp_path / "b.jsonl", GPU))
    assert section.text.startswith("`alexconv predict` has no description of the NVIDIA Test 9000, only of a100, ")
    assert section.text.endswith(
        "No roofline: `alexconv ceilings` measures this card's rates into a record file; name it here too."
    )
    assert section.items == []


def test_a_cards_roofs_are_its_data_sheets():
    known = {(roof.unit, roof.name): roof.rate / 1e12 for roof in roofs(None, {"name": "Tesla T4"})}
    assert known == pytest.approx({(CUDA, "fp32"): 8.1, (TENSOR, "fp16"): 65, (TENSOR, "fp16 / 3"): 65 / 3}, rel=0.01)


def test_the_laptops_page_has_a_row_for_each_card_that_was_predicted_whole(tmp_path):
    file = RecordFile(tmp_path / "predicted" / "a.jsonl")
    for gpu, layers in (("a100", 5), ("h200", 4)):
        for layer in range(1, layers + 1):
            point = record("alexnet", layer, 128, "direct")["point"]
            prediction = {"point": point, "gpu": gpu, "status": "ok", "ms": 1.0 * layer, "band_ms": [1, 2]}
            file.header(TYPE, {**prediction, "launches": []})
    rows = [line for line in laptop.parts([file.path])["expected"].splitlines() if line.startswith("| NVIDIA")]
    assert rows == ["| NVIDIA A100-SXM4-80GB | 1 | 15.00 | – | 15.00 | – | – |"]
