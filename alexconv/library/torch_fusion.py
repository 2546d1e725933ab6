"""Rewrites a torch model's ``torch.fx`` graph so that its convolutions compute what follows them.  For inference only.

A batch norm is folded into filters and bias.  An activation, and an addition of another tensor before it, become
arguments of the convolution's call.  Outputs that are concatenated are written where the concatenation wants them: the
first of them allocates its array, and the others are slices of it.  Imported only in a process that has torch.
"""

import inspect
import operator
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

from alexconv.library.operation import observed
from alexconv.library.terms import GELU, RELU, RELU6, SILU
from alexconv.library.torch_pixels import (
    PATCHES,
    PatchedMaxPool,
    PatchedNorm,
    averaged,
    gated,
    is_channels_last,
    needs_grad,
    normalized,
    patched,
)


def in_place(name: str) -> Callable[[Any, Any], Any]:
    """A function that applies an operator in place."""

    def changed(left: Any, right: Any) -> Any:
        return getattr(operator, name)(left, right)

    changed.__name__ = name
    return changed


# Activations by the type of a module, by function, and by the name of a tensor's method.
ACTIVATIONS: dict[Any, str] = {
    **dict.fromkeys((nn.ReLU, torch.relu, torch.relu_, functional.relu, functional.relu_, "relu", "relu_"), RELU),
    **dict.fromkeys((nn.ReLU6, functional.relu6), RELU6),
    **dict.fromkeys((nn.SiLU, functional.silu), SILU),
}
ADDITIONS = {operator.add, torch.add, "add"}
# Operators in place, not by their own names: as those fx prints statements, which change all names of a number.
IN_PLACE = {name: in_place(name) for name in ("iadd", "isub", "imul", "itruediv")}
ADDITIONS_IN_PLACE = {IN_PLACE["iadd"], "add_"}
CONCATENATIONS = {torch.cat, torch.concat}
SIGMOIDS = {nn.Sigmoid, torch.sigmoid, functional.sigmoid, "sigmoid"}
PERMUTATIONS = {torch.permute, "permute"}
PRODUCTS = {operator.mul, torch.mul, "mul"}
KEEP_CHANNELS = (nn.MaxPool2d, nn.AvgPool2d, nn.ReLU, nn.ReLU6, nn.SiLU, nn.Identity, nn.Dropout)
# Functions of torch that pixels.cu computes.
FUNCTIONS = {functional.adaptive_avg_pool2d: averaged, functional.layer_norm: normalized}
FEW_CHANNELS = 4  # of an image
DROPOUTS = (nn.Dropout, nn.Dropout2d)  # which return their input in evaluation
STOCHASTIC_DEPTH = "stochastic_depth"  # torchvision's function, which returns its input in evaluation


class Untraceable(Exception):
    """A model that cannot be traced; the message says why."""


def traced(model: nn.Module) -> torch.fx.Graph:
    """The model's graph; raises Untraceable."""
    if "forward" in vars(model):  # a trace is of its class's
        raise Untraceable("it has its own forward")
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.default is None:  # what a trace takes for a tensor
            raise Untraceable(f"its argument {name} may be None")
    random = torch.get_rng_state()
    try:
        graph = Tracer().trace(model)
    except Exception as error:  # whatever the model's code raises on proxies without values
        raise Untraceable(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}") from None
    if not torch.equal(random, torch.get_rng_state()):
        raise Untraceable("it draws random numbers")
    for node in graph.nodes:
        if node.op == "call_module" and not node.args and "input" in node.kwargs:
            rest = dict(node.kwargs)
            node.args, node.kwargs = (rest.pop("input"),), rest
    return graph


