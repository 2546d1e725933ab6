"""The results of a run on one screen: a row per rung, a column per layer, fitted to the terminal's width.

Cells are median kernel times, or the status of the check without times.  Columns that do not fit are dropped in the
order of ``Column.dropped``; a table whose layers do not fit is split.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, fsum, log10
from textwrap import wrap

from rich.console import Console
from rich.table import Column as TableColumn
from rich.table import Table
from rich.text import Text

from alexconv.cli.recorded_times import recorded_times
from alexconv.kernels.ladder import ALL_DIRECTIONS, Ladder
from alexconv.planning.peers import GEMM
from alexconv.planning.points import layer_range
from alexconv.precisions import PRECISIONS
from alexconv.records.labels import changed_in, label_with, particulars
from alexconv.records.statistics import faster, median_of, summed
from alexconv.records.store import Record

WIDEST = 120  # columns, however wide the terminal is
LEAST_LABEL = 16  # columns for labels; with fewer left, the layers are split into two tables
MOST_EXPLAINED = 4  # rungs skipped on all layers, with a row and reasons; more get one line
PEERS = "peers"
MARK = "*"
INDENT = " "
NONE = "-"
SHORT = {"compile-error": "compile", "launch-error": "launch", "out-of-memory": "memory"}  # statuses as cells show them
STYLES = {"ok": "", "skipped": "dim"}  # by status; any other is a failure
FAILED = "bold red"


@dataclass(frozen=True)
class Line:
    """A rung, or a peer, under one transfer: its records by layer."""

    label: str
    family: str
    precision: str
    records: Mapping[int, Record]

    def kernel(self, layer: int) -> float | None:
        """Median kernel time of a layer in ms; None without one."""
        return median_of(self.records[layer], "kernel") if layer in self.records else None

    def total(self, layers: Sequence[int]) -> float | None:
        """Total time, host arrays to host arrays, summed over the layers; None if one lacks it."""
        times = [median_of(self.records[layer], "total") if layer in self.records else None for layer in layers]
        return summed(times)

    def speedup(self, layers: Sequence[int]) -> float | None:
        """Serial CPU time over the total, both summed over the layers."""
        serial = summed([self.records.get(layer, {}).get("cpu", {}).get("serial_ms") for layer in layers])
        total = self.total(layers)
        return serial / total if serial and total else None


@dataclass(frozen=True)
class Column:
    """A column after the layers: heading and a cell per line; the one with the least ``dropped`` is dropped first."""

    heading: str
    cells: Sequence[str]
    dropped: int | None = None  # None: stays

    @property
    def width(self) -> int:
        """Characters of its widest cell."""
        return max(len(self.heading), *map(len, self.cells))


def milliseconds(value: float | None) -> str:
    """A time in ms with three or four significant digits; a dash for none."""
    if value is None:
        return NONE
    if value >= 1000 or value <= 0:
        return f"{value:.0f}"
    leading = floor(log10(value))
    return f"{value:.{3 - leading if leading >= 0 else 2 - leading}f}"


def lines_of(records: Iterable[Record], ladder: Ladder) -> list[Line]:
    """The records of one workload and batch size as lines, in the order of the ladder, peers last.

    The layers of a rung share a line, unless a layer has several records with different constants.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["point"]["rung"], record["point"]["transfer"]), []).append(record)
    several = len({transfer for _, transfer in groups}) > 1

    def line(rung: str, transfer: str, label: str, layer_records: Iterable[Record]) -> Line:
        by_layer = {record["point"]["layer"]: record for record in layer_records}
        precision = next(iter(by_layer.values()))["point"]["precision"]
        family = family_of(rung, ladder)
        return Line(f"{label} {transfer}" if several and family != PEERS else label, family, precision, by_layer)

    lines: list[Line] = []
    for (rung, transfer), rung_records in groups.items():
        layers = [record["point"]["layer"] for record in rung_records]
        by_label: dict[str, list[Record]] = {}
        for record in rung_records:
            by_label.setdefault(label_with(rung, changed_in(record)), []).append(record)
        if len(by_label) > 1 and len(set(layers)) == len(layers):
            by_label = {f"{rung} [by layer]": rung_records}
        lines += [line(rung, transfer, label, line_records) for label, line_records in by_label.items()]
    places = {name: place for place, name in enumerate(ladder.named)}
    return sorted(lines, key=lambda row: places.get(rung_of(row), len(places)))


def family_of(name: str, ladder: Ladder) -> str:
    """The family of a rung, or PEERS."""
    rung = ladder.named.get(name)
    return rung.family if rung else PEERS


def rung_of(line: Line) -> str:
    """The rung, or peer, of a line."""
    return str(next(iter(line.records.values()))["point"]["rung"])


