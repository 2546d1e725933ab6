"""Verifies, times and records candidates one after the other; keeps the fastest for later runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from alexconv.errors import LaunchError, MissingTool, UsageError
from alexconv.executors.interface import Executor
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.rung import Rung
from alexconv.measuring.ahead import Ahead
from alexconv.measuring.jobs import Progress
from alexconv.measuring.runner import Runner, Settings, Skip, timed_out
from alexconv.measuring.watchdog import time_limit
from alexconv.messages import print_to_stderr
from alexconv.planning.points import Point
from alexconv.records import environment
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, RecordWriter, by_key, identity
from alexconv.tune import cache
from alexconv.tune.cache import Best
from alexconv.tune.search import AGAIN, Axes, Run, Search, candidates, fastest, import_optuna, search

RUN_AGAIN = 2  # candidates of a search, at most


@dataclass(frozen=True)
class Comparison:
    """The records of all rungs of one precision and layout at one layer and batch size, and the first one's point.

    ``rungs`` has these rungs by name.  ``again`` is a second record of the fastest, made after it was chosen, if there
    is one: see Search.
    """

    first: Point
    rungs: Mapping[str, Rung]
    records: tuple[Record, ...]
    again: Record | None = None

    @property
    def best(self) -> Best | None:
        """The fastest correct rung, with the time of its second run, or None."""
        ms = median_of(self.again, "kernel") if self.again else None
        if self.again is None or ms is None:
            return None
        return Best(self.rungs[self.again["point"]["rung"]], self.again["point"]["constants"], ms)


class Session(NamedTuple):
    """How candidates are recorded and shown."""

    open: Callable[[], RecordWriter]  # the record file
    command: str  # for its headers
    resume: bool
    time_limit: float  # seconds of a point
    progress: Callable[[int], AbstractContextManager[Progress]]  # the display for a number of candidates


def search_constants(
    executor: Executor,
    point_axes: Sequence[tuple[Point, Axes]],
    trials: int,
    settings: Settings,
    session: Session,
    promising: Callable[[list[Point]], list[Point]] | None = None,
) -> list[Search]:
    """Searches the space of each point, records every candidate and keeps the best for ``run --tuned``.

    ``promising`` selects the candidates of a space that may be run, always with the first; without it all may.

    Raises MissingTool on an executor that measures nothing, and LaunchError when a candidate took the device down.
    Ends the process when one takes longer than the time limit.
    """
    require_times(executor)
    import_optuna()
    runner = Runner(executor, [point for point, _ in point_axes], settings)
    spaces = [some_of(candidates(default, space), trials, promising) for default, space in point_axes]
    whole = [point for points in spaces if len(points) <= trials + 1 for point in points]
    most = sum(min(len(points), trials + 1) + RUN_AGAIN for points in spaces)
    searches = []
    with recording(runner, session, whole, most) as run:
        for (default, space), points in zip(point_axes, spaces, strict=True):
            among = {identity(point.axes()) for point in points} if promising else None
            space_search = search(default, space, trials, run, settings.seed, among)
            searches.append(space_search)
            if space_search.best:
                cache.keep(executor, default.entry, default.conv, default.N, space_search.best, print_to_stderr)
    return searches


def some_of(
    points: Iterable[Point], trials: int, promising: Callable[[list[Point]], list[Point]] | None
) -> list[Point]:
    """The promising candidates, or as many as tell whether all can be tried: large spaces take seconds to list."""
    return promising(list(points)) if promising else list(islice(points, trials + 2))


def compare_rungs(
    executor: Executor, points: Sequence[Point], settings: Settings, session: Session, ladder: Ladder = LADDER
) -> list[Comparison]:
    """Runs the points that the GPU can run, also with tuned constants, and keeps the fastest of each kind for ``auto``.

    Raises as ``search_constants`` does.
    """
    require_times(executor)
    both = []
    for point in points:
        tuned = cache.load(executor, point.entry, point.conv, point.N, print_to_stderr)
        both += [point, replace(point, constants=tuned.constants)] if tuned else [point]
    runner = Runner(executor, both, settings)
    kinds: dict[tuple[str, str, int, int, str, str], list[Point]] = {}
    for point in dict.fromkeys(both):
        with suppress(Skip):
            runner.plan(point)
            kind = point.direction, point.workload, point.layer, point.N, point.precision, point.entry.layout
            kinds.setdefault(kind, []).append(point)
    suited = [point for same_kind in kinds.values() for point in same_kind]
    if not suited:
        raise UsageError("no rung is left: --rungs and --precision have nothing in common that this GPU can run")
    with recording(runner, session, suited, len(suited) + len(kinds)) as run:
        comparisons = [compared(same_kind, run) for same_kind in kinds.values()]
    for comparison in comparisons:
        if best := comparison.best:
            cache.keep_best(executor, comparison.first.conv, comparison.first.N, best, print_to_stderr, ladder)
    return comparisons


def compared(points: Sequence[Point], run: Run) -> Comparison:
    """Runs the points, and the fastest of them again: one that ``auto`` may choose, if any has a time."""
    records = [run(point) for point in points]
    repeatable = [record for point, record in zip(points, records, strict=True) if not point.entry.order_varies]
    winner = fastest(repeatable) or fastest(records)
    again = run(points[records.index(winner)], again=True) if winner else None
    return Comparison(points[0], rungs_of(points), tuple(records), again)


def rungs_of(points: Iterable[Point]) -> dict[str, Rung]:
    """The rungs of points by name."""
    return {point.rung: point.entry for point in points}


def require_times(executor: Executor) -> None:
    """Raises MissingTool on an executor that measures nothing."""
    if not executor.measures:
        raise MissingTool(f"tuning compares times and needs a GPU, but there is only the host: {executor.describe()}")


@contextmanager
def recording(runner: Runner, session: Session, known: Sequence[Point], most: int) -> Iterator[Run]:
    """A function that runs a point and appends its record, or returns the one in the file.

    The ``known`` points compile ahead; the display expects ``most`` points.  A run raises LaunchError when it took the
    device down.
    """
    executor, file = runner.executor, session.open()
    records = file.previous.points if session.resume else []
    previous = {again: by_key(record for record in records if (AGAIN in record) == again) for again in (False, True)}
    headers = environment.write_headers(file, executor.header(), session.command)

    def give_up(point: Point, record: Record) -> int:
        progress.finish(file.point({**headers, **record}))
        progress.stop()
        raise LaunchError(f"{point.label()} did not end: the same command with --resume continues without it")

    def run(point: Point, *, again: bool = False) -> Record:
        key, limit = runner.key(point), session.time_limit
        record = runner.earlier(point, key, previous[again])
        if record is None:
            ahead.wait([point])
            progress.start(point.label())
            runner.ready([point])
            with time_limit(limit, partial(give_up, point, timed_out(point, key, limit))):
                measurement = runner.record(point)
            record = file.point({**headers, **measurement, **({AGAIN: True} if again else {})})
        progress.finish(record)
        if record["status"] == "launch-error" and executor.lost():
            raise LaunchError(
                f"{point.label()} left the device unusable: the same command with --resume continues without it"
            )
        return record

    with session.progress(most) as progress, Ahead(runner, known, progress.start) as ahead:
        yield run