class Tracer(torch.fx.Tracer):  # type: ignore[misc]
    """torch's, which also sees buffers and changes in place, and calls modules with hooks as they are."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        """Whether the graph calls a module, rather than what that calls."""
        return hooked(module) or super().is_leaf_module(module, name)

    def create_arg(self, a: Any) -> Any:
        """An argument of a node; torch's makes a dict of an OrderedDict."""
        if type(a) is OrderedDict:
            return self.create_node("call_function", OrderedDict, (self.create_arg([*a.items()]),), {})
        return super().create_arg(a)

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        """The proxy of a node's value."""
        return InPlaceProxy(node, self)


class InPlaceProxy(torch.fx.Proxy):  # type: ignore[misc]
    """A proxy by which ``y += x`` changes y; by torch's it becomes ``y + x``."""

    def __iadd__(self, other: Any) -> torch.fx.Proxy:
        return self.changed("iadd", other)

    def __isub__(self, other: Any) -> torch.fx.Proxy:
        return self.changed("isub", other)

    def __imul__(self, other: Any) -> torch.fx.Proxy:
        return self.changed("imul", other)

    def __itruediv__(self, other: Any) -> torch.fx.Proxy:
        return self.changed("itruediv", other)

    def changed(self, name: str, other: Any) -> torch.fx.Proxy:
        """The proxy after an operator in place."""
        return self.tracer.create_proxy("call_function", IN_PLACE[name], (self, other), {})


def foldable_norms(graph: torch.fx.Graph, model: nn.Module, layers: Iterable[nn.Module]) -> dict[nn.Module, Any]:
    """The batch norm that only follows each of these layers, where there is one with known coefficients."""
    modules = called(graph, model)
    read = {model.get_submodule(node.target.rpartition(".")[0]) for node in graph.nodes if node.op == "get_attr"}
    calls, wanted = Counter(modules.values()), set(layers) - read
    norms = {}
    for node, module in modules.items():
        norm: Any = modules.get(only_user(node))
        if module in wanted and calls[module] == 1 and type(norm) is nn.BatchNorm2d and calls[norm] == 1:
            known = not norm.training and norm.running_mean is not None and norm.running_var is not None
            if known and norm not in read and not hooked(norm):
                norms[module] = norm
    return norms


def called(graph: torch.fx.Graph, model: nn.Module) -> dict[Any, nn.Module]:
    """The module that each node calls, of those that call one."""
    return {node: model.get_submodule(node.target) for node in graph.nodes if node.op == "call_module"}


def only_user(node: Any) -> Any | None:
    """The only node that uses a node's output, once."""
    user = next(iter(node.users), None) if len(node.users) == 1 else None
    return user if user is not None and user.all_input_nodes.count(node) == 1 else None


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


