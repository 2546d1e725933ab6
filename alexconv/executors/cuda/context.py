"""Makes a GPU's primary context current in any thread."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from alexconv.executors.cuda.bindings import answer


class PrimaryContext:
    """A GPU's primary context through cuda-bindings: PyCUDA's context stack belongs to one thread."""

    def __init__(self, driver: Any, number: int) -> None:
        self._driver = driver
        handle = answer(driver.cuDeviceGet(number), "a device")
        self._context = answer(driver.cuDevicePrimaryCtxRetain(handle), "a context")
        self.number = int(self._context)

    def current(self) -> AbstractContextManager[None]:
        """Makes the context current in this thread, for the block."""
        result, now = self._driver.cuCtxGetCurrent()
        return nullcontext() if int(result) == 0 and int(now) == self.number else self._pushed()

    @contextmanager
    def _pushed(self) -> Iterator[None]:
        answer(self._driver.cuCtxPushCurrent(self._context), "a context")
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent()
