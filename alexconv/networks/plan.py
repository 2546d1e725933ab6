"""The plan of a network for N images: a rung for each stage, and every array's bytes, before anything is allocated.

All stages have one layout, so nothing is copied between them.  Outputs of successive stages alternate between two
arrays; scratch arrays are shared by all stages.  The batch is cut into pieces that fit a memory budget.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf

import numpy as np

from alexconv.executors.interface import Executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.rung import BIAS, TERMS_PREFIX, Rung
from alexconv.kernels.stages.ladder import SPLITS, STAGES
from alexconv.messages import print_to_stderr
from alexconv.networks import persistent
from alexconv.networks.schedules import FEW_IMAGES, Schedule, as_one, follow_each_other, is_linear
from alexconv.networks.stages import Parameters, Product, Stage, Values
from alexconv.networks.tables import Network
from alexconv.networks.weights import Weights
from alexconv.planning.planner import MEBIBYTE, DoesNotFit, plan_on
from alexconv.precisions import PRECISIONS
from alexconv.records.store import Record
from alexconv.tune import auto
from alexconv.tune.estimate import estimate
from alexconv.tune.measured import Request

AUTO, MEASURED = "auto", "measured"  # in place of a rung's name: the likeliest of each stage; the fastest of them
CONTENDERS = 4  # of a stage, besides the variants of the linear kernel
IMAGES = "images"  # the array of the first stage's input
ALTERNATING = ("even", "odd")  # those of outputs


@dataclass(frozen=True)
class NetworkPoint:
    """A network to run: ``rungs`` is a rung's name or ``auto``, of a peer its name; a peer's schedule is its graph."""

    network: Network
    N: int
    precision: str
    schedule: Schedule
    rungs: str = AUTO

    @property
    def rung(self) -> str:
        """The rung that is named, or ``auto``, with which ``measured`` begins."""
        return AUTO if self.rungs == MEASURED else self.rungs

    def axes(self) -> Record:
        """The point as a record holds it."""
        named = {"network": self.network.name, "schedule": self.schedule.name}
        return {**named, "N": self.N, "precision": self.precision, "rungs": self.rungs}

    def label(self) -> str:
        """The point in a few words."""
        return f"{self.network.name} N={self.N} {self.precision} {self.schedule.name} {self.rungs}"


@dataclass(frozen=True)
class Step:
    """A stage as it is launched: its rung, its weights, and the array of each of its arguments."""

    stage: Stage
    bound: BoundRung
    parameters: Parameters | None
    arrays: Mapping[str, str]

    @property
    def output(self) -> str:
        """The array of its output."""
        return self.arrays["y"]

    def output_shape(self, images: int) -> tuple[int, int, int, int]:
        """The shape of its output in memory."""
        M, E, F = self.stage.planes_out
        return (images, E, F, M) if self.bound.rung.layout == "nhwc" else (images, M, E, F)


@dataclass(frozen=True)
class NetworkPlan:
    """How a point's network runs: one rung for each stage.  Raises DoesNotFit where no piece fits the budget.

    ``whole`` is launched in place of the steps, if there is one, and leaves their outputs in its own arrays.
    """

    point: NetworkPoint
    layout: str
    steps: tuple[Step, ...]
    budget: float = inf
    whole: Step | None = None

    def __post_init__(self) -> None:
        if (needed := self.device_bytes(1)) > self.budget:
            raise DoesNotFit(
                f"{self.point.network.name} needs {needed / MEBIBYTE:.1f} MiB of device memory for one image, "
                f"the budget is {self.budget / MEBIBYTE:.1f}"
            )

    @property
    def launched(self) -> tuple[Step, ...]:
        """What is launched, in order."""
        return (self.whole,) if self.whole else self.steps

    def output_of(self, step: Step) -> tuple[str, int]:
        """The array of a step's output, and the byte at which it begins there."""
        if self.whole is None or step is self.steps[-1]:
            return self.launched[-1].output if self.whole else step.output, 0
        number = next(number for number, other in enumerate(self.steps) if other is step)
        begins = persistent.places([other.stage for other in self.steps], self.whole.bound.device)
        return self.whole.arrays["activations"], begins[number]

    @property
    def dtype(self) -> str:
        """The type of all arrays, as NumPy names it."""
        return PRECISIONS[self.point.precision].dtype

    @cached_property
    def images_per_piece(self) -> int:
        """As many images as fit the budget."""
        return bisect_right(range(1, self.point.N + 1), self.budget, key=self.device_bytes)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """``(first, last + 1)`` image of each piece."""
        step, N = self.images_per_piece, self.point.N
        return [(first, min(first + step, N)) for first in range(0, N, step)]

    @property
    def takes_next_batch(self) -> bool:
        """Whether the batch is one piece, and the images of another fit beside it while it is computed."""
        needed = self.device_bytes(self.point.N) + self.sizes(self.point.N)[IMAGES]
        return self.images_per_piece == self.point.N and needed <= self.budget

    def sizes(self, images: int) -> dict[str, int]:
        """Bytes of every array for a piece of so many images."""
        sizes: dict[str, int] = {}
        for number, step in enumerate(self.launched):
            of_step = {**step.bound.piece_bytes(images), **step.bound.prepared_bytes()}
            if isinstance(step.stage, Product) or step.stage.shape.bias:
                of_step |= {"w": step.bound.filter_bytes(), BIAS: step.bound.bias_bytes()}
            if number and step.arrays["x"] == step.output:
                del of_step["x"]  # computed in place
            for name, nbytes in of_step.items():
                if name in step.arrays:
                    array = step.arrays[name]
                    sizes[array] = max(sizes.get(array, 0), nbytes)
        return sizes

    def device_bytes(self, images: int) -> int:
        """Bytes of all arrays for a piece of so many images."""
        return sum(self.sizes(images).values())


