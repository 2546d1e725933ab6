"""Searches the constants of rungs for the fastest kernels.

python -m alexconv.tune --workload lenet-70-k5 --layers 1-2 --N 1000 --rungs tiled,fused-unroll-matmul --trials 50

Every candidate is a separate point: verified before it is timed, and recorded in the file of ``--out`` with its
constants.  One that fails is recorded and never chosen.  The fastest and the default are then run again: the times of
these runs are shown and kept.  ``python -m alexconv.run --tuned`` then uses the best.

With --predict the candidates' times are predicted first, from their machine code, and only those that may be the
fastest are run (docs/predict.md).

With --auto it compares rungs instead of searching constants: all that suit the GPU, in each precision, with their
defaults and with the constants found before.  The fastest is kept; ``--rungs auto`` and ``alexconv.conv2d`` then use
it:

python -m alexconv.tune --auto --precision fp32,tf32,fp16 --layers 1-5 --N 1,32,128

The ECE 408 report of 2019 has a table of tile sizes, for its baseline and its fused product.  This prints it:

python -m alexconv.tune --workload lenet-70-k5 --N 10000 --rungs tiled,fused-unroll-matmul \
    --constants TILE --set RESTRICT=0 --set UNROLL=1
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

from alexconv.cli import display
from alexconv.cli.display import Progress
from alexconv.cli.point_options import GPU_BATCH, add_direction, add_layers, add_rungs, points_of
from alexconv.cluster.connection import connected
from alexconv.cluster.pool import Pool
from alexconv.cluster.worker import Request
from alexconv.errors import MissingTool, UsageError
from alexconv.executors import backends, choose_executor
from alexconv.executors.interface import TIME_LIMIT, Executor
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.problem import H200, Device
from alexconv.measuring.runner import Settings
from alexconv.options import (
    Refusal,
    comma_separated,
    command_line,
    duration,
    exits_cleanly,
    natural,
    positive,
    precision_names,
    program,
    refuse,
)
from alexconv.own.folders import add_own, ladder_of
from alexconv.planning.points import ConstantSource, Point, parse_constants, parse_precisions, refuse_unused
from alexconv.precisions import PRECISIONS
from alexconv.predict import gpu
from alexconv.predict.predictions import KernelCache, predict_points
from alexconv.records.store import RecordFile
from alexconv.tune.candidates import Comparison, Session, compare_rungs, search_constants
from alexconv.tune.search import Axes, Search, axes
from alexconv.tune.tables import rungs_table, show_searches
from alexconv.tune.workers import comparisons
from alexconv.tune.workers import searches as searches_of

DEFAULT_OUT = Path("study/tuning.jsonl")
MODULE = "alexconv.tune"
REFUSALS = (
    Refusal(
        lambda options: bool(options.auto),
        ("constants", "set", "trials", "predict"),
        "not with --auto, which compares rungs, not constants",
    ),
    Refusal(lambda options: bool(options.cluster), ("predict", "device", "ladder", "kernel"), "not with --cluster"),
)
PRUNED = 0.25  # beyond the fastest predicted time: twice the model's band


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add_layers(options, GPU_BATCH)
    add_rungs(options)
    add_direction(options)
    add(
        "--auto",
        action="store_true",
        help="compare rungs, not constants, and keep the fastest of each direction and precision",
    )
    add(
        "--precision",
        type=comma_separated,
        help=f"with --auto: only rungs of these precision classes: {precision_names()} (default: all)",
    )
    add(
        "--constants",
        type=comma_separated,
        metavar="NAMES",
        help="constants to search, such as TILE,UNROLL (default: all of the rung's)",
    )
    add("--set", action="append", default=[], metavar="NAME=V1,V2", help="the values to try for a constant; repeatable")
    add("--trials", type=int, default=50, help="candidates besides the default, per rung, layer and N (default: 50)")
    add("--predict", action="store_true", help=f"run only what is predicted within {PRUNED:.0%}% of the fastest")
    add("--backend", default="auto", choices=backends(), help="as in alexconv run; only a GPU has times to compare")
    add("--device", type=natural, default=0, help="CUDA device ordinal (default: 0)")
    add("--seconds", type=duration, default=0.1, help="sampling time for each figure (default: 0.1)")
    limit = TIME_LIMIT
    add(
        "--time-limit",
        type=positive,
        default=limit,
        metavar="SECONDS",
        help=f"a point that takes longer is a timeout (default: {limit:g})",
    )
    add("--seed", type=natural, default=0, help="seed of inputs, filters and the search (default: 0)")
    add("--cluster", metavar="WHERE", help="search on Dask workers, as in alexconv run, each search on one of them")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"record file (default: {DEFAULT_OUT})")
    add("--resume", action="store_true", help="do not run candidates that FILE has, unless something changed since")
    add_own(options)
    return options


def default_points(
    options: argparse.Namespace, ladder: Ladder, device: Device, precisions: Sequence[str] = ()
) -> list[Point]:
    """The rungs asked for at each layer and batch size, with their default constants; raises UsageError."""
    return points_of(options, ladder, GPU_BATCH, ConstantSource(device=device), precisions)


def points_to_tune(
    options: argparse.Namespace, ladder: Ladder = LADDER, device: Device = H200
) -> list[tuple[Point, Axes]]:
    """The points to tune, with their default constants, and the space of each; raises UsageError."""
    names = options.constants.split(",") if options.constants else None
    known = {constant.name for rung in ladder for constant in rung.constants}
    if unknown := set(names or ()) - known:
        raise UsageError(f"no rung has a constant {', '.join(sorted(unknown))}: they are {', '.join(sorted(known))}")
    if options.trials < 1:
        raise UsageError(f"--trials must be 1 or more, not {options.trials}")
    chosen, points = parse_constants(options.set, ladder), default_points(options, ladder, device)
    refuse_unused(chosen, points)
    point_axes = [(point, space) for point in points if (space := axes(point, names, chosen))]
    if not point_axes:
        wanted = "none of these constants" if names else "no constants to tune"
        raise UsageError(f"the rungs have {wanted}: alexconv run --list shows theirs")
    return point_axes


def tune(options: argparse.Namespace, ladder: Ladder, executor: Executor, command: str) -> list[Search]:
    """Searches what the options ask for; raises as ``search_constants`` does, and UsageError."""
    point_axes = points_to_tune(options, ladder, executor.device)
    promising = prunes(executor.device) if options.predict else None
    return search_constants(
        executor, point_axes, options.trials, settings(options), session(options, command), promising
    )


def prunes(device: Device) -> Callable[[list[Point]], list[Point]]:
    """A filter that keeps the first candidate, those predicted to be fast, and those that the model refuses.

    Raises UsageError for a GPU without a description.
    """
    chosen, kernels = gpu.of_device(device.name), KernelCache()

    def promising(points: list[Point]) -> list[Point]:
        predictions = list(predict_points(points, chosen, kernels))
        least = min((prediction.milliseconds for prediction in predictions if prediction.launches), default=0.0)
        fast = [
            prediction.point
            for number, prediction in enumerate(predictions)
            if number == 0 or not prediction.launches or prediction.milliseconds <= (1 + PRUNED) * least
        ]
        print(f"{points[0].label()}: {len(fast)} of {len(points)} candidates are predicted to be fast")
        return fast

    return promising


def compare(options: argparse.Namespace, ladder: Ladder, executor: Executor, command: str) -> list[Comparison]:
    """Compares the rungs that the options ask for; raises as ``compare_rungs`` does, and UsageError."""
    points = default_points(options, ladder, executor.device, precisions_of(options))
    return compare_rungs(executor, points, settings(options), session(options, command), ladder)


def precisions_of(options: argparse.Namespace) -> list[str]:
    """The precisions whose rungs are compared; raises UsageError."""
    return parse_precisions(options.precision) or list(PRECISIONS)


def on_cluster(options: argparse.Namespace, ladder: Ladder, command: str) -> tuple[list[Comparison], list[Search]]:
    """Compares or searches, each on one of a cluster's workers.  Raises UsageError, MissingTool and ClusterLost."""
    request = Request(
        f"alexconv-{uuid4().hex}", command, options.backend, settings=settings(options), time_limit=options.time_limit
    )
    with (
        Progress(0) as progress,
        connected(options.cluster, options.backend) as client,
        Pool(client, request, progress.say) as pool,
    ):
        facts = pool.first().facts
        if not facts["measures"]:
            raise MissingTool(f"tuning compares times and needs a GPU, but the workers have none: {facts['describe']}")
        resume = options.resume
        if options.auto:
            points = default_points(options, ladder, facts["device"], precisions_of(options))
            return comparisons(pool, RecordFile(options.out), points, progress, resume=resume), []
        point_axes = points_to_tune(options, ladder, facts["device"])
        return [], searches_of(pool, RecordFile(options.out), point_axes, options.trials, progress, resume=resume)


