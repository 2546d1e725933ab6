"""Schedules: the ways in which a network's stages are launched, each one idea after its parent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from alexconv.errors import UsageError
from alexconv.kernels.problem import Device
from alexconv.networks.persistent import misfit, persistent
from alexconv.networks.stages import (
    BiasReLU,
    MaxPooling,
    PooledProduct,
    Product,
    ProductOfPooled,
    Stage,
    product_of_pooled,
)
from alexconv.planning.planner import DoesNotFit
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

# By type: up to which a linear layer's weights, not its products on CUDA cores, take the time.
FEW_IMAGES: Mapping[str, int] = MappingProxyType({"float32": 8, "float16": 2})


@dataclass(frozen=True)
class Schedule:
    """A way to launch the stages.

    ``epilogue``: bias and ReLU in the product's epilogue; ``waits``: the host waits after each stage; ``graph``: one
    CUDA graph; ``dependent``: stages are programmatic dependent launches; ``pools``: a convolution pools its input
    as it loads it, if its rung can; ``stores_terms``: one stores what the next multiplies, if both rungs can;
    ``persistent``: one kernel for all stages.
    """

    name: str
    parent: str | None
    idea: str
    waits: bool = False
    graph: bool = False
    epilogue: bool = False
    dependent: bool = False
    pools: bool = False
    stores_terms: bool = False
    persistent: bool = False

    def stages(self, stages: Sequence[Stage]) -> list[tuple[Stage, int]]:
        """A network's stages as they are launched, each with the number of the stage that has its weights."""
        launched: list[tuple[Stage, int]] = []
        for number, stage in enumerate(stages):
            before = launched[-1][0] if launched else None
            if isinstance(stage, Product) and not self.epilogue and (stage.shape.bias or stage.shape.relu):
                plain = replace(stage, shape=replace(stage.shape, bias=False, relu=False))
                launched += [(plain, number), (BiasReLU(f"{stage.name}-bias", of_output(stage.shape)), number)]
            elif isinstance(stage, MaxPooling) and type(before) is Product and self.persistent:
                name, shape, planes = f"{before.name}+{stage.name}", before.shape, before.planes
                launched[-1] = PooledProduct(name, shape, planes=planes, pooling=stage), launched[-1][1]
            else:
                launched.append((stage, number))
        return launched

    def differs_on(self, stages: Sequence[Stage], N: int, precision: str) -> bool:
        """Whether it may launch these stages, over N images, otherwise than its parent does."""
        parent = SCHEDULES.get(self.parent or "")
        if self.persistent and misfit([stage for stage, _ in self.stages(stages)], N):
            return False
        if self.pools:  # into terms of floats, which are prepared anyway
            joins = follow_each_other if self.stores_terms else as_one
            floats = PRECISIONS[precision].dtype == "float32"
            return floats and any(joins(*pair) for pair in pairwise(stages))
        return parent is None or (self._way, self.stages(stages)) != (parent._way, parent.stages(stages))

    @property
    def _way(self) -> tuple[bool, ...]:
        return self.waits, self.graph, self.dependent, self.persistent


def is_linear(stage: Stage) -> bool:
    """Whether it is a linear layer."""
    return isinstance(stage, Product) and stage.planes is not None


def follow_each_other(before: Stage, stage: Stage) -> bool:
    """Whether both are convolutions of one group."""
    return all(isinstance(one, Product) and not is_linear(one) and one.shape.groups == 1 for one in (before, stage))


def as_one(before: Stage | None, stage: Stage) -> ProductOfPooled | None:
    """A pooling and the convolution after it as one stage, or None if they are not these."""
    if isinstance(before, MaxPooling) and isinstance(stage, Product) and not is_linear(stage):
        return product_of_pooled(before, stage)
    return None


def of_output(conv: Conv) -> Conv:
    """The shape of an element-wise stage on a layer's output, with its bias and ReLU."""
    return Conv(conv.M, conv.E, conv.F, conv.M, 1, 1, groups=conv.M, bias=conv.bias, relu=conv.relu)


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        schedule.name: schedule
        for schedule in (
            Schedule("waits", None, "a kernel for each stage; the host waits for each", waits=True),
            Schedule("stream", "waits", "the stages on one stream, one wait at the end"),
            Schedule("graph", "stream", "one CUDA graph", graph=True),
            Schedule("epilogue", "graph", "bias and ReLU in the product's epilogue", graph=True, epilogue=True),
            Schedule(
                "dependent",
                "epilogue",
                "programmatic dependent launches: a kernel starts while the one before ends",
                graph=True,
                epilogue=True,
                dependent=True,
            ),
            Schedule(
                "pooled",
                "dependent",
                "max pooling as the next convolution's input is loaded and split into its terms, of floats",
                graph=True,
                epilogue=True,
                dependent=True,
                pools=True,
            ),
            Schedule(
                "terms",
                "pooled",
                "a convolution stores its outputs as the terms that the next one multiplies, of floats",
                graph=True,
                epilogue=True,
                dependent=True,
                pools=True,
                stores_terms=True,
            ),
            Schedule(
                "persistent",
                "dependent",
                "one kernel for one image: its blocks pass through all stages, weights run ahead of them",
                graph=True,
                epilogue=True,
                persistent=True,
            ),
        )
    }
)
ALL = "all"


def fastest_apart(stages: Sequence[Stage], N: int, precision: str) -> Schedule:
    """The fastest with kernels for each stage: of floats one in which convolutions take over from their neighbours."""
    of_floats = (SCHEDULES[name] for name in ("terms", "pooled"))
    differing = (schedule for schedule in of_floats if schedule.differs_on(stages, N, precision))
    return next(differing, SCHEDULES["dependent"])


def fastest(stages: Sequence[Stage], N: int, precision: str, device: Device) -> Schedule:
    """The schedule that is the fastest on record: one kernel for all stages where it takes them, else a kernel each."""
    whole = SCHEDULES["persistent"]
    try:
        persistent([stage for stage, _ in whole.stages(stages)], precision, N, device)
    except DoesNotFit:
        return fastest_apart(stages, N, precision)
    return whole


def schedules_named(text: str) -> list[Schedule]:
    """Schedules from comma-separated names, or ``all``; raises UsageError for an unknown one."""
    words = list(SCHEDULES) if text == ALL else list(dict.fromkeys(text.split(",")))
    if unknown := [word for word in words if word not in SCHEDULES]:
        raise UsageError(f"unknown schedule {unknown[0]!r}: choose from {', '.join(SCHEDULES)}, or all")
    return [SCHEDULES[word] for word in words]
