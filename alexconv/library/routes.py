"""The rung that computes a call on a GPU: the fastest of ``alexconv.tune.auto``'s choices, with the copies it takes.

Choices are cached in memory and on disk.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from time import monotonic, sleep
from typing import Any, NamedTuple

from alexconv.errors import LaunchError, OutOfMemory
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER
from alexconv.library import choices
from alexconv.library.arrays import in_place, same_steps
from alexconv.library.calls import MOST_CALLS, Call
from alexconv.library.workspaces import COMPILERS, Gpu, Loaded, WorkspaceKey
from alexconv.messages import print_to_stderr
from alexconv.planning.layouts import LAYOUTS
from alexconv.precisions import PRECISIONS
from alexconv.shapes import FILTERS, FORWARD, Conv
from alexconv.tune import auto
from alexconv.tune.estimate import copying, dynamic_builds
from alexconv.tune.measured import Request

QUIET, PATIENCE = 0.1, 2.0  # seconds
NO_ACTIVATION: dict[str, Any] = {"relu": False, "ceiling": 0, "silu": False, "gelu": False}


@lru_cache(maxsize=MOST_CALLS)
def chosen(device: Gpu, conv: Conv, N: int, precision: str, layout: str) -> auto.Choice | None:
    """The rung of a layout for N images, of a class or a stricter one; None where no rung takes the layer or fits."""
    request, budget = Request(conv, N, precision, layout), device.budget()
    cached = choices.load(device.executor, request, budget)
    if cached is None:
        cached = choices.CachedChoice(auto.choose(device.executor, request, print_to_stderr, budget))
        if budget == device.workspace_bytes:  # with less, another process may choose a faster rung
            choices.keep(device.executor, request, cached.choice)
    return cached.choice


@dataclass(frozen=True)
class Candidate:
    """A rung that can compute a call, for a layer that may lack the call's padding, bias and ReLU.

    ``rest``: the layer with what another kernel adds and applies to the rung's outputs; None: nothing.
    ``copies``: microseconds of that kernel, and of those that bring x and y into the rung's layout.
    """

    choice: auto.Choice
    conv: Conv
    x_in_place: bool
    y_in_place: bool
    rest: Conv | None
    copies: float
    dynamic: bool = False  # in its build for every shape

    @property
    def us(self) -> float:
        """Microseconds of the call."""
        return self.choice.us + self.copies

    def bound(self, device: Gpu) -> BoundRung:
        """The rung bound to its layer."""
        return replace(self.choice.bound(device.executor, self.conv), dynamic=self.dynamic)


@lru_cache(maxsize=MOST_CALLS)
def candidates(device: Gpu, call: Call) -> tuple[Candidate, ...]:
    """The rungs that can compute a call, the fastest first: one of each layout.

    And others without a residual, into a whole array, or for the convolution alone, of a plane padded in memory.  For
    one channel rungs with hi and lo terms come last, as in ``auto``.
    """
    able: list[Candidate] = []
    for conv in layers_of(call):
        if (call.conv.residual or call.conv.y_channels) and any(option.copies == 0 for option in able):
            break  # nothing is gained by adding or copying afterwards
        able += of_layer(device, call, conv)
    return ordered(call, able)


def layers_of(call: Call) -> tuple[Conv, ...]:
    """A call's layer; without a residual, into a whole array; the convolution alone, of a plane padded in memory."""
    without = replace(call.conv, y_channels=0)
    if call.conv.residual:
        without = replace(without, residual=False, **NO_ACTIVATION)
    plain = [call.conv.with_border().alone()] if call.conv.direction == FORWARD else []
    return tuple(dict.fromkeys([call.conv, without, *plain]))


def ordered(call: Call, able: list[Candidate]) -> tuple[Candidate, ...]:
    """Candidates, the fastest first; for one channel those with hi and lo terms last."""
    later = {rung.name: -place for place, rung in enumerate(ALL_DIRECTIONS)}  # first of those without an estimate
    return tuple(
        sorted(
            able,
            key=lambda option: (
                call.conv.C == 1 and option.choice.rung.splits_floats,
                option.us,
                later[option.choice.rung.name],
            ),
        )
    )


