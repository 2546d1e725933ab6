"""The jobs of a run, one after the other: each a point and the recorder that runs it."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from alexconv.errors import MachineFault
from alexconv.measuring.ahead import Ahead
from alexconv.measuring.runner import Runner, timed_out
from alexconv.measuring.watchdog import time_limit
from alexconv.planning.points import AnyPoint
from alexconv.records.store import Record, by_key, identity


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

    def start(self, activity: str) -> None:
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

    point: AnyPoint
    recorder: Recorder

    @property
    def name(self) -> str:
        """The point's identity in record files."""
        return identity(self.point.axes())


def reusable_records(jobs: Iterable[Job], previous: Iterable[Record], runner: Runner) -> dict[str, Record]:
    """The earlier records of jobs that ``--resume`` keeps, by the points' names."""
    of_keys = by_key(previous)
    earlier = {job.name: runner.earlier(job.point, job.recorder.key(job.point), of_keys) for job in jobs}
    return {name: record for name, record in earlier.items() if record}


def run_jobs(
    jobs: Sequence[Job],
    runner: Runner,
    write: Callable[[Record], Record],
    progress: Progress,
    limit: float,
    conclude: Callable[[list[Record]], int],
) -> list[Record]:
    """Runs and records the points one by one; stops early when the device is lost, and raises MachineFault.

    ``write`` puts a record into the file, with its headers, and returns its line.  A point that takes longer than
    ``limit`` seconds, not counting the CPU's reference, is recorded as a timeout and ends the process with the status
    of ``conclude``, which gets all records so far.
    """
    done: list[Record] = []

    def keep(record: Record) -> None:
        done.append(write(record))
        progress.finish(done[-1])

    def give_up(record: Record) -> int:
        keep(record)
        progress.stop()
        progress.say("a running kernel cannot be stopped: run again with --resume for the other points")
        return conclude(done)

    with Ahead(runner, [layer_point for job in jobs for layer_point in job.point.points()], progress.start) as ahead:
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
