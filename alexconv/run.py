"""Verifies, times and records rungs over layers and batch sizes.

python -m alexconv.run --layers 1-5 --N 128
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from uuid import uuid4

from rich.console import Console

from alexconv import __version__
from alexconv.cli import display, matrix
from alexconv.cli.display import Progress, batch_line, counted, listing, next_steps, outcome, plan_table, result_tables
from alexconv.cli.point_options import RUNG_WORDS, add_constants, add_layers
from alexconv.cluster.connection import ClusterLost, connected
from alexconv.cluster.groups import groups_of, parse_shard, shard_of
from alexconv.cluster.pool import MIXED, REFUSE, Pool
from alexconv.cluster.shards import ClusterBatches
from alexconv.cluster.study import Measuring, studies_of
from alexconv.cluster.worker import Request
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.errors import UsageError
from alexconv.executors import AUTO, EXECUTORS, HOST_BUILDS, backends, choose_executor
from alexconv.executors.interface import Executor
from alexconv.executors.sampling import stopping_rule
from alexconv.kernels.problem import Device
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.measuring import shards
from alexconv.measuring.host_time import host_time
from alexconv.measuring.jobs import Job, kept_records, run_jobs
from alexconv.measuring.peers import library_of, peers_named
from alexconv.measuring.runner import SECONDS
from alexconv.measuring.shards import BLOCK_BYTES, LocalBatches
from alexconv.messages import plural
from alexconv.options import (
    PRECISION_NOTE,
    comma_separated,
    command_line,
    duration,
    exits_cleanly,
    given,
    natural,
    positive,
    program,
    refuse_given,
)
from alexconv.own.folders import add_own
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.points import LayerSequence, Point, parse_batches
from alexconv.planning.transfers import TRANSFERS
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, identity
from alexconv.tune.asked import asked_for, asked_on_worker, settings_of

MODULE = "alexconv.run"
DEFAULT_OUT = Path("study/records.jsonl")
NOT_WITH_CLUSTER = ("shard", "device", "host_build", "ladder", "kernel", "predict")
NOT_WITH_SHARDS = ("shard", "peers", "together", "mix", "predict", "exclusive", "mixed", "json", "dry_run")
ONLY_WITH_CLUSTER = ("exclusive", "mixed", "host_memory")
NOT_WITH_STUDY = ("workload", "layers", "rungs", "transfer", "precision", "data", "set", "tuned", "mix")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(
        prog=program(MODULE),
        usage="%(prog)s [--layers LIST] [--N LIST] [--rungs LIST] [options]",
        description=__doc__.splitlines()[0] if __doc__ else "",
    )
    options.add_argument("--version", action="version", version=f"alexconv {__version__}")
    add_choice(options.add_argument_group("what to run"))
    add_measuring(options.add_argument_group("how it is run and timed"))
    add_output(options.add_argument_group("output"))
    add_cluster(options.add_argument_group("several GPUs (docs/cluster.md)"))
    add_own(options)
    return options


def add_choice(group: argparse._ArgumentGroup) -> None:
    """Adds the options that choose points."""
    add = group.add_argument
    add_layers(group)
    add(
        "--rungs",
        type=comma_separated,
        metavar="LIST",
        help=f"{RUNG_WORDS}; auto is the fastest known rung of each class, auto:4 the four likeliest "
        "(default: all; none with --mix)",
    )
    add_constants(group)
    add("--tuned", action="store_true", help="use the constants that alexconv tune has found on this device")
    add(
        "--precision",
        type=comma_separated,
        metavar="LIST",
        help=f"only rungs of these error classes: {', '.join(PRECISIONS)} {PRECISION_NOTE} (default: all)",
    )
    add(
        "--transfer",
        default="pageable",
        metavar="LIST",
        help="ways to move arrays between host and device: "
        f"{', '.join(TRANSFERS)}, streamed:8 (eight streams), or all (default: pageable)",
    )
    add(
        "--data",
        type=comma_separated,
        default=UNIFORM,
        metavar="LIST",
        help=f"inputs and filters: {', '.join(DATA_SETS)}, or all (default: {UNIFORM})",
    )
    add("--seed", type=int, default=0, help="seed of inputs and filters (default: 0)")
    add("--study", metavar="NAME", help=f"the points of a LeNet-style study: {', '.join(STUDY_WORKLOADS)}")
    add(
        "--peers",
        type=peers_named,
        metavar="{torch,cudnn}",
        help="also time cuDNN: torch is cuDNN and cuBLAS through PyTorch, cudnn the fastest of cuDNN's own plans; "
        "or some of their layouts and precisions, as in torch-nchw-fp32,torch-nhwc-fp16",
    )
    add(
        "--together",
        "--sequence",
        action="store_true",
        help="also time all layers of each rung in one CUDA graph, or with --transfer streamed:8 in one pipeline",
    )
    add(
        "--mix",
        type=comma_separated,
        metavar="1=RUNG,2=RUNG:NAME=V",
        help="a rung for each layer, with its constants, in one CUDA graph",
    )


def add_measuring(group: argparse._ArgumentGroup) -> None:
    """Adds the options of executors, checks and samples."""
    add = group.add_argument
    add("--backend", default="auto", choices=backends(), help="auto: the GPU if there is one, else the host executor")
    add("--device", type=natural, default=0, metavar="NUMBER", help="CUDA device ordinal (default: 0)")
    add("--host-build", default=HOST_BUILDS[0], choices=HOST_BUILDS, help="host: asan is AddressSanitizer")
    add(
        "--host-order",
        type=natural,
        default=0,
        metavar="K",
        help="host: order of a block's threads; 0 forward, 1 reverse, any other a random seed (default: 0)",
    )
    add(
        "--memory-budget",
        type=size,
        metavar="SIZE",
        help="device memory for a point, such as 64MiB or 8GB; a batch that exceeds it is cut into pieces "
        "(default: the free memory)",
    )
    add(
        "--seconds",
        type=duration,
        default=SECONDS,
        help=f"sampling time for each figure: kernel, copies, total (default: {SECONDS})",
    )
    add(
        "--sustained",
        type=duration,
        default=0.0,
        metavar="SECONDS",
        help="time kernels again, back to back, after this long under load (default: 0, off)",
    )
    add(
        "--time-limit",
        type=positive,
        metavar="SECONDS",
        help="a point that takes longer is recorded as a timeout (default: 600 on a GPU, none on the host)",
    )
    add("--verify-only", action="store_true", help="check outputs without timing, for example under a sanitizer")
    add("--no-baseline", action="store_true", help="do not time the CPU; the table then has no speedups")
    add("--predict", action="store_true", help="also predict each point's time from machine code (docs/predict.md)")


def add_output(group: argparse._ArgumentGroup) -> None:
    """Adds the options of records and tables."""
    add = group.add_argument
    add(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help=f"record file, appended to (default: {DEFAULT_OUT})",
    )
    add(
        "--resume",
        action="store_true",
        help="run only points that FILE lacks, or whose code or GPU has changed",
    )
    add("--list", action="store_true", help="list the rungs and stop")
    add("--dry-run", action="store_true", help="show points, pieces, memory and launches, and stop")
    add("--verbose", action="store_true", help="a line for each finished point, and a table with a row for each point")
    add("--json", action="store_true", help="finished records (or the list) as JSON on standard output")


def add_cluster(group: argparse._ArgumentGroup) -> None:
    """Adds the options of clusters, shards and job arrays."""
    add = group.add_argument
    add("--cluster", metavar="WHERE", help="run on Dask workers: local, local:4, a scheduler's address, or its file")
    add("--exclusive", action="store_true", help="with --cluster: one point at a time on each host")
    add(
        "--mixed",
        default=REFUSE,
        choices=MIXED,
        help="with --cluster, workers of another GPU model, driver, toolkit or code version: refuse them, or keep "
        "their records in separate files (default: refuse)",
    )
    add("--shards", type=comma_separated, metavar="K,...", help="split each batch over K GPUs")
    add(
        "--host-memory",
        type=size,
        default=BLOCK_BYTES,
        metavar="SIZE",
        help="with --shards: inputs and outputs that a worker holds at a time (default: 8GiB)",
    )
    add("--shard", metavar="I/N", help="run the I-th of N parts of the points: one task of a job array")


def size(text: str) -> int:
    """``64MiB``, ``8GB`` or plain bytes, one at least; argparse turns the ValueError into its own message."""
    nbytes: float | None = None
    for suffix, unit in {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}.items():
        if text.endswith(suffix):
            nbytes = float(text.removesuffix(suffix)) * unit
    nbytes = int(text) if nbytes is None else nbytes
    if not 1 <= nbytes < inf:
        raise ValueError
    return int(nbytes)


def backend_of(options: argparse.Namespace) -> str:
    """The backend asked for, also by options of one executor; raises UsageError if the two differ."""
    backend = str(options.backend)
    for name, executor in EXECUTORS.items():
        if own := given(options, parser(), executor.options):
            if backend not in (AUTO, name):
                raise UsageError(f"{', '.join(own)}: not with --backend {backend}")
            backend = name
    return backend


def conclude(
    say: Console,
    options: argparse.Namespace,
    points: Sequence[Point | LayerSequence],
    kept: Mapping[str, Record],
    done: Sequence[Record],
    *,
    measures: bool,
) -> int:
    """Shows the results of the points so far, ``kept`` from the file and ``done`` now; returns the exit status."""
    found = {**kept, **{identity(record["point"]): record for record in done}}
    named = [(point, identity(point.axes())) for point in points]
    shown = [(point, found[name]) for point, name in named if name in found]
    records = [record for point, record in shown if isinstance(point, Point)]
    (result_tables if options.verbose else matrix.show)(say, records)
    for point, record in shown:
        if not isinstance(point, Point):
            say.print(f"{point.label()}: {outcome(record)}", soft_wrap=True, markup=False)
    for line in next_steps(options.out, measures=measures, verbose=options.verbose):
        say.print(line, soft_wrap=True, markup=False)
    say.print(f"{plural(len(done), 'point')}: {counted(done)}")
    say.print(f"records: {options.out}", soft_wrap=True)
    if options.json:
        sys.stdout.writelines(json.dumps(record) + "\n" for record in done)
    statuses = {record["status"] for _, record in shown}
    return 0 if len(shown) == len(points) and statuses <= {"ok", "skipped"} else 1


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it; returns the exit status."""
    options = parser().parse_args(arguments)
    say = display.console(stderr=options.json)
    restart_where_needed(options.host_build, arguments)
    if options.json:
        display.keep_standard_output()
    if options.list:
        listing(say, as_json=options.json)
        return 0
    if options.study is not None:
        refuse_given(options, parser(), NOT_WITH_STUDY, "not with --study, which determines what runs")
    if options.shards:
        return in_shards(say, options, arguments)
    if options.cluster:
        return on_cluster(say, options, arguments)
    refuse_given(options, parser(), ONLY_WITH_CLUSTER, "only with --cluster")
    backend = backend_of(options)
    executor = choose_executor(backend, options.device, options.host_build, options.host_order)
    say.print(f"backend {executor.name}: {executor.describe()}", soft_wrap=True, markup=False)
    asked = asked_for(options, executor)
    jobs, runner = asked.jobs, asked.runner
    say_tuned(say, asked.tuned, len(asked.points))
    if options.shard:
        jobs = jobs_of_shard(say, options, jobs)
    if options.dry_run:
        plan_table(say, runner, [job.point for job in jobs if isinstance(job.point, Point) and job.recorder is runner])
        for point, recorder in jobs:
            if recorder is not runner:
                kind = "peer" if recorder is asked.peer_runner else "together"
                say.print(f"{kind}: {point.label()}", soft_wrap=True)
        return 0
    file = RecordFile(options.out)
    say_unreadable(say, file)
    kept = kept_records(jobs, file.previous.latest()) if options.resume else {}
    if options.resume:
        say.print(f"{len(kept)} of {len(jobs)} points are already in {options.out}", soft_wrap=True)
    todo = [job for job in jobs if job.name not in kept]
    executor.sustained = options.sustained
    method: Record = {"sampling": stopping_rule(options.seconds)} if runner.times else {}
    method |= {"sustained_seconds": options.sustained} if options.sustained else {}
    headers = environment.write_headers(file, executor.header(), command_line(MODULE, arguments), **method)
    points = [job.point for job in jobs]
    finish = exits_cleanly(partial(conclude, say, options, points, kept, measures=executor.measures))
    limit = options.time_limit or executor.time_limit
    costs = () if executor.measures else expected_time(say, todo, executor)
    with Progress(len(todo), verbose=options.verbose, costs=costs) as progress:
        done = run_jobs(todo, runner, file, headers, progress, limit, finish)
    environment.write_end(file, headers, done, len(kept))
    status = finish(done)
    if options.predict:
        add_predictions(say, file, headers, asked.points, executor.device)
    return status


