"""The rung that computes a call on a GPU: ``alexconv.tune.auto``'s choice, cached in memory and on disk."""

from dataclasses import dataclass, replace
from functools import lru_cache

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.library import choices
from alexconv.library.arrays import in_place
from alexconv.library.calls import MOST_CALLS, Call
from alexconv.library.workspaces import Gpu, WorkspaceKey
from alexconv.messages import print_to_stderr
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv
from alexconv.tune import auto
from alexconv.tune.estimate import estimate, padding_it
from alexconv.tune.measured import Request


@lru_cache(maxsize=MOST_CALLS)
def chosen(device: Gpu, conv: Conv, N: int, precision: str, memory: str) -> auto.Choice | None:
    """The rung for N images whose layout in memory is ``memory``; None where none takes the layer, or none fits."""
    request, budget = Request(conv, N, precision, memory), device.budget()
    cached = choices.load(device.executor, request, budget)
    if cached is None:
        cached = choices.CachedChoice(_strict_enough(device, request, budget))
        choices.keep(device.executor, request, cached.choice)
    return cached.choice


def _strict_enough(device: Gpu, request: Request, budget: int) -> auto.Choice | None:
    """The choice of a class, or else of a stricter one, preferably in the array's own layout."""
    for name in (request.precision, *PRECISIONS[request.precision].stricter):
        for layout in sorted(auto.layouts_of(name), key=lambda layout: layout != request.layout):
            other = replace(request, precision=name, layout=layout)
            if choice := auto.choose(device.executor, other, print_to_stderr, budget):
                return choice
    return None


@dataclass(frozen=True)
class Route:
    """How a device computes a call: with the key's rung, or without a key in generic.cu.

    With ``finish`` another kernel applies bias and ReLU after the rung.
    """

    key: WorkspaceKey | None
    finish: bool = False


@lru_cache(maxsize=MOST_CALLS)
def route_of(device: Gpu, call: Call) -> Route:
    """The route of a call on its device.

    A rung that takes the whole layer, unless one that takes only the convolution, of a plane padded in memory, is
    estimated to be faster, copy included.
    """
    precision, plain = call.terms.precision, replace(call.conv.with_border(), bias=False, relu=False)
    convs = [call.conv] if plain == call.conv else [call.conv, plain]
    convs = [conv for conv in convs if any(set(conv.features) <= set(rung.takes) for rung in LADDER)]
    chosen_rungs = [chosen(device, conv, call.N, precision, call.memory) for conv in convs]
    candidates = [(choice, conv) for choice, conv in zip(chosen_rungs, convs, strict=True) if choice]
    if not candidates:
        return Route(None)
    choice, conv = min(candidates, key=lambda candidate: expected(device, candidate[0], candidate[1], call))
    x_in_place = conv.padding == call.conv.padding and in_place(call.x, choice.rung.layout)
    y_in_place = in_place(call.y, choice.rung.layout)
    key = WorkspaceKey(choice.rung.name, tuple(choice.constants.items()), conv, call.N, x_in_place, y_in_place)
    return Route(key, finish=(conv.bias, conv.relu) != (call.conv.bias, call.conv.relu))


def expected(device: Gpu, choice: auto.Choice, conv: Conv, call: Call) -> tuple[bool, float]:
    """Sort key of choices: measured ones first, then by estimated microseconds, copies included."""
    on = device.executor.device
    copied = padding_it(call.conv, call.N, on) if conv.padding != call.conv.padding else 0.0
    return not choice.measured, copied + estimate(BoundRung(choice.rung, conv, choice.constants, on), call.N)
