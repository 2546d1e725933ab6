"""Searches the constants of rungs for the fastest kernels, per layer and batch size, and keeps the best.

python -m alexconv.tune --workload lenet-70-k5 --layers 1-2 --N 1000 --rungs tiled,fused-unroll-matmul --trials 50

Every candidate is a point of its own: verified before it is timed, and recorded in the file of ``--out`` with its
constants.  One that fails is recorded and never chosen.  ``python -m alexconv.run --tuned`` then uses the best.

With --auto it searches no constants but compares rungs: all that suit the GPU, in each precision, with their defaults
and with the constants found before.  The fastest is kept; ``--rungs auto`` and ``alexconv.conv2d`` then use it:

python -m alexconv.tune --auto --precision fp32,tf32,fp16 --layers 1-5 --N 1,32,128

The ECE 408 report of 2019 has a table of tile sizes, of its baseline and of its fused product.  This prints it:

python -m alexconv.tune --workload lenet-70-k5 --N 10000 --rungs tiled,fused-unroll-matmul \
    --constants TILE --set RESTRICT=0 --set UNROLL=1
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from alexconv.cli import display
from alexconv.cli.display import Progress, number
from alexconv.cli.options import (
    comma_separated,
    command_line,
    duration,
    exits_cleanly,
    given,
    natural,
    parse_batches,
    parse_layers,
    positive,
    program,
    workload_named,
)
from alexconv.errors import LaunchError, MissingTool, UsageError
from alexconv.executors import BACKENDS, choose_executor
from alexconv.executors.point import Executor
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.measuring.ahead import Ahead
from alexconv.measuring.checks import PRECISIONS
from alexconv.measuring.points import (
    Point,
    choose_rungs,
    choose_transfers,
    expand,
    parse_constants,
    refuse_unused,
    rung_label,
)
from alexconv.measuring.runner import Runner, Settings, Skip, finished, timed_out
from alexconv.measuring.watchdog import TIME_LIMIT, time_limit
from alexconv.messages import print_to_stderr
from alexconv.records import environment
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, RecordFile, identity
from alexconv.shapes import WORKLOADS
from alexconv.tuning import cache as tuning_cache
from alexconv.tuning.cache import Best
from alexconv.tuning.search import Axes, Run, Search, axes, candidates, import_optuna, search

DEFAULT_OUT = Path("study/tuning.jsonl")
MODULE = "alexconv.tune"
OF_A_SEARCH = ("constants", "set", "trials")
MOST_ROWS = 40  # of a sweep table: beyond them, only what is among the best so many of a layer


@dataclass(frozen=True)
class Contest:
    """The records of all rungs of one precision and layout at one layer and batch size, and the first one's point."""

    first: Point
    records: tuple[Record, ...]

    @property
    def best(self) -> Best | None:
        """The fastest rung that is right, or None."""
        times = [(median_of(record, "kernel"), record["point"]) for record in self.records]
        timed = [Best(point["rung"], point["constants"], ms) for ms, point in times if ms is not None]
        return min(timed, key=lambda best: best.kernel_ms, default=None)


