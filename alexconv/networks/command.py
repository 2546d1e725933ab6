"""The command ``alexconv run --network``: networks over batch sizes, precisions and schedules, and their peers."""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from statistics import median

from rich.console import Console
from rich.table import Column, Table

from alexconv.cli.display import Progress
from alexconv.errors import UsageError
from alexconv.executors.interface import Executor
from alexconv.executors.sampling import stopping_rule
from alexconv.kernels.ladder import Ladder
from alexconv.measuring.ahead import build_all
from alexconv.measuring.watchdog import time_limit
from alexconv.networks.measuring import NetworkRunner, NetworkSettings
from alexconv.networks.peers import NETWORK_PEERS
from alexconv.networks.plan import AUTO, MEASURED, NetworkPoint
from alexconv.networks.schedules import ALL, SCHEDULES, fastest, fastest_apart, schedules_named
from alexconv.networks.tables import NETWORKS, network_named
from alexconv.planning.planner import MEBIBYTE, DoesNotFit
from alexconv.planning.points import parse_batches, parse_precisions
from alexconv.precisions import PEER_CLASSES
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile

TYPE = "network"  # of a record
FIGURES = ("kernel", "latency", "h2d", "d2h", "total", "overlapped")
USUAL_CLASS = "fp32"


def points_of(options: argparse.Namespace, ladder: Ladder, executor: Executor) -> list[NetworkPoint]:
    """The points of a command line, peers after the rungs of their batch; raises UsageError."""
    names = list(NETWORKS) if options.network == ALL else options.network.split(",")
    networks = [network_named(name) for name in dict.fromkeys(names)]
    precisions = parse_precisions(options.precision) or [USUAL_CLASS]
    if unknown := [name for name in precisions if name not in PEER_CLASSES]:
        raise UsageError(f"networks have the classes {', '.join(PEER_CLASSES)}, not {unknown[0]}")
    words = (options.rungs or AUTO).split(",")
    if unknown := [word for word in words if word not in (AUTO, MEASURED, *ladder.named)]:
        raise UsageError(f"unknown rung {unknown[0]!r}: --network takes rungs by name, {AUTO} or {MEASURED}")
    if MEASURED in words and not executor.measures:
        raise UsageError(f"--rungs {MEASURED} needs an NVIDIA GPU: the {executor.name} executor has no times")
    batches = parse_batches(options.N or str(executor.usual_batch))
    named = schedules_named(options.schedule) if options.schedule else []
    peers = peers_of(options.peers, executor)
    points: list[NetworkPoint] = []
    for network in networks:
        for N in batches:
            for precision in precisions:
                rungs = [
                    word for word in words if word in (AUTO, MEASURED) or ladder.named[word].precision == precision
                ]
                of_point = network.stages, N, precision
                ways = [way for way in named if options.schedule != ALL or way.differs_on(*of_point)]
                for word in rungs:
                    usual = fastest(*of_point, executor.device) if word == AUTO else fastest_apart(*of_point)
                    points += [NetworkPoint(network, N, precision, way, word) for way in ways or [usual]]
                points += [NetworkPoint(network, N, precision, SCHEDULES["graph"], peer) for peer in peers]
    if not points:
        raise UsageError("no network is left: no rung of --rungs has a class of --precision")
    return list(dict.fromkeys(points))


def peers_of(text: str | None, executor: Executor) -> Sequence[str]:
    """Names of peers; raises UsageError."""
    if text is None:
        return ()
    if not executor.measures:
        raise UsageError(f"--peers {text} needs an NVIDIA GPU: the {executor.name} executor has no times to compare")
    of_libraries = {
        library: [name for name in NETWORK_PEERS if name.startswith(f"{library}-")] for library in ("torch", "cudnn")
    }
    words = [name for word in text.split(",") for name in of_libraries.get(word, [word])]
    if unknown := [word for word in words if word not in NETWORK_PEERS]:
        raise UsageError(f"no peer {unknown[0]} of networks: there are {', '.join(NETWORK_PEERS)}")
    return words


