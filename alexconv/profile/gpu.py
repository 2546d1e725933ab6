"""Profiles on a GPU: Nsight Compute's counters, or what compiler and driver know."""

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from alexconv.errors import LaunchError
from alexconv.executors.cuda.buffers import CopiedBuffers
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.interface import open_rung
from alexconv.measuring.runner import Runner
from alexconv.measuring.torch_peers import TorchRunner
from alexconv.messages import print_to_stderr
from alexconv.planning.points import Kind, PeerPoint, Point
from alexconv.planning.transfers import transfer_named
from alexconv.profile import ncu
from alexconv.profile.profiles import Profile, reporting_failures
from alexconv.records.store import Record, identity

MANGLED = "_Z"  # how the names of C++ functions in object code begin


@dataclass(frozen=True)
class Opened:
    """A point's kernels on ``images`` images: their names in order, and what puts them on the executor's stream.

    ``in_graph`` is a context with a function that launches them for all images of the ``piece``, as one graph.
    """

    entries: list[str]
    images: int
    enqueue: Callable[[], object]
    piece: int
    in_graph: Callable[[], AbstractContextManager[Callable[[], None]]]
    about: Record

    @property
    def times(self) -> int:
        """How often the kernels run for the piece."""
        return -(-self.piece // self.images)


@dataclass(frozen=True)
class Opener:
    """Opens points of rungs, and of peers where there is their runner."""

    runner: Runner
    peers: TorchRunner | None = None

    @contextmanager
    def opened(self, point: Point | PeerPoint) -> Iterator[Opened]:
        """A point on the images of its layer; raises Skip, CompileError, LaunchError, OutOfMemory."""
        with self.of_rung(point) if point.kind is Kind.RUNG else self.of_peer(point) as opened:
            yield opened

    @contextmanager
    def of_rung(self, point: Point) -> Iterator[Opened]:
        """A rung's kernels on a micro-batch; in a graph, on the first piece."""
        runner, executor = self.runner, self.runner.executor
        assert isinstance(executor, CudaExecutor)
        plan, layer, rung = runner.plan(point), runner.layer(point), point.entry
        with open_rung(executor, plan, layer.x[: point.N], layer.w, transfer_named(point.transfer)) as opened:
            copied, piece = opened.buffers, plan.images_per_piece
            images = plan.bound.micro_batch(piece)
            assert isinstance(copied, CopiedBuffers)
            copied.outputs()

            def enqueue(count: int, stream: Any) -> None:
                copied.program.enqueue(count, copied.pointers, stream)

            entries = [launch.entry for launch in rung.launches]
            in_graph = partial(executor.gpu.recorded, partial(enqueue, piece))
            yield Opened(entries, images, partial(enqueue, images, copied.stream), piece, in_graph, {})

    @contextmanager
    def of_peer(self, point: PeerPoint) -> Iterator[Opened]:
        """A peer's kernels."""
        assert self.peers is not None
        with self.peers.opened(point) as captured:
            about = {**self.peers.versions(), "workspace_bytes": captured.workspace_bytes}
            replay = captured.replay
            yield Opened(captured.kernels, point.N, captured.enqueue, point.N, lambda: nullcontext(replay), about)


def cuda_profiles(runner: Runner, points: Sequence[Point], words: Sequence[str]) -> list[Profile]:
    """Nsight Compute's counters for every kernel, or what is known without them."""
    try:
        return counted(points, words, ncu.metrics_of(runner.executor.device.capability))
    except ncu.NoCounters as reason:
        print_to_stderr(f"no counters: {reason}")
        print_to_stderr("registers, shared memory and theoretical occupancy are given instead")
        return list(known_without_counters(runner, points))


def counted_if_possible(
    points: Sequence[Point | PeerPoint], words: Sequence[str], names: Mapping[str, str]
) -> list[Profile]:
    """As ``counted``; none, with the reason on standard error, where Nsight Compute fails."""
    try:
        return counted(points, words, names)
    except (ncu.NoCounters, LaunchError) as reason:
        print_to_stderr(f"no counters: {reason}")
        return []


def counted(
    points: Sequence[Point | PeerPoint], words: Sequence[str], names: Mapping[str, str] = ncu.METRICS
) -> list[Profile]:
    """Runs this command again under Nsight Compute, for some of its points; raises NoCounters, LaunchError."""
    profiler = ncu.find_ncu()
    by_identity = {identity(point.axes()): point for point in points}
    with tempfile.TemporaryDirectory(prefix="alexconv-profile-") as folder:
        manifest = Path(folder) / "points.json"
        manifest.write_text(json.dumps(list(by_identity)))
        child = ["-m", "alexconv.profile", *words, "--backend", CudaExecutor.name, "--child", str(manifest)]
        kernels = ncu.profile(profiler, [sys.executable, *child], names)
        launched = json.loads(manifest.read_text())
    for problem in launched["problems"]:
        print_to_stderr(problem)
    entries = [entry["entry"] for entry in launched["kernels"]]
    if len(entries) != len(kernels) or not all(map(same_function, entries, (kernel.entry for kernel in kernels))):
        raise LaunchError(f"Nsight Compute saw {len(kernels)} kernels, but {len(launched['kernels'])} were launched")
    times: dict[str, float] = defaultdict(float)
    for entry, kernel in zip(launched["kernels"], kernels, strict=True):
        times[entry["point"]] += kernel.metrics.get("duration_ns", 0.0)
    profiles = []
    for entry, kernel in zip(launched["kernels"], kernels, strict=True):
        metrics = kernel.metrics
        if duration := metrics.get("duration_ns"):
            metrics = metrics | {"share": 100 * duration / times[entry["point"]]}
        profiles.append(Profile(by_identity[entry["point"]], entry["entry"], "ncu", entry["images"], metrics))
    return profiles


def same_function(entry: str, function: str) -> bool:
    """Whether a kernel of this name can be of this function, which the profiler names without its scope and types."""
    return entry == function or (entry.startswith(MANGLED) and function in entry)


def launch_once(opener: Opener, points: Sequence[Point | PeerPoint]) -> Record:
    """Launches each point's kernels once between the profiler's marks; returns them, and what could not be launched."""
    executor = opener.runner.executor
    assert isinstance(executor, CudaExecutor)
    kernels: list[Record] = []
    problems: list[str] = []
    for point in points:
        with reporting_failures(point, problems.append), opener.opened(point) as opened:
            with executor.gpu.errors(point.rung):
                executor.gpu.driver.start_profiler()
                opened.enqueue()
                executor.gpu.stream.synchronize()
                executor.gpu.driver.stop_profiler()
            name = identity(point.axes())
            kernels += [{"point": name, "entry": entry, "images": opened.images} for entry in opened.entries]
    return {"kernels": kernels, "problems": problems}


def known_without_counters(runner: Runner, points: Iterable[Point]) -> Iterator[Profile]:
    """Registers and shared memory of every kernel, and the occupancy that follows."""
    for point in points:
        with reporting_failures(point):
            plan = runner.plan(point)
            images = plan.bound.micro_batch(plan.images_per_piece)
            program = runner.executor.load(plan.bound)
            for launch in program.launches(plan.images_per_piece):
                metrics = {
                    "registers": launch["registers"],
                    "static_shared_bytes": launch["static_shared"],
                    "dynamic_shared_bytes": launch["dynamic_shared"],
                    "local_bytes": launch["local"],
                }
                if launch["occupancy"] is not None:
                    metrics["theoretical_occupancy"] = 100 * launch["occupancy"]
                yield Profile(point, launch["entry"], "driver", images, metrics)
