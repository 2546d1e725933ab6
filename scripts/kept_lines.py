"""Whether lines that a kernel asks the L2 cache to keep survive the flush before a timed run, and the remedy.

python scripts/kept_lines.py results/trust/h200-kept-lines.jsonl

A line per array size and preparation: the median of the milliseconds for loading the array again.  ``flushed``: after a
flush; ``forgotten``: after the kept lines were made ordinary and a flush, as before each sample.
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from alexconv.compiling import nvcc
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.records import environment
from alexconv.records.store import RecordFile

SOURCE = Path(__file__).with_suffix(".cu")
MEBIBYTES = (4, 16, 32)
RUNS, BLOCKS, THREADS = 20, 1056, 256


def timed(executor: CudaExecutor, load: Any, way: str) -> float:
    """Milliseconds of a load after a flush, or after both."""
    load()
    load()
    executor.stream.synchronize()
    if way == "forgotten":
        executor.reset_persisting_lines()
    executor.flush()  # keeps the device busy, too, until the next work is enqueued
    start = executor.mark(executor.stream)
    load()
    end = executor.mark(executor.stream)
    executor.stream.synchronize()
    return float(end.time_since(start))


def main(out: Path) -> int:
    """Measures and writes."""
    executor = CudaExecutor()
    module = executor.driver.module_from_buffer(nvcc.compile_cubin(SOURCE, {}, executor.arch))
    file = RecordFile(out)
    environment.write_headers(file, executor.header(), "python scripts/kept_lines.py")
    for mebibytes in MEBIBYTES:
        array, found = executor.driver.mem_alloc(mebibytes << 20), executor.driver.mem_alloc(4)
        executor.driver.memset_d8(array, 0, mebibytes << 20)
        for entry in ("load_ordinary", "load_kept"):
            kernel = module.get_function(entry)

            def load(kernel: Any = kernel, array: Any = array, found: Any = found, size: int = mebibytes) -> None:
                arguments = array, np.uint64((size << 20) // 16), found
                kernel(*arguments, grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1), stream=executor.stream)

            for way in ("flushed", "forgotten"):
                ms = median(timed(executor, load, way) for _ in range(RUNS))
                facts = {"mebibytes": mebibytes, "entry": entry, "way": way, "ms": round(ms, 6)}
                print(json.dumps(facts), flush=True)
                file.header("kept-lines", facts)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
