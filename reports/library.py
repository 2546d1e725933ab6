"""Tables of docs/library.md, from the records of scripts/measure/library_bench.py."""

from collections.abc import Iterator, Sequence
from math import exp, fsum, log
from pathlib import Path
from typing import Any

from alexconv.errors import UsageError
from alexconv.precisions import PRECISIONS, LibraryGoals
from alexconv.records.labels import device_name
from alexconv.records.statistics import faster
from alexconv.records.store import Record, read
from alexconv.reports.elements import Cell, Faster, markdown_table
from alexconv.reports.goals import at_least
from alexconv.reports.measurements import SHORT, card_of

OURS, PEER = "alexconv-", "cudnn-"
GRAPH, EAGER = "graph_ms", "eager_ms"
STUDY = "alexnet"  # each of its layers is to be at most ALEXNET


ALEXNET = 1.0


def goals() -> dict[str, LibraryGoals]:
    """The classes' goals for the layers' ratios to the best cuDNN layout."""
    return {name: row.goals.library for name, row in PRECISIONS.items() if row.goals and row.goals.library}


def layers(records: Sequence[Record]) -> list[Record]:
    """The last record of each layer, batch size and precision."""
    last = {(record["workload"], record["layer"], record["N"], record["precision"]): record for record in records}
    return [last[key] for key in last]


def best(record: Record, how: str, contender: str) -> tuple[float, str] | None:
    """A contender's fastest layout: its milliseconds and its name."""
    times = [(ms, name.removeprefix(contender)) for name, ms in record[how].items() if name.startswith(contender)]
    return min(times, default=None)


def ratio(record: Record, how: str = GRAPH) -> float | None:
    """Time over that of the best cuDNN layout."""
    ours, peer = best(record, how, OURS), best(record, how, PEER)
    return ours[0] / peer[0] if ours and peer else None


def rung_of(record: Record) -> str:
    """The rung of the faster layout, what it has copied, and the layouts that failed."""
    fastest = best(record, GRAPH, OURS)
    rung: Any = record["rungs"].get(fastest[1]) if fastest else None
    failed = [name.removeprefix(OURS) for name, error in record["error"].items() if isinstance(error, str)]
    copies = [name for name in ("x", "y") if rung and not rung[f"{name}_in_place"]]
    more = [f"{' and '.join(copies)} copied"] * bool(copies) + [f"{layout} failed" for layout in failed]
    return (str(rung["rung"]) if rung else "any shape") + (f" ({', '.join(more)})" if more else "")


def limit(record: Record) -> float:
    """The ratio that a layer must not exceed."""
    return ALEXNET if record["workload"] == STUDY else goals()[record["precision"]].limit


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return exp(fsum(map(log, ratios)) / len(ratios))


def goal_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each precision, of AlexNet and of the other networks: goal and result."""
    for precision, goal in goals().items():
        for study in (True, False):
            of_class = [record for record in records if (record["workload"] == STUDY) is study]
            ratios = [ratio(record) for record in of_class if record["precision"] == precision]
            known = [quotient for quotient in ratios if quotient is not None]
            if not known:
                continue
            most, share = (ALEXNET, 1.0) if study else (goal.limit, goal.share)
            within = sum(quotient <= most for quotient in known) / len(ratios)
            geometric = faster(1 / mean(known)) + ("" if study else f" (goal {faster(1 / goal.mean)})")
            shares = f"{within:.1%} {at_least(most)} (goal {share:.0%})"
            yield precision, "AlexNet" if study else "networks", len(ratios), geometric, shares, Faster(1 / max(known))


GOAL_COLUMNS = ("precision", "layers of", "layers", "geometric mean", "share", "worst")


def layer_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each layer."""
    for record in records:
        ours, peer = best(record, GRAPH, OURS), best(record, GRAPH, PEER)
        if ours is None or peer is None:
            continue
        error = record["error"][OURS + ours[1]]
        eager = [fastest[0] if (fastest := best(record, EAGER, who)) else None for who in (OURS, PEER)]
        where = record["precision"], record["N"], f"{record['workload']} {record['layer']}"
        yield *where, ours[0], peer[0], Faster(peer[0] / ours[0]), *eager, rung_of(record), error


LAYER_COLUMNS = (
    *("precision", "N", "layer", "ms", "cuDNN ms", "than cuDNN", "eager ms", "eager cuDNN ms", "rung", "error / norms"),
)


def summary_rows(records: Sequence[Record]) -> Iterator[tuple[Cell, ...]]:
    """A row for each workload, batch size and precision."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for record in records:
        if (quotient := ratio(record)) is not None:
            groups.setdefault((record["precision"], record["workload"], record["N"]), []).append(quotient)
    for (precision, workload, N), ratios in groups.items():
        speeds = [Faster(1 / ratio) for ratio in (mean(ratios), min(ratios), max(ratios))]
        count = f"{sum(ratio <= 1 for ratio in ratios)} of {len(ratios)}"
        yield precision, workload, N, len(ratios), *speeds, count


SUMMARY_COLUMNS = ("precision", "network", "N", "layers", "geometric mean", "best", "worst", "not slower")


def host_rows(record: Record) -> Iterator[tuple[Cell, ...]]:
    """A row for each layer and way of calling."""
    for name, us in record["us"].items():
        precision, N, way = name.split(" ", 2)
        yield precision, N.removeprefix("N="), way, float(us)


def source(records: Any, rows: Sequence[Record], files: Sequence[Path]) -> str:
    """Where a table's figures come from."""
    devices, runs = ([records.headers[row[kind]] for row in rows] for kind in ("device", "run"))
    facts = (
        *(f"{device_name(device)} ({card_of(device)}), driver {device.get('driver', '?')}" for device in devices),
        *(f"torch {run.get('packages', {}).get('torch', '?')}" for run in runs),
        *(f"commit {str(run.get('commit', '?'))[:SHORT]}" for run in runs),
    )
    return f"{', '.join(dict.fromkeys(facts))}; {', '.join(f'`{file.as_posix()}`' for file in files)}."


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's tables; raises UsageError for files without records of the library."""
    records = read(files)
    of_kind: dict[str, list[Record]] = {}
    for header in records.headers.values():
        of_kind.setdefault(header["type"], []).append(header)
    if missing := {"library-layer", "library-host"} - of_kind.keys():
        raise UsageError(f"{', '.join(map(str, files))}: no records of {', '.join(sorted(missing))}")
    of_layers = layers(of_kind["library-layer"])
    alexnet = [record for record in of_layers if record["workload"] == STUDY]
    missed = [(quotient, n) for n, record in enumerate(of_layers) if (quotient := ratio(record) or 0) > limit(record)]
    slower = [of_layers[n] for _, n in sorted(missed, reverse=True)]
    host = of_kind["library-host"][-1]
    tables = {
        "library-goals": (GOAL_COLUMNS, goal_rows(of_layers), of_layers),
        "library-summary": (SUMMARY_COLUMNS, summary_rows(of_layers), of_layers),
        "library-alexnet": (LAYER_COLUMNS, layer_rows(alexnet), alexnet),
        "library-slower": (LAYER_COLUMNS, layer_rows(slower), of_layers),
        "library-host": (("precision", "N", "call", "µs"), host_rows(host), [host]),
    }
    return {
        name: "\n".join([*markdown_table(columns, list(rows)), "", source(records, measured, files)])
        for name, (columns, rows, measured) in tables.items()
    }