def settings(options: argparse.Namespace) -> Settings:
    """The settings of the candidates' runs."""
    return Settings(options.seconds, options.seed, baseline=False)


def session(options: argparse.Namespace, command: str) -> Session:
    """Where and how candidates are recorded."""
    return Session(partial(RecordFile, options.out), command, options.resume, options.time_limit, Progress)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and tunes; returns the exit status, 1 where a rung has no correct result."""
    command_options = parser()
    options = command_options.parse_args(arguments)
    ladder = ladder_of(options)
    refuse(options, command_options, REFUSALS)
    if options.precision and not options.auto:
        raise UsageError("--precision works only with --auto; a search takes the rungs that --rungs names")
    command, console = command_line(MODULE, arguments), display.console()
    if options.cluster:
        compared, searches = on_cluster(options, ladder, command)
    else:
        executor = choose_executor(options.backend, options.device)
        compared = compare(options, ladder, executor, command) if options.auto else []
        searches = [] if options.auto else tune(options, ladder, executor, command)
    if options.auto:
        console.print(rungs_table(compared))
        console.print(f"records: {options.out}; --rungs auto and alexconv.conv2d use the fastest", soft_wrap=True)
        return 0 if all(comparison.best for comparison in compared) else 1
    show_searches(console, searches, ladder)
    console.print(f"records: {options.out}; python -m alexconv.run --tuned uses the best", soft_wrap=True)
    return 0 if all(search.best or search.count("skipped") == len(search.records) for search in searches) else 1


if __name__ == "__main__":
    sys.exit(main())
