"""What the fp16 product loses on each layer, by a timeline's kernels and clocks: a table of docs/frontier.md."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from pathlib import Path

import numpy as np

from alexconv.kernels.wgmma.blocked import as_it_lies, runs
from alexconv.records.compressed import plain
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, read
from alexconv.reports.comparison import MANY
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.library import source
from alexconv.shapes import WORKLOADS, Conv

WORKLOAD, RUNG, PRODUCT = "alexnet", "wgmma-half", "multiply"
WGMMA_K = 16  # taps of one wgmma
MULTIPLY_ADDS = 2048  # per cycle of a multiprocessor's tensor cores, fp16
FULL_CLOCK = 1.98e9
THOUSAND = 1e3

COLUMNS = (
    *("layer", "tile", "kernel, µs", "clock, GHz", "wgmmas alone, µs", "last wave, µs", "epilogues, µs"),
    *("first stages and end, µs", "launch, µs", "of all, by the clock below 1.98 GHz, µs"),
    *("tensor pipe busy, % of active cycles", "L2, %"),
)


@dataclass(frozen=True)
class Product:
    """The product's kernel in a timeline: its tiles and its counters."""

    record: Record

    @property
    def conv(self) -> Conv:
        """The layer."""
        return WORKLOADS[WORKLOAD].layer(self.record["point"]["layer"])

    @property
    def tile(self) -> tuple[int, int]:
        """Pixels and filters of a tile."""
        constants = self.record["point"]["constants"]
        return constants["TILE_PIXELS"], constants["TILE_FILTERS"]

    @property
    def tiles_of_block(self) -> float:
        """On average."""
        (pixels, filters), point = self.tile, self.record["point"]
        tiles = ceil(point["N"] * self.conv.E * self.conv.F / pixels) * ceil(self.conv.M / filters)
        return float(tiles / point["constants"]["GRID_BLOCKS"])

    @property
    def cycles(self) -> float:
        """Of the wgmmas alone of one tile."""
        return cycles_of_tile(self.conv, *self.tile)

    @property
    def kernel(self) -> Record:
        """Its time and counters."""
        return next(kernel for kernel in self.record["kernels"] if kernel["entry"] == PRODUCT)

    @property
    def idle(self) -> float:
        """Active cycles of a multiprocessor, on average, besides those of its wgmmas."""
        return float(self.kernel["metrics"]["sm_active_cycles"]) - self.tiles_of_block * self.cycles


def cycles_besides(products: Sequence[Product]) -> tuple[float, Mapping[tuple[int, int], float]]:
    """Cycles besides the wgmmas: of a block's first stages and end, and of the epilogue of each kind of tile.

    The least squares of the idle cycles of all layers.
    """
    tiles = list(dict.fromkeys(product.tile for product in products))
    factors = [[1.0, *(product.tiles_of_block * (product.tile == tile) for tile in tiles)] for product in products]
    once, *of_tile = np.linalg.lstsq(np.array(factors), np.array([product.idle for product in products]))[0]
    return float(once), {tile: float(cycles) for tile, cycles in zip(tiles, of_tile, strict=True)}


