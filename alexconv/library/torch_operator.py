"""The operator ``alexconv::conv2d`` for torch, for calls that are traced or need gradients.

It has a fake kernel, so ``torch.compile`` and ``torch.export`` trace it, and gradients: those of torch's own
convolution (``aten::convolution_backward``, which is cuDNN's on a GPU), at torch's precision settings.  Imported only
in a process that has torch.
"""

from typing import Any

import torch

from alexconv.library.arrays import TO_NCHW, TO_NHWC
from alexconv.library.operation import operation_of
from alexconv.library.terms import RELU, Terms, explicit_padding

NAME = "alexconv::conv2d"


@torch.library.custom_op(NAME, mutates_args=())  # type: ignore[untyped-decorator]
def operator(
    x: torch.Tensor,
    filters: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    relu: bool,
    precision: str,
) -> torch.Tensor:
    """``alexconv.conv2d`` in nchw, ``padding`` as (top, bottom, left, right)."""
    activation = RELU if relu else None
    operation = operation_of(
        tuple(stride), tuple(padding), precision, "nchw", "auto", activation, tuple(dilation), groups
    )
    with torch.no_grad():
        y: torch.Tensor = operation.of_tensor(
            torch, x.detach(), None, filters.detach(), None if bias is None else bias.detach()
        )
    return y


@operator.register_fake  # type: ignore[untyped-decorator]
def _(
    x: torch.Tensor,
    filters: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    relu: bool,
    precision: str,
) -> torch.Tensor:
    top, bottom, left, right = padding
    (H, W), (R, S) = x.shape[2:], filters.shape[2:]
    rows = (H + top + bottom - (R - 1) * dilation[0] - 1) // stride[0] + 1
    columns = (W + left + right - (S - 1) * dilation[1] - 1) // stride[1] + 1
    channels_last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    y = x.new_empty((x.shape[0], filters.shape[0], rows, columns))
    return y.contiguous(memory_format=torch.channels_last) if channels_last else y


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, filters, bias, *ctx.terms, relu, _ = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, filters, output if relu else None)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    """The gradients of x, filters and bias, by torch's own convolution."""
    x, filters, output = ctx.saved_tensors
    stride, (top, bottom, left, right), dilation, groups = ctx.terms
    if output is not None:
        grad = grad * (output > 0)
    even = (top, left) == (bottom, right)
    planes = x if even else torch.nn.functional.pad(x, (left, right, top, bottom))
    of_x, of_filters, of_bias = torch.ops.aten.convolution_backward(
        grad,
        planes,
        filters,
        [filters.shape[0]] if ctx.has_bias else None,
        stride,
        [top, left] if even else [0, 0],
        dilation,
        transposed=False,
        output_padding=[0, 0],
        groups=groups,
        output_mask=[ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.has_bias and ctx.needs_input_grad[2]],
    )
    if of_x is not None and not even:
        of_x = of_x[:, :, top : top + x.shape[2], left : left + x.shape[3]]
    return of_x, of_filters, of_bias, None, None, None, None, None, None


operator.register_autograd(_gradients, setup_context=_keep)


def convolve(x: Any, filters: Any, bias: Any, out: Any, terms: Terms) -> Any:
    """The operator, for traced calls and arrays that require gradients; raises ValueError with ``out``."""
    if out is not None:
        raise ValueError("out is not supported for tensors that require gradients or in compiled functions")
    turned = x.permute(TO_NCHW) if terms.layout == "nhwc" else x
    padding = explicit_padding(terms, turned.shape[2:], filters.shape[2:])
    y = operator(
        turned,
        filters,
        bias,
        list(terms.stride),
        list(padding),
        list(terms.dilation),
        terms.groups,
        terms.relu,
        terms.precision,
    )
    return y.permute(TO_NHWC) if terms.layout == "nhwc" else y
