"""What runs on a worker.  Arguments and results are plain values; records travel as JSON, by ``Sender``."""

import gc
import os
import secrets
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from typing import Any, cast

from alexconv.cli.run_jobs import Tuning, jobs_of
from alexconv.cluster.sending import CALIBRATION, Sender
from alexconv.cluster.shards import OnDevice, layer_of
from alexconv.errors import UsageError
from alexconv.executors import HOST_BUILDS, choose_executor
from alexconv.executors.interface import Executor
from alexconv.executors.sampling import stopping_rule
from alexconv.files import contents, locked, replacing
from alexconv.kernels.ladder import RUNGS
from alexconv.machine import machine_name
from alexconv.measuring.ahead import compile_all
from alexconv.measuring.jobs import Job, Recorder, reusable_records, run_jobs
from alexconv.measuring.peers import PEERS
from alexconv.measuring.runner import Runner, Settings
from alexconv.measuring.sequences import SequenceRunner
from alexconv.own.folders import installed, installed_ladder
from alexconv.paths import PACKAGES, cache_dir, package_folder
from alexconv.planning.points import AnyPoint, Kind, LayerSequence, PeerPoint, Point, batches_of
from alexconv.records import environment
from alexconv.records.store import Record
from alexconv.shapes import WORKLOADS, Conv

SOURCES = {".py", ".cu", ".cuh", ".cpp", ".h", ".json", ".toml"}
# Every card's first point: a kernel that fills the whole GPU, or takes little time on a CPU.
ON_GPU = ("alexnet", 3, 128, "igemm")
ON_CPU = ("lenet-86-k7", 2, 1, "direct-register")


@dataclass(frozen=True)
class Request:
    """The options that all tasks of a command share."""

    topic: str
    command: str
    backend: str = "auto"
    host_build: str = HOST_BUILDS[0]
    host_order: int = 0
    settings: Settings = field(default_factory=Settings)
    peer: str | None = None
    time_limit: float | None = None
    sustained: float = 0.0
    tuning: Tuning | None = None


_executors: dict[tuple[str, str, int], Executor] = {}  # of this process: one, unless commands differ


def executor_of(request: Request) -> Executor:
    """The executor of this worker, created once; raises MissingTool."""
    key = request.backend, request.host_build, request.host_order
    if key not in _executors:
        _executors[key] = choose_executor(request.backend, 0, request.host_build, request.host_order)
    _executors[key].sustained = request.sustained
    return _executors[key]