def fastest(lines: Iterable[Line], layers: Iterable[int]) -> dict[tuple[int, str], float]:
    """The shortest kernel time of each layer and precision."""
    best: dict[tuple[int, str], float] = {}
    lines = list(lines)
    for layer in layers:
        for line in lines:
            if (ms := line.kernel(layer)) is not None:
                best[layer, line.precision] = min(ms, best.get((layer, line.precision), ms))
    return best


def least_time(best: Mapping[tuple[int, str], float], layer: int, precision: str) -> float | None:
    """The shortest time of a layer in a class, by its rungs or those of a stricter one."""
    classes = (precision, *PRECISIONS[precision].stricter)
    return min((best[layer, name] for name in classes if (layer, name) in best), default=None)


def share(times: Mapping[int, float | None], precision: str, peers: Mapping[tuple[int, str], float]) -> str:
    """The times by layer against the best peer's, over the layers that have both."""
    base = PRECISIONS[precision].peer
    pairs = [(peers[layer, base], ms) for layer, ms in times.items() if ms is not None and (layer, base) in peers]
    return faster(fsum(peer for peer, _ in pairs) / fsum(ms for _, ms in pairs)) if pairs else NONE


def show(console: Console, records: Sequence[Record], ladder: Ladder = ALL_DIRECTIONS) -> None:
    """Prints a table for each workload, batch size, data set and direction, a legend, and each reason for no time."""
    width = min(console.width, WIDEST)
    idle = idle_rungs(records)
    records = [record for record in records if record["point"]["rung"] not in idle]
    groups: dict[tuple[str, int, str], list[Record]] = {}
    for record in records:
        point = record["point"]
        groups.setdefault((point["workload"], point["N"], particulars(point)), []).append(record)
    for group in groups.values():
        for line in matrix(group, lines_of(group, ladder), width):
            console.print(line, soft_wrap=True)
    explained = legend(records, ladder) if timed(records) else recorded_legend(records)
    summary = [f"skipped on all layers (--dry-run says why): {', '.join(idle)}"] if idle else []
    for text in [*([explained] if explained else []), *summary, *reasons(records)]:
        for part in wrap(text, width, subsequent_indent=2 * INDENT, break_long_words=False, break_on_hyphens=False):
            console.print(part, soft_wrap=True)


def idle_rungs(records: Sequence[Record]) -> list[str]:
    """The rungs of which every point was skipped, if they are many and others ran."""
    ran = {record["point"]["rung"] for record in records if record["status"] != "skipped"}
    idle = [rung for rung in dict.fromkeys(record["point"]["rung"] for record in records) if rung not in ran]
    return idle if ran and len(idle) > MOST_EXPLAINED else []


def timed(records: Iterable[Record]) -> bool:
    """Whether any record has times."""
    return any(record.get("samples") for record in records)


def matrix(records: Sequence[Record], lines: list[Line], width: int) -> Iterator[Text]:
    """The table of one group, line by line, no wider than ``width`` if possible."""
    point = records[0]["point"]
    layers = sorted({layer for line in lines for layer in line.records})
    transfers = list(dict.fromkeys(record["point"]["transfer"] for record in records))
    place = f"{point['workload']}, N={point['N']}{particulars(point)}"
    title = ", ".join([place, *(transfers if len(transfers) == 1 else [])])
    if timed(records):
        yield from time_table(f"{title}: kernel ms", lines, layers, width)
    else:
        ran = any(record["status"] != "skipped" for record in records)
        yield from check_table(f"{title}: {'outputs checked' if ran else 'skipped'}", lines, layers, width)


