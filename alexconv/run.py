"""The main job: run rungs over layers and batch sizes, verify, time, tabulate and record.

python -m alexconv.run --layers 1-5 --N 128
"""

import argparse
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from alexconv import __version__, display, environment, tuning_cache
from alexconv.checks import PRECISIONS
from alexconv.cli import exits_cleanly, parse_batches, parse_layers, workload_named
from alexconv.cpu_reference.files import print_to_stderr
from alexconv.cpu_reference.machine import cores
from alexconv.display import Progress, listing, plan_table, result_tables
from alexconv.errors import CompileError, UsageError
from alexconv.executors import BACKENDS, choose_executor
from alexconv.executors.point import Executor
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.points import Point, TunedConstants, choose_rungs, choose_transfers, expand, parse_constants, study_points
from alexconv.records import Record, RecordFile, identity
from alexconv.runner import Runner, Settings, Skip, finished
from alexconv.shapes import Conv

DEFAULT_OUT = Path("study/records.jsonl")
DEFAULT_BATCH = {"cuda": "128", "host": "1"}


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(
        prog="python -m alexconv.run", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    add = options.add_argument
    add("--study", help="the points of a LeNet-style study, as in ece408-2018")
    add("--workload", default="alexnet", help="the network whose layers are run (default: alexnet)")
    add("--layers", default="all", help="layers, as in 1-5 or 1,3 (default: all)")
    add("--N", help="batch sizes, as in 1,32,128 or 256:2048:x2 (default: 128 on a GPU, 1 on the host)")
    add("--rungs", default="all", help="rungs by name, study abbreviation or family (default: all)")
    add("--transfer", default="pageable", help="ways to move arrays, or all (default: pageable)")
    add("--precision", help="only rungs of these error classes, as in fp32,half")
    add("--set", action="append", default=[], metavar="NAME=V1,V2", help="values of a rung's constant; repeatable")
    add("--tuned", action="store_true", help="where alexconv.tune has found constants on this device, use them")
    add("--backend", default="auto", choices=BACKENDS, help="auto: the GPU if there is one, else the host executor")
    add("--device", type=int, default=0, help="number of the GPU (default: 0)")
    add("--memory-budget", type=size, metavar="SIZE", help="device memory for a point, as in 64MiB or 8GB")
    add("--seconds", type=float, default=0.3, help="time for the samples of one figure (default: 0.3)")
    add("--seed", type=int, default=0, help="seed of inputs and filters (default: 0)")
    add("--host-build", default="fast", choices=("fast", "asan"), help="host executor: asan finds bad addresses")
    add("--host-order", type=int, default=0, metavar="K", help="host executor: order of a block's threads (0 1 2...)")
    add(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help=f"record file, appended to (default: {DEFAULT_OUT})",
    )
    add("--resume", action="store_true", help="run only what FILE lacks, or what has changed since")
    add("--retry", action="store_true", help="as --resume, and what failed too")
    add("--verify-only", action="store_true", help="check the outputs and time nothing, as under a sanitizer")
    add("--no-baseline", action="store_true", help="do not time the CPU: no speedups")
    add("--list", action="store_true", help="list the rungs and stop")
    add("--dry-run", action="store_true", help="show what would run, in how many pieces, and stop")
    add("--json", action="store_true", help="finished records (or the list) as JSON on standard output")
    add("--version", action="version", version=f"alexconv {__version__}")
    return options


def size(text: str) -> int:
    """``64MiB``, ``8GB`` or plain bytes; argparse turns the ValueError into its own message."""
    for suffix, unit in {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}.items():
        if text.endswith(suffix):
            return int(float(text.removesuffix(suffix)) * unit)
    return int(text)


def tuned_on(executor: Executor) -> TunedConstants:
    """The constants that ``alexconv.tune`` has found on this device for a rung, shape and batch size; else none."""

    @cache
    def constants(rung: Rung, conv: Conv, N: int) -> dict[str, int]:
        found = tuning_cache.load(executor, rung, conv, N, print_to_stderr)
        return found.constants if found else {}

    return constants


def points_asked_for(options: argparse.Namespace, backend: str, tuned: TunedConstants | None) -> list[Point]:
    """The points of a command line; raises UsageError."""
    if options.study:
        return study_points(options.study, parse_batches(options.N) if options.N else ())
    workload = workload_named(options.workload)
    precisions = options.precision.split(",") if options.precision else []
    if unknown := set(precisions) - set(PRECISIONS):
        raise UsageError(f"unknown precision {', '.join(sorted(unknown))}: choose from {', '.join(PRECISIONS)}")
    points = expand(
        workload.name,
        parse_layers(options.layers, workload),
        parse_batches(options.N or DEFAULT_BATCH[backend]),
        choose_rungs(options.rungs),
        choose_transfers(options.transfer),
        parse_constants(options.set),
        precisions,
        tuned,
    )
    if not points:
        raise UsageError("no rung is left: --rungs and --precision have nothing in common")
    return points


def build_all(executor: Executor, runner: Runner, points: Iterable[Point]) -> None:
    """Compiles every point's kernels side by side; a failure shows again, and is recorded, when its point runs."""
    wanted = {}
    for point in points:
        try:
            constants = runner.plan(point).constants
        except Skip:
            continue
        wanted[point.rung, point.conv, tuple(constants.items())] = (RUNGS[point.rung], point.conv, constants)

    def build(arguments: tuple[object, ...]) -> None:
        try:
            executor.build(*arguments)  # type: ignore[arg-type]
        except CompileError:
            return

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(build, wanted.values()))


