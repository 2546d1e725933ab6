"""How far a card's measured times are from what the model predicts of it and from its own roofline."""

from collections.abc import Sequence
from statistics import fmean, median

from alexconv.messages import plural
from alexconv.predict.accuracy import Pair, by_computation, pairs
from alexconv.predict.gpu import Gpu, names
from alexconv.predict.predictions import TYPE
from alexconv.records.store import Record, Records
from alexconv.reports.elements import Cell, Section, Table
from alexconv.reports.measurements import Measured, Measurements
from alexconv.reports.roofline import copy_rate, description, roof_of, roofs, share_of_roofline
from alexconv.reports.rooflines import roof_text

TITLE = "This card: prediction and roofline"
COLUMNS = (
    *("family", "predicted points", "predicted / measured, median", "lowest", "highest"),
    *("points under a roof", "% of roofline, median", "highest", "reached by"),
)
CAPTION = (
    "Kernel times at each workload's main batch, default constants. Share of the roofline: as in the workloads' "
    "tables, achieved rate over the lower of two roofs, the memory's at minimum traffic and the rung's own unit's."
)


def sections(measurements: Measurements) -> list[Section]:
    """One section for a GPU's times; none for the host executor's."""
    device = measurements.device
    if not measurements.timed or not device.get("name"):
        return []
    known = description(device)
    compared = pairs(Records(points=[point.record for point in measurements.points]), predictions(measurements, known))
    shares = of_roofline(measurements)
    words = [*about_predictions(device, known, compared), about_roofs(measurements, len(shares))]
    rows = [row(name, compared, shares) for name in dict.fromkeys(rung.family for rung in measurements.ladder)]
    rows = [cells for cells in rows if cells[1] or cells[5]]
    tables = [Table("card", TITLE, CAPTION, COLUMNS, rows)] if rows else []
    return [Section("card", TITLE, " ".join(words), list(tables))]


def predictions(measurements: Measurements, known: Gpu | None) -> dict[str, Record]:
    """The predictions of this card among the records, by computation."""
    return by_computation(header for header in measurements.of_type(TYPE) if known and header["gpu"] == known.key)


def about_predictions(device: Record, known: Gpu | None, compared: Sequence[Pair]) -> list[str]:
    """How far the times are from the model's, or why that is not known."""
    if known is None:
        return [f"`alexconv predict` has no description of the {device['name']}, only of {', '.join(names())}."]
    predicted = [pair for pair in compared if pair.predicted is not None]
    if not predicted:
        return ["These records have no predictions of it: the same `alexconv run` with `--resume --predict` adds them."]
    errors = [abs(pair.ratio - 1) for pair in predicted]
    worst = predicted[errors.index(max(errors))]
    untested = "" if known.tested else " The description had not been compared with any measurement."
    return [
        f"{known.name}: predictions of {plural(len(predicted), 'point')} differ from measured times by "
        f"{100 * fmean(errors):.1f} % on the mean and {100 * max(errors):.0f} % at most, {worst.point['rung']} on "
        f"layer {worst.point['layer']} of {worst.point['workload']}, N = {worst.point['N']}.{untested}"
    ]


def about_roofs(measurements: Measurements, points: int) -> str:
    """Where the roofs come from, or how to get them."""
    if points:
        known = roofs(measurements.ceilings, measurements.device, measurements.ladder)
        return roof_text(known, measurements.ceilings_card)
    return "No roofline: `alexconv ceilings` measures this card's rates into a record file; name it here too."


def of_roofline(measurements: Measurements) -> list[tuple[Measured, float]]:
    """The points at each workload's main batch with their shares, of those whose rung has a roof."""
    known = roofs(measurements.ceilings, measurements.device, measurements.ladder)
    rate = copy_rate(measurements.ceilings, measurements.device)
    points = [
        point
        for workload in measurements.workloads
        for point in measurements.of(workload)
        if measurements.main_batch(workload) == point.N and point.series.transfer == measurements.transfer
    ]
    shares = [(point, share_of_roofline(point, roof_of(point.rung, known), rate)) for point in points]
    return [(point, share) for point, share in shares if share is not None]


def row(family: str, compared: Sequence[Pair], shares: Sequence[tuple[Measured, float]]) -> tuple[Cell, ...]:
    """A family's cells, in the order of COLUMNS."""
    ratios = [pair.ratio for pair in compared if pair.family == family and pair.predicted is not None]
    of_family = [(share, point) for point, share in shares if point.rung and point.rung.family == family]
    highest = max(of_family, key=lambda pair: pair[0], default=None)
    return (
        *(family, len(ratios) or None, *((median(ratios), min(ratios), max(ratios)) if ratios else (None,) * 3)),
        *(len(of_family) or None, median(share for share, _ in of_family) if of_family else None),
        *((highest[0], f"{highest[1].label}, {highest[1].workload} {highest[1].layer}") if highest else (None, None)),
    )
