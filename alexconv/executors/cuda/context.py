"""A GPU's primary context in any thread."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from alexconv.executors.cuda.bindings import answer


class PrimaryContext:
    """A GPU's primary context through cuda-bindings: PyCUDA's stack of contexts is for the thread that fills it."""

    def __init__(self, driver: Any, number: int) -> None:
        self._driver = driver
        handle = answer(driver.cuDeviceGet(number), "a device")
        self._context = answer(driver.cuDevicePrimaryCtxRetain(handle), "a context")
        self.number = int(self._context)

    def current(self) -> AbstractContextManager[None]:
        """The context is this thread's meanwhile."""
        result, now = self._driver.cuCtxGetCurrent()
        return nullcontext() if int(result) == 0 and int(now) == self.number else self._pushed()

    @contextmanager
    def _pushed(self) -> Iterator[None]:
        answer(self._driver.cuCtxPushCurrent(self._context), "a context")
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent()
