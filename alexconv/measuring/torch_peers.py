"""torch as a peer: cuDNN and cuBLAS as torch calls them.

``torch-LAYOUT-PRECISION`` is cuDNN's convolution as torch calls it: whatever a benchmark of all its engines finds
fastest for the shape, in fp32, in tf32 and in fp16.  A record names the kernels, and the bytes of their workspace.
``torch-gemm-fp32`` is one product of cuBLAS in fp32 of the layer's size, M x K by K x N E F, on random matrices: what
the arithmetic of the layer costs without the gathering.  ``...-together`` are several layers one after the other in one
graph.

A peer's work is recorded as a CUDA graph on the executor's own stream, checked as a rung's is, and timed by the same
function.  torch is imported only here and only when asked for; it shares the primary context.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import nan, prod
from statistics import median
from typing import Any

import numpy as np

from alexconv.cpu_reference.reference import with_border
from alexconv.data import UNIFORM
from alexconv.errors import LaunchError, MissingTool, OutOfMemory, UsageError
from alexconv.executors.cuda.graphs import kernel_names
from alexconv.executors.interface import Executor
from alexconv.executors.sampling import Samples
from alexconv.measuring.runner import Layer, Runner, Skip, attempted, checked, timed
from alexconv.planning.checks import PRECISIONS, MaxError, worst
from alexconv.planning.layouts import LAYOUTS
from alexconv.planning.planner import MEBIBYTE
from alexconv.planning.points import GEMM, LayerSequence, Point, peer_name
from alexconv.records.names import SEQUENCE_SUFFIX
from alexconv.records.store import Record, digest
from alexconv.shapes import Conv

DTYPES: dict[str, type[np.generic]] = {"fp32": np.float32, "tf32": np.float32, "fp16": np.float16}
FP32_PRECISION = {"fp32": "ieee", "tf32": "tf32", "fp16": "tf32"}  # of cuDNN's convolutions, as torch names it
TRANSFER = "pageable"  # reports put peers, which copy nothing, beside the rungs under the study's transfer
ALL_ENGINES = 0  # as torch's benchmark_limit, which is 10 unless told otherwise
WARM_UPS = 3  # the first finds the fastest engine, which may not happen during a capture
SAMPLED_COLUMNS = 64  # of a product, checked against float64


def peer_points(points: Iterable[Point], precisions: Sequence[str] = ()) -> list[Point]:
    """The peers of every workload, layer and N among the points; only those of these precisions, if any are named."""
    places = dict.fromkeys((point.workload, point.layer, point.N, point.data) for point in points)
    names = [(peer_name(layout, precision), precision) for precision, layout in product(DTYPES, LAYOUTS)]
    return [
        Point(workload, layer, N, name, TRANSFER, precision, {}, data=data)
        for workload, layer, N, data in places
        for name, precision in [*names, (GEMM, "fp32")]
        if not precisions or precision in precisions
    ]


def peer_sequences(points: Iterable[Point], precisions: Sequence[str] = ()) -> list[LayerSequence]:
    """The points' layers together, for every workload and N among them; as ``peer_points`` where they are several."""
    layers: dict[tuple[str, int, str], dict[int, None]] = {}
    for point in points:
        layers.setdefault((point.workload, point.N, point.data), {})[point.layer] = None
    return [
        sequence_of(workload, tuple(numbers), N, precision, layout, data)
        for (workload, N, data), numbers in layers.items()
        for precision, layout in product(DTYPES, LAYOUTS)
        if len(numbers) > 1 and (not precisions or precision in precisions)
    ]


def sequence_of(
    workload: str, layers: tuple[int, ...], N: int, precision: str, layout: str, data: str = UNIFORM
) -> LayerSequence:
    """Layers of a workload one after the other in one graph, each on N images of its own."""
    name = peer_name(layout, precision) + SEQUENCE_SUFFIX
    return LayerSequence(workload, layers, N, name, TRANSFER, precision, data=data)