def run_points(
    runner: Runner, points: Sequence[Point], file: RecordFile, headers: Record, progress: Progress
) -> list[Record]:
    """Runs and records the points one by one; stops early only when the device is lost."""
    done = []
    for point in points:
        progress.start(point.label())
        record = file.point({**headers, **runner.record(point)})
        done.append(record)
        progress.finish(record)
        if record["status"] == "launch-error" and runner.executor.lost():
            progress.say("the device no longer answers after this fault: run again with --resume for the other points")
            break
    return done


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it; returns the exit status."""
    options = parser().parse_args(arguments)
    say = display.console(stderr=options.json)
    if options.list:
        listing(say, as_json=options.json)
        return 0
    if options.host_build == "asan" and options.backend != "cuda":
        restart_under_asan(arguments)
    executor = choose_executor(options.backend, options.device, options.host_build, options.host_order)
    say.print(f"backend {executor.name}: {executor.describe()}", soft_wrap=True)
    tuned = tuned_on(executor) if options.tuned else None
    points = points_asked_for(options, executor.name, tuned)
    if tuned:
        known = sum(bool(tuned(RUNGS[point.rung], point.conv, point.N)) for point in points)
        say.print(f"{known} of {len(points)} points have constants from alexconv.tune, the others their defaults")
    settings = Settings(
        options.seconds, options.seed, options.memory_budget, not options.no_baseline, not options.verify_only
    )
    runner = Runner(executor, points, settings)
    if options.dry_run:
        plan_table(say, runner, points)
        return 0
    file = RecordFile(options.out)
    if file.previous.unreadable:
        say.print(f"{options.out}: {file.previous.unreadable} unreadable line(s), left as they are")
    todo = points
    if options.resume or options.retry:
        previous = {identity(record["point"]): record for record in file.previous.latest()}
        todo = [point for point in points if not finished(point, runner.key(point), previous, retry=options.retry)]
        say.print(f"{len(points) - len(todo)} of {len(points)} points are already in {options.out}", soft_wrap=True)
    headers = {
        "device": file.header("device", executor.header()),
        "host": file.header("host", environment.host_facts()),
        "run": file.header("run", {"command": command_line(arguments), **environment.software_facts()}),
    }
    with Progress(len(todo)) as progress:
        progress.start("compiling")
        build_all(executor, runner, todo)
        done = run_points(runner, todo, file, headers, progress)
    wanted = {identity(point.axes()) for point in points}
    shown = {identity(record["point"]): record for record in [*file.previous.points, *done]}
    result_tables(say, [record for name, record in shown.items() if name in wanted], timed=executor.measures)
    counts = Counter(record["status"] for record in done)
    say.print(f"{len(done)} points: {', '.join(f'{n} {status}' for status, n in counts.items()) or 'nothing to do'}")
    say.print(f"records: {options.out}", soft_wrap=True)
    if options.json:
        sys.stdout.writelines(json.dumps(record) + "\n" for record in done)
    return 0 if len(done) == len(todo) and not set(counts) - {"ok", "skipped"} else 1


def restart_under_asan(arguments: Sequence[str] | None) -> None:
    """Replaces this process by one that runs the same command with AddressSanitizer loaded, unless it is loaded."""
    from alexconv.executors.host import asan_environment, asan_loaded

    if asan_loaded():
        return
    words = sys.argv[1:] if arguments is None else arguments
    os.execve(sys.executable, [sys.executable, "-m", "alexconv.run", *words], {**os.environ, **asan_environment()})


def command_line(arguments: Sequence[str] | None, program: str = "python -m alexconv.run") -> str:
    """The command as typed."""
    return f"{program} {shlex.join(sys.argv[1:] if arguments is None else arguments)}"


if __name__ == "__main__":
    sys.exit(main())
