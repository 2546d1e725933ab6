"""Work on arrays, spread over all cores: NumPy releases the GIL while it computes.

A function that is spread over the cores may spread work itself: nested work runs in the same thread.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np

from alexconv.machine import cores

Result = TypeVar("Result")

_here = threading.local()


def each_image(function: Callable[[int], Result], N: int) -> list[Result]:
    """``function(0)`` to ``function(N - 1)``."""
    spread = N > 1 and not getattr(_here, "in_pool", False)  # a pool thread that waits for others can deadlock
    return list((_pool(os.getpid()).map if spread else map)(function, range(N)))


def each_slice(function: Callable[[slice], Result], N: int, at_once: int) -> list[Result]:
    """``function`` of the slices of ``range(N)`` with ``at_once`` numbers each, at least one."""
    step = max(1, at_once)
    starts = range(0, N, step)
    return each_image(lambda place: function(slice(starts[place], min(starts[place] + step, N))), len(starts))


def each_block(function: Callable[[slice], Result], values: np.ndarray, nbytes: int) -> list[Result]:
    """``function`` of slices of an array's first axis of ``nbytes`` each, or of one entry."""
    return each_slice(function, len(values), nbytes * len(values) // max(values.nbytes, 1))


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """A process's thread pool, made when first needed; a forked process does not inherit its parent's threads."""
    return ThreadPoolExecutor(cores(), initializer=lambda: setattr(_here, "in_pool", True))
