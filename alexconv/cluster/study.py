"""The points of a study over the workers of a cluster, into one record file with one writer.

A layer with its peers is one task, which sends each record as soon as it is complete.  If its worker ends, the rest
goes to another worker; a point that ends MOST_ENDS workers is recorded as failed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from alexconv.cluster import worker as remote
from alexconv.cluster.groups import Group, groups_of
from alexconv.cluster.pool import MOST_ENDS, Pool, Task, Worker
from alexconv.cluster.reference import blocks_of, places_of
from alexconv.cluster.sending import CALIBRATION, HEADER, POINT, STARTED
from alexconv.measuring.jobs import Progress
from alexconv.measuring.runner import begun
from alexconv.planning.points import AnyPoint, PeerPoint, Point
from alexconv.records.environment import write_end
from alexconv.records.store import Record, RecordFile, Records, identity, read

ENDED = "launch-error"  # the status of a point that ends MOST_ENDS workers


@dataclass
class Study:
    """The points of a command line for workers of one kind, in order, and their records so far."""

    kind: str
    path: Path
    points: list[AnyPoint]
    keys: dict[str, str]  # by the point's identity
    earlier_records: dict[str, Record]
    times_cpu: bool
    tuned: int | None
    done: dict[str, Record] = field(default_factory=dict)
    calibrated: dict[str, float] = field(default_factory=dict)  # ms of the calibration's kernel, by card
    headers: Record = field(default_factory=dict)  # the digests by which records name a worker

    @cached_property
    def file(self) -> RecordFile:
        """The record file, opened on first use."""
        return RecordFile(self.path)

    def left(self, points: Iterable[AnyPoint]) -> list[AnyPoint]:
        """The points without a record yet."""
        return [point for point in points if name_of(point) not in self.done.keys() | self.earlier_records.keys()]

    def keep(self, record: Record) -> Record | None:
        """Writes the first record of a point and returns it; None for a later one."""
        name = identity(record["point"])
        if name in self.done:
            return None
        self.done[name] = self.file.point(record)
        return self.done[name]

    def cards(self) -> str:
        """How the cards differ on the calibration point, in words."""
        times = self.calibrated.values()
        return (
            f"{len(times)} cards; the calibration's kernel takes {min(times):.4f} to {max(times):.4f} ms, "
            f"the slowest card {max(times) / min(times) - 1:.1%} longer than the fastest"
        )

    def end(self, workers: int, phases: Mapping[str, float]) -> None:
        """Writes the run's time and its phases', the number of workers, and how the cards differ."""
        if self.headers:
            facts = {"workers": workers, "phases_s": {name: round(seconds, 2) for name, seconds in phases.items()}}
            cards = {"cards": self.calibrated} if self.calibrated else {}
            write_end(self.file, self.headers, list(self.done.values()), len(self.earlier_records), **facts, **cards)


def name_of(point: AnyPoint) -> str:
    """A point's identity in record files."""
    return identity(point.axes())


def alike(header: Record, other: Record) -> bool:
    """Whether two device headers are of the same kind of device: only the card may differ."""
    apart = ("uuid", "schema", "type", "key")
    return {k: v for k, v in header.items() if k not in apart} == {k: v for k, v in other.items() if k not in apart}


def studies_of(pool: Pool, options: Mapping[str, Any], out: Path, *, resume: bool) -> list[Study]:
    """A study for each kind of worker: the first kind's records go to ``out``, each other's to a file next to it."""
    studies = []
    for number, kind in enumerate(pool.kinds()):
        path = out if number == 0 else out.with_stem(f"{out.stem}-{kind}")
        previous, worker = read([path]) if path.exists() else Records(), pool.of_kind(kind)[0]
        headers = {
            key: {name: value for name, value in header.items() if name not in ("schema", "type", "key")}
            for key, header in previous.headers.items()
            if resume and header["type"] == "device" and alike(header, worker.facts["header"])
        }
        records = previous.points if headers else []
        answer = pool.call(worker, remote.jobs_and_keys, pool.request, dict(options), headers, records)
        points: list[AnyPoint] = answer["points"]
        keys = dict(zip(map(name_of, points), answer["keys"], strict=True))
        studies.append(Study(kind, path, points, keys, answer["kept"], answer["times_cpu"], answer["tuned"]))
    return studies


