"""Charts that a reader steps through on the site: data for templates/charts.js.

Tables and figures of the same page hold the same numbers, so Markdown pages and paper do without.
"""

from collections.abc import Iterable, Iterator, Sequence

from alexconv.precisions import PRECISIONS
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import CONTRACTS, MS, TERA, Contract, Frontier, hot, peer_title, quickest
from alexconv.reports.elements import Chart
from alexconv.reports.measurements import Measured, Measurements, kernels_alone
from alexconv.reports.peer_kernels import plan_of
from alexconv.reports.published import Series
from alexconv.reports.roofline import roof_of, roofs
from alexconv.reports.rooflines import measured_bytes
from alexconv.reports.style import look
from alexconv.reports.why import Reasons
from alexconv.reports.winners import beside, source_of

Datum = dict[str, object]
LEAST_POINTS = 4  # that are worth stepping through
DIGITS = ".5g"


def roofline(measurements: Measurements, workload: str, frontier: Frontier | None) -> list[Chart]:
    """The ladder under its roofs, a rung at a time; cuDNN's best of each class where it was compared."""
    N = measurements.main_batch(workload)
    points = [*rung_points(measurements, workload, N)]
    if len(points) < LEAST_POINTS or not measurements.ceilings:
        return []
    source = source_of(frontier, N) if workload == WORKLOAD else None
    layers = sorted({point.layer for point in points})
    pairs = [(contract, beside(source, contract, layer, N)) for contract in CONTRACTS for layer in layers]
    moved, reasons = measured_bytes(measurements), Reasons(measurements)
    rungs = [rung_datum(point, moved.get(point.name), reasons, measurements) for point in points]
    peers = [peer_datum(contract, peer) for contract, peer in pairs if peer and peer.median("kernel")]
    data = {
        "layers": layers,
        "classes": [name for name in PRECISIONS if any(point.precision == name for point in points)],
        "bandwidth": float(measurements.ceilings["copy_bytes_per_s"]) / TERA,
        "roofs": [
            {"name": f"{roof.unit}, {roof.name}", "rate": roof.rate / TERA}
            for roof in roofs(measurements.ceilings, measurements.device, measurements.ladder)
        ],
        "points": rungs + peers,
    }
    caption = (
        "Choose a layer and a class and step through the ladder. Filled dots: DRAM bytes counted by Nsight Compute; "
        "hollow ones: minimum traffic. Squares: cuDNN at minimum traffic."
    )
    return [Chart(f"{workload}-steps", f"{workload}, N={N}: the ladder, step by step", caption, "roofline", data)]


def rung_points(measurements: Measurements, workload: str, N: int) -> Iterator[Measured]:
    """Each rung's timed points with default constants, in ladder order."""
    for rung in measurements.ladder:
        for point in measurements.of(workload):
            usual = point.N == N and point.series == Series(rung.name, measurements.transfer) and not point.changed
            if usual and point.median("kernel"):
                yield point


def rung_datum(point: Measured, moved: float | None, reasons: Reasons, measurements: Measurements) -> Datum:
    """A rung's dot and what its panel says."""
    assert point.rung
    roof = roof_of(point.rung, reasons.roofs)
    return {
        **dot(point, moved),
        "name": point.rung.name,
        "class": point.precision,
        "colour": look(point.rung.name, measurements.ladder).colour,
        "href": f"rung-{point.rung.name}.html",
        "parent": point.rung.parent,
        "text": reasons.sentence(point),
        "roof": f"{roof.unit}, {roof.name}" if roof else None,
    }


def peer_datum(contract: Contract, peer: Measured) -> Datum:
    """The dot of cuDNN's faster layout."""
    plan = plan_of(peer)
    title = peer_title(peer.series.rung)
    return {**dot(peer, None), "name": title, "class": contract.name, "peer": True, "text": plan.brief if plan else ""}


def dot(point: Measured, moved: float | None) -> Datum:
    """A point's place on a roofline, and its time."""
    flops, ms = 2 * point.conv.macs(point.N), point.median("kernel") or 0.0
    return {
        "layer": point.layer,
        "x": float(format(flops / (moved or point.compulsory_bytes), DIGITS)),
        "y": float(format(flops / ms * MS / TERA, DIGITS)),
        "ms": float(format(ms, DIGITS)),
        "counted": moved is not None,
    }


def batches(measurements: Measurements, frontier: Frontier | None, workload: str, layer: int) -> list[Chart]:
    """The fastest rungs of a layer at each batch size."""
    sizes = sorted({point.N for point in measurements.points if (point.workload, point.layer) == (workload, layer)})
    rows = [row for N in sizes for row in batch_rows(measurements, frontier, workload, layer, N)]
    timed = sorted({N for row in rows if isinstance(N := row["N"], int)})
    if len(timed) < 2:
        return []
    classes = [contract.name for contract in CONTRACTS if any(row["class"] == contract.name for row in rows)]
    data = {"sizes": timed, "classes": classes, "rows": rows}
    caption = (
        "Drag to change the batch size. Kernel time of the fastest constants on record; not every rung was timed at "
        "every size. The tables below name the runs."
    )
    key = f"layer-{workload}-{layer}-batches"
    return [Chart(key, f"{workload}, layer {layer}: which kernel is fastest at N", caption, "batches", data)]


def batch_rows(
    measurements: Measurements, frontier: Frontier | None, workload: str, layer: int, N: int
) -> Iterator[Datum]:
    """The rungs of each class at a batch size, the fastest of each, and cuDNN."""
    source = source_of(frontier, N) if workload == WORKLOAD else None
    points = [point for point in measurements.of_points(workload, layer, N) if kernels_alone(point.series.transfer)]
    for contract in CONTRACTS:
        for point in fastest_of_rungs(points, contract):
            assert point.rung
            colour = look(point.rung.name, measurements.ladder).colour
            yield batch_row(point, contract, point.rung.name, colour)
        peer = beside(source, contract, layer, N)
        if peer and hot(peer):
            yield batch_row(peer, contract, peer_title(peer.series.rung), None)


def fastest_of_rungs(points: Sequence[Measured], contract: Contract) -> Iterable[Measured]:
    """The fastest point of each rung that keeps a class."""
    by_rung: dict[str, list[Measured]] = {}
    for point in points:
        if point.rung and contract.kept_by(point.rung) and hot(point):
            by_rung.setdefault(point.rung.name, []).append(point)
    return filter(None, map(quickest, by_rung.values()))


def batch_row(point: Measured, contract: Contract, name: str, colour: str | None) -> Datum:
    """A bar; without a colour it is cuDNN's."""
    ms = float(format(hot(point) or 0.0, DIGITS))
    return {"N": point.N, "class": contract.name, "name": name, "ms": ms, "colour": colour}
