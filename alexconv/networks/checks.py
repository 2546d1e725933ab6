"""Checks of a network's run: every stage against float64 of its own input, and the scores end to end."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from alexconv.networks.plan import NetworkPlan
from alexconv.networks.stages import MARGIN, Values
from alexconv.precisions import ANY, USUAL

COMPARED = 8  # images whose scores are compared end to end
AT_ONCE = 16  # images whose stage is computed in float64 at once

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
        stage, parameters = step.stage, step.parameters and step.parameters.stored_as(plan.dtype)
        largest = of_bound = most = 0.0
        for first in range(0, len(x), AT_ONCE):
            part, actual = x[first : first + AT_ONCE], y[first : first + AT_ONCE]
            due = stage.reference(part, parameters)
            with np.errstate(invalid="ignore", over="ignore"):
                error = np.abs(actual.astype(np.float64) - due)
                allowed = stage.bound(part, due, parameters, step.bound.rung.precision, kind)
                ratio = np.where(error == 0, 0, error / np.where(allowed > 0, allowed, np.finfo(float).tiny))
            largest, most = np.maximum(largest, error.max()), np.maximum(most, np.abs(due).max())
            of_bound = float(np.maximum(of_bound, ratio.max()))
            own = np.minimum(error, allowed)  # what the stage may contribute to the scores' error
            of_images = own[: max(0, compared - first)].reshape(-1, own[0].size)
            squared[number, first : first + len(of_images)] = np.square(of_images).sum(axis=1)
        errors.append(StageError(stage.name, step.bound.rung.name, float(largest / (most or 1)), of_bound))
        x = np.ascontiguousarray(y)
        of_compared.append(x[:compared])
    return errors, end_to_end(plan, images[:compared], of_compared, np.sqrt(squared), kind), x


def end_to_end(plan: NetworkPlan, images: Values, outputs: list[Values], own: Values, kind: str) -> EndToEnd:
    """The scores' error of images, given each stage's outputs and the norms of its own errors ``[stages][n]``."""
    due = exact_scores(plan, images)
    bound = np.zeros(len(images))
    for step, norms, y in zip(plan.steps, own, outputs, strict=True):
        parameters = step.parameters and step.parameters.stored_as(plan.dtype)
        bound = step.stage.gain(parameters, kind, y) * bound + norms
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
        x = step.stage.reference(x, step.parameters and step.parameters.stored_as(plan.dtype))
    return x
