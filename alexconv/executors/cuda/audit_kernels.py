"""The kernels that audit timed runs: they negate images, hash arrays, and read the SM clock."""

from pathlib import Path
from typing import Any

import numpy as np

from alexconv.compiling import nvcc

SOURCE = Path(__file__).with_name("audit.cu")
THREADS, COLUMNS, MOST_ROWS = 256, 64, 4096  # of a block, and of a grid
CLOCK_NANOSECONDS = 100_000  # for which cycles are counted


class AuditKernels:
    """The kernels of audit.cu, enqueued on one of PyCUDA's streams."""

    def __init__(self, driver: Any, stream: Any, arch: str) -> None:
        self._driver, self._stream = driver, stream
        self._module = driver.module_from_buffer(nvcc.compile_cubin(SOURCE, {}, arch))
        self._readings = driver.mem_alloc(16)
        self._functions: dict[str, Any] = {}

    def launch(self, entry: str, rows: int, *arguments: int) -> None:
        """Enqueues a kernel with up to ``rows`` rows of blocks; all its arguments have eight bytes."""
        if entry not in self._functions:
            self._functions[entry] = self._module.get_function(entry).prepare("Q" * len(arguments))
        grid = (COLUMNS, max(1, min(rows, MOST_ROWS)), 1)
        self._functions[entry].prepared_async_call(grid, (THREADS, 1, 1), self._stream, *arguments)

    def clock_mhz(self) -> float:
        """The SM clock now: cycles over nanoseconds, both read on the device."""
        entry = self._module.get_function("clocks")
        entry(self._readings, np.uint64(CLOCK_NANOSECONDS), grid=(1, 1, 1), block=(1, 1, 1), stream=self._stream)
        readings = np.empty(2, np.uint64)
        self._stream.synchronize()
        self._driver.memcpy_dtoh(readings, self._readings)
        return float(readings[0]) / float(readings[1]) * 1e3
