"""A study framework for convolution kernels on GPUs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alexconv.library.convolution import Conv2d, conv2d
    from alexconv.library.explanation import Explanation, explain
    from alexconv.library.onnx_face import onnx_conv
    from alexconv.library.torch_face import patch
    from alexconv.library.warming import Shape, warm

__all__ = ["Conv2d", "Explanation", "Shape", "__version__", "conv2d", "explain", "onnx_conv", "patch", "warm"]
__version__ = "0.2.0"

# The library's public names and their modules under alexconv.library.
_FACES = {
    "Conv2d": "convolution",
    "Explanation": "explanation",
    "Shape": "warming",
    "conv2d": "convolution",
    "explain": "explanation",
    "onnx_conv": "onnx_face",
    "patch": "torch_face",
    "warm": "warming",
}


def __getattr__(name: str) -> Any:
    """Imports a public name of the library on first use."""
    if name in _FACES:
        module = import_module(f"alexconv.library.{_FACES[name]}")
        globals()[name] = getattr(module, name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
