"""The tables of docs/whole-networks.md, from the records of ``alexconv run --network``."""

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from pathlib import Path
from statistics import median
from typing import NamedTuple

from alexconv.records.statistics import median_of
from alexconv.records.store import Record, Records, read
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source

TYPE = "network"  # of the records
SHOWN = "alexnet-torchvision", "fp16"  # the network and class whose schedules and stages have tables
ONE, MANY = 1, 128  # images
FP32 = SHOWN[0], "fp32", MANY  # whose goal is relative to torch
USUAL = "dependent"  # the fastest schedule with a kernel for each stage
PEERS = "torch-", "cudnn-"  # what peers' names begin with

# Each made before its schedule was first measured, for an H100: the schedule that it is compared with, microseconds of
# the latency with one image, and of the kernels with 128.  117 MB of linear weights at 2.9 TB/s are 40; five
# convolutions of one image 6 each, a pooling 2.5, a pass of bias and ReLU 2; a launch with its wait 12, without 6, in a
# graph 1.2.  With 128 images: convolutions 350, linear layers 70, poolings 40, bias 90.  persistent: five convolutions
# with their poolings 3.4 each; meanwhile 17 MB of the weights come into shared memory and 43 into the L2 cache, so that
# of 122 are left 21; to launch it and to learn that it has ended 10.
PREDICTED: Mapping[str, tuple[str, float, float | None]] = {
    "waits": ("", 300, 780),
    "stream": ("waits", 150, 560),
    "graph": ("stream", 105, 550),
    "epilogue": ("graph", 89, 460),
    "dependent": ("epilogue", 75, 450),
    "persistent": ("dependent", 48, None),
}
# Steps of fp32 and tf32, with the step before and, by class and images, microseconds that torchvision's AlexNet gains
# on an H200, as `alexconv predict --network` had them before the step's kernels were timed.
STEPS_OF_FLOATS: Mapping[str, tuple[str, Mapping[tuple[str, int], float]]] = {
    "pooled": ("dependent", {("fp32", 128): 11.3, ("fp32", 1024): 138, ("tf32", 128): 10.7, ("tf32", 1024): 130}),
    "terms": ("pooled", {("fp32", 128): -15.9, ("fp32", 1024): 83.1, ("tf32", 128): 4.4, ("tf32", 1024): 13.0}),
}


def networks_in(file: Path) -> tuple[list[Record], Records]:
    """The newest record of each point, of schedules that there are today, oldest first; all records."""
    records = read([file])
    timed = [
        header
        for header in records.headers.values()
        if header["type"] == TYPE and header["status"] == "ok" and median_of(header, "kernel") is not None
    ]
    newest = {
        tuple(record["axes"].values()): record
        for record in sorted(timed, key=start)
        if record["axes"]["schedule"] in (*PREDICTED, *STEPS_OF_FLOATS)
    }
    return sorted(newest.values(), key=start), records


def start(record: Record) -> str:
    """When a record's measurement began; texts sort by time."""
    return str(record["started"])


def us(record: Record, figure: str = "kernel") -> float:
    """The median of a figure in microseconds."""
    return 1e3 * (median_of(record, figure) or 0.0)


def is_peer(record: Record) -> bool:
    """Whether another library's network was timed."""
    return str(record["axes"]["rungs"]).startswith(PEERS)


def of(records: Sequence[Record], N: int) -> list[Record]:
    """This project's records of SHOWN for N images, in the order of the schedules."""
    chosen = [record for record in records if not is_peer(record) and record["axes"]["rungs"] == "auto"]
    return [
        record
        for record in chosen
        if (record["axes"]["network"], record["axes"]["precision"], record["axes"]["N"]) == (*SHOWN, N)
    ]


class Timed(NamedTuple):
    """A schedule's predicted latency, its latency and its kernels' time, in microseconds."""

    predicted: float
    latency: float
    kernels: float


def schedules_of(records: Sequence[Record], N: int) -> dict[str, Timed]:
    """The schedules that were timed for N images, by name."""
    return {
        (name := record["axes"]["schedule"]): Timed(PREDICTED[name][1], us(record, "latency"), us(record))
        for record in of(records, N)
    }


SCHEDULE_COLUMNS = (
    *("schedule", "than", "1 image: latency predicted, µs", "measured", "kernels", "gain"),
    *("128 images: kernels predicted, µs", "measured", "gain"),
)


