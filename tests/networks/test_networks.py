"""Whole networks: their tables, float64 references, bounds and plans, and small ones on the host executor."""

import json
import tracemalloc
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest

from alexconv import networks
from alexconv.errors import UsageError
from alexconv.executors import choose_executor
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import LADDER
from alexconv.networks import command, measuring
from alexconv.networks.checks import check_bytes, checked_stages, exact_scores
from alexconv.networks.command import result_table, stage_table
from alexconv.networks.measuring import NetworkRunner, NetworkSettings, opened
from alexconv.networks.peers import forward_of
from alexconv.networks.plan import NetworkPlan, NetworkPoint, contenders, plan_network
from alexconv.networks.schedules import SCHEDULES
from alexconv.networks.stages import MARGIN, convolution, linear, max_pooling, normalization, softmax
from alexconv.networks.tables import NETWORKS, Network
from alexconv.networks.weights import from_state_dict, generated, images, stored_as
from alexconv.planning.planner import DoesNotFit
from alexconv.precisions import ANY, USUAL
from alexconv.run import main
from alexconv.shapes import Conv

# Weights and biases; the first as Krizhevsky et al. have it, the third as torchvision.
PARAMETERS = {"alexnet-2012": 60_965_224, "alexnet-one-tower": 62_378_344, "alexnet-torchvision": 61_100_840}


def small() -> Network:
    """Every kind of stage, two groups, overlapping and plain pooling, on odd sizes."""
    stages = [convolution("conv1", Conv(3, 21, 19, 12, 5, 4, 2))]
    stages.append(normalization("norm1", stages[-1]))
    stages.append(max_pooling("pool1", stages[-1], 3, 2))
    stages.append(convolution("conv2", Conv(12, 4, 3, 10, 3, 3, top=1, bottom=1, left=1, right=1, groups=2)))
    stages.append(max_pooling("pool2", stages[-1], 2, 1))
    stages.append(linear("linear3", stages[-1], 24, relu=True))
    stages.append(linear("linear4", stages[-1], 11, relu=False))
    return Network("small", (*stages, softmax("softmax", stages[-1])), "for tests")


@pytest.fixture(scope="module")
def host() -> HostExecutor:
    executor = choose_executor("host", host_build="unoptimized")
    assert isinstance(executor, HostExecutor)
    return executor


def planned(host: HostExecutor, precision: str, N: int = 3, schedule: str = "dependent", **more: int) -> NetworkPlan:
    weights = stored_as(generated(small()), precision)
    return plan_network(host, NetworkPoint(small(), N, precision, SCHEDULES[schedule]), weights, **more)


@pytest.mark.parametrize("name", PARAMETERS)
def test_networks_have_as_many_parameters_as_their_authors_count(name):
    counted = sum(prod(stage.filters or ()) + stage.shape.M for stage in NETWORKS[name].weighted)
    assert counted == PARAMETERS[name]


def test_a_network_whose_stages_do_not_follow_each_other_is_refused():
    first, second = small().stages[0], small().stages[2]
    with pytest.raises(ValueError, match="broken: pool1 takes"):
        Network("broken", (first, replace(second, shape=replace(second.shape, H=8))), "")


def test_the_references_are_those_of_torch():
    torch = pytest.importorskip("torch")
    network, x = small(), images(small(), 0, 3)
    weights = generated(network)
    device = torch.Tensor.to
    try:
        torch.Tensor.to = lambda tensor, place, *more: device(tensor, "cpu" if place == "cuda" else place, *more)
        forward = forward_of(torch, network, weights, torch.float64, torch.contiguous_format)
    finally:
        torch.Tensor.to = device
    due = forward(torch.from_numpy(x).double()).numpy()
    for stage, parameters in zip(network.stages, weights, strict=True):
        x = stage.reference(x, parameters)
    np.testing.assert_allclose(x.reshape(due.shape), due, rtol=2e-6)