@dataclass
class Rewriting:
    """A graph whose layers of the type ``patched`` take ``residual``, ``activation``, ``place`` and ``out``.

    ``linear`` returns the replacement of a linear layer, which takes ``activation``, or ``residual`` and ``scale``.

    ``fused`` names what they now compute: modules, and nodes of the graph that call functions; ``own`` what pixels.cu
    computes.
    """

    graph: torch.fx.Graph
    model: nn.Module
    patched: type
    linear: Callable[[Any], nn.Module]
    fused: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)

    def rewrite(self) -> None:
        """Moves what follows layers into their calls."""
        self._erase_nothings()
        for node in [node for node, module in called(self.graph, self.model).items() if self._is_layer(module)]:
            self._absorb(node)
        for family in self._families():
            self._join(family)
        for node in list(self.graph.nodes):
            self._give_kernel(node)
        for node in list(self.graph.nodes):
            if self._kind(node) is nn.Linear:
                self._absorb_linear(node)
            elif isinstance(module := self._module(node), PatchedMaxPool) and not module.return_indices:
                self._leave_planes(node)
        self.graph.lint()

    def install(self) -> None:
        """Makes the graph the model's ``forward``."""
        module = torch.fx.GraphModule(self.model, self.graph)
        vars(self.model)["forward"] = MethodType(type(module).forward, self.model)  # of its modules and buffers of then

    def called_modules(self) -> set[str]:
        """The names of the modules that the graph calls."""
        return {str(node.target) for node in self.graph.nodes if node.op == "call_module"}

    def _is_layer(self, module: nn.Module | None) -> bool:
        return isinstance(module, self.patched)

    def _module(self, node: Any) -> nn.Module | None:
        return self.model.get_submodule(node.target) if node.op == "call_module" else None

    def _name(self, node: Any) -> str:
        return str(node.target) if node.op == "call_module" else str(node.name)

    def _kind(self, node: Any) -> Any:
        """What a node calls, as the tables above name it; None where hooks watch it."""
        module = self._module(node)
        if module is None:
            return node.target if node.op in ("call_function", "call_method") else None
        return None if hooked(module) else type(module)

    def _erase_nothings(self) -> None:
        """Removes calls that return their input."""
        for node in list(self.graph.nodes):
            module: Any = self._module(node)
            nothing = self._kind(node) is nn.Identity or (self._kind(node) in DROPOUTS and not module.training)
            if getattr(node.target, "__name__", "") == STOCHASTIC_DEPTH:
                nothing = not (node.kwargs.get("training", node.args[3] if len(node.args) > 3 else True))
            parts = self._tensors(node)
            if len(parts) == 1 and not self._changed_between(node):
                node.replace_all_uses_with(parts[0])
                self.graph.erase_node(node)
            elif nothing and node.args:
                node.replace_all_uses_with(node.args[0])
                self.graph.erase_node(node)

    def _absorb(self, node: Any) -> None:
        """Moves an addition and an activation that follow a layer into its call."""
        last, arguments, residual = node, {}, None
        addition = only_user(node)
        if addition is not None and (residual := self._addend(addition, node)) is not None:
            last, arguments["residual"] = addition, residual
        following = only_user(last)
        if following is not None and (name := ACTIVATIONS.get(self._kind(following))):
            last, arguments["activation"] = following, name
        if last is node or self._changed_between(node, last, [addition] if residual is not None else []):
            return
        with self.graph.inserting_before(last):
            call = self.graph.call_module(node.target, node.args, {**node.kwargs, **arguments})
        last.replace_all_uses_with(call)
        done = {"residual": addition} if "residual" in arguments else {}
        if "activation" in arguments:
            done["activation"] = following
        for erased in (*reversed(done.values()), node):
            self.graph.erase_node(erased)
        self.fused += [self._name(erased) for erased in done.values()]

    def _give_kernel(self, node: Any) -> None:
        """Lets pixels.cu compute a batch norm with its activation, a pooling layer, or a product with a sigmoid."""
        if self._kind(node) in PATCHES:
            module: Any = self._module(node)
            if isinstance(module, nn.BatchNorm2d) and (module.training or module.running_mean is None):
                return
            owner, _, attribute = node.target.rpartition(".")
            setattr(self.model.get_submodule(owner), attribute, patched(module))
        if type(self._module(node)) is PatchedNorm:
            following = only_user(node)
            if following is not None and (name := ACTIVATIONS.get(self._kind(following))):
                node.kwargs = {**node.kwargs, "activation": name}
                following.replace_all_uses_with(node)
                self.graph.erase_node(following)
                self.own.append(self._name(following))
        if type(self._module(node)) in PATCHES.values():
            self.own.append(self._name(node))
        elif self._kind(node) in FUNCTIONS and node.args:
            node.target = FUNCTIONS[node.target]
            self.own.append(self._name(node))
        elif self._kind(node) in PRODUCTS and len(node.args) == 2 and not node.kwargs:
            sides = [side for side in node.args if isinstance(side, torch.fx.Node)]
            gates = [side for side in sides if self._kind(side) in SIGMOIDS and only_user(side) is node and side.args]
            if len(sides) == 2 and gates and not self._changed_between(gates[0], node):
                (x,) = (side for side in sides if side is not gates[0])
                with self.graph.inserting_before(node):
                    product = self.graph.call_function(gated, (x, gates[0].args[0]))
                node.replace_all_uses_with(product)
                self.own.append(self._name(node))
                self.graph.erase_node(node)
                self.graph.erase_node(gates[0])

    def _leave_planes(self, pool: Any) -> None:
        """Lets a first layer leave its outputs in planes, if that takes it less time, for the pooling that follows."""
        node: Any = pool.args[0]
        layer: Any = self._module(node) if isinstance(node, torch.fx.Node) else None
        alone = self._is_layer(layer) and len(node.users) == 1
        if alone and layer.weight.shape[1] <= FEW_CHANNELS:
            node.kwargs = {**node.kwargs, "planes": True}
            pool.kwargs = {**pool.kwargs, "like": node.args[0]}

    def _absorb_linear(self, node: Any) -> None:
        """Moves what follows a linear layer over pixels into its call: GELU, or the end of a residual block.

        That is a factor for each channel, or one, and an addition, after a permutation to ``[N][C][H][W]``.
        """
        following = only_user(node)
        if following is not None and self._is_gelu(following):
            call, arguments, erased = following, {"activation": GELU}, [following, node]
        elif following is not None and (end := self._end_of_block(following)):
            call, residual, scale, erased = end
            arguments, erased = {"residual": residual, "scale": scale}, [*erased, following, node]
        else:
            return
        if self._changed_between(node, call):
            return
        owner, _, attribute = node.target.rpartition(".")
        setattr(self.model.get_submodule(owner), attribute, self.linear(self._module(node)))
        with self.graph.inserting_before(call):
            done = self.graph.call_module(node.target, node.args, arguments)
        call.replace_all_uses_with(done)
        for needless in erased:
            self.graph.erase_node(needless)
        self.own += [self._name(node), self._name(call)]

    def _is_gelu(self, node: Any) -> bool:
        """Whether a node is GELU, not its approximation."""
        module: Any = self._module(node)
        if self._kind(node) is nn.GELU:
            return bool(module.approximate == "none")
        return self._kind(node) is functional.gelu and not node.kwargs

    def _end_of_block(self, permutation: Any) -> tuple[Any, Any, Any, list[Any]] | None:
        """The addition at the end of a residual block, what it adds, the factors, and the nodes from there back."""
        if self._kind(permutation) not in PERMUTATIONS or self._order(permutation) != (0, 3, 1, 2):
            return None
        product = only_user(permutation)
        if product is None or self._kind(product) not in PRODUCTS or len(product.args) != 2 or product.kwargs:
            return None
        (scale,) = [side for side in product.args if side is not permutation]
        if not isinstance(scale, torch.fx.Node) or scale.op != "get_attr":
            return None
        factors = operator.attrgetter(scale.target)(self.model)
        if factors.numel() != 1 and factors.shape[-3:] != (factors.numel(), 1, 1):
            return None
        addition = only_user(product)
        if addition is None or (residual := self._addend(addition, product)) is None:
            return None
        return addition, residual, scale, [addition, product]

    @staticmethod
    def _order(node: Any) -> tuple[int, ...]:
        """The axes of a permutation, as a function or a method has them."""
        axes = node.args[1] if len(node.args) == 2 else node.args[1:]
        return tuple(axes) if isinstance(axes, list | tuple) else ()

    def _addend(self, addition: Any, node: Any) -> Any | None:
        """What a node adds to another's output, if it is an addition of the two."""
        kind = self._kind(addition)
        if kind not in ADDITIONS | ADDITIONS_IN_PLACE or addition.kwargs or len(addition.args) != 2:
            return None
        left, right = addition.args
        other = right if left is node else left
        if not isinstance(other, torch.fx.Node) or other is node:
            return None
        return other if left is node or kind in ADDITIONS or self._owns(addition) else None

    def _families(self) -> list["Family"]:
        """Concatenations of channels that share an array: the lists of some are the beginnings of another's."""
        cats = {node: parts for node in self.graph.nodes if (parts := self._parts(node))}
        families: list[Family] = []
        taken: set[Any] = set()
        for longest in sorted(cats, key=lambda node: -len(cats[node])):
            parts = cats[longest]
            if longest in taken or taken.intersection(parts):
                continue
            members = [node for node, own in cats.items() if node not in taken and own == parts[: len(own)]]
            sizes = [self._channels(part) for part in parts]
            layers = [part for part in parts if self._is_layer(self._module(part))]
            first = next(node for node in self.graph.nodes if node in parts)
            if not layers or None in sizes or self._changed_between(first):
                continue
            if any(self._wants_packed(slices) for slices in (*parts, *members) if slices is not longest):
                continue
            taken.update(parts, members)
            families.append(Family(parts, [size or 0 for size in sizes], {node: len(cats[node]) for node in members}))
        return families

    def _parts(self, node: Any) -> list[Any]:
        """The tensors that a node concatenates along channels; none if it does something else."""
        parts = self._tensors(node)
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        distinct = all(isinstance(part, torch.fx.Node) for part in parts) and len(set(parts)) == len(parts) > 1
        return list(parts) if distinct and axis == 1 else []

    def _tensors(self, node: Any) -> Sequence[Any]:
        """The tensors that a node concatenates, where it lists them."""
        tensors = node.args[0] if node.args else node.kwargs.get("tensors")
        listed = self._kind(node) in CONCATENATIONS and isinstance(tensors, list | tuple) and "out" not in node.kwargs
        return tensors if listed else ()

    def _channels(self, node: Any) -> int | None:
        """The channels of a node's output, None where they are not known."""
        module = self._module(node)
        if isinstance(module, nn.BatchNorm2d):
            return int(module.num_features)
        if module is not None and self._is_layer(module):
            weight: Any = module.weight
            return None if len(weight) == 1 and "residual" in node.kwargs else len(weight)  # one may be broadcast
        if parts := self._parts(node):
            sizes = [self._channels(part) for part in parts]
            return None if None in sizes else sum(size or 0 for size in sizes)
        keeps = isinstance(module, KEEP_CHANNELS) or self._kind(node) in ACTIVATIONS
        return self._channels(node.args[0]) if keeps and node.args else None

    @staticmethod
    def _wants_packed(node: Any) -> bool:
        """Whether something needs a node's output without gaps: ``view``, or the model's caller."""
        return any(user.op == "output" or user.target == "view" for user in node.users)

    def _changed_between(self, first: Any, last: Any = None, moved: Sequence[Any] = ()) -> bool:
        """Whether a node after ``first`` and before ``last``, or the end, may change in place what others read.

        ``moved`` nodes do not count: they move to ``last`` with ``first``.
        """
        nodes = list(self.graph.nodes)
        between = nodes[nodes.index(first) + 1 : None if last is None else nodes.index(last)]
        read = {source for node in (first, *moved) for source in node.all_input_nodes}
        return any(
            self._changes(user) and (not self._owns(user) or user.args[0] in read)
            for user in between
            if user not in moved
        )

    def _owns(self, user: Any) -> bool:
        """Whether what a node changes in place is memory of its first argument that nothing else reads from then on."""
        changed = user.args[0] if user.args else None
        if not isinstance(changed, torch.fx.Node) or "out" in user.kwargs:
            return False
        if only_user(changed) is user and self._changes(changed):
            return self._owns(changed)
        nodes = list(self.graph.nodes)
        before = nodes[: nodes.index(user)]
        others = [other for other in changed.users if other is not user]
        return self._is_new(changed) and all(self._is_new(other) and other in before for other in others)

    def _is_new(self, node: Any) -> bool:
        """Whether a node's output shares no memory with its inputs."""
        return isinstance(self._module(node), nn.BatchNorm2d | self.patched) or self._kind(node) in ADDITIONS

    def _changes(self, user: Any) -> bool:
        """Whether a node may change its first argument, or another, in place."""
        name = getattr(user.target, "__name__", str(user.target))
        in_place = user.kwargs.get("inplace", False) or getattr(self._module(user), "inplace", False)
        return bool(in_place) or name.endswith("_") or user.target in IN_PLACE.values() or "out" in user.kwargs

    def _join(self, family: "Family") -> None:
        """Lets the parts of a family be written into its array, and takes concatenations from there."""
        order = {node: number for number, node in enumerate(self.graph.nodes)}
        starts = [sum(family.sizes[:number]) for number in range(len(family.parts) + 1)]
        placed: dict[Any, Any] = {}
        first, first_start = None, 0
        for part in sorted(family.parts, key=order.__getitem__):
            number = family.parts.index(part)
            start, layer = starts[number], self._is_layer(self._module(part))
            if first is None:
                first, first_start = part, start
                if layer:
                    part.kwargs = {**part.kwargs, "place": (starts[-1], start)}
                else:
                    with self.graph.inserting_after(part):
                        first = self.graph.call_function(placed_copy, (part, starts[-1], start))
                placed[part] = first
                continue
            with self.graph.inserting_before(part) if layer else self.graph.inserting_after(part):
                out = self.graph.call_function(beside, (first, start - first_start, family.sizes[number]))
            if layer:
                part.kwargs = {**part.kwargs, "out": out}
                placed[part] = part
            else:
                with self.graph.inserting_after(out):
                    placed[part] = self.graph.call_function(copied_into, (out, part))
        for node, count in family.members.items():
            written = [placed[part] for part in family.parts[:count]]
            with self.graph.inserting_before(node):
                whole = self.graph.call_function(beside, (first, -first_start, starts[count], written))
            node.replace_all_uses_with(whole)
            self.fused.append(self._name(node))
            self.graph.erase_node(node)


