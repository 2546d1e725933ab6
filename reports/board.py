"""The tables of docs/board.md and docs/peers.md: a public board's benchmarks, large filters, and cuDNN's plans."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from pathlib import Path

from alexconv.kernels.wgmma.ladder_winograd import taps_of, usual_outputs
from alexconv.planning.peers import CONVOLVED
from alexconv.precisions import PRECISIONS
from alexconv.records.labels import device_name
from alexconv.records.statistics import faster, median_of
from alexconv.records.store import Record, Records, read
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import LAYERS, MANY
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source
from alexconv.reports.networks import Beside, microseconds, pairs
from alexconv.reports.peer_kernels import algorithm_of
from alexconv.shapes import FORWARD, WORKLOADS, Conv

BOARD, LARGE = "conv2d-v2", "large-filters"
FFT_TILE = 64  # rows and columns
RANKED = 4  # the benchmark that the board ranks by
MS = 1000  # microseconds
TERA = 1e12
RULE = "board-rule"  # records of scripts/measure/board_rule.py
TORCH, FRONTEND = "torch", "cudnn"  # libraries, with which peers' names begin

# Made before anything was measured, for an H100: ms on the ranked benchmark, by rung.  Strict: three products at the
# 811 TFLOP/s of the 6.28 ms that conv2d took.  Tiles: 2.26 times fewer products at the same rate, and 0.2 for
# transforms.
PREDICTED: Mapping[str, float] = {"wgmma-split": 6.3, "wgmma-winograd": 3.0}


def times_rows(beside: Sequence[Beside]) -> Iterator[tuple[Cell, ...]]:
    """Each benchmark and class beside cuDNN's fastest."""
    for pair in beside:
        if pair.workload != BOARD:
            continue
        ours, peer = (microseconds(record) / MS for record in (pair.ours, pair.peer))
        prepared = ours + (median_of(pair.ours, "prepare") or 0.0)
        rate = 2 * pair.conv.macs(pair.N) / (microseconds(pair.ours) * 1e-6) / TERA
        predicted = PREDICTED.get(pair.ours["point"]["rung"]) if pair.layer == RANKED else None
        yield (
            *(pair.layer, pair.N, f"{pair.conv.R} x {pair.conv.S}", pair.precision),
            *(f"`{pair.ours['point']['rung']}`", predicted, ours, prepared, rate, error_of(pair.ours)),
            *(f"`{pair.peer['point']['rung']}`", peer, error_of(pair.peer), Faster(peer / ours)),
        )


TIMES = (
    *("benchmark", "N", "filter", "class", "rung", "predicted, ms", "ms", "with filters prepared, ms"),
    *("TFLOP/s of the definition's", "largest error over norms", "fastest cuDNN", "its ms", "its error", "ours"),
)


def error_of(record: Record) -> float:
    """The largest error over the norms of patch and filter."""
    return float(record["error"]["scaled"])


