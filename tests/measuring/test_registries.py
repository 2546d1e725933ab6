"""A new workload, executor, transfer, peer or precision class is one entry: here each gets one, and is used."""

import ast
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
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
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.peers import PEERS, Library
from alexconv.measuring.runner import attempted, checked
from alexconv.planning.peers import Peer
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS, Transfer, transfer_named
from alexconv.precisions import PRECISIONS
from alexconv.records.store import digest, read
from alexconv.reports.style import CLASS_MARKERS
from alexconv.shapes import WORKLOADS, Conv, Workload

CHECKOUT = Path(__file__).resolve().parents[2]
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
    statuses = [(record["point"]["rung"], record["point"]["N"], record["status"]) for record in read([out]).points]
    assert statuses == [("direct", 2, "ok"), ("numpy-einsum-fp32", 2, "ok")]
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
    assert "No GPU: not on this machine" in choose_executor("auto").describe()
    monkeypatch.setitem(EXECUTORS, "host", Backend(missing))
    with pytest.raises(MissingTool, match="not on this machine"):
        choose_executor("auto")
    monkeypatch.setitem(EXECUTORS, "toy", Backend(lambda wanted: ToyExecutor()))
    assert choose_executor("auto").name == "toy"
    assert backends() == ("auto", "cuda", "host", "toy")
    with pytest.raises(UsageError, match="unknown backend 'abacus'"):
        choose_executor("abacus")


TOY_CLASS = """
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from alexconv import precisions

goals = precisions.Goals(10, layers=0.125, graph=0.5, stricter=True)
facts = {"name": "toy", "operands": "toys", "torch": "", "stricter": ("fp32",), "goals": goals}
precisions.PRECISIONS["toy"] = replace(precisions.PRECISIONS["fp32"], **facts)

from alexconv.kernels.single import ladder as single

(rung,) = (each for each in single.SINGLE_RUNGS if each.name == "direct-register")
single.SINGLE_RUNGS += (replace(rung, name="direct-toy", alias="toy", precision="toy", cpu_order=1),)

import alexconv
from alexconv import run
from alexconv.planning.peers import CONVOLVED
from alexconv.reports import frontier, precision
from alexconv.reports.comparison import gather
from alexconv.reports.style import look

assert run.main(sys.argv[1:]) == 0
(contract,) = (each for each in frontier.CONTRACTS if each.name == "toy")
measured = gather([Path(alexconv.__file__).resolve().parent.parent / "results" / "h200-frontier.jsonl"])
x, w = np.ones((1, 1, 3, 3), "f4"), np.ones((1, 1, 2, 2), "f4")
shown = {
    "contract": [contract.title, contract.peer],
    "layer 1": frontier.class_part(measured, contract).splitlines()[2],
    "goals": [goal.subject for goal in frontier.goals(measured) if goal.number == 10],
    "page": [line for table in precision.CLASSES.values() for line in table().splitlines() if "`toy`" in line],
    "marker": look("direct-toy").marker,
    "peers": CONVOLVED,
    "conv2d": alexconv.conv2d(x, w, precision="toy", backend="host").ravel().tolist(),
    "explained": alexconv.explain(x, w, precision="toy", backend="host").rung,
}
print(json.dumps(shown))
"""


def test_a_precision_class_is_one_row(tmp_path):
    """The command line, a run, auto, the library and reports take a class from its row, its rung from an entry."""
    words = ["--rungs", "auto", "--precision", "toy", "--backend", "host", "--no-baseline"]
    words += ["--workload", "lenet-70-k5", "--layers", "2", "--N", "1", "--out", "toy.jsonl"]
    command = [sys.executable, "-c", TOY_CLASS, *words]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    (record,) = read([tmp_path / "toy.jsonl"]).points
    assert (record["point"]["rung"], record["point"]["precision"], record["status"]) == ("direct-toy", "toy", "ok")
    *table, shown = done.stdout.splitlines()
    assert any(line.split()[:1] == ["direct-toy"] and line.endswith("toy") for line in table), "the run's own table"
    shown = json.loads(shown)
    assert shown["contract"] == ["study layout (nchw float32), toy class", "torch-nchw-fp32"]
    assert shown["layer 1"].startswith("| 1 | wgmma-split-resident |"), "a stricter class serves"
    assert shown["goals"] == [
        "study layout (nchw float32), toy class: five layers, over torch-nchw-fp32",
        "study layout (nchw float32), toy class: largest error, over that of plain fp32 multiply-adds",
    ]
    assert shown["page"] == [
        "| `toy` | toys | fp32 | fp32 | `single` (1) |",
        "| `toy` | (2 K + 32) 2^-24 | (6 sqrt(K) + 16) 2^-24 | K 2^-149 |",
    ]
    assert shown["marker"] == CLASS_MARKERS[len(PRECISIONS)]
    assert "toy" not in shown["peers"], "torch has no name for it"
    assert shown["conv2d"] == [4.0] * 4
    assert shown["explained"] == "direct-toy"


# There fp32, tf32 and fp16 are types of numbers that a unit multiplies, each with its rate.
RATES = {"ceilings.py", "book_drawings.py", "timelines.py"}
GOALS = {"limits.py", "losses.py"}  # tables of docs/frontier.md


def test_no_other_table_tells_the_classes():
    """No dictionary, tuple or list of the code has the names of two classes."""
    tables = {}
    for folder, _, names in os.walk(CHECKOUT / "alexconv", followlinks=True):
        for file in (Path(folder, name) for name in names if name.endswith(".py")):
            for node in ast.walk(ast.parse(file.read_text())):
                members = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
                classes = {member.value for member in members if isinstance(member, ast.Constant)} & set(PRECISIONS)
                if len(classes) > 1:
                    tables.setdefault(file.name, []).append(sorted(classes))
    assert tables.keys() == RATES | GOALS, tables


def test_the_tuner_names_no_rung():
    """What ``auto`` and ``tune`` know of a rung is in its entry."""
    for file in (CHECKOUT / "alexconv" / "tune").glob("*.py"):
        texts = {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
        assert not texts & set(RUNGS), file.name
