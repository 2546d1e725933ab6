"""Every rung on a real GPU: against the reference under every transfer, and exactly on integers."""

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest
from points import batch_of, point_of
from rung_runs import PLENTY, compile_ahead, run_once

from alexconv import ceilings
from alexconv.cpu_reference.reference import reference
from alexconv.executors import choose_executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.geometry import HOPPER
from alexconv.kernels.ladder import GRADIENTS, LADDER, RUNGS
from alexconv.kernels.rung import MICRO_BATCH, Rung
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.checks import exact_inputs
from alexconv.planning.planner import DoesNotFit, plan
from alexconv.planning.points import Point
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import PRECISIONS
from alexconv.shapes import WORKLOADS, Conv

pytestmark = pytest.mark.gpu

# A rung computes the first of these that it takes; every rung takes one.
ODD = (
    Conv(C=5, H=23, W=19, M=7, R=4, S=3, U=2),
    Conv(C=16, H=23, W=19, M=7, R=4, S=3),
    Conv(C=16, H=13, W=11, M=16, R=3, S=3, groups=16),
    Conv(C=16, H=13, W=11, M=14, R=3, S=3, groups=2),
    Conv(C=16, H=13, W=11, M=3, R=3, S=3),
    Conv(C=16, H=13, W=11, M=16, R=3, S=3),
)
PADDED = Conv(C=8, H=13, W=11, M=16, R=3, S=3, top=1, bottom=1, left=1, right=1)
ODD_GRADIENTS = (PADDED, replace(PADDED, U=2))
ALEXNET_GRADIENTS = (3, 1)  # layers


def takes(rung: Rung, conv: Conv) -> bool:
    return not BoundRung(rung, conv, rung.resolve(conv, {})).refusal()


# By rung, the first that it takes; one that takes none is noticed where the tests are collected, on any machine.
ODD_OF = {rung.name: next(conv for conv in ODD if takes(rung, conv)) for rung in LADDER} | {
    rung.name: next(conv for layer in ODD_GRADIENTS if takes(rung, conv := layer.toward(rung.direction)))
    for rung in GRADIENTS
}
LAYER_OF = {
    rung.name: next(
        layer for layer in ALEXNET_GRADIENTS if takes(rung, WORKLOADS["alexnet"].layer(layer).toward(rung.direction))
    )
    for rung in GRADIENTS
}


@pytest.fixture(scope="module")
def cuda(request):
    executor = choose_executor("cuda")
    compile_ahead(request, executor, partial(bound_of, executor))
    return executor


def bound_of(executor, rung, conv=None, layer=None, **others):
    """The bound rung that a test with these parameters compiles."""
    conv = conv or (WORKLOADS["alexnet"].layer(layer) if layer else ODD_OF[rung.name])
    return BoundRung(rung, conv, rung.resolve(conv, {}), executor.device)


@pytest.mark.parametrize("layer", range(1, 6))
@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_alexnet_layer_is_right_and_timed(cuda, rung, layer):
    conv = WORKLOADS["alexnet"].layer(layer)
    point = point_of(batch_of("alexnet", layer, 3), rung)
    record = Runner(cuda, [point], Settings(seconds=0.0, baseline=False)).record(point)
    if reason := BoundRung(rung, conv, point.constants, cuda.device).refusal():
        assert (record["status"], record["reason"]) == ("skipped", reason)
        return
    assert record["status"] == "ok", record["reason"]
    assert all(min(values) > 0 for name, values in record["samples"].items())
    prepared = {"prepare"} if rung.prepare else set()
    assert {"kernel", "kernel_cold", "h2d", "d2h", "total"} | prepared == set(record["samples"])


TAKEN = [  # by precision, so that rungs in a row share one reference
    pytest.param(rung, conv, N, id=f"{rung.name}-{number}-{N}")
    for N in (1, 3, 128)
    for number, conv in enumerate(WORKLOADS["alexnet"].layers, start=1)
    for rung in sorted(LADDER, key=lambda rung: list(PRECISIONS).index(rung.precision))
    if not BoundRung(rung, conv, rung.resolve(conv, {})).refusal()
]


@lru_cache(maxsize=1)
def integers(conv, N, precision):
    """Inputs, filters, and their convolution."""
    x, w = exact_inputs(conv, N, PRECISIONS[precision], seed=2)
    return x, w, reference(conv, x, w)


@pytest.mark.parametrize("rung, conv, N", TAKEN)
def test_alexnet_layer_is_exact_on_integers(cuda, rung, conv, N):
    bound = bound_of(cuda, rung, conv)
    if reason := bound.refusal():
        pytest.skip(reason)
    x, w, expected = integers(conv, N, rung.precision)
    y = run_once(cuda, x, w, plan(bound, N, PLENTY))
    np.testing.assert_array_equal(y.astype(np.float32), expected)