def rule_rows(outcomes: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """Who is within the board's rule; of a contender that ran twice, the last outcome."""
    last = {(outcome["layer"], outcome["contender"]): outcome for outcome in outcomes}
    for outcome in last.values():
        times = outcome.get("ms")
        beyond = int(outcome["beyond"])
        yield (
            *(outcome["layer"], outcome["contender"], "no" if beyond else "yes", f"{beyond:,}"),
            *(
                100.0 * beyond / outcome["outputs"],
                outcome["apart"],
                outcome["error"],
                outcome["rms_error"],
                min(times) if times else None,
            ),
        )


RULES = (
    *("benchmark", "contender", "passes", "outputs beyond", "of all, %", "largest distance to the reference"),
    *("largest error against float64", "root mean square of it", "fastest of ten calls, ms"),
)


def large_rows(beside: Sequence[Beside]) -> Iterator[tuple[Cell, ...]]:
    """Each filter size and class beside cuDNN's fastest."""
    for pair in beside:
        if pair.workload != LARGE:
            continue
        ours, peer = (microseconds(record) / MS for record in (pair.ours, pair.peer))
        rung = f"`{pair.ours['point']['rung']}`"
        algorithm = algorithm_of(pair.peer.get("peer", {}).get("kernels", []))
        yield f"{pair.conv.R} x {pair.conv.S}", pair.N, pair.precision, rung, ours, peer, algorithm, Faster(peer / ours)


LARGES = ("filter", "N", "class", "rung", "ms", "fastest cuDNN, ms", "its algorithm", "ours")


def counts(conv: Conv) -> tuple[float, float, float, float]:
    """Real products per output and channel: the definition's, by rows of tiles, by tiles of both axes, by FFT.

    FFT: overlapping tiles of FFT_TILE squared, complex products of half a spectrum at three real products each.  None
    counts transforms, which cost little where channels and filters are many.
    """
    size = usual_outputs(conv)
    taps = taps_of(conv, size)
    along = ceil(conv.S / taps) * (size + taps - 1) / size
    spectrum = 3 * FFT_TILE * (FFT_TILE // 2 + 1) / ((FFT_TILE - conv.R + 1) * (FFT_TILE - conv.S + 1))
    return conv.R * conv.S, conv.R * along, along * along, spectrum


def counts_rows() -> Iterator[tuple[Cell, ...]]:
    """The products of each technique by filter size."""
    for conv in (*WORKLOADS[LARGE].layers, WORKLOADS[BOARD].layer(RANKED)):
        definition, *fewer = counts(conv)
        cells = (cell for count in fewer for cell in (count, f"{definition / count:.1f}x"))
        yield f"{conv.R} x {conv.S}", int(definition), *cells


COUNTS = (
    *("filter", "definition", "Winograd along rows", "fewer", "along rows and columns", "fewer"),
    *(f"FFT of {FFT_TILE} x {FFT_TILE} tiles", "fewer"),
)


@dataclass
class Peers:
    """What computed a layer with N images on one card: our fastest rung of each class, and peers by name."""

    device: str
    workload: str
    layer: int
    N: int
    direction: str
    ours: dict[str, Record]
    peers: dict[str, Record]


def by_layer(records: Records) -> list[Peers]:
    """The correct, timed records of each card; of a peer's the last."""
    points: dict[tuple[str, str, int, int, str], Peers] = {}
    for record in records.points:
        point = record["point"]
        if record["status"] != "ok" or not median_of(record, "kernel"):
            continue
        where = record["device"], point["workload"], point["layer"], point["N"], point.get("direction", FORWARD)
        beside = points.setdefault(where, Peers(*where, {}, {}))
        if record.get("peer"):
            beside.peers[point["rung"]] = record
        else:
            fastest = beside.ours.setdefault(point["precision"], record)
            if microseconds(record) < microseconds(fastest):
                beside.ours[point["precision"]] = record
    return list(points.values())


def ours_and_faster(beside: Peers, precision: str, peer_ms: float) -> tuple[Cell, ...]:
    """Our fastest rung of a class, its ms, and how much faster it is than a peer's."""
    if not (record := beside.ours.get(precision)):
        return None, None, None
    ms = microseconds(record) / MS
    return f"`{record['point']['rung']}`", ms, Faster(peer_ms / ms)


def searched_ms(beside: Peers, precision: str) -> float | None:
    """The fastest of cuDNN in a class, in any layout, as torch picks it or as the search finds it."""
    names = [name for name, record in beside.peers.items() if record["point"]["precision"] == precision]
    if not any(name.startswith(FRONTEND) for name in names):
        return None
    libraries = TORCH, FRONTEND
    return min(microseconds(beside.peers[name]) / MS for name in names if name.partition("-")[0] in libraries)


def against_search(files: Sequence[Path]) -> str:
    """AlexNet's five layers, N=128, beside the fastest plans that searches found, by class; empty without them."""
    records = read(files)
    of_card: dict[str, dict[int, Peers]] = {}
    for beside in by_layer(records):
        if (beside.workload, beside.N, beside.direction) == (WORKLOAD, MANY, FORWARD):
            of_card.setdefault(beside.device, {})[beside.layer] = beside
    texts: dict[str, str] = {}
    cards: dict[str, None] = {}
    for device, layers in of_card.items():
        name = device_name(records.headers[device])
        for precision in CONVOLVED:
            pairs_of_ms = {
                layer: (microseconds(layers[layer].ours[precision]) / MS, ms)
                for layer in LAYERS
                if layer in layers
                and precision in layers[layer].ours
                and (ms := searched_ms(layers[layer], precision)) is not None
            }
            if len(pairs_of_ms) == len(LAYERS):
                ours, theirs = (fsum(side) for side in zip(*pairs_of_ms.values(), strict=True))
                slower = [f"layer {layer} {faster(b / a)}" for layer, (a, b) in pairs_of_ms.items() if a > b]
                but = f" ({', '.join(slower)})" if slower else ""
                texts[precision] = f"{precision} {faster(theirs / ours)}{but}"
                cards[name] = None
    return f"{', '.join(texts.values())}, each on one {' or one '.join(cards)}" if texts else ""


def plan_rows(records: Records) -> Iterator[tuple[Cell, ...]]:
    """What torch picks, the best plan that heuristics propose, and the best of all engines and knobs, beside ours."""
    for beside in by_layer(records):
        for name, best in beside.peers.items():
            library, _, kind = name.partition("-")
            if library != FRONTEND or len(best["peer"]["plans"]) != 1:
                continue
            (plan,) = best["peer"]["plans"]
            if "proposed_ms" not in plan:
                continue  # of before engines and knobs were searched
            picked = beside.peers.get(f"{TORCH}-{kind}")
            torch, ms = microseconds(picked) / MS if picked else None, microseconds(best) / MS
            knobs = ", ".join(f"{name}={value}" for name, value in plan["knobs"].items()) or "defaults"
            yield (
                *(beside.workload, beside.layer, beside.N, beside.direction, kind, torch, ms),
                Faster(torch / ms) if torch else None,
                *ours_and_faster(beside, best["point"]["precision"], min(ms, torch or ms)),
                *(f"`{plan['engine'].partition('_')[0]}`", knobs, plan["tried"], plan["refused"], plan.get("wrong")),
                "all" if plan["search_ended"] else "time up",
            )


PLANS = (
    *("workload", "layer", "N", "direction", "cuDNN", "torch picks, ms", "best of all, ms", "best than torch's"),
    *("our rung", "ours, ms", "ours than the faster", "engine", "knobs", "plans tried", "refused", "wrong", "search"),
)


def other_rows(records: Records) -> Iterator[tuple[Cell, ...]]:
    """Peers that do without cuDNN, beside ours."""
    for beside in by_layer(records):
        for name, record in beside.peers.items():
            if name.partition("-")[0] in (TORCH, FRONTEND):
                continue
            ms = microseconds(record) / MS
            tile = record["peer"].get("tiles", [{}])[0]
            shown = ", ".join(f"{name} {value}" for name, value in tile.items() if name != "tried") or None
            ours = ours_and_faster(beside, record["point"]["precision"], ms)
            yield beside.workload, beside.layer, beside.N, f"`{name}`", ms, *ours, shown


OTHERS = ("workload", "layer", "N", "peer", "ms", "our rung", "ours, ms", "ours than it", "its tile")


def table(columns: Sequence[str], rows: Iterator[tuple[Cell, ...]], origin: str) -> str:
    """A table with its origin, or that nothing was measured."""
    every = list(rows)
    return "\n".join([*markdown_table(columns, every), "", origin]) if every else NOT_MEASURED


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The parts of docs/board.md."""
    records = read(files)
    outcomes = [header for header in records.headers.values() if header["type"] == RULE]
    beside = pairs(records, lambda name: PRECISIONS[name].peer)
    origin = source(records, [*records.points, *outcomes], files)
    return {
        "board-times": table(TIMES, times_rows(beside), origin),
        "board-rule": table(RULES, rule_rows(outcomes), origin),
        "board-counts": "\n".join(markdown_table(COUNTS, list(counts_rows()))),
        "board-large": table(LARGES, large_rows(beside), origin),
    }


def peers_parts(files: Sequence[Path]) -> dict[str, str]:
    """The parts of docs/peers.md."""
    records = read(files)
    origin = source(records, records.points, files)
    return {
        "peers-plans": table(PLANS, plan_rows(records), origin),
        "peers-others": table(OTHERS, other_rows(records), origin),
    }
