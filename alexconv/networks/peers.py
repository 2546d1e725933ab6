"""torch's networks with the same stages and weights, in one CUDA graph, checked and timed like this project's."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any

from alexconv.errors import LaunchError, MissingTool, OutOfMemory
from alexconv.executors.interface import Values
from alexconv.executors.sampling import Samples, repeat
from alexconv.measuring.torch_peers import ALL_ENGINES, WARM_UPS, Operands, first_line, import_torch, import_with_torch
from alexconv.networks.stages import MaxPooling, Normalization, Product, Softmax
from alexconv.networks.tables import Network
from alexconv.networks.weights import Weights
from alexconv.planning.peers import Peer
from alexconv.precisions import PRECISIONS
from alexconv.records.store import Record
from alexconv.shapes import Conv

PEER_TOLERANCES = 2  # of a class, by which cuDNN's convolution and torch's may differ


@dataclass(frozen=True)
class NetworkPeer:
    """torch's eager operators on one layout, or its compiler's kernels; or convolutions with bias and ReLU by cuDNN.

    These are the fastest plans that cuDNN proposes, and torch's operators do the rest.
    """

    name: str
    layout: str
    compiled: bool = False
    fused: bool = False


NETWORK_PEERS: Mapping[str, NetworkPeer] = MappingProxyType(
    {
        peer.name: peer
        for peer in (
            NetworkPeer("torch-nchw", "nchw"),
            NetworkPeer("torch-nhwc", "nhwc"),
            NetworkPeer("torch-compile", "nhwc", compiled=True),
            NetworkPeer("cudnn-nchw", "nchw", fused=True),
            NetworkPeer("cudnn-nhwc", "nhwc", fused=True),
        )
    }
)


Convolution = Callable[[Conv, Any, Any], Callable[[Any], Any]]  # of a shape, filters and bias: a function of its input


def forward_of(
    torch: Any, network: Network, weights: Weights, dtype: Any, memory: Any, convolution: Convolution | None = None
) -> Callable[[Any], Any]:
    """The network as a function of images on the device, of torch's own operators but for the ``convolution``."""
    functional, operations = torch.nn.functional, []

    def on_device(values: Values | None) -> Any:
        if values is None:
            return None
        array = torch.from_numpy(values).to("cuda", dtype)
        return array.contiguous(memory_format=memory) if array.ndim == 4 else array

    for stage, parameters in zip(network.stages, weights, strict=True):
        conv = stage.shape
        if isinstance(stage, Product):
            assert parameters
            linear = stage.planes is not None
            w = on_device(parameters.w.reshape(conv.M, -1) if linear else parameters.w)
            bias, relu = on_device(parameters.bias), conv.relu
            if convolution and not linear:
                operations.append(convolution(conv, w, bias))
                continue
            terms = {"stride": conv.strides, "padding": (conv.top, conv.left), "groups": conv.groups}

            def product(x: Any, w: Any = w, bias: Any = bias, terms: Any = terms, relu: bool = relu) -> Any:
                y = functional.linear(x.flatten(1), w, bias) if w.ndim == 2 else functional.conv2d(x, w, bias, **terms)
                return functional.relu(y, inplace=True) if relu else y

            operations.append(product)
        elif isinstance(stage, Normalization):
            alpha = stage.alpha * stage.window  # torch divides it by the window
            operations.append(
                partial(functional.local_response_norm, size=stage.window, alpha=alpha, beta=0.75, k=stage.k)
            )
        elif isinstance(stage, MaxPooling):
            operations.append(partial(functional.max_pool2d, kernel_size=conv.R, stride=conv.U))
        elif isinstance(stage, Softmax):
            operations.append(partial(torch.softmax, dim=1))

    def forward(x: Any) -> Any:
        for operation in operations:
            x = operation(x)
        return x

    return forward


