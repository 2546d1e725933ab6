"""Errors of conv2d and cuDNN on hard data, and of a search for the worst data, as a record file.

python scripts/measure/hard_data.py search conv2d --out results/h200-hard.jsonl

``conv2d``: error and bound of each class on each data set and layer of AlexNet, and cuDNN's error on the same data
against the same bound, with the kernels that cuDNN ran.  ``search``: for each rung the worst ratio of
error to bound that a search finds on a small shape (alexconv.measuring.adversary).  Without a GPU both run on the CPU;
torch adds cuDNN.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from alexconv import conv2d
from alexconv.cpu_reference.cache import LayerData
from alexconv.data import DATA_SETS
from alexconv.errors import AlexconvError
from alexconv.executors import choose_executor
from alexconv.executors.interface import Executor, open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
from alexconv.library import operation
from alexconv.measuring import adversary
from alexconv.measuring.ahead import build_all
from alexconv.measuring.runner import Layer, as_json
from alexconv.measuring.torch_peers import chosen_engines, transform_of
from alexconv.planning.layouts import from_study, to_study
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import PRECISIONS
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile
from alexconv.shapes import WORKLOADS, Conv
from alexconv.tune import auto
from alexconv.tune.measured import Request

CLASSES = {name: precision.dtype for name, precision in PRECISIONS.items() if precision.goals}
OF_THE_HOST = ("cuda", "cuLaunch", "Activity", "Memcpy", "Memset")  # prefixes of events that are not kernels
SEARCHED = Conv(C=16, H=6, W=10, M=8, R=3, S=3)
IMAGES, PLENTY = 2, 1 << 30
TRIALS, SEED = 120, 0  # of a rung's search
N = 4  # images of AlexNet's layers


def compile_choices(executor: Executor, layers: Sequence[int]) -> dict[tuple[str, int], str]:
    """Compiles the rungs that conv2d chooses, a compiler per core; their names by class and layer."""
    names: dict[tuple[str, int], str] = {}
    bound: list[BoundRung] = []
    for precision, layer in product(CLASSES, layers):
        conv = WORKLOADS["alexnet"].layer(layer)
        layout = auto.layouts_of(precision)[0]
        if choice := auto.choose(executor, Request(conv, N, precision, layout), lambda line: None):
            names[precision, layer] = choice.rung.name
            bound.append(BoundRung(choice.rung, conv, choice.constants, executor.device))
    build_all(executor, bound)
    return names


def compared(executor: Executor) -> Iterator[Record]:
    """A record for each class, layer and data set."""
    operation.IN_BACKGROUND = False  # outputs are the chosen rung's from the first call on
    layers = range(1, len(WORKLOADS["alexnet"].layers) + 1)
    names = compile_choices(executor, layers)
    torch = None
    with suppress(ImportError):
        import torch

        torch = torch if torch.cuda.is_available() else None
    for layer, data in product(layers, DATA_SETS):
        layer_of_dtype: dict[str, Layer] = {}
        for precision, dtype in CLASSES.items():
            if (precision, layer) not in names:
                continue
            inputs = layer_of_dtype.setdefault(
                dtype, Layer(LayerData("alexnet", layer, WORKLOADS["alexnet"].layer(layer), 0, data, dtype), N)
            )
            layout = RUNGS[names[precision, layer]].layout
            x, w = from_study(inputs.x.astype(dtype), layout), inputs.w.astype(dtype)
            y = conv2d(x, w, inputs.conv.U, precision=precision, layout=layout, backend=executor.name)
            outcomes = {"conv2d": outcome(inputs, to_study(y, layout), precision), "rung": names[precision, layer]}
            if torch is not None:
                outcomes["cudnn"] = cudnn(torch, inputs, dtype, precision, layout)
            yield {"class": precision, "layer": layer, "N": N, "data": data, **outcomes}


def outcome(inputs: Layer, y: np.ndarray, precision: str) -> Record:
    """Error, bound, and outputs whose NaN or infinity is misplaced."""
    error, bound = inputs.check(y, precision)
    figures = {"scaled": error.scaled, "bound": bound, "componentwise": error.componentwise or 0.0}
    return {**{name: as_json(value) for name, value in figures.items()}, "misplaced": error.misplaced}


def cudnn(torch: Any, inputs: Layer, dtype: str, precision: str, layout: str) -> Record:
    """The same of cuDNN's convolution, the kernels that it runs, and the kind of its engine."""
    memory = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    x, w = (
        torch.from_numpy(np.ascontiguousarray(values.astype(dtype))).cuda().contiguous(memory_format=memory)
        for values in (inputs.x, inputs.w)
    )
    with torch.no_grad(), chosen_engines(torch, PRECISIONS[precision].peer):
        torch.nn.functional.conv2d(x, w, stride=inputs.conv.U)  # the first call tries the engines
        torch.cuda.synchronize()
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            y = torch.nn.functional.conv2d(x, w, stride=inputs.conv.U)
            torch.cuda.synchronize()
    kernels = [event.key for event in profile.key_averages() if not event.key.startswith(OF_THE_HOST)]
    engine = transform_of(kernels) or ("GEMM" if kernels else None)
    return {
        **outcome(inputs, y.cpu().numpy(), precision),
        "engine": engine,
        "kernels": [name[:120] for name in kernels],
    }


