"""Programmatic dependent launches on a real GPU: each link of a chain reads what the previous one wrote."""

from functools import partial

import numpy as np
import pytest

from alexconv.executors import choose_executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.rung import Rung
from alexconv.planning.layouts import from_study
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import Conv

pytestmark = pytest.mark.gpu

AROUND = {"top": 1, "bottom": 1, "left": 1, "right": 1}
CHAINED = (  # as many outputs as inputs; a rung is tested on the first that it takes
    Conv(C=64, H=27, W=27, M=64, R=1, S=1),
    Conv(C=64, H=10, W=10, M=100, R=3, S=3),
    Conv(C=64, H=12, W=12, M=64, R=3, S=3, groups=64, **AROUND),
    Conv(C=8, H=12, W=12, M=8, R=3, S=3, **AROUND),
    Conv(C=64, H=12, W=12, M=64, R=3, S=3, groups=8, **AROUND),
)
LINKS = 9
DEPENDENT = [rung for rung in LADDER if any(launch.pdl for launch in rung.launches)]
SPLITS = (1, 4)


@pytest.fixture(scope="module")
def cuda():
    return choose_executor("cuda")


def enqueue_chain(opened, stream, *, pdl: bool) -> None:
    """Links that alternate between two arrays; an odd number of them ends in y."""
    forth = opened.pointers
    back = forth | {"x": forth["y"], "y": forth["x"]}
    for link in range(LINKS):
        opened.program.enqueue(1, back if link % 2 else forth, stream, pdl=pdl and link > 0)


def chosen(splits: int) -> dict[str, int]:
    """The constants that differ from their defaults."""
    return {"CHANNELS": 16, "SPLITS": splits}


def chained(rung: Rung, splits: int) -> Conv:
    """The first layer that the rung takes."""
    constants = chosen(splits)
    return next(conv for conv in CHAINED if not BoundRung(rung, conv, rung.resolve(conv, constants)).refusal())


# A rung that takes none is noticed where the tests are collected, on any machine.
CHAINED_OF = {(rung.name, splits): chained(rung, splits) for rung in DEPENDENT for splits in SPLITS}


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("rung", DEPENDENT, ids=lambda rung: rung.name)
def test_a_chain_of_dependent_launches_computes_what_ordinary_ones_do(cuda, rung: Rung, splits: int):
    if not cuda.gpu.has_pdl:
        pytest.skip("no programmatic dependent launch here")
    conv = CHAINED_OF[rung.name, splits]
    generator = np.random.default_rng(0)
    x = from_study(generator.uniform(-1, 1, conv.x_shape(1)).astype(rung.dtype), rung.layout)
    w = generator.uniform(-0.2, 0.2, conv.w_shape()).astype(rung.dtype)
    constants = rung.resolve(conv, chosen(splits))
    cut = plan(BoundRung(rung, conv, constants, cuda.device), 1, 1 << 30)
    opened = cuda.open(cuda.load(cut.bound), cut, x, w, TRANSFERS["pageable"])
    try:
        opened.outputs()
        enqueue_chain(opened, cuda.gpu.stream, pdl=False)  # makes the tensor maps, not allowed in a capture
        results = {}
        for pdl in (False, True):
            with cuda.gpu.recorded(partial(enqueue_chain, opened, pdl=pdl)) as launch:
                outputs = []
                for _ in range(20):
                    opened.outputs()  # restores the input
                    launch()
                    outputs.append(opened.download().copy())
            results[pdl] = outputs
        assert np.isfinite(results[False][0]).all() and results[False][0].any()
        for output in (*results[False], *results[True]):
            np.testing.assert_array_equal(output, results[False][0])
    finally:
        opened.close()
