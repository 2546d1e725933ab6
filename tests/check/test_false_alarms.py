"""The check for async hazards reports nothing on the ladder's rungs, whatever their shape and constants."""

from dataclasses import replace

import numpy as np
from attack_size import drawing, keep, shares
from compilers import needs_gcc

from alexconv.check.hazards import BUILD, MOMENTS, Inputs, Schedule, watch_rung
from alexconv.cpu_reference.reference import reference
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import H200
from alexconv.planning.checks import exact_bias, exact_inputs
from alexconv.planning.layouts import from_study, to_study
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

ASYNC_RUNGS = [rung for rung in LADDER if rung.family in ("igemm", "mma", "wgmma")]
DEVICE = replace(H200, multiprocessors=2)  # so that persistent blocks have several tiles


def drawn(draw):
    """An asynchronous rung with a shape, images and constants that it takes."""
    while True:
        rung = draw.choice(ASYNC_RUNGS)
        R, S, U = draw.randint(1, 5), draw.randint(1, 5), draw.choice((1, 1, 2))
        pads = {name: draw.randint(0, 2) for name in ("top", "bottom", "left", "right")} if draw.random() < 0.5 else {}
        extras = {"bias": draw.random() < 0.5, "relu": draw.random() < 0.5} if draw.random() < 0.5 else {}
        H, W = R + draw.randint(0, 9), S + draw.randint(0, 9)
        conv = Conv(
            C=draw.choice((1, 3, 8, 16, 40)), H=H, W=W, M=draw.choice((1, 8, 24, 100)), R=R, S=S, U=U, **pads, **extras
        )
        chosen = {
            constant.name: draw.choice(constant.choices)
            for constant in rung.constants
            if constant.choices and draw.random() < 0.5
        }
        N = draw.randint(1, 3)
        try:
            constants = rung.resolve(conv, chosen, N, DEVICE)
        except ValueError:
            continue
        if (bound := BoundRung(rung, conv, constants, DEVICE)).refusal() is None:
            return bound, N


@needs_gcc
@shares(5)
def test_no_shape_and_no_constants_of_an_async_rung_give_a_false_alarm(share):
    draw, runtime = drawing(share), HostRuntime(build=BUILD)
    bound, N = drawn(draw)
    rung, conv = bound.rung, bound.conv
    x, w = exact_inputs(conv, N, PRECISIONS[rung.precision], seed=2)
    bias = exact_bias(conv, seed=2)
    added = None if bias is None else bias.astype(rung.dtype)
    inputs = Inputs(from_study(x, rung.layout).astype(rung.dtype), w.astype(rung.dtype), added)
    outcome = watch_rung(runtime, bound, inputs, Schedule(draw.choice(MOMENTS), draw.randint(0, 99)))
    # A block of a cluster is watched alone, with its own sums in place of the others'.
    alone = bound.constants.get("CLUSTER", 1) > 1
    right = alone or np.array_equal(to_study(outcome.y, rung.layout).astype("f4"), reference(conv, x, w, bias))
    alarm = bool(outcome.hazards or outcome.failure or not right)
    keep("asynchronous rungs with random shapes and constants", 1, "hazards reported, or wrong integers", int(alarm))
    assert not alarm, (rung.name, conv, N, bound.constants, list(map(str, outcome.hazards)), outcome.failure, right)