class Measuring:
    """Runs studies on a pool: ``go`` prepares and then measures."""

    def __init__(self, pool: Pool, studies: Sequence[Study], progress: Progress) -> None:
        self.pool, self.studies, self.progress = pool, {study.kind: study for study in studies}, progress
        self.phases: dict[str, float] = {}  # seconds of each, once it has ended
        self._batch_records: list[Record] = []  # records of the batch that is being written
        self._ends: Counter[str] = Counter()  # of workers, by the point that they ran
        self._calibration_ends: Counter[str] = Counter()  # of workers, by card
        self._spans: dict[str, list[tuple[str, float, float]]] = {}  # by host: worker, begin and end of each point

    def go(self) -> None:
        """Calibrates, adds kernels, references and CPU times to each cache, then measures.  Raises ClusterLost."""
        if not any(study.left(study.points) for study in self.studies.values()):
            return
        self.pool.batch = self._batch
        began = monotonic()
        self.pool.run([self._calibration(worker) for worker in self.pool.workers.values()], self._hear)
        self._prepare()
        self.phases["prepare"] = monotonic() - began
        self.pool.welcome = self._welcome
        groups = [(study, group) for study in self.studies.values() for group in groups_of(study.left(study.points))]
        began = monotonic()
        self.pool.run([self._task(study, group) for study, group in groups], self._hear)
        self.phases["measure"] = monotonic() - began

    def _welcome(self, worker: Worker) -> list[Task]:
        """A new worker's calibration; one on a card whose workers keep ending in it is left out."""
        if worker.kind not in self.studies:
            return []
        if self._calibration_ends[worker.card] >= MOST_ENDS:
            reason = f"{MOST_ENDS} workers of its card ended in their calibration"
            self.pool.leave_out(worker.address, f"{worker.name} is left out: {reason}")
            return []
        return [self._calibration(worker)]

    def _calibration(self, worker: Worker) -> Task:
        def lost(ended: Worker) -> list[Task]:
            self._calibration_ends[ended.card] += 1
            return []

        call = remote.calibrate, (self.pool.request,)
        return Task("calibration", *call, done=self._calibrated, lost=lost, address=worker.address)

    def _calibrated(self, worker: Worker, result: tuple[str, str | None]) -> list[Task]:
        """Leaves out a worker whose calibration failed."""
        self._calibration_ends[worker.card] = 0
        status, reason = result
        if status != "ok":
            self.pool.leave_out(worker.address, f"{worker.name} is left out: its calibration is {status}: {reason}")
        return []

    def _prepare(self) -> None:
        """The CPU's part: one worker of each host times its CPU, then all compile and compute references."""
        request = self.pool.request
        for study in self.studies.values():
            left = parts(study.left(study.points))
            layers = list(dict.fromkeys((point.workload, point.layer, point.conv) for point in left))
            if layers and study.times_cpu:
                self.progress.start("timing the CPU")
                hosts = self.pool.one_of_each(lambda worker: worker.host)
                self.pool.run(
                    Task("the CPU's times", remote.time_cpu, (request, layers), address=worker.address)
                    for worker in hosts
                    if worker.kind == study.kind
                )
        tasks: list[Task] = []
        for study in self.studies.values():
            left = list(dict.fromkeys(parts(study.left(study.points))))
            for store in {worker.store for worker in self.pool.of_kind(study.kind)}:
                here = [worker for worker in self.pool.of_kind(study.kind) if worker.store == store]
                for number, worker in enumerate(here):
                    if chunk := left[number :: len(here)]:
                        tasks.append(Task("compiling", remote.compile_points, (request, chunk), address=worker.address))
                tasks += blocks_of(self.pool, here[0], places_of(left, request.settings.seed)) if left else []
        self.progress.start("compiling kernels, computing references")
        self.pool.run(tasks)

    def _task(self, study: Study, group: Group) -> Task:
        return Task(
            group.label,
            remote.run_points,
            (self.pool.request, group.points),
            lambda worker: worker.kind == study.kind,
            lambda worker, answers: self._after(study, group, worker, answers),
            lambda worker: self._lost(study, group),
        )

    def _after(self, study: Study, group: Group, worker: Worker, answers: bool) -> list[Task]:
        """Follow-up tasks of a group that has ended: none, unless the device was lost before."""
        if not answers:
            self.pool.restart(worker)
        left = study.left(group.points)
        return [self._task(study, Group(tuple(left)))] if left else []

    def _lost(self, study: Study, group: Group) -> list[Task]:
        """Follow-up tasks of a group whose worker ended: the rest, without a point that has ended too many."""
        left = study.left(group.points)
        if left:
            name = name_of(left[0])
            self._ends[name] += 1
            if self._ends[name] >= MOST_ENDS:
                reason = f"{MOST_ENDS} workers ended while they ran it"
                record = begun(left[0], study.keys[name]) | {"status": ENDED, "reason": reason}
                self._finished(study, {**study.headers, **record})
                left = left[1:]
        return [self._task(study, Group(tuple(left)))] if left else []

    def _hear(self, worker: Worker, kind: str, content: list[Any]) -> None:
        study = self.studies.get(worker.kind)
        if study is None:
            return
        if kind == STARTED:
            self.progress.start(f"{worker.name}: {content[0]}")
        elif kind == HEADER:
            name, data = content
            study.file.header(name, data)
            if name == CALIBRATION:
                study.headers = {header: data[header] for header in ("device", "host", "run", "worker")}
                if data.get("samples"):
                    study.calibrated[worker.card] = median(data["samples"]["kernel"])
        elif kind == POINT:
            record, began, ended = content
            beside = self._beside(worker, began, ended)
            self._finished(study, {**record, "beside": beside} if beside else record)

    def _beside(self, worker: Worker, began: float, ended: float) -> list[str]:
        """The host's other workers that ran something during a span of its clock."""
        spans = self._spans.setdefault(worker.host, [])
        spans.append((str(worker.facts["name"]), began, ended))
        busy = {str(other.facts["name"]) for other in self.pool.at_work() if other.host == worker.host}
        busy |= {name for name, first, last in spans if first < ended and began < last}
        return sorted(busy - {str(worker.facts["name"])})

    def _finished(self, study: Study, record: Record) -> None:
        if (line := study.keep(record)) is not None:
            self._batch_records.append(line)

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """Writes records that arrived together with one flush, then reports them."""
        with ExitStack() as stack:
            for study in self.studies.values():
                stack.enter_context(study.file.batched())
            yield
        records, self._batch_records = self._batch_records, []
        for line in records:
            self.progress.finish(line)


def parts(points: Iterable[AnyPoint]) -> list[Point | PeerPoint]:
    """Every layer's point of points and sequences."""
    return [layer_point for point in points for layer_point in point.points()]
