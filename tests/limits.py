"""Time limits that expire when a test says so, not by a clock: even on a slow host, only in the intended step."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

from alexconv.measuring import watchdog

running: list["Limit"] = []


class Limit:
    """A stand-in for the timer of a time limit."""

    def __init__(self, seconds: float, expire: Callable[[], None]) -> None:
        self.expire = expire

    def start(self) -> None:
        running.append(self)

    def cancel(self) -> None:
        running.remove(self)


def end() -> None:
    """Expires all running limits."""
    for limit in running:
        threading.Thread(target=limit.expire, daemon=True).start()


def by_hand() -> None:
    """From now on, no limit expires by a clock."""
    watchdog.threading = SimpleNamespace(Timer=Limit, Lock=threading.Lock, TIMEOUT_MAX=threading.TIMEOUT_MAX)
