"""The table of executors: ``cuda`` runs kernels on a GPU through PyCUDA, ``host`` runs the same files on the CPU."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from alexconv.errors import MissingTool, UsageError
from alexconv.executors.interface import Executor
from alexconv.kernels.problem import H200, Device

AUTO = "auto"
HOST_BUILDS = (
    "fast",
    "unoptimized",
    "asan",
)  # how the host executor builds kernels for a run; a profile uses another one


@dataclass(frozen=True)
class Wanted:
    """The settings of a new executor."""

    device: int = 0  # CUDA device ordinal
    host_build: str = HOST_BUILDS[0]
    host_order: int = 0  # order of a block's threads
    host_gpu: Device = H200  # the device whose limits hold on the host
    because: str | None = None  # why ``auto`` skipped the executors before it in the table


@dataclass(frozen=True)
class Backend:
    """An executor of the table."""

    make: Callable[[Wanted], Executor]  # raises MissingTool where it cannot run
    options: tuple[str, ...] = ()  # the fields of Wanted that only it has; giving one selects it


def _cuda(wanted: Wanted) -> Executor:
    from alexconv.executors.cuda.executor import CudaExecutor  # PyCUDA is imported only when used

    return CudaExecutor(wanted.device)


def _host(wanted: Wanted) -> Executor:
    from alexconv.executors.host.executor import HostExecutor

    return HostExecutor(wanted.host_build, wanted.host_order, wanted.because, wanted.host_gpu)


# In the order in which ``auto`` tries them.
EXECUTORS: dict[str, Backend] = {"cuda": Backend(_cuda), "host": Backend(_host, ("host_build", "host_order", "gpu"))}


def backends() -> tuple[str, ...]:
    """The values of --backend."""
    return AUTO, *EXECUTORS


def choose_executor(
    backend: str,
    device: int = 0,
    host_build: str = HOST_BUILDS[0],
    host_order: int = 0,
    host_gpu: Device = H200,
) -> Executor:
    """The executor with a name; ``auto`` is the first of the table that runs here: CUDA needs a device and nvcc.

    Raises MissingTool if the executor cannot run on this machine, UsageError for an unknown name.
    """
    if backend not in backends():
        raise UsageError(f"unknown backend {backend!r}: choose from {', '.join(backends())}")
    wanted = Wanted(device, host_build, host_order, host_gpu)
    if backend != AUTO:
        return EXECUTORS[backend].make(wanted)
    for candidate in EXECUTORS.values():
        try:
            return candidate.make(wanted)
        except MissingTool as error:
            wanted = replace(wanted, because=str(error))
    raise MissingTool(str(wanted.because))
