"""The simulated schedule: real dispatch and records, points that sleep."""

import importlib.util
import sys
from pathlib import Path

import pytest

from alexconv.records.store import read

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def simulate(monkeypatch):
    spec = importlib.util.spec_from_file_location("simulate_cluster", ROOT / "scripts" / "simulate_cluster.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_a_simulated_schedule_records_every_point_and_what_it_took(simulate, tmp_path):
    out, records = tmp_path / "out.jsonl", tmp_path / "records.jsonl"
    words = [str(ROOT / "results" / "h200-alexnet-budget.jsonl"), "--workers", "3", "--copies", "2", "--speed", "20"]
    assert simulate.main([*words, "--records", str(records), "--out", str(out)]) == 0
    (found,) = (header for header in read([out]).headers.values() if header["type"] == simulate.TYPE)
    assert (found["workers"], found["groups"], found["points"]) == (3, 10, 20)
    assert len(read([records]).points) == 20
    assert found["schedule_s"] >= found["ideal_s"] > 0
    assert found["overhead_share"] == pytest.approx(found["overhead_ms_a_point"] / 1e3 / found["point_s"], rel=1e-2)


def test_the_ideal_schedule_gives_each_group_to_who_is_free_first(simulate):
    assert simulate.ideal(2, [3.0, 2.0, 2.0, 1.0]) == 4.0
    assert simulate.ideal(1, [3.0, 2.0]) == 5.0