def import_torch(executor: Executor) -> Any:
    """torch with CUDA and cuDNN, ready for use.  Raises UsageError on the CPU, MissingTool with what to do."""
    if not executor.measures:
        raise UsageError(f"--peers torch needs an NVIDIA GPU: the {executor.name} executor has no times to compare")
    wanted = "--peers torch needs torch 2.9 or newer with CUDA and cuDNN"
    try:
        import torch
    except ImportError as error:
        raise MissingTool(f"{wanted}: pip install 'alexconv[peers]' ({error})") from None
    if not (torch.cuda.is_available() and torch.backends.cudnn.is_available()):
        raise MissingTool(f"{wanted}: torch {torch.__version__} has no CUDA device or no cuDNN here")
    if not hasattr(torch.backends.cudnn, "conv"):
        raise MissingTool(f"{wanted}: this is torch {torch.__version__}")
    torch.cuda.init()
    return torch


@dataclass(frozen=True)
class Work:
    """What a peer computes: ``enqueue`` puts it on torch's current stream and returns its output tensors."""

    enqueue: Callable[[], list[Any]]
    check: Callable[[list[Any]], tuple[MaxError, float]]  # the worst error of these outputs, and its tolerance
    about: Record = field(default_factory=dict)  # what a record says of it


class TorchRunner:
    """Turns torch's points into records on a GPU, from the data of the runner that runs the rungs."""

    def __init__(self, torch: Any, executor: Any, runner: Runner) -> None:
        self.executor = executor
        self._torch, self._runner = torch, runner
        self._stream = torch.cuda.ExternalStream(executor.stream.handle, device=executor.number)
        self._kept: tuple[object, list[Layer]] = (None, [])

    def versions(self) -> Record:
        """torch, its cuDNN and its CUDA, and how many engines its benchmark tries."""
        cudnn = self._torch.backends.cudnn.version()
        return {
            "torch": str(self._torch.__version__),
            "cudnn": f"{cudnn // 10000}.{cudnn % 10000 // 100}.{cudnn % 100}",
            "cuda": self._torch.version.cuda,
            "engines": "all",
        }

    def key(self, point: Point | LayerSequence) -> str:
        """Digest of all that the point's result depends on: a record with another key is stale."""
        shapes = [each.conv.sizes() | {"pad": each.conv.pad} for each in each_layer(point)]
        tolerances = [PRECISIONS[point.precision].tolerance(each.conv.K) for each in each_layer(point)]
        settings = self._runner.settings.key()
        return digest([self.versions(), self.executor.header(), settings, point.rung, shapes, tolerances])

    def record(self, point: Point | LayerSequence) -> Record:
        """Runs one point; a fault of the point itself becomes its status, never an exception."""
        try:
            return attempted(point, self.key(point), lambda: self._measured(point))
        finally:
            with suppress(RuntimeError), self._torch.cuda.device(self.executor.number):  # after a fault all is lost
                self._torch.cuda.empty_cache()

    def _measured(self, point: Point | LayerSequence) -> Record:
        for each in each_layer(point):
            if reason := self._runner.beyond_host_memory(each):
                raise Skip(reason)
        layers, peer = self._layers(point), self.versions()
        with self._ready(point.rung):
            needed = self._bytes_needed(point)
            if point.rung == GEMM:
                best = self._ran(partial(product_of, self._torch, layers[0].conv, point.N, layers[0].seed), point)
                peer |= best.pop("found")
            else:
                variants = [True, False] if any(layer.conv.pad for layer in layers) else [True]
                tried = {padded: self._ran(partial(self._work, point, layers, padded), point) for padded in variants}
                padded = min(tried, key=lambda padded: rank(tried[padded]))
                best = tried[padded]
                peer |= {"padded_input": padded, "variants": [facts_of(*found) for found in tried.items()]}
                peer |= best.pop("found")
        whole = {"pieces": 1, "images_per_piece": point.N, "planned_constants": {}, "launches": []}
        return {**best, **whole, "device_bytes": needed, "peer": peer}

    def _layers(self, point: Point | LayerSequence) -> list[Layer]:
        """Data of the point's layers; those of the last point are kept, since many peers follow with the same."""
        asked = [(each.workload, each.layer, each.data) for each in each_layer(point)]
        if self._kept[0] != asked:
            self._kept = asked, [self._runner.layer(each) for each in each_layer(point)]
        return self._kept[1]

    @contextmanager
    def _ready(self, what: str) -> Iterator[None]:
        """The executor's device and stream are torch's; torch's errors become this project's, each one line."""
        torch = self._torch
        # no_grad, not inference_mode: tensors that a capture leaves behind in torch's generators would be bound to it
        with self.executor.errors(what), torch.cuda.device(self.executor.number), torch.no_grad():
            try:
                with torch.cuda.stream(self._stream):
                    yield
            except torch.cuda.OutOfMemoryError as error:
                raise OutOfMemory(f"{what}: {first_line(error)}") from None
            except RuntimeError as error:
                raise LaunchError(f"{what}: {first_line(error)}") from None

    def _bytes_needed(self, point: Point | LayerSequence) -> int:
        """Bytes of the arrays, workspaces apart; raises Skip if the device or the user's budget has fewer."""
        self.executor.flush()  # allocates the flush buffer before the point's own arrays
        needed = sum(nbytes(each.conv, point) for each in each_layer(point))
        budget = self._runner.memory_budget()
        if needed > budget:
            raise Skip(f"needs {needed / MEBIBYTE:.1f} MiB of device memory, the budget is {budget / MEBIBYTE:.1f}")
        return needed

    def _work(self, point: Point | LayerSequence, layers: Sequence[Layer], padded: bool) -> Work:
        """The point's convolutions, ready to be enqueued."""
        layout = point.rung.split("-")[1]
        return convolutions(self._torch, layers, point.N, layout, point.precision, padded=padded)

    def _ran(self, make: Callable[[], Work], point: Point | LayerSequence) -> Record:
        """Captures, checks and times a work, whose memory is given back."""
        torch, settings = self._torch, self._runner.settings
        work, graph = make(), torch.cuda.CUDAGraph(keep_graph=True)
        with chosen_engines(torch, point.precision):
            for _ in range(WARM_UPS):
                work.enqueue()
            workspace = workspace_of(torch, work)
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="relaxed"):
                outputs = work.enqueue()
        names = kernel_names(graph.raw_cuda_graph())
        graph.instantiate()
        for output in outputs:
            output.fill_(nan)
        graph.replay()
        facts = checked(*work.check(outputs))
        if facts["status"] == "ok":
            facts |= self._timed(graph.replay) if settings.timed else {"samples": {}}
        facts["found"] = {"kernels": names, "workspace_bytes": workspace, **work.about}
        self._stream.synchronize()
        graph.reset()
        del work, outputs
        torch.cuda.empty_cache()
        return facts

    def _timed(self, enqueue: Callable[[], None]) -> Record:
        """Times as a rung's are taken, and what the device says of itself under this load."""
        under_load: Record = {}

        def measure(seconds: float) -> Samples:
            samples: Samples = self.executor.time([enqueue], seconds)
            under_load.update(self.executor.under_load([enqueue], samples))
            return samples

        return timed(self.executor, measure, self._runner.settings.seconds) | {"under_load": under_load}