def schedule_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each schedule, with what it gains over the one that it is compared with."""
    one, many = ({record["axes"]["schedule"]: record for record in of(records, N)} for N in (ONE, MANY))
    for name, (parent, latency, kernels) in PREDICTED.items():
        if name not in one:
            continue
        before, now = (one.get(which) for which in (parent, name))
        gain = Faster(us(before, "latency") / us(now, "latency")) if before and now else None
        cells: tuple[Cell, ...] = None, None, None
        if name in many:
            cells = kernels, us(many[name]), Faster(us(many[parent]) / us(many[name])) if parent in many else None
        yield name, parent or None, latency, us(one[name], "latency"), us(one[name]), gain, *cells


def step_columns(step: str) -> tuple[str, ...]:
    """The columns of ``step_rows``."""
    return "network", "class", "N", f"{STEPS_OF_FLOATS[step][0]}, µs", "predicted, µs", f"{step}, µs", "gain"


def step_rows(records: Sequence[Record], step: str) -> Iterator[tuple[Cell, ...]]:
    """A row for each network, class and N of a step of floats, beside the step before it."""
    before, gains = STEPS_OF_FLOATS[step]
    of_points: dict[tuple[str, str, int], dict[str, float]] = {}
    for record in records:
        axes = record["axes"]
        point = axes["network"], axes["precision"], axes["N"]
        if axes["rungs"] == "auto":
            of_points.setdefault(point, {})[axes["schedule"]] = us(record)
    for (network, precision, N), times in sorted(of_points.items()):
        if step in times and before in times:
            gain = gains.get((precision, N)) if network == SHOWN[0] else None
            predicted = None if gain is None else times[before] - gain
            yield network, precision, N, times[before], predicted, times[step], Faster(times[before] / times[step])


STAGE_COLUMNS = ("stage", "rung, 1 image", "µs", "TB/s", "rung, 128 images", "µs", "TB/s")


def stage_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each stage of the usual schedule, each alone, and their sum, where stages were timed."""
    usual = [[record for record in of(records, N) if record["axes"]["schedule"] == USUAL] for N in (ONE, MANY)]
    timed = [[record for record in side if "samples" in record["stages"][0]] for side in usual]
    if not all(timed):
        return
    sums = [0.0, 0.0]
    for pair in zip(*(side[-1]["stages"] for side in timed), strict=True):
        cells: list[Cell] = []
        for place, stage in enumerate(pair):
            time = 1e3 * median(stage["samples"]["kernel"])
            sums[place] += time
            cells += [f"`{stage['rung']}`", time, stage["bytes"] / time / 1e6]
        yield pair[0]["stage"], *cells
    whole = [us(side[-1]) for side in timed]
    yield "sum of the stages", None, sums[0], None, None, sums[1], None
    yield "the whole", None, whole[0], None, None, whole[1], None


TIMELINE_COLUMNS = "stage", "begins, µs", "takes", "MB", "TB/s"


def timeline_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each stage of the persistent kernel, from its own clock: it begins when the last block begins it."""
    for record in of(records, ONE):
        for place, stage in enumerate(record["stages"] if "timeline" in record else ()):
            begin, end = record["timeline"][place : place + 2]
            yield stage["stage"], begin, end - begin, stage["bytes"] / 1e6, stage["bytes"] / (end - begin) / 1e6
        if "timeline" in record:
            yield "the kernel", None, record["timeline"][-1], None, None
            yield "launched and waited for", None, us(record), None, None


PEER_NAMES = "torch-nchw", "torch-nhwc", "torch-compile", "cudnn-nchw", "cudnn-nhwc"
PEER_COLUMNS = (
    *("network", "class", "N", "schedule", "µs"),
    *("torch NCHW", "NHWC", "compiled", "cuDNN fused NCHW", "NHWC", "than the fastest peer"),
    *("images/s", "mJ per image", "of the fastest peer"),
)


def peer_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each network, class and N: the fastest schedule and the peers."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        axes = record["axes"]
        groups.setdefault((axes["network"], axes["precision"], axes["N"]), []).append(record)
    for (network, precision, N), group in sorted(groups.items()):
        ours = [record for record in group if not is_peer(record)]
        if not ours:
            continue
        own = min(ours, key=us)
        peers = {record["axes"]["rungs"]: record for record in group if is_peer(record)}
        times = [us(peers[name]) if name in peers else None for name in PEER_NAMES]
        best = min(peers.values(), key=us) if all(times[:2]) else None  # the faster layout counts
        yield (
            *(network, precision, N, own["axes"]["schedule"], us(own)),
            *(*times, Faster(us(best) / us(own)) if best else None),
            *(f"{N / us(own) * 1e6:,.0f}", millijoules(own), millijoules(best) if best else None),
        )


GOAL_COLUMNS = "torchvision's AlexNet on an H200", "wanted, at most", "measured", "", "why"
WAITS = "each stage waits for the one before, for its first loads and for the sums of all warps"
BETWEEN_STREAMS = "launches, and waits between two streams (supposed)"
AS_LONG = (
    "of 16 batches the first copy and the last kernels have nothing beside them; the rest is supposed to be memory"
)


LINEAR_GOAL = 1.18  # over a copy's time: 85 % of its rate
PARTIAL = "the last two layers have too few weights to reach a copy's rate, and each is timed with its graph's start"


def linear_layers(record: Record, rate: float) -> float:
    """Time of one image's linear layers over that in which a copy, of ``rate`` bytes per second, moves as much."""
    names = [stage["stage"] for stage in record["stages"]]
    linear = [place for place, name in enumerate(names) if name.startswith("linear")]
    copied = 1e6 * float(sum(record["stages"][place]["bytes"] for place in linear)) / rate
    if begins := record.get("timeline"):
        return float(begins[linear[-1] + 1] - begins[linear[0]]) / copied
    took = fsum(1e3 * median(record["stages"][place]["samples"]["kernel"]) for place in linear)
    return took / copied


