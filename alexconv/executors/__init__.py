"""The executors of the same kernels, as a table: ``cuda`` on a GPU through PyCUDA, ``host`` on the CPU."""

from collections.abc import Callable
from dataclasses import dataclass

from alexconv.errors import MissingTool, UsageError
from alexconv.executors.interface import Executor

AUTO = "auto"
HOST_BUILDS = ("fast", "asan")  # how the host executor builds kernels for a run; a profile has a build of its own


@dataclass(frozen=True)
class Wanted:
    """What is asked of an executor: the GPU's number; how the host executor builds kernels and orders threads.

    ``because`` says why none of those before it in the table was taken, if any was tried.
    """

    device: int = 0
    host_build: str = HOST_BUILDS[0]
    host_order: int = 0
    because: str | None = None


@dataclass(frozen=True)
class Backend:
    """An executor of the table: ``make`` raises MissingTool where it cannot run.

    ``options`` are those of Wanted that ask for it, since no other executor has them.
    """

    make: Callable[[Wanted], Executor]
    options: tuple[str, ...] = ()


def _cuda(wanted: Wanted) -> Executor:
    from alexconv.executors.cuda.executor import CudaExecutor  # PyCUDA is imported only when used

    return CudaExecutor(wanted.device)


def _host(wanted: Wanted) -> Executor:
    from alexconv.executors.host.executor import HostExecutor

    return HostExecutor(wanted.host_build, wanted.host_order, wanted.because)


# In the order in which ``auto`` tries them.
EXECUTORS: dict[str, Backend] = {"cuda": Backend(_cuda), "host": Backend(_host, ("host_build", "host_order"))}


def backends() -> tuple[str, ...]:
    """What may be asked for by name."""
    return AUTO, *EXECUTORS


def choose_executor(backend: str, device: int = 0, host_build: str = HOST_BUILDS[0], host_order: int = 0) -> Executor:
    """The executor by name; ``auto`` takes the first of the table that runs here: CUDA needs a device and nvcc.

    Raises MissingTool when what was asked for is not on this machine, UsageError for an unknown name.
    """
    if backend not in backends():
        raise UsageError(f"unknown backend {backend!r}: choose from {', '.join(backends())}")
    wanted = Wanted(device, host_build, host_order)
    if backend != AUTO:
        return EXECUTORS[backend].make(wanted)
    for each in EXECUTORS.values():
        try:
            return each.make(wanted)
        except MissingTool as error:
            wanted = Wanted(device, host_build, host_order, str(error))
    raise MissingTool(str(wanted.because))
