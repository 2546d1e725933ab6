"""Time limits that end when a test says so, and not by a clock: on a slow host, too, just the step that is meant."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

from alexconv.measuring import watchdog

running: list["Limit"] = []


class Limit:
    """Stands for the timer of a time limit."""

    def __init__(self, seconds: float, expire: Callable[[], None]) -> None:
        self.expire = expire

    def start(self) -> None:
        running.append(self)

    def cancel(self) -> None:
        running.remove(self)


def end() -> None:
    """Ends the limits that run now."""
    for limit in running:
        threading.Thread(target=limit.expire, daemon=True).start()


def by_hand() -> None:
    """No limit ends by a clock from now on."""
    watchdog.threading = SimpleNamespace(Timer=Limit, Lock=threading.Lock, TIMEOUT_MAX=threading.TIMEOUT_MAX)
