"""Peers without a GPU: which there are, what they need, and what they record, with a small stand-in for torch."""

import json
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from points import batch_of, peer_point, peers_together, point_of
from report_records import record, write

from alexconv import compare, run
from alexconv.cpu_reference.reference import reference
from alexconv.errors import MissingTool, UsageError
from alexconv.executors.cuda.timing import CLOCK_MS, SUSTAINED_SAMPLES, time_on_device, time_sustained
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import GRADIENTS
from alexconv.measuring import torch_peers
from alexconv.measuring.jobs import Job
from alexconv.measuring.peers import (
    PEERS,
    library_of,
    names_in,
    peer_points,
    peer_sequences,
    peers_named,
    with_peers,
)
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.peers import CUBLASLT_PEERS, GEMM, TORCH_PEERS
from alexconv.planning.points import LayerSequence, PeerPoint, Point, layer_range
from alexconv.records.store import by_key, read
from alexconv.reports.measurements import measurements
from alexconv.shapes import DGRAD, WGRAD, WORKLOADS, Conv

CONVOLUTIONS = [f"torch-{layout}-{precision}" for precision in ("fp32", "tf32", "fp16") for layout in ("nchw", "nhwc")]


def point(layer: int = 3, N: int = 1, rung: str = "torch-nchw-fp32") -> PeerPoint:
    return peer_point(batch_of("alexnet", layer, N), rung)


