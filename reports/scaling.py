"""Batches and studies over several GPUs: strong and weak scaling, host links, cards, and time of a study."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, prod
from pathlib import Path
from statistics import median

from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.records.store import Record, identity, read
from alexconv.reports.elements import Cell, Section, Table, markdown_table
from alexconv.reports.measurements import Measurements, card_of
from alexconv.shapes import WORKLOADS

SHARDS, CALIBRATION, END, SIMULATED = "shards", "calibration", "end", "simulated-schedule"  # types of headers
FIGURES = ("kernel", "total")
HALF, FULL = 2, 4  # bytes of a value
GIGA = 1e9
NOT_MEASURED = "Not measured yet."


@dataclass(frozen=True)
class Batch:
    """A batch in shards that were all right and timed at the same time."""

    record: Record

    @property
    def point(self) -> Record:
        """The batch's axes."""
        return dict(self.record["point"])

    @property
    def shards(self) -> int:
        """The number of shards."""
        return int(self.record["shards"])

    @property
    def cards(self) -> frozenset[str]:
        """The keys of the shards' devices."""
        return frozenset(str(part.get("device")) for part in self.record["parts"])

    @property
    def per_shard(self) -> int:
        """Images of the largest one."""
        return -(-int(self.point["N"]) // self.shards)

    def ms(self, figure: str) -> float | None:
        """The slowest shard's median."""
        slowest = self.record["slowest_ms"].get(figure)
        return None if slowest is None else float(slowest)

    def rate(self, figure: str) -> float | None:
        """Images per second and shard."""
        ms = self.ms(figure)
        return self.point["N"] / ms * 1e3 / self.shards if ms else None

    def link_rates(self, direction: str) -> list[float]:
        """GB/s of each shard's copies in a direction, ``h2d`` or ``d2h``."""
        conv = WORKLOADS[self.point["workload"]].layer(self.point["layer"])
        values = conv.C * conv.H * conv.W if direction == "h2d" else conv.M * conv.E * conv.F
        rung = RUNGS.get(self.point["rung"])
        size = HALF if rung and rung.dtype == "float16" else FULL
        return [
            (part["images"][1] - part["images"][0]) * values * size / median(part["samples"][direction]) * 1e3 / GIGA
            for part in self.record["parts"]
            if part["samples"].get(direction)
        ]


def batches(headers: Iterable[Record]) -> list[Batch]:
    """The last record of each batch and number of shards on the same cards, in order of the batch."""
    right = [
        Batch(header)
        for header in headers
        if header["type"] == SHARDS and header["status"] == "ok" and header["together"] and header["slowest_ms"]
    ]
    latest = {(identity(batch.point), batch.shards, batch.cards): batch for batch in right}
    places = {name: place for place, name in enumerate(LADDER.named)}

    def where(batch: Batch) -> tuple[int, int, int, int]:
        place = places.get(batch.point["rung"], len(places))
        return batch.point["layer"], batch.point["N"], place, batch.shards

    return sorted(latest.values(), key=where)


def alone(all_of: Sequence[Batch], batch: Batch, N: int) -> Batch | None:
    """A batch's counterpart with N images on one of its GPUs."""
    wanted = {**batch.point, "N": N}
    candidates = (
        other for other in all_of if other.shards == 1 and other.cards <= batch.cards and other.point == wanted
    )
    return next(candidates, None)


def scaling(
    all_of: Sequence[Batch], images: Callable[[Batch], int], speedup: Callable[[Batch], int]
) -> list[tuple[Cell, ...]]:
    """A row for each batch on several GPUs that has a counterpart on one of them, of ``images`` images.

    Efficiency is one GPU's time over that of several, divided by ``speedup``: the ideal one.
    """
    rows: list[tuple[Cell, ...]] = []
    for batch in all_of:
        one = alone(all_of, batch, images(batch)) if batch.shards > 1 else None
        if one is None:
            continue
        cells: list[Cell] = []
        for figure in FIGURES:
            ms, base = batch.ms(figure), one.ms(figure)
            cells += [base, ms, base / (speedup(batch) * ms) if ms and base else None, batch.rate(figure)]
        point = batch.point
        same = batch.record.get("outputs") == one.record.get("outputs") if point["N"] == one.point["N"] else None
        equal = None if same is None else "all" if same else "no"
        row = (point["layer"], point["N"], f"`{point['rung']}`", point["transfer"], batch.shards)
        rows.append((*row, *cells, equal))
    return rows


SCALING_COLUMNS = (
    *("layer", "N", "rung", "transfer", "GPUs"),
    *("kernel on one, ms", "kernel, ms", "efficiency", "images/s per GPU"),
    *("host to host on one, ms", "host to host, ms", "host-to-host efficiency", "host-to-host images/s per GPU"),
    "equal bits",
)


def strong(headers: Sequence[Record]) -> list[tuple[Cell, ...]]:
    """The same batch on one GPU, and on several including it."""
    every = batches(headers)
    return scaling(every, lambda batch: batch.point["N"], lambda batch: batch.shards)


def weak(headers: Sequence[Record]) -> list[tuple[Cell, ...]]:
    """The same number of images per GPU on one, and on several including it."""
    every = batches(headers)
    return scaling(every, lambda batch: batch.per_shard, lambda batch: 1)


def links(headers: Sequence[Record]) -> list[tuple[Cell, ...]]:
    """Rates of copies on one GPU, and on all at once with the same number of images each."""
    rows: list[tuple[Cell, ...]] = []
    every = batches(headers)
    for batch in every:
        one = alone(every, batch, batch.per_shard) if batch.shards > 1 else None
        if one is None:
            continue
        cells: list[Cell] = []
        for direction in ("h2d", "d2h"):
            base, rates = one.link_rates(direction), batch.link_rates(direction)
            cells += [base[0], min(rates), fsum(rates), min(rates) / base[0]] if base and rates else [None] * 4
        point = batch.point
        rows.append((point["layer"], batch.per_shard, f"`{point['rung']}`", point["transfer"], batch.shards, *cells))
    return rows


LINKS_COLUMNS = (
    *("layer", "images per GPU", "rung", "transfer", "GPUs"),
    *("in, one GPU, GB/s", "in, slowest at once", "in, all", "in, share kept"),
    *("out, one GPU, GB/s", "out, slowest at once", "out, all", "out, share kept"),
)


def memory(headers: Sequence[Record]) -> list[tuple[Cell, ...]]:
    """Batches that go through a host in blocks: the bytes of their arrays, and a worker's peak memory."""
    rows: list[tuple[Cell, ...]] = []
    for batch in batches(headers):
        parts, point = batch.record["parts"], batch.point
        if any(part.get("blocks", 1) == 1 or "peak_bytes" not in part for part in parts):
            continue
        conv = WORKLOADS[point["workload"]].layer(point["layer"])
        arrays = point["N"] * (prod(conv.x_shape(1)) + prod(conv.y_shape(1))) * FULL / GIGA
        blocks = max(part["blocks"] for part in parts)
        peak = max(part["peak_bytes"] for part in parts) / GIGA
        of_layer = point["workload"], point["layer"], point["N"]
        row = (*of_layer, f"`{point['rung']}`", point["transfer"], batch.shards)
        block = parts[0]["block_bytes"] / GIGA
        rows.append((*row, arrays, block, blocks, peak, *(batch.ms(figure) for figure in FIGURES), batch.rate("total")))
    return rows


MEMORY_COLUMNS = (
    *("workload", "layer", "N", "rung", "transfer", "GPUs", "input and output, GB", "block limit, GB"),
    *("blocks per GPU", "peak memory, GB", "kernel, ms", "host to host, ms", "host-to-host images/s per GPU"),
)


def cards(headers: Sequence[Record]) -> list[tuple[Cell, ...]]:
    """Each card's calibration, over the fastest of its run."""
    names = {header["key"]: card_of(header) for header in headers if header["type"] == "device"}
    rows: list[tuple[Cell, ...]] = []
    timed = [header for header in headers if header["type"] == CALIBRATION and header.get("samples")]
    fastest: dict[str, float] = {}
    for header in timed:
        ms = median(header["samples"]["kernel"])
        fastest[header["run"]] = min(ms, fastest.get(header["run"], ms))
    for header in timed:
        point = header["point"]
        ms = median(header["samples"]["kernel"])
        subject = f"`{point['rung']}` layer {point['layer']}, N={point['N']}"
        clock = (header.get("health") or [{}])[-1].get("sm_clock_mhz")
        rows.append((names.get(header["device"]), subject, ms, ms / fastest[header["run"]], clock))
    return rows


CARDS_COLUMNS = ("card", "calibration", "kernel, ms", "over the run's fastest", "SM clock after it, MHz")


def studies(headers: Sequence[Record]) -> list[tuple[Cell, ...]]:
    """What a study took on clusters of several sizes: the same points, in the same files."""
    by_key = {header["key"]: header for header in headers}
    timed = [header for header in headers if header["type"] == END and header.get("phases_s", {}).get("measure")]
    of_study: dict[str, list[Record]] = {}
    for header in timed:
        of_study.setdefault(study_of(str(by_key.get(header["run"], {}).get("command", ""))), []).append(header)
    rows: list[tuple[Cell, ...]] = []
    for words, ends in of_study.items():
        smallest = min(ends, key=lambda end: end["workers"])
        for end in sorted(ends, key=lambda end: end["workers"]):
            phases, points = end["phases_s"], sum(end["points"].values())
            share = phases["measure"] / smallest["phases_s"]["measure"]
            row = (f"`{words}`", points, end["workers"], phases["prepare"], phases["measure"], share, end["seconds"])
            rows.append((*row, end["seconds"] / smallest["seconds"]))
    return rows


STUDIES_COLUMNS = (
    *("study", "points", "workers", "preparing, s", "measuring, s", "over the smallest's", "whole process, s"),
    "over the smallest's process",
)


def simulated(headers: Sequence[Record]) -> list[tuple[Cell, ...]]:
    """What schedules on clusters of many sleeping workers took."""
    return [
        (
            header["workers"],
            header["groups"],
            header["points"],
            header["point_s"],
            header["schedule_s"],
            header["ideal_s"],
            header["overhead_ms_a_point"],
            header["overhead_share"],
            header["cpu_ms_a_point"],
            header["cores_busy_before"],
        )
        for header in headers
        if header["type"] == SIMULATED
    ]


SIMULATED_COLUMNS = (
    *("GPUs", "tasks", "points", "per point, s", "schedule, s", "without overhead, s"),
    *("overhead per point, ms", "share of the points' time", "CPU per point, ms", "load of the machine before"),
)


def study_of(command: str) -> str:
    """A command without the options that do not change its points: where it runs and records."""
    words, point_words = command.split(), list[str]()
    for before, word in zip(["", *words], words, strict=False):
        if word not in ("--out", "--cluster", "--resume") and before not in ("--out", "--cluster"):
            point_words.append(word)
    return " ".join(point_words)


TABLES: Mapping[str, tuple[str, str, Callable[[Sequence[Record]], list[tuple[Cell, ...]]], tuple[str, ...]]] = {
    "strong-scaling": (
        "Strong scaling",
        "The same batch on one GPU, and on several including it.",
        strong,
        SCALING_COLUMNS,
    ),
    "weak-scaling": (
        "Weak scaling",
        "The same number of images per GPU on one, and on several including it.",
        weak,
        SCALING_COLUMNS,
    ),
    "host-links": ("Host links", "Copies on one GPU, and on all at once.", links, LINKS_COLUMNS),
    "memory": ("Bounded memory", "Batches in blocks of bounded memory.", memory, MEMORY_COLUMNS),
    "cards": ("Cards", "The calibration point, which every card of a cluster runs first.", cards, CARDS_COLUMNS),
    "simulated": ("Simulated schedules", "Workers sleep as long as the points took.", simulated, SIMULATED_COLUMNS),
    "study-times": ("Studies over workers", "The same points on clusters of several sizes.", studies, STUDIES_COLUMNS),
}


def section(measurements: Measurements) -> Section:
    """What the records say of several GPUs."""
    items = []
    for key, (title, caption, rows_of, columns) in TABLES.items():
        if rows := rows_of(measurements.headers):
            text = f"{caption} Medians; a batch takes as long as its slowest shard."
            items.append(Table(key, title, text, columns, rows))
    return Section("scaling", "Several GPUs", "Batches in shards, and studies over workers of a cluster.", list(items))


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's tables by their keys."""
    headers = list(read(files).headers.values())
    return {
        key: "\n".join(markdown_table(columns, rows)) if (rows := rows_of(headers)) else NOT_MEASURED
        for key, (_, _, rows_of, columns) in TABLES.items()
    }
