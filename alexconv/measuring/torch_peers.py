"""torch as a peer: cuDNN and cuBLAS as torch calls them.

``torch-LAYOUT-PRECISION`` is cuDNN's convolution, or its gradient (``aten::convolution_backward``), as torch calls it:
whatever a benchmark of all its engines finds fastest for the shape, in fp32, in tf32 and in fp16; gradients also among
the engines that are ``-deterministic``.  A record names the kernels and gives the bytes of their workspace.
``torch-gemm-fp32`` is one cuBLAS product in fp32 of the layer's size, M x K by K x N E F, on random matrices: what the
arithmetic of the layer costs without gathering patches.  ``...-together`` runs several layers in one graph.

A peer's work is captured in a CUDA graph on the executor's own stream, checked like a rung's, and timed by the same
function.  The graph that is timed also runs on integers, in the same arrays: its outputs must be exact, except those of
FFT and Winograd, which round when they transform their inputs; they are held to the tolerance.  torch is imported only
here and only on request; it shares the primary context.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from math import nan, prod
from statistics import median
from typing import Any

import numpy as np

from alexconv.code import code_of
from alexconv.cpu_reference.reference import exact_sums, norms, with_border
from alexconv.errors import LaunchError, MissingTool, OutOfMemory, UsageError
from alexconv.executors.cuda.graphs import kernel_names
from alexconv.executors.interface import Executor, Values
from alexconv.measuring.runner import (
    EXACT_IMAGES,
    Layer,
    Runner,
    Skip,
    attempted,
    checked,
    data_of,
    timed_under_load,
)
from alexconv.parallel import each_image
from alexconv.planning.checks import Expected, MaxError, exact_bias, exact_inputs, worst
from alexconv.planning.planner import MEBIBYTE
from alexconv.planning.points import PeerPoint, PeerSequence
from alexconv.precisions import PRECISIONS
from alexconv.records.store import Record, digest
from alexconv.shapes import FORWARD, Conv

ALL_ENGINES = 0  # as torch's benchmark_limit, which is 10 by default
WARM_UPS = 3  # the first finds the fastest engine, which is not allowed during a capture
SAMPLED_COLUMNS = 64  # of a product, checked against float64
TRANSFORMS = {"fft": "FFT", "winograd": "Winograd"}  # by a word in the names of an engine's kernels
PACKAGES = {"cudnn": "cudnn-frontend", "triton": "Triton"}  # beside torch
MOST_FACTOR = 3  # of the integers in a product's left matrix


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


def import_with_torch(executor: Executor, peer: str) -> tuple[Any, Any]:
    """torch, whose tensors are used, and the module with a peer's name.  Raises UsageError and MissingTool."""
    torch = import_torch(executor)
    try:
        return torch, import_module(peer)
    except ImportError as error:
        raise MissingTool(f"--peers {peer} needs {PACKAGES[peer]}: pip install 'alexconv[peers]' ({error})") from None


@dataclass(frozen=True)
class Work:
    """A peer's work: ``enqueue`` puts it on torch's current stream and returns its output tensors.

    ``exact`` takes a function that runs the captured work, and whether its engine transforms inputs.  It replaces the
    inputs by integers for that run and returns the number of images and how many of their outputs are wrong.
    """

    enqueue: Callable[[], list[Any]]
    check: Callable[[list[Any]], tuple[MaxError, float]]  # the worst error of these outputs, and its tolerance
    exact: Callable[[Callable[[], list[Any]], bool], Record]
    about: Record = field(default_factory=dict)  # its fields in a record


