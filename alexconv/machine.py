"""Facts about this machine that CPU times depend on, and about this process."""

import os
import platform
import resource
from functools import cache
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, perf_counter

import numpy as np
from threadpoolctl import threadpool_info

_SQUARE = 3000  # rows of the matrices that the dgemm rate is measured on
_REPEATS = 4


def machine_name() -> str:
    """The machine's name on its network."""
    return platform.node() or "unnamed"


def cpu_model() -> str:
    """The processor's model as the system names it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


@cache
def cpu_features() -> tuple[str, ...]:
    """What -march=native depends on, for keys of compiled files: machines may share a cache folder."""
    telling = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    except OSError:
        return (platform.processor(),)
    return tuple(line for line in first.splitlines() if line.startswith(telling))


def cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_memory() -> int:
    """Peak memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # which Linux counts in KiB


def process_age() -> float:
    """Seconds since this process was started, imports included."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    ticks = int(after_name[19])  # field 22, starttime: proc(5)
    return clock_gettime(CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def blas_name() -> str:
    """NumPy's BLAS: library, version and the architecture its kernels are for."""
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    parts = (str(library.get(part)) for library in libraries for part in ("internal_api", "version", "architecture"))
    return " ".join(parts) or "unknown BLAS"


def dgemm_flops() -> float:
    """Floating-point operations per second of a large square float64 product on all cores, the best of a few."""
    a = np.random.default_rng(0).random((_SQUARE, _SQUARE))
    product = np.empty_like(a)
    best = float("inf")
    for _ in range(_REPEATS):
        start = perf_counter()
        np.matmul(a, a, out=product)
        best = min(best, perf_counter() - start)
    return 2 * _SQUARE**3 / best
