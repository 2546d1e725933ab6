"""Every rung on a real GPU: against the reference under every transfer, and exactly on integers."""

import numpy as np
import pytest

from alexconv.checks import PRECISIONS, exact_inputs
from alexconv.cpu_reference.reference import reference
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import LADDER
from alexconv.layouts import from_study, to_study
from alexconv.planner import plan
from alexconv.points import Point
from alexconv.runner import Runner, Settings
from alexconv.shapes import WORKLOADS, Conv
from alexconv.transfers import TRANSFERS

pytestmark = pytest.mark.gpu

ODD = Conv(C=5, H=23, W=19, M=7, R=4, S=3, U=2)


@pytest.fixture(scope="module")
def cuda():
    return choose_executor("cuda")


@pytest.mark.parametrize("layer", range(1, 6))
@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_alexnet_layer_is_right_and_timed(cuda, rung, layer):
    conv = WORKLOADS["alexnet"].layer(layer)
    point = Point("alexnet", layer, 3, rung.name, "pageable", rung.precision, rung.resolve(conv, {}))
    record = Runner(cuda, [point], Settings(seconds=0.0, baseline=False)).record(point)
    if reason := rung.refuses(conv, point.constants):
        assert (record["status"], record["reason"]) == ("skipped", reason)
        return
    assert record["status"] == "ok", record["reason"]
    assert all(min(values) > 0 for name, values in record["samples"].items())
    prepared = {"prepare"} if rung.prepare else set()
    assert {"kernel", "kernel_cold", "h2d", "d2h", "total"} | prepared == set(record["samples"])


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
@pytest.mark.parametrize("transfer", TRANSFERS)
def test_integers_come_out_exactly_under_every_transfer(cuda, rung, transfer):
    constants = rung.resolve(ODD, {})
    if rung.refuses(ODD, constants):
        return
    x, w = exact_inputs(ODD, 9, PRECISIONS[rung.precision], seed=1)
    cut = plan(rung, ODD, 9, constants, 1 << 30, TRANSFERS[transfer].streams, TRANSFERS[transfer].pieces_at_least)
    x_given = from_study(x.astype(rung.dtype), rung.layout)
    program = cuda.load(rung, ODD, cut.constants)
    opened = cuda.open(program, cut, x_given, w.astype(rung.dtype), TRANSFERS[transfer])
    try:
        y = to_study(opened.outputs(), rung.layout)
        np.testing.assert_array_equal(y.astype(np.float32), reference(ODD, x, w))
    finally:
        opened.close()
