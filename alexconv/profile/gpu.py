"""Profiles on a GPU: Nsight Compute's counters, or what compiler and driver know."""

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from alexconv.errors import LaunchError
from alexconv.executors.cuda.buffers import CopiedBuffers
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.interface import open_rung
from alexconv.measuring.runner import Runner
from alexconv.messages import print_to_stderr
from alexconv.planning.points import Point
from alexconv.planning.transfers import transfer_named
from alexconv.profile import ncu
from alexconv.profile.profiles import Profile, reporting_failures
from alexconv.records.store import Record, identity


def cuda_profiles(runner: Runner, points: Sequence[Point], words: Sequence[str]) -> list[Profile]:
    """Nsight Compute's counters for every kernel, or what is known without them."""
    try:
        return counted(points, words)
    except ncu.NoCounters as reason:
        print_to_stderr(f"no counters: {reason}")
        print_to_stderr("registers, shared memory and theoretical occupancy are given instead")
        return list(known_without_counters(runner, points))


def counted(points: Sequence[Point], words: Sequence[str]) -> list[Profile]:
    """Runs this command again under Nsight Compute; raises NoCounters, LaunchError."""
    profiler = ncu.find_ncu()
    by_identity = {identity(point.axes()): point for point in points}
    with tempfile.TemporaryDirectory(prefix="alexconv-profile-") as folder:
        manifest = Path(folder) / "launched.json"
        child = ["-m", "alexconv.profile", *words, "--backend", CudaExecutor.name, "--child", str(manifest)]
        kernels = ncu.profile(profiler, [sys.executable, *child])
        launched = json.loads(manifest.read_text())
    for problem in launched["problems"]:
        print_to_stderr(problem)
    if [entry["entry"] for entry in launched["kernels"]] != [kernel.entry for kernel in kernels]:
        raise LaunchError(f"Nsight Compute saw {len(kernels)} kernels, but {len(launched['kernels'])} were launched")
    times: dict[str, float] = defaultdict(float)
    for entry, kernel in zip(launched["kernels"], kernels, strict=True):
        times[entry["point"]] += kernel.metrics.get("duration_ns", 0.0)
    profiles = []
    for entry, kernel in zip(launched["kernels"], kernels, strict=True):
        metrics = kernel.metrics
        if duration := metrics.get("duration_ns"):
            metrics = metrics | {"share": 100 * duration / times[entry["point"]]}
        profiles.append(Profile(by_identity[entry["point"]], kernel.entry, "ncu", entry["images"], metrics))
    return profiles


def launch_once(runner: Runner, points: Sequence[Point]) -> Record:
    """Launches each point's kernels once between the profiler's marks; returns them, and what could not be launched."""
    executor = runner.executor
    assert isinstance(executor, CudaExecutor)
    kernels: list[Record] = []
    problems: list[str] = []
    for point in points:
        with reporting_failures(point, problems.append):
            plan = runner.plan(point)
            rung, layer, transfer = point.entry, runner.layer(point), transfer_named(point.transfer)
            with open_rung(executor, plan, layer.x[: point.N], layer.w, transfer) as opened:
                copied, images = opened.buffers, plan.bound.micro_batch(plan.images_per_piece)
                assert isinstance(copied, CopiedBuffers)
                copied.outputs()
                with executor.gpu.errors(rung.name):
                    executor.gpu.driver.start_profiler()
                    copied.program.enqueue(images, copied.pointers, copied.stream)
                    copied.stream.synchronize()
                    executor.gpu.driver.stop_profiler()
            name = identity(point.axes())
            entries = [launch.entry for launch in rung.launches]
            kernels += [{"point": name, "entry": entry, "images": images} for entry in entries]
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
