"""cuDNN as a peer by NVIDIA's cudnn-frontend: a second opinion on the engine that torch's benchmark finds.

``cudnn-LAYOUT-PRECISION`` is the fastest plan of all that a search finds for the convolution, with bias and ReLU in the
same operation graph where the layer has them.  Each plan is built and timed:

1. those that cuDNN's heuristics, fallback included, propose, for planes with their border and for a padding argument;
   the search goes on with the faster of the two;
2. every engine of cuDNN with its default knobs;
3. from the fastest engine on, as long as an engine is at most SLOWER times slower than the fastest plan, each knob's
   values in turn, the others at the best values so far.

A plan whose outputs miss the bound of the class does not count, as Winograd with large tiles in fp32.  Steps 2 and 3
end after SEARCH_SECONDS; the record says so.  The winner is timed again, with new samples, like every
peer.  A record names it, with its engine and knobs, the bytes of its workspace, the number of plans tried, and the time
of the fastest proposed plan.  Gradients are searched in the same way.

``cudnn-LAYOUT-fp32-strict`` excludes the plans that use FFT or Winograd, whose errors are bounded in terms of a tile or
a plane and not of an output's own patch: cuDNN in the class of the ladder's strict rungs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from alexconv.errors import LaunchError
from alexconv.measuring.runner import Layer, Skip
from alexconv.measuring.torch_peers import Operands, TorchRunner, Work, check_of, exact_of, operands_of
from alexconv.planning.peers import Peer
from alexconv.planning.points import PeerPoint, PeerSequence
from alexconv.precisions import IEEE, PRECISIONS
from alexconv.records.store import Record
from alexconv.shapes import FORWARD

WARM_UPS, RUNS, TRIES = 2, 5, 3  # per plan; its time is that of the fastest of TRIES, each of RUNS runs
CHECKED_IMAGES = 2  # of a plan faster than all before; the winner is checked on all
SLOWER = 2.0  # times the fastest plan so far: a plan whose second run takes longer is not run again
SEARCH_SECONDS = 6.0  # for engines and knobs, per convolution
MOST_VALUES = 32  # of a knob; of more, so many in equal steps
OPERATIONS = {  # of the frontend's graphs: the operation, and its parameters for the roles x and w
    FORWARD: ("conv_fprop", "image", "weight"),
    "dgrad": ("conv_dgrad", "loss", "filter"),
    "wgrad": ("conv_wgrad", "image", "loss"),
}
TRANSFORMS = ("FFT", "WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13")  # as cuDNN notes them


class CudnnRunner(TorchRunner):
    """Turns the frontend's points into records on a GPU."""

    clock = staticmethod(monotonic)

    def __init__(self, modules: tuple[Any, Any], executor: Any, runner: Any) -> None:
        torch, self._cudnn = modules
        super().__init__(torch, executor, runner)
        self._handle = self._cudnn.create_handle()
        self._cudnn.set_stream(handle=self._handle, stream=executor.gpu.stream.handle)

    def versions(self) -> Record:
        """Torch's, and the frontend's."""
        return {**super().versions(), "frontend": str(self._cudnn.__version__)}

    def _paddings(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer]) -> Sequence[bool]:
        """The way of padding with the faster plans among those that are proposed."""
        if any(layer.conv.groups > 1 for layer in layers):
            raise Skip("this peer does not support groups")
        ways = super()._paddings(point, layers)
        if len(ways) == 1:
            return ways

        def proposed(padded: bool) -> float:
            searches = [
                self._proposed(layer, self._plans(point, layer, padded)[0], point.precision) for layer in layers
            ]
            return sum(search.best.ms if search.best else inf for search in searches)

        with self._engines(point):
            return [min(ways, key=proposed)]

    def _plans(self, point: PeerPoint | PeerSequence, layer: Layer, padded: bool) -> tuple["Plans", Operands]:
        peer = point.entry
        operands = operands_of(self._torch, layer, point.N, peer.layout, point.precision, padded=padded)
        return self.plans(point.N, operands, peer), operands

    def _work(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer], padded: bool) -> Work:
        chosen: list[tuple[Plan, Record]] = []
        operands: list[Operands] = []
        for layer in layers:
            plans, of_layer = self._plans(point, layer, padded)
            operands.append(of_layer)
            chosen.append(self._fastest(layer, plans, point.precision))
        about: Record = {"plans": [{"engine": plan.name, "ms": plan.ms, **facts} for plan, facts in chosen]}
        about["workspace_bytes"] = max(plan.workspace_bytes for plan, _ in chosen)
        check = partial(check_of, layers, point.precision)
        exact = partial(exact_of, self._torch, layers, operands, point.precision)
        return Work(lambda: [plan.run() for plan, _ in chosen], check, exact, about)

    def plans(self, N: int, operands: Operands, peer: Peer) -> "Plans":
        """The plans of a convolution of N images."""
        return Plans(self._torch, self._cudnn, self._handle, N, operands, peer)

    def proposed(self, plans: "Plans", keeps_bound: Callable[["Plan"], bool]) -> "Search":
        """A search that has tried what heuristics propose."""
        search = Search(self._tried, keeps_bound)
        for plan in plans.proposed():
            search.add(plan)
        return search

    def _proposed(self, layer: Layer, plans: "Plans", precision: str) -> "Search":
        return self.proposed(plans, partial(self._keeps_bound, layer, precision))

    def _keeps_bound(self, layer: Layer, precision: str, plan: "Plan") -> bool:
        """Whether the outputs of a plan's last run keep the bound of the class; a few images tell."""
        self._torch.cuda.synchronize()
        outputs = plan.y if layer.conv.roles.sums_images else plan.y[:CHECKED_IMAGES]
        error, tolerance = check_of([layer], precision, [outputs])
        return error.passes(tolerance)

    def _fastest(self, layer: Layer, plans: "Plans", precision: str) -> tuple["Plan", Record]:
        """The fastest plan of a layer, and what was tried; raises LaunchError where none runs."""
        search = self._proposed(layer, plans, precision)
        proposed = search.best.ms if search.best else None
        ended = search.through(plans, self.clock() + SEARCH_SECONDS, self.clock)
        if search.best is None:
            raise LaunchError("cuDNN has no plan for this convolution")
        facts: Record = {"tried": search.tried, "refused": plans.refused, "wrong": search.wrong}
        facts |= {"proposed_ms": proposed, "search_ended": ended}
        return search.best, facts | {"knobs": dict(search.best.knobs)}

    def _tried(self, plan: "Plan", limit: float) -> float:
        """Milliseconds of a run of a plan; one that takes longer than ``limit`` is run twice only."""
        torch, gpu = self._torch, self.executor.gpu
        try:
            plan.run()
        except RuntimeError:  # built, but it does not run here
            return inf
        if (once := self._timed_runs(plan.run, 1)) > limit:
            return once
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="relaxed"):
            plan.run()
        for _ in range(WARM_UPS):
            graph.replay()
        fastest = min(self._timed_runs(graph.replay, RUNS) for _ in range(TRIES))
        gpu.stream.synchronize()
        graph.reset()
        return fastest

    def _timed_runs(self, run: Callable[[], object], runs: int) -> float:
        """Milliseconds of one of several runs."""
        gpu = self.executor.gpu
        start = gpu.mark(gpu.stream)
        for _ in range(runs):
            run()
        end = gpu.mark(gpu.stream)
        gpu.stream.synchronize()
        return float(end.time_since(start)) / runs


