"""Classification accuracy of a trained network under every rung.

python -m alexconv.accuracy --rungs all --images 360

Each rung runs the network's convolutions on held-out images.  An fp32 rung must predict what the CPU reference
predicts, image for image; changes under lower precision are reported.  ReLU, pooling and the fully connected layer
always run in NumPy, so only the convolutions differ.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.progress import track
from rich.table import Column, Table

from alexconv.accuracy.network import HELD_OUT, WORKLOAD, Convolve, Floats, Labels, Network, held_out, on_cpu, trained
from alexconv.cli import display
from alexconv.cli.point_options import add_rungs
from alexconv.errors import CompileError, LaunchError, OutOfMemory, UsageError
from alexconv.executors import backends, choose_executor
from alexconv.executors.interface import Executor, open_rung
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.rung import Rung
from alexconv.measuring.ahead import compile_all
from alexconv.measuring.runner import FAILURES, Runner, Settings, Skip
from alexconv.options import command_line, exits_cleanly, natural, program
from alexconv.own.folders import add_own, ladder_of
from alexconv.planning.points import Point, batches_of, choose_rungs
from alexconv.planning.transfers import transfer_named
from alexconv.precisions import PRECISIONS
from alexconv.records import environment
from alexconv.records.store import RecordFile

DEFAULT_OUT = Path("study/accuracy.jsonl")
MODULE = "alexconv.accuracy"
TRANSFER = "pageable"


@dataclass(frozen=True)
class Accuracy:
    """A rung's predictions compared with the CPU reference's.

    ``changed_predictions`` are the numbers of the images, counted from 0, that it classifies differently.
    ``score_change`` is the largest change of any score, and ``reference_margin`` the smallest distance between an
    image's two largest reference scores, both over the largest score of all: a change of less than half the margin
    changes no prediction; it is None where a score is not finite.  Without a result, ``reason`` says why.
    """

    rung: str
    precision: str
    images: int
    reference_accuracy: float
    reference_margin: float
    status: str = "ok"
    reason: str | None = None
    accuracy: float | None = None
    changed_predictions: tuple[int, ...] = ()
    score_change: float | None = None

    @property
    def right(self) -> bool:
        """Whether the rung keeps what its precision promises; one that was skipped promises nothing.

        Classes whose operands are floats must change no prediction; in all of them scores are finite.
        """
        as_promised = not self.changed_predictions or not PRECISIONS[self.precision].keeps_floats
        finite = self.score_change is not None
        return self.status == "skipped" or (self.status == "ok" and finite and as_promised)


def point_of(rung: Rung, layer: int, images: int) -> Point:
    """A layer of the network, computed by a rung with its defaults for a usual batch."""
    (batch,) = batches_of(WORKLOAD, [layer], [images])
    return Point(batch, rung, TRANSFER, rung.resolve(batch.conv, {}))


def convolved_by(runner: Runner, rung: Rung) -> Convolve:
    """The rung as a function of arrays, planned and run as a point is.

    The function raises Skip, CompileError, LaunchError and OutOfMemory.
    """

    def convolve(layer: int, x: Floats, w: Floats) -> Floats:
        point = point_of(rung, layer, len(x))
        plan = runner.plan(point)
        with open_rung(runner.executor, plan, x, w, transfer_named(TRANSFER)) as opened:
            y: Floats = opened.outputs().astype(np.float32)
            return y

    return convolve


class Trial:
    """A network, images with their classes, and the scores that the CPU reference gives them."""

    def __init__(self, network: Network, images: Floats, labels: Labels) -> None:
        self.network, self.images, self.labels = network, images, labels
        self.reference = network.scores(images, on_cpu)

    def accuracy(self, scores: Floats) -> float:
        """Share of images whose largest score is their class's; images with a NaN score count as wrong."""
        right = (scores.argmax(axis=1) == self.labels) & np.isfinite(scores).all(axis=1)
        return float(right.mean())

    def run(self, runner: Runner, rung: Rung) -> Accuracy:
        """The rung's accuracy, or why it has none."""
        begin = Accuracy(
            rung.name, rung.precision, len(self.images), self.accuracy(self.reference), margin(self.reference)
        )
        try:
            scores = self.network.scores(self.images, convolved_by(runner, rung))
        except Skip as reason:
            return replace(begin, status="skipped", reason=str(reason))
        except (CompileError, LaunchError, OutOfMemory) as error:
            return replace(begin, status=FAILURES[type(error)], reason=str(error))
        changed = (scores.argmax(axis=1) != self.reference.argmax(axis=1)) | ~np.isfinite(scores).all(axis=1)
        change = float(np.abs(scores - self.reference).max() / np.abs(self.reference).max())
        return replace(
            begin,
            accuracy=self.accuracy(scores),
            changed_predictions=tuple(map(int, np.flatnonzero(changed))),
            score_change=change if np.isfinite(change) else None,
        )


