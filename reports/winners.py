"""The fastest rung of each layer, class and batch, beside cuDNN, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import (
    CONTRACTS,
    FP32,
    MANY,
    ONE,
    Contract,
    Frontier,
    Source,
    hot,
    peer_title,
    quickest,
    speed,
    speed_interval,
    times_over,
)
from alexconv.reports.elements import Cell, Table
from alexconv.reports.measurements import Measured, Measurements, kernels_alone
from alexconv.reports.peer_kernels import plan_of
from alexconv.reports.why import Reasons

INDEX_COLUMNS = (
    *("layer", "class", "fastest rung", "ms", "than cuDNN", "why", "% of roofline", "cuDNN, ms", "cuDNN's algorithm"),
)
COLUMNS = ("class", "N", "fastest rung", "ms", "cuDNN, ms", "than cuDNN", "95 %", "why")
MINOR = ("95 %", "samples")  # of columns


@dataclass(frozen=True)
class Winner:
    """The fastest point of a class, and cuDNN's in its faster layout, of the same file."""

    contract: Contract
    point: Measured
    peer: Measured | None


def winners(
    measurements: Measurements, frontier: Frontier | None, workload: str, layers: Sequence[int], N: int
) -> Iterator[Winner]:
    """Of each layer and class; a class without a rung that is faster than the fp32 class's is left out."""
    source = source_of(frontier, N) if workload == WORKLOAD else None
    for layer in layers:
        strict: Measured | None = None
        for contract in CONTRACTS:
            point = best_of(measurements, source, contract, workload, layer, N)
            if contract is FP32:
                strict = point
            if point and (contract is FP32 or strict is None or point.name != strict.name):
                yield Winner(contract, point, beside(source, contract, layer, N))


def beside(source: Source | None, contract: Contract, layer: int, N: int) -> Measured | None:
    """cuDNN's point in its faster layout."""
    return source.faster(contract, layer, N) if source else None


def source_of(frontier: Frontier | None, N: int) -> Source | None:
    """The file that compares ours with cuDNN at a batch size."""
    return {MANY: frontier.many, ONE: frontier.one, frontier.largest: frontier.scaling}.get(N) if frontier else None


def best_of(
    measurements: Measurements, source: Source | None, contract: Contract, workload: str, layer: int, N: int
) -> Measured | None:
    """The fastest point of a class: of the file with cuDNN's times, or else of all."""
    if source:
        return source.best(contract, layer, N)
    points = (point for point in measurements.of_points(workload, layer, N) if kernels_alone(point.series.transfer))
    return quickest(point for point in points if point.rung and contract.kept_by(point.rung) and hot(point))


def batches_of(measurements: Measurements, frontier: Frontier | None, workload: str) -> list[int]:
    """The batch sizes worth a row: those that cuDNN was timed at, or else the usual one."""
    sizes = (MANY, ONE, frontier.largest) if frontier and workload == WORKLOAD else ()
    compared = [N for N in sizes if N and source_of(frontier, N)]
    return compared or [measurements.main_batch(workload)]


def table(measurements: Measurements, frontier: Frontier | None, workload: str, layer: int) -> Table:
    """The winners of a layer, at each batch size that was compared."""
    reasons = Reasons(measurements)
    every = [
        winner
        for N in batches_of(measurements, frontier, workload)
        for winner in winners(measurements, frontier, workload, [layer], N)
    ]
    files = dict.fromkeys(point_file(frontier, winner) for winner in every)
    peers = dict.fromkeys(peer_title(winner.peer.series.rung) for winner in every if winner.peer)
    counted = {measurements.cards.get(profile.get("device", "")) for profile in reasons.profiles}
    timed = {measurements.cards.get(winner.point.record["device"]) for winner in every}
    elsewhere = "on other cards, too" if counted & timed else "on another card"
    where = "on the same card" if counted == timed and len(timed) == 1 else elsewhere
    theirs = f" Compared with {', '.join(peers)} in the same run." if peers else ""
    caption = (
        f"Medians of kernel time in ms per batch.{theirs} Why: what the rung does; utilisation of its "
        f"longest kernel (its parent's in brackets), counted by Nsight Compute {where}; its share of the roofline."
        f" Runs: {', '.join(files)}."
    )
    rows = [row(winner, reasons) for winner in every]
    samples = [winner.point.samples("kernel") for winner in every]
    chosen = {"N": str(every[0].point.N)} if every else {}
    key, filters = f"layer-{workload}-{layer}-best", COLUMNS[:2]
    title = "The fastest rung of each class"
    return Table(
        key, title, caption, COLUMNS, rows, samples=samples, filters=filters, chosen=chosen, stacked=True, minor=MINOR
    )


def brief_table(measurements: Measurements, frontier: Frontier | None, workload: str, layers: Sequence[int]) -> Table:
    """The winners at the usual batch, with each reason in a few words, and what cuDNN does instead."""
    reasons = Reasons(measurements)
    N = batches_of(measurements, frontier, workload)[0]
    every = [*winners(measurements, frontier, workload, layers, N)]
    rows: list[tuple[Cell, ...]] = []
    for winner in every:
        point, peer = winner.point, winner.peer
        plan = plan_of(peer)
        share, idea = reasons.share_of_roof(point), reasons.idea(point) or None
        place = f"{workload} layer {point.layer}", winner.contract.name, point.label
        ours = hot(point), speed(hot(point), hot(peer)), idea, share and round(share)
        rows.append((*place, *ours, hot(peer), plan.brief if plan else None))
    files = dict.fromkeys(point_file(frontier, winner) for winner in every)
    caption = (
        f"N={N}, medians of kernel time. cuDNN: its faster layout, same run; its algorithm by its kernels' names. "
        f"Counters, intervals and other batches: the layers' pages. Runs: {', '.join(files)}."
    )
    title = f"{workload}: the fastest rung of each layer and class, N={N}"
    return Table("best", title, caption, INDEX_COLUMNS, rows, filters=("layer", "class"), stacked=True)


def point_file(frontier: Frontier | None, winner: Winner) -> str:
    """The record file of a winner, or its run."""
    source = source_of(frontier, winner.point.N)
    return source.file if source and winner.peer else winner.point.run.text


def row(winner: Winner, reasons: Reasons) -> tuple[Cell, ...]:
    """The cells, in the order of COLUMNS."""
    point, peer = winner.point, winner.peer
    ratio = times_over([point], [peer]) if peer else None
    times = hot(point), hot(peer), speed(hot(point), hot(peer)), speed_interval(ratio)
    return (
        winner.contract.name,
        point.N,
        point.label,
        *times,
        reasons.sentence(point),
    )
