"""The networks: sequences of stages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from alexconv.errors import UsageError
from alexconv.networks.stages import Stage, convolution, linear, max_pooling, normalization, softmax
from alexconv.shapes import WORKLOADS, Conv

CLASSES = 1000  # of ImageNet
HIDDEN = 4096  # outputs of AlexNet's linear layers but the last
OVERLAPPING = 3, 2  # size and stride of AlexNet's poolings


@dataclass(frozen=True)
class Network:
    """Stages in order, each taking the output of the one before it; the first takes images."""

    name: str
    stages: tuple[Stage, ...]
    source: str

    def __post_init__(self) -> None:
        for before, stage in zip(self.stages, self.stages[1:], strict=False):
            output, shape = before.shape, stage.shape
            planes = getattr(stage, "planes", None) or (shape.C, shape.H, shape.W)
            if planes != (output.M, output.E, output.F):
                raise ValueError(f"{self.name}: {stage.name} takes {planes}, not {before.name}'s output")

    @property
    def image(self) -> tuple[int, int, int]:
        """The shape of an image, ``(C, H, W)``."""
        conv = self.stages[0].shape
        return conv.C, conv.H, conv.W

    @cached_property
    def weighted(self) -> tuple[Stage, ...]:
        """The stages that have weights."""
        return tuple(stage for stage in self.stages if stage.filters)

    def macs(self, N: int) -> int:
        """Multiply-accumulates of convolutions and linear layers for N images."""
        return sum(stage.shape.macs(N) for stage in self.weighted)


def _padded(conv: Conv) -> Conv:
    """A layer of a study with its border as padding that is not in memory: here it follows another stage."""
    inner = conv.H - 2 * conv.pad, conv.W - 2 * conv.pad
    top = bottom = left = right = conv.pad
    return replace(conv, H=inner[0], W=inner[1], pad=0, top=top, bottom=bottom, left=left, right=right)


def _alexnet(layers: tuple[Conv, ...], *, normalized: bool) -> tuple[Stage, ...]:
    """Convolutions, the first two perhaps normalized, pooling after these and the last; then linear layers."""
    stages: list[Stage] = []
    for number, conv in enumerate(layers, 1):
        stages.append(convolution(f"conv{number}", conv))
        if number <= 2 and normalized:
            stages.append(normalization(f"norm{number}", stages[-1]))
        if number in (1, 2, len(layers)):
            stages.append(max_pooling(f"pool{number}", stages[-1], *OVERLAPPING))
    stages.append(linear("linear6", stages[-1], HIDDEN, relu=True))
    stages.append(linear("linear7", stages[-1], HIDDEN, relu=True))
    return *stages, linear("linear8", stages[-1], CLASSES, relu=False)


def _with_softmax(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    return *stages, softmax("softmax", stages[-1])


def _pair(workload: str) -> Network:
    """A study's two convolutions with ReLU, each followed by the 2 x 2 pooling that its shapes imply."""
    stages: list[Stage] = []
    for number, conv in enumerate(WORKLOADS[workload].layers, 1):
        stages.append(convolution(f"conv{number}", conv, bias=False))
        stages.append(max_pooling(f"pool{number}", stages[-1], 2, 2))
    return Network(workload, tuple(stages), f"{WORKLOADS[workload].source}: convolution, ReLU and pooling, twice")


_ONE_TOWER = tuple(_padded(conv) for conv in WORKLOADS["alexnet"].layers)
_TORCHVISION = WORKLOADS["convnet-benchmarks"].layers[:5]

NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        network.name: network
        for network in (
            Network(
                "alexnet-2012",
                _with_softmax(_alexnet(WORKLOADS["alexnet-2012"].layers, normalized=True)),
                "AlexNet (Krizhevsky, Sutskever and Hinton, NIPS 2012): two groups, normalization, overlapping pooling",
            ),
            Network(
                "alexnet-one-tower",
                _with_softmax(_alexnet(_ONE_TOWER, normalized=True)),
                "the layers of the AlexNet study (Purdue ECE 695, 2020) with the stages of 2012 between them",
            ),
            Network(
                "alexnet-torchvision",
                _alexnet(_TORCHVISION, normalized=False),
                "torchvision's AlexNet (Krizhevsky, arXiv 1404.5997): images of 224 x 224, no normalization",
            ),
            *(_pair(name) for name in ("lenet-72-k7", "lenet-70-k5", "lenet-86-k7")),
        )
    }
)


def network_named(text: str) -> Network:
    """The network of that name; raises UsageError, which lists the names, for an unknown one."""
    if text not in NETWORKS:
        raise UsageError(f"unknown network {text!r}: choose from {', '.join(NETWORKS)}")
    return NETWORKS[text]
