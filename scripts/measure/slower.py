"""Counters of the layers on which cuDNN is faster, by Nsight Compute.

    python scripts/measure/slower.py results/outside/h200-1.jsonl.xz --out results/outside/counters/h200.jsonl

Of the layers in record files of ``choices.py --cudnn``, those whose fastest call takes ``--ratio`` times the fastest of
cuDNN or longer: both calls, once each with warm caches.  A record of type ``library-counters`` has a call's kernels in
order, each with its counters; docs/library.md has the table.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from library_bench import FP32_PRECISION, WARM_UPS, Bench

from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.library import operation
from alexconv.options import command_line, exits_cleanly
from alexconv.profile import ncu
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, read
from alexconv.reports.choices import OUTSIDE
from alexconv.reports.library import GRAPH, OURS, PEER, best, ratio
from alexconv.shapes import Conv

BETWEEN = "spin_kernel"  # of torch.cuda._sleep, between two calls
COUNTERS = (
    *("duration_ns", "waves", "registers", "achieved_occupancy", "dram_throughput", "l2_throughput", "l1_throughput"),
    *("tensor_pipe", "fma_pipe", "issue_slots", "dram_read_bytes", "dram_write_bytes"),
)


def slower(files: Sequence[Path], least: float) -> list[tuple[Record, str]]:
    """Both sides' fastest contenders of layers that take so many times cuDNN's time, the slowest layer first."""
    outside = (record for record in read(files).headers.values() if record["type"] == OUTSIDE)
    found = [(value, record) for record in outside if (value := ratio(record)) and value >= least]
    ordered = sorted(found, key=lambda entry: -entry[0])
    return [
        (record, who + side[1]) for _, record in ordered for who in (OURS, PEER) if (side := best(record, GRAPH, who))
    ]


def call_each(calls: Sequence[tuple[Record, str]]) -> None:
    """Makes each call once between the profiler's marks, with a kernel before each."""
    bench = Bench()
    torch = bench.torch
    operation.IN_BACKGROUND = False
    for record, name in calls:
        conv, N, precision = Conv(**record["conv"]), record["N"], record["precision"]
        torch.backends.cudnn.conv.fp32_precision = FP32_PRECISION[precision]
        layouts = [name.split("-")[1]]
        call = next(call for other, call, *_ in bench.contenders(conv, N, precision, layouts) if other == name)
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
    calls = slower(chosen.files, chosen.ratio)
    if chosen.child:
        call_each(calls)
        return 0
    executor = CudaExecutor()
    file = RecordFile(chosen.out)
    words = command_line("scripts/measure/slower.py", arguments)
    headers = environment.write_headers(file, executor.header(), words)
    metrics = {name: ncu.METRICS[name] for name in COUNTERS}
    executor.leave()
    child = [sys.executable, __file__, *map(str, chosen.files), "--ratio", str(chosen.ratio), "--child"]
    kernels = ncu.profile(ncu.find_ncu(), child, metrics)
    for (record, name), of_call in zip(calls, by_call(kernels), strict=True):
        facts = {key: record[key] for key in ("kind", "N", "precision", "conv")}
        of_kernels = [{"entry": kernel.entry, **kernel.metrics} for kernel in of_call]
        file.header("library-counters", {**headers, **facts, "contender": name, "kernels": of_kernels})
        us = sum(kernel.metrics["duration_ns"] for kernel in of_call) / 1e3
        print(f"{facts['kind']} {facts['precision']} N={facts['N']} {name} {us:.1f} us: "
              + ", ".join(kernel.entry for kernel in of_call), flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
