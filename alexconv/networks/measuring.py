"""Runs networks: plan, run, check every stage, and only then time.  Each result is one record of type ``network``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np

from alexconv.code import code_of
from alexconv.errors import AlexconvError, CompileError, OutOfMemory
from alexconv.executors.interface import Executor
from alexconv.executors.sampling import Samples
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.measuring.runner import FAILURES, as_json, refuse_impossible, rounded, timed
from alexconv.networks.checks import COMPARED, EndToEnd, StageError, check_bytes, checked_stages, exact_scores
from alexconv.networks.peers import NETWORK_PEERS, TorchNetwork
from alexconv.networks.plan import AUTO, MEASURED, NetworkPlan, NetworkPoint, Step, contenders, plan_network, with_rungs
from alexconv.networks.stages import Values
from alexconv.networks.tables import Network
from alexconv.networks.weights import Weights, generated, images, stored_as
from alexconv.planning.planner import MEBIBYTE, DoesNotFit
from alexconv.precisions import PRECISIONS
from alexconv.records import environment
from alexconv.records.store import Record, digest

PEER_ERROR = 4  # margin of a peer's scores: its stages are not checked apart


@dataclass(frozen=True)
class NetworkSettings:
    """Settings that apply to all points of a run."""

    seconds: float
    seed: int = 0
    memory_budget: int | None = None
    timed: bool = True
    stages: bool = False  # whether stages are timed apart


class NetworkRunner:
    """Turns points into records on one executor, with generated images and weights."""

    def __init__(self, executor: Executor, settings: NetworkSettings, ladder: Ladder = LADDER) -> None:
        self.executor, self.settings, self.ladder = executor, settings, ladder
        self._weights: tuple[tuple[str, str], Weights] | None = None
        self._images: tuple[str, Values] | None = None
        self._host_memory = environment.available_memory()
        self._fastest: dict[tuple[object, ...], BoundRung] = {}  # of the stages that were measured

    def weights(self, network: Network, precision: str) -> Weights:
        """The generated weights of a network, rounded to a class's type; the last ones are kept."""
        key = network.name, PRECISIONS[precision].dtype
        if self._weights is None or self._weights[0] != key:
            self._weights = key, stored_as(generated(network, self.settings.seed), precision)
        return self._weights[1]

    def images(self, network: Network, N: int, beside: int = 0) -> Values:
        """The first N images.

        Raises DoesNotFit where host memory cannot hold them twice, once in the class's type, ``beside`` other bytes.
        """
        needed = 2 * N * prod(network.image) * np.dtype(np.float32).itemsize + beside
        if needed > self._host_memory:
            raise DoesNotFit(
                f"{N} images{' and their checks' if beside else ''} need {needed / MEBIBYTE:.1f} MiB of host memory, "
                f"{self._host_memory / MEBIBYTE:.1f} are available"
            )
        if self._images is None or self._images[0] != network.name or len(self._images[1]) < N:
            self._images = network.name, images(network, 0, N, self.settings.seed)
        return self._images[1][:N]

    def plan(self, point: NetworkPoint) -> NetworkPlan:
        """The point's plan; raises DoesNotFit."""
        weights = self.weights(point.network, point.precision)
        return plan_network(self.executor, point, weights, self.settings.memory_budget, self.ladder)

    def record(self, point: NetworkPoint) -> Record:
        """Runs one point; a fault of the point itself becomes its status, never an exception."""
        record: Record = {"axes": point.axes(), "started": datetime.now(UTC).isoformat(timespec="seconds")}
        record["point_key"] = self.key(point)
        try:
            measured = self._peer(point) if point.rungs in NETWORK_PEERS else self._own(point)
        except DoesNotFit as reason:
            measured = {"status": "skipped", "reason": str(reason)}
        except AlexconvError as error:
            if type(error) not in FAILURES:
                raise
            measured = {"status": FAILURES[type(error)], "reason": str(error)}
        return {**record, **measured}

    def key(self, point: NetworkPoint) -> str:
        """Digest of all that the point's record depends on."""
        own = self.settings
        timed = own.timed and self.executor.measures
        settings = [own.seed, own.memory_budget, own.timed, own.stages and timed, self.executor.sustained]
        kernels = [
            [bound.rung.name, self.executor.key(bound), bound.launch_facts(point.N)] for bound in self.bounds(point)
        ]
        libraries = environment.packages() if point.rungs in NETWORK_PEERS else {}
        code = code_of(type(self), TorchNetwork, *OPENERS.values())
        return digest([point.axes(), settings, self.executor.header(), kernels, libraries, code])

    def bounds(self, point: NetworkPoint) -> list[BoundRung]:
        """The rungs to compile for a point; none for a peer, and for a point that cannot run here."""
        if point.rungs in NETWORK_PEERS:
            return []
        try:
            plan = self.plan(point)
        except DoesNotFit:
            return []
        tried = point.rungs == MEASURED and not plan.whole
        of_steps = (
            contenders(plan, step, self.executor, self.ladder) if tried else [step.bound] for step in plan.launched
        )
        return [bound for bounds in of_steps for bound in bounds]

    def _measured(self, plan: NetworkPlan, x: Values) -> NetworkPlan:
        """The plan with the fastest of each stage's contenders, each stage timed alone from memory that is not cached.

        Linear weights, which a network reads anew for each batch, leave nothing else in the cache either.
        """
        shared = plan.point.N, plan.point.precision, plan.layout
        keys = [(step.stage.kind, step.stage.shape, *shared) for step in plan.steps]
        tried = [contenders(plan, step, self.executor, self.ladder) for step in plan.steps]
        best: list[tuple[float, BoundRung]] = [(inf, step.bound) for step in plan.steps]
        if not all(key in self._fastest for key in keys):
            for turn in range(max(map(len, tried))):
                bounds = [rungs[min(turn, len(rungs) - 1)] for rungs in tried]
                # A contender that does not compile or fit is none, and hides those of its turn.
                with suppress(CompileError, OutOfMemory, DoesNotFit):
                    of_turn = with_rungs(plan, bounds)
                    images = of_turn.images_per_piece  # as many as fit beside the scratch arrays of these rungs
                    with opened(self.executor, of_turn) as network:
                        times = [time / images for time in network.stage_times(x[:images])]
                    best = [
                        min(pair, key=lambda timed: timed[0])
                        for pair in zip(best, zip(times, bounds, strict=True), strict=True)
                    ]
            self._fastest |= {key: bound for key, (_, bound) in zip(keys, best, strict=True)}
        return with_rungs(plan, [self._fastest[key] for key in keys])

    def _own(self, point: NetworkPoint) -> Record:
        plan = self.plan(point)
        x = self.images(point.network, point.N, check_bytes(plan))
        if point.rungs == MEASURED and not plan.whole:
            plan = self._measured(plan, x)
        with opened(self.executor, plan) as network:
            facts = facts_of(plan) | self._checked(plan, network, x)
            if facts["status"] == "ok" and self.executor.measures and self.settings.timed:
                facts |= self._timed(point, partial(network.measure, x, stages=self.settings.stages))
                for stage, times in zip(facts["stages"], facts.pop("stage_samples", ()), strict=False):
                    stage["samples"] = rounded(times)
        return facts

    @staticmethod
    def _checked(plan: NetworkPlan, network: Any, x: Values) -> Record:
        """The errors of a run over all images, stage by stage and end to end, and the status that follows."""
        pieces = [x[first:last] for first, last in plan.pieces]
        runs = [checked_stages(plan, piece, network.stage_outputs, generated=True) for piece in pieces]
        stages = [max(errors, key=worst_first) for errors in zip(*(run[0] for run in runs), strict=True)]
        whole = max((run[1] for run in runs), key=worst_first)
        of_steps = [
            {**facts_of_error(error), "constants": dict(step.bound.constants), "bytes": bytes_moved(step, plan.point.N)}
            for error, step in zip(stages, plan.steps, strict=True)
        ]
        facts: Record = {"stages": of_steps, "end_to_end": facts_of_error(whole), "status": "ok"}
        varies = any(step.bound.rung.order_varies for step in plan.steps)
        same = varies or np.array_equal(network.scores(pieces[0]), runs[0][2], equal_nan=True)
        reasons = [f"stage {error.stage} exceeds its bound" for error in stages if not error.passes]
        reasons += [] if whole.passes else ["the scores exceed their bound"]
        reasons += [] if same else ["the schedule's scores differ from those of single stages"]
        return facts | ({"status": "wrong", "reason": "; ".join(reasons)} if reasons else {})

    def _peer(self, point: NetworkPoint) -> Record:
        """A peer's record: its scores are compared with float64 as this project's are, end to end."""
        x, peer = self.images(point.network, point.N), NETWORK_PEERS[point.rungs]
        network = TorchNetwork(
            self.executor, point.network, self.weights(point.network, point.precision), peer, point.precision, x
        )
        try:
            compared = min(point.N, COMPARED)
            error = relative_error(network.scores()[:compared], self._exact(point, compared))
            facts: Record = {"end_to_end": {"images": compared, "error": as_json(error)}, "peer": peer.name}
            allowed = self.allowed_error(point)
            if not error <= allowed:
                return {
                    **facts,
                    "status": "wrong",
                    "reason": f"the scores are off by {error:.1e}, allowed is {allowed:.1e}",
                }
            if peer.compiled:
                facts["compile_seconds"] = round(network.compile_seconds, 1)
            if self.settings.timed:
                facts |= self._timed(point, network.measure)
        finally:
            network.close()
        return {**facts, "status": "ok"}

    def _timed(self, point: NetworkPoint, measure: Callable[[float], tuple[Samples, Record]]) -> Record:
        """Samples, the device's health, and other facts of the measurement; raises Untrusted."""
        more: Record = {}

        def samples_in(seconds: float) -> Samples:
            samples, facts = measure(seconds)
            more.update(facts)
            return samples

        timed_facts = timed(self.executor, samples_in, self.settings.seconds)
        refuse_impossible(timed_facts["samples"], point.network.macs(point.N), self.executor.most_flops)
        return timed_facts | more

    def _exact(self, point: NetworkPoint, compared: int) -> Values:
        return exact_scores(self.plan(replace(point, rungs=AUTO)), self.images(point.network, compared))

    @staticmethod
    def allowed_error(point: NetworkPoint) -> float:
        """The largest relative error of a peer's scores: the sum of its products' tolerances, times PEER_ERROR."""
        precision = PRECISIONS[point.precision]
        return PEER_ERROR * sum(precision.tolerance(stage.shape.K) for stage in point.network.weighted)