def expected_time(say: Console, jobs: Sequence[Job], executor: Executor) -> tuple[float, ...]:
    """Says how long jobs take on the CPU; returns the estimated seconds of each."""
    expected = host_time([job.point.points() for job in jobs], executor)
    for line in expected.lines():
        say.print(line, soft_wrap=True, markup=False)
    return expected.jobs


def say_tuned(say: Console, known: int | None, points: int) -> None:
    """Says how many points have tuned constants, if asked for."""
    if known is not None:
        say.print(f"{known} of {points} points have constants from alexconv.tune, the others their defaults")


def say_unreadable(say: Console, file: RecordFile) -> None:
    """Says how many lines of a record file are unreadable, if any."""
    if lines := file.previous.unreadable:
        say.print(f"{file.path}: {len(lines)} unreadable line(s), left as they are", soft_wrap=True)


def jobs_of_shard(say: Console, options: argparse.Namespace, jobs: list[Job]) -> list[Job]:
    """The jobs of the shard that the options name; raises UsageError."""
    number, of = parse_shard(options.shard)
    chosen = {identity(point.axes()) for point in shard_of([job.point for job in jobs], number, of)}
    say.print(f"shard {number} of {of}: {len(chosen)} of {len(jobs)} points")
    return [job for job in jobs if job.name in chosen]


