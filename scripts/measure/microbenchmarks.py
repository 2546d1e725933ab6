"""Measures what the model of kernel times needs to know about a GPU: rates and latencies of its units.

    python scripts/measure/microbenchmarks.py --out results/microbenchmarks/h200.jsonl

Runs the kernels of ``microbenchmarks.cu``: a quarter of a minute on an H200.  Appends one record of type
``microbenchmarks`` to the file, with these parts, which alexconv/predict/gpus/ names as its sources:

``rates``     cycles per instruction of a warp, on one multiprocessor, by kernel and number of warps
``latencies`` cycles per instruction of a chain of dependent ones
``order``     when each of 16 warps began and ended, in cycles from the first begin
``copies``    cycles of an asynchronous copy that a warp waits for
``groups``    cycles of groups of eight asynchronous copies, by number of warps: until they have issued, until a load
              from shared memory after them has its value, until they have arrived
``placement`` the multiprocessor of each block of a grid, by how many blocks one holds
``lines``     cycles of a load from L2, of each of 2048 lines
``straight``  cycles per instruction of loops without branches, by length and number of warps
``once``      the same of one trip of one warp, where the same kernel ran before
``hgmma``     cycles per wgmma instruction of a multiprocessor, by columns and number of warpgroups
``registers`` the same of tf32, with the first factor in registers
``tma``       cycles per bulk copy, on one multiprocessor and on all; there also where 2, 12 or all copy the same
``sums``      cycles of a warp's addend and store, where its sum stays in memory, by multiprocessors and warps of one
``clock``     clock of all multiprocessors in GHz in a kernel after a pause, by what it does, and for how many us
``read``      bytes per second that all multiprocessors read, by size of the array
``store``, ``red``  the same for stores and reductions: seconds, bytes stored and sectors touched
``launch``    milliseconds of sequences of empty kernels, by their number; of one, by its blocks
``graphs``    milliseconds of graphs of empty kernels, by their number: plain ones, and programmatic dependent launches;
              cold and hot, as a run times them
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import sleep
from typing import Any

import numpy as np

from alexconv.compiling import nvcc
from alexconv.executors.cuda.device import CudaDevice
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.kernels.bound import LaunchConfig
from alexconv.kernels.rung import shape_macros
from alexconv.options import command_line, exits_cleanly, natural
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile
from alexconv.shapes import Conv

SOURCE = Path(__file__).with_suffix(".cu")
WARPS = (1, 4, 8, 16, 32)
PER_TRIP = 8 * 32  # instructions of a warp in a trip of a rate kernel
RATES = (
    *("ffma", "imad", "lop3", "shf", "prmt", "hfma2", "fmnmx", "mufu", "f2i", "i2f", "popc", "half_to_float"),
    *("pack_half", "lds", "lds64", "lds128", "lds_conflict32", "sts", "sts128", "lds_8_words", "lds64_pairs"),
    *("lds64_every_second", "lds64_quads", "lds64_octets", "lds64_8_vectors", "lds64_16_vectors", "lds128_pairs"),
    *("lds128_every_second", "lds128_quads", "lds128_octets", "lds128_one", "lds128_4_vectors", "lds128_8_vectors"),
    "lds128_16_vectors",
)
RATES_OF_64 = "ldg", "ldg_stride27", "ldg_stride33", "hmma_fp16", "hmma_tf32"  # instructions of a warp in a trip
GROUPS = "copies_4", "copies_4_stride2", "copies_4_stride8"
LATENCIES = "mufu", "barrier", "lds", "l1", "l2"
STRAIGHT = (2048, 4096, 8192, 16384)
MIB = 1 << 20
READ_MIB = (2, 4, 8, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 128, 512)
# Bytes stored of each 32-byte sector touched.
STORES = {"store_whole": 32, "store_shifted": 32, "store_half_sectors": 16, "store_words_of_sectors": 4}
REDUCTIONS = "red_coalesced", "red_shifted", "red_pairs", "red_quads", "red_warp_one_word"
REPEATS = 5
PAUSE = 0.002  # seconds of rest before a kernel whose clock is measured


class Bench:
    """The compiled kernels and their memory on a GPU."""

    def __init__(self, gpu: CudaDevice) -> None:
        self.gpu, self.driver = gpu, gpu.driver
        macros = shape_macros(Conv(C=1, H=8, W=8, M=1, R=3, S=3))  # required by the headers
        self.cubin = nvcc.compile_cubin(SOURCE, macros, gpu.arch)
        self.module = self.driver.module_from_buffer(self.cubin)
        self.bytes = 1 << 30
        self.data = self.driver.mem_alloc(self.bytes)
        self.driver.memset_d8(self.data, 0, self.bytes)
        self.clock_count = 2 * 132 * 64
        self.clocks = self.driver.mem_alloc(8 * self.clock_count)

    def function(self, name: str, shared: int = 0) -> Any:
        """A kernel, allowed ``shared`` bytes of dynamic shared memory."""
        function = self.module.get_function(name)
        if shared > 48 * 1024:
            function.set_attribute(self.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        return function

    def cycles(self, name: str, blocks: int, threads: int, steps: int, shared: int = 0) -> Any:
        """Begin and end of each warp, ``[warps][2]``, of the second of two runs."""
        function = self.function(name, shared)
        for _ in range(2):
            function(self.data, self.clocks, np.int32(steps), grid=(blocks, 1), block=(threads, 1, 1), shared=shared)
        clocks = np.empty(self.clock_count, np.int64)
        self.driver.memcpy_dtoh(clocks, self.clocks)
        return clocks.reshape(-1, 2)

    def spent(self, name: str, blocks: int, threads: int, steps: int, shared: int = 0) -> float:
        """Cycles from the first warp's begin to the last one's end, in one block of several warps."""
        warps = self.cycles(name, blocks, threads, steps, shared)[: threads // 32]
        return float(warps[:, 1].max() - warps[:, 0].min())

    def seconds(self, launches: Any) -> float:
        """Median time of what ``launches`` enqueues, after a first run."""
        samples = []
        for _ in range(REPEATS + 1):
            start, end = self.driver.Event(), self.driver.Event()
            start.record()
            launches()
            end.record()
            end.synchronize()
            samples.append(end.time_since(start) / 1e3)
        return median(samples[1:])

    def chip(self, name: str, words: int, steps: int, blocks: int = 132 * 4, threads: int = 512) -> float:
        """Seconds of a kernel on the whole GPU."""
        function = self.function(name)
        arguments = (self.data, np.uint64(words), np.int32(steps))
        return self.seconds(lambda: function(*arguments, grid=(blocks, 1), block=(threads, 1, 1)))


def rates(bench: Bench) -> Record:
    """See ``rates`` above."""
    steps = 40
    trips = {**dict.fromkeys(RATES, PER_TRIP), **dict.fromkeys(RATES_OF_64, 64)}
    return {
        name: {str(w): bench.spent(f"rate_{name}", 1, 32 * w, steps) / (steps * trip * w) for w in WARPS}
        for name, trip in trips.items()
    }


def latencies(bench: Bench) -> Record:
    """See ``latencies`` above."""
    steps = 40
    cycles = {name: bench.spent(f"latency_{name}", 1, 32, steps) / (steps * 32) for name in LATENCIES}
    cycles["barrier_16_warps"] = bench.spent("latency_barrier", 1, 512, steps) / (steps * 32)
    return cycles | {"hmma_fp16": bench.spent("latency_hmma_fp16", 1, 32, steps) / (steps * 64)}


def order(bench: Bench) -> Record:
    """See ``order`` above."""
    clocks = bench.cycles("issue_order", 1, 512, 64)[:16]
    return {"issue_order": [[int(begin), int(end)] for begin, end in clocks - clocks[:, 0].min()]}


def copies(bench: Bench) -> Record:
    """See ``copies`` above."""
    return {"copy_async_16": bench.spent("copy_async_16", 1, 32, 320) / 320}


def groups(bench: Bench) -> Record:
    """See ``groups`` above."""
    steps = 128
    return {
        f"{name}_{until}": {str(w): bench.spent(f"{name}_{until}", 1, 32 * w, steps) / steps for w in (1, 4, 8)}
        for name in GROUPS
        for until in ("issued", "loaded", "arrived")
    }


def placement(bench: Bench) -> Record:
    """See ``placement`` above."""
    shared = {1: 128 * 1024, 2: 100 * 1024, 4: 50 * 1024}
    return {
        str(resident): [int(place) for place, _ in bench.cycles("placement", 132 * resident * 2, 32, 50_000, size)][
            : 132 * resident * 2
        ]
        for resident, size in shared.items()
    }


def lines(bench: Bench) -> list[int]:
    """See ``lines`` above."""
    clocks = bench.cycles("latency_by_line", 1, 32, 2048)[:2048]
    return [int(end - begin) for begin, end in clocks]


def straight(bench: Bench) -> Record:
    """See ``straight`` above."""
    return {
        str(length): {
            str(w): bench.spent(f"straight_{length}", 1, 32 * w, 20) / (20 * length * w) for w in (1, 4, 8, 16, 32)
        }
        for length in STRAIGHT
    }


def once(bench: Bench) -> Record:
    """See ``once`` above."""
    return {str(length): bench.spent(f"straight_{length}", 1, 32, 1) / length for length in STRAIGHT}


def hgmma(bench: Bench) -> Record:
    """See ``hgmma`` above; a warpgroup issues 8 of them a trip."""
    return {
        str(n): {
            str(groups): bench.spent(f"rate_hgmma_{n}", 1, 128 * groups, 100, 65536) / (100 * 8 * groups)
            for groups in (1, 2, 3)
            if not (n == 256 and groups == 3)
        }
        for n in (96, 128, 256)
    }


def registers(bench: Bench) -> Record:
    """See ``registers`` above."""
    return {
        str(n): {
            str(groups): bench.spent(f"rate_hgmma_registers_{n}", 1, 128 * groups, 100, 65536) / (100 * 8 * groups)
            for groups in (1, 2, 3)
        }
        for n in (64, 128)
    }


def tma(bench: Bench) -> Record:
    """See ``tma`` above."""
    shared = [f"tma_rate_16384_{together}" for together in ("pairs", "twelves", "all")]
    cycles: Record = {}
    for name in ("tma_latency_128", "tma_rate_16384", *shared):
        for blocks in (132,) if name in shared else (1, 132):
            clocks = bench.cycles(name, blocks, 32, 200, 6 * 16384)[:blocks]
            cycles[f"{name} on {blocks}"] = float(np.median(clocks[:, 1] - clocks[:, 0])) / 200
    return cycles


def sums(bench: Bench) -> Record:
    """See ``sums`` above."""
    return {
        str(blocks): {
            str(w): bench.spent("rate_partial_sums", blocks, 32 * w, 10) / (10 * PER_TRIP) for w in (1, 4, 8, 16, 32)
        }
        for blocks in (1, 132)
    }


def clock(bench: Bench) -> Record:
    """See ``clock`` above; a launch and the kernel's beginning are those of one trip."""
    kernels = {"busy_ffma": (1024, 0, 50), "busy_hgmma_zeros": (256, 65536, 50), "busy_hgmma": (256, 65536, 50)}

    def timed(name: str, trips: int) -> tuple[float, float]:
        threads, shared, _ = kernels[name]
        function = bench.function(name, shared)
        sleep(PAUSE)
        start, end = bench.driver.Event(), bench.driver.Event()
        start.record()
        arguments = (bench.data, bench.clocks, np.int32(trips))
        function(*arguments, grid=(132, 1), block=(threads, 1, 1), shared=shared)
        end.record()
        end.synchronize()
        clocks = np.empty(bench.clock_count, np.int64)
        bench.driver.memcpy_dtoh(clocks, bench.clocks)
        warps = clocks.reshape(-1, 2)[: 132 * threads // 32]
        return float(np.max(warps[:, 1] - warps[:, 0])), float(end.time_since(start)) * 1e6

    def rate(name: str, trips: int) -> Record:
        samples = [(timed(name, 1), timed(name, trips)) for _ in range(12)]
        rates = [(many[0] - one[0]) / (many[1] - one[1]) for one, many in samples[2:]]
        return {"us": median(many[1] - one[1] for one, many in samples[2:]) / 1e3, "GHz": median(rates)}

    return {
        f"{name} x {trips}": rate(name, trips)
        for name, (*_, few) in kernels.items()
        for trips in (few, 5 * few, 40 * few)
    }


def memory(bench: Bench) -> Record:
    """See ``read``, ``store`` and ``red`` above."""
    read = {}
    for size in READ_MIB:
        trips = max(2, 2048 // size)
        read[str(size)] = trips * size * MIB / bench.chip("chip_read", size * MIB // 4, trips, 132 * 8, 256)
    one = bench.chip("chip_read", 4 * MIB // 4, 20, 1, 1024)
    store = {}
    for name, share in STORES.items():
        for size in (8, 512):
            trips = 64 if size == 8 else 2
            seconds = bench.chip(name, size * MIB // 4, trips)
            sectors = trips * size * MIB // 32
            store[f"{name} {size} MiB"] = {"seconds": seconds, "sectors": sectors, "bytes": sectors * share}
    for kib in (8, 64, 256, 1024):
        for name in ("store_whole", "store_shifted"):
            seconds = bench.chip(name, kib * 1024 // 4, 400)
            store[f"{name} {kib} KiB"] = {"seconds": seconds, "sectors": 400 * kib * 32, "bytes": 400 * kib * 1024}
    red = {}
    for name in REDUCTIONS:
        threads = 132 * 4 * 512
        red[name] = {"seconds": bench.chip(name, 8 * MIB // 4, 200), "threads": threads * 200}
    for kib in (1, 2, 4, 8, 16, 64, 1024):
        for name in ("red_coalesced", "red_shifted"):
            seconds = bench.chip(name, kib * 1024 // 4, 200)
            red[f"{name} in {kib} KiB"] = {"seconds": seconds, "threads": 132 * 4 * 512 * 200}
    red["red_warp_one_word in 1 word"] = {"seconds": bench.chip("red_warp_one_word", 1, 20), "threads": threads * 20}
    return {"read": read, "read_one_multiprocessor": 20 * 4 * MIB / one, "store": store, "red": red}


def launches(bench: Bench) -> Record:
    """See ``launch`` above; a preceding kernel hides the CPU's time to enqueue them."""
    nothing, busy = bench.function("nothing"), bench.function("chip_read")

    def timed(count: int, blocks: int, threads: int) -> float:
        samples = []
        for _ in range(20):
            start, end = bench.driver.Event(), bench.driver.Event()
            busy(bench.data, np.uint64(64 * MIB), np.int32(10), grid=(528, 1), block=(512, 1, 1))
            start.record()
            for _ in range(count):
                nothing(bench.data, np.uint64(0), np.int32(0), grid=(blocks, 1), block=(threads, 1, 1))
            end.record()
            end.synchronize()
            samples.append(end.time_since(start))
        return median(samples)

    return {
        "kernels": {str(count): timed(count, 132, 128) for count in (0, 1, 2, 4, 8, 16)},
        "blocks": {f"{blocks} x {t}": timed(1, blocks, t) for t in (128, 1024) for blocks in (132, 13200, 132000)},
    }


def graphs(bench: Bench) -> Record:
    """See ``graphs`` above, on an otherwise busy device, as a run times them."""
    gpu, kernels = bench.gpu, bench.gpu.load(bench.cubin)
    values = {"data": int(bench.data), "words": 0, "steps": 0}

    def timed(entry: str, count: int, *, pdl: bool) -> list[float]:
        launch = LaunchConfig(entry, tuple(values), (132, 1, 1), (128, 1, 1), 0)
        steps = [kernels.step(launch, pdl=pdl and number > 0) for number in range(count)]

        def enqueue(stream: Any) -> None:
            for step in steps:
                step.enqueue(values, kernels.handle(stream))

        samples = []
        with gpu.recorded(enqueue) as replay:
            for _ in range(20):
                gpu.flush()
                marks = [gpu.mark(gpu.stream)]
                for _ in range(2):
                    replay()
                    marks.append(gpu.mark(gpu.stream))
                gpu.stream.synchronize()
                samples.append([end.time_since(start) for start, end in pairwise(marks)])
        return [median(step_times) for step_times in zip(*samples, strict=True)]

    counts = (1, 2, 4, 8, 16)
    times: dict[str, Record] = {"kernels_cold": {}, "kernels": {}, "dependent_cold": {}, "dependent": {}}
    for name, entry in (("kernels", "nothing"), ("dependent", "dependent")):
        for count in counts:
            cold, hot = timed(entry, count, pdl=entry == "dependent")
            times[f"{name}_cold"][str(count)], times[name][str(count)] = cold, hot
    return times


MEASURED = (
    *(rates, latencies, order, copies, groups, placement, lines, straight, once, hgmma),
    *(registers, tma, sums, clock, memory, launches, graphs),
)
PARTS = {part.__name__: part for part in MEASURED}


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--out", type=Path, default=Path("study/microbenchmarks.jsonl"), metavar="FILE")
    options.add_argument("--device", type=natural, default=0, help="number of the GPU (default: 0)")
    options.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default: all)"
    )
    chosen = options.parse_args(arguments)
    executor = CudaExecutor(chosen.device)
    bench = Bench(executor.gpu)
    figures: Record = {}
    for name in chosen.parts:
        measured = PARTS[name](bench)
        figures |= measured if name == "memory" else {name.replace("launches", "launch"): measured}
        print(name, flush=True)
    file = RecordFile(chosen.out)
    headers = environment.write_headers(
        file, executor.header(), command_line("scripts/measure/microbenchmarks.py", arguments)
    )
    file.header("microbenchmarks", {**headers, **figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
