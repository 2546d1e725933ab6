"""A study framework for convolution kernels on GPUs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alexconv.library.convolution import Conv2d, conv2d

__all__ = ["Conv2d", "__version__", "conv2d"]
__version__ = "0.1.0"

# In a plain checkout the sub-packages `kernels`, `cpu_reference` and `reports` lie beside this folder; installed,
# they lie inside it (see the package-dir table of pyproject.toml).
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))


def __getattr__(name: str) -> Any:
    """The library's face, imported when it is first asked for."""
    if name in ("Conv2d", "conv2d"):
        from alexconv.library import convolution as library

        globals()[name] = getattr(library, name)  # so that it is asked for once
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