def goal_rows(records: Sequence[Record], rate: float | None) -> Iterator[tuple[Cell, ...]]:
    """A row for each goal of the network: the fastest schedules, and torch's times."""
    times = fastest_schedules(records)
    peers = [record["axes"] | {"us": us(record)} for record in records if is_peer(record)]
    of_torch = {axes["rungs"]: axes["us"] for axes in peers if (axes["network"], axes["precision"], axes["N"]) == FP32}
    goals: list[tuple[str, float, float, str]] = []
    if one := times.get(("fp16", ONE)):
        goals.append(("fp16, one image, µs", 45.0, us(one), f"{WAITS}; linear layers take a copy's time"))
        if begins := one.get("timeline"):
            goals.append(("its convolutions and poolings, µs", 18.0, begins[5] - begins[0], WAITS))
    for (precision, N), record in sorted(times.items()):
        if N == ONE and rate:
            name = f"{precision}, one image, linear layers over a copy's time"
            goals.append((name, LINEAR_GOAL, linear_layers(record, rate), PARTIAL))
    for precision, wanted in (("fp16", 480.0), ("tf32", 600.0)):
        if many := times.get((precision, MANY)):
            goals.append((f"{precision}, 128 images, µs", wanted, us(many), ""))
    if of_torch and (many := times.get(("fp32", MANY))):
        goals.append(("fp32, 128 images, over torch's faster layout", 0.5, us(many) / min(of_torch.values()), ""))
    for (precision, N), record in sorted(times.items()):
        copies, kernels = us(record, "h2d"), us(record)
        longer, cause = max(copies, kernels), BETWEEN_STREAMS if N == ONE else AS_LONG
        name = f"{precision}, N = {N}, host to host over the longer of copies and kernels"
        goals.append((name, 1.05, us(record, "overlapped") / longer, cause))
    for name, wanted, measured, cause in goals:
        met = round(measured, 3) <= wanted
        yield name, f"{wanted:g}", measured, "met" if met else "missed", None if met else cause


def fastest_schedules(records: Sequence[Record]) -> dict[tuple[str, int], Record]:
    """The shortest kernels of the network, by class and N."""
    ours = [record for record in records if record["axes"]["network"] == SHOWN[0] and not is_peer(record)]
    timed = [record for record in ours if "overlapped" in record["samples"]]
    return {
        (record["axes"]["precision"], record["axes"]["N"]): record for record in sorted(timed, key=us, reverse=True)
    }


def millijoules(record: Record) -> float | None:
    """Energy of an image in a sustained run, where it was counted."""
    joules = record.get("sustained", {}).get("joules_per_run")
    return None if joules is None else 1e3 * float(joules) / int(record["axes"]["N"])


def parts(files: Sequence[Path], rate: float | None = None) -> dict[str, str]:
    """The page's tables, from the one file, of one card, or from none.

    ``rate`` is a copy's in bytes per second; without it there are no goals relative to it.
    """
    networks, records = networks_in(*files) if files else ([], Records())
    rows = {
        "whole-schedules": (SCHEDULE_COLUMNS, schedule_rows(networks)),
        **{f"whole-{step}": (step_columns(step), step_rows(networks, step)) for step in STEPS_OF_FLOATS},
        "whole-stages": (STAGE_COLUMNS, stage_rows(networks)),
        "whole-timeline": (TIMELINE_COLUMNS, timeline_rows(networks)),
        "whole-goals": (GOAL_COLUMNS, goal_rows(networks, rate)),
        "whole-peers": (PEER_COLUMNS, peer_rows(networks)),
    }
    tables = {name: (columns, list(cells)) for name, (columns, cells) in rows.items()}
    return {
        name: "\n".join([*markdown_table(columns, table), "", source(records, networks, files)])
        if table
        else NOT_MEASURED
        for name, (columns, table) in tables.items()
    }
