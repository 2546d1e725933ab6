"""Measures a GPU's peak rates: the ceilings of the roofline.

python -m alexconv.ceilings --out FILE

Copies within the device count bytes read and written; those between page-locked host memory and device count once.
A multiply-add is two operations.  ``fp32`` and ``half`` are the CUDA cores' rates, ``fp16`` and ``tf32`` those of dense
products of the tensor cores with fp32 accumulation, for random operands: with zeros, which draw less power, the clock
may stay higher.  Every tensor rate is in the record with its instruction and its operands.  One record of type
``ceilings`` is appended to FILE.  (The model: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.)
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from alexconv.compiling import nvcc
from alexconv.executors.cuda.device import CudaDevice
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.options import command_line, exits_cleanly, natural, program
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile

MODULE = "alexconv.ceilings"
FOLDER = Path(__file__).parent / "executors" / "cuda"
SOURCE, TENSOR_SOURCE = FOLDER / "ceilings.cu", FOLDER / "tensor_ceilings.cu"
COPY_BYTES = 4 << 30  # far beyond any L2 cache; less where the GPU has no room for two arrays of it
HOST_BYTES = 512 << 20
CHAINS, STEPS, THREADS, BLOCKS_PER_MULTIPROCESSOR = 16, 20_000, 512, 2
OPERATIONS = {"fp32": 2, "half": 4}  # of one multiply-add instruction of a thread: half works on pairs
TILE = 64 * 128  # outputs of four warps, tensor_ceilings.cu
ROW_BYTES, OPERAND_BYTES = 128, (64 + 128) * 128  # of one operand's row along K; of both operands
TENSOR_STEPS, TENSOR_THREADS = 4_000, 256
FACTORS = {"fp16": np.float16, "tf32": np.float32}  # and a factor's type in memory
OPERANDS = ("random", "zeros")  # random: uniform in [-1, 1]
HOPPER = "90a"
SAMPLES = 7


def seconds(gpu: CudaDevice, enqueue: Callable[[], None]) -> float:
    """Median time of the work that ``enqueue`` puts on the device's stream, after an untimed first run."""
    samples = []
    for _ in range(SAMPLES + 1):
        start, end = gpu.driver.Event(), gpu.driver.Event()
        start.record(gpu.stream)
        enqueue()
        end.record(gpu.stream)
        end.synchronize()
        samples.append(float(end.time_since(start)) / 1e3)
    return median(samples[1:])


def copy_rates(gpu: CudaDevice, budget: int) -> Record:
    """Bytes per second within the device, to it, and from it; ``budget`` is the device memory to use, in bytes."""
    driver, stream = gpu.driver, gpu.stream
    copied = min(COPY_BYTES, budget // 2)
    a, b = driver.mem_alloc(copied), driver.mem_alloc(copied)
    host = driver.pagelocked_empty(min(HOST_BYTES, copied), np.uint8)
    host.fill(1)
    driver.memset_d8_async(int(a), 1, copied, stream)
    inside = seconds(gpu, lambda: driver.memcpy_dtod_async(int(b), int(a), copied, stream))
    to_device = seconds(gpu, lambda: driver.memcpy_htod_async(int(a), host, stream))
    from_device = seconds(gpu, lambda: driver.memcpy_dtoh_async(host, int(a), stream))
    a.free()
    b.free()
    return {
        "copy_bytes_per_s": 2 * copied / inside,
        "h2d_bytes_per_s": host.nbytes / to_device,
        "d2h_bytes_per_s": host.nbytes / from_device,
    }


def arithmetic_rates(gpu: CudaDevice) -> dict[str, float]:
    """Operations per second of the CUDA cores, by precision."""
    module = gpu.driver.module_from_buffer(nvcc.compile_cubin(SOURCE, {"CHAINS": CHAINS}, gpu.arch))
    blocks = BLOCKS_PER_MULTIPROCESSOR * gpu.attribute("MULTIPROCESSOR_COUNT")
    factors = gpu.driver.to_device(np.array([0.999, 0.001], np.float32))
    out = gpu.driver.mem_alloc(4 * blocks * THREADS)

    def rate(name: str, operations: int) -> float:
        function = module.get_function(f"multiply_add_{name}").prepare("PPi")
        arguments: tuple[Any, ...] = (int(factors), int(out), STEPS)
        shape = (blocks, 1, 1), (THREADS, 1, 1)
        taken = seconds(gpu, lambda: function.prepared_async_call(*shape, gpu.stream, *arguments))
        return operations * CHAINS * STEPS * THREADS * blocks / taken

    return {name: rate(name, operations) for name, operations in OPERATIONS.items()}


def tensor_instructions(arch: str) -> dict[str, str]:
    """The instructions to measure, each with its target; on Hopper wgmma too."""
    return {"wgmma": HOPPER, "mma.sync": HOPPER.removesuffix("a")} if arch == HOPPER else {"mma.sync": arch}


def operands_of(kind: str, factors: str) -> np.ndarray:
    """Both operands, ``[64 + 128][128 bytes]``."""
    dtype = np.dtype(FACTORS[factors])
    shape = OPERAND_BYTES // ROW_BYTES, ROW_BYTES // dtype.itemsize
    return np.zeros(shape, dtype) if kind == "zeros" else np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)


