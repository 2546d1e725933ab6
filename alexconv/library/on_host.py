"""Convolutions of arrays in host memory, on the CPU."""

import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.errors import MissingTool, OutOfMemory
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.interface import open_rung
from alexconv.library.calls import Call
from alexconv.messages import print_to_stderr
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.planner import plan_on
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import Conv
from alexconv.tuning import auto

Values = npt.NDArray[Any]


@cache
def host_executor() -> HostExecutor:
    """The host executor; raises MissingTool without a C++ compiler."""
    return HostExecutor()


def on_host(x: Values, w: Values, bias: Values | None, call: Call) -> Values:
    """``[N][M][E][F]`` of planes ``[N][C][H][W]``; raises MissingTool, and OutOfMemory where nothing fits."""
    if chosen(call.conv, len(x), call.terms.precision):
        return computed(call.conv, x, w, bias, call.terms.precision)
    return in_parts(call.conv, x, w, bias, call.terms.precision)


def computed(conv: Conv, x: Values, w: Values, bias: Values | None, precision: str) -> Values:
    """The output of a layer that a rung takes."""
    choice = chosen(conv, len(x), precision)
    if choice is None:
        raise MissingTool(f"no rung of precision {precision} takes {conv} with N={len(x)} here")
    cut = plan_on(host_executor(), choice.rung, conv, len(x), choice.constants)
    with open_rung(host_executor(), cut, x, w, TRANSFERS["pageable"], bias) as opened:
        return np.array(opened.outputs(), order="C")


def in_parts(conv: Conv, x: Values, w: Values, bias: Values | None, precision: str) -> Values:
    """The output of a layer that no rung takes as it is.

    Planes are padded and filters dilated with zeros, each group is a separate layer, and where the strides differ
    outputs are dropped; bias and ReLU come last.
    """
    x = np.pad(x, ((0, 0), (0, 0), (conv.top, conv.bottom), (conv.left, conv.right)))
    filters = np.zeros((*w.shape[:2], conv.filter_rows, conv.filter_columns), w.dtype)
    filters[:, :, :: conv.dilation_rows, :: conv.dilation_columns] = w
    down, across = conv.strides
    step = gcd(down, across)
    parts = [
        computed(plain(planes.shape[1:], of_group.shape, step), np.ascontiguousarray(planes), of_group, None, precision)
        for planes, of_group in zip(np.split(x, conv.groups, 1), np.split(filters, conv.groups), strict=True)
    ]
    y = np.concatenate(parts, axis=1)[:, :, :: down // step, :: across // step]
    if bias is not None:
        y = y + bias[:, None, None]
    return np.ascontiguousarray(np.maximum(y, y.dtype.type(0)) if conv.relu else y)


def plain(planes: tuple[int, ...], filters: tuple[int, ...], stride: int) -> Conv:
    """The bare convolution of planes (C, H, W) with filters (M, C, R, S)."""
    C, H, W = planes
    M, _, R, S = filters
    return Conv(C=C, H=H, W=W, M=M, R=R, S=S, U=stride)


@lru_cache(maxsize=4096)
def chosen(conv: Conv, N: int, precision: str) -> auto.Choice | None:
    """The rung for N images, None if none takes the layer; raises OutOfMemory if none of those fits."""
    executor = host_executor()
    budget = executor.memory_budget()
    for most in (budget, sys.maxsize):
        for choice in choices(executor, conv, N, precision, most):
            if most > budget:
                raise OutOfMemory(f"{choice.rung.name}: {auto.misfit(executor, choice, conv, N, budget)}")
            return choice
    return None


def choices(executor: HostExecutor, conv: Conv, N: int, precision: str, most: int) -> Iterator[auto.Choice]:
    """The rungs, also of stricter classes, that compute a layer within a memory budget."""
    for name in (precision, *PRECISIONS[precision].stricter):
        for layout in auto.layouts_of(name):
            if choice := auto.choose(executor, conv, N, name, layout, print_to_stderr, most):
                yield choice
