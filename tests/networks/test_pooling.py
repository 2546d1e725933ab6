"""Convolutions that pool their input as they load it: the same bits as pooling apart, hard values included."""

import numpy as np
import pytest
from network_runs import SPLITTING, hard_images, outputs_of, plan_of

from alexconv.executors import choose_executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.networks.checks import checked_stages
from alexconv.networks.measuring import NetworkRunner, NetworkSettings, opened
from alexconv.networks.plan import NetworkPoint, plan_network
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.stages import ProductOfPooled, convolution, linear, max_pooling, product_of_pooled
from alexconv.networks.tables import NETWORKS, Network
from alexconv.networks.weights import images
from alexconv.shapes import Conv


def pooling_network() -> Network:
    """Overlapping and plain windows, before padding and none, groups, one filter tap and a stride that is gathered."""
    stages = [convolution("conv1", Conv(3, 17, 15, 20, 3, 3))]
    stages.append(max_pooling("pool1", stages[-1], 3, 2))
    stages.append(convolution("conv2", Conv(20, 7, 6, 32, 3, 3, top=1, bottom=1, left=1, right=1, groups=2)))
    stages.append(max_pooling("pool2", stages[-1], 2, 1))
    stages.append(convolution("conv3", Conv(32, 6, 5, 64, 2, 3, 2)))
    stages.append(max_pooling("pool3", stages[-1], 2, 1))
    stages.append(convolution("conv4", Conv(64, 2, 1, 24, 1, 1)))
    stages.append(linear("linear5", stages[-1], 8, relu=False))
    return Network("pooling", tuple(stages), "for tests")


def assert_same_bits(executor, network, rung, N):
    x = hard_images(network, N)
    due, outputs = (
        outputs_of(executor, plan_of(executor, network, rung, schedule, N), x) for schedule in ("dependent", "pooled")
    )
    assert not outputs.keys() & {"pool1", "pool2"}
    for name, y in outputs.items():
        np.testing.assert_array_equal(y, due[name], err_msg=name)
    assert np.isnan(outputs["conv2"][3]).any()


@pytest.mark.parametrize("rung", SPLITTING)
def test_pooling_in_the_loads_computes_the_same_bits(rung):
    assert_same_bits(choose_executor("host", host_build="unoptimized"), pooling_network(), rung, 6)


@pytest.mark.parametrize("rung", SPLITTING)
def test_a_convolution_that_pools_is_checked_from_its_unpooled_input(rung):
    executor, network = choose_executor("host", host_build="unoptimized"), pooling_network()
    plan, x = plan_of(executor, network, rung, "pooled", 2), images(network, 0, 2)
    with opened(executor, plan) as run:
        errors, whole, _ = checked_stages(plan, x, run.stage_outputs, generated=True)
    assert [error for error in errors if not error.passes] == []
    assert whole.passes
    assert {"pool1+conv2", "pool2+conv3", "pool3+conv4"} <= {error.stage for error in errors}


def test_squares_and_rungs_that_read_in_place_do_not_pool():
    pooling = max_pooling("pool", convolution("conv", Conv(3, 20, 20, 8, 3, 3)), 2, 2)
    few = convolution("next", Conv(8, 9, 9, 8, 3, 3, 2))  # too few channels for a stride to be gathered
    conv = product_of_pooled(pooling, few).shape
    for name, reason in (("wgmma-split", "not squares of them"), ("wgmma-floats-split", "takes no pooling")):
        rung = RUNGS[name]
        assert reason in (BoundRung(rung, conv, rung.resolve(conv, {})).refusal() or "")


def test_the_plan_of_alexnet_pools_where_its_rungs_can():
    executor = choose_executor("host", host_build="unoptimized")
    network = NETWORKS["alexnet-torchvision"]
    for rung, precision in SPLITTING.items():
        nothing = (None,) * len(network.stages)
        point = NetworkPoint(network, 128, precision, SCHEDULES["pooled"], rung)
        plan = plan_network(executor, point, nothing)
        stages = {step.stage.name: step.stage for step in plan.steps}
        assert isinstance(stages["pool1+conv2"], ProductOfPooled)
        assert {"pool2+conv3", "pool5"} <= stages.keys()


@pytest.mark.gpu
@pytest.mark.parametrize("rung", SPLITTING)
def test_pooling_in_the_loads_on_a_gpu(rung):
    executor = choose_executor("cuda")
    assert_same_bits(executor, pooling_network(), rung, 6)
    network = NETWORKS["alexnet-torchvision"]
    record = NetworkRunner(executor, NetworkSettings(0.01)).record(
        NetworkPoint(network, 3, SPLITTING[rung], SCHEDULES["pooled"], rung)
    )
    assert record["status"] == "ok", record["reason"]
