"""The operator ``alexconv::conv2d`` for torch, for calls that are traced or need gradients.

It has a fake kernel, so ``torch.compile`` and ``torch.export`` trace it, and gradients, which are operators with fake
kernels too (``alexconv.library.gradients``): of its input, of its filters and of its bias, each only where needed.
Gradients have no gradients.  Imported only in a process that has torch.
"""

from typing import Any

import torch
from torch.autograd import forward_ad

from alexconv.library import gradients
from alexconv.library.arrays import TO_NCHW, TO_NHWC
from alexconv.library.operation import is_plain, operation_of
from alexconv.library.terms import RELU, Terms, explicit_padding
from alexconv.precisions import PRECISIONS

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
    """``alexconv.conv2d`` in nchw, ``padding`` as (top, bottom, left, right); waits for its rung to compile.

    So that a training has the same bits whatever was compiled before.
    """
    activation = RELU if relu else None
    if x.is_cuda:
        terms = terms_in(stride, padding, dilation, groups, precision)._replace(activation=activation)
        gradients.wait_for_rung(x, filters, bias, terms)
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
    return in_memory_as(x, x.new_empty((x.shape[0], filters.shape[0], rows, columns)))


@torch.library.custom_op("alexconv::dgrad", mutates_args=())  # type: ignore[untyped-decorator]
def dgrad(
    dy: torch.Tensor,
    filters: torch.Tensor,
    plane: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    precision: str,
) -> torch.Tensor:
    """The gradient of conv2d's input, with planes of (H, W): by a rung, or by torch where none takes the layer."""
    H, W = plane
    dx = gradients.dgrad(dy, filters, (H, W), terms_in(stride, padding, dilation, groups, precision))
    if dx is None:
        x = dy.new_zeros(()).expand(len(dy), filters.shape[1] * groups, H, W)
        dx, _ = by_torch(dy, x, filters, stride, padding, dilation, groups, (True, False))
    return dx


@dgrad.register_fake  # type: ignore[untyped-decorator]
def _(dy: torch.Tensor, filters: torch.Tensor, plane: list[int], *terms: Any) -> torch.Tensor:
    *_, groups, _ = terms
    return in_memory_as(dy, dy.new_empty((dy.shape[0], filters.shape[1] * groups, *plane)))


