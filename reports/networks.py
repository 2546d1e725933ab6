"""The networks page's generated parts: rungs beside cuDNN on the layers of networks, what is slower, and why."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path

from alexconv.kernels.ladder import RUNGS
from alexconv.precisions import PRECISIONS
from alexconv.records.statistics import faster, median_of
from alexconv.records.store import Record, Records, read
from alexconv.reports.elements import Cell, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source
from alexconv.shapes import WORKLOADS, Conv

LIMITS = (1.0, 1.05, 1.10)
SLOWER = 1.05  # the table of slower layers has those above this ratio
AT_MOST = tuple(f"at most {faster(1 / limit)}" for limit in LIMITS[1:])
SUMMARY = ("network", "N", "class", "layers", "geometric mean", "not slower", *AT_MOST, "worst")
LAYERS = ("network", "layer", "N", "class", "shape", "ours, µs", "cuDNN, µs", "than cuDNN", "rung")
MISSES = (*LAYERS, "where its time goes")
MOST_IMAGES = 128  # the batch whose layers the table of grouped layers has
PREPARES = ("prepare_input", "pad_input")


Place = tuple[str, int, int, str]  # workload, layer, N, key of the device


@dataclass(frozen=True)
class Beside:
    """A layer's fastest rung of a class, and the fastest of cuDNN and cuBLAS, in one run."""

    workload: str
    layer: int
    N: int
    precision: str
    ours: Record
    peer: Record

    @property
    def conv(self) -> Conv:
        """The layer's shape."""
        return WORKLOADS[self.workload].layer(self.layer)

    @property
    def ratio(self) -> float:
        """Time over time: below 1 ours is faster."""
        return microseconds(self.ours) / microseconds(self.peer)


def microseconds(record: Record) -> float:
    """The median time of a point's kernels."""
    return 1e3 * (median_of(record, "kernel") or 0.0)


def pairs(records: Records, peer_of: Callable[[str], str] = str) -> list[Beside]:
    """Each layer, N and class that has both on one card; a stricter class's rungs serve too.

    ``peer_of``: the class of a class's peers.
    """
    by_layer: dict[Place, list[Record]] = {}
    for record in records.points:
        point = record["point"]
        if record["status"] == "ok" and "layer" in point and median_of(record, "kernel") is not None:
            by_layer.setdefault((point["workload"], point["layer"], point["N"], record["device"]), []).append(record)
    beside = []
    for (workload, layer, N, _), of_layer in sorted(by_layer.items(), key=in_order):
        for precision in PRECISIONS:
            served, peer = {precision, *PRECISIONS[precision].stricter}, peer_of(precision)
            ours = [record for record in of_layer if class_of(record) in served]
            peers = [record for record in of_layer if class_of(record) is None and record["point"]["precision"] == peer]
            if ours and peers:
                fastest = (min(side, key=microseconds) for side in (ours, peers))
                beside.append(Beside(workload, layer, N, precision, *fastest))
    return beside


def in_order(group: tuple[Place, list[Record]]) -> tuple[int, int, int]:
    """Sorting key: networks in the order of WORKLOADS, then N, then layers."""
    workload, layer, N, _ = group[0]
    return list(WORKLOADS).index(workload), N, layer


def class_of(record: Record) -> str | None:
    """The class of a rung's record; None for a peer's."""
    rung = RUNGS.get(record["point"]["rung"])
    return rung.precision if rung else None


def summary_part(beside: Sequence[Beside]) -> str:
    """Ratios of each network, N and class."""
    groups: dict[tuple[str, int, str], list[float]] = {}
    for pair in beside:
        groups.setdefault((pair.workload, pair.N, pair.precision), []).append(pair.ratio)
    rows: list[tuple[Cell, ...]] = []
    for (workload, N, precision), ratios in groups.items():
        shares = (f"{sum(ratio <= limit for ratio in ratios) / len(ratios):.0%}" for limit in LIMITS)
        mean = exp(fsum(map(log, ratios)) / len(ratios))
        layers = f"{len(ratios)} of {len(WORKLOADS[workload].layers)}"
        rows.append((workload, N, precision, layers, faster(1 / mean), *shares, faster(1 / max(ratios))))
    return "\n".join(markdown_table(SUMMARY, rows)) if rows else NOT_MEASURED