def margin(scores: Floats) -> float:
    """Smallest distance between an image's two largest scores, over the largest score of all; scores ``[N][10]``."""
    second, first = np.sort(scores, axis=1)[:, -2:].T
    return float((first - second).min() / np.abs(scores).max())


def table(results: Sequence[Accuracy]) -> Table:
    """A line for each rung."""
    first = results[0]
    title = f"digits, {WORKLOAD.name}: {first.images} images, CPU reference {first.reference_accuracy:.4f}"
    columns = ("precision", "accuracy", "changed", "score change", "status")
    shown = Table(Column("rung", no_wrap=True), *columns, title=title)
    for result in results:
        changed = " ".join(f"#{image}" for image in result.changed_predictions)
        shown.add_row(
            result.rung,
            result.precision,
            "-" if result.accuracy is None else f"{result.accuracy:.4f}",
            "-" if result.accuracy is None else f"{len(result.changed_predictions)} {changed}".strip(),
            "-" if result.score_change is None else f"{result.score_change:.1e}",
            f"{result.status}: {result.reason}" if result.reason else result.status,
        )
    return shown


def run(options: argparse.Namespace, ladder: Ladder, executor: Executor, command: str) -> list[Accuracy]:
    """Runs, records and returns every rung's accuracy; raises UsageError and MissingTool."""
    if not 1 <= options.images <= HELD_OUT:
        raise UsageError(f"--images must be 1 to {HELD_OUT}, the number of held-out images")
    rungs = list(dict.fromkeys(rung for rung, _ in choose_rungs(options.rungs, ladder)))
    trial = Trial(trained(), *held_out(options.images))
    runner = Runner(executor, [], Settings())
    file = RecordFile(options.out)
    headers = environment.write_headers(file, executor.header(), command)
    progress = display.console(stderr=True)
    layers = range(1, len(WORKLOAD.layers) + 1)
    compile_all(runner, [point_of(rung, layer, options.images) for rung in rungs for layer in layers])
    results = []
    for rung in track(rungs, "rungs", console=progress, transient=True, disable=not progress.is_terminal):
        results.append(trial.run(runner, rung))
        file.header("accuracy", {"workload": WORKLOAD.name, **asdict(results[-1]), **headers})
        if results[-1].status == "launch-error" and executor.lost():
            raise LaunchError(f"{rung.name} left the device unusable: {results[-1].reason}")
    return results


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add_rungs(options)
    add("--images", type=int, default=HELD_OUT, help=f"held-out images, 1 to {HELD_OUT} (default: {HELD_OUT})")
    add("--backend", default="auto", choices=backends(), help="auto: the GPU if there is one, else the host executor")
    add("--device", type=natural, default=0, help="CUDA device ordinal (default: 0)")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"record file (default: {DEFAULT_OUT})")
    add_own(options)
    return options


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line, runs it, prints the table; 1 where a rung failed or changed what it must not."""
    options = parser().parse_args(arguments)
    say, ladder = display.console(), ladder_of(options)
    executor = choose_executor(options.backend, options.device)
    say.print(f"backend {executor.name}: {executor.describe()}", soft_wrap=True)
    results = run(options, ladder, executor, command_line(MODULE, arguments))
    say.print(table(results))
    say.print(f"No score change below {results[0].reference_margin / 2:.1e} can change a prediction.")
    say.print(f"records: {options.out}", soft_wrap=True)
    return 0 if all(result.right for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
