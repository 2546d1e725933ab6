"""Sequences of layers on a real GPU: as one graph and as one pipeline."""

import numpy as np
import pytest
from points import batch_of

from alexconv.executors import choose_executor
from alexconv.executors.cuda.graphs import Graph
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring import sequences
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.points import choose_rungs, expand
from alexconv.planning.transfers import transfer_named

pytestmark = pytest.mark.gpu

ALL = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def cuda():
    return choose_executor("cuda")


def record(cuda, rung: str, N: int, transfer: str, layers=ALL) -> dict:
    batches = [batch_of("alexnet", layer, N) for layer in layers]
    points = expand(batches, choose_rungs(rung), [transfer_named(transfer)])
    (sequence,) = sequences.rung_sequences(points)
    return sequences.SequenceRunner(cuda, Runner(cuda, points, Settings(seconds=0.0))).record(sequence)


@pytest.mark.parametrize("rung", ["direct-register", "mma-tf32", "mma-split", "mma-half", "wgmma-half", "wgmma-split"])
@pytest.mark.parametrize("N", [1, 3])
def test_a_graph_of_all_layers_is_right_and_timed(cuda, rung, N):
    if reason := RUNGS[rung].unsuited(cuda.gpu.capability):
        pytest.skip(reason)
    layers = ALL[1:] if rung.startswith("wgmma") else ALL  # these take no three channels
    facts = record(cuda, rung, N, "pageable", layers)
    assert facts["status"] == "ok", facts["reason"]
    assert set(facts["samples"]) == {"kernel", "kernel_cold"}
    assert all(min(values) > 0 for values in facts["samples"].values())
    assert [layer["layer"] for layer in facts["layers"]] == list(layers)
    assert facts["exact"] == {"images": N, "wrong": 0}


@pytest.mark.parametrize("streams", [1, 3, 8])
@pytest.mark.parametrize("rung", ["direct-register", "tiled-half", "mma-tf32"])
def test_a_pipeline_of_all_layers_is_right_and_timed(cuda, monkeypatch, rung, streams):
    if reason := RUNGS[rung].unsuited(cuda.gpu.capability):
        pytest.skip(reason)
    monkeypatch.setattr(sequences, "PIECE_BYTES", 10**6)
    facts = record(cuda, rung, 5, f"streamed:{streams}")
    assert facts["status"] == "ok", facts["reason"]
    assert set(facts["samples"]) == {"total"}
    assert min(facts["samples"]["total"]) > 0
    assert len(facts["timeline"]) == 3 * facts["pieces"]
    assert facts["pieces"] > len(ALL)


def test_what_is_freed_during_a_recording_does_not_spoil_it(cuda):
    pycuda = pytest.importorskip("pycuda.driver")
    garbage = [pycuda.pagelocked_empty(1000, np.float32), pycuda.mem_alloc(1000)]
    target = pycuda.mem_alloc(4)
    pycuda.memset_d32(target, 0, 1)

    def enqueue():
        garbage.clear()
        pycuda.memset_d32_async(target, 7, 1, cuda.gpu.stream)

    graph = Graph(enqueue, cuda.gpu.stream)
    graph.launch()
    cuda.gpu.stream.synchronize()
    value = np.zeros(1, np.uint32)
    pycuda.memcpy_dtoh(value, target)
    graph.close()
    assert not garbage
    assert value[0] == 7
