"""The main job: run rungs over layers and batch sizes, verify, time, tabulate and record.

python -m alexconv.run --layers 1-5 --N 128
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console

from alexconv import __version__
from alexconv.cli import display, matrix
from alexconv.cli.display import Progress, counted, listing, next_steps, outcome, plan_table, result_tables
from alexconv.cli.prediction_tables import show_predictions
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.errors import UsageError
from alexconv.executors import AUTO, EXECUTORS, HOST_BUILDS, backends, choose_executor
from alexconv.executors.interface import Executor
from alexconv.executors.sampling import stopping_rule
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import Device
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.measuring.jobs import Job, kept_records, run_jobs, with_peers
from alexconv.measuring.peers import PEERS
from alexconv.measuring.runner import SECONDS, Runner, Settings
from alexconv.measuring.sequences import RungSequence, SequenceRunner, mixed, rung_sequences
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
)
from alexconv.own.folders import add_own
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
from alexconv.planning.transfers import TRANSFERS
from alexconv.prediction.gpu import of_device
from alexconv.prediction.predictions import TYPE as PREDICTION
from alexconv.prediction.predictions import KernelCache, predict_points
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, identity
from alexconv.shapes import WORKLOADS
from alexconv.tuning import auto
from alexconv.tuning.chosen import chosen_rungs, tuned_on

MODULE = "alexconv.run"
DEFAULT_OUT = Path("study/records.jsonl")
OF_NO_STUDY = ("workload", "layers", "rungs", "transfer", "precision", "data", "set", "tuned", "mix")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--study", help=f"the points of a LeNet-style study: {', '.join(STUDY_WORKLOADS)}")
    add("--workload", default="alexnet", help=f"the network: {', '.join(WORKLOADS)} (default: alexnet)")
    add("--layers", default="all", help="layers, as in 1-5 or 1,3 (default: all)")
    add(
        "--N",
        type=comma_separated,
        help="batch sizes, as in 1,32,128 or 256:2048:x2 (default: 128 on a GPU, 1 on the host)",
    )
    add(
        "--rungs",
        type=comma_separated,
        help="rungs by name, study abbreviation or family, or auto (default: all, with --mix none)",
    )
    add(
        "--transfer",
        default="pageable",
        help=f"ways to move arrays: {', '.join(TRANSFERS)}, streamed:8, or all (default: pageable)",
    )
    add(
        "--precision",
        type=comma_separated,
        help=f"only rungs of these error classes: {', '.join(PRECISIONS)} {PRECISION_NOTE} (default: all)",
    )
    add(
        "--data",
        type=comma_separated,
        default=UNIFORM,
        help=f"inputs and filters: {', '.join(DATA_SETS)}, or all (default: {UNIFORM})",
    )
    add("--set", action="append", default=[], metavar="NAME=V1,V2", help="values of a rung's constant; repeatable")
    add("--tuned", action="store_true", help="use the constants that alexconv.tune has found on this device")
    add("--peers", choices=tuple(PEERS), help="time cuDNN too, as torch calls it and cuBLAS, or each of its plans")
    add(
        "--together",
        "--sequence",
        action="store_true",
        help="all layers of a rung as one sequence: a CUDA graph, or a pipeline under streamed:8",
    )
    add(
        "--mix",
        type=comma_separated,
        metavar="1=RUNG,2=RUNG:NAME=V",
        help="one rung per layer, with constants, as one graph",
    )
    add("--backend", default="auto", choices=backends(), help="auto: the GPU if there is one, else the host executor")
    add("--device", type=natural, default=0, help="number of the GPU (default: 0)")
    add("--memory-budget", type=size, metavar="SIZE", help="device memory for a point, as in 64MiB or 8GB")
    add("--seconds", type=duration, default=SECONDS, help=f"time for the samples of a figure (default: {SECONDS})")
    add(
        "--sustained",
        type=duration,
        default=0.0,
        metavar="SECONDS",
        help="time kernels once more, in a row, after so long under load",
    )
    add(
        "--time-limit",
        type=positive,
        metavar="SECONDS",
        help="per point; a longer one counts as endless (default: 600 on a GPU, none on the host)",
    )
    add("--seed", type=int, default=0, help="seed of inputs and filters (default: 0)")
    add("--host-build", default=HOST_BUILDS[0], choices=HOST_BUILDS, help="on the host: asan finds bad addresses")
    add("--host-order", type=natural, default=0, metavar="K", help="on the host: order of a block's threads (0 1 2...)")
    add(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help=f"record file, appended to (default: {DEFAULT_OUT})",
    )
    add("--resume", action="store_true", help="run only what FILE lacks, failed or not, or what has changed since")
    add("--predict", action="store_true", help="predict each point's time on the reference GPU too, from machine code")
    add("--verify-only", action="store_true", help="check outputs without timing, as under a sanitizer")
    add("--no-baseline", action="store_true", help="do not time the CPU: no speedups")
    add("--list", action="store_true", help="list the rungs and stop")
    add("--dry-run", action="store_true", help="show what would run, in how many pieces, and stop")
    add("--verbose", action="store_true", help="a line for each finished point, and a table with a row for each point")
    add("--json", action="store_true", help="finished records (or the list) as JSON on standard output")
    add("--version", action="version", version=f"alexconv {__version__}")
    add_own(options)
    return options


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
    """The backend asked for: options of one executor ask for it; raises UsageError together with another one."""
    backend = str(options.backend)
    for name, executor in EXECUTORS.items():
        if own := given(options, parser(), executor.options):
            if backend not in (AUTO, name):
                raise UsageError(f"{', '.join(own)}: not with --backend {backend}")
            backend = name
    return backend


def points_asked_for(options: argparse.Namespace, executor: Executor, tuned: TunedConstants | None) -> list[Point]:
    """The points of a command line; raises UsageError."""
    if options.study is not None:
        if beside := given(options, parser(), OF_NO_STUDY):
            raise UsageError(f"{', '.join(beside)}: not with --study, which says what is run")
        return study_points(options.study, parse_batches(options.N) if options.N else (), executor.device)
    workload = workload_named(options.workload)
    precisions = parse_precisions(options.precision)
    words = (options.rungs or ("" if options.mix else "all")).split(",")
    named = ",".join(word for word in words if word != auto.AUTO)
    layers, batches = parse_layers(options.layers, workload), parse_batches(options.N or str(executor.usual_batch))
    transfers, constants = choose_transfers(options.transfer), parse_constants(options.set)
    data = choose_data(options.data)
    rungs = choose_rungs(named) if named else []
    device = executor.device
    points = expand(workload.name, layers, batches, rungs, transfers, constants, precisions, tuned, device, data)
    if auto.AUTO in words:
        for layer, N, precision in product(layers, batches, precisions or PRECISIONS):
            for rung, found in chosen_rungs(executor, workload.layer(layer), N, precision, options.memory_budget):
                asked = [(rung, None)]
                points += expand(workload.name, [layer], [N], asked, transfers, constants, (), found, device, data)
        points = [point for number, point in enumerate(points) if point not in points[:number]]
    if not points and not options.mix:
        raise UsageError("no rung is left: --rungs and --precision have nothing in common")
    refuse_unused(constants, points)
    return points


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


def conclude(
    say: Console, options: argparse.Namespace, jobs: Sequence[Job], kept: Mapping[str, Record], done: Sequence[Record]
) -> int:
    """Shows the results of the jobs so far, ``kept`` from the file and ``done`` now; returns the exit status."""
    found = {**kept, **{identity(record["point"]): record for record in done}}
    shown = [(job.point, found[job.name]) for job in jobs if job.name in found]
    records = [record for point, record in shown if isinstance(point, Point)]
    measures = jobs[0].recorder.executor.measures
    (result_tables if options.verbose else matrix.show)(say, records)
    for point, record in shown:
        if not isinstance(point, Point):
            say.print(f"{point.label()}: {outcome(record)}", soft_wrap=True, markup=False)
    for line in next_steps(options.out, measures=measures, verbose=options.verbose):
        say.print(line, soft_wrap=True, markup=False)
    say.print(f"{len(done)} points: {counted(done)}")
    say.print(f"records: {options.out}", soft_wrap=True)
    if options.json:
        sys.stdout.writelines(json.dumps(record) + "\n" for record in done)
    statuses = {record["status"] for _, record in shown}
    return 0 if len(shown) == len(jobs) and statuses <= {"ok", "skipped"} else 1


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it; returns the exit status."""
    options = parser().parse_args(arguments)
    say = display.console(stderr=options.json)
    if options.list:
        listing(say, as_json=options.json)
        return 0
    backend = backend_of(options)
    restart_where_needed(options.host_build, arguments)
    executor = choose_executor(backend, options.device, options.host_build, options.host_order)
    say.print(f"backend {executor.name}: {executor.describe()}", soft_wrap=True, markup=False)
    peer = PEERS[options.peers] if options.peers else None
    library = peer.load(executor) if peer else None
    sequences_asked = given(options, parser(), ["mix"] if peer else ["mix", "together"])
    if sequences_asked and not executor.measures:
        raise UsageError(f"{sequences_asked[0]} needs an NVIDIA GPU: the {executor.name} executor has no times")
    tuned = tuned_on(executor) if options.tuned else None
    points = points_asked_for(options, executor, tuned)
    if tuned:
        known = sum(bool(tuned(RUNGS[point.rung], point.conv, point.N)) for point in points)
        say.print(f"{known} of {len(points)} points have constants from alexconv.tune, the others their defaults")
    settings = Settings(
        options.seconds, options.seed, options.memory_budget, not options.no_baseline, not options.verify_only
    )
    sequences = sequences_asked_for(options, executor, points, tuned) if executor.measures else []
    runner = Runner(executor, [*points, *(each for sequence in sequences for each in sequence.points())], settings)
    jobs = [Job(point, runner) for point in points]
    peer_runner: Any = peer.recorder(library, executor, runner) if peer else None
    if peer:
        jobs = with_peers(
            runner, points, peer, peer_runner, parse_precisions(options.precision), sequences=options.together
        )
    jobs += [Job(sequence, SequenceRunner(executor, runner)) for sequence in sequences]
    if options.dry_run:
        plan_table(say, runner, points)
        for point, recorder in jobs:
            if recorder is not runner:
                kind = "peer" if recorder is peer_runner else "together"
                say.print(f"{kind}: {point.label()}", soft_wrap=True)
        return 0
    file = RecordFile(options.out)
    if file.previous.unreadable:
        say.print(
            f"{options.out}: {len(file.previous.unreadable)} unreadable line(s), left as they are", soft_wrap=True
        )
    kept = kept_records(jobs, file.previous.latest()) if options.resume else {}
    if options.resume:
        say.print(f"{len(kept)} of {len(jobs)} points are already in {options.out}", soft_wrap=True)
    todo = [job for job in jobs if job.name not in kept]
    executor.sustained = options.sustained
    method: Record = {"sampling": stopping_rule(settings.seconds)} if runner.times else {}
    method |= {"sustained_seconds": options.sustained} if options.sustained else {}
    headers = environment.write_headers(file, executor.header(), command_line(MODULE, arguments), **method)
    finish = exits_cleanly(partial(conclude, say, options, jobs, kept))
    limit = options.time_limit or executor.time_limit
    with Progress(len(todo), verbose=options.verbose) as progress:
        done = run_jobs(todo, runner, file, headers, progress, limit, finish)
    environment.write_end(file, headers, done, len(kept))
    status = finish(done)
    if options.predict:
        add_predictions(say, file, headers, points, executor.device)
    return status


def add_predictions(say: Console, file: RecordFile, headers: Record, points: Sequence[Point], device: Device) -> None:
    """Predicts the points' kernel times on a device; shows and records them as predictions, a type of their own."""
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