def plan_network(
    executor: Executor,
    point: NetworkPoint,
    weights: Weights,
    budget: int | None = None,
    ladder: Ladder = LADDER,
) -> NetworkPlan:
    """The plan of a network on an executor.

    ``weights`` are rounded to the class's type.  A rung that the point names computes the stages that it takes, and
    ``auto`` the others.  Raises DoesNotFit where a stage has no rung, or where the named one takes none.
    """
    network, schedule, N, precision, word = point.network, point.schedule, point.N, point.precision, point.rung
    stages = schedule.stages(network.stages)
    available = executor.memory_budget() if budget is None else budget
    if schedule.persistent:
        if word != AUTO:
            raise DoesNotFit(f"the schedule {schedule.name} has a kernel of its own for all stages: no {word}")
        pairs = [(stage, weights[number]) for stage, number in stages]
        return persistent_plan(executor, point, pairs, available)
    layouts = [ladder.named[word].layout] if word != AUTO else auto.layouts_of(precision, ladder)
    candidates, reasons = [], []
    for layout in layouts:
        try:
            bounds = [choose(executor, stage, point, layout, ladder) for stage, _ in stages]
        except DoesNotFit as reason:
            reasons.append(str(reason))
            continue
        candidates.append((sum(estimate(bound, N) for bound in bounds if bound.rung in ladder), layout, bounds))
    if not candidates:
        raise DoesNotFit("; ".join(dict.fromkeys(reasons)))
    _, layout, bounds = min(candidates, key=lambda candidate: candidate[0])
    if word != AUTO and all(bound.rung.name != word for bound in bounds):
        raise DoesNotFit(f"{word} takes no stage of {network.name}")
    if schedule.pools:
        stages, bounds = with_pooling(stages, bounds)
    if schedule.stores_terms:
        stages, bounds = with_terms(stages, bounds)
    parameters = [used(stage, weights[number]) for stage, number in stages]
    steps = steps_of([stage for stage, _ in stages], bounds, parameters)
    return NetworkPlan(point, layout, steps, available)


def with_pooling(
    stages: Sequence[tuple[Stage, int]], bounds: Sequence[BoundRung]
) -> tuple[list[tuple[Stage, int]], list[BoundRung]]:
    """The stages and their rungs, with poolings in those of the convolutions after them that can pool as they load."""
    kept: list[tuple[Stage, int]] = []
    of_kept: list[BoundRung] = []
    for (stage, number), bound in zip(stages, bounds, strict=True):
        together = as_one(kept[-1][0] if kept else None, stage)
        if together and not (pooling := replace(bound, conv=together.shape)).refusal():
            kept[-1], of_kept[-1] = (together, number), pooling
            continue
        kept.append((stage, number))
        of_kept.append(bound)
    return kept, of_kept