@dataclass(frozen=True)
class Family:
    """Parts of an array with their channels, and the concatenations of the first few of them, with how many."""

    parts: list[Any]
    sizes: list[int]
    members: dict[Any, int]


def new_array(like: torch.Tensor, shape: Iterable[int]) -> torch.Tensor:
    """A new tensor whose memory is ordered as another's."""
    order = torch.channels_last if is_channels_last(like) else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=order)


def placed_copy(x: torch.Tensor, channels: int, start: int) -> torch.Tensor:
    """A copy of a tensor as a slice of a new one with so many channels; the tensor itself where it stays ``apart``."""
    if apart(x):
        return x
    N, C, H, W = x.shape
    return new_array(x, (N, channels, H, W)).narrow(1, start, C).copy_(x)


def beside(part: torch.Tensor, start: int, channels: int, written: Sequence[torch.Tensor] = ()) -> torch.Tensor | None:
    """The channels of a slice's whole array from ``start`` on, counted from the slice's first; ``written`` ones.

    Tensors that stay ``apart`` are concatenated.
    """
    if apart(part, *written):
        return torch.cat(written, 1) if written else None
    N, _, H, W = part.shape
    first = part.storage_offset() + start * part.stride(1)
    return part.as_strided((N, channels, H, W), part.stride(), first)


def copied_into(out: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """``out``, if there is one, with a tensor's values; the tensor itself where it stays ``apart``."""
    return x if out is None or apart(x) else out.copy_(x)


def apart(*tensors: torch.Tensor) -> bool:
    """Whether tensors are no slices of an array: if traced, or for autograd, which keeps what they were."""
    return observed(torch) or needs_grad(*tensors)


def replace_by_identity(model: nn.Module, done: Container[nn.Module]) -> list[str]:
    """Replaces these modules by ``nn.Identity``; returns their names in the model."""
    names = []
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module in done:
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, nn.Identity())
            names.append(name)
    return names
