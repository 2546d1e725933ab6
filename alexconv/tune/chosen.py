"""The results of tuning for a run: constants of a rung, and the rungs that ``auto`` stands for."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from alexconv.cli.run_jobs import Tuning
from alexconv.executors.interface import Executor
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.problem import Constants
from alexconv.kernels.rung import Rung
from alexconv.messages import print_to_stderr
from alexconv.planning.points import TunedConstants
from alexconv.shapes import Conv
from alexconv.tune import auto
from alexconv.tune import cache as tuning_cache
from alexconv.tune.measured import Request


def tuned_on(executor: Executor) -> TunedConstants:
    """The constants that ``alexconv.tune`` has found on this device for a rung, shape and batch size; else none."""

    @cache
    def constants(rung: Rung, conv: Conv, N: int) -> dict[str, int]:
        tuned = tuning_cache.load(executor, rung, conv, N, print_to_stderr)
        return tuned.constants if tuned else {}

    return constants


@dataclass(frozen=True)
class Chooser:
    """Chooses the rungs that ``auto`` stands for; ``budget`` is that of ``auto.choose``."""

    executor: Executor
    ladder: Ladder
    budget: int | None

    def __call__(
        self, conv: Conv, N: int, precision: str, count: int | None = None
    ) -> Iterator[tuple[Rung, TunedConstants]]:
        """A rung with its constants for each layout that the precision has rungs for; ``count`` contenders if given."""
        executor, ladder = self.executor, self.ladder
        for layout in auto.layouts_of(precision, ladder):
            if count is not None:
                rungs = [rung for rung in ladder if (rung.precision, rung.layout) == (precision, layout)]
                for bound in auto.contenders(executor.device, conv, N, rungs, count):
                    yield bound.rung, always(bound.constants)
                continue
            request = Request(conv, N, precision, layout)
            if choice := auto.choose(executor, request, print_to_stderr, self.budget, ladder):
                yield choice.rung, always(choice.constants)


def always(constants: Constants) -> TunedConstants:
    """These constants for every rung, shape and batch size."""
    return lambda rung, conv, N: constants


TUNING = Tuning(tuned_on, Chooser)
