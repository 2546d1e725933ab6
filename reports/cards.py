"""Tables of docs/cards.md: the GPUs that have a description, and an H100 beside an H200."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from alexconv.kernels.ladder import RUNGS
from alexconv.precisions import PEER_CLASSES
from alexconv.predict import gpu
from alexconv.predict.accuracy import measured_points, median_ms, predictions_in
from alexconv.predict.gpu import Gpu
from alexconv.records.store import Record, Records, read
from alexconv.reports.card import sections
from alexconv.reports.comparison import SUSTAINED
from alexconv.reports.elements import Cell, Faster, Table, markdown_table
from alexconv.reports.library import mean, ratio
from alexconv.reports.measurements import Measured, measured, measurements
from alexconv.reports.trust import headline

GIGA, TERA, MEBI = 1e9, 1e12, 2**20
N, FURTHEST, LOADED_LAYER = 128, 15, 2  # images, rows and a layer of the tables of two GPUs
MEGABYTES = " MiB"
H100 = Path("h100")
# What h100.toml's rules said before an H100 was measured, of the parts of microbenchmarks.py on memory.
RULES = {
    ("read", "32"): "1: the multiprocessors' ports limit reads of L2",
    ("read", "512"): "1.43: the data sheets' bandwidths",
    ("store", "store_whole 8 MiB"): "1.12: L2's slices limit sectors (6/5), not lines",
    ("store", "store_shifted 8 MiB"): "1.09: the same",
    ("store", "store_whole 512 MiB"): "1.43: the data sheets' bandwidths",
    ("red", "red_coalesced"): "1.20: L2's slices add",
    ("red", "red_pairs"): "1.20: the same",
}


def parts(results: Path) -> dict[str, str]:
    """The page's tables, by the names of their markers."""
    beside = side_by_side(
        (read([results / "h200-main-job.jsonl"]), read([results / "h100" / "main-job.jsonl"])),
        (read([results / "predicted" / "h200.jsonl"]), read([results / "predicted" / "h100-blind.jsonl"])),
    )
    tables = {
        "gpus": gpus(),
        "families": by_family(beside, N),
        "furthest": furthest(beside, N),
        "memory": memory(results / "microbenchmarks" / "h200.jsonl", results / "h100" / "memory.jsonl"),
        "own": own(results),
        "library": library(results),
        "loaded": loaded(results / "h200-frontier-sustained.jsonl", results / "h100" / "frontier-sustained.jsonl"),
    }
    cudnn = headline([results / "h200-frontier.jsonl"], [results / "h100" / "frontier.jsonl"])
    return {name: "\n".join(lines) for name, lines in tables.items()} | {"cudnn": cudnn}


def described() -> list[Gpu]:
    """The GPUs that have a file, by compute capability and multiprocessors."""
    return sorted(map(gpu.load, gpu.names()), key=lambda card: (card.capability, card.multiprocessors, card.name))


def gpus() -> Iterator[str]:
    """A row for each GPU."""
    columns = ("`--gpu`", "GPU", "capability", "multiprocessors", "GHz", "L2, MiB", "memory, GB", "GB/s", "shared, KiB")
    rows: list[tuple[Cell, ...]] = []
    kinds = dict.fromkeys(kind for card in described() for kind in card.peaks)
    for card in described():
        peaks = tuple(_tera(card.peaks.get(name)) for name in kinds)
        rows.append(
            (
                f"`{card.key}`",
                card.name,
                ".".join(map(str, card.capability)),
                card.multiprocessors,
                f"{card.clock_hz / GIGA:.3g}",
                f"{card['device.l2_bytes'] / MEBI:.3g}",
                f"{card.memory_bytes / GIGA:.0f}",
                f"{card['device.dram_bytes_per_s'] / GIGA:.0f}",
                card.device.shared_per_block // 1024,
                *peaks,
                "yes" if card.tested else "no",
            )
        )
    return iter(markdown_table((*columns, *kinds, "compared"), rows))


def _tera(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / TERA:.3g}"


@dataclass(frozen=True)
class Beside:
    """A point on two GPUs: measured milliseconds of the kernels, and predicted ones where there are any."""

    point: Record
    family: str
    first: float
    second: float
    predicted: tuple[float, float] | None
    limit: str  # the busiest unit of the longest launch on the first, by the model

    @property
    def ratio(self) -> float:
        """The second's time over the first's."""
        return self.second / self.first

    @property
    def predicted_ratio(self) -> float | None:
        """The same of the predicted times."""
        return self.predicted[1] / self.predicted[0] if self.predicted else None


def side_by_side(measured: tuple[Records, Records], predicted: tuple[Records, Records]) -> list[Beside]:
    """The points that both GPUs have, of rungs that the ladder has, in the order of the second's records."""
    (first, second), (ours, theirs) = map(measured_points, measured), map(predictions_in, predicted)
    points = []
    for name, record in second.items():
        if name in first:
            mine, other = ours.get(name, {}).get("ms"), theirs.get(name, {}).get("ms")
            launches = theirs.get(name, {}).get("launches", [])
            points.append(
                Beside(
                    record["point"],
                    RUNGS[record["point"]["rung"]].family,
                    median_ms(first[name]),
                    median_ms(record),
                    (mine, other) if mine and other else None,
                    max(launches, key=lambda launch: launch["ms"])["limit"] if launches else "-",
                )
            )
    return points


