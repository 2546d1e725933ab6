"""Models of torch whose convolutions are replaced by alexconv's.  Imported only in a process that has torch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from alexconv.library.arrays import TO_NCHW, TO_NHWC
from alexconv.library.convolution import Conv2d
from alexconv.library.operation import observed
from alexconv.library.terms import explicit_padding, one_of, terms_of
from alexconv.library.torch_fusion import (
    Rewriting,
    Untraceable,
    copied_into,
    foldable_norms,
    folded,
    hooked,
    new_array,
    placed_copy,
    replace_by_identity,
    traced,
)
from alexconv.library.torch_operator import convolve
from alexconv.library.torch_pixels import Derived, activated, needs_grad, takes
from alexconv.messages import print_to_stderr
from alexconv.precisions import PRECISIONS


class PatchedConv2d(torch.nn.Module):  # type: ignore[misc]
    """The replacement of a ``torch.nn.Conv2d``: the same parameters, computed by ``alexconv`` in a precision.

    A batch norm after the layer is folded into its parameters.  Where gradients are required or a graph is traced, it
    calls the operator ``alexconv::conv2d``.  Else its filters are prepared for a rung once, and again after they change
    in place or move.
    """

    def __init__(self, layer: torch.nn.Conv2d, precision: str, norm: torch.nn.BatchNorm2d | None = None) -> None:
        super().__init__()
        self.__dict__.update({name: getattr(layer, name) for name in layer.__constants__})  # sizes that models read
        self.weight, self.bias = folded(layer, norm) if norm else (layer.weight, layer.bias)
        self.precision = precision
        self.terms = terms_of(layer.stride, layer.padding, precision, "nchw", layer.dilation, layer.groups)
        self._layers = Derived()  # by activation

    def forward(
        self,
        input: torch.Tensor,
        residual: torch.Tensor | None = None,
        activation: str | None = None,
        place: tuple[int, int] | None = None,
        out: torch.Tensor | None = None,
        planes: bool = False,
    ) -> torch.Tensor:
        """The convolution, of a tensor of the precision's type, plus ``residual``, and the activation of that.

        In ``out`` if given; ``place``: as a slice of a new array, of its channels and its first one in that;
        ``planes``: in nchw, whatever x is, of floats, since rungs for few channels of these store planes.
        """
        x = input
        if x.dim() == 3 and place is out is None:  # an image without a batch
            y: torch.Tensor = self(x[None])[0]
            return activated(y if residual is None else y + residual, activation)
        if residual is not None and not (
            isinstance(residual, torch.Tensor) and residual.dtype == x.dtype and residual.shape == self.y_shape(x)
        ):
            return self._stored(activated(self(x) + residual, activation), place, out)
        weight, bias = self.weight, self.bias
        observed_or_cast = observed(torch) or torch.is_autocast_enabled(x.device.type)
        if observed_or_cast or needs_grad(x, weight, bias, residual):
            y = convolve(x, weight, bias, None, self.terms._replace(activation=activation), residual)
            return self._stored(y, place, out)
        if place is not None:
            channels, start = place
            N, M, E, F = self.y_shape(x)
            out = new_array(x, (N, channels, E, F)).narrow(1, start, M)
        elif planes and out is None and x.dtype == torch.float32 and x.is_cuda:
            out = torch.empty(self.y_shape(x), dtype=x.dtype, device=x.device)
        output: torch.Tensor = self._layer(activation)(x, out, residual)
        return output

    def _layer(self, activation: str | None) -> Conv2d:
        """The layer with an activation and its filters as they are now."""
        weight, bias, terms = self.weight, self.bias, self.terms
        layers: dict[str | None, Conv2d] = self._layers.value((weight, bias), dict)
        if activation not in layers:
            layers[activation] = Conv2d(
                weight.detach(),
                terms.stride,
                terms.padding,
                terms.precision,
                bias=None if bias is None else bias.detach(),
                activation=activation,
                dilation=terms.dilation,
                groups=terms.groups,
            )
        return layers[activation]

    @staticmethod
    def _stored(y: torch.Tensor, place: tuple[int, int] | None, out: torch.Tensor | None) -> torch.Tensor:
        """An output where a call wants it."""
        return placed_copy(y, *place) if place is not None else copied_into(out, y)

    def y_shape(self, x: torch.Tensor) -> tuple[int, int, int, int]:
        """The output's shape."""
        terms, (M, _, R, S) = self.terms, self.weight.shape
        top, bottom, left, right = explicit_padding(terms, x.shape[2:], (R, S))
        rows = (x.shape[2] + top + bottom - (R - 1) * terms.dilation[0] - 1) // terms.stride[0] + 1
        columns = (x.shape[3] + left + right - (S - 1) * terms.dilation[1] - 1) // terms.stride[1] + 1
        return x.shape[0], M, rows, columns

    def extra_repr(self) -> str:
        """Its shape and precision."""
        M, C, R, S = self.weight.shape
        return f"{C * self.terms.groups}, {M}, kernel_size=({R}, {S}), precision={self.precision}"


