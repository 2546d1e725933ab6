"""Predicts kernel times from machine code, without a GPU.

python -m alexconv.predict --gpu h200 --layers 1-5 --N 128 --rungs all
python -m alexconv.predict --rungs igemm --layers 2 --N 128 --set BK=8,16 --lines
python -m alexconv.predict --compare results/h200-alexnet.jsonl
python -m alexconv.predict --network alexnet-torchvision --N 1,128 --precision fp16 --gpu h100

nvcc compiles a rung's file and nvdisasm disassembles it; a model of one multiprocessor simulates some of its blocks,
and waves of blocks, L2 and device memory are modelled around it.  Neither GPU nor driver is needed.  The model, its
errors and its limits: docs/predict.md.

Every point becomes a record of type ``prediction`` in the file of ``--out``: ``ms`` with ``band_ms``, and for each
launch its time, the unit that limits it, the utilisation of all units and ``metrics``, counters under the names of
``alexconv.profile``.  A point that the model cannot follow is ``refused``, with the reason.

--compare takes measured records and prints the errors of their predictions, by family, held out and not.  Points that
the file of ``--out`` has predictions of, for the same GPU and by the same code, are not predicted again.

--network takes whole networks, planned for the GPU as ``alexconv run --network`` plans them: a line for each stage, and
the sum with the gaps of its schedule's graph, as a record of type ``network-prediction``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track

from alexconv.cli import display
from alexconv.cli.point_options import GPU_BATCH, add_constants, add_direction, add_layers, add_rungs, points_of
from alexconv.errors import UsageError
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.problem import Device
from alexconv.messages import plural
from alexconv.networks.predicted import Described, predict_networks, predicted_points, show_network
from alexconv.options import Refusal, comma_separated, command_line, exits_cleanly, precision_names, program, refuse
from alexconv.own.folders import add_own, ladder_of
from alexconv.planning.points import ConstantSource, Point, parse_constants
from alexconv.predict import accuracy, gpu
from alexconv.predict.page import of_type
from alexconv.predict.predictions import NETWORK_TYPE, TYPE, KernelCache, key_of, latest, now, predict_points, recorded
from alexconv.predict.tables import show_lines, show_machine_code, show_predictions
from alexconv.records import environment
from alexconv.records.store import RecordFile, Records, read

MODULE = "alexconv.predict"
DEFAULT_OUT = Path("study/predictions.jsonl")
NOT_OF_NETWORKS = ("workload", "layers", "direction", "set", "lines", "sass", "compare")
REFUSALS = (
    Refusal(lambda options: options.network is not None, NOT_OF_NETWORKS, "not with --network"),
    Refusal(lambda options: options.network is None, ("precision", "schedule"), "only with --network"),
)


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--gpu", default="h200", help=f"the GPU: {', '.join(gpu.names())} (default: h200)")
    add_layers(options, GPU_BATCH)
    add_rungs(options)
    add_direction(options)
    add_constants(options)
    add("--lines", action="store_true", help="show where the cycles of each kernel go, by source line")
    add("--sass", action="store_true", help="show each kernel's machine code, with predicted cycles and source lines")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"record file (default: {DEFAULT_OUT})")
    add("--resume", action="store_true", help="predict only points that FILE lacks, or whose code has changed")
    add(
        "--compare",
        nargs="+",
        type=Path,
        metavar="RECORDS",
        help="predict the points of measured records and print the errors",
    )
    for name, text in (
        ("--network", "whole networks instead of layers, or all: docs/predict.md#whole-networks"),
        ("--precision", f"with --network: precision classes, {precision_names()} (default: fp32)"),
        ("--schedule", "with --network: how its stages are launched in a graph (default: terms, in fp16 dependent)"),
    ):
        add(name, type=comma_separated, metavar="LIST", help=text)
    add_own(options)
    return options


def chosen_points(options: argparse.Namespace, ladder: Ladder, device: Device, measured: Records | None) -> list[Point]:
    """The points of measured records, else those that the options choose; raises UsageError."""
    if measured:
        records = accuracy.measured_points(measured, ladder).values()
        return [Point.from_axes(accuracy.planned_point(record), ladder) for record in records]
    source = ConstantSource(parse_constants(options.set, ladder), device=device)
    return points_of(options, ladder, GPU_BATCH, source)


def predict_whole(options: argparse.Namespace, ladder: Ladder, chosen: gpu.Gpu, command: str) -> int:
    """Predicts whole networks; returns the exit status, 1 where one has a stage without a prediction."""
    console, executor = display.console(), Described(chosen)
    points, file = predicted_points(options, ladder, executor), RecordFile(options.out)
    earlier = latest(of_type(file.previous, NETWORK_TYPE), "axes") if options.resume else []
    known = [record.get("code", "") for record in earlier]
    facts = {"gpu": chosen.key, "name": chosen.name}
    headers = environment.write_headers(file, facts, command, method="predicted")
    statuses = []
    for record in predict_networks(points, chosen, executor, ladder, KernelCache(), known):
        file.header(NETWORK_TYPE, {**record, **now(), **headers})
        show_network(console, record, chosen)
        statuses.append(record["status"])
    console.print(f"{plural(len(statuses), 'network')} predicted; records: {options.out}", soft_wrap=True)
    return 0 if all(status == "ok" for status in statuses) else 1


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and predicts; returns the exit status, 1 where every point is refused."""
    command = parser()
    options = command.parse_args(arguments)
    refuse(options, command, REFUSALS)
    chosen, ladder = gpu.load(options.gpu), ladder_of(options)
    console, errors = display.console(), display.console(stderr=True)
    if not chosen.tested:
        errors.print(f"{chosen.name}: its description was never compared with measurements", soft_wrap=True)
    if options.network:
        return predict_whole(options, ladder, chosen, command_line(MODULE, arguments))
    measured = read(options.compare) if options.compare else None
    if measured and (others := accuracy.devices_in(measured, ladder) - {chosen.name}):
        errors.print(f"{' and '.join(sorted(others))} was measured, {chosen.name} is predicted", soft_wrap=True)
    points = chosen_points(options, ladder, chosen.device, measured)
    file = RecordFile(options.out)
    earlier = latest(of_type(file.previous, TYPE), "point") if measured or options.resume else []
    keys = {key_of(point, chosen): point for point in points}
    known = {record["code"]: record for record in earlier if record.get("code") in keys}
    wanted = [point for key, point in keys.items() if key not in known]
    headers = environment.write_headers(
        file, {"gpu": chosen.key, "name": chosen.name}, command_line(MODULE, arguments), method="predicted"
    )
    cache = KernelCache()
    point_predictions = []
    tracked = track(wanted, "predicting", console=errors, transient=True, disable=not errors.is_terminal)
    for prediction in recorded(predict_points(tracked, chosen, cache), file, headers):
        point_predictions.append(prediction)
        if measured is None:
            show_predictions(console, [prediction])
            if options.lines:
                show_lines(console, prediction, cache)
            if options.sass:
                show_machine_code(console, prediction, cache)
    if measured:
        predictions = [*known.values(), *(prediction.record() for prediction in point_predictions)]
        compared = accuracy.pairs(measured, accuracy.by_computation(predictions), ladder)
        if not compared:
            raise UsageError("the record files have no point that can be predicted")
        print("\n".join(accuracy.table(compared)))
        good, sets = accuracy.picks(compared)
        print(f"\nconstants: the fastest or one within 2 % of it is picked in {good} of {sets} sets of three and more")
    refused = sum(prediction.reason is not None for prediction in point_predictions)
    predicted = (
        plural(len(point_predictions) - refused, "point") + " predicted" + f", {refused} refused" * (refused > 0)
    )
    console.print(f"{predicted}; records: {options.out}", soft_wrap=True)
    return 1 if refused and refused == len(point_predictions) else 0


if __name__ == "__main__":
    sys.exit(main())
