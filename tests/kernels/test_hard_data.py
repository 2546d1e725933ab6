"""Every rung keeps what its class promises on every data set, on the host executor and on a GPU."""

import runpy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from attack_size import FACTOR, in_turn
from rung_runs import DEEP, DEPTHWISE, compile_ahead, run_once, whole

from alexconv.cpu_reference.cache import FLOAT32, LayerData
from alexconv.cpu_reference.reference import patch_norms, reference
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.executors import choose_executor
from alexconv.executors.interface import Executor
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Layer
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

N = 3  # images: finite, with an infinity, with a NaN
DILATED = {"dilation_rows": 2, "dilation_columns": 3}
GROUPED = "grouped"
SHAPES = {
    "deep": DEEP,
    "strided": Conv(C=3, H=19, W=15, M=12, R=5, S=4, U=2),
    # Layers as networks have them, for the rungs that take padding.
    "padded": Conv(C=16, H=8, W=9, M=24, R=3, S=3, top=1, bottom=2, left=2, right=1, bias=True, relu=True),
    "dilated": Conv(C=5, H=17, W=13, M=12, R=5, S=4, U=2, V=3, top=2, left=1, right=2, bias=True, **DILATED),
    GROUPED: Conv(C=64, H=6, W=7, M=20, R=3, S=2, top=1, left=1, right=2, groups=4, bias=True),
    "depthwise": replace(DEPTHWISE, bias=True, relu=True),
    "few filters": Conv(C=40, H=6, W=34, M=3, R=3, S=2, top=1, bottom=2, right=1, bias=True),
}
LARGE = {  # of ResNet-50; part of its first layer
    "7x7, stride 2": Conv(C=3, H=96, W=96, M=64, R=7, S=7, U=2, top=3, bottom=3, left=3, right=3, bias=True),
    "3x3": Conv(C=128, H=28, W=28, M=128, R=3, S=3, top=1, bottom=1, left=1, right=1, bias=True, relu=True),
}
ALL_SHAPES = {**SHAPES, **LARGE}
TENSOR_CORES = ("mma", "wgmma")


@cache
def layer(conv: Conv, data: str, dtype: str) -> Layer:
    """Inputs and reference of a shape that belongs to no workload."""
    return Layer(LayerData("hard", 1, conv, 0, data, FLOAT32 if data == UNIFORM else dtype), N)


def failures(executor, rung: Rung, conv: Conv, data_sets: Iterable[str] = DATA_SETS) -> list[str]:
    """The data sets on which a rung breaks its promise, and how far it is off."""
    cut, broken = whole(rung, conv, N), []
    for data in data_sets:
        inputs = layer(conv, data, rung.dtype)
        with np.errstate(over="ignore"):
            y = run_once(executor, inputs.x, inputs.w, cut, bias=inputs.bias)
        error, tolerance = inputs.check(y, rung.precision, cut.bound.atomic_additions())
        if not error.passes(tolerance):
            broken.append(f"{data}: {error.scaled:.1e} of {tolerance:.1e}, {error.misplaced} misplaced")
    return broken


def takes(rung: Rung, conv: Conv) -> bool:
    return rung.refuses(Problem(conv, N, rung.resolve(conv, {}))) is None


def shapes_of(rung: Rung, shapes: dict[str, Conv]) -> list[str]:
    """The shapes that the rung takes; of the others only the first."""
    several = rung.takes or rung.family in TENSOR_CORES
    return [name for name, conv in shapes.items() if takes(rung, conv) and (name == "deep" or several)]


