"""Compiles kernels and computes references ahead of the points, so that no point waits for its own.

The order of a run, in which nothing may disturb what is timed:

1. If points are timed, the CPU baselines are timed first, with nothing else running.
2. Kernels compile, one compiler per core, while one thread computes the references into the cache, layer by layer.
3. If points are timed, the first one starts when 2 is done: copies, and the host's part of ``total``, would otherwise
   share cores and memory bandwidth with the compilers.  The largest kernels, the ladder's last, compile first, so that
   none is left at the end on a single core.  If points are only checked, each starts, in order, as soon as its own
   kernel and reference are ready.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Self

from alexconv.cpu_reference.cache import LayerData
from alexconv.errors import AlexconvError
from alexconv.executors.interface import Executor
from alexconv.kernels.bound import BoundRung
from alexconv.machine import cores
from alexconv.measuring.runner import Runner, Skip, data_of
from alexconv.planning.points import Kind, PeerPoint, Point
from alexconv.shapes import FORWARD

Tell = Callable[[str], None]  # gets a line that says what the run waits for
PATIENCE = 1.0  # seconds between these lines


class Ahead:
    """Compiles the kernels of points and computes their references in the background; a context that stops both.

    A failure is ignored here: it occurs again, and is recorded, when its point runs.
    """

    def __init__(self, runner: Runner, points: Sequence[Point | PeerPoint], tell: Tell) -> None:
        self._runner, self._points, self._tell = runner, points, tell
        self._pools = ThreadPoolExecutor(cores()), ThreadPoolExecutor(1)
        self._needs: dict[Point | PeerPoint, list[Future[None]]] = {}

    def __enter__(self) -> Self:
        compilers, reference = self._pools
        layers: dict[LayerData, Future[None]] = {}
        kernels: dict[BoundRung, Future[None]] = {}
        if self._runner.times_cpu:
            forward = (point for point in self._points if point.direction == FORWARD)
            for point in {(point.workload, point.layer): point for point in forward}.values():
                self._tell(f"timing the CPU on {point.workload} layer {point.layer}")
                self._runner.time_cpu(point.workload, point.layer, point.conv)
        points = list(dict.fromkeys(self._points))
        for point in reversed(points) if self._runner.times else points:
            needs = self._needs[point] = []
            if not self._runner.beyond_host_memory(point):
                of = data_of(point, self._runner.settings.seed)
                if of not in layers:
                    layers[of] = reference.submit(quietly, self._runner.compute_reference, point)
                needs.append(layers[of])
            if bound := bound_rung(self._runner, point):
                if bound not in kernels:
                    kernels[bound] = compilers.submit(quietly, self._runner.executor.build, bound)
                needs.append(kernels[bound])
        return self

    def __exit__(self, *failure: object) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    def wait(self, points: Iterable[Point | PeerPoint]) -> None:
        """Waits for the kernels and references of the points; for those of all points if points are timed."""
        wanted = self._needs if self._runner.times else points
        left = {need for point in wanted for need in self._needs.get(point, ())}
        while left := {need for need in left if not need.done()}:
            self._tell(f"compiling kernels, computing references: {len(left)} to go")
            wait(left, PATIENCE, FIRST_COMPLETED)


def compile_all(runner: Runner, points: Iterable[Point | PeerPoint]) -> None:
    """Compiles the kernels of all points, as ``build_all`` does."""
    build_all(runner.executor, (bound for point in points if (bound := bound_rung(runner, point))))


def build_all(executor: Executor, bounds: Iterable[BoundRung]) -> None:
    """Compiles rungs, each once, one compiler per core; ignores failures, which occur again where a rung is loaded."""
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(partial(quietly, executor.build), dict.fromkeys(bounds)))


def bound_rung(runner: Runner, point: Point | PeerPoint) -> BoundRung | None:
    """The rung to compile for a point; None for a peer, and for a point that cannot run here."""
    try:
        return runner.plan(point).bound if point.kind is Kind.RUNG else None
    except Skip:
        return None


def quietly(work: Callable[..., object], *arguments: object) -> None:
    """Calls ``work`` and ignores its errors, which occur again where the result is needed."""
    with suppress(AlexconvError):
        work(*arguments)
