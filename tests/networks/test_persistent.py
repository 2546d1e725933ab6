"""A network as one persistent kernel, on resident blocks of the host executor: outputs, planted faults, refusals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compilers import needs_gcc
from ladders import planted

from alexconv.check.hazards import BUILD, Schedule, watch_launch
from alexconv.errors import LaunchError
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.problem import H200
from alexconv.networks.checks import checked_stages
from alexconv.networks.measuring import opened
from alexconv.networks.plan import NetworkPlan, as_stored, plan_network
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.stages import convolution, linear, max_pooling
from alexconv.networks.tables import NETWORKS, Network
from alexconv.networks.weights import generated, images, stored_as
from alexconv.planning.planner import DoesNotFit
from alexconv.shapes import Conv

PERSISTENT = SCHEDULES["persistent"]
AHEAD, EAGER = 0, 7  # orders of threads: blocks run ahead as far as they can; their turns end with each arrival
MULTIPROCESSORS = 3


def small() -> Network:
    """A first stage of few channels, stages with and without pooling, partial tiles, slices of depth that are empty."""
    stages = [convolution("conv1", Conv(3, 31, 28, 64, 5, 4, 4, top=1, bottom=1, left=2, right=2))]
    stages.append(max_pooling("pool1", stages[-1], 3, 2))
    stages.append(convolution("conv2", Conv(64, 3, 3, 96, 3, 3, top=1, bottom=1, left=1, right=1)))
    stages.append(convolution("conv3", Conv(96, 3, 3, 40, 3, 3, top=1, bottom=1, left=1, right=1)))
    stages.append(max_pooling("pool3", stages[-1], 2, 1))
    stages.append(linear("linear4", stages[-1], 64, relu=True))
    return Network("small", (*stages, linear("linear5", stages[-1], 11, relu=False)), "for tests")


def host(order: int = AHEAD, build: str = "unoptimized", multiprocessors: int = MULTIPROCESSORS) -> HostExecutor:
    return HostExecutor(build, order, device=replace(H200, multiprocessors=multiprocessors))


def planned(executor: HostExecutor) -> NetworkPlan:
    return plan_network(executor, small(), stored_as(generated(small()), "fp16"), PERSISTENT, 1, "fp16")


def faulty(executor: HostExecutor, right: str, wrong: str, folder: Path) -> NetworkPlan:
    """The plan with a bug in its kernel."""
    plan = planned(executor)
    assert plan.whole
    bound = replace(plan.whole.bound, rung=planted(plan.whole.bound.rung, right, wrong, folder))
    return replace(plan, whole=replace(plan.whole, bound=bound))


def wrong_stages(executor: HostExecutor, plan: NetworkPlan) -> list[str]:
    """The stages whose outputs exceed their bounds, NaN included."""
    with opened(executor, plan) as network:
        errors, _, _ = checked_stages(plan, images(small(), 0, 1), network.stage_outputs, generated=True)
    return [error.stage for error in errors if not error.passes]


def test_every_stage_keeps_its_bound_whatever_the_blocks_and_their_order():
    scores, x = [], images(small(), 0, 1)
    for order, multiprocessors in ((AHEAD, 1), (AHEAD, MULTIPROCESSORS), (EAGER, MULTIPROCESSORS), (1, 40)):
        executor = host(order, multiprocessors=multiprocessors)
        plan = planned(executor)
        with opened(executor, plan) as network:
            errors, whole, of_run = checked_stages(plan, x, network.stage_outputs, generated=True)
            assert [error for error in errors if not error.passes] == []
            assert whole.passes
            assert 0 < whole.error < 5e-3
            scores += [of_run, network.scores(x)]  # the second launch begins with the counters that the first left
    assert [error.stage for error in errors] == ["conv1+pool1", "conv2", "conv3+pool3", "linear4", "linear5"]
    assert all(np.array_equal(scores[0], other) for other in scores)


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
    executor = host(order)
    assert stage in wrong_stages(executor, faulty(executor, right, wrong, tmp_path))


def test_blocks_that_wait_for_each_other_for_ever_are_a_deadlock(tmp_path):
    executor = host()
    plan = faulty(executor, "Tiling<s - 1>::TILES);", "Tiling<s - 1>::TILES + 1);", tmp_path)
    with pytest.raises(LaunchError, match=r"deadlock: waits at persistent.cu:\d+ for arrivals of blocks that all wait"):
        wrong_stages(executor, plan)


def hazards_of(executor: HostExecutor, plan: NetworkPlan) -> list[str]:
    """Hazards within a block, which runs alone."""
    assert plan.whole
    bound, module = plan.whole.bound, executor.load(plan.whole.bound).module
    values = {
        **as_stored(plan.whole, plan),
        "x": np.ascontiguousarray(images(small(), 0, 1).transpose(0, 2, 3, 1), "e"),
    }
    buffers = {name: executor.runtime.allocate(size, name) for name, size in plan.sizes(1).items()}
    for buffer in buffers.values():
        buffer.bytes[:] = 0xFF
    named = {name: buffers[array] for name, array in plan.whole.arrays.items()}
    for name, array in values.items():
        named[name].array(array.dtype, array.shape)[:] = array
    (launch,) = bound.launches(1)
    hazards, failure = watch_launch(module, launch, [named[name] for name in launch.args], Schedule("latest"))
    return [hazard.missing for hazard in hazards] + ([failure] if failure else [])


@needs_gcc
def test_a_block_has_no_hazard():
    executor = host(build=BUILD, multiprocessors=1)
    assert hazards_of(executor, planned(executor)) == []


HAZARDS = {
    "a slot is filled while lanes read it": ("__syncwarp();  // every lane has read its weights", ""),
    "weights are read before they arrive": ("mbarrier_wait(&arrivals[taken], parity);", ""),
    "sums are overwritten": ("__syncthreads();  // no thread still reads `partial` or `outputs`", ""),
    "rows of the image are not complete": ("__syncthreads();  // the rows are in `image`", ""),
    "a tile is not complete": ("__syncthreads();  // the tile is in `outputs`", ""),
}


@needs_gcc
@pytest.mark.parametrize("hazard", HAZARDS)
def test_a_planted_hazard_is_found(hazard, tmp_path):
    executor = host(build=BUILD, multiprocessors=1)
    assert hazards_of(executor, faulty(executor, *HAZARDS[hazard], tmp_path))


@pytest.mark.parametrize(
    "name, N, precision, changes, message",
    [
        ("alexnet-torchvision", 2, "fp16", {}, "the schedule persistent takes one image, not 2"),
        ("alexnet-torchvision", 1, "fp32", {}, "the schedule persistent has the class fp16, not fp32"),
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
def test_what_does_not_fit_is_one_line(name, N, precision, changes, message):
    executor, network = HostExecutor(device=replace(H200, **changes)), NETWORKS[name]
    with pytest.raises(DoesNotFit, match=message):
        plan_network(executor, network, (None,) * len(network.stages), PERSISTENT, N, precision)