class Tensor:
    """As much of a tensor as peers use, on an array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.mul_ = partial(self._in_place, np.multiply)
        self.sub_ = partial(self._in_place, np.subtract)

    def _in_place(self, operation: np.ufunc, other: float) -> "Tensor":
        operation(self.values, other, out=self.values, casting="unsafe")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, images: int | slice) -> "Tensor":
        return Tensor(self.values[images])

    def fill_(self, value: float) -> None:
        self.values.fill(value)

    def copy_(self, other: "Tensor") -> None:
        self.values[:] = other.values

    def round_(self) -> "Tensor":
        np.round(self.values, out=self.values)
        return self

    def to(self, device: str) -> "Tensor":
        assert device == "cuda"
        return type(self)(self.values.copy())

    def contiguous(self, *, memory_format: str) -> "Tensor":
        assert memory_format in ("contiguous", "last")
        return self

    def index_select(self, axis: int, index: "Tensor") -> "Tensor":
        return Tensor(self.values.take(index.values, axis))

    def cpu(self) -> "Tensor":
        return self

    def numpy(self) -> np.ndarray:
        return self.values


class Torch:
    """As much of torch as peers use; what is enqueued during a capture runs when the graph is replayed."""

    __version__ = "2.11.0+test"
    version = SimpleNamespace(cuda="13.0")
    contiguous_format, channels_last = "contiguous", "last"
    no_grad = nullcontext
    from_numpy = Tensor

    def __init__(self) -> None:
        self.captured: list | None = None
        self.operation_flags: list[tuple[bool, int, str, str]] = []  # flags, as each operation finds them
        self.paddings: list[int] = []
        self.spoil = 0.0
        self.engine = reference
        self.backends = SimpleNamespace(
            cudnn=SimpleNamespace(
                is_available=lambda: True,
                version=lambda: 91900,
                benchmark=False,
                benchmark_limit=10,
                deterministic=False,
                conv=SimpleNamespace(fp32_precision="none"),
            ),
            cuda=SimpleNamespace(matmul=SimpleNamespace(fp32_precision="none")),
        )
        self.nn = SimpleNamespace(functional=SimpleNamespace(conv2d=self.conv2d))
        self.ops = SimpleNamespace(aten=SimpleNamespace(convolution_backward=self.convolution_backward))
        self.cuda = SimpleNamespace(
            OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}),
            init=lambda: None,
            is_available=lambda: True,
            empty_cache=lambda: None,
            ExternalStream=lambda handle, device: SimpleNamespace(synchronize=lambda: None),
            device=lambda number: nullcontext(),
            stream=lambda stream: nullcontext(),
            CUDAGraph=self.Graph,
            synchronize=lambda: None,
            reset_peak_memory_stats=lambda: None,
            max_memory_allocated=lambda: 1000,
            memory_allocated=lambda: 600,
            graph=self.graph,
        )

    class Graph:
        def __init__(self, *, keep_graph: bool) -> None:
            assert keep_graph
            self.operations: list = []
            self.instantiate = lambda: None

        def raw_cuda_graph(self) -> int:
            return len(self.operations)

        def replay(self) -> None:
            for operation in self.operations:
                operation()

        def reset(self) -> None:
            self.operations.clear()

    @contextmanager
    def graph(self, graph: Graph, *, stream: object, capture_error_mode: str):
        self.captured = graph.operations
        yield
        self.captured = None

    def flags(self) -> tuple[bool, int, str, str]:
        cudnn, matmul = self.backends.cudnn, self.backends.cuda.matmul
        return cudnn.benchmark, cudnn.benchmark_limit, cudnn.conv.fp32_precision, matmul.fp32_precision

    def _enqueue(self, shape: tuple[int, ...], values) -> Tensor:
        self.operation_flags.append(self.flags())
        y = Tensor(np.zeros(shape, np.float32))

        def operation() -> None:
            y.values[:] = values() + self.spoil

        operation() if self.captured is None else self.captured.append(operation)
        return y

    def conv2d(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        *,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        groups: int,
    ) -> Tensor:
        assert padding[0] == padding[1]
        self.paddings.append(padding[0])
        N, C, H, W = x.values.shape
        M, _, R, S = w.values.shape
        around = dict(zip(("top", "bottom", "left", "right"), np.repeat(padding, 2).tolist(), strict=True))
        apart = {"dilation_rows": dilation[0], "dilation_columns": dilation[1], "groups": groups}
        conv = Conv(C, H, W, M, R, S, stride[0], V=stride[1], bias=bias is not None, **around, **apart)

        def values() -> np.ndarray:
            return self.engine(conv, *(tensor.values.astype(np.float32) for tensor in (x, w, bias) if tensor))

        return self._enqueue((N, M, conv.E, conv.F), values)

    def empty(self, shape: tuple[int, ...], *, dtype: np.dtype, device: str, memory_format: str) -> Tensor:
        return Tensor(np.full(shape, np.nan, dtype))

    def convolution_backward(self, dy, x, w, bias_sizes, stride, padding, dilation, transposed, added, groups, mask):
        assert (bias_sizes, transposed, added, mask[2]) == (None, False, (0, 0), False)
        self.deterministic = self.backends.cudnn.deterministic
        direction, arrays, result = (DGRAD, (dy, w), x) if mask[0] else (WGRAD, (x, dy), w)
        (_, C, H, W), (M, _, R, S) = x.shape, w.shape
        around = dict(zip(("top", "bottom", "left", "right"), np.repeat(padding, 2).tolist(), strict=True))
        conv = Conv(C, H, W, M, R, S, stride[0], V=stride[1], groups=groups, **around, direction=direction)
        gradient = self._enqueue(
            result.shape, lambda: reference(conv, *(tensor.values.astype("f4") for tensor in arrays))
        )
        return (gradient, None, None) if mask[0] else (None, gradient, None)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return self._enqueue((a.values.shape[0], b.values.shape[1]), lambda: a.values @ b.values)

    def Generator(self, device: str) -> SimpleNamespace:
        generator = SimpleNamespace()
        generator.manual_seed = lambda seed: setattr(generator, "random", np.random.default_rng(seed))
        return generator

    def rand(self, shape: tuple[int, int], *, generator: SimpleNamespace, device: str) -> Tensor:
        return Tensor(generator.random.random(shape, np.float32))


class Executor:
    """An executor and its GPU, whose clock ticks once per event."""

    name, number, measures, sustained = "cuda", 0, True, 0.0
    gpu = management = property(lambda self: self)

    def __init__(self) -> None:
        self.stream = SimpleNamespace(handle=7, synchronize=self.synchronize)
        self.now, self.idle, self.most_flops = 0.0, True, inf
        self.errors = lambda what: nullcontext()
        self.budget, self.changed = 1 << 30, ""
        self.joules: float | None = None
        self.time = partial(time_on_device, self)

    def flush(self) -> None:
        pass

    def synchronize(self) -> None:
        self.idle = True

    def wait(self) -> None:
        """Lets runs in a row take their time on the host's clock."""
        self.now += 0 if self.idle else CLOCK_MS
        self.idle = False

    def host_ms(self) -> float:
        return self.now

    def mark(self, stream: object) -> SimpleNamespace:
        self.now += 1.0
        since = partial(lambda now, other: now - other.now, self.now)
        return SimpleNamespace(now=self.now, time_since=since, query=lambda: False)

    def health(self) -> dict:
        return {"sm_clock_mhz": 1980}

    def energy(self) -> float | None:
        return self.joules

    def changed_settings(self) -> str:
        return self.changed

    def reset_persisting_lines(self) -> None:
        pass

    def free_cached_arrays(self) -> None:
        pass

    def under_load(self, pieces: list, samples: dict) -> dict:
        return {"clock_mhz": 1500.0}

    def header(self) -> dict:
        return {"backend": "cuda", "name": "GPU"}

    def memory_budget(self) -> int:
        return self.budget


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    monkeypatch.setattr(torch_peers, "kernel_names", lambda graph: [f"kernel {i}" for i in range(graph)])
    return Torch()


