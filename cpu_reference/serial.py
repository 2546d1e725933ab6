"""The serial C++ convolution, compiled and ready to call."""

from collections.abc import Callable
from ctypes import CDLL, c_float, c_size_t
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.ctypeslib import ndpointer
from numpy.typing import NDArray

from alexconv.compiling.toolchain import run_compiler
from alexconv.cpu_reference.reference import with_border
from alexconv.errors import CompileError
from alexconv.shapes import FORWARD, Conv

SOURCE = Path(__file__).with_name("serial.cpp")
FLAGS = ("-O2", "-shared", "-fPIC")

Convolution = Callable[[Conv, NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]


def compile_serial(cxx: str) -> Convolution:
    """``serial.cpp`` compiled by ``cxx``: a function of a Conv, x ``[N][C][H][W]`` and w ``[M][C / groups][R][S]``.

    It raises ValueError for other than convolutions alone, in the forward direction, and for other arrays.  Raises
    CompileError when the compiler fails, and MachineFault.
    """
    with TemporaryDirectory() as folder:
        binary = Path(folder) / "serial.so"
        run_compiler([cxx, *FLAGS, SOURCE, "-o", binary], f"{cxx} cannot compile {SOURCE.name}", binary.parent)
        try:
            entry = CDLL(str(binary)).serial_convolution
        except OSError as error:
            raise CompileError(f"{cxx} reported no error, but {SOURCE.name} cannot be loaded: {error}") from None
    array = ndpointer(c_float, flags="C_CONTIGUOUS")
    entry.argtypes = [array] * 3 + [c_size_t] * 14
    entry.restype = None

    def convolve(conv: Conv, x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
        N = len(x)
        if x.shape != conv.x_shape(N) or w.shape != conv.w_shape():
            raise ValueError(f"arrays {x.shape} and {w.shape} do not fit {conv}")
        if conv != conv.alone().toward(FORWARD):
            raise ValueError(f"the serial convolution computes no bias, activation or gradient: {conv}")
        x, conv = np.ascontiguousarray(with_border(conv, x)), conv.with_border()
        y = np.empty(conv.y_shape(N), np.float32)
        sizes = conv.C, conv.H, conv.W, conv.M, conv.R, conv.S, *conv.strides, *conv.dilation, conv.groups
        entry(x, w, y, N, *sizes, conv.E, conv.F)
        return y

    return convolve
