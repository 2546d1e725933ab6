"""cuda-bindings, which serve what PyCUDA lacks: occupancy, prefetching, tensor maps, graphs."""

from typing import Any

from alexconv.errors import LaunchError, MissingTool


def import_bindings() -> Any | None:
    """The driver module of cuda-bindings, or None where it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    return driver


def require_bindings(what: str) -> Any:
    """The driver module of cuda-bindings; raises MissingTool that says what needs it."""
    bindings = import_bindings()
    if bindings is None:
        raise MissingTool(f"{what} needs cuda-bindings: pip install 'alexconv[gpu]'")
    return bindings


def answer(result: tuple[Any, ...], what: str) -> Any:
    """What a call returned beside its status; raises LaunchError with the status where it failed."""
    if int(result[0]) != 0:
        raise LaunchError(f"{what}: {result[0].name}")
    return result[1] if len(result) > 1 else None
