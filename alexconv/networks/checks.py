"""Checks of a network's run: every stage against float64 of its own input, and the scores end to end."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from alexconv.kernels.geometry import FLOAT
from alexconv.machine import cores
from alexconv.networks.plan import NetworkPlan, Step
from alexconv.networks.stages import MARGIN, Values
from alexconv.parallel import each_slice
from alexconv.precisions import ANY, USUAL

COMPARED = 8  # images whose scores are compared end to end
AT_ONCE = 4  # images that a core checks at once
DOUBLES = 6  # for each output of these

StageOutputs = Callable[[Values], Iterable[Values]]


@dataclass(frozen=True)
class StageError:
    """A stage's errors: the largest, over its largest output, and over its bound; at most 1 passes, NaN does not."""

    stage: str
    rung: str
    largest: float
    of_bound: float

    @property
    def passes(self) -> bool:
        """Whether every output keeps its bound."""
        return self.of_bound <= 1


@dataclass(frozen=True)
class EndToEnd:
    """The scores' error against float64 throughout: the 2-norm of an image's error over that of its scores.

    ``bound`` is what the stages' own errors, as far as they keep their bounds, can become, in the same unit;
    ``of_bound`` is the largest ratio of an image.
    """

    images: int
    error: float
    bound: float
    of_bound: float

    @property
    def passes(self) -> bool:
        """Whether every image's error is within the bound."""
        return self.of_bound <= 1


def checked_stages(
    plan: NetworkPlan, images: Values, outputs: StageOutputs, *, generated: bool
) -> tuple[list[StageError], EndToEnd, Values]:
    """The errors of each stage, those end to end, and the scores of a run over images ``[n][C][H][W]``.

    ``generated``: filters are random and zero-mean, so that ``USUAL`` bounds hold.
    """
    kind, compared = (USUAL if generated else ANY), min(len(images), COMPARED)
    x = images.astype(plan.dtype)
    errors, of_compared, squared = [], list[Values](), np.zeros((len(plan.steps), compared))
    for number, (step, y) in enumerate(zip(plan.steps, outputs(images), strict=True)):
        # Products spread over all cores themselves; the rest of a check is spread over blocks of images, whose arrays
        # in float64 are smaller.
        due = step.stage.reference(x, step.parameters) if step.stage.filters else None
        blocks = each_slice(partial(_errors, step, x, y, due, kind), len(x), AT_ONCE)
        largest, most, of_bound = (float(np.max([block[place] for block in blocks])) for place in range(3))
        squared[number] = np.concatenate([block[3] for block in blocks])[:compared]
        errors.append(StageError(step.stage.name, step.bound.rung.name, largest / (most or 1), of_bound))
        x = np.ascontiguousarray(y)
        of_compared.append(x[:compared].copy())  # a view would keep the whole batch
    return errors, end_to_end(plan, images[:compared], of_compared, np.sqrt(squared), kind), x


def check_bytes(plan: NetworkPlan) -> int:
    """Host memory for the checks of a piece: a stage's inputs and outputs, which a product has twice more in float32.

    These are its inputs with their padding, its reference and what that is made of; its filters are there in float64,
    and so are the outputs, their errors and bounds, of the images that all cores check at once.
    """
    itemsize, N = np.dtype(plan.dtype).itemsize, plan.images_per_piece
    of_stages, at_once = [], min(N, AT_ONCE * cores())
    for stage in (step.stage for step in plan.steps):
        x, y = prod(stage.shape.x_shape(1)), prod(stage.planes_out)
        of_image = itemsize * (x + y) + (2 * FLOAT * (x + y) if stage.filters else 0)
        of_stages.append(N * of_image + 4 * FLOAT * prod(stage.filters or (0,)) + DOUBLES * 2 * FLOAT * at_once * y)
    return max(of_stages)


def _errors(
    step: Step, x: Values, y: Values, due: Values | None, kind: str, images: slice
) -> tuple[float, float, float, Values]:
    """Of some images: the largest error, the largest output, the largest error over its bound.

    Last the squared norm of each image's errors, as far as they keep their bounds: what the stage may contribute to the
    error of the scores.  ``due`` is the reference of all images, if they have one together.
    """
    part = x[images]
    expected = step.stage.reference(part, step.parameters) if due is None else due[images]
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(y[images].astype(np.float64) - expected)
        allowed = step.stage.bound(part, expected, step.parameters, step.bound.rung.precision, kind)
        ratio = np.where(error == 0, 0, error / np.where(allowed > 0, allowed, np.finfo(float).tiny))
        own = np.square(np.minimum(error, allowed)).reshape(len(part), -1).sum(axis=1)
    return float(error.max()), float(np.abs(expected).max()), float(ratio.max()), own


def end_to_end(plan: NetworkPlan, images: Values, outputs: list[Values], own: Values, kind: str) -> EndToEnd:
    """The scores' error of images, given each stage's outputs and the norms of its own errors ``[stages][n]``."""
    due = exact_scores(plan, images)
    bound = np.zeros(len(images))
    for step, norms, y in zip(plan.steps, own, outputs, strict=True):
        bound = step.stage.gain(step.parameters, kind, y) * bound + norms
    bound *= MARGIN if kind == USUAL else 1
    error, size = (
        np.sqrt(np.square(values.reshape(len(values), -1)).sum(axis=1)) for values in (outputs[-1] - due, due)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0, error / bound)
        return EndToEnd(len(images), *(float(np.max(values)) for values in (error / size, bound / size, ratio)))


def exact_scores(plan: NetworkPlan, images: Values) -> Values:
    """The scores of images through all stages in float64 arithmetic, from what the class's type holds of the inputs."""
    x = images.astype(plan.dtype).astype(np.float64)
    for step in plan.steps:
        x = step.stage.reference(x, step.parameters)
    return x
