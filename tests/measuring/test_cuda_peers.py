"""Peers on a real GPU: right, timed, and leaving torch and the device as they were."""

import pytest
from points import batch_of, point_of

from alexconv.executors import choose_executor
from alexconv.measuring import cudnn_peers, torch_peers
from alexconv.measuring.peers import peer_points, peer_sequences
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.peers import CUDNN_PEERS, TORCH_PEERS
from alexconv.shapes import WORKLOADS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.filterwarnings("default"),
]  # torch's own warnings are no errors

N = 3
POINTS = [
    point_of(batch_of("alexnet", number, N), "direct") for number in range(1, len(WORKLOADS["alexnet"].layers) + 1)
]


@pytest.fixture(scope="module")
def cuda():
    pytest.importorskip("torch")
    return choose_executor("cuda")


@pytest.fixture(scope="module")
def runner(cuda):
    return torch_peers.TorchRunner(torch_peers.import_torch(cuda), cuda, Runner(cuda, POINTS, Settings(seconds=0.0)))


@pytest.mark.parametrize("point", peer_points(POINTS, TORCH_PEERS), ids=lambda point: f"{point.rung}-{point.layer}")
def test_a_peer_is_right_and_timed(runner, point):
    record = runner.record(point)
    assert record["status"] == "ok", record["reason"]
    assert {"kernel", "kernel_cold"} == set(record["samples"])
    assert all(min(values) > 0 for values in record["samples"].values())
    assert record["peer"]["kernels"]
    assert record["peer"]["workspace_bytes"] >= 0
    assert record["exact"]["images"] == N and record["exact"]["wrong"] == 0
    assert ("within" in record["exact"]) == (torch_peers.transform_of(record["peer"]["kernels"]) is not None)
    assert 100 < record["under_load"]["clock_mhz"] < 4000
    assert record["health"][0].keys() >= {"power_w", "temperature_c"}


def test_every_plan_of_cudnns_is_tried_and_the_fastest_is_right(cuda):
    pytest.importorskip("cudnn")
    modules = torch_peers.import_with_torch(cuda, "cudnn")
    for point in peer_points(POINTS[2:3], CUDNN_PEERS):
        record = cudnn_peers.CudnnRunner(modules, cuda, Runner(cuda, POINTS, Settings(seconds=0.0))).record(point)
        assert record["status"] == "ok", record["reason"]
        assert record["peer"]["plans"][0]["tried"] > 1
        assert record["peer"]["kernels"]


def test_sustained_times_are_a_figure_of_rungs_and_peers(cuda, runner, monkeypatch):
    monkeypatch.setattr(cuda, "sustained", 0.05)
    rung = Runner(cuda, POINTS, Settings(seconds=0.0, baseline=False)).record(POINTS[2])
    peer = runner.record(peer_points(POINTS[2:3], TORCH_PEERS)[0])
    assert rung["audit"]["sustained"]["power_w"] > 0
    assert peer["under_load"]["sustained"]["power_w"] > 0
    for record in (rung, peer):
        hot, sustained = (min(record["samples"][name]) for name in ("kernel", "kernel_sustained"))
        assert hot / 2 < sustained < 2 * hot + 0.1


@pytest.mark.parametrize("joint", peer_sequences(POINTS, TORCH_PEERS), ids=lambda joint: joint.rung)
def test_layers_together_take_longer_than_any_of_them(runner, joint):
    record = runner.record(joint)
    assert record["status"] == "ok", record["reason"]
    first = runner.record(joint.points()[0])
    assert min(record["samples"]["kernel"]) > min(first["samples"]["kernel"])


@pytest.mark.alone
def test_torchs_flags_and_the_devices_memory_are_given_back(cuda, runner):
    import torch

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul

    def flags():
        return cudnn.benchmark, cudnn.conv.fp32_precision, matmul.fp32_precision

    point = peer_points(POINTS, TORCH_PEERS)[0]
    runner.record(point)
    before, free = flags(), cuda.gpu.driver.mem_get_info()[0]
    runner.record(point)
    assert flags() == before
    assert cuda.gpu.driver.mem_get_info()[0] == pytest.approx(free, abs=64 << 20)


def test_rungs_still_run_after_peers(cuda, runner):
    runner.record(peer_points(POINTS, TORCH_PEERS)[0])
    assert Runner(cuda, POINTS, Settings(seconds=0.0, baseline=False)).record(POINTS[2])["status"] == "ok"
