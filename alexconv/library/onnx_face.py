"""ONNX's operator Conv on arrays of any library that ``alexconv.conv2d`` takes.

Attributes have the standard's names and defaults (ONNX operators, Conv, since version 11).  One or two spatial axes are
supported: a layer with one is computed as a layer of a single row.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from alexconv.library.arrays import no_array
from alexconv.library.convolution import conv2d
from alexconv.library.terms import MOST, numbers, one_of, shown

AUTO_PADS = {"NOTSET": None, "SAME_UPPER": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}


def onnx_conv(
    X: Any,
    W: Any,
    B: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    precision: str = "fp32",
    backend: str = "auto",
) -> Any:
    """Conv: ``X [N][C][H][W]``, ``W [M][C / group][R][S]``, ``B [M]``; with one spatial axis all without H, E and R.

    ``pads`` are (top, left, bottom, right): the begins of all axes, then the ends.  Raises as ``conv2d`` does, and
    ValueError for an attribute whose length does not match the spatial axes, or unless there are one or two of these.
    """
    one_of(auto_pad, "auto_pad", AUTO_PADS)
    for values, name in ((X, "X"), (W, "W")):
        if not hasattr(values, "shape"):
            raise no_array(values, name)
    axes = len(W.shape) - 2
    if axes not in (1, 2):
        raise ValueError(f"W has {axes} spatial axes: one or two are supported")
    if kernel_shape is not None and whole_numbers(kernel_shape, "kernel_shape", axes, 1, 1) != tuple(W.shape[2:]):
        raise ValueError(f"kernel_shape is {shown(kernel_shape)}, but W has {tuple(W.shape[2:])}")
    steps = whole_numbers(strides, "strides", axes, 1, 1)
    apart = whole_numbers(dilations, "dilations", axes, 1, 1)
    around = whole_numbers(pads, "pads", 2 * axes, 0, 0)
    if pads is not None and AUTO_PADS[auto_pad] is not None and any(around):
        raise ValueError(f"pads and auto_pad={auto_pad} exclude each other")
    if axes == 1:
        steps, apart, around = (1, *steps), (1, *apart), (0, around[0], 0, around[1])
        X, W = X[:, :, None], W[:, :, None]
    y = conv2d(
        X,
        W,
        steps,
        AUTO_PADS[auto_pad] or (around[0], around[2], around[1], around[3]),
        precision,
        backend=backend,
        bias=B,
        dilation=apart,
        groups=group,
    )
    return y[:, :, 0] if axes == 1 else y


def whole_numbers(values: Any, name: str, count: int, default: int, least: int) -> tuple[int, ...]:
    """An attribute's numbers, or the default; raises ValueError."""
    if values is None:
        return (default,) * count
    integers = numbers(list(values) if isinstance(values, Iterable) else values, least)
    if len(integers) != count:
        raise ValueError(f"{name} are {count} whole numbers from {least} to {MOST}, not {shown(values)}")
    return integers