Layers = list[dict[tuple[int, ...], Record]]  # a sweep: each layer's records by the values of the constants


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--workload", default="alexnet", help=f"the network: {', '.join(WORKLOADS)} (default: alexnet)")
    add("--layers", default="all", help="layers, as in 1-5 or 1,3 (default: all)")
    add("--N", default="128", help="batch sizes, as in 1,32,128 or 256:2048:x2 (default: 128)")
    add("--rungs", default="all", help="rungs by name, study abbreviation or family (default: all)")
    add(
        "--auto", action="store_true", help="compare rungs instead of constants, and keep the fastest of each precision"
    )
    add(
        "--precision",
        type=comma_separated,
        help=f"with --auto: only rungs of these error classes: {', '.join(PRECISIONS)} (default: all)",
    )
    add(
        "--constants",
        type=comma_separated,
        help="the constants to search, as in TILE,UNROLL (default: all that the rung has)",
    )
    add("--set", action="append", default=[], metavar="NAME=V1,V2", help="the values to try for a constant; repeatable")
    add("--trials", type=int, default=50, help="candidates beside the default, per rung, layer and N (default: 50)")
    add("--backend", default="auto", choices=BACKENDS, help="as in alexconv.run; only a GPU has times to compare")
    add("--device", type=natural, default=0, help="number of the GPU (default: 0)")
    add("--seconds", type=duration, default=0.1, help="time for the samples of one figure (default: 0.1)")
    limit = TIME_LIMIT["cuda"]
    add("--time-limit", type=positive, default=limit, metavar="SECONDS", help=f"for a point (default: {limit:g})")
    add("--seed", type=natural, default=0, help="seed of inputs, filters and the search (default: 0)")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"record file (default: {DEFAULT_OUT})")
    add("--resume", action="store_true", help="take the candidates that FILE has from there, if nothing changed since")
    return options


def default_points(options: argparse.Namespace, precisions: Sequence[str] = ()) -> list[Point]:
    """The rungs asked for at each layer and batch size, with their default constants; raises UsageError."""
    workload = workload_named(options.workload)
    return expand(
        workload.name,
        parse_layers(options.layers, workload),
        parse_batches(options.N),
        [(rung, None) for rung, _ in choose_rungs(options.rungs)],
        choose_transfers("pageable"),
        {},
        precisions,
    )


def asked_for(options: argparse.Namespace) -> list[tuple[Point, Axes]]:
    """The points to tune, with their default constants, and the space of each; raises UsageError."""
    names = options.constants.split(",") if options.constants else None
    known = {constant.name for rung in LADDER for constant in rung.constants}
    if unknown := set(names or ()) - known:
        raise UsageError(f"no rung has a constant {', '.join(sorted(unknown))}: they are {', '.join(sorted(known))}")
    if options.trials < 1:
        raise UsageError(f"--trials is 1 or more, not {options.trials}")
    chosen, points = parse_constants(options.set), default_points(options)
    refuse_unused(chosen, points)
    asked = [(point, space) for point in points if (space := axes(point, names, chosen))]
    if not asked:
        raise UsageError("the rungs have none of these constants; python -m alexconv.run --list shows which they have")
    return asked


def tune(options: argparse.Namespace, executor: Executor, command: str) -> list[Search]:
    """Searches what the options ask for, records every candidate and keeps the best for ``run --tuned``.

    Raises MissingTool on an executor that measures nothing, and LaunchError when a candidate took the device down.
    Ends the process when one takes longer than the time limit.
    """
    require_times(executor)
    import_optuna()
    asked = asked_for(options)
    runner = Runner(executor, [point for point, _ in asked], Settings(options.seconds, options.seed, baseline=False))
    spaces = [candidates(default, space) for default, space in asked]
    runs_all = [points for points in spaces if len(points) <= options.trials + 1]
    most = sum(min(len(points), options.trials + 1) for points in spaces)
    with recording(options, runner, command, [point for points in runs_all for point in points], most) as run:
        searches = []
        for default, space in asked:
            found = search(default, space, options.trials, run, options.seed)
            searches.append(found)
            if found.best:
                rung = RUNGS[default.rung]
                tuning_cache.keep(executor, rung, default.conv, default.N, found.best, print_to_stderr)
    return searches