def rows(timelines: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each layer's last timeline, in order of layers."""
    of_layer = {
        record["point"]["layer"]: Product(record)
        for record in timelines
        if (record["point"]["workload"], record["point"]["rung"]) == (WORKLOAD, RUNG)
    }
    once, of_tile = cycles_besides(list(of_layer.values()))
    for layer, product in sorted(of_layer.items()):
        metrics, us = product.kernel["metrics"], product.kernel["us"]
        per_us, tiles, epilogue = metrics["clock_hz"] / 1e6, product.tiles_of_block, of_tile[product.tile]
        parts = [
            tiles * product.cycles / per_us,
            (ceil(tiles) - tiles) * (product.cycles + epilogue) / per_us,
            tiles * epilogue / per_us,
            once / per_us,
        ]
        yield (
            *(layer, " x ".join(map(str, product.tile)), us, per_us / 1e3, *parts, us - fsum(parts)),
            *(us * (1 - metrics["clock_hz"] / FULL_CLOCK), metrics["tensor_pipe"], metrics["l2_throughput"]),
        )


def cycles_of_tile(conv: Conv, pixels: int, filters: int) -> float:
    """The cycles of a tile's wgmmas alone; the last of each run of taps may be partial."""
    count, taps = runs(conv, as_it_lies)
    return count * ceil(taps / WGMMA_K) * WGMMA_K * pixels * filters / MULTIPLY_ADDS


TRIAL = "wgmma-half-overlapped"  # which is no longer in the ladder
VERSIONS = {"overlapped-1": "a store for each row", "overlapped-2": "a store for 16 rows of 64 filters"}
PREDICTED = {2: 0.157, 3: 0.056, 4: 0.079, 5: 0.059}  # ms, N=128, before the first version ran


def trial_rows(files: Sequence[Path]) -> Iterator[tuple[Cell, ...]]:
    """The versions of an overlapped epilogue beside their parent, layer by layer."""
    for file in files:
        version = VERSIONS[plain(file).stem]
        times: dict[tuple[int, int], dict[str, float]] = {}
        for record in read([file]).points:
            point = record["point"]
            if not record["changed"] and point["rung"] in (RUNG, TRIAL) and (ms := median_of(record, "kernel")):
                times.setdefault((point["layer"], point["N"]), {})[point["rung"]] = ms
        for (layer, N), ms_of in times.items():
            predicted = PREDICTED.get(layer) if N == MANY else None
            yield version, layer, N, predicted, ms_of[RUNG], ms_of[TRIAL], Faster(ms_of[RUNG] / ms_of[TRIAL])


TRIALS = ("version", "layer", "N", "predicted, ms", f"`{RUNG}`, ms", "overlapped, ms", "than its parent")

ZEROS, RANDOM = "zeros", "uniform"


def data_rows(file: Path) -> Iterator[tuple[Cell, ...]]:
    """The product on random numbers and on zeros, which toggle no wires."""
    times: dict[int, dict[str, float]] = {}
    for record in read([file]).points:
        point = record["point"]
        if point["rung"] == RUNG and (ms := median_of(record, "kernel")):
            times.setdefault(point["layer"], {})[point["data"]] = ms
    for layer, ms_of in sorted(times.items()):
        random, zeros = ms_of[RANDOM], ms_of[ZEROS]
        flops = 2 * WORKLOADS[WORKLOAD].layer(layer).macs(MANY)
        yield layer, random, zeros, Faster(random / zeros), flops / zeros / 1e9


DATA = ("layer", "random, ms", "zeros, ms", "zeros than random", "zeros, TFLOP/s")


SCHEDULED = "-stream-k"  # ends the names of trials of rungs, which are no longer in the ladder
# Ms, N=128, before the trial ran: the last wave's idle time, less another epilogue, and half of that for the clock.
PREDICTED_SCHEDULED: Mapping[tuple[str, int], float] = {
    **{("wgmma-split", layer): ms for layer, ms in {2: 0.519, 3: 0.194, 4: 0.280, 5: 0.197}.items()},
    **{("wgmma-scaled", layer): ms for layer, ms in {2: 0.238, 3: 0.094, 4: 0.126, 5: 0.095}.items()},
}

REMOVED = {TRIAL, *(f"{parent}{SCHEDULED}" for parent, _ in PREDICTED_SCHEDULED)}  # rungs that only records have


def scheduled_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """Rungs with a stream-K schedule beside their parents, layer by layer."""
    times = {(record["point"]["rung"], record["point"]["layer"]): median_of(record, "kernel") for record in records}
    for (parent, layer), predicted in PREDICTED_SCHEDULED.items():
        ours, trial = times.get((parent, layer)), times.get((f"{parent}{SCHEDULED}", layer))
        if ours and trial:
            yield f"`{parent}`", layer, predicted, ours, trial, Faster(ours / trial)


SCHEDULES = ("parent", "layer", "predicted, ms", "parent, ms", "stream-K, ms", "than its parent")


def scheduled_parts(file: Path) -> dict[str, str]:
    """The part of docs/frontier.md about a schedule without a last wave."""
    records = read([file])
    table = markdown_table(SCHEDULES, list(scheduled_rows(records.points)))
    return {"stream-k-trial": "\n".join([*table, "", source(records, records.points, [file])])}


def parts(timeline: Path, trials: Sequence[Path], data: Path) -> dict[str, str]:
    """The parts of docs/frontier.md: a file of timelines, the trials' files, and one of other data."""

    def of(columns: Sequence[str], table: list[tuple[Cell, ...]], used: Sequence[Path], kind: str = "") -> str:
        records = read(used)
        points = [header for header in records.headers.values() if header["type"] == kind] if kind else records.points
        return "\n".join([*markdown_table(columns, table), "", source(records, points, used)])

    timelines = [header for header in read([timeline]).headers.values() if header["type"] == "timeline"]
    return {
        "fp16-losses": of(COLUMNS, list(rows(timelines)), [timeline], "timeline"),
        "fp16-data": of(DATA, list(data_rows(data)), [data]),
        "fp16-trial": of(TRIALS, list(trial_rows(trials)), trials),
    }


PREDICTED_LAUNCHES = {"fp16": 26.5, "tf32": 38.5, "fp32": 60.5}  # microseconds, before the trial ran
LAUNCHES = ("class", "predicted, µs", "before, µs", "trial, µs", "than before")


def launch_rows(before: Path, trial: Path) -> Iterator[tuple[Cell, ...]]:
    """Five layers of one image in one graph, before and with launches on all multiprocessors."""
    times = [
        {record["point"]["precision"]: median_of(record, "kernel") for record in read([file]).points}
        for file in (before, trial)
    ]
    for name, predicted in PREDICTED_LAUNCHES.items():
        ours, tried = (of_file.get(name) for of_file in times)
        if ours and tried:
            yield name, predicted, ours * THOUSAND, tried * THOUSAND, Faster(ours / tried)


def launch_parts(files: Sequence[Path]) -> dict[str, str]:
    """The part of docs/frontier-small-batch.md."""
    records = read(files)
    table = markdown_table(LAUNCHES, list(launch_rows(*files)))
    return {"launch-trial": "\n".join([*table, "", source(records, records.points, files)])}