@cache
def code_digest() -> str:
    """Digest of the package's sources and of packages that add rungs; it differs between versions."""
    digest = sha256(repr(installed()).encode())
    for rung in installed_ladder():
        digest.update(f"{rung.name}\n".encode() + rung.path.read_bytes())
    for package in PACKAGES:
        folder = package_folder(package)
        for file in sorted(folder.rglob("*")):
            if file.suffix in SOURCES and file.is_file():
                digest.update(f"{package}/{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def store_name() -> str:
    """The name of this worker's cache: workers that share the folder share the name."""
    folder = cache_dir("cluster")
    file = folder / "name"
    if not contents(file):
        with locked(folder, lambda line: None):
            if not contents(file):
                with replacing(file) as path:
                    path.write_text(secrets.token_hex(8))
    return file.read_text()


def facts(request: Request) -> dict[str, Any]:
    """A worker's facts that the client needs.

    Raises MissingTool, and UsageError for one with several threads or with a package whose rungs fail.
    """
    from distributed import get_worker

    installed_ladder()
    threads = get_worker().state.nthreads
    executor = executor_of(request)
    if executor.measures and threads > 1:
        raise UsageError(f"it has {threads} threads, but a GPU runs one point at a time: start it with --nthreads 1")
    header = executor.header()
    return {
        "host": machine_name(),
        "pid": os.getpid(),
        "name": str(get_worker().name),
        "uuid": header.get("uuid"),
        "header": header,
        "code": code_digest(),
        "store": store_name(),
        "backend": executor.name,
        "device": executor.device,
        "describe": executor.describe(),
        "measures": executor.measures,
    }


def headers_of(request: Request, executor: Executor, file: Sender) -> Record:
    """Writes the headers that all records of this worker share; returns the digests that name them."""
    from distributed import get_worker

    timed = executor.measures and request.settings.timed
    method: Record = {"sampling": stopping_rule(request.settings.seconds)} if timed else {}
    method |= {"sustained_seconds": request.sustained} if request.sustained else {}
    digests = environment.write_headers(file, executor.header(), request.command, **method)
    of_worker = {"name": str(get_worker().name), "host": machine_name(), "uuid": executor.header().get("uuid")}
    return {**digests, "worker": file.header("worker", of_worker)}


def calibrate(request: Request) -> tuple[str, str | None]:
    """Runs and sends the calibration point, which is every worker's first; returns its status and what is wrong."""
    executor, file = executor_of(request), Sender(request.topic)
    workload, layer, N, name = ON_GPU if executor.measures else ON_CPU
    (batch,) = batches_of(WORKLOADS[workload], [layer], [N])
    point = Point.with_defaults(batch, RUNGS[name], executor.device)
    runner = Runner(executor, [point], replace(request.settings, baseline=False))
    runner.ready([point])
    record = runner.record(point)
    file.header(CALIBRATION, {**headers_of(request, executor, file), **without_key(record)})
    return record["status"], record.get("reason")


def without_key(record: Record) -> Record:
    """A point's record as part of a header, which has its own key."""
    return {"point_key" if name == "key" else name: value for name, value in record.items()}


def jobs_and_keys(
    request: Request, options: dict[str, Any], headers: dict[str, Record], previous: Sequence[Record]
) -> dict[str, Any]:
    """The points of a command line here, in order, and their keys.

    ``kept`` has those of ``previous`` records that ``--resume`` keeps, by point: all of devices in ``headers``.
    """
    executor, ladder = executor_of(request), installed_ladder()
    jobs = jobs_of(Namespace(**options), ladder, executor, request.tuning)
    kept: dict[str, Record] = {}
    for name, header in headers.items():
        device = cast(Executor, OnDevice(executor, header))
        of_device = jobs_of(Namespace(**options), ladder, device, request.tuning)
        kept |= reusable_records(
            of_device.jobs, [record for record in previous if record.get("device") == name], of_device.runner
        )
    return {
        "points": [job.point for job in jobs.jobs],
        "kept": kept,
        "keys": [job.recorder.key(job.point) for job in jobs.jobs],
        "tuned": jobs.tuned,
        "times_cpu": jobs.runner.times_cpu,
    }


class Watching:
    """A recorder whose records say which other GPUs of the host were busy before and after."""

    def __init__(self, recorder: Recorder) -> None:
        self.executor, self.recorder = recorder.executor, recorder

    def key(self, point: Any) -> str:
        """The recorder's."""
        return self.recorder.key(point)

    def record(self, point: Any) -> Record:
        """The recorder's, and ``busy_gpus`` where NVML sees others."""
        own = self.executor.header().get("uuid")
        before = busy_gpus(own)
        record = self.recorder.record(point)
        after = busy_gpus(own)
        return record if before is after is None else {**record, "busy_gpus": sorted({*(before or ()), *(after or ())})}


def busy_gpus(own: str | None) -> list[str] | None:
    """UUIDs of the host's other GPUs that computed within NVML's last period; None where it sees no other."""
    if own is None:
        return None
    import pynvml

    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        others = {
            str(uuid): handle
            for handle in handles
            if (uuid := pynvml.nvmlDeviceGetUUID(handle)) not in (own, own.encode())
        }
        if others:
            return [uuid for uuid, handle in others.items() if pynvml.nvmlDeviceGetUtilizationRates(handle).gpu > 0]
    return None


def run_points(request: Request, points: Sequence[AnyPoint]) -> bool:
    """Runs points one after the other and sends their records; returns whether the device still answers."""
    executor, file = executor_of(request), Sender(request.topic)
    runner = Runner(executor, [layer_point for point in points for layer_point in point.points()], request.settings)
    recorders: dict[Kind, Recorder] = {Kind.RUNG: runner}
    if request.peer and any(point.kind is Kind.PEER for point in points):
        recorders[Kind.PEER] = PEERS[request.peer].load(executor)(runner)

    def recorder(point: AnyPoint) -> Recorder:
        in_sequence = point.kind is Kind.RUNG and isinstance(point, LayerSequence)
        return SequenceRunner(executor, runner) if in_sequence else recorders[point.kind]

    jobs = [Job(point, Watching(recorder(point))) for point in points]
    limit = request.time_limit or executor.time_limit
    headers = headers_of(request, executor, file)
    run_jobs(jobs, runner, lambda record: file.point({**headers, **record}), file, limit, lambda done: 1)
    return not executor.lost()


def time_cpu(request: Request, layers: Sequence[tuple[str, int, Conv]]) -> None:
    """Times this host's CPU on layers, unless the cache has its times."""
    runner = Runner(executor_of(request), [], request.settings)
    for layer in layers:
        runner.time_cpu(*layer)


def compile_points(request: Request, points: Sequence[Point | PeerPoint]) -> None:
    """Compiles the kernels of points into the cache."""
    compile_all(Runner(executor_of(request), points, request.settings), points)


def close(request: Request) -> None:
    """Frees the device and its memory, in the thread that took them."""
    layer_of.cache_clear()
    executor = executor_of(request)
    _executors.clear()
    if leave := getattr(executor, "leave", None):
        leave()
    del executor, leave
    gc.collect()
