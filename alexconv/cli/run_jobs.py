"""The jobs of an ``alexconv.run`` command line, on the executor that runs them: the points, and what runs each.

Options are those of ``alexconv.run`` by name.  Rungs' constants depend on the device and on what was tuned on it, so
points are made where they run; in ``alexconv.cluster`` one worker makes the points of all.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from alexconv.data import UNIFORM
from alexconv.errors import UsageError
from alexconv.executors.interface import Executor
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.rung import Rung
from alexconv.measuring.jobs import Job
from alexconv.measuring.peers import PEERS, library_of, names_in, with_peers
from alexconv.measuring.runner import Runner, Settings
from alexconv.measuring.sequences import SequenceRunner, mixed, rung_sequences
from alexconv.planning.points import (
    ConstantSource,
    Point,
    RungSequence,
    TunedConstants,
    batches_of,
    choose_data,
    choose_rungs,
    choose_transfers,
    expand,
    of_precisions,
    parse_batches,
    parse_constants,
    parse_directions,
    parse_layers,
    parse_precisions,
    refuse_unused,
    study_points,
    workload_named,
)
from alexconv.planning.transfers import COUNT
from alexconv.precisions import PRECISIONS
from alexconv.shapes import DIRECTIONS, FORWARD, Conv

AUTO = "auto"
NO_RUNG = "no rung is left: no rung of --rungs has a class of --precision and a --direction"

# The rungs, with their constants, for a shape, batch size and precision, of which at most so many are asked for.
ChosenRungs = Callable[[Conv, int, str, int | None], Iterable[tuple[Rung, TunedConstants]]]


@dataclass(frozen=True)
class Tuning:
    """The results of tuning, which are an app's: constants on a device, and the rungs that ``auto`` stands for.

    ``rungs`` takes the device's executor, the ladder and the memory budget, if any.
    """

    constants: Callable[[Executor], TunedConstants]
    rungs: Callable[[Executor, Ladder, int | None], ChosenRungs]


@dataclass(frozen=True)
class RunJobs:
    """Jobs in order, the rungs' points among them with their runner, and the number of tuned points, if asked."""

    jobs: list[Job]
    points: list[Point]
    runner: Runner
    tuned: int | None


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of a command line's points."""
    return Settings(
        options.seconds, options.seed, options.memory_budget, not options.no_baseline, not options.verify_only
    )


def asks_tuning(options: argparse.Namespace) -> bool:
    """Whether points depend on the results of tuning."""
    return options.tuned or any(is_automatic(word) for word in (options.rungs or "").split(","))


def is_automatic(word: str) -> bool:
    """Whether a word of ``--rungs`` stands for rungs that are chosen by layer."""
    return word.partition(":")[0] == AUTO


def jobs_of(options: argparse.Namespace, ladder: Ladder, executor: Executor, tuning: Tuning | None) -> RunJobs:
    """The jobs of a command line; raises UsageError, and MissingTool without the peers' library.

    ``tuning`` may be None unless ``asks_tuning``.
    """
    library = PEERS[library_of(options.peers)] if options.peers else None
    recorder_of = library.load(executor) if library else None
    sequence_options = [name for name in (["mix"] if library else ["mix", "together"]) if getattr(options, name)]
    if sequence_options and not executor.measures:
        raise UsageError(f"--{sequence_options[0]} needs an NVIDIA GPU: the {executor.name} executor has no times")
    source = ConstantSource(
        parse_constants(options.set, ladder),
        tuning.constants(executor) if tuning and options.tuned else None,
        executor.device,
    )
    points = points_of_run(options, ladder, executor, source, tuning)
    known = sum(bool(source.tuned(point.entry, point.conv, point.N)) for point in points) if source.tuned else None
    sequences = sequences_of_run(options, ladder, executor, source, points) if executor.measures else []
    every = [*points, *(point for sequence in sequences for point in sequence.points())]
    runner = Runner(executor, every, settings_of(options))
    jobs = [Job(point, runner) for point in points]
    if library and recorder_of:
        peers = library.chosen(names_in(options.peers), parse_precisions(options.precision))
        jobs = with_peers(runner, points, recorder_of(runner), peers, sequences=options.together)
    jobs += [Job(sequence, SequenceRunner(executor, runner)) for sequence in sequences]
    return RunJobs(jobs, points, runner, known)


def rungs_to_list(options: argparse.Namespace, ladder: Ladder) -> list[Rung]:
    """The rungs of --list in the ladder's order: all, unless others are chosen; raises UsageError."""
    directions = parse_directions(options.direction) or ([] if options.rungs else list(DIRECTIONS))
    rungs = choose_rungs(options.rungs or "all", ladder, directions)
    chosen = {rung.name for rung, _ in of_precisions(rungs, parse_precisions(options.precision))}
    if not chosen:
        raise UsageError(NO_RUNG)
    return [rung for rung in ladder if rung.name in chosen]


def points_of_run(
    options: argparse.Namespace, ladder: Ladder, executor: Executor, source: ConstantSource, tuning: Tuning | None
) -> list[Point]:
    """The points of a command line; raises UsageError."""
    if options.study is not None:
        return study_points(options.study, parse_batches(options.N) if options.N else (), executor.device)
    workload, precisions = workload_named(options.workload), parse_precisions(options.precision)
    layers, batches = parse_layers(options.layers, workload), parse_batches(options.N or str(executor.usual_batch))
    transfers, data = choose_transfers(options.transfer), choose_data(options.data)
    words = (options.rungs or ("" if options.mix else "all")).split(",")
    automatic = [word for word in words if is_automatic(word)]
    named = ",".join(word for word in words if word not in automatic)
    directions = parse_directions(options.direction)
    rungs = of_precisions(choose_rungs(named, ladder, directions) if named else [], precisions)
    points = expand(batches_of(workload, layers, batches, data), rungs, transfers, source)
    if automatic and tuning:
        choice = tuning.rungs(executor, ladder, options.memory_budget)
        for word, direction, layer, N, precision in product(
            automatic, directions or [FORWARD], layers, batches, precisions or PRECISIONS
        ):
            conv = workload.layer(layer).toward(direction)
            for rung, constants in choice(conv, N, precision, contenders_in(word)):
                own = replace(source, tuned=constants)
                points += expand(batches_of(workload, [layer], [N], data), [(rung, None)], transfers, own)
        points = list(dict.fromkeys(points))
    if not points and not options.mix:
        raise UsageError(NO_RUNG)
    refuse_unused(source.chosen, points)
    return points


def contenders_in(word: str) -> int | None:
    """The number in ``auto:4``, None for plain ``auto``; raises UsageError."""
    _, colon, count = word.partition(":")
    if not colon:
        return None
    if not COUNT.fullmatch(count):
        raise UsageError(f"write auto, or auto:4 for four candidates, not {word}")
    return int(count)


def sequences_of_run(
    options: argparse.Namespace, ladder: Ladder, executor: Executor, source: ConstantSource, points: Sequence[Point]
) -> list[RungSequence]:
    """The layers of each rung as one graph, and the mix of rungs, where asked for; raises UsageError."""
    forward = [point for point in points if point.direction == FORWARD]
    sequences = rung_sequences(forward) if options.together else []
    if options.together and points and not sequences:
        raise UsageError("--together takes two layers or more")
    if options.mix:
        if options.data != UNIFORM:
            raise UsageError("--data: not with --mix")
        batches = parse_batches(options.N or str(executor.usual_batch))
        transfers = choose_transfers(options.transfer)
        sequences += mixed(
            options.mix, workload_named(options.workload), batches, transfers, source, ladder.of_direction(FORWARD)
        )
    return sequences