def runner_of(torch: Torch, *points: PeerPoint, **settings) -> torch_peers.TorchRunner:
    executor = Executor()
    return torch_peers.TorchRunner(torch, executor, Runner(executor, points, Settings(seconds=0.0, **settings)))


def test_every_layer_and_batch_has_its_peers_once():
    points = [
        point_of(batch_of("alexnet", layer, N), rung)
        for layer, N in ((3, 1), (4, 8))
        for rung in ("direct", "channels")
    ]
    peers = peer_points(points, TORCH_PEERS)
    assert [(peer.layer, peer.N) for peer in peers] == [(3, 1)] * 7 + [(4, 8)] * 7
    assert [peer.rung for peer in peers[:7]] == [*CONVOLUTIONS, "torch-gemm-fp32"]
    assert {peer.precision for peer in PEERS["torch"].chosen((), ["tf32"])} == {"tf32"}


@pytest.mark.parametrize("direction", [DGRAD, WGRAD])
def test_gradients_are_checked_and_timed_as_rungs_are(torch, direction):
    """In both layouts and all precisions, also by the deterministic engines, which a forward pass has no need of."""
    rungs = [rung for rung in GRADIENTS if rung.direction == direction]
    points = peer_points([Point.with_defaults(batch_of("lenet-86-k7", 2, 2), rungs[0])], TORCH_PEERS)
    assert [peer.rung for peer in points] == [*CONVOLUTIONS, *(f"{name}-deterministic" for name in CONVOLUTIONS)]
    with pytest.raises(UsageError, match=f"computes {direction}: torch's"):
        peer_points(points, CUBLASLT_PEERS)
    runner = runner_of(torch, *points, baseline=False)
    for point in (points[0], points[6]):
        record = runner.record(point)
        assert record["status"] == "ok", record["reason"]
        assert record["samples"]["kernel"]
        assert record["exact"] == {"images": 2, "wrong": 0}
        assert record["point"]["direction"] == direction
        assert torch.deterministic == point.entry.deterministic
    torch.spoil = 0.25
    assert runner.record(points[0])["status"] == "wrong"


def test_a_layer_with_groups_is_no_single_product(torch):
    points = peer_points([point_of(batch_of("alexnet-2012", 2, 1), "direct-any")], TORCH_PEERS)
    record = runner_of(torch, *points).record(points[-1])
    assert (record["status"], record["reason"]) == ("skipped", "a layer with groups is no single matrix product")


