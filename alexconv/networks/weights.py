"""Images and weights: generated, or a user's own from torch's state dict.

Generated filters are normal with the variance 2 / K (He, Zhang, Ren and Sun, "Delving deep into rectifiers", ICCV
2015), so that activations keep their size through the network; biases are uniform in [-1/10, 1/10), images in [-1, 1).
Both come from the counter-based generator of ``alexconv.data``: image i is the same in every batch.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np

from alexconv.data import keyed_generator, normal, uniform
from alexconv.networks.stages import Parameters, Values
from alexconv.networks.tables import Network
from alexconv.parallel import each_image
from alexconv.precisions import PRECISIONS

BIASES = np.float32(0.1)  # the largest

Weights = tuple[Parameters | None, ...]  # of each stage of a network


def images(network: Network, first: int, last: int, seed: int = 0) -> Values:
    """Images ``first`` to ``last - 1``, float32 ``[last - first][C][H][W]``."""
    x = np.empty((last - first, *network.image), np.float32)

    def fill(image: int) -> None:
        x[image] = uniform(keyed_generator(seed, network.name, "image", first + image), network.image)

    each_image(fill, last - first)
    return x


def generated(network: Network, seed: int = 0) -> Weights:
    """Weights of each stage, float32."""

    def parameters(number: int) -> Parameters | None:
        stage = network.stages[number]
        if stage.filters is None:
            return None
        generator, conv = keyed_generator(seed, network.name, stage.name), stage.shape
        w = normal(generator, stage.filters) * np.float32(sqrt(2 / conv.K))
        return Parameters(w, uniform(generator, (conv.M,)) * BIASES if conv.bias else None)

    return tuple(each_image(parameters, len(network.stages)))


def stored_as(weights: Weights, precision: str) -> Weights:
    """The weights as a network of a class has them, rounded to its type."""
    dtype = PRECISIONS[precision].dtype
    return tuple(each_image(lambda number: _stored(weights[number], dtype), len(weights)))


def _stored(parameters: Parameters | None, dtype: str) -> Parameters | None:
    return parameters and parameters.stored_as(dtype)


def from_state_dict(network: Network, state: Mapping[str, Any]) -> Weights:
    """Weights of each stage from torch's ``state_dict``: filters and biases in the order of the network's stages.

    Raises ValueError for arrays that do not fit.
    """
    arrays = [(name, as_array(value)) for name, value in state.items()]
    wanted = sum(1 + stage.shape.bias for stage in network.weighted)
    if len(arrays) != wanted:
        raise ValueError(f"{network.name} has {wanted} arrays of weights, the state dict {len(arrays)}")
    remaining = iter(arrays)

    def taken(stage: str, sizes: tuple[int, ...]) -> Values:
        name, values = next(remaining)
        if (*values.shape, *[1] * (len(sizes) - values.ndim)) != sizes:  # a linear layer's are torch's [M][K]
            raise ValueError(f"{name} has shape {values.shape}: it does not fit {stage}'s {sizes}")
        return np.array(values, np.float32, order="C").reshape(sizes)  # a copy: training would change the caller's

    weights: list[Parameters | None] = []
    for stage in network.stages:
        if stage.filters is None:
            weights.append(None)
            continue
        w = taken(stage.name, stage.filters)
        weights.append(Parameters(w, taken(stage.name, (stage.shape.M,)) if stage.shape.bias else None))
    return tuple(weights)


def as_array(value: Any) -> Values:
    """A NumPy array of an array, or of a torch tensor on any device."""
    return np.asarray(value.detach().cpu().float() if hasattr(value, "detach") else value)
