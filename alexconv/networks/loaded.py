"""A network as a function of images: ``alexconv.networks.load``.

alexnet = networks.load("alexnet-torchvision", model.state_dict(), precision="fp16")
scores = alexnet(images)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from alexconv.errors import UsageError
from alexconv.executors import AUTO, choose_executor
from alexconv.executors.interface import Executor, Values
from alexconv.networks.measuring import opened_network
from alexconv.networks.plan import NetworkPoint, plan_network
from alexconv.networks.schedules import fastest
from alexconv.networks.tables import network_named
from alexconv.networks.weights import Weights, as_array, from_state_dict, generated, stored_as
from alexconv.planning.planner import DoesNotFit
from alexconv.precisions import PEER_CLASSES


class LoadedNetwork:
    """A network with its weights on a device.

    The plan of the last batch size is kept: another one plans anew.
    """

    def __init__(self, name: str, weights: Weights, precision: str, executor: Executor) -> None:
        self.network, self._weights = network_named(name), weights
        self._precision, self._executor = precision, executor
        self._open: tuple[int, Any] | None = None

    def __call__(self, images: Any) -> Any:
        """The scores ``[N][classes]`` of images ``[N][C][H][W]``, an array of NumPy or a tensor of torch, as which they
        come, in the network's type.  Raises ValueError for images of another size.
        """
        shape = tuple(images.shape)
        if len(shape) != 4 or shape[1:] != self.network.image or not shape[0]:
            wanted = " x ".join(map(str, self.network.image))
            raise ValueError(f"{self.network.name} takes images of {wanted}, [N][C][H][W], not an array {shape}")
        network = self._opened(shape[0])
        pieces = network.plan.pieces
        if getattr(images, "is_cuda", False) and self._executor.measures:
            import torch

            on_device = torch.cat([network.scores_of_tensor(images[first:last]) for first, last in pieces])
            return on_device.flatten(1) if on_device.shape[2:] == (1, 1) else on_device
        x = as_array(images)
        scores: Values = np.concatenate([network.scores(x[first:last]) for first, last in pieces])
        scores = scores.reshape(len(scores), -1) if scores.shape[2:] == (1, 1) else np.ascontiguousarray(scores)
        if not hasattr(images, "detach"):
            return scores
        import torch

        return torch.from_numpy(scores).to(images.device)

    def _opened(self, N: int) -> Any:
        """The network planned for N images, with its arrays; raises UsageError where it does not fit the device."""
        if self._open is None or self._open[0] != N:
            self.close()
            try:
                schedule = fastest(self.network.stages, N, self._precision, self._executor.device)
                point = NetworkPoint(self.network, N, self._precision, schedule)
                plan = plan_network(self._executor, point, self._weights)
            except DoesNotFit as reason:
                raise UsageError(str(reason)) from None
            self._open = N, opened_network(self._executor, plan)
        return self._open[1]

    def close(self) -> None:
        """Frees the arrays; another call allocates them again."""
        if self._open:
            self._open[1].close()
        self._open = None


def load(
    name: str,
    weights: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    backend: str = AUTO,
    device: int = 0,
) -> LoadedNetwork:
    """A network of ``alexconv.networks.tables`` with weights of torch's ``state_dict``, else with generated ones.

    Raises UsageError for an unknown network or precision, ValueError for weights that do not fit, and MissingTool.
    """
    network = network_named(name)
    if precision not in PEER_CLASSES:
        raise UsageError(f"networks have the classes {', '.join(PEER_CLASSES)}, not {precision}")
    parameters = generated(network) if weights is None else from_state_dict(network, weights)
    return LoadedNetwork(name, stored_as(parameters, precision), precision, choose_executor(backend, device))
