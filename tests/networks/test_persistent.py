"""A network as one persistent kernel, on resident blocks of the host executor: outputs, planted faults, refusals."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from compilers import needs_gcc
from ladders import planted

from alexconv.check.__main__ import main
from alexconv.check.networks import async_hazards, correct, host, image, planned
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.problem import H200
from alexconv.networks.checks import checked_stages
from alexconv.networks.measuring import opened
from alexconv.networks.plan import NetworkPoint, plan_network
from alexconv.networks.schedules import SCHEDULES, fastest
from alexconv.networks.tables import NETWORKS
from alexconv.planning.planner import DoesNotFit

PERSISTENT = SCHEDULES["persistent"]
AHEAD, EAGER = 0, 7  # orders of threads: blocks run ahead as far as they can; their turns end with each arrival


def test_every_stage_keeps_its_bound_whatever_the_blocks_and_their_order():
    scores, x = [], image()
    for order, blocks in ((AHEAD, 1), (AHEAD, 3), (EAGER, 3), (1, 40)):
        executor = host("unoptimized", order, blocks)
        with opened(executor, planned(executor)) as network:
            errors, whole, of_run = checked_stages(network.plan, x, network.stage_outputs, generated=True)
            assert [error for error in errors if not error.passes] == []
            assert whole.passes
            assert 0 < whole.error < 5e-3
            scores += [of_run, network.scores(x)]  # the second launch begins with the counters that the first left
    assert [error.stage for error in errors] == ["conv1+pool1", "conv2", "conv3+pool3", "linear4", "linear5"]
    assert all(np.array_equal(scores[0], other) for other in scores)


def test_the_command_checks_it(capsys):
    assert main(["persistent-half", "--kinds", "correct,exact"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["persistent-half", "correct", "ok"]


WAIT = "if (threadIdx.x == 0) wait_for_arrivals(all.counters + s - 1, Tiling<s - 1>::TILES);"
BUGS = {
    "no wait for the stage before": (AHEAD, WAIT, "", "conv2"),
    "a wait for too few tiles": (AHEAD, "Tiling<s - 1>::TILES);", "Tiling<s - 1>::TILES / 2);", "conv2"),
    "other threads do not wait": (EAGER, "__syncthreads();  // the stage before is complete", "", "conv2"),
    "an arrival before all outputs are stored": (
        EAGER,
        "__syncthreads();  // all outputs of the block's tiles are stored",
        "",
        "conv2",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_missing_wait_is_found(bug, tmp_path):
    order, right, wrong, stage = BUGS[bug]
    problems = correct(partial(planted, right=right, wrong=wrong, folder=tmp_path), "unoptimized", [order])
    assert stage in [problem.partition(":")[0] for problem in problems]


def test_blocks_that_wait_for_each_other_for_ever_are_a_deadlock(tmp_path):
    change = partial(planted, right="Tiling<s - 1>::TILES);", wrong="Tiling<s - 1>::TILES + 1);", folder=tmp_path)
    (problem,) = correct(change, "unoptimized", [AHEAD])
    assert re.search(r"deadlock: waits at persistent.cu:\d+ for arrivals of blocks that all wait", problem)


@needs_gcc
def test_a_block_has_no_hazard():
    assert list(async_hazards()) == []


HAZARDS = {
    "weights are read before they arrive": ("mbarrier_wait(arrived + slot, parity);", ""),
    "sums are overwritten": ("__syncthreads();  // no thread still reads the patch, or sums that are in its place", ""),
    "a patch is not complete": ("__syncthreads();  // the patch is complete", ""),
    "sums of the tile before are overwritten": (
        "__syncthreads();  // no thread still reads the sums of the tile before",
        "",
    ),
    "rows of the image are not complete": (
        "__syncthreads();  // the rows are in `image`, the filters in `fragments`",
        "",
    ),
    "the first filters are read before they arrive": (
        "copy_async_wait_group<0>();\n            __syncthreads();",
        "__syncthreads();",
    ),
    "a tile is not complete": ("__syncthreads();  // the tile is in `outputs`", ""),
}


@needs_gcc
@pytest.mark.parametrize("hazard", HAZARDS)
def test_a_planted_hazard_is_found(hazard, tmp_path):
    right, wrong = HAZARDS[hazard]
    assert list(async_hazards(partial(planted, right=right, wrong=wrong, folder=tmp_path)))


@pytest.mark.parametrize(
    "name, N, precision, changes, message",
    [
        ("alexnet-torchvision", 2, "fp16", {}, "the schedule persistent takes one image, not 2"),
        ("alexnet-torchvision", 1, "fp32", {}, "the schedule persistent has the class fp16, not fp32"),
        ("alexnet-torchvision", 1, "tf32", {}, "the schedule persistent has the class fp16, not tf32"),
        ("alexnet-2012", 1, "fp16", {}, "takes convolutions, poolings after them and linear layers, not norm1"),
        ("lenet-86-k7", 1, "fp16", {}, "does not take this network: a layer has no bias"),
        (
            "alexnet-torchvision",
            1,
            "fp16",
            {"shared_per_block": 99 * 1024},
            "bytes of shared memory, a block has 101376",
        ),
        ("alexnet-torchvision", 1, "fp16", {"capability": (8, 0)}, "needs compute capability 9.0, this GPU has 8.0"),
    ],
)
def test_what_does_not_fit_is_one_line_and_has_another_schedule(name, N, precision, changes, message):
    executor, network = HostExecutor(device=replace(H200, **changes)), NETWORKS[name]
    with pytest.raises(DoesNotFit, match=message):
        plan_network(executor, NetworkPoint(network, N, precision, PERSISTENT), (None,) * len(network.stages))
    usual = "dependent" if precision == "fp16" else "terms"
    assert fastest(network.stages, N, precision, executor.device).name == usual


def test_one_kernel_is_the_schedule_of_a_network_that_it_takes():
    assert fastest(NETWORKS["alexnet-torchvision"].stages, 1, "fp16", H200) == PERSISTENT
