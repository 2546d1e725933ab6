"""Holds convolutions to the rule of the board conv2d_v2: within 1e-3 and 1e-3 of cuDNN's fp32 output, on a GPU.

    python scripts/measure/board_rule.py --out results/board/h200-rule.jsonl

Appends a record ``board-rule`` for each contender: float64 arithmetic rounded once, cuDNN in tf32 and in the other
layout, and alexconv in each class.  It has the number of outputs beyond the rule, the largest and the root-mean-square
error against float64, and the mean ms of a call, timed as the board times: events around a call, which prepares its
filters, with the L2 cache overwritten before.  The board's own reference, cuDNN through torch with its deterministic
default, is a contender too: its errors are against float64.

Data are the board's: normal, of the ranked benchmark's seed.  docs/board.md names the rule's source.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.options import command_line, exits_cleanly
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile
from alexconv.shapes import WORKLOADS

BENCHMARKS = {1: (4, 54352), 2: (4, 93246), 3: (2, 6256), 4: (1, 6252)}  # by layer: images and seed
RELATIVE = ABSOLUTE = 1e-3
RUNS = 10
FILTERS_AT_ONCE = 16  # in float64, to bound workspaces
FLUSHED_VALUES = 32 << 20  # int64 written before a run
CLASSES = "fp32", "fp32-tile", "tf32", "fp16"


class Board:
    """torch, the board's data, and how it times and checks."""

    def __init__(self, layer: int) -> None:
        import torch

        import alexconv

        self.torch, self.alexconv = torch, alexconv
        self.N, seed = BENCHMARKS[layer]
        self.conv = conv = WORKLOADS["conv2d-v2"].layer(layer)
        generator = torch.Generator("cuda").manual_seed(seed)

        def normal(shape: tuple[int, ...]) -> Any:
            return torch.randn(shape, device="cuda", generator=generator)

        self.x, self.w = normal(conv.x_shape(self.N)), normal(conv.w_shape())
        self.use_cudnn("ieee", deterministic=True)
        self.due = torch.nn.functional.conv2d(self.x, self.w)
        slices = self.w.double().split(FILTERS_AT_ONCE)
        self.exact = torch.cat([torch.nn.functional.conv2d(self.x.double(), part) for part in slices], 1)

    def use_cudnn(self, precision: str, *, deterministic: bool = False) -> None:
        """Sets cuDNN to fp32 or tf32; deterministic as the board's reference, else the fastest engine."""
        cudnn = self.torch.backends.cudnn
        cudnn.conv.fp32_precision = precision
        cudnn.deterministic, cudnn.benchmark = deterministic, not deterministic

    def record(self, name: str, call: Callable[[Any, Any], Any], *, timed: bool = True) -> Record:
        """A contender's outcome."""
        torch = self.torch
        y = call(self.x, self.w).float()
        apart, error = (y - self.due).abs(), (y.double() - self.exact).abs()
        beyond = ~(apart <= ABSOLUTE + RELATIVE * self.due.abs())
        outcome: Record = {
            "contender": name,
            "outputs": y.numel(),
            "beyond": int(beyond.sum()),
            "apart": float(apart.max()),
            "error": float(error.max()),
            "rms_error": float(error.square().mean().sqrt()),
        }
        del y, apart, error, beyond
        torch.cuda.empty_cache()
        return outcome | ({"ms": [self.timed(call) for _ in range(RUNS)]} if timed else {})

    def timed(self, call: Callable[[Any, Any], Any]) -> float:
        """Milliseconds of a call with filters that it has not seen, the L2 cache overwritten."""
        torch = self.torch
        x, w = self.x.clone(), self.w.clone()
        torch.empty(FLUSHED_VALUES, dtype=torch.int64, device="cuda").fill_(42)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        call(x, w)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def outcomes(self) -> Iterator[Record]:
        """Every contender's."""
        torch, functional = self.torch, self.torch.nn.functional
        yield self.record("float64, rounded once", lambda x, w: self.exact, timed=False)
        self.use_cudnn("ieee", deterministic=True)
        yield self.record("cuDNN fp32, deterministic: the reference", functional.conv2d)
        for name, precision in (("fp32", "ieee"), ("tf32", "tf32")):
            self.use_cudnn(precision)
            yield self.record(f"cuDNN {name}, fastest engine", functional.conv2d)
        yield self.record(
            "cuDNN tf32, nhwc",
            lambda x, w: functional.conv2d(*(v.contiguous(memory_format=torch.channels_last) for v in (x, w))),
        )
        for precision in CLASSES:
            halves = precision == "fp16"
            shape = self.alexconv.Shape(tuple(self.x.shape), self.conv.w_shape(), precision=precision)
            self.alexconv.warm([shape])

            def call(x: Any, w: Any, precision: str = precision, halves: bool = halves) -> Any:
                operands = (x.half(), w.half()) if halves else (x, w)
                return self.alexconv.conv2d(*operands, precision=precision)

            yield self.record(f"alexconv {precision}", call)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--out", type=Path, default=Path("study/board-rule.jsonl"), metavar="FILE")
    add("--layer", type=int, default=4, choices=BENCHMARKS, help="benchmark of the board (default: 4, the ranked one)")
    chosen = options.parse_args(arguments)
    executor, file = CudaExecutor(), RecordFile(chosen.out)
    command = command_line("scripts/measure/board_rule.py", arguments)
    headers = environment.write_headers(file, executor.header(), command)
    executor.leave()
    for outcome in Board(chosen.layer).outcomes():
        print({key: value for key, value in outcome.items() if key != "ms"}, min(outcome.get("ms", [0])), flush=True)
        file.header("board-rule", {**headers, "layer": chosen.layer, **outcome})
    return 0


if __name__ == "__main__":
    sys.exit(main())