@pytest.mark.parametrize("kind", (USUAL, ANY))
def test_no_stage_passes_more_of_an_error_on_than_its_gain(kind):
    network, generator = small(), np.random.default_rng(0)
    for stage, parameters in zip(network.stages, generated(network), strict=True):
        x = generator.standard_normal(stage.shape.x_shape(4)).astype(np.float32)
        moved = x + np.float32(1e-2) * generator.standard_normal(x.shape).astype(np.float32)
        outputs = [stage.reference(values, parameters) for values in (x, moved)]
        before, after = (
            np.linalg.norm(np.subtract(*pair, dtype=np.float64).reshape(4, -1), axis=1)
            for pair in ((x, moved), outputs)
        )
        margin = MARGIN if kind == USUAL else 1
        assert (after <= margin * stage.gain(parameters, kind, outputs[0]) * before).all(), stage.name


@pytest.mark.parametrize("schedule", ("stream", "dependent"))
@pytest.mark.parametrize("precision", ("fp32", "fp16"))
def test_every_stage_keeps_its_bound(host, precision, schedule):
    plan, x = planned(host, precision, schedule=schedule), images(small(), 0, 3)
    with opened(host, plan) as network:
        errors, whole, scores = checked_stages(plan, x, network.stage_outputs, generated=True)
        assert np.array_equal(network.scores(x), scores)
    assert [error for error in errors if not error.passes] == []
    assert whole.passes
    assert 0 < whole.error < {"fp32": 1e-6, "fp16": 5e-3}[precision]
    assert scores.shape == (3, 11, 1, 1)
    np.testing.assert_allclose(scores.astype(np.float64).sum(axis=1), 1, rtol=5e-3)


def test_a_schedule_that_changes_nothing_is_left_out():
    def left_out(name, N, precision):
        stages = NETWORKS[name].stages
        return {schedule.name for schedule in SCHEDULES.values() if not schedule.differs_on(stages, N, precision)}

    assert left_out("alexnet-2012", 1, "fp32") == left_out("lenet-86-k7", 1, "tf32") == {"terms", "persistent"}
    assert left_out("alexnet-torchvision", 128, "tf32") == {"persistent"}
    assert left_out("alexnet-torchvision", 128, "fp16") == {"pooled", "terms", "persistent"}
    assert left_out("alexnet-torchvision", 1, "fp16") == {"pooled", "terms"}


@pytest.mark.parametrize("number", (0, 3, 5))
def test_a_wrong_stage_is_named_and_the_others_are_not(host, number):
    plan, x = planned(host, "fp32"), images(small(), 0, 3)
    with opened(host, plan) as network:
        network._buffers[f"{number}.w"].array(np.float32, (3,))[2] = 0  # a tap of the first filter
        errors, whole, _ = checked_stages(plan, x, network.stage_outputs, generated=True)
    assert [error.stage for error in errors if not error.passes] == [small().stages[number].name]
    assert not whole.passes


def test_a_linear_layer_without_its_bias_breaks_the_bound_of_fp16():
    largest = next(stage for stage in NETWORKS["alexnet-torchvision"].weighted if stage.planes)  # K = 9216
    stage = replace(largest, shape=replace(largest.shape, M=64))
    network = Network("one", (stage,), "for tests")
    (parameters,) = stored_as(generated(network), "fp16")
    bare = replace(parameters, bias=np.zeros_like(parameters.bias))
    x = (4 * np.maximum(images(network, 0, 2), 0)).astype(np.float16)  # about as large as the outputs of pool5
    due, without = stage.reference(x, parameters), stage.reference(x, bare)
    allowed = stage.bound(x, due, parameters, "fp16", USUAL)
    assert (np.abs(due.astype(np.float16) - due) <= allowed).all()
    assert (np.abs(without.astype(np.float16) - due) > allowed).any()


def test_a_batch_in_pieces_has_the_scores_of_the_whole(host):
    runner = NetworkRunner(host, NetworkSettings(0.0))
    whole = planned(host, "fp32", 3)
    cut = planned(host, "fp32", 3, budget=whole.device_bytes(3) - 1)
    assert [last - first for first, last in cut.pieces] == [2, 1]
    point = NetworkPoint(small(), 3, "fp32", SCHEDULES["dependent"])
    assert runner.record(point)["status"] == "ok"
    images_of_another = whole.sizes(3)["images"]
    for more, has_room in ((images_of_another, True), (images_of_another - 1, False)):
        assert planned(host, "fp32", 3, budget=whole.device_bytes(3) + more).takes_next_batch == has_room
    assert not cut.takes_next_batch
    with pytest.raises(DoesNotFit, match=r"small needs .* MiB of device memory for one image"):
        planned(host, "fp32", budget=1000)


