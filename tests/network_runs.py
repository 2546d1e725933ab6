"""Networks of two rungs that split floats, over images with hard values, by schedule."""

import numpy as np

from alexconv.executors.interface import Executor
from alexconv.networks.measuring import opened
from alexconv.networks.plan import NetworkPlan, NetworkPoint, plan_network
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.tables import Network
from alexconv.networks.weights import Weights, generated, images, stored_as

SPLITTING = {"wgmma-scaled": "tf32", "wgmma-split": "fp32"}  # rungs that take over from their neighbours; their classes


def hard_images(network: Network, count: int) -> np.ndarray:
    """Images of which most have values that the usual power of two does not suit, or none does."""
    x = images(network, 0, count)
    rows, columns = x.shape[2:]
    x[1] *= 2.0**-30
    x[2] *= 2.0**40
    x[3, 0, 2, 3], x[4, 2, rows // 2, columns // 2] = np.nan, np.inf
    x[5, :, : rows // 2 + 1] *= 2.0**-60
    return x


def plan_of(
    executor: Executor, network: Network, rung: str, schedule: str, N: int, weights: Weights | None = None
) -> NetworkPlan:
    """The plan of a network by one rung, with generated weights unless others are given."""
    point = NetworkPoint(network, N, SPLITTING[rung], SCHEDULES[schedule], rung)
    return plan_network(executor, point, weights or stored_as(generated(network), point.precision))


def outputs_of(executor: Executor, plan: NetworkPlan, x: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs of each stage, by the name of the last of those that are one."""
    with opened(executor, plan) as run:
        outputs = run.stage_outputs(x)
        return {step.stage.name.split("+")[-1]: y for step, y in zip(plan.steps, outputs, strict=True)}