def test_layers_together_are_one_point_per_workload_and_batch():
    points = [point_of(batch_of("alexnet", layer, N), "direct") for N in (1, 8) for layer in range(1, 6)]
    joint = peer_sequences(points, TORCH_PEERS)
    assert len(joint) == 2 * 6
    assert joint[0].axes() == point().axes() | {"layer": "1-5", "rung": "torch-nchw-fp32-together"}
    assert [point.layer for point in joint[0].points()] == [1, 2, 3, 4, 5]
    with pytest.raises(UsageError, match="two layers or more"):
        peer_sequences(points[:1], TORCH_PEERS)
    assert [layer_range(layers) for layers in ((2,), (1, 3), (2, 3), (3, 2))] == ["2", "1,3", "2-3", "3,2"]


@pytest.mark.parametrize("layer", [1, 3])
@pytest.mark.parametrize(
    ("rung", "precision", "conv"), [(CONVOLUTIONS[0], "fp32", "ieee"), (CONVOLUTIONS[5], "fp16", "tf32")]
)
def test_a_convolution_is_checked_timed_and_recorded_as_a_rung_is(torch, rung, precision, conv, layer):
    peer = point(layer, rung=rung)
    record = runner_of(torch, peer).record(peer)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert set(record) >= {"time", "key", "error", "health", "throttled", "device_bytes", "pieces", "launches"}
    assert record["point"] == peer.axes()
    assert set(record["samples"]) == {"kernel", "kernel_cold"}
    assert record["error"]["scaled"] <= record["error"]["tolerance"]
    assert record["exact"] == {"images": 1, "wrong": 0}
    versions = {"torch": "2.11.0+test", "cudnn": "9.19.0", "cuda": "13.0", "engines": "all"}
    assert record["peer"].items() >= versions.items()
    assert (record["peer"]["kernels"], record["peer"]["workspace_bytes"]) == (["kernel 0"], 400)
    assert record["under_load"] == {"clock_mhz": 1500.0}
    borders = {0, WORKLOADS["alexnet"].layer(layer).pad}
    assert set(torch.paddings) == borders
    assert len(record["peer"]["variants"]) == len(borders)
    assert set(torch.operation_flags) == {(True, 0, conv, "ieee")}
    assert torch.flags() == (False, 10, "none", "none")
    json.dumps(record)


def test_the_faster_variant_is_the_peers_time():
    times = {True: [2.0], False: [1.0]}
    facts = {padded: {"status": "ok", "samples": {"kernel": times[padded]}} for padded in times}
    assert min(facts, key=lambda padded: torch_peers.rank(facts[padded])) is False
    facts[False]["status"] = "wrong"
    assert min(facts, key=lambda padded: torch_peers.rank(facts[padded])) is True


def test_fewer_images_are_repeated_to_fill_the_inputs(torch):
    conv = Conv(C=2, H=5, W=4, M=3, R=2, S=2)
    x, w = np.zeros(conv.x_shape(5), np.float32), np.zeros(conv.w_shape(), np.float32)
    operands = torch_peers.Operands(Tensor(x), Tensor(w), None, conv, (0, 0), True, "fp32")
    few = np.arange(np.prod(conv.x_shape(2)), dtype=np.float32).reshape(conv.x_shape(2))
    operands.put(torch, few, w + 1, None)
    assert (x == few[[0, 1, 0, 1, 0]]).all()
    assert (w == 1).all()


def test_a_wrong_peer_has_no_time(torch):
    for spoil in (0.1, np.nan):
        torch.spoil = spoil
        record = runner_of(torch, point()).record(point())
        assert record["status"] == "wrong"
        assert "samples" not in record
        json.dumps(record, allow_nan=False)


