"""``alexconv.explain``: which rung computes a call of ``conv2d``, why, and what its outputs may lose."""

from dataclasses import dataclass
from inspect import signature
from typing import Any

from alexconv.kernels.bound import BoundRung
from alexconv.library import gradients, on_host
from alexconv.library.calls import Call, gradient_of
from alexconv.library.convolution import conv2d
from alexconv.library.devices import OF_HOST_ARRAYS, gpu
from alexconv.library.operation import first_piece, operation_of
from alexconv.library.routes import candidates, meanwhile
from alexconv.library.terms import one_of
from alexconv.library.workspaces import Gpu
from alexconv.precisions import PRECISIONS
from alexconv.shapes import DIRECTIONS, FORWARD

PARAMETERS = signature(conv2d)
ON_CPU = "on the CPU: the rung of its class, or of a stricter one, that is ready soonest"
BY_PATCHES = "on the CPU: no rung takes the layer, so each group is a layer of 1 x 1 filters over its patches"
FASTEST = "the shortest time of those that can, with the copies that they take"
COMPILING = "; while it compiles, generic.cu computes calls that are not captured, without exceptions"
MEANWHILE = "; while it compiles, {} computes calls, in its build for every shape"
EMPTY = "x has no images, so nothing is computed"
GRADIENT_ON_CPU = "on the CPU: of class fp32, whatever the call's"
BY_TORCH = "no rung takes the gradient, or its batch does not fit in memory: torch computes it, at torch's settings"
GENERIC = "no rung takes the layer: generic.cu computes it"


@dataclass(frozen=True)
class Timed:
    """A rung that can compute a call.

    us: microseconds of its launches, ``measured`` on this layer or estimated; of the call it also takes ``copies``
    microseconds to bring arrays into its layout, with their padding, or to add bias and ReLU.
    """

    rung: str
    layout: str
    us: float
    measured: bool
    copies: float

    def __str__(self) -> str:
        copies = f" and {self.copies:.1f} us of copies" if self.copies else ""
        return f"{self.rung} ({self.layout}): {self.us:.1f} us {'measured' if self.measured else 'estimated'}{copies}"


@dataclass(frozen=True)
class Explanation:
    """How a call is computed.

    rung: the rung's name; None where ``generic.cu`` computes the call.
    constants: the rung's, by name.
    precision: the class whose guarantee the outputs keep: the call's, or a stricter one.
    exceptions: what they may lose beyond that guarantee, in words (docs/precision.md).
    reason: why this rung.
    candidates: the rungs that were compared, the fastest first.
    """

    rung: str | None
    constants: dict[str, int]
    precision: str
    exceptions: tuple[str, ...]
    reason: str
    candidates: tuple[Timed, ...] = ()

    def __str__(self) -> str:
        exceptions = "; ".join(self.exceptions) or "none"
        compared = (f"\n  {candidate}" for candidate in self.candidates)
        return (
            f"{self.rung or 'no rung'}: {self.reason}{''.join(compared)}\n"
            f"class {self.precision}, exceptions: {exceptions}"
        )


def explain(x: Any, filters: Any, *arguments: Any, direction: str = FORWARD, **named: Any) -> Explanation:
    """How ``conv2d`` computes a call with these arguments, which are its own.  Nothing is computed or compiled.

    direction: forward; or dgrad or wgrad: a gradient of the call, of x or of the filters.

    Raises as ``conv2d`` does, and ValueError for another direction.
    """
    one_of(direction, "direction", DIRECTIONS)
    call_arguments = PARAMETERS.bind(x, filters, *arguments, **named)
    call_arguments.apply_defaults()
    values = call_arguments.arguments
    terms = ("stride", "padding", "precision", "layout", "backend", "activation", "dilation", "groups")
    operation = operation_of(*(values[name] for name in terms))
    call, _ = operation.described(x, values["out"], filters, values["bias"], values["residual"])
    if not call.N:
        return Explanation(None, {}, call.terms.precision, (), EMPTY)
    if direction != FORWARD:
        return _of_gradient(direction, call)
    staged = call.x.device is None
    device = OF_HOST_ARRAYS[operation.backend]() if call.x.device is None else gpu(call.x.device)
    if device is None:
        return _on_cpu(call)
    with device.lock, device.current():
        return _on_gpu(device, first_piece(device, call) if staged else call)


def _of_gradient(direction: str, call: Call) -> Explanation:
    terms, problem = call.terms._replace(layout="nchw"), gradients.problem_of(direction, call)
    if call.x.device is None:
        conv, executor = gradient_of(terms, *problem).conv, on_host.host_executor()
        return _of_rung(on_host.required(conv, call.N, gradients.ON_CPU).bound(executor, conv), GRADIENT_ON_CPU)
    device = gpu(call.x.device)
    with device.lock, device.current():
        able = next(gradients.routed(device, terms, *problem), None)
        return _on_gpu(device, able, forward=False) if able else Explanation(None, {}, terms.precision, (), BY_TORCH)


def _on_cpu(call: Call) -> Explanation:
    conv, reason = call.conv, ON_CPU
    choice = on_host.chosen(conv, call.N, call.terms.precision)
    if choice is None:
        conv, reason = on_host.of_patches(conv), BY_PATCHES
        choice = on_host.required(conv, call.N, call.terms.precision)
    return _of_rung(BoundRung(choice.rung, conv, choice.constants, on_host.host_executor().device), reason)


def _on_gpu(device: Gpu, call: Call, *, forward: bool = True) -> Explanation:
    able = candidates(device, call)
    if not able:
        strictest = next(name for name, row in PRECISIONS.items() if row.dtype == call.x.dtype)
        return Explanation(None, {}, strictest, (), GENERIC)
    timed = (
        Timed(
            option.choice.rung.name, option.choice.rung.layout, option.choice.us, option.choice.measured, option.copies
        )
        for option in able
    )
    return _of_rung(able[0].bound(device), FASTEST + (_until_compiled(device, call) if forward else ""), tuple(timed))


def _until_compiled(device: Gpu, call: Call) -> str:
    """What computes a call while its rung compiles."""
    built = (option.choice.rung.name for option in meanwhile(device, call) if device.is_built(option.bound(device)))
    name = next(built, None)
    return MEANWHILE.format(name) if name else COMPILING


def _of_rung(bound: BoundRung, reason: str, compared: tuple[Timed, ...] = ()) -> Explanation:
    rung = bound.rung
    return Explanation(rung.name, dict(bound.constants), rung.precision, bound.exceptions, reason, compared)
