"""Every rung on the host executor: against the cached reference, exactly on integers, and with planted bugs.

Sources are the ladder's own; nothing here names a rung, so a new one is tested by being there.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alexconv.checks import PRECISIONS, exact_inputs
from alexconv.cpu_reference.reference import reference
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.rung import Rung
from alexconv.planner import Plan, device_bytes, plan
from alexconv.points import Point
from alexconv.runner import Runner, Settings
from alexconv.shapes import WORKLOADS, Conv
from alexconv.transfers import TRANSFERS

HOST_RUNGS = [rung for rung in LADDER if not rung.gpu_only]
PLENTY = 1 << 34
ORDERS = (0, 1, 7, 8, 9)  # forward, reverse, three random orders of a block's threads


def run_once(executor, rung: Rung, conv: Conv, x: np.ndarray, w: np.ndarray, cut: Plan) -> np.ndarray:
    program = executor.load(rung, conv, cut.constants)
    opened = executor.open(program, cut, x.astype(rung.dtype), w.astype(rung.dtype), TRANSFERS["pageable"])
    return opened.outputs().copy()


def whole(rung: Rung, conv: Conv, N: int, **chosen: int) -> Plan:
    return plan(rung, conv, N, rung.resolve(conv, chosen), PLENTY)


@pytest.fixture(scope="module")
def host():
    return choose_executor("host")


@pytest.mark.parametrize("layer", range(1, 6))
@pytest.mark.parametrize("rung", HOST_RUNGS, ids=lambda rung: rung.name)
def test_alexnet_layer_against_the_cached_reference(host, rung, layer):
    conv = WORKLOADS["alexnet"].layer(layer)
    point = Point("alexnet", layer, 1, rung.name, "pageable", rung.precision, rung.resolve(conv, {}))
    record = Runner(host, [point], Settings(baseline=False)).record(point)
    assert record["status"] == "ok", record["reason"]
    assert 0 < record["error"]["scaled"] <= record["error"]["tolerance"]
    assert "samples" not in record or not record["samples"]


@st.composite
def odd_convolutions(draw) -> Conv:
    R, S, U = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    H, W = R + draw(st.integers(0, 14)), S + draw(st.integers(0, 14))
    return Conv(C=draw(st.integers(1, 5)), H=H, W=W, M=draw(st.integers(1, 4)), R=R, S=S, U=U)


@pytest.mark.parametrize("rung", HOST_RUNGS, ids=lambda rung: rung.name)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(conv=odd_convolutions(), N=st.integers(1, 3), data=st.data())
def test_integers_come_out_exactly_on_odd_shapes(host, rung, conv, N, data):
    chosen = {"OUTPUTS": data.draw(st.integers(1, 3)), "COALESCED": data.draw(st.integers(0, 1))}
    chosen["CHANNELS"] = data.draw(st.integers(1, 4))
    constants = rung.resolve(conv, {name: value for name, value in chosen.items()})
    if rung.refuses(conv, constants):
        return
    images = data.draw(st.integers(1, N))
    cut = Plan(N, images, constants, device_bytes(rung, conv, images, constants))
    x, w = exact_inputs(conv, N, PRECISIONS[rung.precision], seed=1)
    y = run_once(host, rung, conv, x, w, cut)
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w))


@pytest.mark.parametrize("rung", [rung for rung in HOST_RUNGS if not rung.order_varies], ids=lambda rung: rung.name)
def test_the_order_of_threads_changes_nothing(rung):
    conv = Conv(C=5, H=38, W=37, M=3, R=4, S=3)
    x, w = (
        np.random.default_rng(0).uniform(-1, 1, conv.x_shape(2)),
        np.random.default_rng(1).uniform(-1, 1, conv.w_shape()),
    )
    outputs = [
        run_once(choose_executor("host", host_order=order), rung, conv, x, w, whole(rung, conv, 2, CHANNELS=2))
        for order in ORDERS
    ]
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


# A planted bug is an edit of a kernel's text: what it replaces, by what, and the check that must notice.
BUGS = {
    "dropped tap": ("r < R;", "r < R - (blockIdx.y == 0);"),
    "off by one": ("+ f * U + s]", "+ f * U + s + 1]"),
    "unwritten output": ("if (e >= E || f >= F) continue;", "if (e >= E || f >= F || (e == 0 && f == 1)) continue;"),
    "wrong filter": ("w += (size_t)m * C", "w += (size_t)(m ^ 1) * C"),
    "NaN": ("float sum = 0;", "float sum = blockIdx.y == 1 ? NAN : 0;"),
}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("name", ["direct-register", "channels"])
def test_a_planted_bug_is_caught_by_both_checks(host, tmp_path, name, bug):
    rung, (right, wrong) = RUNGS[name], BUGS[bug]
    text = rung.path.read_text()
    assert right in text, "the kernel no longer has the line that this bug changes"
    for header in rung.path.parent.glob("*.cuh"):
        (tmp_path / header.name).write_text(header.read_text())
    (tmp_path / rung.file).write_text(text.replace(right, wrong))
    planted = replace(rung, file=str(tmp_path / rung.file))
    point = Point("alexnet", 3, 1, name, "pageable", "fp32", rung.resolve(WORKLOADS["alexnet"].layer(3), {}))
    runner = Runner(host, [point], Settings(baseline=False))
    layer = runner.layer(point)
    y = run_once(host, planted, point.conv, layer.x, layer.w, whole(planted, point.conv, 1))
    assert not layer.error(y).passes(PRECISIONS["fp32"].tolerance(point.conv.K))
    conv = Conv(C=5, H=9, W=8, M=4, R=3, S=2)
    x, w = exact_inputs(conv, 2, PRECISIONS["fp32"], seed=2)
    assert not np.array_equal(run_once(host, planted, conv, x, w, whole(planted, conv, 2)), reference(conv, x, w))
