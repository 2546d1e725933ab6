"""Tables of several GPUs: what counts as one GPU's counterpart, and efficiencies."""

from itertools import pairwise
from pathlib import Path

import pytest

from alexconv.records.faults import fault_of_header
from alexconv.reports import scaling

ROOT = Path(__file__).resolve().parent.parent.parent


def batch(N: int, shards: int, kernel: float, total: float, **changes: object) -> dict[str, object]:
    bounds = [N * number // shards for number in range(shards + 1)]
    samples = {"kernel": [kernel] * 3, "h2d": [2.0] * 3, "d2h": [1.0] * 3, "total": [total] * 3}
    return {
        "type": "shards",
        "key": f"{N}-{shards}",
        "point": {
            **{"workload": "alexnet", "layer": 3, "N": N, "rung": "igemm", "transfer": "pinned"},
            **{"precision": "fp32", "constants": {}, "data": "uniform"},
        },
        "shards": shards,
        "together": True,
        "status": "ok",
        "slowest_ms": {"kernel": kernel, "total": total},
        "parts": [{"images": [first, last], "samples": samples} for first, last in pairwise(bounds)],
        **changes,
    }


ONE, TWO = batch(8192, 1, 8.0, 100.0), batch(8192, 2, 5.0, 80.0)
SMALL = batch(4096, 1, 4.0, 50.0)


def test_strong_scaling_shares_one_gpus_work_and_weak_scaling_repeats_it():
    (row,) = scaling.strong([ONE, TWO, SMALL])
    named = dict(zip(scaling.SCALING_COLUMNS, row, strict=True))
    assert (named["N"], named["GPUs"], named["efficiency"]) == (8192, 2, pytest.approx(8 / (2 * 5)))
    assert named["host-to-host efficiency"] == pytest.approx(100 / (2 * 80))
    assert named["images/s per GPU"] == pytest.approx(8192 / 5e-3 / 2)
    (row,) = scaling.weak([ONE, TWO, SMALL])
    named = dict(zip(scaling.SCALING_COLUMNS, row, strict=True))
    assert named["efficiency"] == pytest.approx(4 / 5)


def test_links_compare_as_many_images_a_gpu():
    (row,) = scaling.links([TWO, SMALL])
    named = dict(zip(scaling.LINKS_COLUMNS, row, strict=True))
    one = 4096 * 256 * 15 * 15 * 4 / 2e-3 / 1e9
    assert named["in, one GPU, GB/s"] == pytest.approx(one)
    assert named["in, all"] == pytest.approx(2 * one)
    assert named["in, share kept"] == pytest.approx(1.0)


def test_peak_memory_is_shown_for_batches_in_blocks():
    blocks = {"blocks": 5, "block_bytes": 10**9}
    parts = [{**part, **blocks, "peak_bytes": peak} for part, peak in zip(TWO["parts"], (3e9, 4e9), strict=True)]
    (row,) = scaling.memory([TWO, {**TWO, "key": "blocks", "point": {**TWO["point"], "layer": 2}, "parts": parts}])
    named = dict(zip(scaling.MEMORY_COLUMNS, row, strict=True))
    values = 96 * 31 * 31 + 256 * 27 * 27  # of layer 2, with its border
    assert named["input and output, GB"] == pytest.approx(8192 * values * 4 / 1e9)
    assert (named["block limit, GB"], named["blocks per GPU"], named["peak memory, GB"]) == (1, 5, 4)


def test_another_card_is_not_compared():
    elsewhere = {**ONE, "parts": [{**ONE["parts"][0], "device": "card 7"}]}
    assert scaling.strong([elsewhere, TWO]) == []


def test_strong_scaling_says_whether_outputs_are_the_same():
    of = [scaling.strong([{**ONE, "outputs": "a"}, {**TWO, "outputs": outputs}])[0][-1] for outputs in ("a", "b")]
    assert of == ["all", "no"]
    assert scaling.weak([SMALL, TWO])[0][-1] is None


@pytest.mark.parametrize(
    "changes",
    [{"together": False}, {"status": "wrong", "slowest_ms": {}}, {"slowest_ms": {}}],
    ids=["in turns", "wrong", "not timed"],
)
def test_only_correct_parts_timed_together_count_as_scaling(changes):
    assert scaling.strong([ONE, batch(8192, 2, 5.0, 80.0, **changes)]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"shards": 3},
        {"parts": []},
        {"parts": [{"images": [5, 5]}, {"images": [0, 1]}]},
        {"slowest_ms": {"kernel": -1.0}},
        {"parts": [{**part, "peak_bytes": "much"} for part in TWO["parts"]]},
        {"point": {}},
        {"together": "yes"},
        {"status": None},
    ],
    ids=str,
)
def test_an_impossible_batch_is_a_fault(changes):
    assert fault_of_header(TWO) is None
    assert fault_of_header({**TWO, **changes}) is not None


def test_cards_are_compared_within_a_run():
    point = {"rung": "igemm", "layer": 3, "N": 128}
    cards = [{"type": "device", "key": name, "uuid": f"GPU-{name}-0"} for name in ("a", "b", "c")]
    times = {"a": 1.0, "b": 1.1, "c": 2.0}
    calibrations = [
        {
            **{"type": "calibration", "key": name, "device": name, "run": "1" if name < "c" else "2", "point": point},
            "samples": {"kernel": [ms]},
        }
        for name, ms in times.items()
    ]
    rows = scaling.cards([*cards, *calibrations])
    assert [(row[0], row[3]) for row in rows] == [("GPU-a", 1.0), ("GPU-b", 1.1), ("GPU-c", 1.0)]


def test_a_study_is_the_same_wherever_it_ran():
    one = "python -m alexconv.run --cluster local --study s --out one.jsonl --resume"
    assert scaling.study_of(one) == "python -m alexconv.run --study s"
