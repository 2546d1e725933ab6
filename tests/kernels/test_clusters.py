"""Split-K in clusters (CLUSTER of the mma rungs), whose blocks store to each other's shared memory, on the host."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compilers import needs_gcc
from ladders import planted
from rung_runs import assert_exact, run_once, whole

from alexconv.check.hazards import BUILD, Inputs, Schedule, watch_rung
from alexconv.errors import LaunchError
from alexconv.executors import choose_executor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.executors.interface import in_rung_layout
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import Rung
from alexconv.planning.checks import exact_bias, exact_inputs
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

SPLIT = [rung for rung in LADDER if rung.family == "mma"]
GRADIENTS = [ALL_DIRECTIONS.named[name] for name in ("dgrad-mma-half", "dgrad-mma-split")]
DEEP = Conv(C=40, H=9, W=11, M=24, R=3, S=3, top=1, bottom=1, left=1, right=1, bias=True, relu=True)
ODD = (  # with a slice that has fewer channels; groups; a stride and few columns; shares of part of a warp
    (DEEP, 2, {"TILE_PIXELS": 48, "TILE_FILTERS": 32}),
    (replace(DEEP, C=64, groups=2, bias=False), 4, {"TILE_PIXELS": 40, "TILE_FILTERS": 32}),
    (Conv(C=9, H=13, W=6, M=7, R=3, S=2, U=2, bias=True), 2, {"TILE_PIXELS": 16, "TILE_FILTERS": 32, "WARPS": 4}),
    (replace(DEEP, C=67, M=5), 8, {"TILE_PIXELS": 40, "TILE_FILTERS": 32, "WARPS": 16}),
)
UNIFORM = np.random.default_rng(3)


@pytest.fixture(scope="module")
def host():
    return choose_executor("host", host_build="unoptimized")


def in_clusters(rung: Rung, conv: Conv, blocks: int, *, cluster: int | None = None, **chosen: int) -> BoundRung:
    """A rung whose tiles have so many blocks, in clusters of as many unless others are asked for."""
    channels = -(-rung.posed(conv).one_group.C // blocks)
    chosen |= {"SPLITS": blocks, "CHANNELS": channels, "CLUSTER": cluster or blocks}
    bound = BoundRung(rung, conv, rung.resolve(conv, chosen))
    assert bound.refusal() is None
    assert bound.launches(1)[0].cluster == (cluster or blocks)
    return bound


@pytest.mark.parametrize("odd", range(len(ODD)))
@pytest.mark.parametrize("rung", SPLIT, ids=lambda rung: rung.name)
def test_integers_come_out_exactly_on_odd_shapes(host, rung, odd):
    conv, blocks, tile = ODD[odd]
    bound = in_clusters(rung, conv, blocks, **tile)
    assert sum(bound.piece_bytes(1)[name] for name in ("partial", "arrived")) == 8, "no sums in global memory"
    assert_exact(host, bound, 2)


@pytest.mark.parametrize("rung", GRADIENTS, ids=lambda rung: rung.name)
def test_gradients_of_integers_come_out_exactly(host, rung):
    conv = Conv(C=24, H=9, W=11, M=40, R=3, S=3, top=1, bottom=1, left=1, right=1).toward(rung.direction)
    assert_exact(host, in_clusters(rung, conv, 2, TILE_PIXELS=48, TILE_FILTERS=32), 2)


@pytest.mark.parametrize("rung", SPLIT, ids=lambda rung: rung.name)
def test_sums_have_the_bits_that_they_have_through_global_memory(rung):
    """Values from tiny to large, so that a range of the scaled rungs is exceeded; in two orders of threads."""
    conv = replace(DEEP, bias=False)
    x, w = (UNIFORM.uniform(-1, 1, shape).astype(np.float32) for shape in (conv.x_shape(2), conv.w_shape()))
    x[1, :, 4] *= np.float32(2.0**-12)
    outputs = []
    for cluster, order in ((1, 0), (4, 0), (4, 1)):
        bound = in_clusters(rung, conv, 4, cluster=cluster, TILE_PIXELS=48, TILE_FILTERS=32)
        cut = whole(rung, conv, 2, **bound.constants)
        outputs.append(run_once(choose_executor("host", host_order=order), x, w, cut))
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


def test_clusters_that_cannot_be_are_refused():
    rung = SPLIT[0]

    def reason(device=H200, **chosen: int) -> str | None:
        constants = rung.resolve(DEEP, {"SPLITS": 2, "CHANNELS": 20, "CLUSTER": 2, **chosen}, 1, device)
        return rung.refuses(Problem(DEEP, 1, constants, device))

    assert reason() is None
    assert reason(replace(H200, capability=(8, 9))) == "clusters need compute capability 9.0"
    assert reason(replace(H200, capability=(8, 9)), CLUSTER=1) is None
    assert reason(CLUSTER=4) == "a cluster of 4 blocks, and a tile has 2"
    assert reason(SPLITS=4, CHANNELS=40) == "a cluster of 2 blocks, and a tile has 1"
    with pytest.raises(ValueError, match=r"CLUSTER of .* is 1, 2, 4, 8, not 3"):
        reason(CLUSTER=3)


NO_WAIT = ("mbarrier_wait(arrived, 0);", "")
WAIT = "a wait for the phase of the mbarrier at which the copy's bytes count"


@pytest.mark.parametrize(
    ("bug", "message"),
    [(("cluster_wait();", ""), "the barrier is not initialised"), (NO_WAIT, "that block of the cluster has ended")],
)
def test_a_missing_wait_is_named(host, tmp_path: Path, bug: tuple[str, str], message: str):
    rung = planted("mma-half", *bug, tmp_path)
    with pytest.raises(LaunchError, match=message):
        assert_exact(host, in_clusters(rung, DEEP, 2, TILE_PIXELS=48, TILE_FILTERS=32), 1)


BUGS = {
    "a block too few": ("split < CLUSTER; ++split)", "split < CLUSTER - 1; ++split)"),
    "the other block's share": ("outputs[i], arrived, to);", "outputs[i], arrived, to ^ 1);"),
    "the other block's sums": ("sender(rank, to) * BLOCK_SHARE", "sender(rank, 0) % 1 * BLOCK_SHARE"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(host, tmp_path: Path, bug: str):
    """In the order in which a block runs as far as it can before the next one does."""
    rung = planted("mma-half", *BUGS[bug], tmp_path)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        assert_exact(host, in_clusters(rung, DEEP, 2, TILE_PIXELS=48, TILE_FILTERS=32), 1)


@needs_gcc
@pytest.mark.parametrize("name", ["mma-half", "mma-split"])
def test_a_block_alone_has_no_hazard_and_a_missing_wait_is_one(tmp_path: Path, name: str):
    """One block is watched at a time, which gets its own sums in place of the others'."""
    wrong = planted(name, *NO_WAIT, tmp_path)
    for rung, missing in ((ALL_DIRECTIONS.named[name], set()), (wrong, {WAIT, "a barrier between the two"})):
        bound = in_clusters(rung, DEEP, 2, TILE_PIXELS=48, TILE_FILTERS=32)
        (x, w), bias = exact_inputs(DEEP, 1, PRECISIONS[rung.precision], seed=1), exact_bias(DEEP, seed=1)
        inputs = Inputs(in_rung_layout(x, "x", rung), in_rung_layout(w, "w", rung), bias.astype(rung.dtype))
        run = watch_rung(HostRuntime(build=BUILD), bound, inputs, Schedule("latest"))
        assert run.failure is None
        assert {hazard.missing for hazard in run.hazards} == missing


def test_records_from_before_clusters_are_of_rungs_without():
    rung = SPLIT[0]
    constants = rung.resolve(DEEP, {})
    assert constants.pop("CLUSTER") == 1
    assert rung.recorded(constants) == rung.resolve(DEEP, {})
    assert rung.recorded({**constants, "CLUSTER": 4})["CLUSTER"] == 4
