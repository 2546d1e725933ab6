"""cuBLASLt as a peer: one matrix product of an explicit im2col matrix, with torch.

``cublaslt-im2col-PRECISION`` copies every output pixel's patch into a row of a matrix, channels innermost, and
multiplies it by the filters.  torch calls cuBLASLt for that, whose heuristics choose the kernel.  Both kernels are in
the measured time; the filters' order is not, as it is that of channels-last filters in memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from alexconv.measuring.runner import Layer, Skip
from alexconv.measuring.torch_peers import Operands, TorchRunner, Work, check_of, exact_of, operands_of
from alexconv.planning.planner import MEBIBYTE
from alexconv.planning.points import PeerPoint, PeerSequence
from alexconv.precisions import PRECISIONS

LIBRARY = "cublaslt"  # torch's name for it


class Im2colRunner(TorchRunner):
    """Turns cuBLASLt's points into records on a GPU."""

    def _paddings(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer]) -> Sequence[bool]:
        """In memory: the matrix is copied from planes with their border."""
        if any(layer.conv.groups > 1 for layer in layers):
            raise Skip("a layer with groups is no single matrix product")
        if any(any(layer.conv.padding) for layer in layers):
            raise Skip("this peer takes planes with their border")
        return (True,)

    def _work(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer], padded: bool) -> Work:
        torch, precision = self._torch, point.precision
        budget = self._runner.memory_budget()
        for layer in layers:
            conv = layer.conv
            needed = point.N * conv.E * conv.F * conv.K * (2 if PRECISIONS[precision].dtype == "float16" else 4)
            if needed > budget:
                raise Skip(f"its matrix needs {needed / MEBIBYTE:.1f} MiB, the budget is {budget / MEBIBYTE:.1f}")
        operands = [operands_of(torch, layer, point.N, "nhwc", precision, padded=padded) for layer in layers]
        return Work(
            lambda: [product(torch, of_layer) for of_layer in operands],
            partial(check_of, layers, precision),
            partial(exact_of, torch, layers, operands, precision),
        )

    @contextmanager
    def _engines(self, point: PeerPoint | PeerSequence) -> Iterator[None]:
        """cuBLASLt, sums in fp32, and products in the precision of the class; restores all on exit."""
        cuda = self._torch.backends.cuda
        matmul = cuda.matmul
        before = cuda.preferred_blas_library(), matmul.allow_fp16_reduced_precision_reduction
        with super()._engines(point):
            cuda.preferred_blas_library(LIBRARY)
            matmul.fp32_precision = PRECISIONS[point.precision].torch
            matmul.allow_fp16_reduced_precision_reduction = False
            try:
                yield
            finally:
                cuda.preferred_blas_library(before[0])
                matmul.allow_fp16_reduced_precision_reduction = before[1]


def patches(operands: Operands) -> Any:
    """A view of the input [N][H][W][C] as the patches [N][E][F][R][S][C] of its output pixels."""
    conv, x = operands.conv, operands.x.permute(0, 2, 3, 1)
    image, row, column, channel = x.stride()
    (down, across), (apart_down, apart_across) = conv.strides, conv.dilation
    shape = x.shape[0], conv.E, conv.F, conv.R, conv.S, conv.C
    steps = image, down * row, across * column, apart_down * row, apart_across * column, channel
    return x.as_strided(shape, steps)


def product(torch: Any, operands: Operands) -> Any:
    """The output [N][M][E][F], channels innermost."""
    conv, bias = operands.conv, operands.bias
    matrix = patches(operands).reshape(-1, conv.K)  # a copy
    filters = operands.w.permute(0, 2, 3, 1).reshape(conv.M, conv.K).t()
    y = torch.mm(matrix, filters) if bias is None else torch.addmm(bias, matrix, filters)
    y = y.reshape(-1, conv.E, conv.F, conv.M).permute(0, 3, 1, 2)
    return y.relu_() if conv.relu else y