def workspace_of(torch: Any, work: Work) -> int:
    """Bytes that a work takes on the device besides its inputs and outputs, once its engines are chosen."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    outputs = work.enqueue()
    most, kept = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    del outputs
    return int(most - kept)


def each_layer(point: Point | LayerSequence) -> list[Point]:
    """A point per layer."""
    return point.points() if isinstance(point, LayerSequence) else [point]


def nbytes(conv: Conv, point: Point | LayerSequence) -> int:
    """Bytes of a layer's input, filters and output; for a product the input is of K values per output pixel."""
    inputs = conv.K * point.N * conv.E * conv.F if point.rung == GEMM else prod(conv.x_shape(point.N))
    elements = inputs + prod(conv.w_shape()) + prod(conv.y_shape(point.N))
    return elements * np.dtype(DTYPES[point.precision]).itemsize


def convolutions(torch: Any, layers: Sequence[Layer], N: int, layout: str, precision: str, *, padded: bool) -> Work:
    """The layers' convolutions of N images each, one after the other, uploaded in a layout.

    ``padded`` gives torch the planes with their zero border, as rungs get them; otherwise torch pads.
    """
    operands = [operands_of(torch, layer, N, layout, precision, padded=padded) for layer in layers]

    def enqueue() -> list[Any]:
        return [each.output(torch) for each in operands]

    return Work(enqueue, partial(check_of, layers, precision))