class TorchRunner:
    """Turns torch's points into records on a GPU, with the data of the rungs' runner."""

    def __init__(self, torch: Any, executor: Any, runner: Runner) -> None:
        self.executor = executor
        self._torch, self._runner = torch, runner
        self._stream = torch.cuda.ExternalStream(executor.gpu.stream.handle, device=executor.gpu.number)
        self._last_layers: tuple[object, list[Layer]] = (None, [])

    def versions(self) -> Record:
        """torch, its cuDNN and its CUDA, and how many engines its benchmark tries."""
        cudnn = self._torch.backends.cudnn.version()
        return {
            "torch": str(self._torch.__version__),
            "cudnn": f"{cudnn // 10000}.{cudnn % 10000 // 100}.{cudnn % 100}",
            "cuda": self._torch.version.cuda,
            "engines": "all",
        }

    def key(self, point: PeerPoint | PeerSequence) -> str:
        """Digest of all that the point's result depends on: a record with another key is stale."""
        shapes = [
            layer_point.conv.sizes() | {"pad": layer_point.conv.pad} | gradient_facts(layer_point)
            for layer_point in point.points()
        ]
        precision = PRECISIONS[point.precision]
        promised = [
            precision.dtype,
            precision.torch,
            *(precision.facts(layer_point.conv.products(layer_point.N)) for layer_point in point.points()),
        ]
        settings = self._runner.settings_key()
        code = code_of(type(self), type(self._runner))
        return digest([self.versions(), self.executor.header(), settings, code, point.rung, shapes, promised])

    def record(self, point: PeerPoint | PeerSequence) -> Record:
        """Runs one point; a fault of the point itself becomes its status, never an exception."""
        try:
            return attempted(point, self.key(point), lambda: self._measured(point))
        finally:
            with suppress(RuntimeError), self._torch.cuda.device(self.executor.gpu.number):  # a fault loses the context
                self._torch.cuda.empty_cache()

    def _measured(self, point: PeerPoint | PeerSequence) -> Record:
        for layer_point in point.points():
            if reason := self._runner.beyond_host_memory(layer_point):
                raise Skip(reason)
            if point.entry.is_product and layer_point.conv.groups > 1:
                raise Skip("a layer with groups is no single matrix product")
            if layer_point.direction != FORWARD and uneven(layer_point.conv):
                raise Skip("torch's gradients have the same padding on opposite sides")
        layers, peer = self._layers(point), self.versions()
        with self._ready(point.rung):
            needed = self._bytes_needed(point)
            if point.entry.is_product:
                best = self._ran(partial(product_of, self._torch, layers[0].conv, point.N, layers[0].of.seed), point)
                peer |= best.pop("about")
            else:
                ways = self._paddings(point, layers)
                tried = {padded: self._ran(partial(self._work, point, layers, padded), point) for padded in ways}
                padded = min(tried, key=lambda padded: rank(tried[padded]))
                best = tried[padded]
                peer |= {"padded_input": padded, "variants": [facts_of(*variant) for variant in tried.items()]}
                peer |= best.pop("about")
        whole = {"pieces": 1, "images_per_piece": point.N, "planned_constants": {}, "launches": []}
        return {**best, **whole, "device_bytes": needed, "peer": peer}

    def _paddings(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer]) -> Sequence[bool]:
        """The ways to pass the border that are tried: in memory (True), or as a padding argument."""
        return (True, False) if any(layer.conv.pad for layer in layers) else (True,)

    def _engines(self, point: PeerPoint | PeerSequence) -> AbstractContextManager[None]:
        """torch's settings while a point's engines are chosen."""
        return chosen_engines(self._torch, point.precision, deterministic=point.entry.deterministic)

    def _layers(self, point: PeerPoint | PeerSequence) -> list[Layer]:
        """Data of the point's layers; those of the last point are kept: the next peers share them."""
        names = [data_of(layer_point, self._runner.settings.seed) for layer_point in point.points()]
        if self._last_layers[0] != names:
            self._last_layers = names, [self._runner.layer(layer_point) for layer_point in point.points()]
        return self._last_layers[1]

    @contextmanager
    def _ready(self, label: str) -> Iterator[None]:
        """torch uses the executor's device and stream; its errors become this project's, one line each."""
        torch = self._torch
        # no_grad, not inference_mode: a capture leaves tensors in torch's generators, which would be inference tensors
        with self.executor.gpu.errors(label), torch.cuda.device(self.executor.gpu.number), torch.no_grad():
            try:
                with torch.cuda.stream(self._stream):
                    yield
            except torch.cuda.OutOfMemoryError as error:
                raise OutOfMemory(f"{label}: {first_line(error)}") from None
            except RuntimeError as error:
                raise LaunchError(f"{label}: {first_line(error)}") from None

    def _bytes_needed(self, point: PeerPoint | PeerSequence) -> int:
        """Bytes of the arrays, without workspaces; raises Skip if they exceed the memory budget."""
        self.executor.gpu.flush()  # allocates the flush buffer before the point's own arrays
        needed = sum(nbytes(layer_point.conv, point) for layer_point in point.points())
        budget = self._runner.memory_budget()
        if needed > budget:
            raise Skip(f"needs {needed / MEBIBYTE:.1f} MiB of device memory, the budget is {budget / MEBIBYTE:.1f}")
        return needed

    def _work(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer], padded: bool) -> Work:
        """The point's convolutions, ready to be enqueued."""
        return convolutions(self._torch, layers, point.N, point.entry.layout, point.precision, padded=padded)

    def _ran(self, make: Callable[[], Work], point: PeerPoint | PeerSequence) -> Record:
        """Captures, checks and times a work, then frees its memory."""
        torch, settings = self._torch, self._runner.settings
        with self._captured(make, point) as captured:
            work, run = captured.work, partial(replayed, torch, captured.replay, captured.outputs)
            exact = work.exact(run, transform_of(captured.kernels) is not None)
            facts = checked(*work.check(run()), exact)
            if facts["status"] == "ok":
                facts |= self._timed(captured.replay) if settings.timed else {"samples": {}}
            facts["about"] = {"kernels": captured.kernels, "workspace_bytes": captured.workspace_bytes, **work.about}
        del captured, work, run
        torch.cuda.empty_cache()
        return facts

    @contextmanager
    def _captured(self, make: Callable[[], Work], point: PeerPoint | PeerSequence) -> Iterator["Captured"]:
        """A work in a graph on the executor's stream, its engines chosen."""
        torch, work = self._torch, make()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with self._engines(point):
            for _ in range(WARM_UPS):
                work.enqueue()
            workspace = workspace_of(torch, work)
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="relaxed"):
                outputs = work.enqueue()
        names = kernel_names(graph.raw_cuda_graph())
        graph.instantiate()

        def enqueue() -> None:
            with self._engines(point):
                work.enqueue()

        yield Captured(work, outputs, names, workspace, graph.replay, enqueue)
        self._stream.synchronize()
        graph.reset()

    @contextmanager
    def opened(self, point: PeerPoint) -> Iterator["Captured"]:
        """A convolution as it is timed, its planes with their border, for profilers; raises Skip, OutOfMemory."""
        layers = self._layers(point)
        with self._ready(point.rung):
            self._bytes_needed(point)
            with self._captured(partial(self._work, point, layers, True), point) as captured:
                yield captured
        del captured
        self._torch.cuda.empty_cache()

    def _timed(self, enqueue: Callable[[], None]) -> Record:
        """Samples taken like a rung's, and the device's clock and health under this load."""
        measure = partial(self.executor.time, [enqueue])
        return timed_under_load(self.executor, measure, enqueue, self._runner.settings.seconds)


