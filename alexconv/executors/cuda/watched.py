"""The audit's view of a rung's arrays on a GPU."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from alexconv.executors.cuda.audit import Marks, Sums
from alexconv.executors.cuda.device import CudaDevice
from alexconv.executors.host_memory import filled_with_nan
from alexconv.executors.interface import Values
from alexconv.kernels.bound import BoundRung


class WatchedArrays:
    """A bound rung's arrays at ``pointers``, with ``images`` images, whose work is on the device's stream.

    Images whose outputs are summed are negated together: they are one item, and so are their outputs.
    ``allocate`` takes bytes and a name, and returns the address of memory that outlives this object.
    """

    def __init__(
        self,
        gpu: CudaDevice,
        bound: BoundRung,
        pointers: dict[str, int],
        images: int,
        allocate: Callable[[int, str], int],
    ) -> None:
        self._bound, self._pointers, self.images = bound, pointers, images
        self._driver, self._stream, self._kernels = gpu.driver, gpu.stream, gpu.audit_kernels
        self._itemsize, self._roles = np.dtype(bound.rung.dtype).itemsize, bound.roles
        self.items = 1 if self._roles.sums_images else images
        sizes = bound.piece_bytes(images)
        self._values = {name: sizes[name] // self._itemsize // self.items for name in (self._roles.x, self._roles.y)}
        self._marks, self._sums = (allocate(self.items * size, "an audit") for size in (1, 8))

    def negate(self, images: Sequence[int]) -> None:
        """See Watched.  A single image is an argument: a copy might wait for earlier launches."""
        if len(images) > 1:
            marks = np.zeros(self.items, np.bool_)
            marks[list(images)] = True
            self._mark(marks)
            self._negate(self._marks, 0, self.items)
        for image in images if len(images) == 1 else ():
            self._negate(0, image, image + 1)

    def _negate(self, marks: int, first: int, last: int) -> None:
        arguments = self._pointers[self._roles.x], self._values[self._roles.x], marks, first, last
        self._kernels.launch(f"negate{self._itemsize}", last - first, *arguments)

    def _mark(self, marks: Marks) -> None:
        self._driver.memcpy_htod_async(self._marks, marks.view(np.uint8), self._stream)
        self._stream.synchronize()

    def outputs(self) -> Values:
        """See Watched."""
        bound = self._bound
        y = filled_with_nan(np.empty(bound.rung.y_shape(bound.conv, self.images), bound.rung.dtype))
        self._stream.synchronize()
        self._driver.memcpy_dtoh(y, self._pointers[self._roles.y])
        return y

    def output_sums(self, negated: Marks) -> Sums:
        """See Watched."""
        return self._summed(self._pointers[self._roles.y], self._values[self._roles.y], self._itemsize, negated)

    def input_sums(self, negated: Marks) -> Sums:
        """See Watched."""
        filter_bytes = {self._roles.w: self._bound.filter_bytes(self.images), **self._bound.prepared_bytes()}
        sums = [self._summed(self._pointers[self._roles.x], self._values[self._roles.x], self._itemsize, negated)]
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
