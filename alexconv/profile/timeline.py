"""When each kernel of rungs and peers ran, on one time axis, as CUPTI records it through torch.profiler.

A run is sampled as it is timed: the L2 cache is flushed, the kernels run once cold and once hot, as a graph.  The hot
run of median length is kept.  CUPTI delays launches a little, so the same graph's time without it is recorded as well.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alexconv.errors import LaunchError
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.planning.points import PeerPoint, Point
from alexconv.profile.gpu import Opener
from alexconv.profile.profiles import Profile, reporting_failures
from alexconv.records.store import Record

RUNS = 15  # cold and hot ones
SECONDS = 0.03  # for the time without CUPTI
KERNEL, MEMSET, MEMCPY = "kernel", "gpu_memset", "gpu_memcpy"  # categories of the profiler's events
# Once stopped, CUPTI cannot be started again beside graphs that are older.
STAYS_LOADED = {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}
LAUNCH_FACTS = {
    "grid": "grid",
    "block": "block",
    "registers": "registers per thread",
    "shared_bytes": "shared memory",
}


@dataclass(frozen=True)
class Timeline:
    """What a point's hot run did on the GPU, in order: kernels, each perhaps with its counters, and clearing of memory.

    ``entries`` are the kernels' names, ``facts`` what was measured without CUPTI.
    """

    point: Point | PeerPoint
    images: int
    facts: Record
    entries: list[str]
    operations: list[Record]

    def record(self) -> Record:
        """The timeline as a record file holds it."""
        return {"point": self.point.axes(), "images": self.images, **self.facts, "kernels": self.operations}

    @property
    def has_counters(self) -> bool:
        """Whether its kernels were counted."""
        return any("metrics" in operation for operation in self.operations)

    def counted(self, profiles: Iterable[Profile]) -> "Timeline":
        """With the counters of its kernels, unless others were counted: a library may choose another engine."""
        own = [profile for profile in profiles if profile.point == self.point]
        kernels = [operation for operation in self.operations if operation["entry"] in self.entries]
        times, rest = divmod(len(kernels), len(own)) if own else (0, 0)
        if rest or [kernel["entry"] for kernel in kernels] != [profile.entry for profile in own] * times:
            return self
        counters = iter([profile.metrics for profile in own] * times)
        return replace(
            self,
            operations=[
                operation | ({"metrics": next(counters)} if operation["entry"] in self.entries else {})
                for operation in self.operations
            ],
        )


class Tracer:
    """torch's profiler of one executor's GPU."""

    def __init__(self, torch: Any, executor: CudaExecutor) -> None:
        for name, value in STAYS_LOADED.items():
            os.environ.setdefault(name, value)
        self._torch, self._gpu = torch, executor.gpu
        self.traced(lambda: None, 1)  # loads CUPTI before the first graph

    def traced(self, run: Any, runs: int) -> list[Record]:
        """The profiler's events on the GPU while ``run`` is called twice after each of ``runs`` flushes, in order."""
        profiler = self._torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            for _ in range(runs):
                self._gpu.flush()
                run()
                run()
                self._gpu.stream.synchronize()
        with tempfile.TemporaryDirectory(prefix="alexconv-trace-") as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(path))
            events: list[Record] = json.loads(path.read_text())["traceEvents"]
        on_gpu = [event for event in events if event.get("cat") in (KERNEL, MEMSET, MEMCPY)]
        return sorted(on_gpu, key=lambda event: float(event["ts"]))


def timelines(opener: Opener, tracer: Tracer, points: Sequence[Point | PeerPoint]) -> Iterator[Timeline]:
    """The timeline of every point that runs here, of its first piece."""
    executor = opener.runner.executor
    assert isinstance(executor, CudaExecutor)
    for point in points:
        with (
            reporting_failures(point),
            opener.opened(point) as opened,
            executor.gpu.errors(point.rung),
            opened.in_graph() as launch,
        ):
            samples = executor.time([launch], SECONDS)
            facts = executor.under_load([launch], samples)
            entries = opened.entries * opened.times
            operations = hot_run(tracer.traced(launch, RUNS), RUNS, executor.gpu.flush_buffer[1], entries)
            about = {"peer": opened.about} if opened.about else {}
            measured = {"samples": samples, **facts, "traced_runs": RUNS, **about}
            yield Timeline(point, opened.piece, measured, entries, operations)


def hot_run(events: Sequence[Record], runs: int, flushed_bytes: int, entries: Sequence[str]) -> list[Record]:
    """Of the events of ``runs`` cold and hot runs, those of the hot run of median length, named by their kernels.

    Raises LaunchError if the runs cannot be told apart.
    """
    work = [event for event in events if not is_flush(event, flushed_bytes)]
    length, rest = divmod(len(work), 2 * runs)
    cut = [work[length * run : length * (run + 1)] for run in range(1, 2 * runs, 2)]
    if rest or any(sum(event["cat"] == KERNEL for event in run) != len(entries) for run in cut):
        raise LaunchError(f"CUPTI recorded {len(work)} operations in {2 * runs} runs of {len(entries)} kernels")
    run = sorted(cut, key=lambda run: ended(run[-1]) - float(run[0]["ts"]))[len(cut) // 2]
    names, begin = iter(entries), float(run[0]["ts"])
    return [
        {
            "entry": next(names) if event["cat"] == KERNEL else event["cat"].removeprefix("gpu_"),
            "start_us": round(float(event["ts"]) - begin, 3),
            "us": round(float(event["dur"]), 3),
            **{name: event["args"][theirs] for name, theirs in LAUNCH_FACTS.items() if theirs in event["args"]},
        }
        for event in run
    ]


def is_flush(event: Record, nbytes: int) -> bool:
    """Whether an event is the clearing of the flush buffer."""
    return bool(event["cat"] == MEMSET and event.get("args", {}).get("bytes") == nbytes)


def ended(event: Mapping[str, Any]) -> float:
    """When an event ended, in µs."""
    return float(event["ts"]) + float(event["dur"])