def of_layer(device: Gpu, call: Call, conv: Conv) -> list[Candidate]:
    """The rungs that can compute a layer for a call: the fastest of each layout."""
    if not any(set(conv.features) <= set(rung.takes) for rung in ALL_DIRECTIONS.of_direction(conv.direction)):
        return []
    return [
        candidate(device, call, choice, conv)
        for layout in LAYOUTS
        if stores_in_place(call, conv, layout)
        if (choice := chosen(device, conv, call.N, call.terms.precision, layout))
    ]


def stores_in_place(call: Call, conv: Conv, layout: str) -> bool:
    """Whether a rung of the layout can store a layer's slice, and read its residual, where the call has them.

    Other outputs may be copied.
    """
    if not conv.residual:
        return not conv.y_channels or in_place(call.y, layout, conv.y_channels)
    residual = call.residual
    lies_alike = residual is not None and same_steps(call.y.shape, call.y.strides, residual.strides)
    return lies_alike and bool(residual and residual.aligned) and in_place(call.y, layout, conv.y_channels)


def rest_of(call: Call, conv: Conv) -> Conv | None:
    """The call's layer with what it adds and applies to the outputs of another that lacks it; None: nothing."""
    whole = call.conv
    missing = {name: getattr(whole, name) != getattr(conv, name) for name in ("bias", "residual")}
    activation = {name: getattr(whole, name) for name in NO_ACTIVATION}
    if any(getattr(conv, name) != value for name, value in activation.items()):
        return replace(whole, **missing)
    return replace(whole, **missing, **NO_ACTIVATION) if any(missing.values()) else None


def candidate(device: Gpu, call: Call, choice: auto.Choice, conv: Conv) -> Candidate:
    """A choice with what it copies."""
    rung, roles = choice.rung, conv.roles
    x_in_place = conv.padding == call.conv.padding and in_place(call.x, rung.layout_of(roles.x))
    y_in_place = in_place(call.y, rung.layout_of(roles.y), conv.y_channels)
    w_in_place = roles.w in FILTERS or in_place(call.w, rung.layout_of(roles.w))
    rest = rest_of(call, conv)
    used = (x_in_place, roles.x), (y_in_place, roles.y), (rest is None, roles.y), (w_in_place, roles.w)
    elements = [prod(conv.shape_of(role, call.N)) for is_in_place, role in used if not is_in_place]
    copied = [copying(conv, count, call.x.itemsize, device.executor.device) for count in elements]
    return Candidate(choice, conv, x_in_place, y_in_place, rest, sum(copied))


@dataclass(frozen=True)
class Route:
    """How a device computes a call: with the key's rung, or without a key in generic.cu.

    With ``rest`` another kernel then adds and applies what that layer has.
    """

    key: WorkspaceKey | None
    rest: Conv | None = None


@lru_cache(maxsize=MOST_CALLS)
def route_of(device: Gpu, call: Call) -> Route:
    """The route of a call on its device: its first candidate."""
    if len(device.routed) > MOST_CALLS:
        device.routed.clear()
    device.routed.add(call)
    best = next(iter(candidates(device, call)), None)
    if best is None:
        return Route(None)
    return Route(key_of(best, call.N), best.rest)


class Ready(NamedTuple):
    """How a device computes a call now: with kernels that are loaded, or without them in generic.cu.

    ``waits``: the compilation of a rung that is faster.
    """

    route: Route
    loaded: Loaded | None
    waits: Future[None] | None


