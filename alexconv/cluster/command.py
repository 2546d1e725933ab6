"""``alexconv run`` with ``--cluster`` or ``--shards``: points, or each batch in shards, on the workers of a cluster."""

import argparse
from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from rich.console import Console

from alexconv.cli.display import Conclusion, Progress, say_tuned, say_unreadable
from alexconv.cli.run_jobs import Tuning, jobs_of, settings_of
from alexconv.cluster import shards
from alexconv.cluster import worker as remote
from alexconv.cluster.batches import ClusterBatches, LocalBatches
from alexconv.cluster.connection import ClusterLost, connected
from alexconv.cluster.groups import groups_of
from alexconv.cluster.pool import Pool
from alexconv.cluster.study import Measuring, Study, studies_of
from alexconv.cluster.worker import Request
from alexconv.errors import UsageError
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import Ladder
from alexconv.measuring.peers import library_of
from alexconv.planning.points import Point, parse_batches
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, identity


def run_elsewhere(
    say: Console, options: argparse.Namespace, ladder: Ladder, command: str, tuning: Tuning | None
) -> int:
    """Runs what the options ask for; returns the exit status.  Raises UsageError and MissingTool."""
    if options.shards and not options.cluster:
        return shards_here(say, options, ladder, command, tuning)
    request = request_of(options, command, tuning)
    if options.shards:
        return shards_on_cluster(say, options, request)
    return on_cluster(say, options, ladder, request)


def request_of(options: argparse.Namespace, command: str, tuning: Tuning | None) -> Request:
    """The options' request to every worker."""
    return Request(
        topic=f"alexconv-{uuid4().hex}",
        command=command,
        backend=options.backend,
        host_order=options.host_order,
        settings=settings_of(options),
        peer=library_of(options.peers) if options.peers else None,
        time_limit=options.time_limit,
        sustained=options.sustained,
        tuning=tuning,
    )


def planned(options: argparse.Namespace) -> dict[str, object]:
    """The options from which a worker makes the points."""
    return {name: value for name, value in vars(options).items() if name not in ("ladder", "kernel", "own")}


# ---- Points over workers ---------------------------------------------------------------------------------------------


def on_cluster(say: Console, options: argparse.Namespace, ladder: Ladder, request: Request) -> int:
    """Runs the points on the workers of a cluster; returns the exit status."""
    progress = Progress(0, verbose=options.verbose)
    with (
        connected(options.cluster, request.backend) as client,
        Pool(client, request, progress.say, exclusive=options.exclusive, mixed=options.mixed) as pool,
    ):
        for kind in pool.kinds():
            workers = pool.of_kind(kind)
            say.print(f"{len(workers)} workers, each: {workers[0].facts['describe']}", soft_wrap=True)
        studies = studies_of(pool, planned(options), options.out, resume=options.resume)
        for study in studies:
            say_tuned(say, study.tuned, len(study.points))
            if options.resume:
                say.print(
                    f"{len(study.earlier_records)} of {len(study.points)} points are already in {study.path}",
                    soft_wrap=True,
                )
        if options.dry_run:
            for group in (group for study in studies for group in groups_of(study.left(study.points))):
                say.print(f"{group.label}: {len(group.points)} points", soft_wrap=True)
            return 0
        for study in studies:
            say_unreadable(say, study.file)
        measuring, lost = Measuring(pool, studies, progress), None
        with progress:
            progress.expect(sum(len(study.left(study.points)) for study in studies))
            try:
                measuring.go()
            except ClusterLost as error:
                lost = error
        status = 0
        for study in studies:
            if lost is None:
                study.end(len(pool.of_kind(study.kind)), measuring.phases)
            status |= concluded(say, options, ladder, pool, study)
        if lost:
            raise lost
    return status


def concluded(say: Console, options: argparse.Namespace, ladder: Ladder, pool: Pool, study: Study) -> int:
    """Shows a study's results; returns its exit status."""
    if study.calibrated:
        say.print(study.cards(), soft_wrap=True)
    own = argparse.Namespace(**{**vars(options), "out": study.path})
    measures = any(worker.facts["measures"] for worker in pool.ever.values())
    return Conclusion(say, own, ladder, study.points, study.earlier_records, measures).show(list(study.done.values()))


# ---- Batches in shards -----------------------------------------------------------------------------------------------


def shards_on_cluster(say: Console, options: argparse.Namespace, request: Request) -> int:
    """Runs each batch in shards on the workers of a cluster; returns the exit status."""
    with (
        connected(options.cluster, request.backend) as client,
        Pool(client, request, partial(say.print, soft_wrap=True)) as pool,
    ):
        points = pool.call(pool.first(), remote.jobs_and_keys, request, planned(options), {}, [])["points"]
        batches = ClusterBatches(pool, RecordFile(options.out), options.host_memory)
        batches.compile(points)
        return run_batches(say, options, points, batches)


def shards_here(say: Console, options: argparse.Namespace, ladder: Ladder, command: str, tuning: Tuning | None) -> int:
    """Runs each batch in shards on this machine, one after the other; returns the exit status."""
    executor = choose_executor(options.backend, options.device, options.host_build, options.host_order)
    executor.sustained = options.sustained
    points = jobs_of(options, ladder, executor, tuning).points
    file = RecordFile(options.out)
    headers = environment.write_headers(file, executor.header(), command)
    batches = LocalBatches(executor, settings_of(options), file, headers, options.host_memory)
    return run_batches(say, options, points, batches)


def run_batches(
    say: Console, options: argparse.Namespace, points: Sequence[Point], batches: LocalBatches | ClusterBatches
) -> int:
    """Runs, records and shows the batches that the file lacks; returns the exit status."""
    counts, file = parse_batches(options.shards), batches.file
    if few := [point for point in points if max(counts) > point.N]:
        raise UsageError(f"--shards {max(counts)}: {few[0].label()} has fewer images")
    if sums := [point for point in points if point.conv.roles.sums_images]:
        raise UsageError(f"--shards: {sums[0].label()} is a sum over all images, which shards would cut")
    known = {
        (identity(header["point"]), header["shards"], header["point_key"]): header
        for header in file.previous.headers.values()
        if header["type"] == shards.TYPE and options.resume
    }
    statuses = set()
    for count in counts:
        for point in points:
            key = batches.key(point, count)
            record = known.get((identity(point.axes()), count, key))
            if record is None or record["status"] == "skipped":
                parts, together = batches.run(point, count)
                record = shards.joined(point, key, parts, together=together)
                file.header(shards.TYPE, {**batches.headers(parts), **record})
            statuses.add(record["status"])
            say.print(batch_line(point, record), soft_wrap=True)
    say.print(f"records: {file.path}", soft_wrap=True)
    return 0 if statuses <= {"ok", "skipped"} else 1


def batch_line(point: Point, record: Record) -> str:
    """A batch in shards: the slowest shard's times, and the rate of all."""
    head = f"{point.label()} in {record['shards']} shards"
    if record["status"] != "ok":
        return f"{head}: {record['status']}: {record['reason']}"
    slowest, rates = record["slowest_ms"], record["images_per_s"]
    times = [
        f"{name} {slowest[name]:.3f} ms, {rates[name]:,.0f} images/s" for name in ("kernel", "total") if name in rates
    ]
    apart = "" if record["together"] else ", one after the other"
    return f"{head}: {'; '.join([f'ok{apart}', *times])}"
