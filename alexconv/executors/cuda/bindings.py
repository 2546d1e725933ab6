"""cuda-bindings, for what PyCUDA lacks: kernel handles, occupancy, prefetching, tensor maps, graphs."""

from math import prod
from typing import Any

from alexconv.errors import LaunchError, MissingTool
from alexconv.kernels.problem import Device
from alexconv.kernels.rung import Dims

PDL_SINCE = (9, 0)  # compute capability that has programmatic dependent launch


def import_bindings() -> Any | None:
    """The driver module of cuda-bindings, or None where it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    return driver


def require_bindings(feature: str) -> Any:
    """The driver module of cuda-bindings; raises MissingTool, which names the ``feature`` that needs it."""
    bindings = import_bindings()
    if bindings is None:
        raise MissingTool(f"{feature} needs cuda-bindings: pip install 'alexconv[gpu]'")
    return bindings


def answer(result: tuple[Any, ...], operation: str) -> Any:
    """The result of a driver call without its status; raises LaunchError if it failed."""
    if int(result[0]) != 0:
        raise LaunchError(f"{operation}: {result[0].name}")
    return result[1] if len(result) > 1 else None


def pdl_shared(grid: Dims, shared: int, device: Device) -> int:
    """Bytes of dynamic shared memory for a programmatic dependent launch whose blocks need ``shared``.

    A launch of few blocks asks for so much that no two fit on a multiprocessor; otherwise they would crowd onto the
    multiprocessors that the previous launch leaves idle first.
    """
    most = device.shared_per_multiprocessor
    return max(shared, most // 2) if prod(grid) <= device.multiprocessors else shared
