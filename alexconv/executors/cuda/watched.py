"""The audit's view of a rung's arrays on a GPU."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alexconv.compiling import nvcc
from alexconv.executors.cuda.audit import Marks, Sums
from alexconv.executors.host_memory import filled_with_nan
from alexconv.executors.interface import Values

if TYPE_CHECKING:
    from alexconv.executors.cuda.buffers import CudaBuffers
    from alexconv.executors.cuda.executor import CudaExecutor

SOURCE = Path(__file__).with_name("audit.cu")
THREADS, COLUMNS, MOST_ROWS = 256, 64, 4096  # of a block, and of a grid
CLOCK_NANOSECONDS = 100_000  # for which cycles are counted


class AuditKernels:
    """The kernels of audit.cu on an executor's device."""

    def __init__(self, executor: "CudaExecutor") -> None:
        self._driver, self._stream = executor.driver, executor.stream
        self._module = executor.driver.module_from_buffer(nvcc.compile_cubin(SOURCE, {}, executor.arch))
        self._readings = executor.driver.mem_alloc(16)
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


class WatchedArrays:
    """The first ``images`` images of the arrays at ``pointers``, whose work is on the executor's stream."""

    def __init__(self, buffers: "CudaBuffers", pointers: dict[str, int], images: int) -> None:
        self._buffers, self._pointers, self.images = buffers, pointers, images
        self._driver, self._stream = buffers.driver, buffers.stream
        self._kernels = buffers.executor.audit_kernels
        bound = buffers.program.bound
        self._itemsize = np.dtype(bound.rung.dtype).itemsize
        self._values = {name: nbytes // self._itemsize for name, nbytes in bound.image_bytes.items()}
        self._marks, self._sums = (buffers.allocate(images * size, "an audit") for size in (1, 8))

    def negate(self, images: Sequence[int]) -> None:
        """See Watched.  A single image is an argument: a copy might wait for earlier launches."""
        if len(images) > 1:
            marks = np.zeros(self.images, np.bool_)
            marks[list(images)] = True
            self._mark(marks)
            self._negate(self._marks, 0, self.images)
        for image in images if len(images) == 1 else ():
            self._negate(0, image, image + 1)

    def _negate(self, marks: int, first: int, last: int) -> None:
        arguments = self._pointers["x"], self._values["x"], marks, first, last
        self._kernels.launch(f"negate{self._itemsize}", last - first, *arguments)

    def _mark(self, marks: Marks) -> None:
        self._driver.memcpy_htod_async(self._marks, marks.view(np.uint8), self._stream)
        self._stream.synchronize()

    def outputs(self) -> Values:
        """See Watched."""
        bound = self._buffers.program.bound
        y = filled_with_nan(np.empty(bound.rung.y_shape(bound.conv, self.images), bound.rung.dtype))
        self._stream.synchronize()
        self._driver.memcpy_dtoh(y, self._pointers["y"])
        return y

    def output_sums(self, negated: Marks) -> Sums:
        """See Watched."""
        return self._summed(self._pointers["y"], self._values["y"], self._itemsize, negated)

    def input_sums(self, negated: Marks) -> Sums:
        """See Watched."""
        filter_bytes = {"w": self._buffers.program.bound.filter_bytes(), **self._buffers.prepared_bytes}
        sums = [self._summed(self._pointers["x"], self._values["x"], self._itemsize, negated)]
        once = partial(self._summed, itemsize=2, negated=np.zeros(1, np.bool_))
        sums += [once(self._pointers[name], nbytes // 2) for name, nbytes in filter_bytes.items()]
        return np.concatenate(sums)

    def _summed(self, address: int, values: int, itemsize: int, negated: Marks) -> Sums:
        images = len(negated)
        self._mark(negated)
        self._driver.memset_d8_async(self._sums, 0, 8 * images, self._stream)
        arguments = address, values, self._marks, images, self._sums
        self._kernels.launch(f"add_up{itemsize}", images, *arguments)
        sums = np.empty(images, np.uint64)
        self._stream.synchronize()
        self._driver.memcpy_dtoh(sums, self._sums)
        return sums