@dataclass(frozen=True)
class Captured:
    """A work in a graph, which ``replay`` launches: its outputs, and its kernels' names in their order.

    ``enqueue`` puts the same kernels on the stream one by one.
    """

    work: Work
    outputs: list[Any]
    kernels: list[str]
    workspace_bytes: int
    replay: Callable[[], None]
    enqueue: Callable[[], None]


def replayed(torch: Any, replay: Callable[[], None], outputs: list[Any]) -> list[Any]:
    """The outputs of a replay, filled with NaN before it; synchronized, so that other threads can read them."""
    for output in outputs:
        output.fill_(nan)
    replay()
    torch.cuda.synchronize()
    return outputs


def transform_of(kernels: Iterable[str]) -> str | None:
    """FFT or Winograd, where a kernel's name says that its engine transforms inputs; else None."""
    words = " ".join(kernels).lower()
    return next((name for word, name in TRANSFORMS.items() if word in words), None)


def workspace_of(torch: Any, work: Work) -> int:
    """Bytes that a work takes on the device besides its inputs and outputs, once its engines are chosen."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    outputs = work.enqueue()
    most, resident = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    del outputs
    return int(most - resident)


def nbytes(conv: Conv, point: PeerPoint | PeerSequence) -> int:
    """Bytes of a layer's input, filters and output; a product's input has K values per output pixel."""
    inputs = conv.K * point.N * conv.E * conv.F if point.entry.is_product else prod(conv.x_shape(point.N))
    elements = inputs + prod(conv.w_shape()) + prod(conv.y_shape(point.N))
    return elements * np.dtype(PRECISIONS[point.precision].dtype).itemsize


def convolutions(torch: Any, layers: Sequence[Layer], N: int, layout: str, precision: str, *, padded: bool) -> Work:
    """The layers' convolutions of N images each, in order, with operands uploaded in a layout.

    ``padded`` gives torch the planes with their zero border, as rungs get them; otherwise torch pads.
    """
    operands = [operands_of(torch, layer, N, layout, precision, padded=padded) for layer in layers]

    def enqueue() -> list[Any]:
        return [layer_operands.output(torch) for layer_operands in operands]

    return Work(enqueue, partial(check_of, layers, precision), partial(exact_of, torch, layers, operands, precision))


@dataclass(frozen=True)
class Operands:
    """Input, filters and bias of a convolution on the device, and the rows and columns of zeros that torch adds.

    Of a gradient, its operands in these roles.
    """

    x: Any
    w: Any
    bias: Any
    conv: Conv
    around: tuple[int, int]
    padded: bool
    precision: str
    channels_last: bool = False

    def put(self, torch: Any, x: Values, w: Values, bias: Values | None) -> None:
        """Overwrites the operands; fewer images than theirs are repeated."""
        arrays = on_host(self.conv, x, w, bias, self.precision, padded=self.padded)
        for place, values in zip((self.x, self.w, self.bias), arrays, strict=True):
            if values is not None:
                for first in range(0, len(place), len(values)):
                    rest = place[first : first + len(values)]
                    rest.copy_(torch.from_numpy(values[: len(rest)]))

    def output(self, torch: Any) -> Any:
        """torch's convolution, or its gradient."""
        conv = self.conv
        if conv.direction != FORWARD:
            return self._gradient(torch)
        terms = {"stride": conv.strides, "padding": self.around, "dilation": conv.dilation, "groups": conv.groups}
        y = torch.nn.functional.conv2d(self.x, self.w, self.bias, **terms)
        return y.relu_() if conv.relu else y

    def _gradient(self, torch: Any) -> Any:
        """The gradient of the layer's input or of its filters."""
        conv, roles = self.conv, self.conv.roles
        arrays = {roles.x: self.x, roles.w: self.w}
        wanted = roles.y.removeprefix("d")  # torch takes it too, for its shape and layout alone
        memory = torch.channels_last if self.channels_last else torch.contiguous_format
        shape = conv.shape_of(wanted, len(self.x))
        arrays[wanted] = torch.empty(shape, dtype=self.x.dtype, device="cuda", memory_format=memory)
        backward = torch.ops.aten.convolution_backward
        mask = [wanted == "x", wanted == "w", False]
        terms = None, conv.strides, self.around, conv.dilation, False, (0, 0), conv.groups, mask
        return backward(arrays["dy"], arrays["x"], arrays["w"], *terms)[0 if wanted == "x" else 1]


