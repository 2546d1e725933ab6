"""Runs a rung once, with arrays in the study's order."""

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from alexconv.cpu_reference.reference import reference
from alexconv.executors.interface import Executor, open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
from alexconv.measuring.ahead import build_all
from alexconv.planning.checks import exact_bias, exact_inputs
from alexconv.planning.planner import Plan, plan
from alexconv.planning.transfers import TRANSFERS, Transfer
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

PLENTY = 1 << 34  # bytes of memory
DEEP = Conv(C=16, H=9, W=12, M=24, R=3, S=3, pad=1)  # with default constants, so that tests share compiled rungs
SHALLOW, NARROW = replace(DEEP, C=3), replace(DEEP, M=3)
GROUPED = replace(DEEP, groups=2, pad=0, top=1, bottom=1, left=1, right=1)  # for rungs that take no other
DEPTHWISE = replace(GROUPED, M=16, groups=16)  # the same


def run_once(
    executor: Executor,
    x: np.ndarray,
    w: np.ndarray,
    cut: Plan,
    transfer: Transfer = TRANSFERS["pageable"],
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """The outputs, ``[N][M][E][F]``."""
    with open_rung(executor, cut, x, w, transfer, bias) as opened:
        return opened.outputs().copy()


def whole(rung: Rung, conv: Conv, N: int, **chosen: int) -> Plan:
    """One piece of N images, with those of the chosen constants that the rung has."""
    return plan(BoundRung(rung, conv, rung.resolve(conv, chosen)), N, PLENTY)


def small_layer(rung: Rung) -> Conv:
    """DEEP, or another for a rung that does not take it."""
    others = (
        conv
        for conv in (DEEP, SHALLOW, NARROW, GROUPED, DEPTHWISE)
        if not rung.refuses(Problem(conv, 2, rung.resolve(conv, {})))
    )
    return next(others)


def assert_exact(executor: Executor, bound: BoundRung, N: int, images: int | None = None) -> None:
    """Integers come out exactly, of a batch in pieces of ``images`` or in one."""
    conv, images = bound.conv, images or N
    (x, w), bias = exact_inputs(conv, N, PRECISIONS[bound.rung.precision], seed=1), exact_bias(conv, seed=1)
    y = run_once(executor, x, w, Plan(bound, N, images, bound.device_bytes(images)), bias=bias)
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w, bias))


def compile_ahead(request: pytest.FixtureRequest, executor: Executor, bound_of: Callable[..., BoundRung]) -> None:
    """Compiles what the module's GPU tests of this run need, a compiler per core; a failure is raised by its test.

    ``bound_of`` gets the parameters of each test that has a parameter ``rung``.  The workers of xdist compile side by
    side, each what its next test needs.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    tests = [item for item in request.session.items if item.path == request.path and item.get_closest_marker("gpu")]
    choices = [
        item.callspec.params for item in tests if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    wanted = dict.fromkeys(bound_of(**parameters) for parameters in choices if "rung" in parameters)
    build_all(executor, (bound for bound in wanted if not (executor.unsuited(bound.rung) or bound.refusal())))
