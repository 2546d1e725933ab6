"""Builds for every shape: one compilation computes all layers that a rung takes, on the host executor and on a GPU."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from rung_runs import PLENTY, assert_exact, run_once

from alexconv.cpu_reference.cache import FLOAT32, LayerData
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.executors import choose_executor
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.interface import Executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.dynamic import divisor
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import H200
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Layer
from alexconv.planning.planner import plan
from alexconv.shapes import Conv
from alexconv.tune.estimate import dynamic_builds

N = 3  # of hard data: finite, with an infinity, with a NaN
DYNAMIC = [rung for rung in LADDER if rung.dynamic]


def around(rows: int, columns: int) -> dict[str, int]:
    return {"top": rows, "bottom": rows, "left": columns, "right": columns}


# Channels in whole chunks and not, planes of several tiles and of one row, every feature alone and together.
LAYERS = [
    Conv(C=16, H=9, W=12, M=24, R=3, S=3),
    Conv(C=64, H=8, W=7, M=72, R=3, S=3, **around(1, 1), bias=True, relu=True),
    Conv(C=24, H=6, W=34, M=5, R=1, S=1, bias=True),
    Conv(C=40, H=11, W=9, M=130, R=1, S=1, U=2),
    Conv(C=8, H=1, W=60, M=16, R=1, S=5, **around(0, 2), relu=True),
    Conv(C=48, H=13, W=10, M=33, R=4, S=2, U=2, V=1, top=2, right=3, dilation_rows=2, dilation_columns=3, bias=True),
    Conv(C=3, H=19, W=15, M=12, R=5, S=4, U=2, **around(2, 1)),
    Conv(C=3, H=35, W=35, M=96, R=11, S=11, U=4, bias=True, relu=True),
    Conv(C=130, H=5, W=6, M=8, R=3, S=3, **around(1, 1)),
    Conv(C=3, H=12, W=40, M=20, R=4, S=3),
    Conv(C=36, H=7, W=9, M=20, R=3, S=3, **around(1, 1), groups=4, bias=True, relu=True),
]
HARD = Conv(C=16, H=8, W=9, M=24, R=3, S=3, top=1, bottom=2, left=2, right=1, bias=True, relu=True)
HARD_SQUARES = LAYERS[6]  # few channels and a stride, which become many channels


def quickest(rung: Rung, conv: Conv) -> BoundRung | None:
    """The build of the least estimate for a layer."""
    return next((bound for _, bound in dynamic_builds(rung, conv, N, H200)), None)


@cache
def cases() -> list:
    taken = [(rung, place, quickest(rung, conv)) for rung, (place, conv) in product(DYNAMIC, enumerate(LAYERS))]
    return [pytest.param(bound, id=f"{rung.name}-{place}") for rung, place, bound in taken if bound]


@cache
def hard_cases() -> list:
    """Each rung with a layer; with another those whose builds differ in the squares that become pixels."""
    plain = [(rung.name, quickest(rung, HARD) or quickest(rung, LAYERS[0])) for rung in DYNAMIC]
    squares = [(f"{rung.name}-squares", quickest(rung, HARD_SQUARES)) for rung in DYNAMIC if rung.dynamic.variants]
    return [pytest.param(bound, id=name) for name, bound in (*plain, *squares) if bound]


def failures(executor: Executor, bound: BoundRung, data_sets: Iterable[str] = DATA_SETS) -> list[str]:
    """The data sets on which a build breaks its class's promise, and how far it is off."""
    rung, conv, reasons = bound.rung, bound.conv, []
    for data in data_sets:
        inputs = Layer(LayerData("dynamic", 1, conv, 0, data, FLOAT32 if data == UNIFORM else rung.dtype), N)
        with np.errstate(over="ignore"):
            y = run_once(executor, inputs.x, inputs.w, plan(bound, N, PLENTY), bias=inputs.bias)
        error, tolerance = inputs.check(y, rung.precision, bound.atomic_additions())
        if not error.passes(tolerance):
            reasons.append(f"{data}: {error.scaled:.1e} of {tolerance:.1e}, {error.misplaced} misplaced")
    return reasons


@pytest.fixture(scope="module")
def host() -> Executor:
    return HostExecutor(build="unoptimized")  # layers are small


@pytest.fixture(scope="module")
def cuda() -> Executor:
    return choose_executor("cuda")


@pytest.mark.parametrize("bound", cases())
def test_integers_come_out_exactly(bound: BoundRung, host: Executor) -> None:
    assert_exact(host, bound, N)


@pytest.mark.parametrize(
    "bound, share", [pytest.param(*case.values, place % 2, id=case.id) for place, case in enumerate(hard_cases())]
)
def test_a_build_keeps_its_class_on_hard_data(bound: BoundRung, share: int, host: Executor) -> None:
    """On every other data set: rungs that are compiled for the layer have all."""
    assert failures(host, bound, [*DATA_SETS][share::2]) == []


@pytest.mark.gpu
@pytest.mark.parametrize("bound", cases())
def test_integers_come_out_exactly_on_a_gpu(bound: BoundRung, cuda: Executor) -> None:
    assert_exact(cuda, on(cuda, bound), N)


@pytest.mark.gpu
@pytest.mark.parametrize("bound", hard_cases())
def test_a_build_keeps_its_class_on_hard_data_on_a_gpu(bound: BoundRung, cuda: Executor) -> None:
    assert failures(cuda, on(cuda, bound)) == []


def on(executor: Executor, bound: BoundRung) -> BoundRung:
    """The same build on another device; skips where that cannot run the rung."""
    if reason := executor.unsuited(bound.rung):
        pytest.skip(reason)
    return replace(bound, device=executor.device)


@pytest.mark.parametrize("rung", DYNAMIC, ids=lambda rung: rung.name)
def test_every_build_is_one_that_a_layer_takes(rung: Rung) -> None:
    taken = {tuple(sorted(bound.macros.items())) for conv in LAYERS for _, bound in dynamic_builds(rung, conv, N, H200)}
    assert taken == {tuple(sorted(rung.dynamic.defines(build).items())) for build in rung.dynamic.builds}


def test_layers_share_their_builds() -> None:
    keys = defaultdict(set)
    for case in cases():
        (bound,) = case.values
        keys[bound.rung.name].add(tuple(bound.macros.items()))
    for rung in DYNAMIC:
        assert len(keys[rung.name]) <= len(rung.dynamic.builds)


def test_a_divisor_divides_every_number_of_31_bits() -> None:
    draw = np.random.default_rng(1)
    values = {*range(1, 300), *(1 << bits for bits in range(31)), *draw.integers(1, 2**31, 2000).tolist(), 2**31 - 1}
    for value in values:
        _, multiplier, shift = divisor(value)
        last = (2**31 - 1) // value * value
        for n in (0, value - 1, value, last - 1, last, 2**31 - 1):
            assert n * multiplier >> shift == n // value and multiplier < 2**32
