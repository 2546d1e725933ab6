"""Convolutions that store their outputs as the terms that the next one multiplies: the same bits as converting them."""

from dataclasses import replace

import numpy as np
import pytest
from network_runs import SPLITTING, hard_images, outputs_of, plan_of

from alexconv.executors import choose_executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.networks.checks import checked_stages
from alexconv.networks.measuring import NetworkRunner, NetworkSettings, opened
from alexconv.networks.plan import NetworkPoint, contenders, plan_network
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.stages import convolution, linear, max_pooling
from alexconv.networks.tables import NETWORKS, Network
from alexconv.networks.weights import generated, images, stored_as
from alexconv.shapes import Conv


def network_of_terms() -> Network:
    """Planes that are gathered with padding, 1 x 1 filters, no padding, and filters that end within a tile."""
    stages = [convolution("conv1", Conv(5, 9, 8, 64, 3, 3, top=1, bottom=1, left=1, right=1))]
    stages.append(convolution("conv2", Conv(64, 9, 8, 72, 3, 3, top=1, bottom=1, left=1, right=1)))
    stages.append(convolution("conv3", Conv(72, 9, 8, 40, 1, 1)))
    stages.append(convolution("conv4", Conv(40, 9, 8, 24, 3, 2)))
    stages.append(max_pooling("pool4", stages[-1], 2, 1))
    stages.append(convolution("conv5", Conv(24, 6, 6, 20, 3, 3)))
    stages.append(linear("linear6", stages[-1], 8, relu=False))
    return Network("terms", tuple(stages), "for tests")


def assert_same_bits(executor, rung, weights=None):
    network = network_of_terms()
    x = hard_images(network, 6)
    plans = [plan_of(executor, network, rung, schedule, 6, weights) for schedule in ("pooled", "terms")]
    assert [step.stage.name for step in plans[1].steps if step.stage.shape.takes_terms] == ["conv2", "conv3", "conv4"]
    due, outputs = (outputs_of(executor, plan, x) for plan in plans)
    for name, y in outputs.items():
        np.testing.assert_array_equal(y, due[name], err_msg=name)
    assert np.isnan(outputs["conv4"][3]).any()


@pytest.mark.parametrize("rung", SPLITTING)
def test_stored_terms_give_the_same_bits(rung):
    assert_same_bits(choose_executor("host", host_build="unoptimized"), rung)


@pytest.mark.parametrize("rung", SPLITTING)
def test_filters_without_an_exponent_leave_terms_that_are_converted_again(rung):
    weights = [
        parameters
        and replace(
            parameters, w=np.where(np.arange(len(parameters.w))[:, None, None, None] == 3, np.inf, parameters.w)
        )
        for parameters in stored_as(generated(network_of_terms()), SPLITTING[rung])
    ]
    assert_same_bits(choose_executor("host", host_build="unoptimized"), rung, weights)


@pytest.mark.parametrize("rung", SPLITTING)
def test_each_stage_is_checked_from_its_floats(rung):
    executor, network = choose_executor("host", host_build="unoptimized"), network_of_terms()
    plan, x = plan_of(executor, network, rung, "terms", 2), images(network, 0, 2)
    with opened(executor, plan) as run:
        errors, whole, _ = checked_stages(plan, x, run.stage_outputs, generated=True)
    assert [error for error in errors if not error.passes] == []
    assert whole.passes


def test_convolutions_that_share_terms_keep_their_rung():
    executor = choose_executor("host", host_build="unoptimized")
    plan = plan_of(executor, network_of_terms(), "wgmma-scaled", "terms", 2)
    for step in plan.steps:
        others = {bound.rung.name for bound in contenders(plan, step, executor, LADDER)} - {step.bound.rung.name}
        shares = step.stage.shape.stores_terms or step.stage.shape.takes_terms
        assert bool(others) == (step.stage.kind == "product" and not shares), step.stage.name


def test_layers_whose_terms_lie_otherwise_are_refused():
    rung, plain = RUNGS["wgmma-split"], Conv(16, 8, 8, 16, 3, 3)
    for conv, reason in (
        (replace(plain, groups=2, stores_terms=True), "of one group"),
        (replace(plain, M=12, stores_terms=True), "a multiple of 8 filters"),
        (replace(plain, C=12, takes_terms=True), "as they lie"),
        (replace(plain, top=1, takes_terms=True), "padding in memory"),
        (replace(plain, C=3, U=2, takes_terms=True), "squares"),
    ):
        assert reason in (BoundRung(rung, conv, rung.resolve(conv, {})).refusal() or ""), conv
    floats = RUNGS["wgmma-floats-split"]
    conv = replace(plain, stores_terms=True)
    assert "takes no terms" in (BoundRung(floats, conv, floats.resolve(conv, {})).refusal() or "")


@pytest.mark.parametrize("rung", SPLITTING)
def test_alexnet_stores_the_terms_of_its_third_and_fourth_layer(rung):
    network = NETWORKS["alexnet-torchvision"]
    point = NetworkPoint(network, 128, SPLITTING[rung], SCHEDULES["terms"], rung)
    plan = plan_network(choose_executor("host", host_build="unoptimized"), point, (None,) * len(network.stages))
    stores = [step.stage.name for step in plan.steps if step.stage.shape.stores_terms]
    assert stores == ["pool2+conv3", "conv4"]


@pytest.mark.gpu
@pytest.mark.parametrize("rung", SPLITTING)
def test_stored_terms_on_a_gpu(rung):
    executor = choose_executor("cuda")
    assert_same_bits(executor, rung)
    network = NETWORKS["alexnet-torchvision"]
    record = NetworkRunner(executor, NetworkSettings(0.01)).record(
        NetworkPoint(network, 3, SPLITTING[rung], SCHEDULES["terms"], rung)
    )
    assert record["status"] == "ok", record["reason"]
