"""A convolution's arguments other than its arrays, as networks and ONNX define them, and the resulting shape."""

import operator
from collections.abc import Sequence
from textwrap import shorten
from typing import Any, NamedTuple

from alexconv.library.arrays import Descriptor, Four
from alexconv.planning.layouts import LAYOUTS
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

Pair = int | Sequence[int]
Padding = Pair | str | Sequence[Sequence[int]]

UPPER, LOWER, VALID = "same_upper", "same_lower", "valid"
AUTO_PADDING = {"same": UPPER, UPPER: UPPER, LOWER: LOWER, VALID: VALID}  # by accepted name
RELU, RELU6, SILU, GELU = "relu", "relu6", "silu", "gelu"
# By name, the fields of a layer (alexconv.shapes.Conv) that has it.
ACTIVATIONS: dict[str | None, dict[str, Any]] = {
    None: {},
    RELU: {"relu": True},
    RELU6: {"relu": True, "ceiling": 6},
    SILU: {"silu": True},
    GELU: {"gelu": True},
}
MOST = 2**31 - 1  # of every size: kernels count in 32-bit integers
MOST_SHOWN = 80  # characters of a bad value in an error


class Terms(NamedTuple):
    """``padding`` is (top, bottom, left, right), or a value of AUTO_PADDING, resolved by the input's size."""

    stride: tuple[int, int] = (1, 1)
    padding: Four | str = (0, 0, 0, 0)
    precision: str = "fp32"
    layout: str = "nchw"
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    activation: str | None = None


def terms_of(
    stride: Pair,
    padding: Padding,
    precision: str,
    layout: str,
    dilation: Pair = 1,
    groups: int = 1,
    activation: str | None = None,
) -> Terms:
    """The terms; raises ValueError that names an invalid argument."""
    one_of(precision, "precision", PRECISIONS)
    one_of(layout, "layout", LAYOUTS)
    one_of(activation, "activation", ACTIVATIONS)
    return Terms(
        pair(stride, "stride", least=1),
        padding_of(padding),
        precision,
        layout,
        pair(dilation, "dilation", least=1),
        whole(groups, "groups", least=1),
        activation,
    )


def one_of(value: Any, name: str, known: Any) -> None:
    """Raises ValueError for a name that is not known."""
    if not (value is None or isinstance(value, str)) or value not in known:
        raise ValueError(f"unknown {name} {shown(value)}: choose from {', '.join(map(str, known))}")


def shown(value: Any) -> str:
    """A bad value as an error shows it: on one line, not too long."""
    return shorten(repr(value), MOST_SHOWN)


def numbers(value: Any, least: int) -> tuple[int, ...]:
    """One whole number or a sequence of them, as a tuple; empty unless all are whole and from ``least`` to MOST."""
    items: Any = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    try:
        integers = tuple(operator.index(number) for number in items)
    except TypeError:
        return ()
    return integers if integers and least <= min(integers) and max(integers) <= MOST else ()


def whole(value: Any, name: str, least: int) -> int:
    """A whole number; raises ValueError."""
    integers = numbers(value, least)
    if isinstance(value, Sequence) or len(integers) != 1:
        raise ValueError(f"{name} is a whole number from {least} to {MOST}, not {shown(value)}")
    return integers[0]


def pair(value: Pair, name: str, least: int) -> tuple[int, int]:
    """One whole number or two, for rows and columns; raises ValueError."""
    integers = numbers(value, least)
    if len(integers) == 1 and not isinstance(value, Sequence):
        return integers[0], integers[0]
    if len(integers) != 2:
        raise ValueError(f"{name} is a whole number from {least} to {MOST}, or two of them, not {shown(value)}")
    return integers[0], integers[1]


