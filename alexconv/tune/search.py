"""The search for a rung's fastest constants: which values to try, and in what order."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import ceil, prod
from typing import Any, Protocol

from alexconv.errors import MissingTool, UsageError
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import IMAGES_PER_PIECE, Constant
from alexconv.planning.points import Point
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, identity
from alexconv.tune.cache import Tuned

SCALES = (0.25, 0.5, 1, 2, 4)  # of its default, for a constant that has neither choices nor a ceiling
PARTS = (2, 4, 8)  # of a batch, for the images that are computed at a time
SUGGESTIONS = 20  # for each candidate that may be run: the sampler also suggests refused and known ones

Axes = dict[str, tuple[int, ...]]  # the values to try, by constant
AGAIN = "again"  # in the record of a candidate that was run again after it was chosen


class Run(Protocol):
    """Runs a point and records it; ``again`` is the second run of a point that was chosen."""

    def __call__(self, point: Point, *, again: bool = False) -> Record:
        """The record."""
        ...


def fastest(records: Iterable[Record]) -> Record | None:
    """The record with the least median of kernel times, or None where none has any."""
    timed = [record for record in records if median_of(record, "kernel") is not None]
    return min(timed, key=lambda record: median_of(record, "kernel") or 0.0, default=None)


@dataclass(frozen=True)
class Search:
    """All candidates that were run for one layer, batch size and rung; the first has the default constants.

    The fastest of many was also lucky.  So ``again`` has new records of it and of the default, made after the choice,
    and the times that are reported and kept come from these.
    """

    default: Point
    records: tuple[Record, ...]
    again: tuple[Record, ...] = ()

    @property
    def best(self) -> Tuned | None:
        """The constants of the fastest correct candidate, with the time of its second run, or None."""
        winner = fastest(self.records)
        ms = self._again_ms(winner["point"]["constants"]) if winner else None
        return Tuned(winner["point"]["constants"], ms) if winner and ms is not None else None

    @property
    def default_ms(self) -> float | None:
        """Time of the second run with the default constants, or None where they failed."""
        return self._again_ms(self.default.constants)

    def _again_ms(self, constants: Mapping[str, int]) -> float | None:
        repeats = (record for record in self.again if record["point"]["constants"] == constants)
        return next((median_of(record, "kernel") for record in repeats), None)

    def count(self, status: str) -> int:
        """The number of candidates with this status."""
        return sum(record["status"] == status for record in self.records)


def import_optuna() -> Any:
    """Optuna, quiet; raises MissingTool with what to do."""
    # Why not kernel_tuner: it compiles, launches and times one kernel by itself.  A rung may have several launches and
    # a constant that only the planner knows, and its check, executor and record are the run's.  Optuna needs
    # only a function to minimise.
    try:
        import optuna
    except ImportError as error:
        raise MissingTool(f"tuning needs Optuna: pip install 'alexconv[tune]' ({error})") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def values_to_try(constant: Constant, problem: Problem) -> tuple[int, ...]:
    """The constant's choices; where it has none, a few values that fit the shape, the default among them.

    Images per piece: the whole batch (0) and PARTS of it.  A constant with a ceiling: the powers of two up to it, and
    the ceiling.  Any other: SCALES of its default.
    """
    if constant.choices:
        return constant.choices
    default = constant.default(problem)
    if constant.name == IMAGES_PER_PIECE:
        values = {0, *(ceil(problem.N / parts) for parts in PARTS)}
    elif constant.ceiling:
        ceiling = constant.ceiling(problem)
        values = {ceiling, *(2**power for power in range(ceiling.bit_length()))}
    else:
        values = {max(constant.least, round(default * scale)) for scale in SCALES}
    return tuple(sorted(values | {default}))


def axes(point: Point, names: Sequence[str] | None, chosen: Mapping[str, Sequence[int]]) -> Axes:
    """The values to try for the rung's constants in ``names`` (None: for all) and those with ``chosen`` values.

    Raises UsageError for a chosen value that a constant cannot have.
    """
    rung = point.entry
    for constant in rung.constants:
        for value in chosen.get(constant.name, ()):
            candidate(point, {constant.name: value})
    constants = rung.resolve(point.conv, {}, point.N, point.device)  # which the defaults of later ones see
    problem = Problem(point.conv, point.N, constants, point.device)
    return {
        constant.name: tuple(chosen.get(constant.name, ())) or values_to_try(constant, problem)
        for constant in rung.constants
        if names is None or constant.name in names or constant.name in chosen
    }


def candidate(default: Point, chosen: Mapping[str, int]) -> Point | None:
    """The point with the chosen constants, or None where the rung refuses them; raises UsageError for a bad value."""
    rung = default.entry
    try:
        constants = rung.resolve(default.conv, {**default.constants, **chosen}, default.N, default.device)
    except ValueError as error:
        raise UsageError(str(error)) from None
    refused = rung.refuses(Problem(default.conv, default.N, constants, default.device))
    return None if refused else replace(default, constants=constants)


def candidates(default: Point, space: Axes) -> Iterator[Point]:
    """The default and every other point of the space that the rung takes, each once, found as they are asked for."""
    yield default
    known = {frozenset(default.constants.items())}
    for values in product(*space.values()):
        point = candidate(default, dict(zip(space, values, strict=True)))
        if point and (constants := frozenset(point.constants.items())) not in known:
            known.add(constants)
            yield point


def search(
    default: Point, space: Axes, trials: int, run: Run, seed: int = 0, among: Collection[str] | None = None
) -> Search:
    """Runs the default and at most ``trials`` others: all there are, or those from which the sampler expects most.

    ``among`` names the candidates that may be run, if not all.

    The sampler of larger spaces is the tree-structured Parzen estimator (Bergstra et al., "Algorithms for
    hyper-parameter optimization", NeurIPS 2011).
    """
    optuna = import_optuna()
    records = {identity(default.axes()): run(default)}

    def kernel_ms(trial: Any) -> float:
        point = candidate(default, {name: trial.suggest_categorical(name, values) for name, values in space.items()})
        if point is None:
            raise optuna.TrialPruned
        name = identity(point.axes())
        if among is not None and name not in among:
            raise optuna.TrialPruned
        if name not in records:
            records[name] = run(point)
        ms = median_of(records[name], "kernel")
        if ms is None:
            raise optuna.TrialPruned
        return ms

    def stop_when_done(study: Any, trial: Any) -> None:
        if len(records) > trials:
            study.stop()

    few = islice(candidates(default, space) if among is None else among, trials + 2)
    if sum(1 for _ in few) <= trials + 1:
        sampler, suggestions = optuna.samplers.GridSampler(space, seed), prod(map(len, space.values()))
    else:
        sampler, suggestions = optuna.samplers.TPESampler(seed=seed, multivariate=True), SUGGESTIONS * trials
    study = optuna.create_study(sampler=sampler)
    study.optimize(kernel_ms, n_trials=suggestions, callbacks=[stop_when_done])
    candidate_records = tuple(records.values())
    return Search(default, candidate_records, run_again(default, candidate_records, run))


def run_again(default: Point, records: Sequence[Record], run: Run) -> tuple[Record, ...]:
    """New records of the fastest candidate and of the default, if that is another and has a time."""
    winner = fastest(records)
    if winner is None:
        return ()
    chosen = [winner["point"]["constants"]]
    if median_of(records[0], "kernel") is not None and default.constants not in chosen:
        chosen.append(default.constants)
    return tuple(run(replace(default, constants=constants), again=True) for constants in chosen)
