"""What the fp16 product loses on each layer, by a timeline's kernels and clocks: a table of docs/frontier.md."""

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

from alexconv.kernels.wgmma.blocked import as_it_lies, runs
from alexconv.records.store import Record, read
from alexconv.reports.elements import Cell, markdown_table
from alexconv.reports.library import source
from alexconv.shapes import WORKLOADS, Conv

WORKLOAD, RUNG, PRODUCT = "alexnet", "wgmma-half", "multiply"
WGMMA_K = 16  # taps of one wgmma
MULTIPLY_ADDS = 2048  # per cycle of a multiprocessor's tensor cores, fp16
FULL_CLOCK = 1.98e9
THOUSAND = 1e3

COLUMNS = (
    *("layer", "tile", "tiles of a block", "last wave idle, %", "kernel, µs", "clock, GHz", "below 1.98 GHz, %"),
    *("thousand cycles", "wgmmas alone", "lost", "tensor pipe busy, % of active cycles", "L2, %"),
)


def rows(timelines: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each layer's last timeline, in order of layers."""
    of_layer = {
        record["point"]["layer"]: record
        for record in timelines
        if (record["point"]["workload"], record["point"]["rung"]) == (WORKLOAD, RUNG)
    }
    for layer, record in sorted(of_layer.items()):
        conv, point = WORKLOADS[WORKLOAD].layer(layer), record["point"]
        constants = point["constants"]
        pixels, filters, blocks = (constants[name] for name in ("TILE_PIXELS", "TILE_FILTERS", "GRID_BLOCKS"))
        tiles = ceil(point["N"] * conv.E * conv.F / pixels) * ceil(conv.M / filters)
        waves = ceil(tiles / blocks)
        kernel = next(kernel for kernel in record["kernels"] if kernel["entry"] == PRODUCT)
        metrics = kernel["metrics"]
        clock = metrics["clock_hz"]
        cycles, alone = kernel["us"] * clock / 1e6, waves * cycles_of_tile(conv, pixels, filters)
        yield (
            *(layer, f"{pixels} x {filters}", waves, 100 * (1 - tiles / (waves * blocks))),
            *(kernel["us"], clock / 1e9, 100 * (1 - clock / FULL_CLOCK)),
            *(cycles / THOUSAND, alone / THOUSAND, (cycles - alone) / THOUSAND),
            *(metrics["tensor_pipe"], metrics["l2_throughput"]),
        )


def cycles_of_tile(conv: Conv, pixels: int, filters: int) -> float:
    """The cycles of a tile's wgmmas alone; the last of each run of taps may be partial."""
    count, taps = runs(conv, as_it_lies)
    return count * ceil(taps / WGMMA_K) * WGMMA_K * pixels * filters / MULTIPLY_ADDS


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The part of docs/frontier.md."""
    records = read(files)
    timelines = [header for header in records.headers.values() if header["type"] == "timeline"]
    table = markdown_table(COLUMNS, list(rows(timelines)))
    return {"fp16-losses": "\n".join([*table, "", source(records, timelines, files)])}
