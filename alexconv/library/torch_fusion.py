"""Fuses batch norms and ReLUs into the convolutions of a torch model that they follow: batch norms are folded into
filters and bias.  For inference only.

Which module follows which comes from a ``torch.fx`` trace.  Imported only in a process that has torch.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_weights


@dataclass(frozen=True)
class Followers:
    """The modules fused into a convolution: a batch norm, then a ReLU."""

    norm: nn.BatchNorm2d | None = None
    relu: nn.ReLU | None = None


class Untraceable(Exception):
    """A model that cannot be traced; the message says why."""


def followers(model: nn.Module, convolutions: Iterable[nn.Module]) -> dict[nn.Module, Followers]:
    """The operations that can be fused with each of these convolutions of the model, where there are any.

    Raises Untraceable.
    """
    try:
        graph = torch.fx.Tracer().trace(model)
    except Exception as error:  # whatever the model's code raises on proxies without values
        raise Untraceable(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}") from None
    modules = {node: model.get_submodule(node.target) for node in graph.nodes if node.op == "call_module"}
    calls: dict[nn.Module, list[Any]] = defaultdict(list)
    for node, module in modules.items():
        calls[module].append(node)

    def next_of(node: Any, kind: type) -> Any | None:
        """The only user of a node's output, if it calls a module of that kind."""
        user = next(iter(node.users)) if len(node.users) == 1 else None
        return user if user in modules and type(modules[user]) is kind and not hooked(modules[user]) else None

    norms, relus = {}, {}  # nodes by convolution
    for layer in convolutions:
        if len(calls[layer]) == 1:
            (last,) = calls[layer]
            norm = next_of(last, nn.BatchNorm2d)
            if norm is not None and len(calls[modules[norm]]) == 1 and foldable(modules[norm]):
                norms[layer] = last = norm
            if (relu := next_of(last, nn.ReLU)) is not None:
                relus[layer] = relu
    taken = set(relus.values())
    fusions = {}
    for layer in dict.fromkeys((*norms, *relus)):
        norm, relu = (modules[nodes[layer]] if layer in nodes else None for nodes in (norms, relus))
        if relu is not None and not taken.issuperset(calls[relu]):
            relu = None  # others use it, too
        if norm is not None or relu is not None:
            fusions[layer] = Followers(norm, relu)
    return fusions


def foldable(norm: nn.BatchNorm2d) -> bool:
    """Whether a batch norm is affine, with known coefficients."""
    return not norm.training and norm.running_mean is not None and norm.running_var is not None


def hooked(module: nn.Module) -> bool:
    """Whether a module has hooks, its own forward or parametrizations."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or torch.nn.utils.parametrize.is_parametrized(module)
        or "forward" in vars(module)
    )


def folded(layer: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[nn.Parameter, nn.Parameter]:
    """Filters and bias of a convolution with a batch norm folded in, computed in float64."""
    parameters = layer.weight, layer.bias, norm.running_mean, norm.running_var
    weight, bias, mean, variance = (None if values is None else values.detach().double() for values in parameters)
    gamma, beta = (None if values is None else values.detach().double() for values in (norm.weight, norm.bias))
    fused = fuse_conv_bn_weights(weight, bias, mean, variance, norm.eps, gamma, beta)
    dtype, trainable = layer.weight.dtype, layer.weight.requires_grad
    filters, fused_bias = (nn.Parameter(values.detach().to(dtype), requires_grad=trainable) for values in fused)
    return filters, fused_bias


def remove(model: nn.Module, done: Iterable[nn.Module]) -> list[str]:
    """Replaces these modules by ``nn.Identity``; returns their names in the model."""
    wanted, names = set(done), []
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module in wanted:
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, nn.Identity())
            names.append(name)
    return names
