"""Tables of docs/cards.md: the GPUs that have a description, and an H100 beside an H200."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median

from alexconv.kernels.ladder import RUNGS
from alexconv.predict import gpu
from alexconv.predict.accuracy import measured_points, median_ms, predictions_in
from alexconv.predict.gpu import Gpu
from alexconv.records.store import Record, Records, read
from alexconv.reports.elements import Cell, markdown_table

GIGA, TERA, MEBI = 1e9, 1e12, 2**20
N, FURTHEST = 128, 15  # images, and rows, of the tables of two GPUs


def parts(results: Path) -> dict[str, str]:
    """The page's tables, by the names of their markers."""
    beside = side_by_side(
        (read([results / "h200-main-job.jsonl"]), read([results / "h100" / "main-job.jsonl"])),
        (read([results / "predicted" / "h200.jsonl"]), read([results / "predicted" / "h100-blind.jsonl"])),
    )
    tables = {"gpus": gpus(), "families": by_family(beside, N), "furthest": furthest(beside, N)}
    return {name: "\n".join(lines) for name, lines in tables.items()}


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
