"""Counters of the layers on which cuDNN is faster, by Nsight Compute.

    python scripts/measure/slower.py results/outside/h200-1.jsonl.xz --out results/outside/counters/h200.jsonl

Of the layers in record files of ``choices.py --cudnn``, those whose fastest call takes ``--ratio`` times the fastest of
cuDNN or longer: alexconv's call, once with warm caches.  cuDNN chooses its engine by times, which the profiler changes,
so its calls would not be those that were timed.  A record of type ``library-counters`` has a call's kernels in order,
each with its counters; docs/library.md has the table.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from library_bench import WARM_UPS, Bench

from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.library import operation
from alexconv.options import command_line, exits_cleanly
from alexconv.profile import ncu
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, read
from alexconv.reports.choices import OUTSIDE
from alexconv.reports.library import GRAPH, OURS, best, ratio
from alexconv.shapes import Conv

BETWEEN = "spin_kernel"  # of torch.cuda._sleep, between two calls
COUNTERS = (
    *("duration_ns", "waves", "registers", "achieved_occupancy", "dram_throughput", "l2_throughput", "l1_throughput"),
    *("tensor_pipe", "fma_pipe", "issue_slots", "dram_read_bytes", "dram_write_bytes"),
)


def slower(files: Sequence[Path], least: float) -> list[tuple[Record, str]]:
    """The layers that take so many times cuDNN's time, the slowest first, each with its faster layout."""
    outside = (record for record in read(files).headers.values() if record["type"] == OUTSIDE)
    found = [(value, record) for record in outside if (value := ratio(record)) and value >= least]
    ordered = (record for _, record in sorted(found, key=lambda entry: -entry[0]))
    return [(record, side[1]) for record in ordered if (side := best(record, GRAPH, OURS))]


def call_each(layers: Sequence[tuple[Record, str]]) -> None:
    """Makes each call once between the profiler's marks, with a kernel before each."""
    bench = Bench()
    torch = bench.torch
    operation.IN_BACKGROUND = False
    for record, layout in layers:
        contenders = bench.contenders(Conv(**record["conv"]), record["N"], record["precision"], [layout])
        call = next(call for name, call, *_ in contenders if name == OURS + layout)
        for _ in range(WARM_UPS):
            call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        torch.cuda._sleep(1)
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def by_call(kernels: Sequence[ncu.Kernel]) -> Iterator[list[ncu.Kernel]]:
    """The kernels of each call."""
    of_call: list[ncu.Kernel] | None = None
    for kernel in kernels:
        if kernel.entry == BETWEEN:
            if of_call is not None:
                yield of_call
            of_call = []
        elif of_call is not None:
            of_call.append(kernel)
    if of_call is not None:
        yield of_call


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("files", type=Path, nargs="+", help="record files of choices.py --cudnn")
    add("--ratio", type=float, default=1.03, help="least time over cuDNN's (default: 1.03)")
    add("--out", type=Path, default=Path("study/counters.jsonl"), metavar="FILE")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args(arguments)
    layers = slower(chosen.files, chosen.ratio)
    if chosen.child:
        call_each(layers)
        return 0
    executor = CudaExecutor()
    file = RecordFile(chosen.out)
    words = command_line("scripts/measure/slower.py", arguments)
    headers = environment.write_headers(file, executor.header(), words)
    metrics = {name: ncu.METRICS[name] for name in COUNTERS}
    executor.leave()
    child = [sys.executable, __file__, *map(str, chosen.files), "--ratio", str(chosen.ratio), "--child"]
    kernels = ncu.profile(ncu.find_ncu(), child, metrics)
    for (record, layout), of_call in zip(layers, by_call(kernels), strict=True):
        facts = {key: record[key] for key in ("kind", "N", "precision", "conv")}
        of_kernels = [{"entry": kernel.entry, **kernel.metrics} for kernel in of_call]
        file.header("library-counters", {**headers, **facts, "contender": OURS + layout, "kernels": of_kernels})
        us = sum(kernel.metrics["duration_ns"] for kernel in of_call) / 1e3
        entries = ", ".join(kernel.entry for kernel in of_call)
        print(f"{facts['kind']} {facts['precision']} N={facts['N']} {layout} {us:.1f} us: {entries}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