def with_terms(
    stages: Sequence[tuple[Stage, int]], bounds: Sequence[BoundRung]
) -> tuple[list[tuple[Stage, int]], list[BoundRung]]:
    """The stages and their rungs; a convolution stores terms for the next one where both have a rung that can."""
    of_kept = list(bounds)
    for number, ((before, _), (stage, _)) in enumerate(pairwise(stages)):
        one, other = of_kept[number : number + 2]
        if one.rung is other.rung and follow_each_other(before, stage):
            stores = replace(one, conv=replace(one.conv, stores_terms=True))
            takes = replace(other, conv=replace(other.conv, takes_terms=True))
            if not (stores.refusal() or takes.refusal()):
                of_kept[number : number + 2] = stores, takes
    kept = [(replace(stage, shape=bound.conv), number) for (stage, number), bound in zip(stages, of_kept, strict=True)]
    return kept, of_kept


def persistent_plan(
    executor: Executor, point: NetworkPoint, stages: Sequence[tuple[Stage, Parameters | None]], budget: float
) -> NetworkPlan:
    """The plan of one kernel for all stages, with their parameters; raises DoesNotFit."""
    bound = persistent.persistent([stage for stage, _ in stages], point.precision, point.N, executor.device)
    names = [array.name for array in (*bound.rung.prepared, *bound.rung.scratch)]
    arrays = {"x": IMAGES, "y": ALTERNATING[0], **{name: name for name in names}}
    whole = Step(Stage(point.network.name, bound.conv), bound, None, arrays)
    steps = [
        Step(stage, replace(bound, conv=stage.shape), parameters, {"x": "", "y": stage.name, "w": stage.name})
        for stage, parameters in stages
    ]
    return NetworkPlan(point, persistent.LAYOUT, tuple(steps), budget, whole)


def with_rungs(plan: NetworkPlan, bounds: Sequence[BoundRung]) -> NetworkPlan:
    """The plan with other rungs for its stages."""
    steps = steps_of([step.stage for step in plan.steps], bounds, [step.parameters for step in plan.steps])
    return replace(plan, steps=steps)


def contenders(plan: NetworkPlan, step: Step, executor: Executor, ladder: Ladder) -> list[BoundRung]:
    """The likeliest rungs of a step on the executor's device, its own first, each once."""
    stage, N, precision = step.stage, plan.point.N, plan.point.precision
    if not isinstance(stage, Product):
        return [step.bound]
    served = precision, *PRECISIONS[precision].stricter
    rungs = [rung for rung in ladder if rung.precision in served and rung.dtype == plan.dtype]
    rungs = [rung for rung in rungs if is_linear(stage) or rung.layout == plan.layout]
    if stage.shape.stores_terms or stage.shape.takes_terms:
        rungs = [step.bound.rung]  # the terms of another lie otherwise
    candidates = [step.bound, *auto.contenders(executor.device, stage.shape, N, rungs, CONTENDERS)]
    if is_linear(stage) and FEW_IMAGES[plan.dtype] >= N:
        usual = bound_to(STAGES[plan.dtype, plan.layout]["linear"], stage, N, executor)
        candidates += [usual.having({SPLITS.name: splits}) for splits in SPLITS.choices]
    once = {(bound.rung.name, *sorted(bound.constants.items())): bound for bound in candidates}
    return [bound for bound in once.values() if not misfit(executor, bound, N)]


def used(stage: Stage, parameters: Parameters | None) -> Parameters | None:
    """A stage's parameters without the bias, where another stage adds it."""
    return parameters and replace(parameters, bias=parameters.bias if stage.shape.bias else None)


