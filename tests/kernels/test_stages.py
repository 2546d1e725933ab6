"""The rungs of a network's other stages on the host executor: exactly where they are exact, on odd shapes, no races."""

from collections.abc import Iterator

import numpy as np
import pytest
from compilers import needs_gcc
from ladders import planted
from rung_runs import run_once

from alexconv.check.hazards import BUILD, MOMENTS, Inputs, Schedule, watch_rung
from alexconv.executors import choose_executor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import H200
from alexconv.kernels.rung import Rung
from alexconv.kernels.stages.ladder import STAGE_RUNGS, STAGES
from alexconv.networks.stages import MaxPooling, Normalization, Parameters, Product, Softmax, Stage
from alexconv.planning.layouts import from_study
from alexconv.planning.planner import Plan
from alexconv.precisions import USUAL
from alexconv.shapes import Conv

N = 3
PLANES = ((13, 7, 9), (16, 6, 5))  # channels, rows, columns: chunks of channels that are whole, and one that is not


def stages_of(kind: str) -> Iterator[Stage]:
    """Odd shapes of a kind."""
    if kind == "linear":
        for inputs, outputs, bias in ((37, 5, True), (264, 19, False), (1040, 9, True)):
            yield Product("linear", Conv(inputs, 1, 1, outputs, 1, 1, bias=bias, relu=bias), planes=(inputs, 1, 1))
    elif kind == "softmax":
        yield from (Softmax("softmax", Conv(classes, 1, 1, classes, 1, 1, groups=classes)) for classes in (7, 1000))
    for C, H, W in PLANES:
        plain, windows = Conv(C, H, W, C, 1, 1, groups=C), Conv(C, H, W, C, 3, 2, 2, groups=C)
        if kind == "normalize":
            yield Normalization("norm", plain, window=3, k=1.5, alpha=0.25)
        elif kind == "max-pool":
            yield MaxPooling("pool", Conv(C, H, W, C, 3, 3, 2, groups=C))
            yield MaxPooling("pool", windows)


def kind_of(rung: Rung) -> str:
    return next(kind for rungs in STAGES.values() for kind, other in rungs.items() if other.name == rung.name)


def inputs_of(stage: Stage) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Integers, on which products are exact in fp16 too."""
    generator = np.random.default_rng(1)
    x = generator.integers(-3, 4, stage.shape.x_shape(N)).astype(np.float32)
    x[generator.random(x.shape) < 0.8] = 0
    w = generator.integers(-2, 3, stage.shape.w_shape()).astype(np.float32)
    return x, w, generator.integers(-4, 5, stage.shape.M).astype(np.float32) if stage.shape.bias else None


ELSEWHERE = {"bias-relu"}  # in place: tests/networks runs it
TESTED = [rung for rung in STAGE_RUNGS if kind_of(rung) not in ELSEWHERE]


@pytest.mark.parametrize("rung", TESTED, ids=lambda rung: rung.name)
def test_a_stage_on_odd_shapes(rung):
    host, exact = choose_executor("host", host_build="unoptimized"), kind_of(rung) in ("linear", "max-pool")
    for stage in stages_of(kind_of(rung)):
        bound = BoundRung(rung, stage.shape, rung.resolve(stage.shape, stage.constants, N), H200)
        assert bound.refusal() is None
        x, w, bias = inputs_of(stage)
        if isinstance(stage, MaxPooling):
            x[1, 2, 3, 3] = np.nan  # which every window that has it must pass on
        y = run_once(host, x, w, Plan(bound, N, N, bound.device_bytes(N)), bias=bias)
        parameters = Parameters(w, bias)
        due = stage.reference(x, parameters)
        if exact:
            np.testing.assert_array_equal(y.astype(np.float32), due)
        else:
            error = np.abs(y.astype(np.float64) - due)
            assert (error <= stage.bound(x, due, parameters, rung.precision, USUAL)).all()
            assert error.any()


def test_normalization_is_what_the_paper_says():
    stage = next(stage for stage in stages_of("normalize") if isinstance(stage, Normalization))
    x, C = inputs_of(stage)[0], stage.shape.C
    for c in (0, 1, C - 1):
        squares = sum(x[:, j].astype(float) ** 2 for j in range(max(0, c - 1), min(C - 1, c + 1) + 1))
        np.testing.assert_allclose(stage.reference(x, None)[:, c], x[:, c] / (1.5 + 0.25 * squares) ** 0.75, rtol=1e-12)


BUGS = {
    "a barrier fewer": ("softmax", "__syncthreads();  // every warp's value is in `shared`", ""),
    "sums unsynchronized": ("linear", "__syncthreads();  // all warps' sums are in `parts`", ""),
    "inputs before the wait": ("max-pool", "wait_for_primary_launches();", ""),
}


def hazards_of(rung: Rung) -> list[str]:
    """What is found in a rung on its first shape, copies and launches before it ending as late as they may."""
    stage = next(stages_of(kind_of(rung)))
    bound = BoundRung(rung, stage.shape, rung.resolve(stage.shape, stage.constants, N), H200)
    x, w, bias = (None if part is None else part.astype(rung.dtype) for part in inputs_of(stage))
    arrays = Inputs(from_study(x, rung.layout), w, bias)
    watched = watch_rung(HostRuntime(build=BUILD), bound, arrays, Schedule(MOMENTS[1]))
    assert watched.failure is None
    return [hazard.missing for hazard in (*watched.hazards, *watched.undefined)]


@needs_gcc
@pytest.mark.parametrize("rung", [rung for rung in TESTED if rung.dtype == "float16"], ids=lambda rung: rung.name)
def test_no_stage_has_a_race_or_overtakes_the_stage_before_it(rung):
    assert hazards_of(rung) == []


@needs_gcc
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_race_is_found(bug, tmp_path):
    name, text, replacement = BUGS[bug]
    rung = next(rung for rung in STAGE_RUNGS if rung.name == name)
    assert hazards_of(planted(rung, text, replacement, tmp_path))
