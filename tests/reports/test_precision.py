"""The precision page's tables, from made records, and that the page is what the results say."""

import re
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER
from alexconv.precisions import ANY, PRECISIONS, TF32, WALK
from alexconv.records.store import RecordFile, read
from alexconv.reports import precision
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent.parent


def record_file(tmp_path: Path) -> Path:
    file = RecordFile(tmp_path / "r.jsonl")
    device = file.header("device", {"name": "a GPU"})
    run = file.header("run", {"command": "made up"})

    def guarantee(layer, data, ours, theirs, misplaced=0, engine="GEMM"):
        cudnn = {"scaled": theirs, "bound": 1e-6, "misplaced": misplaced, "engine": engine}
        facts = {"class": "fp32", "layer": layer, "N": 4, "data": data, "device": device, "cudnn": cudnn}
        file.header("guarantee", {**facts, "conv2d": {"scaled": ours, "bound": 1e-6, "misplaced": 0}})

    guarantee(1, "uniform", 1e-7, 2e-7)
    guarantee(2, "uniform", 3e-7, 2e-7, engine="FFT")
    guarantee(1, "one-huge", 5e-7, "nan", misplaced=1200)
    trial = {"powers": {"image": [-3, 5]}, "singles": 2, "signs": "positive", "significands": "any"}
    facts = {"class": "fp32", "kind": "walk", "misplaced": 0, "scaled": 1e-7, "device": device}
    for rung, ratio in (("direct", 0.25), ("igemm", "inf")):
        file.header("search", {**facts, "rung": rung, "trials": 70, "ratio": ratio, "trial": trial})
    for rung, data, layer, ms in (
        ("igemm", "uniform", 1, 1.0),
        ("igemm", "uniform", 2, 3.0),
        ("igemm", "relu", 1, 1.0),
        ("igemm", "relu", 2, 2.0),
        ("torch-nchw-fp32", "uniform", 2, 2.0),
        ("torch-nchw-fp32", "relu", 2, 1.5),
        ("direct", "uniform", 1, 9.0),
    ):
        axes = {"workload": "alexnet", "layer": layer, "N": 128, "rung": rung, "transfer": "pageable"}
        point = {**axes, "precision": "fp32", "constants": {}, "data": data}
        file.point(
            {"point": point, "key": "k", "status": "ok", "reason": None, "samples": {"kernel": [ms]}, "run": run}
            | {"device": device}
        )
    return tmp_path / "r.jsonl"


def test_the_table_of_classes_names_their_tensor_core_rungs():
    section = (ROOT / "docs" / "precision.md").read_text().split("\n## ")[1]
    rows = dict(re.findall(r"^\| `([\w-]+)` \|(.*)\|$", section, re.MULTILINE))
    for rung in LADDER:
        if rung.family in ("mma", "wgmma"):
            assert f"`{rung.name}`" in rows[rung.precision]


def test_the_pages_for_users_name_every_class():
    names = [f"`{name}`" for name in PRECISIONS]
    assert f"What {', '.join(names[:-1])} and {names[-1]} promise" in (ROOT / "docs" / "precision.md").read_text()
    assert f"| `precision` | {', '.join(names)};" in (ROOT / "docs" / "library.md").read_text()


def test_formulas_give_the_bounds():
    """The page's formulas are those of the code, for classes that are not on it too."""
    grown = replace(TF32, growth=3, reach=2)
    for guarantee in (*(row.guarantee for row in PRECISIONS.values()), grown):
        for kind, steps in (
            (ANY, f"2 K + {guarantee.any_steps}"),
            (WALK, f"{guarantee.walk} sqrt(K) + {guarantee.walk_steps}"),
        ):
            text = re.sub(r"(?<=[\d)]) (?=[\d(Ks])", " * ", precision.factor(guarantee, steps)).replace("^", "**")
            assert eval(text, {"K": 100, "sqrt": sqrt}) == pytest.approx(
                guarantee.bound(100, kind).factor, rel=1e-12
            ), text


def test_the_table_of_exceptions_is_the_ladders():
    section = (ROOT / "docs" / "precision.md").read_text().split("**Exceptions.**")[1].split("\n## ")[0]
    expected: dict[str, list[str]] = {}
    for rung in ALL_DIRECTIONS:
        conv = WORKLOADS["alexnet"].layer(3).toward(rung.direction)
        for text in BoundRung(rung, conv, rung.resolve(conv, {})).exceptions:
            expected.setdefault(re.sub(r"each of \d+ atomic additions", "each atomic addition", text), []).append(
                rung.name
            )
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", section, re.MULTILINE)
    assert {text: re.findall(r"`([\w-]+)`", rungs) for rungs, text in rows} == expected


def test_each_table_has_what_the_records_say(tmp_path):
    records = read([record_file(tmp_path)])
    table = precision.conv2d_part(records)
    assert "| uniform | conv2d | 0.3000 |" in table
    assert "| uniform | cuDNN | 0.2000 |" in table
    assert "| one-huge | conv2d | 0.5000 |" in table
    assert "| one-huge | cuDNN | 1,200 misplaced |" in table
    assert "fp32 takes GEMM on 1, FFT on 2 (by layer)." in table
    assert "Measured on a GPU." in table
    table = precision.search_part(records)
    assert "| `direct` | fp32 | 70 | 0.2500 | walk | image 2^-3 to 2^5, 2 single inputs, signs positive |" in table
    assert "| `igemm` | fp32 | 70 | inf |" in table
    table = precision.times_part(records)
    assert "| `igemm` | 1, 2 | 4.000 | 0.7500 | 1.000 |" in table
    assert "| `torch-nchw-fp32` | 2 | 2.000 | 0.7500 | 0.7500 |" in table
    assert "direct" not in table, "it has no time on other data"


def test_without_records_nothing_is_said_to_be_measured(tmp_path):
    RecordFile(tmp_path / "r.jsonl").header("device", {"name": "a GPU"})
    assert {part(read([tmp_path / "r.jsonl"])) for part in precision.PARTS.values()} == {NOT_MEASURED}
