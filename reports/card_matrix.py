"""The matrix of docs/cards.md: what each rung does on GPUs that need not be there, from one record file."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.kernels.rung import Rung
from alexconv.predict.gpu import Gpu
from alexconv.records.store import Record, read
from alexconv.reports.cards import described
from alexconv.reports.comparison import MANY
from alexconv.reports.elements import Cell, markdown_table
from alexconv.shapes import DIRECTIONS, WORKLOADS, Conv

FILE = Path("predicted", "cards.jsonl")
TYPE, RIGHT = "card", "right"  # of alexconv.cards
KIB = 1024
STUDY = "alexnet"
SUITED = ("suited", "too-large", "compile-error")


def parts(results: Path) -> dict[str, str]:
    """The tables by the names of their markers."""
    records = [header for header in read([results / FILE]).headers.values() if header["type"] == TYPE]
    tables = {
        "applies": applies(),
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
    order = {rung: number for number, rung in enumerate(ALL_DIRECTIONS.named)}
    return dict(sorted(places.items(), key=lambda item: (order[item[0][0]], item[0][1])))


def applies() -> Iterator[str]:
    """How many rungs of each direction apply to AlexNet's layers on each GPU, by the ladder alone."""
    workload = WORKLOADS[STUDY]
    layers = range(1, len(workload.layers) + 1)
    ladders = [ALL_DIRECTIONS.of_direction(direction) for direction in DIRECTIONS]

    def cell(layer: Conv, card: Gpu) -> str:
        return ", ".join(str(sum(suits(rung, layer, card) for rung in ladder)) for ladder in ladders)

    rows: list[tuple[Cell, ...]] = [("all", *[", ".join(str(len(ladder)) for ladder in ladders)] * len(layers))]
    rows += [(card.name, *(cell(workload.layer(layer), card) for layer in layers)) for card in described()]
    return iter(markdown_table(("GPU", *(f"layer {layer}" for layer in layers)), rows))


def suits(rung: Rung, layer: Conv, card: Gpu) -> bool:
    """Whether a GPU can run a rung on a layer with the constants that it has there by default."""
    problem = layer.toward(rung.direction)
    bound = BoundRung(rung, problem, rung.resolve(problem, {}, MANY, card.device), card.device)
    return not rung.unsuited(card.capability) and bound.refusal() is None


def summary(records: Sequence[Record]) -> Iterator[str]:
    """How many points of each GPU apply, compile, use local memory, are right and predicted; the largest block."""
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
                f"{sum('ms' in record for record in compiled)} of {len(compiled)}",
                f"{max(map(_shared, compiled), default=0) / KIB:.0f} of {card.device.shared_per_block / KIB:.0f}",
            )
        )
    columns = ("GPU", "target", "apply", "compile and fit", "use local memory", "right on the CPU", "predicted")
    return iter(markdown_table((*columns, "most shared memory of a block, KiB"), rows))


def matrix(records: Sequence[Record]) -> Iterator[str]:
    """Registers of a thread, the most of a rung's kernels, and predicted milliseconds, on each GPU."""
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
    registers = max(launch["registers"] for launch in record["launches"])
    predicted = f"{record['ms']:.3g}" if "ms" in record else "-"
    return f"{registers} / {predicted}{wrong}"


def reasons(records: Sequence[Record]) -> Iterator[str]:
    """Why points do not apply or fail: each reason with its rungs and GPUs."""
    places: dict[str, dict[str, None]] = {}
    keys: dict[str, dict[str, None]] = {}
    for record in sorted(records, key=lambda record: list(ALL_DIRECTIONS.named).index(record["point"]["rung"])):
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


def _shared(record: Record) -> int:
    return max(int(launch["static_shared_bytes"] + launch["dynamic_shared_bytes"]) for launch in record["launches"])


def _local(record: Record) -> int:
    return max((launch["local_bytes"] for launch in record.get("launches", [])), default=0)
