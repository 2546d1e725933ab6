"""Layers together on a real GPU: as one graph and as one pipeline."""

import pytest

from alexconv import together
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import RUNGS
from alexconv.points import choose_rungs, expand
from alexconv.runner import Runner, Settings
from alexconv.transfers import transfer_named

pytestmark = pytest.mark.gpu

ALL = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def cuda():
    return choose_executor("cuda")


def record(cuda, rung: str, N: int, transfer: str) -> dict:
    points = expand("alexnet", ALL, [N], choose_rungs(rung), [transfer_named(transfer)], {})
    (joint,) = together.joint_rungs(points)
    return together.TogetherRunner(cuda, Runner(cuda, points, Settings(seconds=0.0))).record(joint)


@pytest.mark.parametrize("rung", ["direct-register", "mma-tf32", "mma-scaled", "mma-split", "mma-half"])
@pytest.mark.parametrize("N", [1, 3])
def test_a_graph_of_all_layers_is_right_and_timed(cuda, rung, N):
    if reason := RUNGS[rung].unsuited(cuda.capability):
        pytest.skip(reason)
    found = record(cuda, rung, N, "pageable")
    assert found["status"] == "ok", found["reason"]
    assert set(found["samples"]) == {"kernel", "kernel_cold"}
    assert all(min(values) > 0 for values in found["samples"].values())
    assert [layer["layer"] for layer in found["layers"]] == list(ALL)


@pytest.mark.parametrize("streams", [1, 3, 8])
@pytest.mark.parametrize("rung", ["direct-register", "tiled-half", "mma-tf32"])
def test_a_pipeline_of_all_layers_is_right_and_timed(cuda, monkeypatch, rung, streams):
    if reason := RUNGS[rung].unsuited(cuda.capability):
        pytest.skip(reason)
    monkeypatch.setattr(together, "PIECE_BYTES", 10**6)
    found = record(cuda, rung, 5, f"streamed:{streams}")
    assert found["status"] == "ok", found["reason"]
    assert set(found["samples"]) == {"total"}
    assert min(found["samples"]["total"]) > 0
    assert len(found["timeline"]) == 3 * found["pieces"]
    assert found["pieces"] > len(ALL)
