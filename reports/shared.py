"""The table of results/shared/README.md: record files that others measured and sent."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.kernels.ladder import LADDER
from alexconv.records.labels import SHARED
from alexconv.records.store import Records, read_file
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import MANY
from alexconv.reports.elements import Cell, markdown_table
from alexconv.reports.measurements import SHORT, Measured, layer_numbers, measurements, sum_or_none

COLUMNS = (
    *("file", "card", "driver, CUDA", "alexconv", "measured", "points"),
    *("direct", "best fp32", "best of all"),
)
CAPTION = (
    "Points by status, as the senders' runs recorded them: outputs were checked against the float64 reference there, "
    f"and nothing was measured again here. Times: kernels of AlexNet's five layers, N = {MANY}, in ms: the first rung, "
    "the fastest fp32 rung of each layer, the fastest of any class."
)


def parts(files: Sequence[Path]) -> dict[str, str]:
    """A row for each file; raises UsageError for one that ``alexconv run --share`` has not written."""
    rows = [row(path) for path in files]
    table = [CAPTION, "", *markdown_table(COLUMNS, rows)] if rows else ["No file has been sent yet."]
    return {"files": "\n".join(table)}


def row(path: Path) -> tuple[Cell, ...]:
    """A file's card, software, day, counts and times."""
    records = read_file(path)
    devices = [header for header in records.headers.values() if header["type"] == "device"]
    if not devices or not all(device.get(SHARED) for device in devices):
        raise UsageError(f"{path} is not a file of alexconv run --share (docs/send-your-card.md)")
    device, run = devices[-1], next(header for header in records.headers.values() if header["type"] == "run")
    software = ", ".join(str(device[name]) for name in ("driver", "toolkit") if device.get(name)) or None
    commit = f"{run.get('alexconv', '?')} {str(run.get('commit', ''))[:SHORT]}{', changed' if run.get('dirty') else ''}"
    days = sorted(str(record["time"])[: len("2026-01-31")] for record in records.points if record.get("time"))
    counts = ", ".join(f"{count} {status}" for status, count in Counter(statuses(records)).most_common())
    card = str(device.get("name") or device.get("cpu"))
    return f"`{path.name}`", card, software, commit, days[-1] if days else None, counts, *times(records)


def statuses(records: Records) -> list[str]:
    """The points' statuses."""
    return [str(record["status"]) for record in records.points]


def times(records: Records) -> list[float | None]:
    """The five layers by the first rung, by each layer's fastest of fp32, and by its fastest of all."""
    of_main_job = [point for point in measurements(records).of(WORKLOAD) if point.N == MANY and point.rung]
    chosen = (
        [point for point in of_main_job if point.series.rung == LADDER[0].name],
        [point for point in of_main_job if point.precision == "fp32"],
        of_main_job,
    )
    return [sum_or_none([fastest(points, layer) for layer in layer_numbers(WORKLOAD)]) for points in chosen]


def fastest(points: Sequence[Measured], layer: int) -> float | None:
    """The least kernel time on a layer."""
    return min((ms for point in points if point.layer == layer and (ms := point.median("kernel"))), default=None)
