"""Convolutions for torch: the operator ``alexconv::conv2d``, and models whose convolutions are replaced.

The operator has a fake kernel, so ``torch.compile`` and ``torch.export`` trace it, and gradients: those of torch's own
convolution (``aten::convolution_backward``, which is cuDNN's on a GPU), at torch's precision settings.  Imported only
in a process that has torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from alexconv.library import convolution
from alexconv.library.arrays import TO_NCHW, TO_NHWC
from alexconv.library.calls import DTYPES
from alexconv.library.terms import RELU, Terms, explicit_padding, one_of, terms_of
from alexconv.library.torch_fusion import Followers, Untraceable, folded, followers, hooked, remove
from alexconv.messages import print_to_stderr

NAME = "alexconv::conv2d"
TORCHS = {name: getattr(torch, dtype.name) for name, dtype in DTYPES.items()}


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
    operation = convolution.operation_of(
        *(tuple(stride), tuple(padding), precision, "nchw", "auto"), RELU if relu else None, tuple(dilation), groups
    )
    with torch.no_grad():
        y: torch.Tensor = operation(x.detach(), None, filters.detach(), None if bias is None else bias.detach())
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
    rows, columns = (
        (size + before + after - (taps - 1) * apart - 1) // step + 1
        for size, before, after, taps, apart, step in zip(
            *(x.shape[2:], (top, left), (bottom, right), filters.shape[2:], dilation, stride), strict=True
        )
    )
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    y = x.new_empty((x.shape[0], filters.shape[0], rows, columns))
    return y.contiguous(memory_format=torch.channels_last) if last else y


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
    gradients = torch.ops.aten.convolution_backward(
        *(grad, planes, filters, [filters.shape[0]] if ctx.has_bias else None),
        *(stride, [top, left] if even else [0, 0], dilation, False, [0, 0], groups),
        [ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.has_bias and ctx.needs_input_grad[2]],
    )
    of_x, of_filters, of_bias = gradients
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
        *(turned, filters, bias, list(terms.stride), list(padding), list(terms.dilation)),
        *(terms.groups, terms.relu, terms.precision),
    )
    return y.permute(TO_NHWC) if terms.layout == "nhwc" else y


class PatchedConv2d(torch.nn.Module):  # type: ignore[misc]
    """The replacement of a ``torch.nn.Conv2d``: the same parameters, computed by ``alexconv`` in a precision.

    A batch norm after the layer is folded into its parameters, a ReLU is applied to its output.  Where gradients are
    required or a graph is traced, it calls the operator ``alexconv::conv2d``.  Else its filters are prepared for a rung
    once, and again after they change in place or move.
    """

    def __init__(self, layer: torch.nn.Conv2d, precision: str, after: Followers = Followers()) -> None:  # noqa: B008
        super().__init__()
        self.weight, self.bias = folded(layer, after.norm) if after.norm else (layer.weight, layer.bias)
        self.precision, self.activation = precision, RELU if after.relu else None
        activation, padding = self.activation, layer.padding
        self.terms = terms_of(*(layer.stride, padding, precision, "nchw", layer.dilation, layer.groups, activation))
        self._kept: convolution.Conv2d | None = None
        self._versions: tuple[Any, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution, of a tensor of the precision's type."""
        weight, bias = self.weight, self.bias
        asked = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        if torch.compiler.is_compiling() or asked:
            y: torch.Tensor = convolve(x, weight, bias, None, self.terms)
            return y
        versions = version(weight), version(bias)
        if self._kept is None or versions != self._versions:
            terms = self.terms
            self._versions = versions
            self._kept = convolution.Conv2d(
                *(weight.detach(), terms.stride, terms.padding, terms.precision),
                bias=None if bias is None else bias.detach(),
                activation=self.activation,
                dilation=terms.dilation,
                groups=terms.groups,
            )
        found: torch.Tensor = self._kept(x)
        return found

    def extra_repr(self) -> str:
        """Its shape and precision."""
        M, C, R, S = self.weight.shape
        shape = f"{C * self.terms.groups}, {M}, kernel_size=({R}, {S})"
        return f"{shape}, precision={self.precision}" + (f", activation={self.activation}" if self.activation else "")


def version(parameter: torch.Tensor | None) -> tuple[int, int] | None:
    """A value that changes when a parameter or its memory does."""
    if parameter is None:
        return None
    return parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version


