"""Builds of a rung for every shape: what stays compiled in, and the numbers that the others are launched with.

A rung's file compiled with ``DYNAMIC_SHAPE`` takes a layer's sizes from an array in constant memory
(``common/dynamic_shape.cuh``).  Each number is there with a multiplier and a shift that divide by it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from alexconv.kernels.problem import Problem

SYMBOL = "shape_numbers"  # the array in constant memory
DIVIDENDS = 31  # bits of what is divided

Number = tuple[str, Callable[[Problem], int]]

# The numbers of every rung, by the names that its file has for them.
COMMON: tuple[Number, ...] = (
    *((name, lambda p, name=name: getattr(p.conv, name)) for name in ("C", "H", "W", "M", "R", "S", "U", "E", "F")),
    ("V", lambda p: p.conv.strides[1]),
    ("DILATION_ROWS", lambda p: p.conv.dilation_rows),
    ("DILATION_COLUMNS", lambda p: p.conv.dilation_columns),
    ("TOP", lambda p: p.conv.top),
    ("BOTTOM", lambda p: p.conv.bottom),
    ("LEFT", lambda p: p.conv.left),
    ("RIGHT", lambda p: p.conv.right),
    ("GROUPS", lambda p: p.conv.groups),
    ("GROUP_C", lambda p: p.conv.one_group.C),
    ("GROUP_M", lambda p: p.conv.one_group.M),
    ("PADDED_W", lambda p: p.conv.padded[1]),
    ("PIXELS", lambda p: p.conv.E * p.conv.F),
    ("RELU", lambda p: int(p.conv.relu)),
    ("Y_CHANNELS", lambda p: p.conv.y_channels or p.conv.M),
)


@dataclass(frozen=True)
class Dynamic:
    """The builds of a rung for every shape.

    builds: the macros of each: constants of the rung, and ``variants``.
    rest: choices of the constants that a build leaves open, for a layer and the build's constants; what they lack has
        its default.
    variants: further macros, which a layer determines.
    numbers: those that the file takes besides ``COMMON``, the rung's other constants among them.
    groups: whether the builds take layers with groups.
    slower: how much longer they take than the rung's estimate, and ``besides``: microseconds.
    """

    builds: tuple[Mapping[str, int], ...] = field(hash=False)  # a rung, and so a point, is hashed; a mapping cannot be
    rest: Callable[[Problem], Iterable[Mapping[str, int]]] = lambda p: ({},)
    variants: tuple[Number, ...] = ()
    numbers: tuple[Number, ...] = ()
    groups: bool = False
    slower: float = 1.0
    besides: float = 0.0

    def macros(self, p: Problem) -> dict[str, int]:
        """The macros of the build that a problem takes; KeyError if its constants are those of none."""
        values = {**p.constants, **{name: of(p) for name, of in self.variants}}
        build = next((build for build in self.builds if build.items() <= values.items()), None)
        if build is None:
            raise KeyError(f"no build for every shape has {values}")
        return self.defines(build)

    def defines(self, build: Mapping[str, int]) -> dict[str, int]:
        """The macros of a build."""
        places = {f"NUMBER_{name}": place for place, (name, _) in enumerate(self._numbers)}
        kind = {"DYNAMIC_SHAPE": 1, **({"DYNAMIC_GROUPS": 1} if self.groups else {})}
        return {**kind, "DYNAMIC_NUMBERS": len(self._numbers), **places, **build}

    @property
    def _numbers(self) -> tuple[Number, ...]:
        return (*COMMON, *self.numbers)

    def values(self, p: Problem) -> npt.NDArray[np.uint32]:
        """The numbers of a problem, ``[numbers][value, multiplier, shift]``."""
        return np.array([divisor(of(p)) for _, of in self._numbers], np.uint32)

    def suits(self, p: Problem) -> bool:
        """Whether there is a build; there is none for residuals, pooling, terms, and activations other than ReLU."""
        values = {**p.constants, **{name: of(p) for name, of in self.variants}}
        conv = p.conv
        beyond = (conv.groups > 1 and not self.groups) or conv.residual or conv.ceiling or conv.silu or conv.gelu
        beyond = beyond or conv.pool_size > 0 or conv.stores_terms or conv.takes_terms
        return not beyond and any(build.items() <= values.items() for build in self.builds)


def divisor(value: int) -> tuple[int, int, int]:
    """A value with its multiplier and shift: ``n // value == n * multiplier >> shift`` for n of DIVIDENDS bits.

    The multiplier is 2^(DIVIDENDS + bits) / value rounded up, with the bits of value - 1: the error of the quotient is
    less than n / 2^DIVIDENDS / value (Granlund and Montgomery, 1994).
    """
    if value < 1:
        return value, 0, 0
    shift = DIVIDENDS + (value - 1).bit_length()
    return value, -(-(1 << shift) // value), shift
