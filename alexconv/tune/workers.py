"""Searches over workers: all candidates of a layer, batch size and rung on one card, several searches at a time.

Results are kept in the worker's cache.  If a worker ends, its search restarts on another card.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from alexconv.cluster import worker as remote
from alexconv.cluster.connection import ClusterLost
from alexconv.cluster.pool import Pool, Task, Worker
from alexconv.cluster.sending import HEADER, POINT, STARTED, Sender
from alexconv.cluster.worker import Request
from alexconv.measuring.jobs import Progress
from alexconv.own.folders import installed_ladder
from alexconv.planning.points import Point
from alexconv.records.store import Record, RecordFile
from alexconv.tune.candidates import Comparison, Session, compare_rungs, rungs_of, search_constants
from alexconv.tune.search import Axes, Search

MOST_ENDS = 2  # of workers in one search: one of its candidates may be to blame
Records = list[Record]


def session_of(request: Request, previous: Records) -> Session:
    """A session that records a worker's candidates at the client; those in ``previous`` are not run again."""
    sender, limit = Sender(request.topic, previous), remote.executor_of(request).time_limit
    progress = nullcontext(sender)
    return Session(lambda: sender, request.command, bool(previous), request.time_limit or limit, lambda most: progress)


def remote_search(request: Request, point: Point, space: Axes, trials: int, previous: Records) -> str:
    """Searches a space; returns the records of its candidates, and of those that were run again, as JSON."""
    executor, session = remote.executor_of(request), session_of(request, previous)
    (search,) = search_constants(executor, [(point, space)], trials, request.settings, session)
    return json.dumps([search.records, search.again])


def remote_comparison(request: Request, points: Sequence[Point], previous: Records) -> str:
    """Compares rungs on a layer and batch size; returns each kind's first point (an index) and records, as JSON."""
    executor, session = remote.executor_of(request), session_of(request, previous)
    compared = compare_rungs(executor, points, request.settings, session, installed_ladder())
    rungs = [point.rung for point in points]  # the first point has tuned constants where its rung refuses the defaults
    return json.dumps(
        [(rungs.index(comparison.first.rung), comparison.records, comparison.again) for comparison in compared]
    )


def searches(
    pool: Pool,
    file: RecordFile,
    point_axes: Sequence[tuple[Point, Axes]],
    trials: int,
    progress: Progress,
    *,
    resume: bool,
) -> list[Search]:
    """Searches the space of each point, as ``search_constants`` does.  Raises ClusterLost."""
    previous = file.previous.points if resume else []
    calls = [(remote_search, point.label(), (point, space, trials, previous)) for point, space in point_axes]
    texts = over_workers(pool, file, calls, progress)
    return [
        Search(point, *map(tuple, json.loads(records))) for (point, _), records in zip(point_axes, texts, strict=True)
    ]


def comparisons(
    pool: Pool, file: RecordFile, points: Sequence[Point], progress: Progress, *, resume: bool
) -> list[Comparison]:
    """Compares rungs, as ``compare_rungs`` does: those of a layer and batch size on one card.  Raises ClusterLost."""
    previous = file.previous.points if resume else []
    places: dict[tuple[str, int, int], list[Point]] = {}
    for point in points:
        places.setdefault((point.workload, point.layer, point.N), []).append(point)
    calls = [(remote_comparison, place_points[0].label(), (place_points, previous)) for place_points in places.values()]
    texts = over_workers(pool, file, calls, progress)
    return [
        Comparison(place_points[first], rungs_of(place_points), tuple(records), again)
        for place_points, text in zip(places.values(), texts, strict=True)
        for first, records, again in json.loads(text)
    ]


def over_workers(
    pool: Pool,
    file: RecordFile,
    calls: Sequence[tuple[Callable[..., str], str, tuple[Any, ...]]],
    progress: Progress,
) -> list[str]:
    """The result of each call, whose records go to the file as they arrive.  Raises ClusterLost."""
    results: dict[int, str] = {}

    def hear(worker: Worker, kind: str, content: list[Any]) -> None:
        if kind == STARTED:
            progress.start(f"{worker.name}: {content[0]}")
        elif kind == HEADER:
            file.header(*content)
        elif kind == POINT:
            of_worker = {"name": worker.facts["name"], "host": worker.host, "uuid": worker.facts["uuid"]}
            progress.finish(file.point({**content[0], "worker": file.header("worker", of_worker)}))

    def task(number: int, ends: int = 0) -> Task:
        call, label, arguments = calls[number]

        def done(worker: Worker, result: str) -> Sequence[Task]:
            results[number] = result
            return ()

        def lost(worker: Worker) -> Sequence[Task]:
            if ends + 1 >= MOST_ENDS:
                raise ClusterLost(f"{label}: {MOST_ENDS} workers ended in this search, {worker.name} the last")
            return [task(number, ends + 1)]

        return Task(label, call, (pool.request, *arguments), done=done, lost=lost)

    pool.run([task(number) for number in range(len(calls))], hear)
    return [results[number] for number in range(len(calls))]