def steps_of(
    stages: Sequence[Stage], bounds: Sequence[BoundRung], parameters: Sequence[Parameters | None]
) -> tuple[Step, ...]:
    """The steps, with the arrays of their arguments."""
    steps: list[Step] = []
    for number, (stage, bound, weights) in enumerate(zip(stages, bounds, parameters, strict=True)):
        rung = bound.rung
        before = steps[-1].output if steps else IMAGES
        in_place = all("x" not in launch.args for launch in rung.launches) and not rung.maps
        after = before if in_place else ALTERNATING[before == ALTERNATING[0]]
        arrays = {"x": before, "y": after}
        own = ["w", BIAS, *(array.name for array in rung.prepared)]
        own += [array.name for array in rung.scratch if array.lasting]
        has = {"w": isinstance(stage, Product), BIAS: stage.shape.bias}
        arrays |= {name: f"{number}.{name}" for name in own if has.get(name, True)}
        arrays |= {array.name: f"scratch.{array.name}" for array in rung.scratch if not array.lasting}
        of_terms = [array.name.removeprefix(TERMS_PREFIX) for array in rung.terms]
        if stage.shape.takes_terms:
            arrays |= {name: f"{number}.{name}" for name in of_terms}
        if stage.shape.stores_terms:
            arrays |= {TERMS_PREFIX + name: f"{number + 1}.{name}" for name in of_terms}
        steps.append(Step(stage, bound, weights, arrays))
    return tuple(steps)


def choose(executor: Executor, stage: Stage, point: NetworkPoint, layout: str, ladder: Ladder) -> BoundRung:
    """The rung of a stage; raises DoesNotFit where there is none."""
    N, precision = point.N, point.precision
    own = STAGES.get((PRECISIONS[precision].dtype, layout), {})
    if not isinstance(stage, Product):
        if stage.kind not in own:
            raise DoesNotFit(f"no kernel of {stage.kind} in {PRECISIONS[precision].dtype} in the layout {layout}")
        return bound_to(own[stage.kind], stage, N, executor)
    linear = is_linear(stage)
    if point.rung != AUTO:
        named = bound_to(ladder.named[point.rung], stage, N, executor)
        if not (executor.unsuited(named.rung) or named.refusal() or misfit(executor, named, N)):
            return named
    if linear and (FEW_IMAGES[PRECISIONS[precision].dtype] >= N or not executor.measures):
        return bound_to(own["linear"], stage, N, executor)
    layouts = auto.layouts_of(precision, ladder) if linear else (layout,)  # one pixel lies the same way in all
    for name in (precision, *PRECISIONS[precision].stricter):
        requests = [Request(stage.shape, N, name, order) for order in layouts]
        choices = [auto.choose(executor, request, print_to_stderr, None, ladder) for request in requests]
        bounds = [choice.bound(executor, stage.shape) for choice in choices if choice]
        if bounds := [bound for bound in bounds if bound.rung.dtype == PRECISIONS[precision].dtype]:
            return min(bounds, key=lambda bound: estimate(bound, N))
    if linear:
        return bound_to(own["linear"], stage, N, executor)
    raise DoesNotFit(f"no {precision} rung in layout {layout} takes {stage.name}")


def misfit(executor: Executor, bound: BoundRung, N: int) -> str | None:
    """Why an executor cannot run a rung, or None."""
    if bound.rung.constant_symbol:
        return "keeps its filters in constant memory"
    try:
        plan_on(executor, bound, N)
    except DoesNotFit as reason:
        return str(reason)
    return None


def bound_to(rung: Rung, stage: Stage, N: int, executor: Executor) -> BoundRung:
    """A rung on a stage's shape."""
    constants = rung.resolve(stage.shape, stage.constants, N, executor.device)
    return BoundRung(rung, stage.shape, constants, executor.device)


def as_stored(step: Step, plan: NetworkPlan) -> dict[str, Values]:
    """A step's filters and bias in the class's type, as its rung takes them, by the names of their arguments.

    A linear layer's weights get the order in which its input lies in memory.
    """
    if step is plan.whole:
        parameters = [of_stage.parameters for of_stage in plan.steps if of_stage.parameters]
        return persistent.packed([of_stage.stage for of_stage in plan.steps], parameters, step.bound.device)
    if not step.parameters:
        return {}
    w, bias, stage = step.parameters.w, step.parameters.bias, step.stage
    planes = getattr(stage, "planes", None)
    if planes and plan.layout == "nhwc":
        w = w.reshape(len(w), *planes).transpose(0, 2, 3, 1).reshape(w.shape)
    stored = {"w": np.ascontiguousarray(w, plan.dtype)} if "w" in step.arrays else {}
    return stored if bias is None or not stage.shape.bias else stored | {BIAS: bias.astype(plan.dtype)}