def searched(executor: Executor, trials: int) -> Iterator[Record]:
    """A record for each rung: the worst that the search finds."""
    rungs = [rung for rung in LADDER if not executor.unsuited(rung) and takes(rung)]
    cuts = {
        rung.name: plan(BoundRung(rung, SEARCHED, rung.resolve(SEARCHED, {}), executor.device), IMAGES, PLENTY)
        for rung in rungs
    }
    build_all(executor, [cut.bound for cut in cuts.values()])
    for rung in rungs:

        def run(x: np.ndarray, w: np.ndarray, rung: Rung = rung) -> np.ndarray:
            with open_rung(executor, cuts[rung.name], x, w, TRANSFERS["pageable"]) as opened:
                return opened.outputs().astype(np.float32)

        dtype, precision = np.dtype(rung.dtype), PRECISIONS[rung.precision]
        additions = cuts[rung.name].bound.atomic_additions(IMAGES)
        target = adversary.Target(run, SEARCHED, IMAGES, precision, dtype, additions)
        worst = adversary.search(target, trials, SEED)
        figures = {"ratio": worst.ratio, "scaled": worst.scaled}
        yield {
            "rung": rung.name,
            "class": rung.precision,
            "trials": worst.trials,
            "kind": worst.kind,
            "misplaced": worst.misplaced,
            **{name: as_json(value) for name, value in figures.items()},
            "trial": worst.trial.described(),
        }


def takes(rung: Rung) -> bool:
    """Whether the rung computes the small shape."""
    return rung.refuses(Problem(SEARCHED, IMAGES, rung.resolve(SEARCHED, {}))) is None


PARTS = "conv2d", "search"


def records_of(parts: Sequence[str], executor: Executor, trials: int) -> Iterator[tuple[str, Record]]:
    """The records of some parts, each with its part."""
    for part in parts:
        for record in compared(executor) if part == "conv2d" else searched(executor, trials):
            yield part, record


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts and records them; 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="record file")
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of the search for each rung (default: {TRIALS})")
    options = parser.parse_args(arguments)
    executor = choose_executor("auto")
    file, broken = RecordFile(options.out), 0  # of our own bounds
    command = "python scripts/measure/hard_data.py " + " ".join(arguments or sys.argv[1:])
    headers = environment.write_headers(file, executor.header(), command)
    try:
        for part, record in records_of(options.parts, executor, options.trials):
            file.header({"conv2d": "guarantee", "search": "search"}[part], {**record, **headers})
            ratio = record.get("ratio")
            if ratio is None:
                ratio = float(record["conv2d"]["scaled"]) / record["conv2d"]["bound"]
            broken += not float(ratio) <= 1
            print({name: value for name, value in record.items() if name != "trial"}, flush=True)
    except AlexconvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{broken} bounds broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