def by_family(points: Sequence[Beside], N: int) -> Iterator[str]:
    """How the second GPU's times compare with the first's, a row for each family."""
    rows: list[tuple[Cell, ...]] = []
    for family in dict.fromkeys(point.family for point in points):
        chosen = [point for point in points if point.family == family and point.point["N"] == N]
        ratios = sorted(point.ratio for point in chosen)
        expected = sorted(point.predicted_ratio for point in chosen if point.predicted_ratio)
        middle = f"{median(expected):.2f} (n {len(expected)})" if expected else "-"
        if ratios:
            rows.append((family, len(ratios), f"{median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}", middle))
    columns = ("family", "points", "median", "least to most", "predicted, median")
    return iter(markdown_table(columns, rows))


def furthest(points: Sequence[Beside], N: int) -> Iterator[str]:
    """The points whose times differ most, with the unit that the model takes for the limit."""
    chosen = sorted((point for point in points if point.point["N"] == N), key=lambda point: -abs(log(point.ratio)))
    rows: list[tuple[Cell, ...]] = [
        (
            point.point["rung"],
            point.point["layer"],
            f"{point.first:.3g}",
            f"{point.second:.3g}",
            f"{point.ratio:.2f}",
            f"{point.predicted_ratio:.2f}" if point.predicted_ratio else "-",
            point.limit,
        )
        for point in chosen[:FURTHEST]
    ]
    columns = ("rung", "layer", "H200, ms", "H100, ms", "H100 over H200", "predicted", "limit, by the model")
    return iter(markdown_table(columns, rows))


def memory(first: Path, second: Path) -> Iterator[str]:
    """The times of microbenchmarks on an H100 over an H200's, beside what the rules of the blind predictions said."""
    ours, theirs = (_microbenchmarks(file) for file in (first, second))
    rows: list[tuple[Cell, ...]] = []
    for (kind, kernel), rule in RULES.items():
        times = [_seconds(figures[kind][kernel]) for figures in (ours, theirs)]
        rows.append((f"{kind}, {kernel}{MEGABYTES if kind == 'read' else ''}", f"{times[1] / times[0]:.2f}", rule))
    return iter(markdown_table(("kernel", "H100's time over H200's", "by the rule"), rows))


def _microbenchmarks(file: Path) -> Record:
    return next(header for header in read([file]).headers.values() if header["type"] == "microbenchmarks")


def _seconds(figure: Any) -> float:
    """A kernel's seconds, or those of a byte where its rate is on record."""
    return float(figure["seconds"]) if isinstance(figure, dict) else 1 / float(figure)


def own(results: Path) -> Iterator[str]:
    """What the report's page "This card" says of an H100: how far it is from its own prediction and roofline."""
    files = (H100 / "main-job.jsonl", H100 / "ceilings.jsonl", Path("predicted", "h100.jsonl"))
    (section,) = sections(measurements(read([results / file for file in files])))
    yield section.text
    yield ""
    for item in section.items:
        if isinstance(item, Table):
            yield from markdown_table(item.columns, item.rows)


def library(results: Path) -> Iterator[str]:
    """The library's layers of AlexNet on both: how much faster than cuDNN's faster layout, the geometric mean."""
    rows: list[tuple[Cell, ...]] = []
    for precision in PEER_CLASSES:
        files = results / "library" / f"h200-{precision}.jsonl", results / H100 / f"library-{precision}.jsonl"
        pair = [_library_layers(file) for file in files]
        shared = [key for key in pair[0] if key in pair[1]]
        for batch in sorted({key[1] for key in shared}):
            ratios = [[ratio(layers[key]) for key in shared if key[1] == batch] for layers in pair]
            known = [[value for value in of_card if value is not None] for of_card in ratios]
            rows.append((precision, batch, len(known[0]), *(Faster(1 / mean(of_card)) for of_card in known)))
    columns = ("class", "N", "layers", "H200, over cuDNN", "H100, over cuDNN")
    return iter(markdown_table(columns, rows))


def _library_layers(file: Path) -> dict[tuple[int, int], Record]:
    headers = (header for header in read([file]).headers.values() if header["type"] == "library-layer")
    return {(record["layer"], record["N"]): record for record in headers if record["workload"] == "alexnet"}


def loaded(first: Path, second: Path) -> Iterator[str]:
    """Rested and sustained times of layer 2 on both cards, with the clock under load."""
    rows: list[tuple[Cell, ...]] = []
    ours, theirs = (_of_layer(file, LOADED_LAYER) for file in (first, second))
    for name in (name for name in ours if name in theirs):
        both = []
        for point in (ours[name], theirs[name]):
            rested, sustained = (point.median(figure) for figure in ("kernel", SUSTAINED))
            both += [f"{rested:.3g} / {sustained:.3g}", point.clock and round(point.clock)]
        rows.append((name, *both))
    columns = [f"{card} {what}" for card in ("H200", "H100") for what in ("rested / sustained, ms", "MHz")]
    return iter(markdown_table(("rung or peer", *columns), rows))


def _of_layer(file: Path, layer: int) -> dict[str, Measured]:
    points = (measured(record) for record in read([file]).latest() if record["point"]["layer"] == layer)
    return {point.series.rung: point for point in points if point.samples(SUSTAINED)}