def compare(options: argparse.Namespace, executor: Executor, command: str) -> list[Contest]:
    """Runs every rung that the options ask for and the GPU can run, and keeps the fastest of each kind for ``auto``.

    Raises as ``tune`` does.
    """
    require_times(executor)
    precisions = options.precision.split(",") if options.precision else list(PRECISIONS)
    if unknown := set(precisions) - set(PRECISIONS):
        raise UsageError(f"unknown precision {', '.join(sorted(unknown))}: choose from {', '.join(PRECISIONS)}")
    points = []
    for point in default_points(options, precisions):
        tuned = tuning_cache.load(executor, RUNGS[point.rung], point.conv, point.N, print_to_stderr)
        points += [point, replace(point, constants=tuned.constants)] if tuned else [point]
    runner = Runner(executor, points, Settings(options.seconds, options.seed, baseline=False))
    contests: dict[tuple[str, int, int, str, str], list[Point]] = {}
    for point in dict.fromkeys(points):
        with suppress(Skip):
            runner.plan(point)
            rung = RUNGS[point.rung]
            kind = point.workload, point.layer, point.N, rung.precision, rung.layout
            contests.setdefault(kind, []).append(point)
    suited = [point for each in contests.values() for point in each]
    if not suited:
        raise UsageError("no rung is left: --rungs and --precision have nothing in common that this GPU can run")
    with recording(options, runner, command, suited, len(suited)) as run:
        found = [Contest(each[0], tuple(map(run, each))) for each in contests.values()]
    for contest in found:
        if best := contest.best:
            tuning_cache.keep_best(executor, contest.first.conv, contest.first.N, best, print_to_stderr)
    return found


def require_times(executor: Executor) -> None:
    """Raises MissingTool on an executor that measures nothing."""
    if not executor.measures:
        raise MissingTool(f"tuning compares times and needs a GPU, but here is only the host: {executor.describe()}")


@contextmanager
def recording(
    options: argparse.Namespace, runner: Runner, command: str, known: Sequence[Point], most: int
) -> Iterator[Run]:
    """What runs a point, at most so many, and appends its record to the file, or takes it from there with --resume.

    The ``known`` points are compiled side by side before.  A run raises LaunchError when it took the device down.
    """
    executor, file = runner.executor, RecordFile(options.out)
    previous = {identity(record["point"]): record for record in file.previous.latest()} if options.resume else {}
    headers = environment.write_headers(file, executor.header(), command)

    def give_up(point: Point, record: Record) -> int:
        progress.finish(file.point({**headers, **record}))
        progress.stop()
        raise LaunchError(f"{point.label()} did not end: the same command with --resume goes on without")

    def run(point: Point) -> Record:
        progress.start(point.label())
        key, limit = runner.key(point), options.time_limit
        if finished(point, key, previous):
            record = previous[identity(point.axes())]
        else:
            ahead.wait([point])
            runner.ready([point])
            with time_limit(limit, partial(give_up, point, timed_out(point, key, limit))):
                found = runner.record(point)
            record = file.point({**headers, **found})
        progress.finish(record)
        if record["status"] == "launch-error" and executor.lost():
            raise LaunchError(f"{point.label()} took the device down: the same command with --resume goes on without")
        return record

    with Progress(most) as progress, Ahead(runner, known, progress.start) as ahead:
        yield run


def show(console: Console, searches: Iterable[Search]) -> None:
    """A table of each rung's sweep at each N, and one of the best."""

    def group(found: Search) -> tuple[int, int]:
        return found.default.N, list(RUNGS).index(found.default.rung)

    ordered = sorted(searches, key=group)
    for _, layers in groupby(ordered, key=group):
        console.print(sweep_table(list(layers)))
    console.print(best_table(ordered))


def sweep_table(searches: Sequence[Search]) -> Table:
    """One rung at one N: the values of the constants that vary, by layer, in ms; a failed candidate as its status."""
    first = searches[0].default
    layers = [{tuple(record["point"]["constants"].values()): record for record in s.records} for s in searches]
    rows = sorted({row for layer in layers for row in layer if len(layer) <= MOST_ROWS or row in best_rows(layer)})
    varied = [column for column in range(len(first.constants)) if len({row[column] for row in rows}) > 1]
    names = [list(first.constants)[column] for column in varied]
    numbers = [f"layer {found.default.layer}" for found in searches]
    title = f"{first.workload}, N={first.N}, {first.rung}: kernels, ms per batch"
    table = Table(*(names or [""]), *numbers, "sum", title=title)
    for row in rows:
        cells = [cell(layer.get(row)) for layer in layers]
        times = [median_of(layer[row], "kernel") if row in layer else None for layer in layers]
        table.add_row(*([str(row[column]) for column in varied] or [""]), *cells, number(total(times)))
    table.add_section()
    best = [found.best.kernel_ms if found.best else None for found in searches]
    table.add_row("best", *[""] * (len(varied) - 1), *map(number, best), number(total(best)))
    return table