def padding_of(value: Padding) -> Four | str:
    """Rows and columns of zeros: a name, one number, two (rows, columns), four or two pairs; raises ValueError."""
    if isinstance(value, str) and value in AUTO_PADDING:
        return AUTO_PADDING[value]
    nested = isinstance(value, Sequence) and len(value) == 2 and all(isinstance(axis, Sequence) for axis in value)
    flat: Any = [number for axis in value for number in axis] if nested else value  # type: ignore[union-attr]
    integers = numbers(flat, least=0)
    if len(integers) == 1 and not isinstance(flat, Sequence):
        return integers[0], integers[0], integers[0], integers[0]
    if len(integers) == 2 and not nested:
        return integers[0], integers[0], integers[1], integers[1]
    if len(integers) != 4:
        raise ValueError(
            f"padding is a whole number from 0 to {MOST}, two of them (rows, columns), four (top, bottom, left, right),"
            f" 'same', 'same_lower' or 'valid', not {shown(value)}"
        )
    return integers[0], integers[1], integers[2], integers[3]


def same_padding(size: int, window: int, stride: int, kind: str) -> tuple[int, int]:
    """Zeros before and after ``size`` rows or columns so that every ``stride``-th has an output (ONNX, Conv)."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if kind == UPPER else (more, less)


def explicit_padding(terms: Terms, sizes: Sequence[int], filters: Sequence[int]) -> Four:
    """(top, bottom, left, right) for a plane of (rows, columns) and filters of (rows, columns)."""
    if not isinstance(terms.padding, str):
        return terms.padding
    if terms.padding == VALID:
        return 0, 0, 0, 0
    windows = [(taps - 1) * apart + 1 for taps, apart in zip(filters, terms.dilation, strict=True)]
    rows, columns = (
        same_padding(size, window, step, terms.padding)
        for size, window, step in zip(sizes, windows, terms.stride, strict=True)
    )
    return *rows, *columns


def conv_of(terms: Terms, w: Descriptor, x: Descriptor, *, bias: bool = False) -> Conv:
    """The shape; raises ValueError where x ``(N, C, H, W)`` and filters do not fit each other."""
    _, C, H, W = x.shape
    M, channels, R, S = w.shape
    if min(*w.shape, C, H, W) < 1:
        raise ValueError(f"an array is empty: x has shape {x.shape}, the filters {w.shape}")
    if channels * terms.groups != C:
        of_group = f" in each of {terms.groups} groups" if terms.groups > 1 else ""
        raise ValueError(f"x has {C} channels, the filters have {channels}{of_group}")
    if M % terms.groups:
        raise ValueError(f"groups is {terms.groups}, which does not divide {M} filters")
    top, bottom, left, right = explicit_padding(terms, (H, W), (R, S))
    rows, columns = ((taps - 1) * apart + 1 for taps, apart in zip((R, S), terms.dilation, strict=True))
    if H + top + bottom < rows or W + left + right < columns:
        dilated = " with dilation {} x {}".format(*terms.dilation) if terms.dilation != (1, 1) else ""
        plane = f"{H + top + bottom} x {W + left + right}"
        raise ValueError(f"a filter of {rows} x {columns}{dilated} is larger than the padded plane of {plane}")
    if max(*w.shape, C, H + top + bottom, W + left + right) > MOST:
        raise ValueError(
            f"an axis has more than {MOST} elements: x has shape {x.shape}, a padding of {(top, bottom, left, right)}, "
            f"the filters {w.shape}"
        )
    if x.device != w.device and w.device is not None:
        raise ValueError(f"x is {place(x)}, the filters {place(w)}")
    return Conv(
        C=C,
        H=H,
        W=W,
        M=M,
        R=R,
        S=S,
        U=terms.stride[0],
        V=terms.stride[1],
        top=top,
        bottom=bottom,
        left=left,
        right=right,
        dilation_rows=terms.dilation[0],
        dilation_columns=terms.dilation[1],
        groups=terms.groups,
        bias=bias,
        **ACTIVATIONS[terms.activation],
    )


def place(array: Descriptor) -> str:
    """Where an array is, in words."""
    return "in host memory" if array.device is None else f"on GPU {array.device}"