def gradient_facts(point: PeerPoint) -> Record:
    """What a gradient depends on besides its layer; nothing of a forward pass."""
    return {} if point.direction == FORWARD else {"direction": point.direction, "N": point.N}


def operands_of(torch: Any, layer: Layer, N: int, layout: str, precision: str, *, padded: bool) -> Operands:
    """A layer's first N images and its filters, uploaded; see ``convolutions``."""
    memory = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}[layout]

    def uploaded(values: Values) -> Any:
        return torch.from_numpy(values).to("cuda").contiguous(memory_format=memory)

    conv, border = layer.conv, 0 if padded else layer.conv.pad
    x, w, bias = on_host(conv, layer.x[:N], layer.w, layer.bias, precision, padded=padded)
    around = (border, border) if uneven(conv) else (border + conv.top, border + conv.left)
    added = None if bias is None else uploaded(bias.reshape(1, -1, 1, 1)).flatten()
    return Operands(uploaded(x), uploaded(w), added, conv, around, padded, precision, layout == "nhwc")


def on_host(
    conv: Conv, x: Values, w: Values, bias: Values | None, precision: str, *, padded: bool
) -> tuple[Values, Values, Values | None]:
    """Images, filters and bias for torch: in the class's type, without a border that torch adds itself."""
    border = 0 if padded else conv.pad
    inner = x[:, :, border : conv.H - border, border : conv.W - border]
    if uneven(conv):
        inner = with_border(conv, inner)
    dtype = np.dtype(PRECISIONS[precision].dtype)
    x, w = (np.ascontiguousarray(values, dtype) for values in (inner, w))
    return x, w, None if bias is None else bias.astype(dtype)