@pytest.mark.parametrize("layer", [3, 4, 5])
@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.family == "mma"], ids=lambda rung: rung.name)
def test_split_k_in_clusters_gives_the_bits_that_it_gives_through_global_memory(cuda, rung, layer):
    if cuda.device.capability < HOPPER:
        pytest.skip("clusters need Hopper")
    conv, draw = WORKLOADS["alexnet"].layer(layer), np.random.default_rng(layer)
    constants = rung.resolve(conv, {"SPLITS": 4, "CHANNELS": conv.C // 4}, 1, cuda.device)
    alone, together = (
        plan(BoundRung(rung, conv, constants | {"CLUSTER": blocks}, cuda.device), 1, PLENTY) for blocks in (1, 4)
    )
    assert (alone.bound.refusal(), together.bound.refusal()) == (None, None)
    x, w = (draw.uniform(-1, 1, shape).astype(np.float32) for shape in (conv.x_shape(1), conv.w_shape()))
    expected = run_once(cuda, x, w, alone)
    assert np.isfinite(expected).all()
    for _ in range(3):
        np.testing.assert_array_equal(run_once(cuda, x, w, together), expected)
    x, w, expected = integers(conv, 1, rung.precision)
    np.testing.assert_array_equal(run_once(cuda, x, w, together).astype(np.float32), expected)


def test_dynamic_and_static_shared_memory_together_exceed_what_needs_no_opt_in(cuda):
    conv, rung = Conv(C=528, H=12, W=12, M=256, R=1, S=1), RUNGS["mma-scaled"]
    chosen = {
        "TILE_PIXELS": 40,
        "TILE_FILTERS": 32,
        "CHANNELS": 132,
        "STAGES": 4,
        "SPLITS": 4,
        "WARPS": 8,
        "WARPS_DOWN": 1,
    }
    cut = plan(BoundRung(rung, conv, rung.resolve(conv, chosen, 1, cuda.device), cuda.device), 1, PLENTY)
    dynamic, static = cuda.load(cut.bound).launches(1)[-1]["dynamic_shared"], 48
    assert dynamic <= 48 * 1024 < dynamic + static
    x, w, expected = integers(conv, 1, rung.precision)
    np.testing.assert_array_equal(run_once(cuda, x, w, cut), expected)


@pytest.mark.parametrize("name", ["wgmma-half", "wgmma-split"])
def test_pieces_of_two_sizes_are_timed_in_streams(cuda, name):
    point = point_of(batch_of("alexnet", 2, 11), name, transfer="streamed:4")
    record = Runner(cuda, [point], Settings(seconds=0.0, baseline=False)).record(point)
    assert record["status"] == "ok", record["reason"]
    assert 11 % record["images_per_piece"], "the last piece is smaller"


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_micro_batches_come_out_exactly(cuda, transfer):
    rung, how = RUNGS["wgmma-window-scaled"], TRANSFERS[transfer]
    x, w = exact_inputs(ODD[0], 170, PRECISIONS[rung.precision], seed=4)
    constants = rung.resolve(ODD[0], {MICRO_BATCH: 32})
    cut = plan(BoundRung(rung, ODD[0], constants, cuda.device), 170, 1 << 30, how.streams, how.pieces_at_least)
    y = run_once(cuda, x, w, cut, how)
    np.testing.assert_array_equal(y.astype(np.float32), reference(ODD[0], x, w))


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_integers_come_out_exactly_under_every_transfer(cuda, rung, transfer):
    conv = ODD_OF[rung.name]
    x, w = exact_inputs(conv, 9, PRECISIONS[rung.precision], seed=1)
    how = TRANSFERS[transfer]
    cut = plan(bound_of(cuda, rung, conv), 9, 1 << 30, how.streams, how.pieces_at_least)
    y = run_once(cuda, x, w, cut, how)
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w))


@pytest.mark.parametrize("factors", ceilings.FACTORS)
def test_the_tensor_cores_ceilings_are_of_products_that_are_made(cuda, factors):
    ones = np.ones_like(ceilings.operands_of("random", factors))
    for target in ceilings.tensor_instructions(cuda.gpu.arch).values():
        _, sums = ceilings.tensor_products(cuda.gpu, target, factors, ones, 10)
        assert set(sums) == {10.0 * ones.shape[1] * ceilings.TILE / 128}


@pytest.mark.parametrize("rung", GRADIENTS, ids=lambda rung: rung.name)
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_gradients_of_integers_come_out_exactly_under_every_transfer(cuda, rung, transfer):
    """A batch whose outputs are sums over its images is never cut."""
    bound, how = bound_of(cuda, rung), TRANSFERS[transfer]
    x, w = exact_inputs(bound.conv, 9, PRECISIONS[rung.precision], seed=1)
    if bound.roles.sums_images and how.pieces_at_least > 1:
        with pytest.raises(DoesNotFit, match="which a transfer in pieces would cut"):
            plan(bound, 9, 1 << 30, how.streams, how.pieces_at_least)
        return
    cut = plan(bound, 9, 1 << 30, how.streams, how.pieces_at_least)
    y = run_once(cuda, x, w, cut, how)
    np.testing.assert_array_equal(y.astype(np.float32), reference(bound.conv, x, w))


@pytest.mark.parametrize("rung", GRADIENTS, ids=lambda rung: rung.name)
def test_gradients_of_an_alexnet_layer_are_right_timed_and_the_same_each_time(cuda, rung):
    point = Point.with_defaults(batch_of("alexnet", LAYER_OF[rung.name], 3), rung, cuda.device)
    record = Runner(cuda, [point], Settings(seconds=0.0, baseline=False)).record(point)
    assert record["status"] == "ok", record["reason"]
    assert record["samples"]["kernel"]
    assert record["audit"]["differing"] == 0
    assert record["audit"].keys() >= ({"digests"} if not rung.order_varies else set())
