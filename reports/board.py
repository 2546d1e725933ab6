"""The tables of docs/board.md: a public board's benchmarks, and large filters."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path

from alexconv.kernels.wgmma.ladder_winograd import taps_of, usual_outputs
from alexconv.precisions import PRECISIONS
from alexconv.records.labels import device_name
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, read
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source
from alexconv.reports.networks import Beside, microseconds, pairs
from alexconv.reports.peer_kernels import algorithm_of
from alexconv.shapes import WORKLOADS, Conv

BOARD, LARGE = "conv2d-v2", "large-filters"
FFT_TILE = 64  # rows and columns
RANKED = 4  # the benchmark that the board ranks by
MS = 1000  # microseconds
TERA = 1e12
RULE = "board-rule"  # records of scripts/measure/board_rule.py
TORCH, FRONTEND = "torch", "cudnn"  # libraries, with which peers' names begin

# Made before anything was measured, for this card: ms on the ranked benchmark, by rung.  Strict: three products at the
# 811 TFLOP/s of the 6.28 ms that conv2d took.  Tiles: 2.26 times fewer products at the same rate, and 0.2 for
# transforms.
PREDICTED_CARD = "H100"
PREDICTED: Mapping[str, float] = {"wgmma-split": 6.3, "wgmma-winograd": 3.0}


def times_rows(beside: Sequence[Beside], names: Mapping[str, str]) -> Iterator[tuple[Cell, ...]]:
    """Each benchmark and class beside cuDNN's fastest on the same card; ``names``: of cards, by key."""
    for pair in beside:
        if pair.workload != BOARD:
            continue
        ours, peer = (microseconds(record) / MS for record in (pair.ours, pair.peer))
        prepared = ours + (median_of(pair.ours, "prepare") or 0.0)
        rate = 2 * pair.conv.macs(pair.N) / (microseconds(pair.ours) * 1e-6) / TERA
        card = names[pair.ours["device"]]
        foretold = pair.layer == RANKED and PREDICTED_CARD in card
        predicted = PREDICTED.get(pair.ours["point"]["rung"]) if foretold else None
        yield (
            *(pair.layer, card, pair.N, f"{pair.conv.R} x {pair.conv.S}", pair.precision),
            *(f"`{pair.ours['point']['rung']}`", predicted, ours, prepared, rate, error_of(pair.ours)),
            *(f"`{pair.peer['point']['rung']}`", peer, error_of(pair.peer), Faster(peer / ours)),
        )


TIMES = (
    *("benchmark", "GPU", "N", "filter", "class", "rung", "predicted, ms", "ms", "with filters prepared, ms"),
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


def table(columns: Sequence[str], rows: Iterator[tuple[Cell, ...]], origin: str) -> str:
    """A table with its origin, or that nothing was measured."""
    every = list(rows)
    return "\n".join([*markdown_table(columns, every), "", origin]) if every else NOT_MEASURED


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The parts of docs/board.md."""
    records = read(files)
    outcomes = [header for header in records.headers.values() if header["type"] == RULE]
    beside = pairs(records, lambda name: PRECISIONS[name].peer)
    names = {key: device_name(header) for key, header in records.headers.items() if header["type"] == "device"}

    def origin(workload: str) -> str:
        return source(records, [point for point in records.points if point["point"]["workload"] == workload], files)

    return {
        "board-times": table(TIMES, times_rows(beside, names), origin(BOARD)),
        "board-rule": table(RULES, rule_rows(outcomes), source(records, outcomes, files)),
        "board-counts": "\n".join(markdown_table(COUNTS, list(counts_rows()))),
        "board-large": table(LARGES, large_rows(beside), origin(LARGE)),
    }
