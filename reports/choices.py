"""What conv2d's choices of rungs lose, from the records of scripts/measure/choices.py: a part of docs/library.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path
from statistics import geometric_mean

from alexconv.records.store import Record, Records, read
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import GRAPH, OURS, PEER, best, goals, ratio, rung_of, source
from alexconv.reports.networks import shape
from alexconv.shapes import Conv

TYPE, OUTSIDE, COUNTERS = "library-trials", "library-outside", "library-counters"
MOST_SLOWER = 1.1  # a goal for every layer
LOST = 1.25  # the table of layers has those whose choice takes longer than so many times the shortest time
CLASSES = ("class", "layers", "than cuDNN, geometric mean", "goal", "worst", "at most 1.10× slower")
SLOWER = ("kind", "layer", "N", "class", "ours, µs", "cuDNN, µs", "than cuDNN", "rung")
COUNTED = (
    "layer",
    "N",
    "class",
    "longest kernel",
    "kernels",
    "µs",
    "waves",
    "DRAM",
    "L2",
    "L1",
    "tensor pipe",
    "issue slots",
)
THROUGHPUTS = ("dram_throughput", "l2_throughput", "l1_throughput", "tensor_pipe", "issue_slots")
KINDS = ("layers", "number", "choice over fastest, geometric mean", "worst")
EARLIER = ("earlier records", *KINDS[1:])
LAYERS = ("layer", "N", "class", "layout", "chosen", "µs", "fastest", "µs of it", "over fastest")


@dataclass(frozen=True)
class Trial:
    """A layer's record with the rungs that were timed, the choice first."""

    record: Record
    chosen: Record
    fastest: Record

    @property
    def lost(self) -> float:
        """The choice's time over the shortest."""
        return float(self.chosen["ms"] / self.fastest["ms"])


def trials(records: Sequence[Record]) -> list[Trial]:
    """The records whose choice was timed."""
    return [
        Trial(
            record, record["trials"][0], min((trial for trial in record["trials"] if "ms" in trial), key=milliseconds)
        )
        for record in records
        if record["trials"] and "ms" in record["trials"][0]
    ]


def milliseconds(trial: Record) -> float:
    """A rung's time."""
    return float(trial["ms"])


def mean(tried: Sequence[Trial]) -> float:
    """The geometric mean of what is lost."""
    return exp(fsum(log(trial.lost) for trial in tried) / len(tried))


def kinds_part(tried: Sequence[Trial]) -> str:
    """What is lost on each kind of layer, and on all."""
    groups: dict[str, list[Trial]] = {}
    for trial in tried:
        groups.setdefault(trial.record["kind"], []).append(trial)
    everything = {**dict(sorted(groups.items())), "all": tried}
    rows: list[tuple[Cell, ...]] = [(kind, *lost(some)) for kind, some in everything.items()]
    return "\n".join(markdown_table(KINDS, rows))


def lost(tried: Sequence[Trial]) -> tuple[Cell, ...]:
    """How many layers, and what is lost on their mean and at worst."""
    return len(tried), f"{mean(tried):.2f}", f"{max(trial.lost for trial in tried):.2f}"


def layers_part(tried: Sequence[Trial]) -> str:
    """The layers on which most is lost, the worst first."""
    worst = sorted((trial for trial in tried if trial.lost > LOST), key=lambda trial: -trial.lost)
    return "\n".join(markdown_table(LAYERS, [row(trial) for trial in worst])) if worst else f"None above {LOST}."


def row(trial: Trial) -> tuple[Cell, ...]:
    """A row of the table of layers."""
    facts = trial.record
    sides = (
        cell for side in (trial.chosen, trial.fastest) for cell in (f"`{side['rung']}`", f"{1e3 * side['ms']:.1f}")
    )
    return shape(Conv(**facts["conv"])), facts["N"], facts["precision"], facts["memory"], *sides, f"{trial.lost:.2f}"