def test_a_network_is_loaded_with_a_state_dict(host):
    network = NETWORKS["lenet-86-k7"]
    filters = [part.w for part in generated(network) if part]
    state = {f"{place}.weight": values for place, values in enumerate(filters)}
    loaded, x = networks.load("lenet-86-k7", state, backend="host"), images(network, 0, 2)
    plan = plan_network(host, NetworkPoint(network, 2, "fp32", SCHEDULES["dependent"]), generated(network))
    due = exact_scores(plan, x)
    np.testing.assert_allclose(loaded(x), due, atol=1e-5)
    for values in filters:
        values *= 2  # as training does: the next batch size is planned with the weights that were loaded
    np.testing.assert_allclose(loaded(x[:1]), due[:1], atol=1e-5)
    with pytest.raises(ValueError, match=r"lenet-86-k7 takes images of 1 x 86 x 86, \[N\]\[C\]\[H\]\[W\], not"):
        loaded(x[:, :, 1:])
    with pytest.raises(ValueError, match=r"1.weight has shape \(16, 7, 7, 4\): it does not fit conv2's"):
        from_state_dict(network, {**state, "1.weight": np.moveaxis(state["1.weight"], 1, -1)})
    state["0.weight"] = state["0.weight"][1:]
    with pytest.raises(ValueError, match=r"0.weight has shape \(3, 1, 7, 7\): it does not fit conv1's"):
        from_state_dict(network, state)
    with pytest.raises(UsageError, match="networks have the classes fp32, tf32, fp16, not half"):
        networks.load("lenet-86-k7", precision="half")


def test_tensors_of_torch_give_tensors():
    torch = pytest.importorskip("torch")
    loaded, x = networks.load("lenet-86-k7", backend="host"), images(NETWORKS["lenet-86-k7"], 0, 2)
    assert torch.equal(loaded(torch.from_numpy(x)), torch.from_numpy(loaded(x)))


def test_a_run_records_each_network_with_its_stages(tmp_path, capsys):
    out = tmp_path / "networks.jsonl"
    assert main(["--network", "lenet-86-k7", "--N", "2", "--backend", "host", "--out", str(out), "--verbose"]) == 0
    assert "normalize" not in (shown := capsys.readouterr().out)
    assert "conv2" in shown
    (line,) = [json.loads(line) for line in out.read_text().splitlines() if '"type":"network"' in line]
    assert line["axes"] == {
        **{"network": "lenet-86-k7", "schedule": "pooled", "N": 2, "precision": "fp32", "rungs": "auto"}
    }
    assert [stage["stage"] for stage in line["stages"]] == ["conv1", "pool1", "conv2", "pool2"]
    assert line["status"] == "ok"
    assert "samples" not in line
    assert '"points":{"ok":1}' in out.read_text()
    again = ["--network", "lenet-86-k7", "--N", "2,1", "--backend", "host", "--out", str(out), "--resume", "--verbose"]
    assert main(again) == 0
    assert f"1 of 2 points are already in {out}" in " ".join(capsys.readouterr().out.split())
    assert out.read_text().count('"type":"network"') == 2
    assert main([*again, "--seed", "1"]) == 0
    assert f"0 of 2 points are already in {out}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("ends", (True, False))
def test_resume_keeps_a_failed_network(ends, tmp_path, capsys, monkeypatch):
    out = tmp_path / "networks.jsonl"
    arguments = ["--network", "lenet-86-k7", "--N", "1", "--backend", "host", "--out", str(out)]

    @contextmanager
    def expired_at_once(seconds, expired):
        if not ends:
            raise SystemExit(expired())
        yield

    with monkeypatch.context() as patched:
        patched.setattr(command, "time_limit", expired_at_once)
        patched.setattr(NetworkRunner, "_own", lambda self, point: {"status": "wrong", "reason": "made up"})
        with suppress(SystemExit):
            main(arguments)
    assert main([*arguments, "--resume"]) == 1, "a point of the run has no result"
    assert f"1 of 1 points are already in {out}" in " ".join((shown := capsys.readouterr().out).split())
    assert ("made up" if ends else "timeout") in shown
    assert out.read_text().count('"type":"network"') == 1


