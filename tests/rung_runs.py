"""Rungs run once, from arrays in the study's order to such arrays."""

import numpy as np

from alexconv.executors.interface import Executor, open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.rung import Rung
from alexconv.planning.planner import Plan, plan
from alexconv.planning.transfers import TRANSFERS, Transfer
from alexconv.shapes import Conv

PLENTY = 1 << 34  # bytes of memory


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