class Plan:
    """One of cuDNN's plans for a convolution; ``ms`` is its time, once it has been tried.

    ``knobs`` are those of a plan that the search chose, by name.
    """

    def __init__(self, torch: Any, convolution: "Convolution", index: int, knobs: Mapping[str, int]) -> None:
        graph = convolution.graph
        graph.build_plan_at_index(index)
        self._convolution, self._index, self.knobs = convolution, index, knobs
        self.name = str(graph.get_plan_name_at_index(index))
        self.workspace_bytes = int(graph.get_workspace_size_plan_at_index(index))
        self._workspace = torch.empty(max(1, self.workspace_bytes), dtype=torch.uint8, device="cuda")
        self.ms = inf

    @property
    def y(self) -> Any:
        """Its output, which the next run overwrites."""
        return self._convolution.y

    def run(self, x: Any = None) -> Any:
        """Enqueues the convolution, perhaps of another input; returns its output."""
        of = self._convolution
        buffers = of.buffers if x is None else {**of.buffers, of.x: x}
        of.graph.execute_plan_at_index(buffers, self._workspace, self._index, handle=of.handle)
        return self.y


class Search:
    """The fastest plan so far that keeps the bound of its class, and how many were tried, and wrong.

    ``time`` gives a plan's ms, given a limit; ``keeps_bound`` tells of a plan that has run.
    """

    def __init__(self, time: Callable[[Plan, float], float], keeps_bound: Callable[[Plan], bool]) -> None:
        self._time, self._keeps_bound = time, keeps_bound
        self.best: Plan | None = None
        self.tried = self.wrong = 0

    def add(self, plan: Plan) -> None:
        """Times a plan."""
        self.tried += 1
        plan.ms = self._time(plan, SLOWER * self.best.ms if self.best else inf)
        if plan.ms >= (self.best.ms if self.best else inf):
            return
        if self._keeps_bound(plan):
            self.best = plan
        else:
            plan.ms = inf
            self.wrong += 1

    def through(self, plans: "Plans", end: float, clock: Callable[[], float]) -> bool:
        """Steps 2 and 3 of the module's text; false if the time was up before they ended."""
        engines: list[tuple[float, int]] = []
        for engine in range(plans.engines):
            if clock() > end:
                return False
            if plan := plans.of_engine(engine, {}):
                self.add(plan)
                engines.append((plan.ms, engine))
        for ms, engine in sorted(engines):
            if self.best and ms > SLOWER * self.best.ms:
                break
            fastest = ms
            chosen: dict[Any, int] = {}
            for knob in plans.knobs(engine):
                for value in values_of(knob):
                    if clock() > end:
                        return False
                    if plan := plans.of_engine(engine, chosen | {knob.type: value}):
                        self.add(plan)
                        if plan.ms < fastest:
                            fastest, chosen = plan.ms, chosen | {knob.type: value}
        return True


