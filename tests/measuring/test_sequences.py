"""Sequences of layers without a GPU: which there are, the order of their pieces, and what they record."""

from contextlib import contextmanager, nullcontext
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from ladders import planted
from points import batch_of

from alexconv import run
from alexconv.errors import UsageError
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring import sequences
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.planner import Plan
from alexconv.planning.points import Batch, ConstantSource, LayerSequence, Point, choose_rungs, expand
from alexconv.planning.transfers import TRANSFERS, transfer_named
from alexconv.records.labels import label_of
from alexconv.records.store import by_key, identity
from alexconv.shapes import WORKLOADS, Conv


def points(
    rungs: str = "direct-register",
    transfer: str = "pageable",
    layers=(3, 5),
    workload="alexnet",
    N=1,
    **constants: list[int],
) -> list[Point]:
    batches = [batch_of(workload, layer, N) for layer in layers]
    return expand(batches, choose_rungs(rungs), [transfer_named(transfer)], ConstantSource(constants))


def test_each_rung_transfer_and_batch_is_one_sequence():
    joints = sequences.rung_sequences(
        [*points("direct-register,tiled"), *points(transfer="streamed:3"), *points(transfer="managed")]
    )
    names = [(joint.rung, joint.transfer) for joint in joints]
    assert names == [
        ("direct-register-together", "pageable"),
        ("tiled-together", "pageable"),
        ("direct-register-together", "streamed:3"),
    ]
    assert joints[0].axes() == {
        **points()[0].axes(),
        "layer": "3,5",
        "rung": "direct-register-together",
        "constants": {},
    }
    assert sequences.rung_sequences(points(layers=(3,))) == []


def test_points_that_cannot_form_a_sequence_are_bad_usage():
    with pytest.raises(UsageError, match="one value per constant"):
        sequences.rung_sequences(points("tiled", TILE=[8, 16]))
    with pytest.raises(UsageError, match="one precision, not fp32 and half"):
        sequences.sequence_of([*points(layers=(3,)), *points("tiled-half", layers=(5,))], sequences.MIXED)


def test_a_mix_has_a_rung_and_constants_for_every_layer():
    arguments = WORKLOADS["alexnet"], [1, 2], [transfer_named("pageable")]
    joints = sequences.mixed("3=direct-register,5=tiled:TILE=8:UNROLL=1", *arguments)
    assert [(joint.rung, joint.N, joint.layers) for joint in joints] == [
        ("mixed-together", 1, (3, 5)),
        ("mixed-together", 2, (3, 5)),
    ]
    assert [point.rung for point in joints[0].points()] == ["direct-register", "tiled"]
    assert joints[0].points()[1].constants == {"TILE": 8, "RESTRICT": 0, "UNROLL": 1}
    for wrong, says in [
        ("tiled", "a layer of a mix"),
        ("3=nothing", "unknown rung"),
        ("3=tiled:TILE=x", "whole numbers"),
        ("3=direct:TILE=8", "TILE: no constant of direct"),
        ("9=direct", "no layer '9' in alexnet"),
        ("3=direct,3=tiled", "a sequence has one rung per layer"),
    ]:
        with pytest.raises(UsageError, match=says):
            sequences.mixed(wrong, *arguments)


def test_sequences_of_other_rungs_or_constants_are_other_points():
    arguments = WORKLOADS["alexnet"], [1], [transfer_named("pageable")]
    texts = "3=direct-register,5=tiled", "3=tiled,5=direct-register", "3=direct-register,5=tiled:TILE=8:UNROLL=2"
    mixes = [sequence for text in texts for sequence in sequences.mixed(text, *arguments)]
    alike = [sequence for tile in (8, 16) for sequence in sequences.rung_sequences(points("tiled", TILE=[tile]))]
    assert len({identity(sequence.axes()) for sequence in (*mixes, *alike)}) == 5
    assert [sequence.mix for sequence in mixes] == list(texts)
    assert mixes[2].label() == f"alexnet layers 3,5 N=1 mixed-together pageable {texts[2]}"
    assert label_of(mixes[2].axes(), {}) == f"alexnet layer 3,5 N=1 mixed-together pageable {texts[2]}"
    assert "mix" not in sequences.rung_sequences(points("tiled"))[0].axes()
    of_one_rung = [sequences.mixed(f"3={rung},5={rung}", *arguments)[0] for rung in ("direct-register", "tiled")]
    assert len({identity(sequence.axes()) for sequence in of_one_rung}) == 2


def cut(pieces: int) -> Plan:
    return Plan(BoundRung(RUNGS["direct"], WORKLOADS["alexnet"].layer(1), {}), pieces, 1, 0)