class PatchedLinear(torch.nn.Linear):  # type: ignore[misc]
    """A linear layer over the channels of pixels, ``[N][H][W][C]``: a convolution of one tap, by ``alexconv``.

    It shares the state of the layer that it replaces, and computes other tensors, or with gradients, as that does.
    """

    precision: str
    _layers: Derived

    def forward(
        self,
        x: torch.Tensor,
        activation: str | None = None,
        residual: torch.Tensor | None = None,
        scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The activation of the layer's output, ``[N][E][F][M]``; or with ``residual`` the sum, both ``[N][M][E][F]``.

        ``scale``: ``[M][1][1]``, factors of the outputs before that.
        """
        inputs = (x,) if residual is None else (x, residual)
        y_shape = len(x), self.out_features, *x.shape[1:-1]
        dtype = getattr(torch, PRECISIONS[self.precision].dtype)
        if (
            takes(*inputs)
            and x.is_contiguous()
            and (residual is None or residual.shape == y_shape)
            and not needs_grad(self.weight, self.bias, scale)
            and all(tensor.dtype == dtype for tensor in (*inputs, self.weight))
        ):
            y: torch.Tensor = self._layer(activation, scale)(x.permute(TO_NCHW), None, residual)
            return y.permute(TO_NHWC) if residual is None else y
        y = activated(super().forward(x), activation)
        if residual is None:
            return y
        y = y.permute(TO_NCHW)
        return residual + (y if scale is None else scale * y)

    def _layer(self, activation: str | None, scale: torch.Tensor | None) -> Conv2d:
        """The convolution with an activation, and its filters as they are now."""
        layers: dict[str | None, Conv2d] = self._layers.value((self.weight, self.bias, scale), dict)
        if activation not in layers:
            factors = 1 if scale is None else scale.detach().flatten()
            bias = None if self.bias is None else self.bias.detach() * factors
            filters = (self.weight.detach().T * factors).T[:, :, None, None].contiguous()
            layers[activation] = Conv2d(filters, precision=self.precision, bias=bias, activation=activation)
        return layers[activation]

    @classmethod
    def of(cls, layer: torch.nn.Linear, precision: str) -> "PatchedLinear":
        """The replacement of a layer, with the same state."""
        replacement: PatchedLinear = object.__new__(cls)
        replacement.__dict__ = layer.__dict__
        replacement.__dict__.update(precision=precision, _layers=Derived())
        return replacement


FOLLOWERS = torch.nn.BatchNorm2d, torch.nn.ReLU, torch.nn.ReLU6, torch.nn.SiLU  # named where they are left


@dataclass(frozen=True)
class Patched:
    """The result of ``patch``: names of the layers replaced, and of those left, with the reason.

    ``fused`` are the batch norms, activations, additions and concatenations that convolutions compute: modules, and
    nodes of the model's graph that call functions.  ``unfused`` are other batch norms and activations, with the reason.
    ``own`` are other batch norms, gates, pooling layers, and linear layers over pixels, which have kernels of their own
    for channels_last.
    """

    replaced: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    fused: tuple[str, ...] = ()
    unfused: tuple[tuple[str, str], ...] = ()
    own: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} convolutions replaced, {len(self.left)} left alone"]
        lines += [f"  {name}: {reason}" for name, reason in self.left]
        if self.fused or self.unfused:
            what = "batch norms, activations, additions and concatenations"
            lines += [f"{len(self.fused)} {what} computed with them, {len(self.unfused)} left alone"]
            lines += [f"  {name}: {reason}" for name, reason in self.unfused]
        if self.own:
            lines += [f"{len(self.own)} other layers, gates and activations have kernels for channels_last"]
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
    gradients of the same class.  ``fuse``, for a model in evaluation mode that is not trained further, also folds a
    BatchNorm2d after a replaced layer into its filters and bias, and ``nn.Identity`` takes its place; and replaces the
    model's ``forward`` by one in which layers compute the additions, activations and concatenations after them.
    Returns, and prints, what was replaced and what was not, with the reason.

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
    graph, norms, why = _traced(model, [layer for *_, layer in fit]) if fuse else (None, {}, "")
    replacements: dict[int, PatchedConv2d] = {}  # a layer in two places stays one
    for owner, attribute, _, layer in fit:
        if id(layer) not in replacements:
            replacements[id(layer)] = PatchedConv2d(layer, precision, norms.get(layer)).train(layer.training)
        setattr(owner, attribute, replacements[id(layer)])
    fused, remaining = replace_by_identity(model, set(norms.values())), set()
    own: list[str] = []
    if graph is not None:
        rewriting = Rewriting(graph, model, PatchedConv2d, lambda layer: PatchedLinear.of(layer, precision))
        rewriting.rewrite()
        rewriting.install()
        fused += rewriting.fused
        own = rewriting.own
        remaining = rewriting.called_modules()
    unfused = [
        (name, why)
        for name, module in model.named_modules()
        if fuse and (name in remaining or name not in fused) and isinstance(module, FOLLOWERS) and name not in own
    ]
    result = Patched(tuple(name for *_, name, _ in fit), tuple(left), tuple(fused), tuple(unfused), tuple(own))
    say(str(result))
    return result


def _traced(model: torch.nn.Module, layers: list[Any]) -> tuple[Any, dict[Any, Any], str]:
    """The model's graph, the batch norms to fold by layer, and why others are left."""
    try:
        graph = traced(model)
    except Untraceable as error:
        return None, {}, f"is in a model that cannot be traced ({error})"
    return graph, foldable_norms(graph, model, layers), "does not only follow replaced convolutions"


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
