"""A GPU's measured peak rates: the ceilings of the roofline.

    python -m alexconv.ceilings --out FILE

Copies within the device count bytes read and written; those between page-locked host memory and device count once.
Arithmetic rates are those of the CUDA cores, a multiply-add being two operations.  One record of type ``ceilings`` is
appended to FILE.  (The model: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.)
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from alexconv.cli.options import command_line, exits_cleanly, natural, program
from alexconv.compiling import nvcc
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile

MODULE = "alexconv.ceilings"
SOURCE = Path(__file__).parent / "executors" / "cuda" / "ceilings.cu"
COPY_BYTES = 4 << 30  # far beyond any L2 cache
HOST_BYTES = 512 << 20
CHAINS, STEPS, THREADS, BLOCKS_PER_MULTIPROCESSOR = 16, 20_000, 512, 2
OPERATIONS = {"fp32": 2, "half": 4}  # of one multiply-add instruction of a thread: half works on pairs
SAMPLES = 7


def seconds(executor: CudaExecutor, enqueue: Callable[[], None]) -> float:
    """Median time of the work that ``enqueue`` puts on the executor's stream, after an untimed first run."""
    samples = []
    for _ in range(SAMPLES + 1):
        start, end = executor.driver.Event(), executor.driver.Event()
        start.record(executor.stream)
        enqueue()
        end.record(executor.stream)
        end.synchronize()
        samples.append(float(end.time_since(start)) / 1e3)
    return median(samples[1:])


def copy_rates(executor: CudaExecutor) -> Record:
    """Bytes per second within the device, to it, and from it."""
    driver, stream = executor.driver, executor.stream
    a, b = driver.mem_alloc(COPY_BYTES), driver.mem_alloc(COPY_BYTES)
    host = driver.pagelocked_empty(HOST_BYTES, np.uint8)
    host.fill(1)
    driver.memset_d8_async(int(a), 1, COPY_BYTES, stream)
    inside = seconds(executor, lambda: driver.memcpy_dtod_async(int(b), int(a), COPY_BYTES, stream))
    to_device = seconds(executor, lambda: driver.memcpy_htod_async(int(a), host, stream))
    from_device = seconds(executor, lambda: driver.memcpy_dtoh_async(host, int(a), stream))
    a.free()
    b.free()
    return {
        "copy_bytes_per_s": 2 * COPY_BYTES / inside,
        "h2d_bytes_per_s": HOST_BYTES / to_device,
        "d2h_bytes_per_s": HOST_BYTES / from_device,
    }


def arithmetic_rates(executor: CudaExecutor) -> dict[str, float]:
    """Operations per second of the CUDA cores, by precision."""
    module = executor.driver.module_from_buffer(nvcc.compile_cubin(SOURCE, {"CHAINS": CHAINS}, executor.arch))
    blocks = BLOCKS_PER_MULTIPROCESSOR * executor.attribute("MULTIPROCESSOR_COUNT")
    factors = executor.driver.to_device(np.array([0.999, 0.001], np.float32))
    out = executor.driver.mem_alloc(4 * blocks * THREADS)

    def rate(name: str, operations: int) -> float:
        function = module.get_function(f"multiply_add_{name}").prepare("PPi")
        arguments: tuple[Any, ...] = (int(factors), int(out), STEPS)
        shape = (blocks, 1, 1), (THREADS, 1, 1)
        taken = seconds(executor, lambda: function.prepared_async_call(*shape, executor.stream, *arguments))
        return operations * CHAINS * STEPS * THREADS * blocks / taken

    return {name: rate(name, operations) for name, operations in OPERATIONS.items()}


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and records the ceilings; returns the exit status."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    out = Path("study/records.jsonl")
    options.add_argument("--out", type=Path, default=out, metavar="FILE", help="record file, appended to")
    options.add_argument("--device", type=natural, default=0, help="number of the GPU (default: 0)")
    chosen = options.parse_args(arguments)
    executor = CudaExecutor(chosen.device)
    rates = {**copy_rates(executor), "flops": arithmetic_rates(executor)}
    file = RecordFile(chosen.out)
    headers = environment.write_headers(file, executor.header(), command_line(MODULE, arguments))
    file.header("ceilings", {**headers, **rates})
    print(f"{executor.describe()}")
    for name in ("copy", "h2d", "d2h"):
        print(f"{name}: {rates[f'{name}_bytes_per_s'] / 1e9:.0f} GB/s")
    for name, rate in rates["flops"].items():
        print(f"{name}: {rate / 1e12:.1f} TFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
