"""Rungs run once, from arrays in the study's order to such arrays."""

import numpy as np

from alexconv.executors.point import Executor
from alexconv.kernels.rung import Rung
from alexconv.layouts import from_study, to_study
from alexconv.planner import Plan, plan
from alexconv.shapes import Conv
from alexconv.transfers import TRANSFERS

PLENTY = 1 << 34  # bytes of memory


def run_once(executor: Executor, rung: Rung, conv: Conv, x: np.ndarray, w: np.ndarray, cut: Plan) -> np.ndarray:
    """The outputs, ``[N][M][E][F]``."""
    program = executor.load(rung, conv, cut.constants)
    inputs = from_study(x.astype(rung.dtype), rung.layout)
    opened = executor.open(program, cut, inputs, w.astype(rung.dtype), TRANSFERS["pageable"])
    return to_study(opened.outputs(), rung.layout).copy()


def whole(rung: Rung, conv: Conv, N: int, **chosen: int) -> Plan:
    """One piece of N images, with those of the chosen constants that the rung has."""
    return plan(rung, conv, N, rung.resolve(conv, chosen), PLENTY)