def outside_parts(files: Sequence[Path]) -> dict[str, str]:
    """The layers that were timed beside cuDNN: in each class together, and those that take longer."""
    records = read(files)
    measured = [
        header
        for header in records.headers.values()
        if header["type"] == OUTSIDE and best(header, GRAPH, OURS) and best(header, GRAPH, PEER)
    ]
    if not measured:
        return dict.fromkeys(("outside-classes", "outside-slower"), NOT_MEASURED)
    rows: list[tuple[Cell, ...]] = []
    for precision, of_class in goals().items():
        ratios = [ratio(record) or 0.0 for record in measured if record["precision"] == precision]
        if ratios:
            within = f"{sum(value <= MOST_SLOWER for value in ratios)} of {len(ratios)}"
            faster = (Faster(1 / value) for value in (geometric_mean(ratios), of_class.outside, max(ratios)))
            rows.append((precision, len(ratios), *faster, within))
    slower = sorted(
        (record for record in measured if (ratio(record) or 0) > 1), key=lambda record: -(ratio(record) or 0)
    )
    worst = [outside_row(record) for record in slower]
    text = "\n".join(markdown_table(SLOWER, worst)) if worst else "None."
    return {
        "outside-classes": "\n".join([*markdown_table(CLASSES, rows), "", source(records, measured, files)]),
        "outside-slower": text,
    }


def counters_part(files: Sequence[Path]) -> dict[str, str]:
    """Counters of layers on which cuDNN is faster: of a call's longest kernel, and the time of all.

    Only of own calls: in a profiled process cuDNN benchmarks, and so chooses, other engines.
    """
    records = read(files)
    found = (header for header in records.headers.values() if header["type"] == COUNTERS)
    counted = [header for header in found if header["contender"].startswith(OURS)]
    if not counted:
        return {"outside-counters": NOT_MEASURED}
    table = markdown_table(COUNTED, [counted_row(record) for record in counted])
    return {"outside-counters": "\n".join([*table, "", source(records, counted, files)])}


def counted_row(record: Record) -> tuple[Cell, ...]:
    """A row of the table of counters: a call."""
    kernels = record["kernels"]
    longest = max(kernels, key=lambda kernel: kernel["duration_ns"])
    us = fsum(kernel["duration_ns"] for kernel in kernels) / 1e3
    shares = (f"{longest[name]:.0f} %" for name in THROUGHPUTS)
    where = shape(Conv(**record["conv"])), record["N"], record["precision"], f"`{longest['entry']}`"
    return *where, len(kernels), f"{us:.1f}", f"{longest['waves']:.1f}", *shares


def outside_row(record: Record) -> tuple[Cell, ...]:
    """A row of the table of layers on which cuDNN is faster."""
    ours, peer = best(record, GRAPH, OURS), best(record, GRAPH, PEER)
    where = record["kind"], shape(Conv(**record["conv"])), record["N"], record["precision"]
    us = (f"{1e3 * side[0]:.1f}" if side else "–" for side in (ours, peer))
    return *where, *us, Faster(1 / (ratio(record) or 1)), rung_of(record)


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's parts by their keys: of the last file; what was lost in those before."""
    *before, last = files
    records = read([last])
    of_type = of_trials(records)
    if not (tried := trials(of_type)):
        return dict.fromkeys(("choices-kinds", "choices-layers"), NOT_MEASURED)
    older = {f"`{file.as_posix()}`": trials(of_trials(read([file]))) for file in before}
    rows = [(file, *lost(some)) for file, some in older.items() if some]
    earlier = "\n".join(["", *markdown_table(EARLIER, rows), ""]) if rows else ""
    return {
        "choices-kinds": f"{kinds_part(tried)}\n{earlier}\n{source(records, of_type, [last])}",
        "choices-layers": layers_part(tried),
    }


def of_trials(records: Records) -> list[Record]:
    """The records of trials in a file."""
    return [header for header in records.headers.values() if header["type"] == TYPE]
