"""Searches over workers, on a made-up GPU whose times follow from the constants."""

import pytest

from alexconv.cluster import worker
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import RUNGS
from alexconv.records.store import read
from alexconv.shapes import WORKLOADS
from alexconv.tune import __main__ as tune
from alexconv.tune import cache as tuning_cache
from alexconv.tune.measured import Request

FASTEST_TILE = 12
SEARCH = ["--workload", "lenet-86-k7", "--layers", "1-2", "--N", "1"]


class MadeUpArrays(HostBuffers):
    def measure(self, seconds):
        constants = self.plan.constants
        return {"kernel": [1.0 + abs(constants.get("TILE", FASTEST_TILE) - FASTEST_TILE)] * 3}


class MadeUpGpu(HostExecutor):
    measures = True

    def header(self):
        return {**super().header(), "name": "made-up GPU", "compute_capability": [9, 0], "toolkit": "13.0"}

    def open(self, program, plan, x, w, transfer, bias=None):
        return MadeUpArrays(self.runtime, program, plan, x, w)


@pytest.fixture
def address(cache_of_tuning, monkeypatch):
    """Two workers in this process, each with the made-up GPU."""
    from distributed import LocalCluster

    monkeypatch.setattr(worker, "choose_executor", lambda *arguments: MadeUpGpu())
    monkeypatch.setattr(worker, "_executors", {})
    with LocalCluster(n_workers=2, processes=False, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address


def test_searches_run_on_workers_and_are_kept(address, tmp_path, capsys):
    out = tmp_path / "tuning.jsonl"
    words = [*SEARCH, "--rungs", "tiled", "--constants", "TILE", "--set", "TILE=8,12,16", "--cluster", address]
    assert tune.main([*words, "--out", str(out)]) == 0
    records = read([out])
    tried = {(record["point"]["layer"], record["point"]["constants"]["TILE"]) for record in records.points}
    assert tried >= {(layer, tile) for layer in (1, 2) for tile in (8, 12, 16)}
    workers = {header["key"] for header in records.headers.values() if header["type"] == "worker"}
    assert len(workers) == 2
    assert all(record["worker"] in workers for record in records.points)
    for layer in (1, 2):
        assert len({record["worker"] for record in records.points if record["point"]["layer"] == layer}) == 1
        conv = WORKLOADS["lenet-86-k7"].layer(layer)
        best = tuning_cache.load(MadeUpGpu(), RUNGS["tiled"], conv, 1, pytest.fail)
        assert best.constants["TILE"] == FASTEST_TILE
    before = len(records.points)
    assert tune.main([*words, "--out", str(out), "--resume"]) == 0
    assert len(read([out]).points) == before
    assert "error" not in capsys.readouterr().err


def test_rungs_are_compared_on_workers(address, tmp_path):
    out = tmp_path / "tuning.jsonl"
    words = ["--auto", *SEARCH, "--rungs", "tiled,direct-register", "--precision", "fp32", "--cluster", address]
    assert tune.main([*words, "--out", str(out)]) == 0
    best = tuning_cache.load_best(
        MadeUpGpu(), Request(WORKLOADS["lenet-86-k7"].layer(1), 1, "fp32", "nchw"), lambda line: pytest.fail(line)
    )
    assert best.rung.name == "direct-register"
    assert len(read([out]).points) == 4 + 2, "the fastest of each layer runs again"