def uneven(conv: Conv) -> bool:
    """Whether the padding differs from side to side: torch pads both equally."""
    return conv.padding[::2] != conv.padding[1::2]


class OnDevice:
    """Outputs copied to the host image by image as they are checked: a gigabyte of fresh memory takes longer."""

    def __init__(self, output: Any) -> None:
        self._output, self.ndim = output, output.ndim

    def __len__(self) -> int:
        return len(self._output)

    def __getitem__(self, images: int | slice) -> Values:
        outputs: Values = self._output[images].cpu().numpy()
        return outputs


Integers = tuple[Values, Values, Values | None, Values]  # inputs, filters, bias, and the outputs due


@lru_cache(maxsize=16)
def integers(conv: Conv, images: int, precision: str, seed: int, scaled: bool) -> Integers:
    """Images, filters and bias on which the class is exact, and the outputs, float32; the border in memory is zero.

    ``scaled`` multiplies them by powers of two, for engines that sum products: a transform may combine images.
    """
    x, w = exact_inputs(conv, images, PRECISIONS[precision], seed, scaled=scaled)
    inner = np.zeros_like(x)
    rows, columns = slice(conv.pad, conv.H - conv.pad), slice(conv.pad, conv.W - conv.pad)
    inner[:, :, rows, columns] = x[:, :, rows, columns]
    bias = exact_bias(conv, seed)
    return inner, w, bias, exact_sums(conv, inner, w, bias)


def exact_of(
    torch: Any,
    layers: Sequence[Layer],
    operands: Sequence[Operands],
    precision: str,
    run: Callable[[], list[Any]],
    transforms: bool,
) -> Record:
    """``Work.exact`` of convolutions."""
    N = int(operands[0].x.shape[0])
    images, wrong = N if layers[0].conv.roles.sums_images else min(N, EXACT_IMAGES), 0
    layer_integers = [integers(layer.conv, images, precision, layer.of.seed, not transforms) for layer in layers]
    for layer_operands, (x, w, bias, _) in zip(operands, layer_integers, strict=True):
        layer_operands.put(torch, x, w, bias)
    for output, layer, numbers in zip(run(), layers, layer_integers, strict=True):
        tolerance = PRECISIONS[precision].tolerance(layer.conv.products(N)) if transforms else 0.0
        wrong += wrong_outputs(layer.conv, OnDevice(output), numbers, tolerance)
    for layer_operands, layer in zip(operands, layers, strict=True):
        layer_operands.put(torch, layer.x[:N], layer.w, layer.bias)
    within = max(PRECISIONS[precision].tolerance(layer.conv.products(N)) for layer in layers)
    return {"images": images, "wrong": wrong} | ({"within": within} if transforms else {})


def wrong_outputs(conv: Conv, y: Values | OnDevice, numbers: Integers, tolerance: float) -> int:
    """The number of outputs ``[N][M][E][F]``, of repeated images, that differ from those due beyond the tolerance.

    ``tolerance`` is in units of the norms of patch and filter.
    """
    x, w, bias, due = numbers
    patches, filters = norms(conv, x, w, bias)

    def of_image(image: int) -> int:
        which = image % len(due)
        error = np.abs(y[image].astype(np.float32) - due[which])
        return int((~(error <= tolerance * filters[:, None, None] * patches[which])).sum())

    return sum(each_image(of_image, len(y)))


