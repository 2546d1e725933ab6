"""The ladder as a library: ``alexconv.conv2d`` and ``alexconv.Conv2d``.

y = alexconv.conv2d(x, filters, stride=1, padding=1, bias=b, activation="relu")

``x`` is ``[N][C][H][W]`` without its padding, or ``[N][H][W][C]`` with ``layout="nhwc"``; filters are always
``[M][C / groups][R][S]``, the bias ``[M]``.  The output, ``[N][M][E][F]`` or ``[N][E][F][M]``, has the same array type
as ``x``:

* NumPy arrays, and torch and DLPack arrays in host memory: computed on the GPU if there is one, else on the CPU.
* torch tensors on a GPU: on torch's current stream.  CuPy arrays likewise.
* Other arrays with ``__cuda_array_interface__``: on the stream that it names, else on the default stream; the output is
  a DeviceArray, which has that interface too.  With DLPack alone: on the default stream, synchronously.

``x`` is used in place if it is contiguous in the rung's layout, aligned to 16 bytes, and the rung takes its padding.
Else a kernel copies it into a workspace, with its padding, so any strides work.  The same holds for ``out``.  A
channels_last tensor of torch counts as layout nhwc, and its output is channels_last.

Precisions are the error classes of ``alexconv.precisions``: fp32 and tf32 take float32; fp16 and half take float16.
Most fp16 rungs want nhwc, most others nchw; arrays in the other layout are transposed where that and such a rung take
less time than one of their own layout (``alexconv.library.routes``).  Layers that no rung takes run on a GPU in
``generic.cu``, whose shape is a kernel argument.  While a shape's rung compiles in the background, its first calls are
computed by a rung in its build for every shape, or else by ``generic.cu``: within the same error bound, but rounded in
another order.

Calls are thread-safe, on any streams.  They can be captured in CUDA graphs; a captured call waits for its rung's
compilation where no build for every shape takes it.  Gradients of torch tensors are of the same class
(``alexconv.library.gradients``).
"""

import sys
from typing import Any

from alexconv.library.filters import FixedFilters, requires_grad
from alexconv.library.operation import PLAIN, Operation, observed, operation_of
from alexconv.library.terms import Padding, Pair, Terms, terms_of


def conv2d(
    x: Any,
    filters: Any,
    stride: Pair = 1,
    padding: Padding = 0,
    precision: str = "fp32",
    out: Any = None,
    layout: str = "nchw",
    backend: str = "auto",
    *,
    bias: Any = None,
    activation: str | None = None,
    dilation: Pair = 1,
    groups: int = 1,
    residual: Any = None,
) -> Any:
    """A convolution layer: the cross-correlation of ``x`` with ``filters``, plus bias and residual, and activation.

    Arrays may be of NumPy, torch, CuPy, or any with ``__cuda_array_interface__`` or DLPack; the output is like ``x``.

    x: ``[N][C][H][W]``, or ``[N][H][W][C]`` with ``layout="nhwc"``; float32, or float16 for fp16 and half.
    filters: ``[M][C / groups][R][S]``.
    stride, dilation: one number, or two for rows and columns.
    padding: zero rows and columns: one number, two (rows, columns), four (top, bottom, left, right), ``"valid"``, or
        ``"same"``; with an odd total ``"same"`` pads more at the end, ``"same_lower"`` at the beginning.
    precision: the error class: fp32, fp32-tile, tf32, fp16 or half (docs/precision.md).
    out: receives the output ``[N][M][E][F]``, or ``[N][E][F][M]`` with ``layout="nhwc"``; else it is a new array.  It
        may be a slice of the channels of a larger array, of which the rest stays as it is.
    backend: where host arrays are computed: auto, cuda or host.
    bias: ``[M]``.
    activation: None, ``"relu"``, ``"relu6"``, ``"silu"`` or ``"gelu"``.
    residual: an array like the output, added before the activation.

    Raises TypeError for x, filters, bias or out that is not an array, ValueError for any other bad argument and for
    arrays that do not fit each other or the precision; MissingTool without a GPU, compiler or rung for the call,
    OutOfMemory and LaunchError.
    """
    operation = operation_of(stride, padding, precision, layout, backend, activation, dilation, groups)
    return output(operation, x, out, filters, bias, residual)


class Conv2d:
    """A convolution layer with fixed filters: ``alexconv.Conv2d(filters, stride=1, padding=1, bias=b)(x)``.

    Arguments and errors are those of ``conv2d``.  Filters and bias are copied and prepared once, at the first call (if
    in host memory, at construction); later changes of the arrays have no effect.  A copy of the layer copies them anew.
    """

    def __init__(
        self,
        filters: Any,
        stride: Pair = 1,
        padding: Padding = 0,
        precision: str = "fp32",
        layout: str = "nchw",
        backend: str = "auto",
        *,
        bias: Any = None,
        activation: str | None = None,
        dilation: Pair = 1,
        groups: int = 1,
    ) -> None:
        self._compute(
            (filters, bias), terms_of(stride, padding, precision, layout, dilation, groups, activation), backend
        )

    def _compute(self, arrays: tuple[Any, Any], terms: Terms, backend: str) -> None:
        """Makes the layer compute with filters and bias."""
        self.filters = FixedFilters(*arrays, terms)
        self._operation = Operation(terms, backend, self.filters)

    def __getstate__(self) -> tuple[tuple[Any, Any], Terms, str]:
        """Arguments of ``_compute``: copies and files have no prepared filters, which belong to the memory of a GPU."""
        return self.filters.arrays, self._operation.terms, self._operation.backend

    def __setstate__(self, state: tuple[tuple[Any, Any], Terms, str]) -> None:
        self._compute(*state)

    def __call__(self, x: Any, out: Any = None, residual: Any = None) -> Any:
        """The output for ``x``, in ``out`` if given; with a residual as ``conv2d`` has it."""
        return output(self._operation, x, out, residual=residual)


def output(
    operation: Operation,
    x: Any,
    out: Any,
    filters: Any = None,
    bias: Any = None,
    residual: Any = None,
) -> Any:
    """A call's output; tensors that torch traces or casts, or that need gradients, go through the operator."""
    torch, fixed = sys.modules.get("torch"), operation.filters
    if torch is None or not isinstance(x, torch.Tensor):
        return operation.compute(x, out, filters, bias, residual)
    needs_grad = fixed.requires_grad if fixed else requires_grad(filters) or requires_grad(bias)
    needs_grad = needs_grad or requires_grad(residual)
    if (
        observed(torch)
        or torch.is_autocast_enabled(x.device.type)
        or type(x).__name__ not in PLAIN
        or (torch.is_grad_enabled() and (x.requires_grad or needs_grad or requires_grad(out)))
    ):
        from alexconv.library import torch_operator

        filters, bias = fixed.arrays if fixed else (filters, bias)
        return torch_operator.convolve(x, filters, bias, out, operation.terms, residual)
    return operation.of_tensor(torch, x, out, filters, bias, residual)
