"""Times the rungs and sizes of tiles that auto could choose for a layer against each other, through alexconv.Conv2d.

    python scripts/library_choices.py results/library/*.jsonl --slower 1.05 --precision fp16 --out choices.jsonl

For each layer, N and precision whose last record is more than ``--slower`` times slower than cuDNN's faster layout it
takes auto's choice, with and without the rungs of ``--new``, and each rung of RUNGS_OF with its OF_A_RUNG best
estimates.
Calls are captured in graphs as library_bench.py does, in ROUNDS rounds one contender after the other; cuDNN is timed in
each.  Appends a record of type ``library-choices`` for each layer: ms by rung and constants, those of cuDNN, which one
auto chooses, and errors over the norms.  ``scripts/auto_table.py`` takes such records, too.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from library_bench import FP32_PRECISION, LAYOUTS, WARM_UPS, Bench, exact

from alexconv.errors import AlexconvError
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200, Device
from alexconv.library import devices, routes
from alexconv.options import command_line, exits_cleanly
from alexconv.planning.checks import PRECISIONS
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile
from alexconv.shapes import Conv
from alexconv.tune import auto, measured
from alexconv.tune.estimate import best, ranked

OF_A_RUNG = 4  # sizes of tiles
ROUNDS = 2
NEW = "wgmma-half-whole,wgmma-window-in-place"
RUNGS_OF = {
    "fp16": "wgmma-half-whole,wgmma-window-in-place",  # the first with all tiles that wgmma-half-split-k has
    "tf32": "wgmma-floats",
    "fp32": "wgmma-floats-split",
}
Choice = tuple[str, tuple[tuple[str, int], ...]]  # a rung and its constants
Point = tuple[Conv, int, str]


def slower(paths: Sequence[Path], limit: float, precisions: Sequence[str]) -> list[tuple[Point, str]]:
    """The layers above a limit by their last records, each once, the slowest first, and their names."""
    last: dict[Point, Record] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["type"] == "library-layer" and record["precision"] in precisions:
                last[Conv(**record["conv"]), record["N"], record["precision"]] = record
    found: list[tuple[float, Point, str]] = []
    for point, record in last.items():
        times = record["graph_ms"]
        ours, theirs = (
            min((ms for name, ms in times.items() if name.startswith(side)), default=None)
            for side in ("alexconv", "cudnn")
        )
        if record["workload"] != "alexnet" and ours and theirs and ours > limit * theirs:
            found.append((ours / theirs, point, f"{record['workload']} {record['layer']}"))
    found.sort(key=lambda each: -each[0])
    return [(point, title) for _, point, title in found]


def layout_of(precision: str) -> str:
    """The layout of the rungs that are compared."""
    return "nhwc" if precision != "fp32" else "nchw"


def chosen(device: Device, point: Point, without: Sequence[str]) -> Choice | None:
    """Auto's choice among all rungs but some."""
    conv, N, precision = point
    layout, served = layout_of(precision), (precision, *PRECISIONS[precision].stricter)
    known = measured.fastest(device, conv, N, precision, layout)
    if known and known.rung.name not in without:
        return known.rung.name, tuple(known.constants.items())
    rungs = [rung for rung in reversed(RUNGS.values()) if rung.precision in served and rung.layout == layout]
    timed = [found for rung in rungs if rung.name not in without and (found := best(rung, conv, N, device))]
    least = min(timed, key=lambda found: found[0], default=None)
    return (least[1].rung.name, tuple(least[1].constants.items())) if least else None


def choices(device: Device, point: Point, new: Sequence[str], rungs: Sequence[str]) -> dict[Choice, list[str]]:
    """The choices to compare, each with what makes it."""
    conv, N, _ = point
    found: dict[Choice, list[str]] = {}
    for name, without in (("auto", ()), ("auto without new", new)):
        if choice := chosen(device, point, without):
            found.setdefault(choice, []).append(name)
    for rung in rungs:
        for _, bound in ranked(RUNGS[rung], conv, N, device)[:OF_A_RUNG]:
            found.setdefault((rung, tuple(bound.constants.items())), [])
    return found


def build(points: Sequence[tuple[Point, dict[Choice, list[str]]]]) -> None:
    """Compiles all choices in parallel."""
    device, begun, waiting = devices.gpu(0), perf_counter(), []
    for (conv, _, _), compared in points:
        for rung, constants in compared:
            building = device.build(BoundRung(RUNGS[rung], conv, dict(constants), device.executor.device))
            if isinstance(building, Future):
                waiting.append(building)
    for building in waiting:
        building.result()
    print(f"{len(waiting)} compiled in {perf_counter() - begun:.1f} s", flush=True)