def time_table(title: str, lines: list[Line], layers: list[int], width: int) -> Iterator[Text]:
    """Kernel times per layer and in total.

    The fastest rung of each class and layer is marked.  Below are the sums of each class, to which rungs of stricter
    ones belong too.
    """
    ours = [line for line in lines if line.family != PEERS]
    best = fastest(ours, layers)
    peers = fastest((line for line in lines if line.family == PEERS and rung_of(line) != GEMM), layers)
    precisions = [name for name in PRECISIONS if any(precision == name for _, precision in best)]
    summaries = {name: {layer: least_time(best, layer, name) for layer in layers} for name in precisions}

    def cell(line: Line, layer: int) -> Text:
        ms = line.kernel(layer)
        if ms is None:
            return status_cell(line.records.get(layer))
        marked = line.family != PEERS and ms == best[layer, line.precision]
        return Text(milliseconds(ms) + MARK, "bold green") if marked else Text(milliseconds(ms) + " ")

    def every(line: Line) -> dict[int, float | None]:
        return {layer: line.kernel(layer) for layer in layers}

    labels = [*((line.family, line.label) for line in lines), *(("fastest, by layer", name) for name in precisions)]
    cells = [[cell(line, layer) for layer in layers] for line in lines]
    cells += [[Text(milliseconds(ms) + " ") for ms in times.values()] for times in summaries.values()]
    blank = [""] * len(precisions)
    speedups = [line.speedup(layers) for line in lines]
    columns = []
    if len(layers) > 1:
        sums = [milliseconds(summed(list(every(line).values()))) for line in lines]
        columns.append(
            Column("sum", [*sums, *(milliseconds(summed(list(times.values()))) for times in summaries.values())])
        )
    columns.append(Column("total", [*(milliseconds(line.total(layers)) for line in lines), *blank], 1))
    columns.append(Column("than CPU", [*(faster(value) if value else NONE for value in speedups), *blank], 2))
    if peers:
        shares = [share(every(line), line.precision, peers) for line in lines]
        columns.append(Column("than peer", [*shares, *(share(summaries[name], name, peers) for name in precisions)], 3))
    columns.append(Column("class", [*(line.precision for line in lines), *blank], 0))
    yield from table(title, labels, layers, cells, columns, width)


def check_table(title: str, lines: list[Line], layers: list[int], width: int) -> Iterator[Text]:
    """Whether each layer's outputs are right, the error that is nearest to its tolerance, and the time on record."""
    worst = [worst_error(line.records.values()) for line in lines]
    columns = [
        Column("max error", [f"{pair[0]:.1e}" if pair else NONE for pair in worst]),
        Column("tolerance", [f"{pair[1]:.1e}" if pair else NONE for pair in worst], 1),
        Column(recorded_heading(), [milliseconds(recorded_times().sum_of(line.records.values())) for line in lines], 2),
        Column("class", [line.precision for line in lines], 0),
    ]
    cells = [[status_cell(line.records.get(layer)) for layer in layers] for line in lines]
    yield from table(title, [(line.family, line.label) for line in lines], layers, cells, columns, width)


def worst_error(records: Iterable[Record]) -> tuple[float, float] | None:
    """The largest error over norms for its tolerance, and that; None if no record was checked."""
    errors = [error for record in records if (error := record.get("error"))]
    pairs = [(float(error["scaled"]), float(error["tolerance"])) for error in errors]
    return max(pairs, key=lambda pair: (not pair[0] <= pair[1], pair[0] / pair[1]), default=None)


def status_cell(record: Record | None) -> Text:
    """The status of a point that has no time to show."""
    if record is None:
        return Text(NONE)
    status = str(record["status"])
    return Text(SHORT.get(status, status), STYLES.get(status, FAILED))


def table(
    title: str,
    labels: Sequence[tuple[str, str]],
    layers: Sequence[int],
    cells: Sequence[Sequence[Text]],
    columns: Sequence[Column],
    width: int,
) -> Iterator[Text]:
    """Rows below headings of their families: ``labels`` are pairs of family and label, ``cells`` are by row and layer.

    To fit the width, long labels are wrapped at their constants, columns are dropped, gaps shrink, and finally the
    layers are split into two tables.
    """
    layer_widths = [max(len(str(layer)), *(len(row[i]) for row in cells)) for i, layer in enumerate(layers)]
    widest = max(len(INDENT + label) for _, label in labels)
    least = max(len(INDENT + word) for _, label in labels for word in label.split())
    shown_columns, gap = [column for column in columns if set(column.cells) - {NONE, ""}], 2

    def room() -> int:
        """Terminal columns left for the labels."""
        return width - sum(
            gap + column_width for column_width in [*layer_widths, *(column.width for column in shown_columns)]
        )

    dropped: list[str] = []
    for column in sorted((c for c in shown_columns if c.dropped is not None), key=lambda c: c.dropped or 0):
        if room() < least:
            shown_columns.remove(column)
            dropped.append(column.heading)
    if room() < least:
        gap = 1
    if room() < min(least, LEAST_LABEL) and len(layers) > 1:
        half = len(layers) // 2
        yield from table(title, labels, layers[:half], [row[:half] for row in cells], [], width)
        yield from table(title, labels, layers[half:], [row[half:] for row in cells], columns, width)
        return
    label_width = min(widest, max(room(), min(least, LEAST_LABEL)))
    widths = [*layer_widths, *(column.width for column in shown_columns)]
    headings = [Text(name, "dim") for name in [*map(str, layers), *(column.heading for column in shown_columns)]]
    yield Text(title, "bold")
    yield from aligned("layer", headings, label_width, widths, gap)
    previous = ""
    for row, (family, label) in enumerate(labels):
        if family != previous:
            yield Text(family, "bold cyan")
        previous = family
        texts = [*cells[row], *(Text(column.cells[row]) for column in shown_columns)]
        yield from aligned(label, texts, label_width, widths, gap)
    yield from left_out(width, dropped)


