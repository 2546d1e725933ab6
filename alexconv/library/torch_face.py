"""Models of torch whose convolutions are replaced by alexconv's.  Imported only in a process that has torch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from alexconv.library.convolution import Conv2d
from alexconv.library.terms import RELU, one_of, terms_of
from alexconv.library.torch_fusion import Followers, Untraceable, folded, followers, hooked, remove
from alexconv.library.torch_operator import convolve
from alexconv.messages import print_to_stderr
from alexconv.precisions import PRECISIONS


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
        self.terms = terms_of(
            layer.stride, layer.padding, precision, "nchw", layer.dilation, layer.groups, self.activation
        )
        self._fixed: Conv2d | None = None
        self._versions: tuple[Any, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The convolution, of a tensor of the precision's type."""
        weight, bias = self.weight, self.bias
        needs_grad = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        if torch.compiler.is_compiling() or needs_grad or torch.is_autocast_enabled(x.device.type):
            y: torch.Tensor = convolve(x, weight, bias, None, self.terms)
            return y
        versions = version(weight), version(bias)
        if self._fixed is None or versions != self._versions:
            terms = self.terms
            self._versions = versions
            self._fixed = Conv2d(
                weight.detach(),
                terms.stride,
                terms.padding,
                terms.precision,
                bias=None if bias is None else bias.detach(),
                activation=self.activation,
                dilation=terms.dilation,
                groups=terms.groups,
            )
        output: torch.Tensor = self._fixed(x)
        return output

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
    model: torch.nn.Module,
    precision: str = "fp32",
    *,
    fuse: bool = False,
    autocast: bool = False,
    say: Callable[[str], None] = print_to_stderr,
) -> Patched:
    """Replaces a model's ``nn.Conv2d`` layers in place by alexconv's, where the results are equivalent.

    ``precision`` is as in ``conv2d``; parameters must have its type, but for ``autocast``, which is for a model that
    runs under ``torch.autocast``: convolutions then cast them in each call.  The model trains as before, with
    gradients of the same class.  ``fuse``, for a model in evaluation mode that is
    not trained further, also folds a BatchNorm2d after a replaced layer into its filters and bias, and fuses a ReLU;
    ``nn.Identity`` takes their places.  Returns, and prints, what was replaced and what was not, with the reason.

    Raises ValueError for an unknown precision, for a model that is itself a convolution, whose place is not known, and
    with ``fuse`` for one in training mode.
    """
    one_of(precision, "precision", PRECISIONS)
    if type(model) is torch.nn.Conv2d:
        raise ValueError("model is a convolution itself: patch the module that contains it, or use alexconv.Conv2d")
    if fuse and model.training:
        raise ValueError("fuse=True is for inference, the model is in training mode: call model.eval() first")
    fit, left = [], []
    for owner, attribute, name, layer in list(_layers(model)):
        if reason := _unfit(layer, precision, autocast=autocast):
            left.append((name, reason))
        else:
            fit.append((owner, attribute, name, layer))
    after, why = _followers(model, [layer for *_, layer in fit]) if fuse else ({}, "")
    replacements: dict[int, PatchedConv2d] = {}  # a layer in two places stays one
    for owner, attribute, _, layer in fit:
        if id(layer) not in replacements:
            replacement = PatchedConv2d(layer, precision, after.get(layer, Followers()))
            replacements[id(layer)] = replacement.train(layer.training)
        setattr(owner, attribute, replacements[id(layer)])
    fused_modules = [module for chain in after.values() for module in (chain.norm, chain.relu) if module is not None]
    fused = remove(model, fused_modules)
    unfused = [
        (name, why)
        for name, module in model.named_modules()
        if fuse and isinstance(module, torch.nn.BatchNorm2d | torch.nn.ReLU)
    ]
    result = Patched(tuple(name for *_, name, _ in fit), tuple(left), tuple(fused), tuple(unfused))
    say(str(result))
    return result


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


def _unfit(layer: Any, precision: str, *, autocast: bool) -> str | None:
    """Why a layer stays as it is, or None."""
    kind = type(layer)
    if kind is not torch.nn.Conv2d:
        return f"is a {kind.__name__}, not a Conv2d"
    if layer.padding_mode != "zeros":
        return f"pads with mode {layer.padding_mode!r}"
    wanted = getattr(torch, PRECISIONS[precision].dtype)
    if layer.weight.dtype != wanted and not autocast:
        return f"has parameters of {layer.weight.dtype}, precision {precision} takes {wanted}"
    if torch.nn.utils.parametrize.is_parametrized(layer):
        return "has parameters that are computed (parametrizations)"
    if hooked(layer):
        return "has hooks or its own forward"
    return None
