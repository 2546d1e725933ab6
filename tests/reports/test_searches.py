"""The tables of cuDNN's plans, from made-up records."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from report_records import record, write

from alexconv.records.store import Record
from alexconv.reports import readme, searches
from alexconv.reports.comparison import LAYERS
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.measurements import card_of

PLAN = {"engine": "eng7_k1=2", "ms": 1.0, "tried": 20, "refused": 3, "proposed_ms": 1.5, "search_ended": False}


def timed(layer: int, name: str, ms: float, precision: str = "fp16") -> Record:
    """A record of a layer; of cuDNN's frontend with a plan."""
    point = record("alexnet", layer, 128, name, precision=precision)
    plans = {"plans": [{**PLAN, "knobs": {"STAGES": 4}}]} if name.startswith("cudnn") else {"torch": "2.11"}
    return {**point, "samples": {"kernel": [ms] * 10}, **({"peer": plans} if "-nhwc-" in name else {})}


def cells_of(text: str) -> list[list[str]]:
    """The cells of a table's rows."""
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_without_records_the_tables_say_so():
    assert searches.goals_parts([]) == {"goals-searched": NOT_MEASURED}
    assert set(searches.parts([]).values()) == {NOT_MEASURED}


def test_the_best_of_all_plans_stands_beside_what_torch_picks(tmp_path: Path):
    older = timed(3, "cudnn-nhwc-fp16", 1.0) | {"peer": {"plans": [{"engine": "eng1"}]}}
    records = [timed(2, "torch-nhwc-fp16", 4), timed(2, "cudnn-nhwc-fp16", 2), older, timed(2, "wgmma-half", 1)]
    (row,) = cells_of(searches.parts([write(tmp_path / "r.jsonl", records)])["peers-plans"])
    assert row[7:] == [
        "2.00× faster",
        "`wgmma-half`",
        "1.000",
        "2.00× faster",
        "`eng7`",
        "STAGES=4",
        "20",
        "3",
        "–",
        "time up",
    ]


def test_sums_are_of_the_layers_that_were_searched(tmp_path: Path):
    records = [
        *(timed(2, name, ms) for name, ms in (("torch-nhwc-fp16", 4), ("cudnn-nhwc-fp16", 2), ("wgmma-half", 1))),
        *(timed(3, name, ms) for name, ms in (("torch-nhwc-fp16", 2), ("cudnn-nhwc-fp16", 4), ("wgmma-half", 3))),
    ]
    (row,) = cells_of(searches.parts([write(tmp_path / "r.jsonl", records)])["peers-sums"])
    assert row == ["alexnet", "forward", "128", "nhwc-fp16", "2, 3", "6.000", "6.000", "as fast", "4.000", "as fast"]


@pytest.mark.parametrize("last, verdict", [(1.0, "met"), (9.0, "missed")])
def test_goals_are_beside_the_faster_of_torch_and_the_best_plan_on_each_layer(
    tmp_path: Path, last: float, verdict: str
):
    ours = [timed(layer, "wgmma-half", last if layer == LAYERS[-1] else 1.0) for layer in LAYERS]
    theirs = [timed(layer, "cudnn-nhwc-fp16", 8.0) for layer in LAYERS]
    file = write(tmp_path / "r.jsonl", [*ours, *theirs, timed(1, "torch-nhwc-fp16", 7.0)])
    five, first, slowest = cells_of(searches.goals_parts([file])["goals-searched"])
    assert five[4] == "39.00" and first[4] == "7.000" and first[-1] == "met"
    assert slowest[-1] == verdict


def test_a_class_of_which_a_layer_is_missing_has_no_goals(tmp_path: Path):
    records = [timed(layer, name, 1.0) for layer in LAYERS[1:] for name in ("wgmma-half", "cudnn-nhwc-fp16")]
    assert not searches.best_of_all([write(tmp_path / "r.jsonl", records)])


def test_plans_without_transforms_are_a_comparison_of_their_own(tmp_path: Path):
    times = {"wgmma-split": 1.0, "cudnn-nchw-fp32": 2.0, "cudnn-nchw-fp32-strict": 4.0}
    records = [
        timed(layer, name, ms, "fp32") | ({"peer": {"plans": [PLAN]}} if name.startswith("cudnn") else {})
        for layer in LAYERS
        for name, ms in times.items()
    ]
    file = write(tmp_path / "r.jsonl", records)
    both = [searches.best_of_all([file], strict=strict)["fp32"].ratio() for strict in (False, True)]
    assert both == [2.0, 4.0]


def test_the_readme_says_which_figures_are_of_another_card():
    one, other = ({"name": "NVIDIA H200", "uuid": f"GPU-{name}-1"} for name in "ab")
    source = SimpleNamespace(device=one)
    assert [readme.elsewhere({card_of(device)}, source) for device in (one, other)] == ["", ", on another card"]
    searched = {name: searches.BestOfAll(device, {}) for name, device in {"fp32": other, "tf32": one}.items()}
    assert readme.cards_of(searched, source) == "on another card, NVIDIA H200 or on the same card, NVIDIA H200"
    assert not readme.cards_of({"tf32": searches.BestOfAll(one, {})}, source)
