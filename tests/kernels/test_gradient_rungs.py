"""Every rung of dgrad and wgrad on the host executor: exactly on integers, within its bound on hard data, same bits."""

from dataclasses import replace

import numpy as np
import pytest
from attack_size import in_turn
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ladders import planted
from points import batch_of
from rung_runs import assert_exact, run_once, whole

from alexconv.cpu_reference.reference import reference
from alexconv.executors import choose_executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import GRADIENTS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.checks import exact_inputs
from alexconv.planning.points import Batch, Point
from alexconv.precisions import PRECISIONS
from alexconv.shapes import DGRAD, WGRAD, Conv

HOST_RUNGS = [rung for rung in GRADIENTS if not rung.gpu_only]
each_rung = pytest.mark.parametrize("rung", HOST_RUNGS, ids=lambda rung: rung.name)
ORDERS = (0, 1, 7)  # forward, reverse, a random order of a block's threads
HARD = ("heavy-tail", "scales-images", "constant", "subnormal", "overflow", "non-finite")
USUAL = Conv(C=8, H=9, W=10, M=16, R=3, S=3, top=1, bottom=1, left=1, right=1)
STRIDED = replace(USUAL, U=2)  # for rungs that take nothing else
IMAGES = 4  # of USUAL and STRIDED


@pytest.fixture(scope="module")
def host():
    return choose_executor("host")


@pytest.fixture(scope="module")
def host_unoptimized():
    """For small layers, which take longer to compile than to compute."""
    return choose_executor("host", host_build="unoptimized")


def refused(rung, conv):
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, {})))


def layer_of(rung):
    """A layer that a rung takes."""
    return STRIDED if refused(rung, USUAL.toward(rung.direction)) else USUAL


EVERY_OTHER_FIRST = [*HOST_RUNGS[::2], *HOST_RUNGS[1::2]]