@torch.library.custom_op("alexconv::wgrad", mutates_args=())  # type: ignore[untyped-decorator]
def wgrad(
    x: torch.Tensor,
    dy: torch.Tensor,
    taps: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    precision: str,
) -> torch.Tensor:
    """The gradient of conv2d's filters with taps (R, S): by a rung, or by torch where none takes the layer."""
    R, S = taps
    dw = gradients.wgrad(x, dy, (R, S), terms_in(stride, padding, dilation, groups, precision))
    if dw is None:
        filters = x.new_zeros(()).expand(dy.shape[1], x.shape[1] // groups, R, S)
        _, dw = by_torch(dy, x, filters, stride, padding, dilation, groups, (False, True))
    return dw


@wgrad.register_fake  # type: ignore[untyped-decorator]
def _(x: torch.Tensor, dy: torch.Tensor, taps: list[int], *terms: Any) -> torch.Tensor:
    *_, groups, _ = terms
    return x.new_empty((dy.shape[1], x.shape[1] // groups, *taps))


@torch.library.custom_op("alexconv::bias_gradient", mutates_args=())  # type: ignore[untyped-decorator]
def bias_gradient(dy: torch.Tensor, precision: str) -> torch.Tensor:
    """The gradient of conv2d's bias: the sum of dy over images and pixels."""
    sums: torch.Tensor = gradients.bias_gradient(dy, Terms(precision=precision))
    return sums


@bias_gradient.register_fake  # type: ignore[untyped-decorator]
def _(dy: torch.Tensor, precision: str) -> torch.Tensor:
    return dy.new_empty(dy.shape[1])


def terms_in(stride: list[int], padding: list[int], dilation: list[int], groups: int, precision: str) -> Terms:
    """The terms of an operator's arguments."""
    top, bottom, left, right = padding
    (down, across), (rows, columns) = stride, dilation
    return Terms((down, across), (top, bottom, left, right), precision, "nchw", (rows, columns), groups)


def in_memory_as(other: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values in channels_last if the other tensor is, and not also contiguous."""
    last = other.is_contiguous(memory_format=torch.channels_last) and not other.is_contiguous()
    return values.contiguous(memory_format=torch.channels_last) if last else values


def by_torch(
    dy: torch.Tensor,
    x: torch.Tensor,
    filters: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    wanted: tuple[bool, bool],
) -> tuple[Any, Any]:
    """The wanted gradients, of x and filters, by torch's own convolution at torch's precision settings."""
    top, bottom, left, right = padding
    even = (top, left) == (bottom, right)
    planes = x if even else torch.nn.functional.pad(x, (left, right, top, bottom))
    around, mask = [top, left] if even else [0, 0], [*wanted, False]
    arguments = dy, planes, filters, None, stride, around, dilation
    dx, dw, _ = torch.ops.aten.convolution_backward(
        *arguments, transposed=False, output_padding=[0, 0], groups=groups, output_mask=mask
    )
    if dx is not None:
        inner = dx if even else dx[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        dx = in_memory_as(dy, inner.contiguous())
    return dx, None if dw is None else dw.contiguous()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, filters, bias, *ctx.arguments, relu, precision = inputs
    ctx.arguments.append(precision)
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, filters, output if relu else None)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    """The gradients of x, filters and bias that are needed."""
    x, filters, output = ctx.saved_tensors
    of_x, of_filters, of_bias, *_ = ctx.needs_input_grad
    if output is not None:
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
    return (
        dgrad(grad, filters, x.shape[2:], *ctx.arguments) if of_x else None,
        wgrad(x, grad, filters.shape[2:], *ctx.arguments) if of_filters else None,
        bias_gradient(grad, ctx.arguments[-1]) if ctx.has_bias and of_bias else None,
        *(None,) * 6,
    )


def _refuse(ctx: Any, *grads: torch.Tensor) -> None:
    raise RuntimeError(
        "alexconv.conv2d has no second derivatives: for a gradient of its gradients use torch.nn.functional.conv2d"
    )


operator.register_autograd(_gradients, setup_context=_keep)
for once_differentiable in (dgrad, wgrad, bias_gradient):
    once_differentiable.register_autograd(_refuse)


def of_class(values: Any, precision: str) -> Any:
    """A floating-point tensor in a class's type, as torch.autocast converts its own convolution's tensors."""
    dtype = getattr(torch, PRECISIONS[precision].dtype)
    return values.to(dtype) if isinstance(values, torch.Tensor) and values.is_floating_point() else values


def has_tangent(values: Any) -> bool:
    """Whether an array is a tensor whose derivative torch computes forward."""
    return isinstance(values, torch.Tensor) and forward_ad.unpack_dual(values).tangent is not None


def convolve(x: Any, filters: Any, bias: Any, out: Any, terms: Terms, residual: Any = None) -> Any:
    """The operator, for calls that are traced, cast or need gradients; raises ValueError with ``out``.

    Residuals, and activations other than ReLU, are torch's own, so that their gradients are.
    """
    if out is not None:
        raise ValueError("out is not supported for tensors that require gradients, in compiled functions or autocast")
    if forward_ad._current_level >= 0 and any(map(has_tangent, (x, filters, bias))):
        raise RuntimeError("alexconv.conv2d has no forward-mode gradients: use torch.nn.functional.conv2d")
    if torch.is_autocast_enabled(x.device.type):
        arrays = x, filters, bias, residual
        x, filters, bias, residual = (of_class(values, terms.precision) for values in arrays)
    turned = x.permute(TO_NCHW) if terms.layout == "nhwc" else x
    padding = explicit_padding(terms, turned.shape[2:], filters.shape[2:])
    if not torch.compiler.is_compiling() and is_plain(turned) and turned.is_cuda and torch.is_grad_enabled():
        wanted = turned.requires_grad, filters.requires_grad
        gradients.start(turned, filters, wanted, terms._replace(layout="nchw", padding=padding))
    y = operator(
        turned,
        filters,
        bias,
        list(terms.stride),
        list(padding),
        list(terms.dilation),
        terms.groups,
        terms.activation == RELU and residual is None,
        terms.precision,
    )
    y = y.permute(TO_NHWC) if terms.layout == "nhwc" else y
    if residual is not None:
        y = y + residual
    elif terms.activation == RELU:
        return y
    return y if terms.activation is None else getattr(torch.nn.functional, terms.activation)(y)
