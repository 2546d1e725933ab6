"""What conv2d's choices of rungs lose, from the records of scripts/measure/choices.py: a part of docs/library.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path

from alexconv.records.store import Record, read
from alexconv.reports.elements import Cell, markdown_table
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.library import source
from alexconv.shapes import Conv

TYPE = "library-trials"
LOST = 1.25  # the table of layers has those whose choice takes longer than so many times the shortest time
KINDS = ("layers", "number", "choice over fastest, geometric mean", "worst")
LAYERS = ("layer", "N", "class", "layout", "chosen", "us", "fastest", "us of it", "over fastest")


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
        Trial(record, record["trials"][0], min((each for each in record["trials"] if "ms" in each), key=milliseconds))
        for record in records
        if record["trials"] and "ms" in record["trials"][0]
    ]


def milliseconds(trial: Record) -> float:
    """A rung's time."""
    return float(trial["ms"])


def kinds_part(tried: Sequence[Trial]) -> str:
    """What is lost on each kind of layer, and on all."""
    groups: dict[str, list[float]] = {}
    for trial in tried:
        groups.setdefault(trial.record["kind"], []).append(trial.lost)
    everything = {**dict(sorted(groups.items())), "all": [trial.lost for trial in tried]}
    rows: list[tuple[Cell, ...]] = [
        (kind, len(lost), f"{exp(fsum(map(log, lost)) / len(lost)):.2f}", f"{max(lost):.2f}")
        for kind, lost in everything.items()
    ]
    return "\n".join(markdown_table(KINDS, rows))


def layers_part(tried: Sequence[Trial]) -> str:
    """The layers on which most is lost, the worst first."""
    worst = sorted((trial for trial in tried if trial.lost > LOST), key=lambda trial: -trial.lost)
    return "\n".join(markdown_table(LAYERS, [row(trial) for trial in worst])) if worst else f"None above {LOST}."


def row(trial: Trial) -> tuple[Cell, ...]:
    """A row of the table of layers."""
    conv, facts = Conv(**trial.record["conv"]), trial.record
    features = f", groups {conv.groups}" if conv.groups > 1 else ""
    stride = f", stride {conv.U}" if conv.U > 1 else ""
    shape = f"{conv.C} x {conv.H} x {conv.W}, {conv.M} of {conv.R} x {conv.S}{stride}{features}"
    sides = (
        cell for side in (trial.chosen, trial.fastest) for cell in (f"`{side['rung']}`", f"{1e3 * side['ms']:.1f}")
    )
    return shape, facts["N"], facts["precision"], facts["memory"], *sides, f"{trial.lost:.2f}"


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's parts by their keys."""
    records = read(list(files))
    of_type = [header for header in records.headers.values() if header["type"] == TYPE]
    if not (tried := trials(of_type)):
        return dict.fromkeys(("choices-kinds", "choices-layers"), NOT_MEASURED)
    return {
        "choices-kinds": f"{kinds_part(tried)}\n\n{source(records, of_type, files)}",
        "choices-layers": layers_part(tried),
    }
