"""cuDNN as a peer by NVIDIA's cudnn-frontend: a second opinion on the engine that torch's benchmark finds.

``cudnn-LAYOUT-PRECISION`` is the fastest of all execution plans that cuDNN's heuristics, fallback included, propose for
the convolution: each is built, captured in a graph and timed.  The winner is timed again, with new samples, like every
peer.  A record names it, with the bytes of its workspace and the number of plans tried.

``cudnn-LAYOUT-fp32-strict`` excludes the plans that use FFT or Winograd, whose errors are bounded in terms of a tile or
a plane and not of an output's own patch: cuDNN in the class of the ladder's strict rungs.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from alexconv.errors import LaunchError, MissingTool
from alexconv.executors.interface import Executor
from alexconv.measuring.runner import Layer, Skip
from alexconv.measuring.torch_peers import Operands, TorchRunner, Work, check_of, exact_of, import_torch, operands_of
from alexconv.planning.peers import Peer
from alexconv.planning.points import PeerPoint, PeerSequence
from alexconv.precisions import IEEE, PRECISIONS
from alexconv.records.store import Record

WARM_UPS, RUNS, TRIES = 2, 5, 3  # per plan; its time is that of the fastest of TRIES, each of RUNS runs
TRANSFORMS = ("FFT", "WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13")  # as cuDNN notes them


def import_cudnn(executor: Executor) -> tuple[Any, Any]:
    """torch, whose tensors and cuDNN are used, and the frontend.  Raises UsageError and MissingTool."""
    torch = import_torch(executor)
    try:
        import cudnn
    except ImportError as error:
        raise MissingTool(f"--peers cudnn needs cudnn-frontend: pip install 'alexconv[peers]' ({error})") from None
    return torch, cudnn


class CudnnRunner(TorchRunner):
    """Turns the frontend's points into records on a GPU."""

    def __init__(self, modules: tuple[Any, Any], executor: Any, runner: Any) -> None:
        torch, self._cudnn = modules
        super().__init__(torch, executor, runner)
        self._handle = self._cudnn.create_handle()
        self._cudnn.set_stream(handle=self._handle, stream=executor.gpu.stream.handle)

    def versions(self) -> Record:
        """Torch's, and the frontend's."""
        return {**super().versions(), "frontend": str(self._cudnn.__version__)}

    def _work(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer], padded: bool) -> Work:
        peer = point.entry
        if any(layer.conv.groups > 1 or layer.conv.relu or layer.bias is not None for layer in layers):
            raise Skip("this peer does not support groups, bias or ReLU")
        plans: list[Plan] = []
        operands: list[Operands] = []
        for layer in layers:
            operands.append(operands_of(self._torch, layer, point.N, peer.layout, point.precision, padded=padded))
            plans.append(self._fastest(layer, operands[-1], peer))
        about: Record = {"plans": [{"engine": plan.name, "tried": plan.tried, "ms": plan.ms} for plan in plans]}
        about["workspace_bytes"] = max(plan.workspace_bytes for plan in plans)
        exact = partial(exact_of, self._torch, layers, operands, point.precision)
        return Work(lambda: [plan.run() for plan in plans], partial(check_of, layers, point.precision), exact, about)

    def _fastest(self, layer: Layer, operands: Operands, peer: Peer) -> "Plan":
        """The fastest plan of a layer; raises LaunchError where none runs."""
        best, tried = None, 0
        for plan in plans_of(self._torch, self._cudnn, self._handle, layer, operands, peer):
            tried += 1
            plan.ms = self._tried(plan)
            if best is None or plan.ms < best.ms:
                best = plan
        if best is None:
            raise LaunchError("cuDNN has no plan for this convolution")
        best.tried = tried
        return best

    def _tried(self, plan: "Plan") -> float:
        """Milliseconds of a run of a plan."""
        torch, graph = self._torch, self._torch.cuda.CUDAGraph()
        plan.run()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="relaxed"):
            plan.run()
        for _ in range(WARM_UPS):
            graph.replay()
        times, gpu = [], self.executor.gpu
        for _ in range(TRIES):
            start = gpu.mark(gpu.stream)
            for _ in range(RUNS):
                graph.replay()
            end = gpu.mark(gpu.stream)
            gpu.stream.synchronize()
            times.append(float(end.time_since(start)) / RUNS)
        graph.reset()
        return min(times)


class Plan:
    """One of cuDNN's plans for a convolution; ``ms`` is its time, ``tried`` the number of plans compared."""

    def __init__(self, torch: Any, graph: Any, index: int, buffers: dict[Any, Any], y: Any, handle: Any) -> None:
        self._graph, self._index, self._buffers, self._y, self._handle = graph, index, buffers, y, handle
        self.name = str(graph.get_plan_name_at_index(index))
        self.workspace_bytes = int(graph.get_workspace_size_plan_at_index(index))
        self._workspace = torch.empty(max(1, self.workspace_bytes), dtype=torch.uint8, device="cuda")
        self.tried, self.ms = 0, 0.0

    def run(self) -> Any:
        """Enqueues the convolution; returns its output, which the next run overwrites."""
        self._graph.execute_plan_at_index(self._buffers, self._workspace, self._index, handle=self._handle)
        return self._y


def notes_to_avoid(peer: Peer) -> list[str]:
    """The numerical notes, by cuDNN's names, that a peer's plan must not have."""
    return [
        "DOWN_CONVERT_INPUTS",
        *(["TENSOR_CORE"] if PRECISIONS[peer.precision].torch == IEEE else []),
        *(TRANSFORMS if peer.strict else []),
    ]


def plans_of(torch: Any, cudnn: Any, handle: Any, layer: Layer, operands: Operands, peer: Peer) -> Iterator[Plan]:
    """Every plan that cuDNN can build for a peer's convolution, one at a time."""
    halves = PRECISIONS[peer.precision].dtype == "float16"
    conv, kind = layer.conv, cudnn.data_type.HALF if halves else cudnn.data_type.FLOAT
    memory = torch.channels_last if operands.x.is_contiguous(memory_format=torch.channels_last) else None
    shape = operands.x.shape[0], conv.M, conv.E, conv.F
    y = torch.empty(shape, dtype=operands.x.dtype, device="cuda", memory_format=memory or torch.contiguous_format)
    graph = cudnn.pygraph(
        handle=handle,
        io_data_type=kind,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
    )
    x_of, w_of = (
        graph.tensor(dim=list(tensor.shape), stride=list(tensor.stride()), data_type=kind)
        for tensor in (operands.x, operands.w)
    )
    y_of = graph.conv_fprop(
        image=x_of,
        weight=w_of,
        pre_padding=list(operands.around),
        post_padding=list(operands.around),
        stride=list(conv.strides),
        dilation=list(conv.dilation),
        compute_data_type=cudnn.data_type.FLOAT,
    )
    y_of.set_output(True).set_data_type(kind).set_dim(list(y.shape)).set_stride(list(y.stride()))
    graph.validate()
    graph.build_operation_graph()
    modes = cudnn.heur_mode
    graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
    avoided = notes_to_avoid(peer)
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in avoided])
    buffers = {x_of: operands.x, w_of: operands.w, y_of: y}
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
            yield Plan(torch, graph, index, buffers, y, handle)
        except cudnn.cudnnGraphNotSupportedError:
            continue  # listed, but does not support this shape here