@pytest.mark.parametrize("rung", in_turn(EVERY_OTHER_FIRST, 0, of=len(HOST_RUNGS) // 2), ids=lambda rung: rung.name)
def test_an_alexnet_layer_against_the_cached_reference(host, rung):
    (layer, *_) = [
        layer for layer in (1, 3) if not refused(rung, batch_of("alexnet", layer, 1).toward(rung.direction).conv)
    ]
    point = Point.with_defaults(batch_of("alexnet", layer, 1), rung)
    record = Runner(host, [point], Settings(baseline=False)).record(point)
    assert record["status"] == "ok", record["reason"]
    assert 0 < record["error"]["scaled"] <= record["error"]["tolerance"]
    assert record["point"]["direction"] == rung.direction


@st.composite
def odd_layers(draw, rung: Rung) -> Conv:
    """A layer with strides up to 4, and of padding, stride pairs, dilation and groups those that a rung takes."""
    takes, turns = rung.takes, rung.direction == DGRAD and bool(rung.prepared)

    def drawn(feature: str, most: int, otherwise: int) -> int:
        return draw(st.integers(otherwise, most)) if feature in takes else otherwise

    R, S = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    turns, strides = turns and not refused(rung, USUAL.toward(rung.direction)), (1, 1, 2, 4)
    U = 1 if turns else draw(st.sampled_from(strides if layer_of(rung) is USUAL else strides[2:]))
    reach = min(R, S) - 1 if turns else 4
    around = {side: drawn("padding", reach, 0) for side in ("top", "bottom", "left", "right")}
    apart, columns_apart = drawn("dilation", 3, 1), drawn("dilation", 3, 1)
    groups = drawn("groups", 3, 1)
    H = max(1, (R - 1) * apart + 1 - around["top"] - around["bottom"]) + draw(st.integers(0, 12))
    W = max(1, (S - 1) * columns_apart + 1 - around["left"] - around["right"]) + draw(st.integers(0, 12))
    counts = (8, 16, 40) if rung.layout == "nhwc" else (1, 2, 3, 8, 17, 35)
    C, M = (groups * draw(st.sampled_from(counts)) for _ in range(2))
    more = {"V": drawn("stride pairs", 3, 0), "dilation_rows": apart, "dilation_columns": columns_apart}
    return Conv(C, H, W, M, R, S, U, groups=groups, **around, **more)


@each_rung
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data(), N=st.integers(1, 4))
def test_integers_come_out_exactly_on_odd_shapes(host_unoptimized, rung, data, N):
    conv = data.draw(odd_layers(rung)).toward(rung.direction)
    chosen = {
        constant.name: data.draw(st.sampled_from(constant.choices) if constant.choices else st.integers(1, 3))
        for constant in rung.constants
        if data.draw(st.booleans())
    }
    bound = BoundRung(rung, conv, rung.resolve(conv, chosen, N))
    assume(bound.refusal() is None)
    assert_exact(host_unoptimized, bound, N)


@pytest.mark.parametrize(
    "rung, data",
    [
        pytest.param(rung, data, id=f"{rung.name}-{data}")
        for place, rung in enumerate(HOST_RUNGS)
        for data in in_turn(HARD, place, of=3)
    ],
)
def test_outputs_keep_the_bound_of_their_class_on_hard_data(host, rung, data):
    batch = Batch("made up", 1, layer_of(rung), IMAGES, data)
    point = Point.with_defaults(batch, rung)
    record = Runner(host, [point], Settings(baseline=False)).record(point)
    assert record["status"] == "ok", record["reason"]


@pytest.mark.parametrize("name", ["wgrad-wgmma-scaled", "wgrad-wgmma-split"])
def test_channels_of_zeros_and_of_small_values_beside_padding_keep_their_gradients(host, name):
    rung, conv = GRADIENTS.named[name], replace(USUAL, C=3, M=11).toward(WGRAD)
    draw = np.random.default_rng(0)
    x, dy = (draw.uniform(0.5, 1, conv.shape_of(array, 2)).astype("f4") for array in (conv.roles.x, conv.roles.w))
    x[:, 1], dy[:, 2] = 0, 0
    x[:, 2] *= 2.0**-70
    dy[:, 3] *= 2.0**50
    expected = reference(conv, x, dy)
    dw = run_once(host, x, dy, whole(rung, conv, 2))
    assert not dw[:, 1].any()
    assert not dw[2].any()
    np.testing.assert_allclose(dw, expected, rtol=1e-3 if rung.precision == "tf32" else 1e-6)


@pytest.mark.parametrize("rung", [rung for rung in HOST_RUNGS if not rung.order_varies], ids=lambda rung: rung.name)
def test_the_order_of_threads_changes_no_bit(rung):
    conv = layer_of(rung).toward(rung.direction)
    draw = np.random.default_rng(0)
    x, w = (draw.uniform(-1, 1, conv.shape_of(array, IMAGES)).astype("f4") for array in (conv.roles.x, conv.roles.w))
    orders = (choose_executor("host", host_order=order) for order in ORDERS)
    outputs = [run_once(ordered, x, w, whole(rung, conv, IMAGES)) for ordered in orders]
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


# A planted bug: a rung, a text in its file or a header, and the replacement.
BUGS = {
    "lost last image": ("wgrad-direct", "n < N;", "n < N - (N > 2);"),
    "wrong tap": ("wgrad-direct", "e * U + r * DILATION_ROWS", "e * U + (r ? r : 1) * DILATION_ROWS"),
    "lost filter": ("dgrad-direct", "m < GROUP_M;", "m < GROUP_M - (blockIdx.x == 0);"),
    "unflipped filter": ("dgrad-direct", "row - r * DILATION_ROWS", "row - (R - 1 - r) * DILATION_ROWS"),
    "unturned filter": ("dgrad-mma-split", "R * S - 1 - tap", "tap"),
    "lost slice": ("wgrad-partial", "first + group && slice < slices", "first + group && slice < slices - 1"),
    "lost run": ("wgrad-igemm", "is_first ? accumulators", "is_first || true ? accumulators"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught_by_both_checks(host, tmp_path, bug):
    rung = planted(*BUGS[bug], tmp_path)
    batch = Batch("made up", 1, USUAL, 4).toward(rung.direction)
    point = Point(batch, rung, constants=rung.resolve(batch.conv, {"SLICES": 1, "ROWS": 2}, 4))
    runner = Runner(host, [point], Settings(baseline=False))
    layer, cut = runner.layer(point), runner.plan(point)
    y = run_once(host, layer.x, layer.w, cut)
    assert not layer.error(y).passes(layer.check(y, rung.precision)[1])
    x, w = exact_inputs(point.conv, 4, PRECISIONS[rung.precision], seed=2)
    assert not np.array_equal(run_once(host, x, w, cut), reference(point.conv, x, w))


def test_a_sum_over_images_is_never_cut(host):
    rung = GRADIENTS.named["wgrad-direct"]
    point = Point.with_defaults(batch_of("alexnet", 3, 8), rung)
    record = Runner(host, [point], Settings(memory_budget=1 << 20, baseline=False)).record(point)
    assert record["status"] == "skipped"
    assert record["reason"].startswith("wgrad of 8 images needs ")
    assert "in one piece, the budget is 1.0" in record["reason"]


def test_a_rung_refuses_other_directions():
    direct = GRADIENTS.named["dgrad-direct"]
    assert refused(direct, USUAL) == "computes dgrad, not forward"
    assert refused(direct, USUAL.toward(WGRAD)) == "computes dgrad, not wgrad"
    assert refused(direct, USUAL.toward(DGRAD)) is None