def cases_on_host() -> Iterator:
    """All data on the first shape that a rung takes; for every other rung, every other set on another shape.

    The other shape has groups, or is not the one that the rung's neighbours have.  It has too few runs to be worth
    optimizing the kernel.
    """
    for place, rung in enumerate(LADDER):
        shapes = [] if rung.gpu_only else shapes_of(rung, SHAPES)
        for first in shapes[:1]:
            yield pytest.param(rung, SHAPES[first], [*DATA_SETS], "fast", id=f"{rung.name}-{first}")
        others = [GROUPED] if GROUPED in shapes[1:] else shapes[1:]
        for other in in_turn(others, place // 2) if FACTOR > 1 or place % 2 else []:
            half = [*DATA_SETS][place % 2 :: 2]
            yield pytest.param(rung, SHAPES[other], half, "unoptimized", id=f"{rung.name}-{other}")


@pytest.mark.parametrize("rung, conv, data_sets, build", [*cases_on_host()])
def test_a_rung_keeps_its_promise_on_all_data(rung: Rung, conv: Conv, data_sets: list[str], build: str):
    assert failures(choose_executor("host", host_build=build), rung, conv, data_sets) == []


@pytest.mark.parametrize(
    "rung",
    [rung for rung in LADDER if "groups" in rung.takes and rung.tensor_factors == "fp16" and rung.dtype == "float32"],
    ids=lambda rung: rung.name,
)
def test_a_faint_group_keeps_its_own_bound(rung: Rung):
    conv, random = SHAPES[GROUPED], np.random.default_rng(1)
    x, w = (random.uniform(-1, 1, shape).astype(np.float32) for shape in (conv.x_shape(2), conv.w_shape()))
    x[:, : conv.one_group.C] *= np.float32(2.0**-30)
    y = run_once(
        choose_executor("host", host_build="unoptimized"), x, w, whole(rung, conv, 2), bias=np.zeros(conv.M, np.float32)
    )
    unbiased = replace(conv, bias=False)  # whose norms have no tap for the bias
    of_outputs = patch_norms(unbiased, x) * np.linalg.norm(w.reshape(conv.M, -1), axis=1)[:, None, None]
    error = np.abs(y - reference(unbiased, x, w))
    assert (error <= PRECISIONS[rung.precision].tolerance(conv.K) * of_outputs).all()


@pytest.fixture(scope="module")
def cuda(request: pytest.FixtureRequest) -> Executor:
    executor = choose_executor("cuda")
    compile_ahead(request, executor, lambda rung, conv: whole(rung, conv, N).bound)
    return executor


@pytest.mark.gpu
@pytest.mark.parametrize(
    "rung, conv",
    [
        pytest.param(rung, ALL_SHAPES[name], id=f"{rung.name}-{name}")
        for rung in LADDER
        for name in shapes_of(rung, ALL_SHAPES)
    ],
)
def test_a_rung_keeps_its_promise_on_all_data_on_a_gpu(cuda: Executor, rung: Rung, conv: Conv):
    assert failures(cuda, rung, conv) == []


@pytest.mark.parametrize("rung", [rung for rung in LADDER if "-atomic" in rung.name], ids=lambda rung: rung.name)
def test_atomics_that_flush_are_part_of_the_promise(rung: Rung):
    undeclared = replace(rung, atomic_additions=lambda p: 0)
    failed = failures(choose_executor("host"), undeclared, SHAPES["deep"])
    assert len(failed) == 1 and failed[0].startswith("subnormal")


def test_every_data_set_tells_wrong_outputs_from_right_ones():
    """An error of twice the bound, and NaN or infinity in place of a number, fail on every data set."""
    for data in set(DATA_SETS) - {"zeros"}:
        inputs = layer(SHAPES["deep"], data, FLOAT32)
        error, tolerance = inputs.check(inputs.reference, "fp32")
        assert error.passes(tolerance) and error.misplaced == 0
        finite = np.isfinite(inputs.reference)
        place = tuple(np.argwhere(finite)[-1])
        for value in (np.nan, np.inf, inputs.reference[place] + 2 * tolerance * norms(inputs, place)):
            wrong = inputs.reference.copy()
            wrong[place] = value
            assert not inputs.check(wrong, "fp32")[0].passes(tolerance), (data, value)
        if not finite.all():
            wrong = inputs.reference.copy()
            wrong[tuple(np.argwhere(np.isnan(wrong) if np.isnan(wrong).any() else ~finite)[0])] = 0
            assert not inputs.check(wrong, "fp32")[0].passes(tolerance), data


def norms(inputs: Layer, place: tuple[int, ...]) -> float:
    n, m, e, f = place
    patches, filters = inputs.norms
    return max(float(patches[n, e, f] * filters[m]), 1e-36)


def test_the_script_of_hard_data_holds_each_rung_to_its_bound():
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "measure" / "hard_data.py"))
    script["searched"].__globals__["LADDER"] = [RUNGS[name] for name in ("direct", "channels-atomic")]
    records = list(script["searched"](choose_executor("host"), 3))
    assert [record["rung"] for record in records] == ["direct", "channels-atomic"]
    assert all(0 < record["ratio"] <= 1 and record["trials"] == 3 for record in records)
