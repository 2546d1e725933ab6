"""cuDNN's own frontend as a peer, with small stand-ins for it and for torch."""

import sys
from dataclasses import dataclass, replace
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest
from points import batch_of, peer_point, point_of
from test_peers import Executor, Tensor, Torch

from alexconv.errors import MissingTool
from alexconv.measuring import cudnn_peers, torch_peers
from alexconv.measuring.peers import peer_points, peer_sequences
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.peers import CUDNN_PEERS
from alexconv.planning.points import PeerPoint
from alexconv.shapes import DGRAD, WGRAD

COSTS = (4.0, 1.0, 2.0)  # ms of each plan that heuristics propose
UNBUILT = 1  # the fastest on paper, which cannot be built
ENGINES = (9.0, 3.0, 8.0)  # ms of each engine with its default knobs
KNOBS = {"TILE": (-1.5, 0.5, -0.75), "STAGES": (0.0, 0.0)}  # what the values of a knob add, for each
KnobType = Enum("KnobType", [*KNOBS])
REFUSED_STAGES = 2  # a value in the range of its knob
BARRED = 2  # the engine that has a note to avoid


class Refused(Exception):
    pass


class OnDevice(Tensor):
    """A tensor with the attributes that the frontend reads."""

    dtype = "float32"

    def stride(self) -> tuple[int, ...]:
        return tuple(step // 4 for step in self.values.strides)

    def reshape(self, *shape: int) -> "OnDevice":
        return OnDevice(self.values.reshape(shape))

    def flatten(self) -> "OnDevice":
        return self.reshape(-1)

    def is_contiguous(self, *, memory_format: str) -> bool:
        return False


class Graph:
    """As much of a frontend graph as peers use; its plans compute the same as torch's convolution."""

    def __init__(self, cudnn: "Cudnn", **types: object) -> None:
        self.cudnn, self.chosen = cudnn, None

    def tensor(self, *, dim: list, stride: list, data_type: str) -> tuple:
        return "tensor", tuple(dim), tuple(stride)

    def conv_fprop(self, **options: object) -> "Output":
        self.options, self.relus = options, False
        return Output()

    def conv_dgrad(self, *, loss: tuple, filter: tuple, **options: object) -> "Output":
        return self.conv_fprop(**options, gradient=DGRAD)

    def conv_wgrad(self, *, image: tuple, loss: tuple, **options: object) -> "Output":
        return self.conv_fprop(**options, gradient=WGRAD)

    def bias(self, **options: object) -> "Output":
        return Output()

    def relu(self, **options: object) -> "Output":
        self.relus = True
        return Output()

    def validate(self) -> None:
        pass

    build_operation_graph = validate

    def create_execution_plans(self, modes: list) -> None:
        assert modes == ["A", "B", "FALLBACK"]

    def deselect_numeric_notes(self, notes: list) -> None:
        self.cudnn.notes.append(notes)

    def get_execution_plan_count(self) -> int:
        return len(self.cudnn.costs)

    def get_engine_count(self) -> int:
        return len(self.cudnn.engines)

    def get_knobs_for_engine(self, engine: int) -> list["Knob"]:
        return [
            Knob(KnobType[name], min_value=0, max_value=2 * len(added) - 2, stride=2) for name, added in KNOBS.items()
        ]

    def create_execution_plan(self, engine: int, knobs: dict) -> None:
        if engine == BARRED:
            raise RuntimeError("deselected")
        if knobs.get(KnobType.STAGES) == REFUSED_STAGES:
            raise ValueError("no such value")
        self.chosen = engine, {kind.name: value for kind, value in knobs.items()}

    def build_plan_at_index(self, index: int) -> None:
        if self.chosen is None and index in self.cudnn.unbuilt:
            raise Refused

    @property
    def costs(self) -> list[float]:
        if self.chosen is None:
            return list(self.cudnn.costs)
        engine, knobs = self.chosen
        return [self.cudnn.engines[engine] + sum(KNOBS[name][value // 2] for name, value in knobs.items())]

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{index}" if self.chosen is None else f"engine {self.chosen[0]}"

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 100 * index

    def execute_plan_at_index(self, buffers: dict, workspace: Tensor, index: int, *, handle: str) -> None:
        x, w, *bias, y = buffers.values()
        terms = {name: tuple(self.options[name]) for name in ("stride", "pre_padding", "dilation", "post_padding")}
        assert terms["pre_padding"] == terms.pop("post_padding")
        terms = {name.replace("pre_", ""): value for name, value in terms.items()}
        self.cudnn.run((x, w, *bias), y, terms, self.relus, self.costs[index], self.options.get("gradient"))


@dataclass(frozen=True)
class Knob:
    type: KnobType
    min_value: int
    max_value: int
    stride: int


class Output:
    def set_output(self, value: object) -> "Output":
        return self

    set_data_type = set_dim = set_stride = set_output


class Cudnn:
    """As much of cudnn-frontend as peers use."""

    __version__ = "1.14.1"
    data_type = SimpleNamespace(HALF="half", FLOAT="float")
    heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
    numerical_note = SimpleNamespace(
        TENSOR_CORE="tensor cores", DOWN_CONVERT_INPUTS="down", **{name: name for name in cudnn_peers.TRANSFORMS}
    )
    cudnnGraphNotSupportedError = Refused
    create_handle = staticmethod(lambda: "handle")

    def __init__(self, torch: Torch, executor: Executor) -> None:
        self.torch, self.executor, self.notes = torch, executor, []
        self.costs, self.unbuilt, self.engines = COSTS, {UNBUILT}, ()
        self.set_stream = lambda *, handle, stream: None

    def pygraph(self, **types: object) -> Graph:
        return Graph(self, **types)

    def run(
        self, operands: tuple[Tensor, ...], y: Tensor, terms: dict, relus: bool, cost: float, gradient: str | None
    ) -> None:
        captured = self.torch.captured
        self.torch.captured = mine = []
        x, w, *bias = operands
        if gradient:
            wanted = gradient == DGRAD
            arrays = (x, y, w) if wanted else (w, x, y)
            options = None, *terms.values(), False, (0, 0), 1, [wanted, not wanted, False]
            result = self.torch.convolution_backward(*arrays, *options)[0 if wanted else 1]
        else:
            result = self.torch.conv2d(x, w, bias[0].reshape(-1) if bias else None, **terms, groups=1)
        self.torch.captured = captured

        def operation() -> None:
            self.executor.now += cost
            for step in mine:
                step()
            y.values[:] = np.maximum(result.values, 0) if relus else result.values

        operation() if captured is None else captured.append(operation)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    stand_in = Torch()
    stand_in.uint8 = "uint8"
    stand_in.from_numpy = OnDevice
    stand_in.empty = lambda shape, **options: OnDevice(np.zeros(shape, np.float32))
    make = stand_in.cuda.CUDAGraph
    stand_in.cuda.CUDAGraph = lambda *, keep_graph=True: make(keep_graph=True)
    monkeypatch.setattr(torch_peers, "kernel_names", lambda graph: ["kernel"])
    return stand_in


def runner_of(torch: Torch, point: PeerPoint) -> cudnn_peers.CudnnRunner:
    executor = Executor()
    modules = torch, Cudnn(torch, executor)
    runner = cudnn_peers.CudnnRunner(modules, executor, Runner(executor, [point], Settings(seconds=0.0)))
    runner.clock = lambda: 0.0  # searches end by themselves, however slow the machine
    return runner


def point(precision: str = "fp32", layer: int = 1) -> PeerPoint:
    return peer_point(batch_of("alexnet", layer, 1), f"cudnn-nchw-{precision}")


def test_the_fastest_plan_that_can_be_built_is_chosen_and_retimed(torch: Torch) -> None:
    record = runner_of(torch, point()).record(point())
    assert (record["status"], record["reason"]) == ("ok", None)
    (plan,) = record["peer"]["plans"]
    assert (plan["engine"], plan["tried"], plan["refused"]) == ("eng2", len(COSTS) - 1, 1)
    assert record["peer"]["workspace_bytes"] == 200
    assert record["peer"]["frontend"] == "1.14.1"
    assert record["exact"] == {"images": 1, "wrong": 0}
    assert min(record["samples"]["kernel"]) > plan["ms"]  # plus an event's tick


def test_every_engine_is_tried_and_then_its_knobs(torch: Torch) -> None:
    runner = runner_of(torch, point())
    runner._cudnn.engines = ENGINES
    (plan,) = runner.record(point())["peer"]["plans"]
    assert (plan["engine"], plan["search_ended"]) == ("engine 1", True)
    assert plan["knobs"] == {"TILE": 0}, "a knob that adds nothing stays at its default"
    assert plan["proposed_ms"] > plan["ms"]
    engines, values = len(ENGINES) - 1, sum(map(len, KNOBS.values())) - 1
    assert plan["tried"] == len(COSTS) - 1 + engines + values, "none of the engine that is three times slower"
    assert plan["refused"] == 1 + 1 + 1, "a plan, the engine with a note to avoid, a value of a knob"


def test_the_search_ends_when_its_time_is_up(torch: Torch) -> None:
    runner = runner_of(torch, point())
    runner._cudnn.engines = ENGINES
    ticks = iter(range(100))
    runner.clock = lambda: float(next(ticks))
    (plan,) = runner.record(point())["peer"]["plans"]
    assert not plan["search_ended"]
    assert plan["tried"] < len(COSTS) - 1 + len(ENGINES) + sum(map(len, KNOBS.values()))


def test_bias_and_relu_are_in_the_same_graph(torch: Torch) -> None:
    fused = peer_point(batch_of("alexnet-fused", 3, 1), "cudnn-nchw-fp32")
    record = runner_of(torch, fused).record(fused)
    assert (record["status"], record["exact"]["wrong"]) == ("ok", 0)


def test_the_fastest_plan_that_keeps_the_bound_is_chosen(torch: Torch) -> None:
    runner = runner_of(torch, point())
    run, fastest = runner._cudnn.run, min(cost for index, cost in enumerate(COSTS) if index != UNBUILT)

    def wrong_if_fastest(operands: tuple, y: Tensor, terms: dict, relus: bool, cost: float, gradient: None) -> None:
        torch.spoil = 0.25 if cost == fastest else 0.0
        run(operands, y, terms, relus, cost, gradient)

    runner._cudnn.run = wrong_if_fastest
    record = runner.record(point())
    (plan,) = record["peer"]["plans"]
    assert (record["status"], plan["engine"], plan["wrong"]) == ("ok", "eng0", 1)


@pytest.mark.parametrize("direction", [DGRAD, WGRAD])
def test_gradients_have_graphs_of_their_own(torch: Torch, direction: str) -> None:
    batch = replace(batch_of("lenet-86-k7", 2, 2), conv=batch_of("lenet-86-k7", 2, 2).conv.toward(direction))
    gradient = peer_point(batch, "cudnn-nchw-fp32")
    record = runner_of(torch, gradient).record(gradient)
    assert (record["status"], record["exact"]) == ("ok", {"images": 2, "wrong": 0}), record["reason"]


@pytest.mark.parametrize("most, values", [(4, [0, 2, 4]), (1000, [*range(0, 1001, 32)])])
def test_a_knob_with_many_values_is_tried_in_equal_steps(most: int, values: list[int]) -> None:
    assert [*cudnn_peers.values_of(Knob(KnobType.TILE, 0, most, 2))] == values


@pytest.mark.parametrize(("precision", "notes"), [("fp32", ["down", "tensor cores"]), ("tf32", ["down"])])
def test_a_precision_leaves_out_the_plans_that_round_more(torch: Torch, precision: str, notes: list[str]) -> None:
    runner = runner_of(torch, point(precision))
    assert runner.record(point(precision))["status"] == "ok"
    assert runner._cudnn.notes == [notes]


def test_the_strict_peer_leaves_out_transforms(torch: Torch) -> None:
    strict = point("fp32-strict")
    runner = runner_of(torch, strict)
    assert runner.record(strict)["status"] == "ok"
    assert runner._cudnn.notes == [["down", "tensor cores", *cudnn_peers.TRANSFORMS]]


@pytest.mark.parametrize("faster", [True, False])
def test_the_padding_with_the_faster_plans_is_searched(torch: Torch, faster: bool) -> None:
    runner = runner_of(torch, point(layer=3))
    run = runner._cudnn.run

    def slower_with(operands: tuple, y: Tensor, terms: dict, relus: bool, cost: float, gradient: None) -> None:
        run(operands, y, terms, relus, cost + ((terms["padding"] == (0, 0)) != faster), gradient)

    runner._cudnn.run = slower_with
    record = runner.record(point(layer=3))
    assert [variant["padded_input"] for variant in record["peer"]["variants"]] == [faster]


def test_without_a_plan_the_point_fails_in_one_line(torch: Torch) -> None:
    runner = runner_of(torch, point())
    runner._cudnn.unbuilt = set(range(len(COSTS)))
    record = runner.record(point())
    assert (record["status"], record["reason"]) == ("launch-error", "cuDNN has no plan for this convolution")


def test_its_points_are_those_of_torch_without_the_product() -> None:
    points = [point_of(batch_of("alexnet", layer, 8), "direct") for layer in (1, 2)]
    peers = peer_points(points, CUDNN_PEERS)
    assert len(peers) == 2 * (6 + 2), "fp32 has strict ones too"
    assert {peer.rung.partition("-")[0] for peer in [*peers, *peer_sequences(points, CUDNN_PEERS)]} == {"cudnn"}


def test_without_the_frontend_one_line_says_what_to_install(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_peers, "import_torch", lambda executor: torch)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(MissingTool, match=r"pip install 'alexconv\[peers\]'"):
        torch_peers.import_with_torch(Executor(), "cudnn")
