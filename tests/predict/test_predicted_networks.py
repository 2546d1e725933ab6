"""``predict --network``: networks planned for a GPU that is not here, their stages' times and the sum."""

from dataclasses import replace

import pytest
import stored_code

from alexconv.compiling import nvcc
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.rung import BIAS
from alexconv.networks.plan import NetworkPoint
from alexconv.networks.predicted import Described, network_record, planned, predict_stages
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.tables import NETWORKS
from alexconv.planning.points import Point
from alexconv.predict import __main__ as predict
from alexconv.predict import gpu, model, page
from alexconv.predict.disassembly import UnknownInstruction
from alexconv.predict.predictions import NETWORK_TYPE
from alexconv.records.store import read

H100 = gpu.load("h100")
ALEXNET = NetworkPoint(NETWORKS["alexnet-torchvision"], 128, "fp16", SCHEDULES["dependent"])


@pytest.fixture(scope="module")
def launch() -> model.Prediction:
    """A launch of stored machine code, with the overhead of a graph's first kernel."""
    stored = next(entry for entry in stored_code.stored()["points"] if entry["point"]["rung"] == "direct-register")
    point = Point.from_axes(stored["point"])
    bound = BoundRung(RUNGS[point.rung], point.conv, point.constants, H100.device)
    (prediction,) = model.predict(bound, stored_code.kernels(stored["program"]), 1, H100)
    return prediction


@pytest.fixture(autouse=True)
def stand_in(monkeypatch, launch):
    """Every kernel takes as long as that one, and a second launch after it."""
    monkeypatch.setattr(model, "compile_kernels", lambda bound, on: {})
    monkeypatch.setattr(model, "predict", lambda bound, *_: [launch, launch])


def test_a_network_is_planned_for_the_gpu_described():
    on_hopper = planned(ALEXNET, Described(H100), LADDER)
    assert all("wgmma" in step.bound.rung.name for step in on_hopper.steps if step.stage.kind == "product")
    t4 = gpu.load("t4")
    turing = planned(ALEXNET, Described(t4), LADDER)
    assert all(step.bound.device == t4.device for step in turing.steps)
    assert not [step.bound.rung.name for step in turing.steps if step.bound.rung.unsuited(t4.capability)]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=list(NETWORKS))
def test_every_network_is_planned_in_a_layout_that_has_all_its_kernels(network, precision):
    plan = planned(NetworkPoint(network, 128, precision, SCHEDULES["dependent"]), Described(H100), LADDER)
    assert {step.bound.rung.layout for step in plan.steps if step.stage.kind == "max-pool"} == {plan.layout}


@pytest.mark.parametrize("schedule, follows", [("graph", "next"), ("dependent", "dependent")])
def test_a_network_is_the_sum_of_its_stages_with_a_graphs_gaps(launch, schedule, follows):
    point = replace(ALEXNET, N=1, schedule=SCHEDULES[schedule])
    plan = planned(point, Described(H100), LADDER)
    stages = list(predict_stages(plan, H100, lambda bound, on: {}))
    assert [stage.alone for stage in stages] == pytest.approx([2e3 * launch.seconds] * len(stages))
    gaps = [H100[f"launch.{name}_seconds"] for name in ("first", *[follows] * (len(stages) - 1))]
    within = [1e3 * (2 * launch.seconds - launch.overhead + gap) for gap in gaps]
    assert [stage.within for stage in stages] == pytest.approx(within)
    assert network_record(point, H100, stages)["ms"] == pytest.approx(sum(within))


def test_a_network_with_a_stage_that_is_refused_has_no_sum():
    def kernels(bound, on):
        if bound.rung.name.startswith("max-pool"):
            raise UnknownInstruction("the model does not know the opcode FROBNICATE")
        return {}

    plan = planned(ALEXNET, Described(H100), LADDER)
    record = network_record(ALEXNET, H100, predict_stages(plan, H100, kernels))
    assert (record["status"], record["reason"]) == ("refused", "no prediction of pool1, pool2, pool5")
    assert "ms" not in record
    assert {stage["reason"] for stage in record["stages"] if stage["kind"] == "max-pool"} == {
        "the model does not know the opcode FROBNICATE"
    }


def test_the_command_shows_and_records_each_stage_once(tmp_path, capsys):
    out = tmp_path / "p.jsonl"
    words = ["--network", "lenet-70-k5", "--N", "1,8", "--gpu", "h100", "--out", str(out)]
    assert predict.main(words) == 0
    shown = capsys.readouterr().out
    assert shown.count("pool2") == shown.count("sum") == 2
    assert predict.main([*words, "--resume"]) == 0
    assert "0 networks predicted" in capsys.readouterr().out
    assert [record["axes"]["N"] for record in page.of_type(read([out]), NETWORK_TYPE)] == [1, 8]


def test_a_network_is_predicted_again_once_a_kernel_has_changed(tmp_path, monkeypatch, capsys):
    words = ["--network", "lenet-70-k5", "--N", "1", "--gpu", "h100", "--out", str(tmp_path / "p.jsonl"), "--resume"]
    for changed, shown in (("", "1 network predicted"), ("", "0 networks predicted"), ("pool", "1 network predicted")):
        monkeypatch.setattr(nvcc, "cubin_key", lambda path, *rest, word=changed: path.stem + word * (word in path.stem))
        assert predict.main(words) == 0
        assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, message",
    [
        (["--lines"], "--lines: not with --network"),
        (["--schedule", "waits"], "no prediction of the schedule waits"),
        (["--schedule", "persistent"], "no prediction of the schedule persistent"),
        (["--rungs", "measured"], "--rungs measured needs the GPU"),
    ],
)
def test_what_has_no_prediction_is_refused(tmp_path, capsys, options, message):
    assert predict.main(["--network", "alexnet-torchvision", "--out", str(tmp_path / "p.jsonl"), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_bias_has_an_address_of_its_own():
    plan = planned(ALEXNET, Described(H100), LADDER)
    places = model.addresses(plan.steps[0].bound)
    assert BIAS in places
    assert len(set(places.values())) == len(places)


def test_only_the_same_kernels_are_compared():
    stage = {"stage": "conv1", "kind": "convolution", "rung": "direct", "constants": {}}
    axes = {"network": "a", "N": 1, "precision": "fp32", "schedule": "graph", "rungs": "auto"}
    predicted = {"axes": axes, "stages": [{**stage, "ms": 0.011, "ms_in_network": 0.018}], "ms": 0.018}
    measured = {"axes": axes, "status": "ok", "samples": {"kernel": [0.02] * 3}}

    def times(rung):
        of_stage = {**stage, "rung": rung, "samples": {"kernel": [0.01] * 3}}
        return page.compared([predicted], [{**measured, "stages": [of_stage]}])

    assert [time.error for time in times("direct")] == pytest.approx([10, -10, -15])
    assert [time.measured for time in times("tiled")] == [None, None]
    assert [row.split(" | ")[:3] for row in page.network_errors(times("direct"))][2:] == [
        ["| convolution", "1", "10.0"],
        ["| whole network", "1", "10.0"],
        ["| whole network from its measured stages", "1", "15.0"],
    ]