def best_rows(layer: dict[tuple[int, ...], Record]) -> list[tuple[int, ...]]:
    """The values of the constants of a layer's fastest candidates."""
    timed = {row: ms for row, record in layer.items() if (ms := median_of(record, "kernel")) is not None}
    return sorted(timed, key=timed.__getitem__)[:MOST_ROWS]


def cell(record: Record | None) -> str:
    """A candidate's time, or why it has none."""
    if record is None:
        return "-"
    return number(median_of(record, "kernel")) if record["status"] == "ok" else str(record["status"])


def total(times: Sequence[float | None]) -> float | None:
    """The sum, or None where one is missing."""
    known = [ms for ms in times if ms is not None]
    return sum(known) if len(known) == len(times) else None


def best_table(searches: Iterable[Search]) -> Table:
    """The best constants of each layer beside the defaults."""
    table = Table("workload", "layer", "N", "rung", "best constants", "ms", "default ms", "gain", "candidates", "right")
    for found in searches:
        point, best, default_ms = found.default, found.best, found.default_ms
        table.add_row(
            point.workload,
            str(point.layer),
            str(point.N),
            point.rung,
            changed_constants(found),
            number(best.kernel_ms if best else None),
            number(default_ms),
            f"{default_ms / best.kernel_ms:.2f}x" if best and default_ms else "-",
            str(len(found.records)),
            str(found.count("ok")),
        )
    return table


def changed_constants(found: Search) -> str:
    """The best constants where they differ from the defaults, or why there are none."""
    if not found.best:
        return str(found.records[0]["reason"])
    label = rung_label(found.default.rung, found.best.constants, found.default.conv)
    return label.removeprefix(found.default.rung).strip(" []") or "the defaults"


def contest_table(contests: Iterable[Contest]) -> Table:
    """The fastest rung of each kind."""
    table = Table("workload", "layer", "N", "precision", "layout", "fastest rung", "ms", "rungs", "right")
    for contest in contests:
        point, best = contest.first, contest.best
        table.add_row(
            point.workload,
            str(point.layer),
            str(point.N),
            point.precision,
            RUNGS[point.rung].layout,
            rung_label(best.rung, best.constants, point.conv) if best else "-",
            number(best.kernel_ms if best else None),
            str(len(contest.records)),
            str(sum(record["status"] == "ok" for record in contest.records)),
        )
    return table


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and tunes; returns the exit status, 1 where nothing of a rung was right."""
    options = parser().parse_args(arguments)
    if options.auto and (beside := given(options, parser(), OF_A_SEARCH)):
        raise UsageError(f"{', '.join(beside)}: not with --auto, which compares rungs and not constants")
    if options.precision and not options.auto:
        raise UsageError("--precision is for --auto, which compares rungs; a search is of those that --rungs names")
    executor = choose_executor(options.backend, options.device)
    console = display.console()
    if options.auto:
        contests = compare(options, executor, command_line(MODULE, arguments))
        console.print(contest_table(contests))
        console.print(f"records: {options.out}; --rungs auto and alexconv.conv2d use the fastest", soft_wrap=True)
        return 0 if all(contest.best for contest in contests) else 1
    searches = tune(options, executor, command_line(MODULE, arguments))
    show(console, searches)
    console.print(f"records: {options.out}; python -m alexconv.run --tuned uses the best", soft_wrap=True)
    return 0 if all(found.best or found.count("skipped") == len(found.records) for found in searches) else 1


if __name__ == "__main__":
    sys.exit(main())
