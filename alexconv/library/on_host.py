"""Convolutions of arrays in host memory, on the CPU."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from math import erf, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.errors import MissingTool, OutOfMemory
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.interface import open_rung
from alexconv.library.calls import MOST_CALLS, Call
from alexconv.messages import print_to_stderr
from alexconv.planning.planner import MEBIBYTE, plan_on
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import PRECISIONS
from alexconv.records.environment import available_memory
from alexconv.shapes import Conv
from alexconv.tune import auto
from alexconv.tune.measured import Request

Values = npt.NDArray[Any]


@cache
def host_executor() -> HostExecutor:
    """The host executor; raises MissingTool without a C++ compiler."""
    return HostExecutor()


def on_host(x: Values, w: Values, bias: Values | None, call: Call) -> Values:
    """``[N][M][E][F]`` of planes ``[N][C][H][W]``; raises MissingTool, and OutOfMemory where nothing fits."""
    conv = replace(call.conv, y_channels=0)  # the caller copies into a slice
    compute = computed if chosen(conv, len(x), call.terms.precision) else in_parts
    needed, available = x.itemsize * elements(conv, len(x), parts=compute is in_parts), available_memory()
    if needed > available:
        raise OutOfMemory(
            f"the call needs {needed / MEBIBYTE:.1f} MiB of host memory, {available / MEBIBYTE:.1f} are available"
        )
    return compute(conv, x, np.ascontiguousarray(w), bias, call.terms.precision)


def elements(conv: Conv, N: int, *, parts: bool) -> int:
    """Elements of the output, and with ``parts`` of the padded planes and the patches of a group."""
    of_parts = conv.C * prod(conv.padded) + conv.K * conv.E * conv.F if parts else 0
    return N * (conv.M * conv.E * conv.F + of_parts)


def computed(conv: Conv, x: Values, w: Values, bias: Values | None, precision: str) -> Values:
    """The output of a layer that a rung takes."""
    choice = required(conv, len(x), precision)
    cut = plan_on(host_executor(), choice.bound(host_executor(), conv), len(x))
    with open_rung(host_executor(), cut, x, w, TRANSFERS["pageable"], bias) as opened:
        return np.array(opened.outputs(), order="C")


def in_parts(conv: Conv, x: Values, w: Values, bias: Values | None, precision: str) -> Values:
    """The output of a layer that no rung takes as it is.

    Each group is a layer of 1 x 1 filters over its patches (im2col), which have no taps but the layer's own: a filter
    dilated with zeros would multiply them with infinities.  Bias and ReLU come last.
    """
    planes = np.pad(x, ((0, 0), (0, 0), (conv.top, conv.bottom), (conv.left, conv.right)))
    groups = zip(np.split(planes, conv.groups, 1), np.split(w, conv.groups), strict=True)
    layer = of_patches(conv)
    parts = [
        computed(layer, patches(conv, of_group), filters.reshape(layer.w_shape()), None, precision)
        for of_group, filters in groups
    ]
    y = np.concatenate(parts, axis=1)
    if bias is not None:
        y = y + bias[:, None, None]
    return np.ascontiguousarray(activated(y, conv))


def activated(y: Values, conv: Conv) -> Values:
    """Outputs, given their sums, in the same type; NaN stays NaN."""
    if conv.silu:
        with np.errstate(over="ignore"):
            smooth: Values = (y / (1 + np.exp(-y.astype(np.float32)))).astype(y.dtype)
        return smooth
    if conv.gelu:
        halves: Values = (0.5 * y * (1 + np.vectorize(erf, [np.float64])(y / sqrt(2)))).astype(y.dtype)
        return halves
    most = conv.ceiling or np.inf
    return np.clip(y, 0, most, dtype=y.dtype) if conv.relu else y


def of_patches(conv: Conv) -> Conv:
    """The layer of 1 x 1 filters that computes a group from its patches, ``[N][C R S][E][F]``."""
    return Conv(C=conv.K, H=conv.E, W=conv.F, M=conv.M // conv.groups, R=1, S=1)


def patches(conv: Conv, planes: Values) -> Values:
    """The patches ``[N][C R S][E][F]`` of a group's padded planes ``[N][C][H][W]``."""
    (down, across), (rows, columns) = conv.strides, conv.dilation
    windows = np.lib.stride_tricks.sliding_window_view(planes, (conv.filter_rows, conv.filter_columns), (2, 3))
    taps = windows[:, :, ::down, ::across, ::rows, ::columns].transpose(0, 1, 4, 5, 2, 3)  # [N][C][R][S][E][F]
    return np.ascontiguousarray(taps).reshape(len(planes), conv.K, conv.E, conv.F)


def required(conv: Conv, N: int, precision: str) -> auto.Choice:
    """The rung for N images; raises MissingTool where none takes the layer, and OutOfMemory as ``chosen`` does."""
    choice = chosen(conv, N, precision)
    if choice is None:
        raise MissingTool(f"no rung of precision {precision} takes {conv} with N={N} here")
    return choice


@lru_cache(maxsize=MOST_CALLS)
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
            if choice := auto.choose(executor, Request(conv, N, name, layout), print_to_stderr, most):
                yield choice