def tensor_products(
    gpu: CudaDevice, target: str, factors: str, operands: np.ndarray, steps: int
) -> tuple[float, np.ndarray]:
    """Seconds that ``steps`` steps of the whole device take, and each thread's sum over its outputs."""
    defines = {"FACTORS_FP16": int(factors == "fp16")}
    module = gpu.driver.module_from_buffer(nvcc.compile_cubin(TENSOR_SOURCE, defines, target))
    blocks = BLOCKS_PER_MULTIPROCESSOR * gpu.attribute("MULTIPROCESSOR_COUNT")
    function = module.get_function("multiply_tiles").prepare("PPi")
    device_operands = gpu.driver.to_device(operands)
    sums = np.empty(blocks * TENSOR_THREADS, np.float32)
    out = gpu.driver.mem_alloc(sums.nbytes)
    shape, arguments = ((blocks, 1, 1), (TENSOR_THREADS, 1, 1)), (int(device_operands), int(out), steps)
    taken = seconds(gpu, lambda: function.prepared_async_call(*shape, gpu.stream, *arguments))
    gpu.driver.memcpy_dtoh(sums, out)
    return taken, sums


def tensor_rates(gpu: CudaDevice) -> list[Record]:
    """Operations per second of the tensor cores, by instruction, type of the factors, and operands."""
    tiles = BLOCKS_PER_MULTIPROCESSOR * gpu.attribute("MULTIPROCESSOR_COUNT") * TENSOR_THREADS // 128
    rates: list[Record] = []
    for (instruction, target), factors, kind in product(tensor_instructions(gpu.arch).items(), FACTORS, OPERANDS):
        operands = operands_of(kind, factors)
        taken, _ = tensor_products(gpu, target, factors, operands, TENSOR_STEPS)
        flops = 2 * TILE * operands.shape[1] * tiles * TENSOR_STEPS / taken
        rates.append({"instruction": instruction, "factors": factors, "operands": kind, "flops": flops})
    return rates


def of_random_operands(rates: Sequence[Record]) -> dict[str, float]:
    """The highest rate of each type of factors, over all instructions."""
    random = [rate for rate in rates if rate["operands"] == "random"]
    return {factors: max(rate["flops"] for rate in random if rate["factors"] == factors) for factors in FACTORS}


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and records the ceilings; returns the exit status."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    out = Path("study/records.jsonl")
    options.add_argument(
        "--out", type=Path, default=out, metavar="FILE", help=f"record file, appended to (default: {out})"
    )
    options.add_argument("--device", type=natural, default=0, help="CUDA device ordinal (default: 0)")
    chosen = options.parse_args(arguments)
    executor = CudaExecutor(chosen.device)
    tensor = tensor_rates(executor.gpu)
    flops = {**arithmetic_rates(executor.gpu), **of_random_operands(tensor)}
    rates = {**copy_rates(executor.gpu, executor.memory_budget()), "flops": flops, "tensor": tensor}
    file = RecordFile(chosen.out)
    headers = environment.write_headers(file, executor.header(), command_line(MODULE, arguments))
    file.header("ceilings", {**headers, **rates})
    print(f"{executor.describe()}")
    for name in ("copy", "h2d", "d2h"):
        print(f"{name}: {rates[f'{name}_bytes_per_s'] / 1e9:.0f} GB/s")
    for name, rate in flops.items():
        print(f"{name}: {rate / 1e12:.1f} TFLOP/s")
    for fastest in tensor:
        tera = fastest["flops"] / 1e12
        print(f"{fastest['factors']} by {fastest['instruction']}, {fastest['operands']}: {tera:.1f} TFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