def columns_as_rows(conv: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return reference(conv, x, np.ascontiguousarray(w.swapaxes(2, 3)))


def without_last_channel(conv: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return reference(conv, x, w * (np.arange(conv.C) < conv.C - 1)[:, None, None])


def without_small_taps(conv: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Without each filter's tap nearest to zero."""
    filters = w.reshape(conv.M, conv.K).copy()
    np.put_along_axis(filters, np.abs(filters).argmin(axis=1)[:, None], 0, axis=1)
    return reference(conv, x, filters.reshape(w.shape))


def in_float(conv: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sums with one more rounding, as a transform's."""
    return reference(conv, x, w) * np.float32(1 + 2.0**-22)


@pytest.mark.parametrize(
    ("engine", "precision", "passes_max_error"),
    [(columns_as_rows, "fp32", False), (without_small_taps, "fp16", True), (in_float, "fp32", True)],
)
def test_integers_show_that_an_engine_is_not_exact(torch, engine, precision, passes_max_error):
    torch.engine = engine
    peer = point(rung=f"torch-nhwc-{precision}")
    record = runner_of(torch, peer).record(peer)
    assert (record["status"], "samples" in record) == ("wrong", False)
    assert (record["error"]["scaled"] <= record["error"]["tolerance"]) == passes_max_error
    assert record["exact"]["wrong"] > 0
    assert "not exact on integers" in record["reason"]


@pytest.mark.parametrize(("engine", "status"), [(in_float, "ok"), (without_last_channel, "wrong")])
@pytest.mark.parametrize("kernel", ["fft2d_r2c_32x32", "winogradForward4x4"])
def test_engines_that_transform_are_held_to_the_tolerance(torch, monkeypatch, engine, status, kernel):
    monkeypatch.setattr(torch_peers, "kernel_names", lambda graph: ["nchwToNhwcKernel", kernel])
    torch.engine = engine
    record = runner_of(torch, point(N=2)).record(point(N=2))
    tolerance = record["error"]["tolerance"]
    assert record["status"] == status
    assert (record["exact"]["wrong"] > 0) == (status == "wrong")
    assert record["exact"]["within"] == tolerance
    assert status == "ok" or f"off by more than {tolerance:.2e} of the norms on integers" in record["reason"]


def test_integers_leave_room_for_the_border_that_torch_adds():
    conv = WORKLOADS["alexnet"].layer(3)
    x, *_, y = torch_peers.integers(conv, 2, "fp32", 0, True)
    assert not (x[:, :, 0].any() or x[..., -1].any())
    assert x[:, :, 1, 1:-1].any() and y.shape == conv.y_shape(2)


def test_the_product_has_the_layers_size_and_is_checked(torch):
    peer = point(5, rung=GEMM)
    conv = peer.conv
    record = runner_of(torch, peer).record(peer)
    assert record["status"] == "ok"
    pixels = conv.E * conv.F
    assert record["device_bytes"] == 4 * (conv.M * conv.K + conv.K * pixels + conv.M * pixels)
    assert record["error"]["tolerance"] == torch_peers.PRECISIONS["fp32"].tolerance(conv.K)
    assert record["exact"] == {"images": 1, "wrong": 0}
    torch.spoil = 0.01
    assert runner_of(torch, peer).record(peer)["status"] == "wrong"
    torch.spoil = 1e-5
    rounded = runner_of(torch, peer).record(peer)
    assert rounded["error"]["scaled"] <= rounded["error"]["tolerance"] and rounded["exact"]["wrong"] > 0


def test_layers_together_are_recorded_as_one(torch):
    joint = peers_together((3, 5), 1, "torch-nhwc-fp16")
    record = runner_of(torch, *joint.points()).record(joint)
    assert record["status"] == "ok"
    assert record["point"]["layer"] == "3,5"
    assert len(torch.paddings) == 2 * 2 * (torch_peers.WARM_UPS + 2)


def test_verify_only_times_nothing_and_what_does_not_fit_is_skipped(torch):
    assert runner_of(torch, point(), timed=False).record(point())["samples"] == {}
    for budget, mebibytes in ((1 << 20, "1.0"), (0, "0.0")):
        record = runner_of(torch, point(), memory_budget=budget).record(point())
        assert record["status"] == "skipped"
        assert f"the budget is {mebibytes}" in record["reason"]


@pytest.mark.parametrize(("error", "status"), [("OutOfMemoryError", "out-of-memory"), (None, "launch-error")])
def test_a_fault_of_torch_is_a_status_in_one_line(torch, monkeypatch, error, status):
    kind = getattr(torch.cuda, error) if error else RuntimeError

    def fails(*arguments, **options):
        raise kind("no engine\nfor a long time")

    monkeypatch.setattr(torch.nn.functional, "conv2d", fails)
    record = runner_of(torch, point()).record(point())
    assert (record["status"], record["reason"]) == (status, "torch-nchw-fp32: no engine")
    assert torch.flags() == (False, 10, "none", "none")


def test_the_key_knows_the_versions_and_the_settings(torch):
    joint = peers_together((1, 3), 1, "torch-nchw-fp32")
    for peer in (point(), joint):
        key = runner_of(torch, point(1), point(3)).key(peer)
        assert key == runner_of(Torch(), point(1), point(3)).key(peer)
        newer = Torch()
        newer.backends.cudnn.version = lambda: 92000
        assert key != runner_of(newer, point(1), point(3)).key(peer)
        assert key != runner_of(torch, point(1), point(3), seed=1).key(peer)
        sustained = runner_of(torch, point(1), point(3))
        sustained.executor.sustained = 1.0
        assert key != sustained.key(peer)
        record = {"point": peer.axes(), "key": key, "status": "ok"}
        assert Runner(sustained.executor, peer.points(), Settings()).earlier(peer, key, by_key([record])) == record


def test_missing_pieces_are_one_clear_line(torch, monkeypatch):
    with pytest.raises(UsageError, match="needs an NVIDIA GPU"):
        torch_peers.import_torch(SimpleNamespace(name="host", measures=False))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingTool, match=r"pip install 'alexconv\[peers\]'"):
        torch_peers.import_torch(Executor())
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert torch_peers.import_torch(Executor()) is torch
    del torch.backends.cudnn.conv
    with pytest.raises(MissingTool, match="this is torch 2"):
        torch_peers.import_torch(Executor())
    torch.cuda.is_available = lambda: False
    with pytest.raises(MissingTool, match="no CUDA device"):
        torch_peers.import_torch(Executor())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--peers", "torch"], "--peers torch needs an NVIDIA GPU"),
        (["--together"], "--together needs an NVIDIA GPU"),
        (["--peers", "tensorflow"], "cublaslt, triton, or names of one library's peers, not 'tensorflow'"),
        (["--peers", "torch-nchw-fp32,cudnn-nchw-fp32"], "or names of one library's peers, not"),
        (["--peers", "torch-nchw-fp32"], "--peers torch needs an NVIDIA GPU"),
    ],
)
def test_bad_usage_is_reported_before_anything_runs(tmp_path, capsys, arguments, says):
    out = tmp_path / "r.jsonl"
    try:
        status = run.main(["--backend", "host", *arguments, "--out", str(out)])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    assert says in capsys.readouterr().err
    assert not out.exists()


def jobs(precisions: list[str], *points: Point, names: tuple[str, ...] = ()) -> list[Job]:
    return with_peers("rungs", points, "peers", PEERS["torch"].chosen(names, precisions), sequences=True)


def test_peers_run_after_the_rungs_of_their_layer_and_batch():
    own = [point_of(batch_of("alexnet", layer, 1), "direct") for layer in (2, 1)]
    all_jobs = jobs([], *own)
    expected = ["rungs", *["peers"] * 7]
    assert [job.recorder for job in all_jobs] == expected * 2 + ["peers"] * 6
    assert [job.point.layer for job in all_jobs[:16]] == [2] * 8 + [1] * 8
    assert all(isinstance(job.point, LayerSequence) for job in all_jobs[16:])
    with pytest.raises(UsageError, match="two layers or more"):
        jobs([], own[0])
    with pytest.raises(UsageError, match="no peer is left"):
        jobs(["half"], own[0])


def test_only_peers_that_are_named_run():
    own = [point_of(batch_of("alexnet", layer, 1), "direct") for layer in (2, 1)]
    all_jobs = jobs([], *own, names=("torch-nchw-fp32", "torch-nhwc-fp16"))
    expected = ["direct", "torch-nchw-fp32", "torch-nhwc-fp16"] * 2
    assert [job.point.rung for job in all_jobs] == [*expected, *(f"{name}-together" for name in expected[1:3])]
    with pytest.raises(UsageError, match=r"no peer torch-nchw-half: there are torch-nchw-fp32, .*torch-gemm-fp32"):
        jobs([], *own, names=("torch-nchw-half",))
    with pytest.raises(UsageError, match="no peer is left"):
        jobs(["fp16"], *own, names=("torch-nchw-fp32",))


@pytest.mark.parametrize(
    ("text", "library", "names"),
    [
        ("torch", "torch", ()),
        ("torch-nchw-fp32,torch-nhwc-fp16", "torch", ("torch-nchw-fp32", "torch-nhwc-fp16")),
        ("cudnn-nchw-fp32-strict", "cudnn", ("cudnn-nchw-fp32-strict",)),
        ("torch,torch-nchw-fp32", "torch", ()),
    ],
)
def test_a_library_is_named_or_some_of_its_peers(text, library, names):
    assert peers_named(text) == text
    assert (library_of(text), names_in(text)) == (library, names)


class Host(Executor, HostExecutor):
    """Rungs run on the CPU, peers on the stand-in."""

    name, header, memory_budget = HostExecutor.name, HostExecutor.header, HostExecutor.memory_budget
    measures = HostExecutor.measures

    def __init__(self) -> None:
        HostExecutor.__init__(self, "fast", 0, None)
        Executor.__init__(self)


def test_the_whole_run_lists_records_resumes_and_shows_peers(tmp_path, capsys, monkeypatch, torch):
    monkeypatch.setattr(run, "choose_executor", lambda *arguments: Host())
    load = partial(partial, torch_peers.TorchRunner, torch)
    monkeypatch.setitem(PEERS, "torch", replace(PEERS["torch"], load=load))
    out = tmp_path / "r.jsonl"
    arguments = ["--workload", "lenet-70-k5", "--rungs", "direct-register", "--no-baseline", "--peers", "torch"]
    arguments += ["--N", "1", "--together", "--seconds", "0", "--precision", "fp32", "--out", str(out)]
    assert run.main([*arguments, "--dry-run"]) == 0
    assert "peer: lenet-70-k5 layers 1-2 N=1 torch-nhwc-fp32-together pageable" in capsys.readouterr().out
    assert run.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "10 points: 10 ok" in shown
    assert "torch-nchw-fp32-together pageable: ok, kernel" in shown
    assert [record["point"]["layer"] for record in read([out]).points] == [1] * 4 + [2] * 4 + ["1-2"] * 2
    assert run.main([*arguments, "--resume"]) == 0
    assert "10 of 10 points are already in" in capsys.readouterr().out


def test_reports_leave_layers_together_out_and_compare_reads_them(tmp_path, capsys):
    own = record("alexnet", 3, 1, "direct")
    joint = peers_together((1, 2, 3), 1, "torch-nchw-fp32")
    both = [own, record("alexnet", 3, 1, "torch-nchw-fp32") | {"peer": {}}, own | {"point": joint.axes()}]
    file = write(tmp_path / "r.jsonl", both)
    assert {point.series.rung for point in measurements(read([file])).points} == {"direct", "torch-nchw-fp32"}
    assert compare.main([str(file), str(file)]) == 0
    assert "alexnet layer 1-3 N=1 torch-nchw-fp32-together" in capsys.readouterr().out


@pytest.mark.parametrize("counts", [True, False], ids=["energy", "no energy"])
def test_sustained_samples_follow_the_time_under_load_and_have_no_rests(counts):
    executor, runs = Executor(), []
    executor.joules = 8.0 if counts else None

    def enqueue():
        runs.append(executor.now)
        if counts:
            executor.joules += 0.25

    samples, health = time_sustained(executor, [enqueue], seconds=0.01, expected=1.0)
    assert samples == [0.5] * SUSTAINED_SAMPLES  # the clock ticks between samples of two runs
    assert runs.count(0.0) == 10  # ms of load, in runs of 1 ms
    assert len(runs) == 10 + 2 * SUSTAINED_SAMPLES
    assert health == executor.health() | ({"joules_per_run": 0.25} if counts else {})
