"""The GPUs that calls of ``conv2d`` run on, and what each backend computes where."""

import threading
from collections.abc import Callable
from functools import cache

from alexconv.errors import MissingTool
from alexconv.library.workspaces import Gpu

started: dict[int, Gpu] = {}
_starting = threading.Lock()


def gpu(number: int) -> Gpu:
    """The GPU with that number, started on first use; raises MissingTool."""
    with _starting:
        if number not in started:
            started[number] = Gpu(number)
        return started[number]


@cache
def first_gpu() -> Gpu | None:
    """GPU 0, or None if there is no usable one."""
    try:
        return gpu(0)
    except MissingTool:
        return None


# By backend, the GPU that computes arrays in host memory, None for the CPU; and the backends that take a GPU's arrays.
OF_HOST_ARRAYS: dict[str, Callable[[], Gpu | None]] = {
    "auto": lambda: first_gpu(),
    "cuda": lambda: gpu(0),
    "host": lambda: None,
}
OF_DEVICE_ARRAYS = ("auto", "cuda")