def ready(
    device: Gpu, call: Call, routed: Callable[[Gpu, Call], Route], *, in_background: bool, captured: bool
) -> Ready:
    """The call's rung if it is compiled; until it is, the fastest in a build for every shape.

    Where there is no such build, generic.cu; but a call that is captured then waits for its rung, since its graph keeps
    what it has.  Any call waits unless ``in_background``.  ``routed``: ``route_of``, or what takes its place.
    """
    if in_background and not device.compiles:
        stand_in = of_every_shape(device, call)
        return Ready(*stand_in, None) if stand_in else Ready(Route(None), None, None)
    if in_background and not is_chosen(device, call) and (stand_in := of_every_shape(device, call)):
        return Ready(*stand_in, chosen_later(device, call))
    route = routed(device, call)
    if route.key is None:
        return Ready(route, None, None)
    loaded = device.loaded(route.key, wait=not in_background)
    if isinstance(loaded, Future) and (stand_in := of_every_shape(device, call)):
        return Ready(*stand_in, loaded)
    if isinstance(loaded, Future) and captured:
        loaded = device.loaded(route.key, wait=True)
    return Ready(route, None, loaded) if isinstance(loaded, Future) else Ready(route, loaded, None)


def is_chosen(device: Gpu, call: Call) -> bool:
    """Whether the call's route is known in this process, or follows from choices in the cache."""
    return call in device.routed or all(
        choices.is_kept(device.executor, Request(conv, call.N, call.terms.precision, layout))
        for conv in layers_of(call)
        for layout in LAYOUTS
    )


def chosen_later(device: Gpu, call: Call) -> Future[None]:
    """Chooses the call's rung in the background, and compiles it; the future of both.

    Choosing takes longer than a first call may, and would slow the next first calls, of a network's other layers: it
    begins when there has been none for QUIET seconds.
    """
    device.last_first_call = monotonic()
    begun = device.choosing.get(call)
    if begun is not None:
        return begun
    compiled = device.choosing[call] = Future()

    def finish(_: object = None) -> None:
        device.choosing.pop(call, None)
        compiled.set_result(None)

    def choose() -> None:
        until_quiet(device)
        try:
            with device.one_chooses, device.current():
                key = route_of(device, call).key
                building = device.begun(key) if key else None
        except BaseException:  # which the next call raises again, as it chooses
            building = None
        device.routed.add(call)
        if building:
            building.add_done_callback(finish)
        else:
            finish()

    COMPILERS.submit(choose)
    return compiled


def until_quiet(device: Gpu) -> None:
    """Waits until there has been no first call for QUIET seconds, but no longer than PATIENCE."""
    end = monotonic() + PATIENCE
    while (now := monotonic()) < end and (wait := device.last_first_call + QUIET - now) > 0:
        sleep(wait)


def of_every_shape(device: Gpu, call: Call) -> tuple[Route, Loaded] | None:
    """The fastest build for every shape that is compiled and that the device can load, and takes the call."""
    for able in meanwhile(device, call):
        if not device.is_built(able.bound(device)):
            device.build_for_every_shape(able.choice.rung.precision)
            continue
        with suppress(OutOfMemory, LaunchError):  # of a toolkit that is newer than the driver
            loaded = device.loaded(key_of(able, call.N), wait=True)
            assert isinstance(loaded, Loaded)
            return Route(loaded.key, able.rest), loaded
    return None


def key_of(best: Candidate, N: int) -> WorkspaceKey:
    """The computation of a candidate for N images."""
    rung, constants = best.choice.rung.name, tuple(best.choice.constants.items())
    return WorkspaceKey(rung, constants, best.conv, N, best.x_in_place, best.y_in_place, best.dynamic)


def meanwhile(device: Gpu, call: Call) -> tuple[Candidate, ...]:
    """The rungs that can compute a call, each in its fastest build for every shape, compiled or not."""
    served = (call.terms.precision, *PRECISIONS[call.terms.precision].stricter)
    first, *others = layers_of(call)
    inactive = replace(first, y_channels=0, residual=False, **NO_ACTIVATION)
    able = [
        replace(candidate(device, call, auto.Choice(rung, dict(bound.constants), False, us), conv), dynamic=True)
        for rung in LADDER
        if rung.dynamic and rung.precision in served and not device.executor.unsuited(rung)
        for conv in dict.fromkeys([first, inactive, *others])
        if stores_in_place(call, conv, rung.layout)
        for us, bound in dynamic_builds(rung, conv, call.N, device.executor.device)[:1]
    ]
    return ordered(call, able)
