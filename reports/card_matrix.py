"""The matrix of docs/cards.md: what each rung does on GPUs that need not be there, from one record file."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from alexconv.kernels.ladder import RUNGS
from alexconv.predict.gpu import Gpu
from alexconv.records.store import Record, read
from alexconv.reports.cards import described
from alexconv.reports.elements import Cell, markdown_table

FILE = Path("predicted", "cards.jsonl")
TYPE, RIGHT = "card", "right"  # of alexconv.cards
SUITED = ("suited", "too-large", "compile-error")


def parts(results: Path) -> dict[str, str]:
    """The tables by the names of their markers."""
    records = [header for header in read([results / FILE]).headers.values() if header["type"] == TYPE]
    tables = {
        "summary": summary(records),
        "matrix": matrix(records),
        "reasons": reasons(records),
        "local": local_memory(records),
    }
    return {name: "\n".join(lines) for name, lines in tables.items()}


def cards_of(records: Sequence[Record]) -> list[Gpu]:
    """The GPUs of the records, in the order of the tables."""
    keys = {record["gpu"] for record in records}
    return [card for card in described() if card.key in keys]


def by_place(records: Sequence[Record]) -> dict[tuple[str, int], dict[str, Record]]:
    """Records by rung and layer in the ladder's order, then by GPU."""
    places: dict[tuple[str, int], dict[str, Record]] = {}
    for record in records:
        places.setdefault((record["point"]["rung"], record["point"]["layer"]), {})[record["gpu"]] = record
    order = {rung: number for number, rung in enumerate(RUNGS)}
    return dict(sorted(places.items(), key=lambda item: (order[item[0][0]], item[0][1])))


def summary(records: Sequence[Record]) -> Iterator[str]:
    """How many points of each GPU apply, compile, use local memory, and are right on the CPU."""
    rows: list[tuple[Cell, ...]] = []
    for card in cards_of(records):
        mine = [record for record in records if record["gpu"] == card.key]
        suited = [record for record in mine if record["status"] in SUITED]
        compiled = [record for record in suited if record["status"] == "suited"]
        checked = [record for record in compiled if "checked" in record]
        rows.append(
            (
                card.name,
                f"sm_{''.join(map(str, card.capability))}",
                f"{len(suited)} of {len(mine)}",
                len(compiled),
                sum(bool(_local(record)) for record in compiled),
                f"{sum(record['checked'] == RIGHT for record in checked)} of {len(checked)}",
            )
        )
    columns = ("GPU", "target", "apply", "compile and fit", "use local memory", "right on the CPU")
    return iter(markdown_table(columns, rows))


def matrix(records: Sequence[Record]) -> Iterator[str]:
    """Registers of a thread, the most of a rung's kernels, on each GPU."""
    cards = cards_of(records)
    rows: list[tuple[Cell, ...]] = []
    for (rung, layer), of_gpu in by_place(records).items():
        if any(record["status"] in SUITED for record in of_gpu.values()):
            rows.append((rung, layer, *(_cell(of_gpu.get(card.key)) for card in cards)))
    return iter(markdown_table(("rung", "layer", *(card.key for card in cards)), rows))


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    if record["status"] != "suited":
        return "-" if record["status"] == "unsuited" else str(record["status"])
    wrong = "" if record.get("checked", RIGHT) == RIGHT else ", wrong"
    return str(max(launch["registers"] for launch in record["launches"])) + wrong


def reasons(records: Sequence[Record]) -> Iterator[str]:
    """Why points do not apply or fail: each reason with its rungs and GPUs."""
    places: dict[str, dict[str, None]] = {}
    keys: dict[str, dict[str, None]] = {}
    for record in sorted(records, key=lambda record: list(RUNGS).index(record["point"]["rung"])):
        checked = record.get("checked", RIGHT)
        for reason in (record["reason"], None if checked == RIGHT else checked):
            if reason:
                places.setdefault(reason, {})[record["point"]["rung"]] = None
                keys.setdefault(reason, {})[record["gpu"]] = None
    rows: list[tuple[Cell, ...]] = [(reason, ", ".join(places[reason]), ", ".join(keys[reason])) for reason in places]
    return iter(markdown_table(("reason", "rungs", "GPUs"), rows))


def local_memory(records: Sequence[Record]) -> Iterator[str]:
    """Kernels that use local memory: bytes of a thread on each GPU, for spilled registers or arrays."""
    cards = cards_of(records)
    rows: list[tuple[Cell, ...]] = []
    for (rung, layer), of_gpu in by_place(records).items():
        counts = [_local(of_gpu[card.key]) if card.key in of_gpu else 0 for card in cards]
        if any(counts):
            rows.append((rung, layer, *(count or "-" for count in counts)))
    return iter(markdown_table(("rung", "layer", *(card.key for card in cards)), rows))


def _local(record: Record) -> int:
    return max((launch["local_bytes"] for launch in record.get("launches", [])), default=0)
