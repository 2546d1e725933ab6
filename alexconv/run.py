"""Verifies, times and records rungs over layers and batch sizes.

python -m alexconv.run --layers 1-5 --N 128
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from alexconv import __version__
from alexconv.cli import display
from alexconv.cli.display import Conclusion, Progress, listing, plan_table, say_shared, say_tuned, say_unreadable
from alexconv.cli.point_options import RUNG_WORDS, add_constants, add_direction, add_layers
from alexconv.cli.run_jobs import RunJobs, Tuning, asks_tuning, jobs_of, rungs_to_list
from alexconv.cli.sharing import share
from alexconv.cluster import options as cluster
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.errors import UsageError
from alexconv.executors import AUTO, EXECUTORS, HOST_BUILDS, backends, choose_executor
from alexconv.executors.sampling import stopping_rule
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.problem import H200, Device
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.measuring.host_time import host_time
from alexconv.measuring.jobs import Job, reusable_records, run_jobs
from alexconv.measuring.peers import peers_named
from alexconv.measuring.runner import SECONDS, Runner
from alexconv.messages import plural
from alexconv.options import (
    Refusal,
    comma_separated,
    command_line,
    duration,
    exits_cleanly,
    natural,
    non_default,
    positive,
    precision_names,
    program,
    refuse,
    size,
)
from alexconv.own.folders import add_own, ladder_of
from alexconv.planning.points import Kind, Point
from alexconv.planning.transfers import TRANSFERS
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile

MODULE = "alexconv.run"
DEFAULT_OUT = Path("study/records.jsonl")
NOT_OF_NETWORKS = (
    *("workload", "layers", "transfer", "data", "set", "tuned", "study", "together", "mix", "predict"),
    *("share", "shards", "cluster"),
)
REFUSALS = (
    Refusal(
        lambda options: options.study is not None,
        ("workload", "layers", "rungs", "transfer", "precision", "direction", "data", "set", "tuned", "mix"),
        "not with --study, which determines what runs",
    ),
    Refusal(lambda options: bool(options.cluster or options.shards), ("share",), "not with --cluster or --shards"),
    Refusal(lambda options: options.network is not None, NOT_OF_NETWORKS, "not with --network"),
    Refusal(lambda options: options.network is None, ("schedule",), "only with --network"),
    *cluster.REFUSALS,
)


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
    cluster.add_cluster(options.add_argument_group("several GPUs (docs/cluster.md)"))
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
        help=f"only rungs of these precision classes: {precision_names()} (default: all)",
    )
    add_direction(group)
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
    add("--seed", type=natural, default=0, help="seed of inputs and filters (default: 0)")
    add("--study", metavar="NAME", help=f"the points of a LeNet-style study: {', '.join(STUDY_WORKLOADS)}")
    add_peers(group)
    add(
        "--network",
        type=comma_separated,
        metavar="LIST",
        help="whole networks instead of layers, or all: docs/whole-networks.md",
    )
    add(
        "--schedule",
        type=comma_separated,
        metavar="LIST",
        help="with --network: how its stages are launched, or all (default: the fastest)",
    )


def add_peers(group: argparse._ArgumentGroup) -> None:
    """Adds the options that choose peers, and sequences of layers."""
    add = group.add_argument
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
    add(
        "--host-build",
        default=HOST_BUILDS[0],
        choices=HOST_BUILDS,
        help="host: unoptimized compiles in half the time, for small layers; asan is AddressSanitizer",
    )
    add(
        "--host-order",
        type=natural,
        default=0,
        metavar="K",
        help="host: order of a block's threads; 0 forward, 1 reverse, any other a random seed (default: 0)",
    )
    add(
        "--gpu",
        metavar="NAME",
        help="list and plan for this GPU, or run with its limits on the host: h100, t4 ... (docs/cards.md)",
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
    add(
        "--share",
        action="store_true",
        help="also write FILE's points to a file to send, without names of hosts and users (docs/send-your-card.md)",
    )
    add(
        "--list",
        action="store_true",
        help="list rungs, all or those chosen, and stop: name (abbreviation, class): idea; constants",
    )
    add("--dry-run", action="store_true", help="show points, pieces, memory and launches, and stop")
    add("--verbose", action="store_true", help="a line for each finished point, and a table with a row for each point")
    add("--json", action="store_true", help="finished records (or the list) as JSON on standard output")


def backend_of(options: argparse.Namespace, command: argparse.ArgumentParser) -> str:
    """The backend asked for, also by options of one executor; raises UsageError if the two differ."""
    backend = str(options.backend)
    for name, executor in EXECUTORS.items():
        if own := non_default(options, command, executor.options):
            if backend not in (AUTO, name):
                raise UsageError(f"{', '.join(own)}: not with --backend {backend}")
            backend = name
    return backend


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it; returns the exit status."""
    command = parser()
    options = command.parse_args(arguments)
    say = display.console(stderr=options.json)
    restart_where_needed(options.host_build, arguments)
    if options.json:
        display.keep_standard_output()
    ladder = ladder_of(options)
    described = described_gpu(options)
    if options.list:
        listing(
            say, rungs_to_list(options, ladder), described.capability if options.gpu else None, as_json=options.json
        )
        return 0
    refuse(options, command, REFUSALS)
    options.backend = backend_of(options, command)
    command_text = command_line(MODULE, arguments)
    if options.shards or options.cluster:
        from alexconv.cluster.command import run_elsewhere

        return run_elsewhere(say, options, ladder, command_text, tuning_for(options))
    return run_here(say, options, ladder, command_text, described)