def left_out(width: int, headings: Sequence[str]) -> Iterator[Text]:
    """A line that names the columns that are dropped, if any are."""
    if headings:
        yield Text(f"left out at {width} columns: {', '.join(headings)}", "dim")


def print_fitted(console: Console, shown: Table) -> None:
    """Prints a table with whole words: cells are wrapped, and its last columns dropped, where it does not fit."""
    dropped: list[str] = []

    def wrapped(column: TableColumn) -> int:
        lengths = (len(word) for text in texts(column) for word in ([text] if column.no_wrap else text.split()))
        return min(max(lengths, default=0), LEAST_LABEL if column.overflow == "fold" else WIDEST)

    while (room := console.width - 1 - 3 * len(shown.columns) - sum(map(wrapped, shown.columns))) < 0:
        if len(shown.columns) == 1:
            break
        dropped.insert(0, str(shown.columns.pop().header))
    for column in shown.columns:
        least = wrapped(column)
        column.width = min(max(map(len, texts(column))), least + max(room, 0))
        room -= column.width - least
    console.print(shown)
    for line in left_out(console.width, dropped):
        console.print(line, soft_wrap=True)


def texts(column: TableColumn) -> list[str]:
    """The heading and the cells of a column as they are shown."""
    return [str(cell) for cell in (column.header, *column.cells)]


def aligned(label: str, texts: Sequence[Text], label_width: int, widths: Sequence[int], gap: int) -> Iterator[Text]:
    """A row's lines: its label, wrapped where it is long, and its cells at the right of their columns."""
    first, *rest = wrap(INDENT + label, label_width, subsequent_indent=2 * INDENT, break_on_hyphens=False)
    line = Text(first.ljust(label_width))
    for text, width in zip(texts, widths, strict=True):
        line.append(" " * (gap + width - len(text))).append_text(text)
    line.rstrip()
    yield from (line, *map(Text, rest))


def reasons(records: Sequence[Record]) -> Iterator[str]:
    """Why points have no time, each reason once with its rungs and layers; failures last."""
    batches = list(dict.fromkeys(record["point"]["N"] for record in records))
    by_reason: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda outcome: outcome["status"] != "skipped"):
        if record["status"] != "ok":
            by_reason.setdefault((record["status"], str(record["reason"])), []).append(record)
    for (status, reason), same in by_reason.items():
        layers: dict[str, dict[int, None]] = {}
        for record in same:
            name = label_with(record["point"]["rung"], changed_in(record))
            label = name + particulars(record["point"], name)
            layers.setdefault(label, {})[record["point"]["layer"]] = None
        labels: dict[str, list[str]] = {}
        for label, numbers in layers.items():
            labels.setdefault(layer_range(sorted(numbers)), []).append(label)
        where = "; ".join(
            f"layer{'s' * (not span.isdigit())} {span}: {', '.join(those)}" for span, those in labels.items()
        )
        at = list(dict.fromkeys(record["point"]["N"] for record in same))
        place = "" if at == batches else f" at N={','.join(map(str, at))}"
        yield f"{status}{place}: {reason} ({where})"


def recorded_heading() -> str:
    """The column of times on record."""
    return f"{recorded_times().device.split()[-1]} ms"


def recorded_legend(records: Iterable[Record]) -> str | None:
    """Explains the column of times on record; None if no point has one."""
    times = recorded_times()
    if all(times.sum_of([record]) is None for record in records):
        return None
    return (
        f"{recorded_heading()}: not measured here but on record, kernel time of an {times.device}, N={times.N},"
        f" summed over the layers ({times.source})"
    )


def legend(records: Sequence[Record], ladder: Ladder) -> str:
    """Explains the columns of a table of times."""
    parts = [
        f"kernel ms: all kernels of the rung, median per batch; {MARK} the fastest of its precision class in a layer",
        "fastest, by layer: of the class or a stricter one",
        "total: host arrays to host arrays",
    ]
    if any("serial_ms" in record.get("cpu", {}) for record in records):
        parts.append("than CPU: total against serial C++ on one CPU core")
    if any(family_of(record["point"]["rung"], ladder) == PEERS for record in records):
        others = ", ".join(f"{name}: {row.peer}'s" for name, row in PRECISIONS.items() if row.peer != name)
        parts.append(f"than peer: kernels against the fastest peer of the same class ({others})")
    return "; ".join(parts)
