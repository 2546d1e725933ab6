"""Achieved arithmetic under the roofs of the GPU's units, as figures and a table."""

from collections import defaultdict
from collections.abc import Iterable
from math import fsum

from alexconv.records.store import identity
from alexconv.reports.comparison import MS
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import (
    KERNELS,
    Measured,
    Measurements,
    footnote,
)
from alexconv.reports.roofline import MEASURED, Roof, copy_rate, intensity_drawing, roof_of, roofs, share_of_roofline

COLUMNS = (
    *("layer", "rung", "kernel (ms)", "TFLOP/s", "minimum MB", "FLOP/byte"),
    *("measured MB", "FLOP/byte, measured", "roof", "% of roofline"),
)


def section(measurements: Measurements, workload: str) -> Section:
    """Rooflines of a workload."""
    return Section(
        "roofline",
        "Roofline",
        "Achieved arithmetic against arithmetic intensity, each rung under the roof of the unit that multiplies "
        "for it. A multiply-add counts as two operations.",
        rooflines(measurements, workload),
    )


def rooflines(measurements: Measurements, workload: str) -> list[Table | Plot]:
    """With compulsory bytes, and with measured ones where there are profiles; the figures as a table."""
    N = measurements.main_batch(workload)
    points = [
        point for point in measurements.of(workload) if point.N == N and point.series.transfer == measurements.transfer
    ]
    points = [point for point in points if point.median("kernel")]
    if not points:
        return []
    least = [float(point.compulsory_bytes) for point in points]
    measured = measured_bytes(measurements)
    ceilings = measurements.ceilings
    known = roofs(ceilings, measurements.device, measurements.ladder)
    rate = copy_rate(ceilings, measurements.device)
    note, runs = roof_text(known, measurements.ceilings_card), footnote(points, of=KERNELS)
    items: list[Table | Plot] = []
    if any(point.rung for point in points):  # peers have no roof
        caption = (
            f"Bytes: input, filters and output once, so rungs of one layer and precision line up vertically. {note}"
        )
        draw = intensity_drawing(measurements, points, least, known)
        title = f"{workload}: roofline at minimum traffic, N={N}"
        items.append(Plot(f"{workload}-roofline", title, f"{caption} {runs}", draw))
    profiled = [point for point in points if point.name in measured and point.rung]
    if profiled:
        title = f"{workload}: roofline with measured DRAM bytes, N={N}"
        draw = intensity_drawing(measurements, profiled, [measured[point.name] for point in profiled], known)
        caption = f"Bytes: DRAM traffic that Nsight Compute counted. {note} {runs}"
        items.append(Plot(f"{workload}-roofline-dram", title, caption, draw))
    rows = [roofline_row(point, measured.get(point.name), roof_of(point.rung, known), rate) for point in points]
    caption = (
        "Share of the roofline: achieved rate over the lower of two roofs, the memory's at minimum traffic "
        f"and the rung's own unit's. {note} None for Winograd and peers: "
        f"their algorithms (of cuDNN: on the layers' pages) compute other products than are counted here. {runs}"
    )
    return [
        *items,
        Table(f"{workload}-roofline-table", f"{workload}: arithmetic and bytes, N={N}", caption, COLUMNS, rows),
    ]


def roof_text(known: Iterable[Roof], card: str | None) -> str:
    """The roofs and their sources in words; ``card``: on which they were measured."""
    names: dict[str, list[str]] = {}
    for roof in known:
        source = f"{roof.source} on {card}" if roof.source == MEASURED and card else roof.source
        names.setdefault(source, []).append(f"{roof.unit} {roof.name}")
    sources = [f"{source}: {', '.join(units)}" for source, units in names.items()]
    return f"Roofs, {'; '.join(sources)}." if sources else "No ceilings were measured for this GPU."


def roofline_row(point: Measured, dram: float | None, roof: Roof | None, bytes_per_s: float | None) -> tuple[Cell, ...]:
    """Figures of one point."""
    flops, ms, least = 2 * point.conv.macs(point.N), point.median("kernel") or 0.0, float(point.compulsory_bytes)
    rate = flops / ms * MS
    return (
        point.layer,
        point.label,
        ms,
        rate / 1e12,
        least / 1e6,
        flops / least,
        dram / 1e6 if dram else None,
        flops / dram if dram else None,
        f"{roof.unit}, {roof.name}" if roof else None,
        share_of_roofline(point, roof, bytes_per_s),
    )


def measured_bytes(measurements: Measurements) -> dict[str, float]:
    """DRAM bytes of all profiled kernels of a point for its whole batch, by the point's name.

    Of a point that runs in pieces one piece was profiled: the others move as much per image.
    """
    by_point: dict[str, float] = defaultdict(float)
    for profile in measurements.of_type("profile"):
        point, moved = profile["point"], dram_bytes(profile["metrics"])
        if moved:
            by_point[identity(point)] += moved * point["N"] / profile.get("images", point["N"])
    return by_point


def dram_bytes(metrics: dict[str, float]) -> float | None:
    """Read and written DRAM bytes among a kernel's metrics, under Nsight Compute's names or plain ones."""
    parts = [
        value for name, value in metrics.items() if name.startswith("dram") and "bytes" in name and "per_s" not in name
    ]
    total = metrics.get("dram_bytes", metrics.get("dram__bytes.sum"))
    return total if total is not None else fsum(parts) or None
