"""A new workload, executor, transfer or peer is one entry in its table: here each gets one, and a run uses them."""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from alexconv import run
from alexconv.errors import MissingTool, UsageError
from alexconv.executors import EXECUTORS, Backend, backends, choose_executor
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS, Ladder
from alexconv.measuring.peers import PEERS, Library
from alexconv.measuring.runner import attempted, checked
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.peers import Peer
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS, Transfer, transfer_named
from alexconv.records.store import digest, read
from alexconv.shapes import WORKLOADS, Conv, Workload
from alexconv.tune import auto

SMALL = Conv(C=2, H=7, W=8, M=3, R=3, S=2)


class ToyExecutor(HostExecutor):
    """The host executor by another name, with another usual batch."""

    name, usual_batch = "toy", 2

    def describe(self) -> str:
        return "a toy"


class Noted(HostBuffers):
    """Buffers that note which transfer opened them."""

    opened: ClassVar[list[str]] = []

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.opened.append(arguments[5].name)


class NumpyRunner:
    """A peer that computes with NumPy, and is not timed."""

    def __init__(self, library, executor, runner) -> None:
        self.numpy, self.executor, self.runner = library, executor, runner

    def key(self, point) -> str:
        return digest([self.numpy.__version__, point.rung])

    def record(self, point):
        return attempted(point, self.key(point), lambda: self._computed(point))

    def _computed(self, point):
        layer, conv = self.runner.layer(point), point.conv
        windows = sliding_window_view(layer.x[: point.N], (conv.R, conv.S), axis=(2, 3))[:, :, :: conv.U, :: conv.U]
        y = self.numpy.einsum("ncefrs,mcrs->nmef", windows, layer.w)
        whole = {"pieces": 1, "images_per_piece": point.N, "planned_constants": {}, "device_bytes": 0, "launches": []}
        return {**checked(layer.error(y), PRECISIONS["fp32"].tolerance(conv.K)), **whole, "samples": {}}


@pytest.fixture
def toys(monkeypatch):
    """One entry in each table."""
    monkeypatch.setitem(WORKLOADS, "toy", Workload("toy", (SMALL,), (1,), "a test"))
    monkeypatch.setitem(EXECUTORS, "toy", Backend(lambda wanted: ToyExecutor()))
    monkeypatch.setitem(TRANSFERS, "noted", Transfer("noted", "copies that are noted", opens={"toy": Noted}))
    library = Library((Peer("numpy", "einsum", "fp32"),), lambda executor: partial(NumpyRunner, np, executor))
    monkeypatch.setitem(PEERS, "numpy", library)
    monkeypatch.setattr(Noted, "opened", [])


def test_an_entry_in_a_table_is_all_that_a_run_needs(toys, tmp_path, capsys):
    out = tmp_path / "toy.jsonl"
    words = ["--workload", "toy", "--backend", "toy", "--transfer", "noted", "--peers", "numpy", "--rungs", "direct"]
    assert run.main([*words, "--out", str(out)]) == 0
    assert "backend toy: a toy" in capsys.readouterr().out
    found = [(each["point"]["rung"], each["point"]["N"], each["status"]) for each in read([out]).points]
    assert found == [("direct", 2, "ok"), ("numpy-einsum-fp32", 2, "ok")]
    assert Noted.opened == ["noted"] * 2, "for integers, and for the data"


def test_an_executor_skips_a_transfer_that_the_table_does_not_give_it(toys, tmp_path):
    out = tmp_path / "toy.jsonl"
    words = ["--workload", "toy", "--backend", "toy", "--transfer", "pinned", "--rungs", "direct"]
    assert run.main([*words, "--out", str(out)]) == 0
    (record,) = read([out]).points
    assert (record["status"], record["reason"]) == ("skipped", "the toy executor has no transfer pinned")


def test_an_unknown_transfer_is_an_error_and_never_another_one():
    bound = BoundRung(RUNGS["direct"], SMALL, RUNGS["direct"].resolve(SMALL, {}))
    executor, cut = choose_executor("host"), plan(bound, 1, 1 << 20)
    unknown = Transfer("teleported", "without a way")
    x, w = np.zeros(SMALL.x_shape(1), "f4"), np.zeros(SMALL.w_shape(), "f4")
    with pytest.raises(UsageError, match="the host executor has no transfer teleported"):
        executor.open(executor.load(bound), cut, x, w, unknown)
    with pytest.raises(ValueError, match="unknown transfer 'teleported'"):
        transfer_named("teleported")


def test_only_pipelined_transfers_take_a_number_of_streams():
    assert transfer_named("streamed:8").streams == 8
    assert transfer_named("streamed:8").kind == "streamed"
    with pytest.raises(ValueError, match="unknown transfer 'pinned:8'"):
        transfer_named("pinned:8")


def test_auto_takes_the_first_executor_that_runs_here(monkeypatch):
    def missing(wanted):
        raise MissingTool("not on this machine")

    monkeypatch.setitem(EXECUTORS, "cuda", Backend(missing))
    assert choose_executor("auto").name == "host"
    assert "No GPU is used: not on this machine" in choose_executor("auto").describe()
    monkeypatch.setitem(EXECUTORS, "host", Backend(missing))
    with pytest.raises(MissingTool, match="not on this machine"):
        choose_executor("auto")
    monkeypatch.setitem(EXECUTORS, "toy", Backend(lambda wanted: ToyExecutor()))
    assert choose_executor("auto").name == "toy"
    assert backends() == ("auto", "cuda", "host", "toy")
    with pytest.raises(UsageError, match="unknown backend 'abacus'"):
        choose_executor("abacus")


def test_a_new_precision_is_one_entry_and_auto_takes_its_rungs_from_the_ladder(monkeypatch):
    exact = replace(PRECISIONS["fp32"], name="exact")
    monkeypatch.setitem(PRECISIONS, "exact", exact)
    slow, fast = (replace(RUNGS[name], precision="exact") for name in ("direct", "direct-register"))
    found = auto.preferences(choose_executor("host"), SMALL, 1, "exact", Ladder((slow, fast)))
    assert [bound.rung.name for bound in found] == ["direct-register", "direct"]
