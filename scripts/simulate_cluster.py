"""What a schedule costs on a cluster of many GPUs: workers sleep as long as points took in a GPU's records.

python scripts/simulate_cluster.py results/h200-alexnet.jsonl ... --workers 64 --out results/cluster/simulated-64.jsonl

Everything but the points is the real thing: Dask's scheduler, groups of points that stay together, a message for each
record, one writer that flushes each line.  All runs in one process on this machine, whose event loop the workers share,
so a cluster of as many hosts costs less; but Dask's monitoring of each worker's own host is off.
A point sleeps as long as its samples add up to, with the pauses between.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import monotonic, process_time, sleep, time
from uuid import uuid4

from alexconv.cluster.groups import Group, place
from alexconv.cluster.pool import Pool, Task, Worker
from alexconv.cluster.sending import POINT, Sender
from alexconv.cluster.worker import Request
from alexconv.options import exits_cleanly
from alexconv.planning.points import Point
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, identity, read

TYPE = "simulated-schedule"
FIXED_S = 0.3  # of a point besides its samples: opening, checking, auditing
ELSEWHERE = {  # what each worker does on its own host
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.system-monitor.disk": False,
}
Sleeps = list[tuple[Record, float]]  # a point's record and seconds


def seconds_of(record: Record) -> float:
    """A point's approximate time: its samples, each with an equal pause, and what comes before."""
    samples = record.get("samples") or {}
    kernels = sum(sum(samples.get(name, ())) for name in ("kernel", "kernel_cold"))
    return FIXED_S + (2 * kernels + sum(samples.get("total", ()))) / 1e3


def groups_of(records: Sequence[Record], copies: int) -> list[tuple[Group, Sleeps]]:
    """Timed points by place, each ``copies`` times as on so many data sets, the longest group first."""
    found: dict[object, list[tuple[Point, Record, float]]] = {}
    timed = [each for each in records if isinstance(each["point"]["layer"], int) and each.get("samples")]
    for copy in range(copies):
        for original in timed:
            axes = original["point"]
            record = {**original, "point": {**axes, "data": f"{axes.get('data', 'uniform')} {copy}"}}
            point = Point(**record["point"])
            found.setdefault(place(point), []).append((point, record, seconds_of(record)))
    groups = [
        (Group(tuple(point for point, _, _ in each)), [(record, seconds) for _, record, seconds in each])
        for each in found.values()
    ]
    return sorted(groups, key=lambda group: -sum(seconds for _, seconds in group[1]))


def sleep_points(request: Request, points: list[tuple[str, float]]) -> tuple[float, float]:
    """Sleeps each point's time and sends its record; returns when the worker began and ended."""
    file, began = Sender(request.topic), time()
    for text, seconds in points:
        sleep(seconds)
        file.point(json.loads(text))
    return began, time()


def simulate(workers: int, groups: Sequence[tuple[Group, Sleeps]], out: Path, speed: float) -> Record:
    """Runs the schedule; returns what it took, and what it would have taken without overhead."""
    import dask
    from distributed import Client, LocalCluster

    request = Request(f"alexconv-{uuid4().hex}", "", backend="host")
    spans: dict[str, list[tuple[float, float, float]]] = {}  # by worker: begin, end and sleep of each of its groups
    file, got, load = RecordFile(out), set[str](), os.getloadavg()[0]

    def hear(worker: Worker, kind: str, content: list[object]) -> None:
        if kind == POINT:
            record = content[0]
            assert isinstance(record, dict)
            got.add(identity(record["point"]))
            file.point({name: value for name, value in record.items() if name not in ("schema", "type")})

    def task(sleeps: Sleeps) -> Task:
        points = [(json.dumps(record), seconds / speed) for record, seconds in sleeps]
        total = sum(seconds for _, seconds in points)

        def done(worker: Worker, span: tuple[float, float]) -> Sequence[Task]:
            spans.setdefault(worker.address, []).append((*span, total))
            return ()

        return Task("sleeping", sleep_points, (request, points), done=done)

    with (
        dask.config.set(ELSEWHERE),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        Pool(client, request, print) as pool,
    ):
        pool.batch = file.batched
        began, used = monotonic(), process_time()
        pool.run([task(sleeps) for _, sleeps in groups], hear)
        took, used = monotonic() - began, process_time() - used
    points = sum(len(sleeps) for _, sleeps in groups)
    assert len(got) == points, "every point has its record"
    slept = sum(seconds for _, sleeps in groups for _, seconds in sleeps) / speed
    busy = sum(end - begin for each in spans.values() for begin, end, _ in each)
    in_order = [sorted(each) for each in spans.values()]
    gaps = sum(after[0] - before[1] for each in in_order for before, after in pairwise(each))
    starts = [min(begin for begin, _, _ in each) for each in spans.values()]
    overhead = busy - slept + gaps
    return {
        "workers": workers,
        "groups": len(groups),
        "points": points,
        "speed": speed,
        "point_s": slept / points,
        "schedule_s": took,
        "ideal_s": ideal(workers, [sum(seconds for _, seconds in sleeps) / speed for _, sleeps in groups]),
        "first_starts_within_s": max(starts) - min(starts),
        "overhead_ms_a_point": 1e3 * overhead / points,
        "overhead_share": overhead / slept,
        "cpu_ms_a_point": 1e3 * used / points,  # of client, scheduler and all workers
        "cores_busy_before": load,
        "gap_ms_between_groups": 1e3 * gaps / max(1, sum(len(each) - 1 for each in spans.values())),
    }


def ideal(workers: int, groups: Sequence[float]) -> float:
    """Seconds of the same order of groups without any overhead."""
    ends = [0.0] * workers
    for seconds in groups:
        ends[ends.index(min(ends))] += seconds
    return max(ends)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Simulates and records; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="record files with the points' times")
    parser.add_argument("--workers", type=int, default=64, help="simulated GPUs (default: 64)")
    parser.add_argument("--copies", type=int, default=4, help="copies of each point (default: 4)")
    parser.add_argument("--speed", type=float, default=1.0, help="divide sleeps by this (default: 1)")
    parser.add_argument("--records", type=Path, required=True, metavar="FILE", help="file of the writer")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="record file for the result")
    options = parser.parse_args(arguments)
    found = simulate(
        options.workers, groups_of(read(options.files).latest(), options.copies), options.records, options.speed
    )
    file = RecordFile(options.out)
    command = f"python scripts/simulate_cluster.py {' '.join(map(str, options.files))} --workers {options.workers}"
    command += f" --copies {options.copies} --speed {options.speed:g}"
    headers = environment.write_headers(file, {"backend": "simulated"}, command)
    file.header(TYPE, {**headers, **{name: round(value, 5) for name, value in found.items()}})
    for name, value in found.items():
        print(f"{name:24} {value:.5g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