def in_shards(say: Console, options: argparse.Namespace, arguments: Sequence[str] | None) -> int:
    """Runs each batch in shards, here or on the workers of a cluster; returns the exit status."""
    refuse_given(options, parser(), NOT_WITH_SHARDS, "not with --shards")
    counts, block_bytes = parse_batches(options.shards), options.host_memory
    if options.cluster:
        request = request_of(options, arguments)
        with (
            connected(options.cluster, request.backend) as client,
            Pool(client, request, partial(say.print, soft_wrap=True, markup=False)) as pool,
        ):
            points = pool.call(pool.first(), asked_on_worker, request, planned(options), {})["points"]
            file = RecordFile(options.out)
            on_workers = ClusterBatches(pool, file, block_bytes)
            on_workers.compile(points)
            return run_batches(say, options, points, counts, file, on_workers)
    executor = choose_executor(backend_of(options), options.device, options.host_build, options.host_order)
    executor.sustained = options.sustained
    points = asked_for(options, executor).points
    file = RecordFile(options.out)
    headers = environment.write_headers(file, executor.header(), command_line(MODULE, arguments))
    batches = LocalBatches(executor, settings_of(options), headers, block_bytes)
    return run_batches(say, options, points, counts, file, batches)


def run_batches(
    say: Console,
    options: argparse.Namespace,
    points: Sequence[Point],
    counts: Sequence[int],
    file: RecordFile,
    batches: LocalBatches | ClusterBatches,
) -> int:
    """Runs, records and shows the batches that the file lacks; returns the exit status."""
    if few := [point for point in points if max(counts) > point.N]:
        raise UsageError(f"--shards {max(counts)}: {few[0].label()} has fewer images")
    known = {
        (identity(header["point"]), header["shards"], header["point_key"])
        for header in file.previous.headers.values()
        if header["type"] == shards.TYPE and options.resume
    }
    statuses = set()
    for count in counts:
        for point in points:
            key = batches.key(point, count)
            if (identity(point.axes()), count, key) in known:
                continue
            parts, together = batches.run(point, count)
            record = shards.joined(point, key, parts, together=together)
            file.header(shards.TYPE, {**batches.headers(parts), **record})
            statuses.add(record["status"])
            say.print(batch_line(point, record), soft_wrap=True, markup=False)
    say.print(f"records: {file.path}", soft_wrap=True)
    return 0 if statuses <= {"ok", "skipped"} else 1