def values_of(knob: Any) -> range:
    """The values of a knob to try."""
    step = max(1, knob.stride)
    count = (knob.max_value - knob.min_value) // step + 1
    return range(knob.min_value, knob.max_value + 1, step * -(-count // MOST_VALUES))


def notes_to_avoid(peer: Peer) -> list[str]:
    """The numerical notes, by cuDNN's names, that a peer's plan must not have."""
    return [
        "DOWN_CONVERT_INPUTS",
        *(["TENSOR_CORE"] if PRECISIONS[peer.precision].torch == IEEE else []),
        *(TRANSFORMS if peer.strict else []),
    ]


class Convolution:
    """An operation graph of a layer's convolution, with bias and ReLU where it has them, and its arrays.

    Of a gradient, whose operands are in the roles x and w.
    """

    def __init__(self, cudnn: Any, handle: Any, operands: Operands, y: Any, halves: bool) -> None:
        conv, kind = operands.conv, cudnn.data_type.HALF if halves else cudnn.data_type.FLOAT
        self.handle, self.y = handle, y
        self.graph = graph = cudnn.pygraph(
            handle=handle,
            io_data_type=kind,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
        )

        def tensor(array: Any) -> Any:
            return graph.tensor(dim=list(array.shape), stride=list(array.stride()), data_type=kind)

        x_of, w_of = tensor(operands.x), tensor(operands.w)
        self.x, self.buffers = x_of, {x_of: operands.x, w_of: operands.w}
        operation, first, second = OPERATIONS[conv.direction]
        y_of = getattr(graph, operation)(
            **{first: x_of, second: w_of},
            pre_padding=list(operands.around),
            post_padding=list(operands.around),
            stride=list(conv.strides),
            dilation=list(conv.dilation),
            compute_data_type=cudnn.data_type.FLOAT,
        )
        if operands.bias is not None:
            bias = operands.bias.reshape(1, -1, 1, 1)
            bias_of = tensor(bias)
            self.buffers[bias_of] = bias
            y_of = graph.bias(input=y_of, bias=bias_of, compute_data_type=cudnn.data_type.FLOAT)
        if conv.relu:
            y_of = graph.relu(input=y_of, compute_data_type=cudnn.data_type.FLOAT)
        y_of.set_output(True).set_data_type(kind).set_dim(list(y.shape)).set_stride(list(y.stride()))
        self.buffers[y_of] = y
        graph.validate()
        graph.build_operation_graph()


class Plans:
    """The plans that cuDNN can build for a peer's convolution, one at a time."""

    def __init__(self, torch: Any, cudnn: Any, handle: Any, N: int, operands: Operands, peer: Peer) -> None:
        self._torch, self._cudnn = torch, cudnn
        conv, x = operands.conv, operands.x
        last = x.is_contiguous(memory_format=torch.channels_last)
        memory = torch.channels_last if last else torch.contiguous_format
        y = torch.empty(conv.shape_of(conv.roles.y, N), dtype=x.dtype, device="cuda", memory_format=memory)
        halves = PRECISIONS[peer.precision].dtype == "float16"
        self._convolution = partial(Convolution, cudnn, handle, operands, y, halves)
        self._avoided = [getattr(cudnn.numerical_note, name) for name in notes_to_avoid(peer)]
        self._any = self._convolution()  # to ask for engines and knobs
        self.refused = 0  # plans that do not support the shape here

    def proposed(self) -> Iterator[Plan]:
        """Those that heuristics propose."""
        convolution, modes = self._convolution(), self._cudnn.heur_mode
        graph = convolution.graph
        graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
        graph.deselect_numeric_notes(self._avoided)
        for index in range(graph.get_execution_plan_count()):
            if plan := self._built(partial(Plan, self._torch, convolution, index, {})):
                yield plan

    @property
    def engines(self) -> int:
        """How many engines there are; 0 where the frontend is too old to say."""
        graph = self._any.graph
        return int(graph.get_engine_count()) if hasattr(graph, "get_engine_count") else 0

    def knobs(self, engine: int) -> Sequence[Any]:
        """An engine's knobs: type, smallest and largest value, and stride; none that this frontend does not know."""
        try:
            return list(self._any.graph.get_knobs_for_engine(engine))
        except (RuntimeError, ValueError):
            return []

    def of_engine(self, engine: int, knobs: Mapping[Any, int]) -> Plan | None:
        """An engine's plan with these knobs, others at their defaults; None if it is refused.

        In a graph of its own: the frontend mixes up the numerical notes of plans that are added one after the other.
        """

        def plan() -> Plan:
            convolution = self._convolution()
            convolution.graph.create_execution_plan(engine, dict(knobs))
            convolution.graph.deselect_numeric_notes(self._avoided)
            return Plan(self._torch, convolution, 0, {str(knob.name): value for knob, value in knobs.items()})

        return self._built(plan)

    def _built(self, make: Callable[[], Plan]) -> Plan | None:
        """A plan, or None if cuDNN refuses it: it has a note to avoid, or does not support this shape here."""
        try:
            return make()
        except (self._cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError):
            self.refused += 1
            return None