def described_gpu(options: argparse.Namespace) -> Device:
    """The GPU of --gpu, else the reference device; plans for it have its memory.  Raises UsageError."""
    if not options.gpu:
        return H200
    from alexconv.predict import gpu

    described = gpu.load(options.gpu)
    if options.dry_run and options.memory_budget is None:
        options.memory_budget = described.memory_bytes
    return described.device


def tuning_for(options: argparse.Namespace) -> Tuning | None:
    """The results of tuning, if points depend on them."""
    if not asks_tuning(options):
        return None
    from alexconv.tune.chosen import TUNING

    return TUNING


def run_here(say: Console, options: argparse.Namespace, ladder: Ladder, command: str, host_gpu: Device) -> int:
    """Runs the points on this machine, in this process; returns the exit status."""
    executor = choose_executor(options.backend, options.device, options.host_build, options.host_order, host_gpu)
    say.print(f"backend {executor.name}: {executor.describe()}", soft_wrap=True)
    executor.sustained = options.sustained
    if options.network:
        from alexconv.networks.command import run_networks

        return run_networks(say, options, ladder, executor, command)
    requested = jobs_of(options, ladder, executor, tuning_for(options))
    say_tuned(say, requested.tuned, len(requested.points))
    if options.shard:
        from alexconv.cluster.groups import jobs_of_shard

        requested = replace(requested, jobs=jobs_of_shard(options.shard, requested.jobs, say.print))
    if options.dry_run:
        show_plans(say, requested)
        return 0
    file = RecordFile(options.out)
    say_unreadable(say, file)
    previous: dict[str, Record] = {}
    if options.resume:
        previous = reusable_records(requested.jobs, file.previous.points, requested.runner)
        say.print(f"{len(previous)} of {len(requested.jobs)} points are already in {options.out}", soft_wrap=True)
    method: Record = {"sampling": stopping_rule(options.seconds)} if requested.runner.times else {}
    method |= {"sustained_seconds": options.sustained} if options.sustained else {}
    headers = environment.write_headers(file, executor.header(), command, **method)
    points = [job.point for job in requested.jobs]
    conclude = exits_cleanly(Conclusion(say, options, ladder, points, previous, executor.measures).show)
    todo = [job for job in requested.jobs if job.name not in previous]
    done = run_shown(say, options, todo, requested.runner, lambda record: file.point({**headers, **record}), conclude)
    environment.write_end(file, headers, done, len(previous))
    status = conclude(done)
    try:
        if options.predict:
            from alexconv.predict.tables import predict_run

            predict_run(say, requested.points, executor.device, file, headers)
    finally:  # measurements are shared with predictions or, where there are none, without
        if options.share:
            say_shared(say, share(options.out))
    return status


def run_shown(
    say: Console,
    options: argparse.Namespace,
    jobs: Sequence[Job],
    runner: Runner,
    write: Callable[[Record], Record],
    conclude: Callable[[list[Record]], int],
) -> list[Record]:
    """Runs jobs with a display of their progress; ``write`` and ``conclude`` are those of ``run_jobs``."""
    executor = runner.executor
    costs = () if executor.measures else expected_time(say, jobs, runner)
    with Progress(len(jobs), verbose=options.verbose, costs=costs) as progress:
        try:
            return run_jobs(jobs, runner, write, progress, options.time_limit or executor.time_limit, conclude)
        except KeyboardInterrupt:
            progress.stop()
            done = f"{progress.done} of {plural(len(jobs), 'point')}"
            progress.say(f"interrupted: {done} are in {options.out}; --resume runs the others")
            raise


def expected_time(say: Console, jobs: Sequence[Job], runner: Runner) -> tuple[float, ...]:
    """Says how long jobs take on the CPU; returns the estimated seconds of each, none of those beyond its memory."""
    run = [[point for point in job.point.points() if not runner.beyond_host_memory(point)] for job in jobs]
    expected = host_time(run, runner.executor)
    for line in expected.lines():
        say.print(line, soft_wrap=True)
    return expected.jobs


def show_plans(say: Console, requested: RunJobs) -> None:
    """The plans of the rungs' points as a table, and a line for each peer and each sequence."""
    plan_table(say, requested.runner, [job.point for job in requested.jobs if isinstance(job.point, Point)])
    for point in (job.point for job in requested.jobs):
        if not isinstance(point, Point):
            say.print(f"{'peer' if point.kind is Kind.PEER else 'together'}: {point.label()}", soft_wrap=True)


def restart_where_needed(host_build: str, arguments: Sequence[str] | None) -> None:
    """Replaces this process by one with the same command and the environment that the host executor's build needs."""
    from alexconv.executors.host.runtime import missing_environment

    if missing := missing_environment(host_build):
        words = sys.argv[1:] if arguments is None else arguments
        os.execve(sys.executable, [sys.executable, "-m", "alexconv.run", *words], {**os.environ, **missing})


if __name__ == "__main__":
    sys.exit(main())
