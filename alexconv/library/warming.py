"""Chooses rungs and compiles kernels before the first call."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from alexconv.library.arrays import four, packed_descriptor
from alexconv.library.calls import call_of, dtype_of
from alexconv.library.devices import gpu
from alexconv.library.every_shape import builds, compile_all
from alexconv.library.gradients import gradient_calls
from alexconv.library.routes import route_of
from alexconv.library.terms import Padding, Pair, shown, terms_of


class Shape(NamedTuple):
    """A convolution to warm up: shapes of x ``(N, C, H, W)`` and filters, and the arguments of ``conv2d``."""

    x: tuple[int, int, int, int]
    filters: tuple[int, int, int, int]
    stride: Pair = 1
    padding: Padding = 0
    precision: str = "fp32"
    channels_last: bool = False
    bias: bool = False
    activation: str | None = None
    dilation: Pair = 1
    groups: int = 1


@dataclass(frozen=True)
class Warmed:
    """The result of ``warm``: the rung of each shape, None for generic.cu; seconds in total."""

    rungs: tuple[str | None, ...]
    seconds: float


def warm(shapes: Iterable[Any] = (), device: int = 0, *, training: bool = False) -> Warmed:
    """Compiles in parallel the kernels for calls of these shapes, into the cache, and loads them.

    Without shapes, the builds for every shape, which the first calls of others use.  A shape is a ``Shape``, or a tuple
    or mapping of its fields.  Later calls only prepare their filters.  With ``training`` also the kernels of both
    gradients.  Raises ValueError for an invalid shape, MissingTool and CompileError.
    """
    begun = perf_counter()
    if not isinstance(shapes, Iterable):
        raise ValueError(f"shapes are several of alexconv.Shape, not {shown(shapes)}")
    calls = [_call(shape, device) for shape in shapes]
    on = gpu(device)
    with on.lock, on.current():
        keys = []
        of_gradients = [gradient for call in calls if training for gradient in gradient_calls(on, call)]
        for call in [*calls, *of_gradients]:
            keys.append(route_of(on, call).key)
            if keys[-1]:  # a rung compiles while the next one is chosen
                on.loaded(keys[-1], wait=False)
        for key in keys:
            if key:
                on.loaded(key, wait=True)
        on.any_shape()
    if not calls:
        compile_all(builds(on.executor.gpu.arch, on.executor.gpu.capability))
    return Warmed(tuple(key.name if key else None for key in keys[: len(calls)]), perf_counter() - begun)


def _call(shape: Any, device: int) -> Any:
    try:
        layer = Shape(**shape) if isinstance(shape, dict) else Shape(*shape)
        layer = layer._replace(x=four(layer.x, "x"), filters=four(layer.filters, "filters"))
    except TypeError as error:
        raise ValueError(f"{shown(shape)} is no alexconv.Shape: {error}") from None
    if layer.x[0] < 1:
        raise ValueError(f"x has shape {layer.x}: a call without images has no kernel")
    terms = terms_of(
        layer.stride, layer.padding, layer.precision, "nchw", layer.dilation, layer.groups, layer.activation
    )
    dtype, layout = dtype_of(layer.precision), "nhwc" if layer.channels_last else "nchw"
    x = packed_descriptor(layer.x, layout, dtype, device)
    w = packed_descriptor(layer.filters, "nchw", dtype, device)
    bias = packed_descriptor((1, 1, 1, layer.filters[0]), "nchw", dtype, device) if layer.bias else None
    return call_of(terms, w, x, None, bias)
