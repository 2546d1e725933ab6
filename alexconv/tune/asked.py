"""The jobs of an ``alexconv.run`` command line, on the executor that runs them: the points, and what runs each.

Options are those of ``alexconv.run`` by name.  Rungs' constants depend on the device and on what was tuned on it, so
points are made where they run; in ``alexconv.cluster`` one worker makes the points of all.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

from alexconv.cluster.worker import Request, executor_of
from alexconv.data import UNIFORM
from alexconv.errors import UsageError
from alexconv.executors.interface import Executor
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.jobs import Job, with_peers
from alexconv.measuring.peers import PEERS, library_of, names_in
from alexconv.measuring.runner import Runner, Settings
from alexconv.measuring.sequences import RungSequence, SequenceRunner, mixed, rung_sequences
from alexconv.measuring.shards import OnDevice
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.points import (
    Point,
    TunedConstants,
    choose_data,
    choose_rungs,
    choose_transfers,
    expand,
    parse_batches,
    parse_constants,
    parse_layers,
    parse_precisions,
    refuse_unused,
    study_points,
    workload_named,
)
from alexconv.records.store import Record
from alexconv.tune import auto
from alexconv.tune.chosen import chosen_rungs, tuned_on


@dataclass(frozen=True)
class Asked:
    """Jobs in order, the rungs' points among them with their runner, and the number of tuned points, if asked."""

    jobs: list[Job]
    points: list[Point]
    runner: Runner
    peer_runner: Any
    tuned: int | None


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of a command line's points."""
    return Settings(
        options.seconds, options.seed, options.memory_budget, not options.no_baseline, not options.verify_only
    )


def asked_for(options: argparse.Namespace, executor: Executor) -> Asked:
    """The jobs of a command line; raises UsageError, and MissingTool without the peer's library."""
    peer = PEERS[library_of(options.peers)] if options.peers else None
    library = peer.load(executor) if peer else None
    sequences_asked = [name for name in (["mix"] if peer else ["mix", "together"]) if getattr(options, name)]
    if sequences_asked and not executor.measures:
        raise UsageError(f"--{sequences_asked[0]} needs an NVIDIA GPU: the {executor.name} executor has no times")
    tuned = tuned_on(executor) if options.tuned else None
    points = points_asked_for(options, executor, tuned)
    known = sum(bool(tuned(RUNGS[point.rung], point.conv, point.N)) for point in points) if tuned else None
    sequences = sequences_asked_for(options, executor, points, tuned) if executor.measures else []
    every = [*points, *(each for sequence in sequences for each in sequence.points())]
    runner = Runner(executor, every, settings_of(options))
    jobs = [Job(point, runner) for point in points]
    peer_runner: Any = peer.recorder(library, executor, runner) if peer else None
    if peer:
        jobs = with_peers(
            *(runner, points, peer, peer_runner, parse_precisions(options.precision)),
            names=names_in(options.peers),
            sequences=options.together,
        )
    jobs += [Job(sequence, SequenceRunner(executor, runner)) for sequence in sequences]
    return Asked(jobs, points, runner, peer_runner, known)


def points_asked_for(options: argparse.Namespace, executor: Executor, tuned: TunedConstants | None) -> list[Point]:
    """The points of a command line; raises UsageError."""
    if options.study is not None:
        return study_points(options.study, parse_batches(options.N) if options.N else (), executor.device)
    workload = workload_named(options.workload)
    precisions = parse_precisions(options.precision)
    words = (options.rungs or ("" if options.mix else "all")).split(",")
    named = ",".join(word for word in words if word.partition(":")[0] != auto.AUTO)
    layers, batches = parse_layers(options.layers, workload), parse_batches(options.N or str(executor.usual_batch))
    transfers, constants = choose_transfers(options.transfer), parse_constants(options.set)
    data = choose_data(options.data)
    rungs = choose_rungs(named) if named else []
    device = executor.device
    points = expand(workload.name, layers, batches, rungs, transfers, constants, precisions, tuned, device, data)
    if automatic := [word for word in words if word.partition(":")[0] == auto.AUTO]:
        for word, layer, N, precision in product(automatic, layers, batches, precisions or PRECISIONS):
            conv, count = workload.layer(layer), contenders_asked_for(word)
            for rung, found in chosen_rungs(executor, conv, N, precision, options.memory_budget, count):
                asked = [(rung, None)]
                points += expand(workload.name, [layer], [N], asked, transfers, constants, (), found, device, data)
        points = [point for number, point in enumerate(points) if point not in points[:number]]
    if not points and not options.mix:
        raise UsageError("no rung is left: no rung of --rungs has a class of --precision")
    refuse_unused(constants, points)
    return points


def contenders_asked_for(word: str) -> int | None:
    """The number in ``auto:4``, None for plain ``auto``; raises UsageError."""
    _, colon, count = word.partition(":")
    if not colon:
        return None
    if not count.isdecimal() or int(count) < 1:
        raise UsageError(f"write auto, or auto:4 for four candidates, not {word}")
    return int(count)


def sequences_asked_for(
    options: argparse.Namespace, executor: Executor, points: Sequence[Point], tuned: TunedConstants | None
) -> list[RungSequence]:
    """The layers of each rung as one graph, and the mix of rungs, where asked for; raises UsageError."""
    sequences = rung_sequences(points) if options.together else []
    if options.together and points and not sequences:
        raise UsageError("--together takes two layers or more")
    if options.mix:
        if options.data != UNIFORM:
            raise UsageError("--data: not with --mix")
        batches = parse_batches(options.N or str(executor.usual_batch))
        transfers = choose_transfers(options.transfer)
        sequences += mixed(
            options.mix, workload_named(options.workload).name, batches, transfers, tuned, executor.device
        )
    return sequences


def asked_on_worker(request: Request, options: dict[str, Any], headers: dict[str, Record]) -> dict[str, Any]:
    """The points of a command line on a worker, in order, and each one's key on every device of ``headers``."""
    executor = executor_of(request)
    here = asked_for(argparse.Namespace(**options), executor)
    keys = {}
    for name, header in headers.items():
        there = asked_for(argparse.Namespace(**options), cast(Executor, OnDevice(executor, header)))
        keys[name] = [job.recorder.key(job.point) for job in there.jobs]
    return {
        "points": [job.point for job in here.jobs],
        "keys": keys,
        "own_keys": [job.recorder.key(job.point) for job in here.jobs],
        "tuned": here.tuned,
        "times_cpu": here.runner.times_cpu,
    }
