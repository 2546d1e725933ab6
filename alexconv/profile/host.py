"""Profiles on the CPU: a trace of the memory accesses of a few blocks of each kernel."""

from collections.abc import Iterable, Iterator

import numpy as np

from alexconv.executors.host.buffers import HostBuffers, HostProgram
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.memory import HostBuffer
from alexconv.measuring.runner import Runner
from alexconv.planning.planner import Plan
from alexconv.planning.points import Point
from alexconv.profile import ncu
from alexconv.profile.profiles import Profile, reporting_failures
from alexconv.profile.trace import Trace, spread_blocks, trace_launch

ACCESSES = tuple((space, operation) for space in ("global", "shared") for operation in ("load", "store", "atomic"))
TRANSACTIONS = {"global": "sectors", "shared": "wavefronts"}


def host_profiles(runner: Runner, points: Iterable[Point], blocks: int) -> Iterator[Profile]:
    """Traces ``blocks`` blocks of every kernel."""
    for point in points:
        with reporting_failures(point):
            plan = runner.plan(point)
            images = plan.bound.micro_batch(plan.images_per_piece)
            for entry, trace in trace_point(runner.executor, point, plan, blocks):
                yield Profile(point, entry, "host", images, trace_metrics(trace), trace)


def trace_point(executor: object, point: Point, plan: Plan, blocks: int) -> Iterator[tuple[str, Trace]]:
    """The traces of a point's kernels, by entry.  Inputs are zeros: accesses do not depend on them."""
    assert isinstance(executor, HostExecutor)
    rung, conv = point.entry, point.conv
    program: HostProgram = executor.load(plan.bound)
    shapes = (shape(conv, plan.images_per_piece) for shape in (rung.x_shape, rung.w_shape))
    x, w = (np.zeros(shape, rung.dtype) for shape in shapes)
    bias = np.zeros(conv.M, rung.dtype) if conv.bias else None
    opened = HostBuffers(executor.runtime, program, plan, x, w, bias=bias)
    opened.bring_in(0, plan.images_per_piece)
    buffers = opened.buffers
    maps: list[HostBuffer] = []
    named = program.arguments(0, plan.bound.micro_batch(plan.images_per_piece), buffers, maps)
    for launch in plan.bound.launches(plan.images_per_piece):
        arguments = [named[name] for name in launch.args]
        chosen = spread_blocks(launch.grid, blocks)
        yield launch.entry, trace_launch(program.module, launch, arguments, buffers.values(), chosen)


def trace_metrics(trace: Trace) -> ncu.Metrics:
    """A trace's figures over all lines, by the same names as Nsight Compute's counters."""
    metrics: ncu.Metrics = {"blocks": trace.blocks, "active_lanes": trace.active_lanes, "races": len(trace.races)}
    for space, operation in ACCESSES:
        total = trace.total(space, operation)
        if total is None:
            continue
        kind, unit = f"{space}_{operation}", TRANSACTIONS[space]
        metrics[f"{kind}_requests"] = total.requests
        metrics[f"{kind}_{unit}"] = total.transactions
        metrics[f"{kind}_{unit}_per_request"] = total.per_request
        if space == "global":
            metrics[f"{kind}_efficiency"] = total.efficiency
    return ncu.complete(metrics)
