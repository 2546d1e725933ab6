"""The two executors of the same kernels: ``cuda`` on a GPU through PyCUDA, ``host`` on the CPU."""

from alexconv.errors import MissingTool
from alexconv.executors.interface import Executor

BACKENDS = ("auto", "cuda", "host")


def choose_executor(backend: str, device: int = 0, host_build: str = "fast", host_order: int = 0) -> Executor:
    """The executor by name; ``auto`` takes CUDA where a device and nvcc are there, else the host.

    Raises MissingTool when what was asked for is not on this machine.
    """
    because = None
    if backend != "host":
        from alexconv.executors.cuda.executor import CudaExecutor

        try:
            return CudaExecutor(device)
        except MissingTool as error:
            if backend == "cuda":
                raise
            because = str(error)
    from alexconv.executors.host.buffers import HostRungs

    return HostRungs(host_build, host_order, because)