def force(conv: Conv, choice: Choice) -> None:
    """Makes the library compute a layer, whatever its precision and N, with one rung."""
    rung, constants = choice
    forced = auto.Choice(RUNGS[rung], dict(constants), measured=True)
    routes.chosen = lambda device, asked, *others: forced if asked.padding == conv.padding else None
    routes.route_of.cache_clear()


def layer(bench: Bench, point: Point, compared: dict[Choice, list[str]]) -> Record:
    """Medians of the rounds, by choice and of cuDNN, and errors."""
    conv, N, precision = point
    torch = bench.torch
    torch.backends.cudnn.conv.fp32_precision = FP32_PRECISION[precision]
    padding = (conv.top, conv.left)
    arrays = {layout: bench.tensors(conv, N, precision, layout) for layout in LAYOUTS}
    x, w = arrays[layout_of(precision)]
    layers = {each: bench.alexconv.Conv2d(w.contiguous(), conv.strides, padding, precision) for each in compared}
    ms: dict[str, list[float]] = {}
    errors: dict[str, Any] = {}
    images = min(N, 2)
    expected, scale = exact(torch, x[:images].double(), w.double(), conv)
    for _ in range(ROUNDS):
        for choice in compared:
            name = json.dumps(choice)
            if isinstance(errors.get(name), str):
                continue
            force(conv, choice)
            try:
                for _ in range(WARM_UPS):
                    layers[choice](x)
                took, y = bench.captured(partial(layers[choice], x))
            except (RuntimeError, AlexconvError) as error:
                errors[name] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
                continue
            ms.setdefault(name, []).append(took)
            errors[name] = float(((y[:images].double() - expected).abs() / scale).max())
        for layout, (each, filters) in arrays.items():
            call = partial(torch.nn.functional.conv2d, each, filters, None, conv.strides, padding)
            for _ in range(WARM_UPS):
                call()
            ms.setdefault(f"cudnn-{layout}", []).append(bench.captured(call)[0])
    return {"graph_ms": {name: median(times) for name, times in ms.items()}, "rounds": ms, "error": errors}


def told(title: str, N: int, precision: str, compared: dict[Choice, list[str]], found: Record) -> None:
    """Prints a layer's times, the fastest first, over the faster layout of cuDNN."""
    times = found["graph_ms"]
    theirs = min(ms for name, ms in times.items() if name.startswith("cudnn"))
    print(f"{title} N={N} {precision}: cudnn {1e3 * theirs:.2f} us", flush=True)
    for choice, why in sorted(compared.items(), key=lambda each: times.get(json.dumps(each[0]), 1e9)):
        name = json.dumps(choice)
        values = "/".join(str(value) for _, value in choice[1])
        took = f"{1e3 * times[name]:8.2f} us {times[name] / theirs:.3f}" if name in times else "       -"
        print(f"  {took} {choice[0]} {values} error {found['error'].get(name)} {', '.join(why)}", flush=True)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("records", nargs="+", type=Path, help="files of library_bench.py; later ones win")
    add("--out", type=Path, help="record file; without it the choices are only printed")
    add("--slower", type=float, default=1.0, help="layers slower than this many times cuDNN's time (default: 1)")
    add("--precision", default="fp16", help="error classes (default: fp16)")
    add("--new", default=NEW, help=f"rungs to leave out when auto chooses again (default: {NEW})")
    add("--seconds", type=float, default=600, help="start no layer after this many seconds (default: 600)")
    given = options.parse_args(arguments)
    points = [
        (title, point, compared)
        for point, title in slower(given.records, given.slower, given.precision.split(","))
        if (compared := choices(H200, point, given.new.split(","), RUNGS_OF[point[2]].split(",")))
    ]
    if given.out is None:
        for title, (_, N, precision), compared in points:
            for (rung, constants), why in compared.items():
                print(title, N, precision, rung, dict(constants), *why)
        return 0
    executor = CudaExecutor()
    file = RecordFile(given.out)
    headers = environment.write_headers(file, executor.header(), command_line("scripts/library_choices.py", arguments))
    executor.leave()
    begun, bench = perf_counter(), Bench()
    build([(point, compared) for _, point, compared in points])
    for title, point, compared in points:
        if perf_counter() - begun > given.seconds:
            print(f"stopped after {given.seconds:g} s", flush=True)
            break
        conv, N, precision = point
        found = layer(bench, point, compared)
        told(title, N, precision, compared, found)
        by = {json.dumps(choice): why for choice, why in compared.items() if why}
        facts = {"layer": title, "N": N, "precision": precision, "conv": asdict(conv), "chosen_by": by}
        file.header("library-choices", {**headers, **facts, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
