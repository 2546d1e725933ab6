"""Tables of predicted times, and of where the cycles go."""

import re
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Column, Table

from alexconv.cli.matrix import print_fitted
from alexconv.kernels.problem import Device
from alexconv.planning.points import Point
from alexconv.predict import predictions
from alexconv.predict.disassembly import ALWAYS, BYTES, Instruction
from alexconv.predict.gpu import of_device
from alexconv.predict.predictions import KernelCache, PointPrediction, predict_points, recorded
from alexconv.records.store import Record, RecordWriter

LINES_SHOWN, STALLS_SHOWN, LEAST_SHARE = 16, 3, 0.001
_LABEL = re.compile(r"`\([^)]*\)")


def show_predictions(console: Console, point_predictions: Iterable[PointPrediction]) -> None:
    """A table for each point: its launches, and their sum with its band."""
    for prediction in point_predictions:
        label = prediction.point.label()
        if prediction.reason:
            console.print(f"{label}: refused: {prediction.reason}", soft_wrap=True)
            continue
        low, high = prediction.band()
        console.print(
            f"{label} on {prediction.gpu.name}, predicted: {prediction.milliseconds:.4g} ms ({low:.4g} to {high:.4g})",
            soft_wrap=True,
        )
        columns = ("ms", "limit", "utilisation %", "registers", "occupancy %", "waves")
        table = Table(Column("kernel", no_wrap=True), *columns)
        for launch in prediction.launches:
            busy = sorted(launch.utilisation.items(), key=lambda item: -item[1])
            table.add_row(
                launch.entry,
                f"{launch.seconds * 1e3:.4g}",
                launch.limiting,
                ", ".join(f"{name} {100 * share:.0f}" for name, share in busy if share >= 0.05),
                f"{launch.needs.registers}",
                f"{100 * launch.occupancy:.0f}",
                f"{launch.waves:.2f}",
            )
        print_fitted(console, table)


def predict_run(console: Console, points: Iterable[Point], device: Device, file: RecordWriter, headers: Record) -> None:
    """Predicts the kernel times of a run's points on its device; shows and records them."""
    predicted = predict_points(points, of_device(device.name), KernelCache())
    show_predictions(console, recorded(predicted, file, headers))


def show_lines(console: Console, prediction: PointPrediction, cache: KernelCache) -> None:
    """A table for each launch: the source lines whose warps take the most cycles, and what they wait for."""
    if prediction.reason:
        return
    kernels = cache(prediction.bound, prediction.gpu)
    for launch in prediction.launches:
        table = Table(Column("line", no_wrap=True), "cycles %", "instructions %", "waits for (% of all cycles)")
        table.title = f"{launch.entry}: where its warps' cycles go"
        for line in predictions.lines(kernels[launch.entry], launch)[:LINES_SHOWN]:
            table.add_row(line.place, f"{100 * line.cycles:.1f}", f"{100 * line.issued:.1f}", ", ".join(_reasons(line)))
        print_fitted(console, table)


def show_machine_code(console: Console, prediction: PointPrediction, cache: KernelCache) -> None:
    """The instructions (SASS) of each launch, with their share of warp cycles, their source lines and their stalls."""
    if prediction.reason:
        return
    kernels = cache(prediction.bound, prediction.gpu)
    for launch in prediction.launches:
        kernel = kernels[launch.entry]
        console.print(f"{launch.entry}: machine code, % of its warps' cycles, source line, stalls", soft_wrap=True)
        rows = [*zip(kernel.code, predictions.costs(kernel, launch), strict=True)]
        while rows and rows[-1][0].name == "NOP":  # up to the next multiple of 128 bytes
            rows.pop()
        for number, (instruction, cost) in enumerate(rows):
            share = f"{100 * cost.cycles:5.1f}" if cost.cycles >= LEAST_SHARE else ""
            text = (
                f"{number * BYTES:04x}  {guarded(instruction):48}{share:5}  {cost.place:28}{', '.join(_reasons(cost))}"
            )
            console.print(text.rstrip(), soft_wrap=True, highlight=False)


def guarded(instruction: Instruction) -> str:
    """An instruction's text with its predicate, and with addresses for labels."""
    text = instruction.text
    for operand in instruction.operands:
        if operand.kind == "L":
            text = _LABEL.sub(f"0x{operand.value * BYTES:04x}", text)
    guard = instruction.guard
    if guard.number == ALWAYS and not guard.inverted:
        return text
    number = "T" if guard.number == ALWAYS else guard.number
    return f"@{'!' if guard.inverted else ''}{guard.kind}{number} {text}"


def _reasons(cost: predictions.Cost) -> Iterator[str]:
    largest = sorted(cost.stalls.items(), key=lambda item: -item[1])[:STALLS_SHOWN]
    return (f"{name} {100 * share:.1f}" for name, share in largest if share >= LEAST_SHARE)