def bytes_moved(step: Step, N: int) -> int:
    """Bytes of a stage's input, output and weights for N images, each once: the least that memory moves."""
    bound = step.bound
    weights = bound.filter_bytes() if "w" in step.arrays else 0
    outputs = prod(step.stage.planes_out) * np.dtype(bound.rung.dtype).itemsize
    return N * (bound.image_bytes[bound.roles.x] + outputs) + weights + bound.bias_bytes()


def relative_error(scores: Values, due: Values) -> float:
    """The largest 2-norm of an image's error over that of its scores; NaN where a score is."""
    error, size = (
        np.sqrt(np.square(v.reshape(len(v), -1).astype(np.float64)).sum(axis=1)) for v in (scores - due, due)
    )
    return float(np.max(error / size))


def worst_first(error: StageError | EndToEnd) -> tuple[bool, float]:
    """A sorting key by which the worst error, NaN above all, is the largest."""
    return bool(np.isnan(error.of_bound)), error.of_bound


def facts_of_error(error: StageError | EndToEnd) -> Record:
    """An error as a record holds it."""
    return {name: as_json(value) if isinstance(value, float) else value for name, value in asdict(error).items()}


def facts_of(plan: NetworkPlan) -> Record:
    """How a plan cuts the batch, and what it takes."""
    return {
        "layout": plan.layout,
        "pieces": len(plan.pieces),
        "images_per_piece": plan.images_per_piece,
        "device_bytes": plan.device_bytes(plan.images_per_piece),
        "macs": plan.point.network.macs(plan.point.N),
    }


def opened_network(executor: Executor, plan: NetworkPlan) -> Any:
    """The network with its arrays, until it is closed."""
    return OPENERS[executor.name](executor, plan)


@contextmanager
def opened(executor: Executor, plan: NetworkPlan) -> Iterator[Any]:
    """A planned network with its arrays, on the executor that it was planned for."""
    network = opened_network(executor, plan)
    try:
        yield network
    finally:
        network.close()


def _on_cuda(executor: Any, plan: NetworkPlan) -> Any:
    from alexconv.networks.on_cuda import CudaNetwork  # PyCUDA is imported only when used

    return CudaNetwork(executor, plan)


def _on_host(executor: Any, plan: NetworkPlan) -> Any:
    from alexconv.networks.on_host import HostNetwork

    return HostNetwork(executor, plan)


OPENERS: dict[str, Callable[[Any, NetworkPlan], Any]] = {"cuda": _on_cuda, "host": _on_host}