def test_pieces_with_more_output_come_first_and_layers_are_interleaved():
    order = sequences.piece_order([cut(2), cut(4), cut(2)], [True, True, False])
    assert order == [(1, 0), (0, 0), (1, 1), (1, 2), (0, 1), (1, 3), (2, 0), (2, 1)]
    assert sequences.piece_order([cut(3)], [False]) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("outweigh", [[True] * 5, [True, True, True, False, False]])
def test_every_piece_runs_once_and_in_its_layers_order(outweigh):
    cuts = [cut(pieces) for pieces in (26, 16, 6, 8, 8)]
    order = sequences.piece_order(cuts, outweigh)
    assert sorted(order) == [(layer, piece) for layer, plan in enumerate(cuts) for piece in range(plan.N)]
    for layer, plan in enumerate(cuts):
        assert [piece for which, piece in order if which == layer] == list(range(plan.N))


class Device(HostExecutor):
    """The host executor in place of a GPU: a launch of the graph runs the rungs and times nothing."""

    name, measures, time_limit = "cuda", True, 600.0
    gpu = property(lambda self: self)
    opens: ClassVar = dict.fromkeys(("pageable", "streamed"), HostBuffers)
    spoils = False
    pdl: tuple[bool, ...] = ()  # of the points that were enqueued
    loaded: tuple = ()  # the pieces and figures that under_load was given

    def errors(self, what):
        return nullcontext()

    @contextmanager
    def recorded(self, enqueue):
        yield lambda: enqueue(None)

    def time(self, pieces, seconds):
        return {"kernel": [1.0], "kernel_cold": [2.0]}

    def under_load(self, pieces, samples):
        self.loaded += (*pieces, *samples)
        return {"clock_mhz": 1500.0}

    def pipeline(self, batches, order, streams):
        return Pipeline(batches, order)

    def open(self, program, plan, x, w, transfer, bias=None):
        opened = super().open(program, plan, x, w, TRANSFERS["pageable"], bias)
        opened.stale = False
        opened.leave_scratch = lambda *, stale: setattr(opened, "stale", stale)
        opened.pointers, opened.stream = opened.buffers, None
        opened.fill = lambda pointers, stream: opened.y.fill(np.nan)
        opened.enqueue = partial(self.enqueue, opened)
        opened.download = lambda: opened.y
        return opened

    def enqueue(self, opened, *, pdl):
        self.pdl += (pdl,)
        if not self.spoils:
            opened.outputs(stale=opened.stale)


class Pipeline:
    """Runs its batches one after the other."""

    def __init__(self, batches, order) -> None:
        self.batches, self.order = batches, order

    def run(self, *, fill: bool = False) -> float:
        for batch in self.batches:
            batch.outputs(stale=batch.stale)
        return 1.0

    def forget(self) -> None:
        for batch in self.batches:
            batch.y.fill(np.nan)

    @contextmanager
    def recorded(self):
        yield self.run

    def timeline(self):
        return [{"piece": number} for number, _ in enumerate(self.order)]


@pytest.fixture
def device():
    return Device()


def record(device, sequence: LayerSequence, **settings) -> dict:
    runner = Runner(device, sequence.points(), Settings(seconds=0.0, baseline=False, **settings))
    return sequences.SequenceRunner(device, runner).record(sequence)


def test_a_graph_of_layers_is_one_record(device):
    (sequence,) = sequences.rung_sequences(points(layers=(1, 2), workload="lenet-70-k5"))
    result = record(device, sequence)
    assert result["status"] == "ok", result["reason"]
    assert result["point"]["layer"] == "1-2"
    assert result["samples"] == {"kernel": [1.0], "kernel_cold": [2.0]}
    assert result["under_load"] == {"clock_mhz": 1500.0}
    assert device.loaded[1:] == ("kernel", "kernel_cold")
    assert [(layer["layer"], layer["rung"]) for layer in result["layers"]] == [
        (1, "direct-register"),
        (2, "direct-register"),
    ]
    assert result["error"]["scaled"] == max(layer["error"]["scaled"] for layer in result["layers"])
    assert result["pieces"] == 2
    assert result["exact"] == {"images": 1, "wrong": 0}
    # On integers twice, then on the layers' data: the second layer may start before the first one's end.
    assert device.pdl == 3 * (False, True)
    assert record(device, sequence, timed=False)["samples"] == {}


def test_a_pipeline_of_layers_is_one_record(device, monkeypatch):
    monkeypatch.setattr(sequences, "PIECE_BYTES", 10**5)
    (sequence,) = sequences.rung_sequences(points("tiled", "streamed:4", (1, 2), "lenet-70-k5", N=3))
    result = record(device, sequence)
    assert result["status"] == "ok", result["reason"]
    assert set(result["samples"]) == {"total"}
    assert [layer["pieces"] for layer in result["layers"]] == [3, 3]
    assert len(result["timeline"]) == 6