@dataclass(frozen=True)
class Patched:
    """The result of ``patch``: names of the layers replaced, and of those left, with the reason.

    ``fused`` are the batch norms and ReLUs fused into a convolution, ``unfused`` the others, with the reason.
    """

    replaced: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    fused: tuple[str, ...] = ()
    unfused: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} convolutions replaced, {len(self.left)} left alone"]
        lines += [f"  {name}: {reason}" for name, reason in self.left]
        if self.fused or self.unfused:
            lines += [f"{len(self.fused)} batch norms and ReLUs computed with them, {len(self.unfused)} left alone"]
            lines += [f"  {name}: {reason}" for name, reason in self.unfused]
        return "\n".join(lines)


def patch(
    model: torch.nn.Module, precision: str = "fp32", *, fuse: bool = False, say: Callable[[str], None] = print_to_stderr
) -> Patched:
    """Replaces a model's ``nn.Conv2d`` layers in place by alexconv's, where the results are equivalent.

    ``precision`` is as in ``conv2d``; parameters must have its type.  ``fuse``, for a model in evaluation mode that is
    not trained further, also folds a BatchNorm2d after a replaced layer into its filters and bias, and fuses a ReLU;
    ``nn.Identity`` takes their places.  Returns, and prints, what was replaced and what was not, with the reason.

    Raises ValueError for an unknown precision, for a model that is itself a convolution, whose place is not known, and
    with ``fuse`` for one in training mode.
    """
    one_of(precision, "precision", DTYPES)
    if type(model) is torch.nn.Conv2d:
        raise ValueError("model is a convolution itself: patch the module that contains it, or use alexconv.Conv2d")
    if fuse and model.training:
        raise ValueError("fuse=True is for inference, the model is in training mode: call model.eval() first")
    fit, left = [], []
    for owner, attribute, name, layer in list(_layers(model)):
        if reason := _unfit(layer, precision):
            left.append((name, reason))
        else:
            fit.append((owner, attribute, name, layer))
    after, why = _followers(model, [layer for *_, layer in fit]) if fuse else ({}, "")
    made: dict[int, PatchedConv2d] = {}  # a layer in two places stays one
    for owner, attribute, _, layer in fit:
        if id(layer) not in made:
            made[id(layer)] = PatchedConv2d(layer, precision, after.get(layer, Followers())).train(layer.training)
        setattr(owner, attribute, made[id(layer)])
    done = [each for found in after.values() for each in (found.norm, found.relu) if each is not None]
    fused = remove(model, done)
    unfused = [
        (name, why)
        for name, module in model.named_modules()
        if fuse and isinstance(module, torch.nn.BatchNorm2d | torch.nn.ReLU)
    ]
    found = Patched(tuple(name for *_, name, _ in fit), tuple(left), tuple(fused), tuple(unfused))
    say(str(found))
    return found


def _followers(model: torch.nn.Module, layers: list[Any]) -> tuple[dict[Any, Followers], str]:
    """What is fused into each of the layers, and why the rest is not."""
    try:
        return followers(model, layers), "does not only follow replaced convolutions"
    except Untraceable as error:
        return {}, f"is in a model that cannot be traced ({error})"


def _layers(owner: torch.nn.Module, prefix: str = "") -> Iterator[tuple[torch.nn.Module, str, str, torch.nn.Module]]:
    """Each convolution with its parent module, its attribute there, and its name in the model."""
    for attribute, layer in owner._modules.items():
        if isinstance(layer, torch.nn.modules.conv._ConvNd):
            yield owner, attribute, prefix + attribute, layer
        elif layer is not None:
            yield from _layers(layer, f"{prefix}{attribute}.")


def _unfit(layer: Any, precision: str) -> str | None:
    """Why a layer stays as it is, or None."""
    kind = type(layer)
    if kind is not torch.nn.Conv2d:
        return f"is a {kind.__name__}, not a Conv2d"
    if layer.padding_mode != "zeros":
        return f"pads with mode {layer.padding_mode!r}"
    if layer.weight.dtype != TORCHS[precision]:
        return f"has parameters of {layer.weight.dtype}, precision {precision} takes {TORCHS[precision]}"
    if torch.nn.utils.parametrize.is_parametrized(layer):
        return "has parameters that are computed (parametrizations)"
    if hooked(layer):
        return "has hooks or its own forward"
    return None