def run_networks(say: Console, options: argparse.Namespace, ladder: Ladder, executor: Executor, command: str) -> int:
    """Runs, records and shows the points of a command line; returns the exit status."""
    points = points_of(options, ladder, executor)
    settings = NetworkSettings(
        options.seconds, options.seed, options.memory_budget, not options.verify_only, stages=options.verbose
    )
    runner = NetworkRunner(executor, settings, ladder)
    if options.dry_run:
        say.print(plan_table(runner, points))
        return 0
    file = RecordFile(options.out)
    previous = previous_of(file, runner, points) if options.resume else {}
    if options.resume:
        say.print(f"{len(previous)} of {len(points)} points are already in {options.out}", soft_wrap=True)
    method: Record = {"sampling": stopping_rule(options.seconds)} if executor.measures and settings.timed else {}
    method |= {"sustained_seconds": options.sustained} if options.sustained else {}
    headers = environment.write_headers(file, executor.header(), command, **method)
    records = list(previous.values())
    points = [point for point in points if point not in previous]

    def keep(record: Record) -> None:
        records.append(record)
        file.header(TYPE, {**headers, **record})

    def conclude() -> int:
        show(say, options, records)
        return 0 if all(record["status"] in ("ok", "skipped") for record in records) else 1

    def give_up(point: NetworkPoint, key: str, limit: float) -> int:
        axes, reason = point.axes(), f"took longer than {limit:g} seconds"
        keep({"axes": axes, "point_key": key, "status": "timeout", "reason": reason})
        return conclude()

    with Progress(len(points)) as progress:
        progress.start("compiling kernels")
        build_all(executor, (bound for point in points for bound in runner.bounds(point)))
        for done, point in enumerate(points):
            progress.start(point.label())
            limit = options.time_limit or executor.time_limit
            with time_limit(limit, partial(give_up, point, runner.key(point), limit)):
                keep(runner.record(point))
            progress.reach(done + 1)
            if records[-1]["status"] == "launch-error" and executor.lost():
                progress.say("the device no longer answers after this fault")
                break
    environment.write_end(file, headers, records[len(previous) :], len(previous))
    return conclude()


def previous_of(file: RecordFile, runner: NetworkRunner, points: Sequence[NetworkPoint]) -> dict[NetworkPoint, Record]:
    """The records of a file that show what these points would: same kernels, code, device, software and settings.

    Those of failed points, too: one that did not end would end each run.  Skipped points cost nothing.
    """
    of_keys = {
        record["point_key"]: record
        for record in file.previous.headers.values()
        if record["type"] == TYPE and record["status"] != "skipped" and "point_key" in record
    }
    return {point: of_keys[key] for point in points if (key := runner.key(point)) in of_keys}


def show(say: Console, options: argparse.Namespace, records: Sequence[Record]) -> None:
    """The results as tables, or as JSON; with --verbose each point's stages."""
    if options.json:
        json.dump(records, sys.stdout, indent=1)
        print()
    say.print(result_table(records))
    if options.verbose:
        for record in records:
            if "stages" in record:
                say.print(stage_table(record))
    say.print(f"records: {options.out}", soft_wrap=True)


def name_of(point: Record) -> tuple[str, ...]:
    """A point's first cells."""
    return point["network"], str(point["N"]), point["precision"], point["schedule"], point["rungs"]


NAMES = (Column("network", no_wrap=True), "N", "class", "schedule", "rungs")


def result_table(records: Sequence[Record]) -> Table:
    """A line for each point; times are medians in ms per batch."""
    timed = any(record.get("samples") for record in records)
    figures = (*FIGURES, "images/s") if timed else ()
    table = Table(*NAMES, *(Column(name, justify="right") for name in (*figures, "error", "of its bound")), "status")
    for record in records:
        samples, end = record.get("samples", {}), record.get("end_to_end", {})
        times = [f"{median(samples[name]):.4g}" if samples.get(name) else "-" for name in FIGURES]
        rate = f"{record['axes']['N'] / median(samples['kernel']) * 1e3:,.0f}" if samples.get("kernel") else "-"
        errors = [f"{float(end[name]):.1e}" if name in end else "-" for name in ("error", "of_bound")]
        status = f"{record['status']}: {record['reason']}" if record.get("reason") else record["status"]
        table.add_row(*name_of(record["axes"]), *((*times, rate) if timed else ()), *errors, status)
    return table


def stage_table(record: Record) -> Table:
    """A line for each stage of a point: its rung, its error, and its time alone."""
    timed = any("samples" in stage for stage in record["stages"])
    columns = ("stage", "rung", *(["ms"] if timed else []), "error", "of its bound")
    table = Table(*columns, title=" ".join(name_of(record["axes"])))
    for stage in record["stages"]:
        time = [f"{median(stage['samples']['kernel']):.4g}"] if timed else []
        errors = [f"{float(stage[name]):.1e}" for name in ("largest", "of_bound")]  # NaN is text in JSON
        table.add_row(stage["stage"], stage["rung"], *time, *errors)
    return table


def plan_table(runner: NetworkRunner, points: Sequence[NetworkPoint]) -> Table:
    """The rung of each stage, the device memory and the pieces of each point."""
    table = Table(*NAMES, "layout", "MiB", "pieces", "stages")
    for point in points:
        if point.rungs in NETWORK_PEERS:
            table.add_row(*name_of(point.axes()), "", "", "", "peer")
            continue
        try:
            plan = runner.plan(point)
        except DoesNotFit as reason:
            table.add_row(*name_of(point.axes()), "", "", "", f"skipped: {reason}")
            continue
        size = f"{plan.device_bytes(plan.images_per_piece) / MEBIBYTE:.1f}"
        stages = ", ".join(f"{step.stage.name}: {step.bound.rung.name}" for step in plan.steps)
        table.add_row(*name_of(point.axes()), plan.layout, size, str(len(plan.pieces)), stages)
    return table