@pytest.mark.parametrize("transfer", ["pageable", "streamed:2"])
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("c < C; ++c", "c < C - 1; ++c"),
        (
            "w[(size_t)first * C * R * S + i]",
            "first == 2 && i == 100 ? __half(0.0f) : w[first * C * R * S + i]",
        ),
    ],
)
def test_integers_show_bugs_that_the_error_in_half_hides(device, tmp_path, transfer, right, wrong):
    """Without the last channel; without a tap of one filter."""
    conv = Conv(C=256, H=7, W=6, M=8, R=3, S=3)
    batches, how = [Batch("deep", layer, conv, 2) for layer in (1, 2)], [transfer_named(transfer)]
    (sequence,) = sequences.rung_sequences(expand(batches, choose_rungs("tiled-half2"), how))
    assert record(device, sequence)["exact"] == {"images": 2, "wrong": 0}
    buggy = planted("tiled-half2", right, wrong, tmp_path)
    (sequence,) = sequences.rung_sequences(expand(batches, [(buggy, None)], how))
    result = record(device, sequence)
    assert result["exact"]["wrong"] == sum(layer["exact"]["wrong"] for layer in result["layers"]) > 0
    assert result["error"]["scaled"] <= result["error"]["tolerance"]
    assert (result["status"], "samples" in result) == ("wrong", False)


def test_outputs_that_nothing_wrote_have_no_times(device):
    device.spoils = True
    (sequence,) = sequences.rung_sequences(points())
    result = record(device, sequence)
    assert result["status"] == "wrong"
    assert "samples" not in result


def test_layers_that_do_not_fit_together_are_skipped(device):
    (sequence,) = sequences.rung_sequences(points())
    one = 4 * (384 * 256 * 9 + 256 * 15 * 15 + 384 * 13 * 13)
    result = record(device, sequence, memory_budget=one + 200_000)
    assert result["status"] == "skipped"
    assert "device memory in total" in result["reason"]
    (sequence,) = sequences.rung_sequences(points("direct", N=3))
    assert "takes whole batches" in record(device, sequence, memory_budget=one + 400_000)["reason"]


def test_the_key_knows_every_layers_rung_and_constants(device):
    (first,), (second,) = (sequences.rung_sequences(points("tiled", TILE=[tile])) for tile in (8, 16))
    of_points = Runner(device, first.points(), Settings())
    runner = sequences.SequenceRunner(device, of_points)
    records = [{"point": point.axes(), "key": runner.key(first), "status": "ok"} for point in (first, second)]
    previous = by_key(records)
    assert of_points.earlier(first, runner.key(first), previous) == records[0]
    assert of_points.earlier(second, runner.key(second), previous) is None


def test_a_time_without_the_cpu_s_counts_where_that_is_not_asked_for(device):
    for each, compared in [(points("direct")[0], True), (points("wgrad-direct")[0], False)]:
        without, with_cpu = (Runner(device, [each], Settings(baseline=baseline)) for baseline in (False, True))
        key = without.key(each)
        assert with_cpu.key(each) == key
        record = {"point": each.axes(), "key": key, "status": "ok", "cpu": None}
        assert without.earlier(each, key, by_key([record])) == record
        assert (with_cpu.earlier(each, key, by_key([record])) is None) == compared
        for complete in ({**record, "cpu": {"serial_ms": 1.0}}, {**record, "status": "wrong"}):
            assert with_cpu.earlier(each, key, by_key([complete])) == complete


def test_the_run_records_layers_together(device, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run, "choose_executor", lambda *arguments: device)
    monkeypatch.setattr(Runner, "record", lambda self, point: pytest.fail("no single point was asked for"))
    out = ["--out", str(tmp_path / "r.jsonl"), "--seconds", "0", "--no-baseline", "--N", "1"]
    mix = ["--workload", "lenet-70-k5", "--mix", "1=direct-register,2=tiled"]
    assert run.main([*mix, *out]) == 0
    label = "lenet-70-k5 layers 1-2 N=1 mixed-together pageable 1=direct-register,2=tiled"
    assert f"{label}: ok, kernel 1.000 ms" in capsys.readouterr().out
    assert run.main([*mix[:-1], "1=tiled,2=direct-register", *out]) == 0
    capsys.readouterr()
    assert run.main([*mix, "--resume", *out]) == 0
    assert "1 of 1 points are already in" in capsys.readouterr().out
    assert run.main(["--together", "--layers", "3", "--rungs", "direct", *out]) == 2
    assert "two layers or more" in capsys.readouterr().err
    assert run.main(["--sequence", "--layers", "3,5", "--rungs", "direct", "--dry-run", *out]) == 0
    assert "together: alexnet layers 3,5 N=1 direct-together pageable" in capsys.readouterr().out