def planned(options: argparse.Namespace) -> dict[str, object]:
    """The options from which a worker makes the points."""
    return {name: value for name, value in vars(options).items() if name not in ("ladder", "kernel")}


def request_of(options: argparse.Namespace, arguments: Sequence[str] | None) -> Request:
    """The options' request to every worker; raises UsageError for what no worker can do."""
    refuse_given(options, parser(), NOT_WITH_CLUSTER, "not with --cluster")
    return Request(
        topic=f"alexconv-{uuid4().hex}",
        command=command_line(MODULE, arguments),
        backend=backend_of(options),
        host_order=options.host_order,
        settings=settings_of(options),
        peer=library_of(options.peers) if options.peers else None,
        time_limit=options.time_limit,
        sustained=options.sustained,
    )


def on_cluster(say: Console, options: argparse.Namespace, arguments: Sequence[str] | None) -> int:
    """Runs the points on the workers of a cluster; returns the exit status.  Raises UsageError and MissingTool."""
    request = request_of(options, arguments)
    progress = Progress(0, verbose=options.verbose)
    with (
        connected(options.cluster, request.backend) as client,
        Pool(client, request, progress.say, exclusive=options.exclusive, mixed=options.mixed) as pool,
    ):
        for kind in pool.kinds():
            workers = pool.of_kind(kind)
            say.print(f"{len(workers)} workers, each: {workers[0].facts['describe']}", soft_wrap=True, markup=False)
        studies = studies_of(pool, asked_on_worker, planned(options), options.out, resume=options.resume)
        for study in studies:
            say_tuned(say, study.tuned, len(study.points))
            if options.resume:
                say.print(
                    f"{len(study.kept)} of {len(study.points)} points are already in {study.path}", soft_wrap=True
                )
        if options.dry_run:
            for group in (group for study in studies for group in groups_of(study.left(study.points))):
                say.print(f"{group.label}: {len(group.points)} points", soft_wrap=True)
            return 0
        for study in studies:
            say_unreadable(say, study.file)
        status, lost, measuring = 0, None, Measuring(pool, studies, progress)
        with progress:
            progress.expect(sum(len(study.left(study.points)) for study in studies))
            try:
                measuring.go()
            except ClusterLost as error:
                lost = error
        for study in studies:
            if lost is None:
                study.end(len(pool.of_kind(study.kind)), measuring.phases)
            if study.calibrated:
                say.print(study.cards(), soft_wrap=True)
            one = argparse.Namespace(**{**vars(options), "out": study.path})
            measures = any(worker.facts["measures"] for worker in pool.ever.values())
            status |= conclude(say, one, study.points, study.kept, list(study.done.values()), measures=measures)
        if lost:
            raise lost
    return status


def add_predictions(say: Console, file: RecordFile, headers: Record, points: Sequence[Point], device: Device) -> None:
    """Predicts the points' kernel times on a device; shows and records them as records of type ``prediction``."""
    from alexconv.predict.gpu import of_device
    from alexconv.predict.predictions import TYPE as PREDICTION
    from alexconv.predict.predictions import KernelCache, predict_points
    from alexconv.predict.tables import show_predictions

    for prediction in predict_points(points, of_device(device.name), KernelCache()):
        file.header(PREDICTION, {**prediction.record(), **headers})
        show_predictions(say, [prediction])


def restart_where_needed(host_build: str, arguments: Sequence[str] | None) -> None:
    """Replaces this process by one with the same command and the environment that the host executor's build needs."""
    from alexconv.executors.host.runtime import missing_environment

    if missing := missing_environment(host_build):
        words = sys.argv[1:] if arguments is None else arguments
        os.execve(sys.executable, [sys.executable, "-m", "alexconv.run", *words], {**os.environ, **missing})


if __name__ == "__main__":
    sys.exit(main())
