"""A time limit for a step that cannot be interrupted, such as a kernel that does not end.

Neither an exception nor a signal reaches Python while the driver waits, but another thread still runs: it records what
happened and ends the process, and with it the kernel.
"""

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from alexconv.errors import AlexconvError
from alexconv.messages import print_error


@contextmanager
def time_limit(seconds: float, expired: Callable[[], int]) -> Iterator[None]:
    """Ends the process with the status of ``expired`` if the step takes longer than ``seconds``.

    ``expired`` is called in another thread; an AlexconvError becomes one line on stderr and its exit status.
    """
    first = threading.Lock()  # the thread that gets it decides: never both a result and a time-out

    def expire() -> None:
        if first.acquire(blocking=False):
            status = 1
            try:
                status = expired()
            except AlexconvError as error:
                status = print_error(error)
            except Exception:
                traceback.print_exc()  # no other thread could
            finally:
                os._exit(status)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        first.acquire()  # if too late, this blocks until the process ends
        timer.cancel()
