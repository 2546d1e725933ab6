"""The estimates that ``auto`` goes by, compared with measured times."""

from collections import defaultdict
from math import exp, inf, log
from pathlib import Path
from statistics import mean, median

import pytest

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import H200, Problem
from alexconv.records.store import read
from alexconv.reports.choices import LOST, of_trials
from alexconv.shapes import WORKLOADS, Conv
from alexconv.tune.estimate import best, candidates, estimate

RESULTS = Path(__file__).resolve().parent.parent.parent / "results"


def measured(*files: str) -> dict[tuple[str, int, int, str], list[tuple[float, float]]]:
    """Estimates and medians of rungs' times, in microseconds, by workload, layer, N and precision."""
    ratios = defaultdict(list)
    for record in read([RESULTS / name for name in files]).points:
        point = record["point"]
        rung = RUNGS.get(point["rung"])
        if record["status"] != "ok" or "peer" in record or rung is None or rung.time is None:
            continue
        bound = BoundRung(rung, WORKLOADS[point["workload"]].layer(point["layer"]), point["constants"])
        which = point["workload"], point["layer"], point["N"], bound.rung.precision.removesuffix("-tile")
        ratios[which].append((estimate(bound, point["N"]), 1e3 * median(record["samples"]["kernel"])))
    return ratios


def test_the_least_estimate_is_nearly_the_least_time():
    lost = {}
    for which, times in measured("h200-frontier.jsonl").items():
        lost[which] = min(times)[1] / min(time for _, time in times)
    assert len(lost) == 30
    assert max(lost.values()) < 1.4, max(lost, key=lost.__getitem__)
    assert exp(mean(map(log, lost.values()))) < 1.05


def test_networks_layers_take_about_as_long_as_estimated():
    times = measured("networks/h200.jsonl")
    ratios = [estimated / time for pairs in times.values() for estimated, time in pairs]
    assert len(ratios) > 50
    assert 0.8 < median(ratios) < 1.1
    lost = [min(pairs)[1] / min(time for _, time in pairs) for pairs in times.values()]
    assert max(lost) < 1.3
    assert exp(mean(map(log, lost))) < 1.03


def estimated(record, trial):
    """Today's estimate of a trial's rung and its copies, in microseconds."""
    rung, conv = RUNGS[trial["rung"]], Conv(**record["conv"])
    known = {constant.name for constant in rung.constants}
    chosen = {name: value for name, value in trial["constants"].items() if name in known}
    bound = BoundRung(rung, conv, rung.resolve(conv, chosen, record["N"]))
    return (trial["us"] if bound.refusal() else estimate(bound, record["N"])) + trial["copies_us"]


def test_estimates_choose_well_for_layers_drawn_at_random():
    """Of the rungs that choices.py timed; estimates were corrected by these layers."""
    lost = []
    for file in sorted((RESULTS / "choices").iterdir()):
        for record in of_trials(read([file])):
            timed = [trial for trial in record["trials"] if "ms" in trial and trial["rung"] in RUNGS]
            if len(timed) > 1:
                chosen = min(timed, key=lambda trial: estimated(record, trial))
                lost.append(chosen["ms"] / min(trial["ms"] for trial in timed))
    assert len(lost) > 500
    assert exp(mean(map(log, lost))) < 1.035
    assert sum(loss > LOST for loss in lost) < 0.05 * len(lost)
    assert max(lost) < 2


def test_every_rung_that_networks_layers_need_has_an_estimate():
    assert all(rung.time for rung in LADDER if rung.takes)
    conv = Conv(C=8, H=9, W=9, M=8, R=3, S=3)
    unknown = RUNGS["direct"]
    assert estimate(BoundRung(unknown, conv, unknown.resolve(conv, {})), 1) == inf


@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.time], ids=lambda rung: rung.name)
def test_candidates_have_estimates_that_grow_with_the_batch(rung):
    names = "alexnet", "resnet50", "depthwise", "first-last", "resnext-regnet"
    layers = [conv for name in names for conv in WORKLOADS[name].layers]
    taken = [conv for conv in layers if not rung.refuses(Problem(conv, 1, rung.resolve(conv, {})))]
    for conv in (taken[0], taken[-1]):
        assert all(0 < estimate(bound, 8) < inf for bound in candidates(rung, conv, 8, H200) if not bound.refusal())
        few, many = (best(rung, conv, N, H200) for N in (1, 512))
        assert few and many and few[0] < many[0]


def test_few_outputs_get_small_tiles():
    conv = WORKLOADS["resnet50"].layer(23)
    few, many = (best(RUNGS["wgmma-half"], conv, N, H200) for N in (1, 512))
    assert few and many
    tiles = [bound.constants["TILE_PIXELS"] * bound.constants["TILE_FILTERS"] for _, bound in (few, many)]
    assert tiles[0] < tiles[1]


def test_long_sums_are_slow_with_one_thread_per_output():
    """A thread takes its taps one after the other, so long sums are slow even with few outputs."""
    conv = WORKLOADS["convnet-benchmarks"].layer(64)
    half, slices = (best(RUNGS[name], conv, 1, H200) for name in ("direct-any-half", "wgmma-half-split-k"))
    assert half and slices and half[0] > 50 > slices[0]


def test_tiles_of_a_single_warpgroup_are_for_few_outputs_and_even_stages():
    layers = WORKLOADS["convnet-benchmarks"]
    sizes = [
        best(RUNGS["wgmma-half-split-k"], layers.layer(number), N, H200)[1].constants["TILE_PIXELS"]
        for number, N in ((39, 1), (53, 32), (39, 512))  # 512, 528 and 512 channels
    ]
    assert sizes[0] == 64 < min(sizes[1:])
    even, *others = (
        best(RUNGS["wgmma-floats"], layers.layer(number), 32, H200)[1].constants["TILE_PIXELS"]
        for number in (44, 52, 53)  # 512, 528 and 528 channels
    )
    assert even == 64 < min(others)


def test_nearly_empty_stages_take_longer_than_cuda_cores():
    conv = WORKLOADS["vgg16"].layer(1)
    for N in (1, 32, 128):
        few, blocked = (best(RUNGS[name], conv, N, H200) for name in ("direct-few-half", "wgmma-half-blocked"))
        assert few and blocked and few[0] < blocked[0]