def test_a_network_that_is_named_twice_is_one_point(capsys):
    twice = ["--rungs", "auto,auto", "--precision", "fp32,fp32", "--N", "1,1"]
    assert main(["--network", "lenet-86-k7,lenet-86-k7", *twice, "--backend", "host", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("lenet-86-k7") == 1


def test_checks_take_the_host_memory_that_was_asked_for(host):
    """Their arrays in float64 are those of a few images, and no batch of an earlier stage stays."""
    network, N = NETWORKS["lenet-72-k7"], 192
    point, x = NetworkPoint(network, N, "fp32", SCHEDULES["graph"]), images(network, 0, N)
    plan, rights = NetworkRunner(host, NetworkSettings(0.0)).plan(point), [x]
    for step in plan.steps:
        parts = (step.stage.reference(rights[-1][i : i + 8], step.parameters) for i in range(0, N, 8))
        rights.append(np.concatenate([part.astype(np.float32) for part in parts]))
    tracemalloc.start()
    checked_stages(plan, x, lambda _: (right.copy() for right in rights[1:]), generated=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 < peak / check_bytes(plan) < 1.25


def test_a_batch_beyond_host_memory_is_skipped(host):
    runner = NetworkRunner(host, NetworkSettings(0.0))
    record = runner.record(NetworkPoint(small(), 10**11, "fp32", SCHEDULES["dependent"]))
    assert record["status"] == "skipped"
    assert record["reason"].startswith("100000000000 images and their checks need")


def test_a_wrong_network_has_a_record_in_json(host, monkeypatch):
    runner, weights = NetworkRunner(host, NetworkSettings(0.0)), list(generated(small()))
    weights[0] = replace(weights[0], bias=np.full(12, np.nan, np.float32))
    monkeypatch.setattr(runner, "weights", lambda network, precision: tuple(weights))
    record = runner.record(NetworkPoint(small(), 1, "fp32", SCHEDULES["dependent"]))
    assert record["status"] == "wrong"
    assert json.loads(json.dumps(record, allow_nan=False))["stages"][0]["of_bound"] == "nan"
    assert "nan" in list(stage_table(record).columns[-1].cells) and result_table([record]).row_count == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--network", "lenet"], "unknown network 'lenet': choose from alexnet-2012"),
        (["--network", "lenet-86-k7", "--schedule", "slow"], "unknown schedule 'slow': choose from waits"),
        (["--network", "lenet-86-k7", "--rungs", "direct,fast"], "unknown rung 'fast'"),
        (["--network", "lenet-86-k7", "--layers", "2"], "--layers: not with --network"),
        (["--network", "lenet-86-k7", "--precision", "half"], "networks have the classes fp32, tf32, fp16"),
        (["--network", "lenet-86-k7", "--peers", "torch"], "--peers torch needs an NVIDIA GPU"),
        (["--schedule", "graph"], "--schedule: only with --network"),
    ],
)
def test_a_bad_request_is_one_line(arguments, message, capsys):
    assert main([*arguments, "--backend", "host", "--N", "1"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


class LikeAGpu(HostExecutor):
    """Plans as on an H200."""

    measures = True

    def unsuited(self, rung):
        return rung.unsuited(self.device.capability)


def test_the_fastest_contender_of_each_stage_is_taken_and_timed_once(monkeypatch):
    executor, trials = LikeAGpu(), []
    runner = NetworkRunner(executor, NetworkSettings(0.0))
    monkeypatch.setattr(runner, "weights", lambda network, precision: (None,) * len(network.stages))  # nothing runs
    point = NetworkPoint(NETWORKS["alexnet-torchvision"], 1, "fp16", SCHEDULES["dependent"], "measured")
    plan = runner.plan(point)
    tried = [contenders(plan, step, executor, LADDER) for step in plan.steps]
    fastest = [rungs[-1] for rungs in tried]

    @contextmanager
    def opened_in_name_only(executor, plan):
        trials.append([step.bound for step in plan.steps])
        times = [1.0 if step.bound == best else 2.0 for step, best in zip(plan.steps, fastest, strict=True)]
        yield SimpleNamespace(stage_times=lambda images: times)

    monkeypatch.setattr(measuring, "opened", opened_in_name_only)
    for _ in range(2):
        chosen = runner._measured(plan, images(point.network, 0, 1))
        assert [step.bound for step in chosen.steps] == fastest
    assert len(trials) == max(map(len, tried)) > 4
    assert {len(rungs) for rungs, step in zip(tried, plan.steps, strict=True) if step.stage.kind == "max-pool"} == {1}
    assert {"linear-half", "wgmma-half-whole"} <= {bound.rung.name for bound in tried[-1]}
    assert set(runner.bounds(point)) == {bound for rungs in tried for bound in rungs}


def test_a_record_is_stale_once_a_rung_is_launched_otherwise(host, monkeypatch):
    runner, point = NetworkRunner(host, NetworkSettings(0.0)), NetworkPoint(small(), 3, "fp32", SCHEDULES["dependent"])
    (bound,) = [bound for bound in runner.bounds(point) if bound.rung.name == "softmax"]
    (launch,) = bound.rung.launches
    wider = replace(launch, grid=lambda p: (p.N * p.N, 1, 1))  # for one image the same
    other = replace(bound, rung=replace(bound.rung, launches=(wider,)))
    keys = set[str]()
    for of_point in ([bound], [other]):
        monkeypatch.setattr(runner, "bounds", lambda point, of_point=of_point: of_point)
        keys.add(runner.key(point))
    assert len(keys) == 2


def test_a_record_is_not_stale_by_what_it_does_not_depend_on(host):
    point = NetworkPoint(small(), 1, "fp32", SCHEDULES["dependent"])
    settings = [NetworkSettings(0.3), NetworkSettings(0.5), NetworkSettings(0.3, stages=True)]
    assert len({NetworkRunner(host, each).key(point) for each in settings}) == 1
    timed = [NetworkRunner(LikeAGpu(), each).key(point) for each in settings]
    assert timed[0] == timed[1] != timed[2], "times of the stages are missing"


def test_contenders_are_timed_over_pieces_of_their_own(monkeypatch):
    executor, pieces = LikeAGpu(), []
    point = NetworkPoint(NETWORKS["alexnet-torchvision"], 128, "fp32", SCHEDULES["dependent"], "measured")
    nothing = (None,) * len(point.network.stages)
    budget = plan_network(executor, point, nothing).device_bytes(64)
    runner = NetworkRunner(executor, NetworkSettings(0.0, memory_budget=budget))
    monkeypatch.setattr(runner, "weights", lambda network, precision: nothing)
    plan = runner.plan(point)

    @contextmanager
    def opened_in_name_only(executor, of_turn):
        images = of_turn.images_per_piece
        rate = 1.0 if images == plan.images_per_piece else 1.01  # ms for an image
        pieces.append(images)

        def stage_times(x):
            assert len(x) == images
            return [rate * images] * len(of_turn.steps)

        yield SimpleNamespace(stage_times=stage_times)

    monkeypatch.setattr(measuring, "opened", opened_in_name_only)
    chosen = runner._measured(plan, np.broadcast_to(np.float32(0), (128, 3, 224, 224)))
    assert min(pieces) < plan.images_per_piece < max(pieces)
    assert [step.bound for step in chosen.steps] == [step.bound for step in plan.steps]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ("fp32", "tf32", "fp16"))
def test_every_schedule_on_a_gpu(precision):
    runner = NetworkRunner(choose_executor("cuda"), NetworkSettings(0.01, stages=True))
    for schedule in SCHEDULES.values():
        if schedule.persistent:
            continue  # does not take this network: tests/networks/test_persistent.py
        record = runner.record(NetworkPoint(small(), 5, precision, schedule))
        assert record["status"] == "ok", record["reason"]
        assert {"kernel", "latency", "h2d", "d2h", "total"} <= record["samples"].keys()


@pytest.mark.gpu
@pytest.mark.parametrize("peer", ("torch-nchw", "torch-nhwc", "cudnn-nhwc"))
def test_a_peer_has_the_same_scores(peer):
    pytest.importorskip(peer.partition("-")[0])
    executor = choose_executor("cuda")
    executor.sustained = 0.2
    record = NetworkRunner(executor, NetworkSettings(0.01)).record(
        NetworkPoint(NETWORKS["alexnet-torchvision"], 2, "fp16", SCHEDULES["graph"], peer)
    )
    assert record["status"] == "ok", record["reason"]
    assert record["sustained"].get("joules_per_run", 1.0) > 0