def slower_part(beside: Sequence[Beside]) -> str:
    """The layers on which cuDNN is faster, the worst first."""
    slower = sorted((pair for pair in beside if pair.ratio > SLOWER), key=lambda pair: -pair.ratio)
    if not slower:
        return f"None more than {faster(1 / SLOWER)}." if beside else NOT_MEASURED
    return "\n".join(markdown_table(MISSES, [(*row(pair), reason(pair)) for pair in slower]))


def layers_part(beside: Sequence[Beside]) -> str:
    """The layers with groups, of the largest batch."""
    rows = [row(pair) for pair in beside if pair.N == MOST_IMAGES and pair.conv.groups > 1]
    return "\n".join(markdown_table(LAYERS, rows)) if rows else NOT_MEASURED


def row(pair: Beside) -> tuple[Cell, ...]:
    """A layer's row, by the names in ``LAYERS``."""
    ours, peer = microseconds(pair.ours), microseconds(pair.peer)
    times = f"{ours:.1f}", f"{peer:.1f}", faster(1 / pair.ratio)
    rung = f"`{pair.ours['point']['rung']}`"
    return pair.workload, pair.layer, pair.N, pair.precision, shape(pair.conv), *times, rung


def shape(conv: Conv) -> str:
    """Channels and plane, filters."""
    stride = f", stride {conv.U}" if conv.U > 1 else ""
    groups = f", {conv.groups} groups" if conv.groups > 1 else ""
    return f"{conv.C} x {conv.H} x {conv.W}, {conv.M} of {conv.R} x {conv.S}{stride}{groups}"


def reason(pair: Beside) -> str:
    """Where the time goes by the record's launches: their number, passes over the input, blocks and full tiles."""
    prepared = {launch.entry for launch in RUNGS[pair.ours["point"]["rung"]].prepare}
    launches = [launch for launch in pair.ours["launches"] if launch["entry"] not in prepared]
    counted = f"{len(launches)} launches" if len(launches) > 1 else "1 launch"
    passes = Counter(launch["entry"] in PREPARES for launch in launches)[True]
    remarks = [counted + (", a pass over the input" if passes else "")]
    conv, constants = pair.conv, pair.ours["point"]["constants"]
    if {"TILE_PIXELS", "TILE_FILTERS"} <= set(constants) and conv.groups == 1:
        pixels = pair.N * conv.E * conv.F
        tiles = -(-pixels // constants["TILE_PIXELS"]) * -(-conv.M // constants["TILE_FILTERS"])
        filled = pixels * conv.M / (tiles * constants["TILE_PIXELS"] * constants["TILE_FILTERS"])
        remarks.append(f"{tiles * constants.get('SPLITS', 1)} blocks' work, tiles {filled:.0%} full")
    return "; ".join(remarks)


PARTS: dict[str, Callable[[Sequence[Beside]], str]] = {
    "networks-summary": summary_part,
    "networks-slower": slower_part,
}


GROUPED: dict[str, Callable[[Sequence[Beside]], str]] = {
    "groups-summary": summary_part,
    "groups-layers": layers_part,
}


def parts(files: Iterable[Path]) -> dict[str, str]:
    """The page's parts by their keys: each pair measured on one card, the last that has it."""
    records = read(paths := list(files))
    beside = last_of_each(pairs(records))
    where = f"\n\n{source(records, [pair.ours for pair in beside], paths)}" if beside else ""
    return {key: part(beside) + where for key, part in PARTS.items()}


def grouped(files: Iterable[Path]) -> dict[str, str]:
    """The page's parts on networks with groups: each pair from one file, measured on one card, the last that has it."""
    beside = last_of_each(pair for file in files for pair in with_usual_peer(read([file])))
    return {key: part(beside) for key, part in GROUPED.items()}


def last_of_each(beside: Iterable[Beside]) -> list[Beside]:
    """The last pair of each layer, N and class."""
    last = {
        (list(WORKLOADS).index(pair.workload), pair.N, pair.layer, list(PRECISIONS).index(pair.precision)): pair
        for pair in beside
    }
    return [last[place] for place in sorted(last)]


def with_usual_peer(records: Records) -> list[Beside]:
    """The pairs of a file, which may be cut short, with cuDNN's usually faster layout, NHWC, among the peers."""
    have = {
        (point["workload"], point["layer"], point["N"], point["precision"])
        for point in (record["point"] for record in records.points if record["status"] == "ok")
        if point["rung"].startswith("torch-nhwc")
    }
    return [pair for pair in pairs(records) if (pair.workload, pair.layer, pair.N, pair.precision) in have]