def check_of(layers: Sequence[Layer], precision: str, outputs: list[Any]) -> tuple[MaxError, float]:
    """The worst error of the layers' outputs, and its tolerance."""
    pairs = zip(layers, outputs, strict=True)
    return worst([layer.check(OnDevice(output), precision) for layer, output in pairs])


def product_of(torch: Any, conv: Conv, N: int, seed: int) -> Work:
    """One fp32 product M x K by K x (N E F) of matrices uniform in [-1, 1), generated on the device."""
    columns = N * conv.E * conv.F
    generator = torch.Generator(device="cuda")

    def random() -> list[Any]:
        generator.manual_seed(seed)
        shapes = (conv.M, conv.K), (conv.K, columns)
        return [torch.rand(shape, generator=generator, device="cuda").mul_(2).sub_(1) for shape in shapes]

    left, right = random()

    def sampled(outputs: list[Any]) -> tuple[Values, Values, Values]:
        """The left matrix, and columns of the right one and of the product, in float64."""
        sample = np.unique(np.linspace(0, columns - 1, SAMPLED_COLUMNS).astype(np.int64))
        index = torch.from_numpy(sample).to("cuda")
        b, y = (values.index_select(1, index).cpu().numpy().astype(np.float64) for values in (right, outputs[0]))
        return left.cpu().numpy().astype(np.float64), b, y

    def check(outputs: list[Any]) -> tuple[MaxError, float]:
        a, b, y = sampled(outputs)
        error = MaxError()
        patches, filters = np.linalg.norm(b, axis=0)[None, None, :], np.linalg.norm(a, axis=1)
        error.add(y[None, :, None, :], Expected((a @ b)[None, :, None, :], patches, filters))
        return error, PRECISIONS["fp32"].tolerance(conv.K)

    def exact(run: Callable[[], list[Any]], transforms: bool) -> Record:
        most = MOST_FACTOR, PRECISIONS["fp32"].exact.sum // (MOST_FACTOR * conv.K)
        for place, values, largest in zip((left, right), random(), most, strict=True):
            place.copy_(values.mul_(largest).round_())
        a, b, y = sampled(run())
        for place, values in zip((left, right), random(), strict=True):
            place.copy_(values)
        return {"images": N, "wrong": int((y != a @ b).sum())}

    return Work(lambda: [torch.matmul(left, right)], check, exact)


@contextmanager
def chosen_engines(torch: Any, precision: str, *, deterministic: bool = False) -> Iterator[None]:
    """cuDNN benchmarks all its engines, and fp32 stays fp32 unless the precision is another; restores all on exit.

    Where ``deterministic``, only those that have the same bits each time.

    A captured graph keeps its engines, so replays need none of this.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.benchmark_limit, cudnn.conv.fp32_precision, matmul.fp32_precision
    before_deterministic = cudnn.deterministic
    try:
        cudnn.deterministic = deterministic
        cudnn.benchmark, cudnn.benchmark_limit = True, ALL_ENGINES
        cudnn.conv.fp32_precision = PRECISIONS[precision].torch
        matmul.fp32_precision = "ieee"
        yield
    finally:
        cudnn.benchmark, cudnn.benchmark_limit, cudnn.conv.fp32_precision, matmul.fp32_precision = before
        cudnn.deterministic = before_deterministic


def rank(facts: Record) -> tuple[bool, float]:
    """Sorting key of variants: correct ones first, the fastest of them first."""
    return facts["status"] != "ok", kernel_ms(facts) or 0.0


def facts_of(padded: bool, facts: Record) -> Record:
    """The facts of a variant that its record keeps."""
    figures = {"scaled_error": facts["error"]["scaled"], "kernel_ms": kernel_ms(facts)}
    return {"padded_input": padded, "status": facts["status"], **figures}


def kernel_ms(facts: Record) -> float | None:
    """Median of the hot samples."""
    samples = facts.get("samples", {}).get("kernel")
    return median(samples) if samples else None


def first_line(error: Exception) -> str:
    """An error's first line: torch's messages continue with many lines of advice."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
