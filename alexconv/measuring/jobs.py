"""The jobs of a run, one after the other: each a point and the recorder that runs it."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from alexconv.errors import MachineFault, UsageError
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.ahead import Ahead
from alexconv.measuring.peers import Peer
from alexconv.measuring.runner import Runner, finished, timed_out
from alexconv.measuring.watchdog import time_limit
from alexconv.planning.points import LayerSequence, Point
from alexconv.records.labels import SEQUENCE_SUFFIX
from alexconv.records.store import Record, RecordWriter, identity


class Recorder(Protocol):
    """Runs points of a kind and returns their records."""

    executor: Any

    def key(self, point: Any) -> str:
        """Digest of all that the point's result depends on."""
        ...

    def record(self, point: Any) -> Record:
        """Runs one point."""
        ...


class Progress(Protocol):
    """The display of a run's progress."""

    def start(self, what: str) -> None:
        """Shows what runs now."""
        ...

    def finish(self, record: Record) -> None:
        """Counts a finished point."""
        ...

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        ...

    def stop(self) -> None:
        """Ends the display; ``say`` still works."""
        ...


class Job(NamedTuple):
    """A point and its recorder."""

    point: Point | LayerSequence
    recorder: Recorder

    @property
    def name(self) -> str:
        """The point's identity in record files."""
        return identity(self.point.axes())


def with_peers(
    runner: Runner,
    points: Sequence[Point],
    peer: Peer,
    peer_runner: Recorder,
    precisions: Sequence[str],
    *,
    names: Sequence[str] = (),
    sequences: bool,
) -> list[Job]:
    """The points and their peers, each peer after the rungs of its layer and batch, whose data it shares.

    ``names`` selects peers (empty: all); ``sequences`` adds the peers' layers as one graph.  Raises UsageError if no
    peer is left.
    """
    there = dict.fromkeys(each.rung for each in peer.points(points, ()))
    if unknown := [name for name in names if name not in there]:
        raise UsageError(f"no peer {unknown[0]}: there are {', '.join(there)}")
    beside = [each for each in peer.points(points, precisions) if not names or each.rung in names]
    if not beside:
        raise UsageError(f"no peer is left: peers have the precisions {', '.join(peer.precisions)}")
    places = list(dict.fromkeys(map(place, points)))
    jobs = [
        Job(point, runner if point.rung in RUNGS else peer_runner)
        for point in sorted([*points, *beside], key=lambda point: places.index(place(point)))
    ]
    if sequences:
        found = peer.sequences(points, precisions)
        if not found:
            raise UsageError("--together takes two layers or more")
        found = [each for each in found if not names or each.rung.removesuffix(SEQUENCE_SUFFIX) in names]
        jobs += [Job(point, peer_runner) for point in found]
    return jobs


def place(point: Point) -> tuple[str, int, int, str]:
    """Workload, layer, batch size and data: points that have these in common share inputs and reference."""
    return point.workload, point.layer, point.N, point.data


def kept_records(jobs: Iterable[Job], previous: Iterable[Record]) -> dict[str, Record]:
    """The earlier records of jobs whose key has not changed, failed or not: ``--resume`` keeps them."""
    latest = {identity(record["point"]): record for record in previous}
    return {job.name: latest[job.name] for job in jobs if finished(job.point, job.recorder.key(job.point), latest)}


def run_jobs(
    jobs: Sequence[Job],
    runner: Runner,
    file: RecordWriter,
    headers: Record,
    progress: Progress,
    limit: float,
    conclude: Callable[[list[Record]], int],
) -> list[Record]:
    """Runs and records the points one by one; stops early when the device is lost, and raises MachineFault.

    A point that takes longer than ``limit`` seconds, not counting the CPU's reference, is recorded as a timeout and
    ends the process with the status of ``conclude``, which gets all records so far.
    """
    done: list[Record] = []

    def keep(record: Record) -> None:
        done.append(file.point({**headers, **record}))
        progress.finish(done[-1])

    def give_up(record: Record) -> int:
        keep(record)
        progress.stop()
        progress.say("a running kernel cannot be stopped: run again with --resume for the other points")
        return conclude(done)

    with Ahead(runner, [each for job in jobs for each in job.point.points()], progress.start) as ahead:
        for point, recorder in jobs:
            ahead.wait(point.points())
            progress.start(point.label())
            runner.ready(point.points())
            with time_limit(limit, partial(give_up, timed_out(point, recorder.key(point), limit))):
                try:
                    record = recorder.record(point)
                except MachineFault:
                    progress.say("this ends the run, and is not recorded: run again with --resume for the other points")
                    raise
            keep(record)
            if record["status"] == "launch-error" and recorder.executor.lost():
                progress.say("the device no longer answers after this fault: run again with --resume for the others")
                break
    return done
