"""The tables of docs/whole-networks.md, from the records of ``alexconv run --network``."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from alexconv.records.statistics import faster, median_of
from alexconv.records.store import Record, read
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source

TYPE = "network"  # of the records
SHOWN = "alexnet-torchvision", "fp16"  # the network and class whose schedules and stages have tables
ONE, MANY = 1, 128  # images
USUAL = "dependent"  # the default of ``--schedule``
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


def networks_in(files: Sequence[Path]) -> tuple[list[Record], Any]:
    """The last record of each point that was timed, of schedules that there are today, and all records."""
    records = read(files)
    last: dict[tuple[object, ...], Record] = {}
    for header in records.headers.values():
        timed = header["type"] == TYPE and header["status"] == "ok" and median_of(header, "kernel") is not None
        if timed and header["axes"]["schedule"] in PREDICTED:
            last[tuple(header["axes"].values())] = header
    return list(last.values()), records


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
    """Latencies of a schedule in microseconds."""

    predicted: float
    latency: float


def schedules_of(records: Sequence[Record], N: int) -> dict[str, Timed]:
    """The schedules that were timed for N images, by name."""
    return {
        record["axes"]["schedule"]: Timed(PREDICTED[record["axes"]["schedule"]][1], us(record, "latency"))
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


PEER_COLUMNS = (
    "network",
    "class",
    "N",
    "schedule",
    "rungs",
    "µs",
    "torch NCHW",
    "NHWC",
    "compiled",
    "cuDNN fused NCHW",
    "NHWC",
    "than the fastest peer",
    "images/s",
    "mJ per image",
    "of the fastest peer",
)


PEER_NAMES = "torch-nchw", "torch-nhwc", "torch-compile", "cudnn-nchw", "cudnn-nhwc"


def peer_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each network, class and N: the fastest schedule and the peers, kernels alone."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        axes = record["axes"]
        groups.setdefault((axes["network"], axes["precision"], axes["N"]), []).append(record)
    for place, group in groups.items():
        own = min((record for record in group if not is_peer(record)), key=us, default=None)
        if own is None:
            continue
        peers = {record["axes"]["rungs"]: record for record in group if is_peer(record)}
        shown = [peers.get(name) for name in PEER_NAMES]
        best = min(peers.values(), key=us) if all(shown[:2]) else None  # the faster layout counts
        rate = f"{place[2] / us(own) * 1e6:,.0f}"
        times = [us(record) if record else None for record in shown]
        ratio = faster(us(best) / us(own)) if best else None
        yield (
            *place,
            *(own["axes"][axis] for axis in ("schedule", "rungs")),
            us(own),
            *times,
            *(ratio, rate, millijoules(own), millijoules(best) if best else None),
        )


def millijoules(record: Record) -> float | None:
    """Energy of an image in a sustained run, where it was counted."""
    joules = record.get("sustained", {}).get("joules_per_run")
    return None if joules is None else 1e3 * float(joules) / int(record["axes"]["N"])


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's tables, one for each file: what is compared was measured on one card."""
    blocks: dict[str, list[str]] = {"whole-schedules": [], "whole-stages": [], "whole-timeline": [], "whole-peers": []}
    for file in files:
        networks, records = networks_in([file])
        tables = (
            (SCHEDULE_COLUMNS, schedule_rows),
            (STAGE_COLUMNS, stage_rows),
            (TIMELINE_COLUMNS, timeline_rows),
            (PEER_COLUMNS, peer_rows),
        )
        for (columns, rows_of), block in zip(tables, blocks.values(), strict=True):
            if rows := list(rows_of(networks)):
                block += ["\n".join([*markdown_table(columns, rows), "", source(records, networks, [file])])]
    return {name: "\n\n".join(block) or NOT_MEASURED for name, block in blocks.items()}