class TorchNetwork:
    """A peer's network for a batch, captured in a graph; raises MissingTool, OutOfMemory and LaunchError."""

    def __init__(
        self, executor: Any, network: Network, weights: Weights, peer: NetworkPeer, precision: str, images: Values
    ) -> None:
        self._torch = torch = import_torch(executor)
        self._executor, self._peer = executor, peer
        self._settings(PRECISIONS[precision].torch if precision != "fp16" else "ieee")
        dtype = getattr(torch, PRECISIONS[precision].dtype)
        memory = torch.channels_last if peer.layout == "nhwc" else torch.contiguous_format
        self._stream = torch.cuda.ExternalStream(executor.gpu.stream.handle, device=executor.gpu.number)
        self._graph = torch.cuda.CUDAGraph()
        self.compile_seconds = 0.0
        self._runners: list[Any] = []
        try:
            with torch.cuda.device(executor.gpu.number), torch.no_grad(), torch.cuda.stream(self._stream):
                self._x = torch.from_numpy(images).to("cuda", dtype).contiguous(memory_format=memory)
                fused = partial(self._fused, Peer("cudnn", peer.layout, precision)) if peer.fused else None
                forward = forward_of(torch, network, weights, dtype, memory, fused)
                if peer.compiled:
                    forward = torch.compile(forward, mode="max-autotune-no-cudagraphs")
                begin = perf_counter()
                for _ in range(WARM_UPS):
                    forward(self._x)
                torch.cuda.synchronize()
                self.compile_seconds = perf_counter() - begin if peer.compiled else 0.0
                with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="relaxed"):
                    self._y = forward(self._x)
        except (LaunchError, MissingTool):
            raise
        except torch.cuda.OutOfMemoryError as error:
            raise OutOfMemory(f"{peer.name}: {first_line(error)}") from None
        except Exception as error:  # the compiler raises errors of many kinds
            raise LaunchError(f"{peer.name}: {first_line(error)}") from None

    def _fused(self, peer: Peer, conv: Conv, w: Any, bias: Any) -> Callable[[Any], Any]:
        """The fastest plan that cuDNN proposes for a convolution of the batch with its bias and ReLU.

        Its outputs of random images have to be torch's, within the tolerance of the class.  Raises LaunchError.
        """
        from alexconv.measuring.cudnn_peers import CudnnRunner, Plan

        torch, N = self._torch, len(self._x)
        if conv.groups > 1:
            raise LaunchError(f"{self._peer.name}: this peer does not support groups")
        memory = torch.channels_last if peer.layout == "nhwc" else torch.contiguous_format
        x = torch.rand(conv.x_shape(N), dtype=w.dtype, device="cuda").contiguous(memory_format=memory)
        terms = {"stride": conv.strides, "padding": (conv.top, conv.left)}
        due = torch.relu(torch.nn.functional.conv2d(x, w, bias, **terms)).double()

        def keeps_bound(plan: Plan) -> bool:
            error = (plan.y.double() - due).norm() / due.norm()
            return bool(error <= PEER_TOLERANCES * PRECISIONS[peer.precision].tolerance(conv.K))

        runner = CudnnRunner(import_with_torch(self._executor, "cudnn"), self._executor, None)
        operands = Operands(x, w, bias, conv, (conv.top, conv.left), False, peer.precision, peer.layout == "nhwc")
        best = runner.proposed(runner.plans(N, operands, peer), keeps_bound).best
        if best is None:
            raise LaunchError(f"{self._peer.name}: cuDNN proposes no plan for a convolution")
        self._runners.append(runner)  # whose handle the plan needs
        return best.run

    def _settings(self, fp32: str) -> None:
        backends = self._torch.backends
        self._before = backends.cudnn.benchmark, backends.cudnn.benchmark_limit
        # By the former switches: inductor reads them, and refuses a mixture with fp32_precision.
        self._classes = backends.cudnn.allow_tf32, self._torch.get_float32_matmul_precision()
        backends.cudnn.benchmark, backends.cudnn.benchmark_limit = True, ALL_ENGINES
        backends.cudnn.allow_tf32 = fp32 == "tf32"
        self._torch.set_float32_matmul_precision("high" if fp32 == "tf32" else "highest")

    def scores(self) -> Values:
        """The scores of the batch, filled with NaN first."""
        with self._torch.cuda.stream(self._stream):
            self._y.fill_(float("nan"))
            self._graph.replay()
            self._torch.cuda.synchronize()
            y: Values = self._y.float().cpu().numpy()
        return y.reshape(*y.shape, *[1] * (4 - y.ndim))

    def measure(self, seconds: float) -> tuple[Samples, Record]:
        """Samples in ms per batch: ``kernel``, ``kernel_cold`` and ``latency``, as CudaNetwork has them."""
        with self._torch.cuda.stream(self._stream):  # on which a graph is replayed
            samples = self._executor.time([self._graph.replay], seconds)
            facts = self._executor.under_load([self._graph.replay], samples, warm_ms=0)
            return samples | repeat(self._latency, seconds), facts

    def _latency(self) -> dict[str, float]:
        self._executor.gpu.stream.synchronize()
        begin = perf_counter()
        self._graph.replay()
        self._executor.gpu.stream.synchronize()
        return {"latency": (perf_counter() - begin) * 1e3}

    def close(self) -> None:
        """Frees the memory, and restores torch's settings."""
        torch = self._torch
        self._graph.reset()
        self._x = self._y = None
        self._runners.clear()
        backends = torch.backends
        backends.cudnn.benchmark, backends.cudnn.benchmark_limit = self._before
        backends.cudnn.allow_tf32, matmul = self._classes
        torch.set_float32_matmul_precision(matmul)
        with suppress(RuntimeError):
            torch.cuda.empty_cache()
