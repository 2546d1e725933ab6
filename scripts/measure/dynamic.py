"""Times builds for every shape against builds for one, on layers of networks.

    python scripts/measure/dynamic.py --out results/library/h100-dynamic.jsonl

Of each layer, at a batch size, in a precision: the rung that ``conv2d`` chooses, compiled for the layer; the build for
every shape that computes its first calls, and the next ones by their estimates; and the first of these rungs with the
same constants, compiled for the layer.  Calls are captured in graphs as library_bench.py does.  A record of type
``library-dynamic`` has the rungs' estimates, times and errors over the norms of patch and filter; docs/library.md has
the table.
"""

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import mean
from time import perf_counter

from choices import Case, build, call, timed
from library_bench import Bench

from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.library import operation, warming
from alexconv.library.devices import gpu
from alexconv.library.routes import Candidate, candidates, key_of, meanwhile
from alexconv.library.workspaces import Gpu, WorkspaceKey
from alexconv.options import command_line, exits_cleanly
from alexconv.records import environment
from alexconv.records.store import RecordFile
from alexconv.shapes import WORKLOADS, Conv

PRECISIONS = "fp32,tf32,fp16"
MEMORY = {"fp32": "nchw", "tf32": "nchw", "fp16": "nhwc"}
OTHERS = 3  # builds for every shape that are timed


def inner(conv: Conv) -> Conv:
    """A layer with its padding outside of memory, as calls have it."""
    around = dict.fromkeys(("top", "bottom", "left", "right"), conv.pad)
    return replace(conv, H=conv.H - 2 * conv.pad, W=conv.W - 2 * conv.pad, pad=0, **around) if conv.pad else conv


def around(rows: int, columns: int) -> dict[str, int]:
    """Padding of rows and columns on each side."""
    return {"top": rows, "bottom": rows, "left": columns, "right": columns}


ODD = (
    Conv(48, 31, 41, 120, 5, 5, dilation_rows=2, dilation_columns=2, **around(4, 4)),
    Conv(160, 17, 17, 192, 1, 7, **around(0, 3)),
    Conv(24, 112, 112, 96, 1, 1),
    Conv(30, 60, 45, 50, 3, 3, 2, **around(1, 1)),
)
LAYERS = (
    *(("alexnet", inner(WORKLOADS["alexnet"].layer(number))) for number in (1, 2, 3)),
    *(("resnet50", WORKLOADS["resnet50"].layer(number)) for number in (1, 2, 3, 7, 9, 22)),
    *(("odd", conv) for conv in ODD),
)


def compared(device: Gpu, case: Case) -> list[Candidate]:
    """The choice, the first builds for every shape, and the first of these for this shape alone."""
    layer_call = call(case)
    every = meanwhile(device, layer_call)[:OTHERS]
    alone = [replace(option, dynamic=False) for option in every[:1]]
    unique: dict[WorkspaceKey, Candidate] = {}
    for option in (*candidates(device, layer_call)[:1], *every, *alone):
        unique.setdefault(key_of(option, case.N), option)
    return list(unique.values())


def cases(batches: Sequence[int], precisions: Sequence[str]) -> Iterator[Case]:
    """The layers in every precision, a batch size after the other."""
    for N, precision, (kind, conv) in product(batches, precisions, LAYERS):
        yield Case(kind, conv, N, precision, MEMORY[precision])


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--out", type=Path, default=Path("study/dynamic.jsonl"), metavar="FILE")
    add("--N", default="32,1", help="batch sizes (default: 32,1)")
    add("--precision", default=PRECISIONS, help=f"error classes (default: {PRECISIONS})")
    add("--seconds", type=float, default=600, help="begin no layer after this long (default: 600)")
    chosen = options.parse_args(arguments)
    executor = CudaExecutor()
    file = RecordFile(chosen.out)
    headers = environment.write_headers(file, executor.header(), command_line("scripts/measure/dynamic.py", arguments))
    executor.leave()
    begun, bench, device = perf_counter(), Bench(), gpu(0)
    print(f"builds for every shape ready in {warming.warm().seconds:.1f} s", flush=True)
    operation.IN_BACKGROUND = False
    gc.freeze()  # a capture begins with a collection
    points = list(cases([int(N) for N in chosen.N.split(",")], chosen.precision.split(",")))
    prepared = [(case, compared(device, case)) for case in points]
    building = [build(device, case, group) for case, group in prepared]
    slower = []
    for (case, group), compilations in zip(prepared, building, strict=True):
        if perf_counter() - begun > chosen.seconds:
            print(f"stopped after {chosen.seconds:g} s", flush=True)
            break
        for compilation in compilations:
            compilation.exception()  # its call raises it again
        trials = timed(bench, device, case, group)
        for trial, candidate in zip(trials, group, strict=True):
            trial["dynamic"] = candidate.dynamic
        facts = {"kind": case.kind, "N": case.N, "precision": case.precision, "memory": case.memory}
        file.header("library-dynamic", {**headers, **facts, "conv": asdict(case.conv), "trials": trials})
        chosen_ms = trials[0].get("ms")
        every = next((trial.get("ms") for trial in trials if trial["dynamic"]), None)
        if chosen_ms and every:
            slower.append(every / chosen_ms)
        conv = case.conv
        names = " ".join(
            f"{trial['rung']}{'*' if trial['dynamic'] else ''}="
            + (f"{1e3 * trial['ms']:.1f}/{trial['us'] + trial['copies_us']:.0f}" if "ms" in trial else trial["failure"])
            + (f" ({trial['error']:.0e})" if "error" in trial else "")
            for trial in trials
        )
        print(
            f"{conv.C}x{conv.H} {conv.M} of {conv.R}x{conv.S} U={conv.U} N={case.N} {case.precision}", names, flush=True
        )
    if slower:
        print(f"{len(slower)} layers: {exp(mean(map(log, slower))):.3f} of the choice's time, worst {max(slower):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