@dataclass(frozen=True)
class Operands:
    """Input, filters and bias of a convolution on the device, and the rows and columns of zeros that it has to add."""

    x: Any
    w: Any
    bias: Any
    conv: Conv
    around: tuple[int, int]

    def output(self, torch: Any) -> Any:
        """torch's convolution."""
        conv = self.conv
        terms = {"stride": conv.strides, "padding": self.around, "dilation": conv.dilation, "groups": conv.groups}
        y = torch.nn.functional.conv2d(self.x, self.w, self.bias, **terms)
        return y.relu_() if conv.relu else y


def operands_of(torch: Any, layer: Layer, N: int, layout: str, precision: str, *, padded: bool) -> Operands:
    """A layer's first N images and its filters, uploaded; see ``convolutions``."""
    memory = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}[layout]

    def uploaded(values: np.ndarray) -> Any:
        values = np.ascontiguousarray(values, DTYPES[precision])
        return torch.from_numpy(values).to("cuda").contiguous(memory_format=memory)

    conv, border = layer.conv, 0 if padded else layer.conv.pad
    inner = layer.x[:N, :, border : conv.H - border, border : conv.W - border]
    if uneven := conv.padding[::2] != conv.padding[1::2]:  # torch has the same on both sides
        inner = with_border(conv, inner)
    around = (border, border) if uneven else (border + conv.top, border + conv.left)
    bias = None if layer.bias is None else uploaded(layer.bias.reshape(1, -1, 1, 1)).flatten()
    return Operands(uploaded(inner), uploaded(layer.w), bias, conv, around)


def check_of(layers: Sequence[Layer], precision: str, outputs: list[Any]) -> tuple[MaxError, float]:
    """The worst error of the layers' outputs, and its tolerance."""
    pairs = zip(layers, outputs, strict=True)
    return worst([layer.check(output.cpu().numpy(), precision) for layer, output in pairs])


def product_of(torch: Any, conv: Conv, N: int, seed: int) -> Work:
    """One fp32 product M x K by K x (N E F) of matrices uniform in [-1, 1), which are made on the device."""
    columns = N * conv.E * conv.F
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    left, right = (
        torch.rand(shape, generator=generator, device="cuda").mul_(2).sub_(1)
        for shape in ((conv.M, conv.K), (conv.K, columns))
    )

    def check(outputs: list[Any]) -> tuple[MaxError, float]:
        sample = np.unique(np.linspace(0, columns - 1, SAMPLED_COLUMNS).astype(np.int64))
        index = torch.from_numpy(sample).to("cuda")
        a = left.cpu().numpy().astype(np.float64)
        b, y = (values.index_select(1, index).cpu().numpy().astype(np.float64) for values in (right, outputs[0]))
        error = MaxError()
        patches, filters = np.linalg.norm(b, axis=0)[None, None, :], np.linalg.norm(a, axis=1)
        error.add(y[None, :, None, :], (a @ b)[None, :, None, :], patches, filters)
        return error, PRECISIONS["fp32"].tolerance(conv.K)

    return Work(lambda: [torch.matmul(left, right)], check)


@contextmanager
def chosen_engines(torch: Any, precision: str) -> Iterator[None]:
    """cuDNN benchmarks all its engines, and fp32 stays fp32 unless the precision is another; then all is as it was.

    A capture keeps what it was made with, so replays need none of this.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.benchmark_limit, cudnn.conv.fp32_precision, matmul.fp32_precision
    try:
        cudnn.benchmark, cudnn.benchmark_limit = True, ALL_ENGINES
        cudnn.conv.fp32_precision = FP32_PRECISION[precision]
        matmul.fp32_precision = "ieee"
        yield
    finally:
        cudnn.benchmark, cudnn.benchmark_limit, cudnn.conv.fp32_precision, matmul.fp32_precision = before


def rank(facts: Record) -> tuple[bool, float]:
    """Sorting key of variants: those that are right first, the fastest of them first."""
    return facts["status"] != "ok", kernel_ms(facts) or 0.0


def facts_of(padded: bool, facts: Record) -> Record:
    """What a record keeps of a variant."""
    figures = {"scaled_error": facts["error"]["scaled"], "kernel_ms": kernel_ms(facts)}
    return {"padded_input": padded, "status": facts["status"], **figures}


def kernel_ms(facts: Record) -> float | None:
    """Median of the hot samples."""
    samples = facts.get("samples", {}).get("kernel")
    return median(samples) if samples else None


def first_line(error: Exception) -> str:
    """torch's messages go on with advice over many lines."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
