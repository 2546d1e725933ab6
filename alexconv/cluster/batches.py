"""One batch in shards, here or over the workers of a cluster: a shard for each, timed at the same time.

With as many free workers as shards, all synchronize before each step of the measurement; otherwise, and on workers that
share a card, shards run one after the other, and the record says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from alexconv.cluster import worker as remote
from alexconv.cluster.connection import ClusterLost
from alexconv.cluster.pool import Pool, Task, Worker
from alexconv.cluster.sending import ARRIVED, HEADER, POINT, Sender
from alexconv.cluster.shards import alone, key_of, run_shard
from alexconv.cluster.worker import Request
from alexconv.errors import LaunchError
from alexconv.executors.interface import Executor
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.points import Point
from alexconv.records.store import Record, RecordFile

MEET_S = 900.0  # a shard waits for the others, whose references may have to be computed
TRIES = 3  # of a batch whose workers end


@dataclass(frozen=True)
class LocalBatches:
    """Batches whose shards one executor computes, one after the other."""

    executor: Executor
    settings: Settings
    file: RecordFile
    of_run: Record
    block_bytes: int

    def key(self, point: Point, count: int) -> str:
        """See ``key_of``."""
        return key_of(self.executor, self.settings, point, count, self.block_bytes)

    def run(self, point: Point, count: int) -> tuple[list[Record], bool]:
        """The shards' records in order, and whether they were timed at the same time, as a single one is."""
        runner = Runner(self.executor, [], self.settings)
        return [run_shard(runner, point, count, number, self.block_bytes) for number in range(count)], count == 1

    def headers(self, parts: Sequence[Record]) -> Record:
        """The digests that name device, host and run."""
        return self.of_run


def remote_key(request: Request, point: Point, count: int, block_bytes: int) -> str:
    """The key of a batch's record."""
    return key_of(remote.executor_of(request), request.settings, point, count, block_bytes)


def remote_shard(request: Request, point: Point, count: int, number: int, block_bytes: int, meeting: str) -> None:
    """Runs a shard and sends its record; ``meeting`` names the events at which all wait for each other, or is empty."""
    from distributed import Event

    executor, file = remote.executor_of(request), Sender(request.topic)

    def meet(place: str) -> None:
        file.send(ARRIVED, number, place)
        if not Event(f"{meeting}-{place}").wait(timeout=MEET_S):
            raise LaunchError(f"the other shards did not arrive within {MEET_S:g} s")

    headers = remote.headers_of(request, executor, file)
    runner = Runner(executor, [], request.settings)
    record = run_shard(runner, point, count, number, block_bytes, meet if meeting else alone)
    file.send(POINT, number, {**headers, **record})


@dataclass
class Meeting:
    """Which shards have arrived at which place; no place waits for those that have left."""

    pool: Pool
    name: str
    count: int
    places: dict[str, set[int]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)

    def arrive(self, number: int, place: str) -> None:
        """Notes a shard's arrival; the last one releases all."""
        self.places.setdefault(place, set()).add(number)
        self._open(place)

    def leave(self, number: int) -> None:
        """Notes that a shard has ended: no other waits for it."""
        self.left.add(number)
        for place in self.places:
            self._open(place)

    def _open(self, place: str) -> None:
        from distributed import Event

        if len(self.places[place] | self.left) == self.count:
            Event(f"{self.name}-{place}", client=self.pool.client).set()


@dataclass
class ClusterBatches:
    """Batches whose shards run on workers."""

    pool: Pool
    file: RecordFile
    block_bytes: int

    def compile(self, points: Sequence[Point]) -> None:
        """Compiles the kernels of points into each cache."""
        stores = self.pool.one_of_each(lambda worker: worker.store)
        call = remote.compile_points, (self.pool.request, points)
        self.pool.run([Task("compiling", *call, address=worker.address) for worker in stores])

    def key(self, point: Point, count: int) -> str:
        """See ``key_of``."""
        return str(self.pool.call(self.pool.first(), remote_key, self.pool.request, point, count, self.block_bytes))

    def headers(self, parts: Sequence[Record]) -> Record:
        """The digests that name the first shard's device, host and run; each shard has its own."""
        return {name: parts[0][name] for name in ("device", "host", "run")}

    def run(self, point: Point, count: int) -> tuple[list[Record], bool]:
        """The shards' records in order, and whether they were timed at the same time.  Raises ClusterLost."""
        for _ in range(TRIES):
            workers = self.pool.at_once()
            together = count <= len(workers)
            # The shards of a meeting wait for each other: each has a worker, and is lost with it.
            addresses = [worker.address for worker in workers[:count]] if together else [""] * count
            meeting = Meeting(self.pool, uuid4().hex if together and count > 1 else "", count)
            parts: dict[int, Record] = {}
            ended: list[str] = []
            hear = partial(self._hear, meeting, parts)
            self.pool.run(
                [self._task(point, number, meeting, ended, address) for number, address in enumerate(addresses)], hear
            )
            if not ended:
                return [parts[number] for number in range(count)], together
        raise ClusterLost(f"{point.label()} in {count} shards: workers ended {TRIES} times: {', '.join(ended)}")

    def _hear(self, meeting: Meeting, parts: dict[int, Record], worker: Worker, kind: str, content: list[Any]) -> None:
        if kind == HEADER:
            self.file.header(*content)
        elif kind == ARRIVED:
            meeting.arrive(*content)
        elif kind == POINT:
            number, record = content
            parts[number] = record

    def _task(self, point: Point, number: int, meeting: Meeting, ended: list[str], address: str) -> Task:
        """One shard for a worker, or for any free one; ``ended`` gets the name of a worker that ends before its end."""

        def done(worker: Worker, result: object) -> Sequence[Task]:
            meeting.leave(number)
            return ()

        def lost(worker: Worker) -> Sequence[Task]:
            ended.append(worker.name)
            meeting.leave(number)
            return ()

        arguments = (self.pool.request, point, meeting.count, number, self.block_bytes, meeting.name)
        label = f"shard {number + 1} of {meeting.count}"
        return Task(label, remote_shard, arguments, done=done, lost=lost, address=address)
