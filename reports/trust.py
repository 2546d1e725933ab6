"""Tables of docs/trust.md: attacks and what catches them, from the tests; mutants, costs, alarms, from the records."""

import json
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import fsum, inf, nan
from pathlib import Path
from statistics import median

from alexconv.precisions import PEER_CLASSES
from alexconv.records.compressed import files_in
from alexconv.records.statistics import faster, median_of
from alexconv.records.store import Record, read
from alexconv.reports.comparison import CONTRACTS, MANY, Contract, Source, gather
from alexconv.reports.elements import Cell, markdown_table

AGAIN = "again"  # in the record of a candidate that was run again after it was chosen
MODES = ("compiler", "rule", "fault", "endless", "error", "integers", "again", "order", "race", "crash", "check")
SHOWN = """
import json, sys
sys.path[:0] = sys.argv[1:]
import attacks, test_cheating_rungs, test_timed_cheats  # importing the tests fills the table
rows = [[attack, by, sorted(set(attacks.SHOWN.get(attack, [])))] for attack, by in attacks.CAUGHT_BY.items()]
print(json.dumps(rows))
"""
CHECKED = {"data", "addresses", "races", "async", "undefined"}  # kinds of alexconv check, one column together


def parts(results: Path) -> dict[str, str]:
    """The page's tables from a checkout's ``results`` and the ``tests`` beside it."""
    trust = results / "trust"
    return {
        "headline": headline(files_in(results, "h200*frontier*.jsonl")),
        "attacks": attacks(results.parent / "tests" / "attacks"),
        "cost": cost(trust / "h200-audit.jsonl"),
        "kept": kept_lines(trust / "h200-kept-lines.jsonl"),
        "chosen": chosen(trust / "h200-tuning.jsonl"),
        "alarms": alarms(files_in(results, "**/h200*.jsonl")),
        "mutants": mutants(lines_of(trust / "mutants.jsonl"), reasons(trust / "equivalent_mutants.toml")),
        "tried": tried(lines_of(trust / "attacks.jsonl")),
    }


def headline(*groups: Sequence[Path]) -> str:
    """The five layers over cuDNN in its faster layout, on each card that timed them, and how long its points took.

    The files of a group are of one GPU model.
    """
    contracts = [contract for contract in CONTRACTS if contract.name in PEER_CLASSES]
    rows = [row for files in groups for row in _ratios(files, contracts)]
    columns = ("card", *(contract.name for contract in contracts), "minutes", "records")
    return "\n".join(markdown_table(columns, rows))


def _ratios(files: Sequence[Path], contracts: Sequence[Contract]) -> Iterator[tuple[Cell, ...]]:
    for source in gather(files).sources:
        pairs = [(source.sum_of(contract, MANY), source.faster_layouts(contract, MANY)) for contract in contracts]
        ratios = [faster(theirs / ours) for ours, theirs in pairs if ours and theirs]
        if len(ratios) == len(contracts):
            card = source.cards[source.points[0].record["device"]]
            yield (card, *ratios, minutes(source), f"`{source.file}`")


def minutes(source: Source) -> float:
    """From the first to the last of a file's points."""
    times = [datetime.fromisoformat(point.record["time"]) for point in source.points]
    return (max(times) - min(times)).total_seconds() / 60


def attacks(tests: Path) -> str:
    """Each attack, what catches it, and the tests that show it."""
    command = [sys.executable, "-c", SHOWN, str(tests), str(tests.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows: list[tuple[Cell, ...]] = [
        (attack, by, ", ".join(f"`{name}`" for name in names) or None) for attack, by, names in json.loads(done.stdout)
    ]
    return "\n".join(markdown_table(("attack", "caught by", "shown by"), rows))


def mutants(lines: Sequence[Record], known: Sequence[Record]) -> str:
    """Mutants by rung: how many, how many each mode notices, those that are equivalent and why, and those left.

    ``known`` are the reasons why mutants change no result.
    """
    by_rung: dict[str, list[Record]] = defaultdict(list)
    for line in lines:
        by_rung[line["rung"]].append(line)
    rows: list[tuple[Cell, ...]] = []
    for rung, of_rung in by_rung.items():
        counts = noticed(of_rung)
        ends = len(equivalent(of_rung, known)), len(unnoticed(of_rung, known))
        rows.append((rung, len(of_rung), *(counts[mode] or None for mode in MODES), *(end or None for end in ends)))
    counts, same, left = noticed(lines), equivalent(lines, known), unnoticed(lines, known)
    rows.append(("all", len(lines), *(counts[mode] for mode in MODES), len(same), len(left)))
    table = markdown_table(("rung", "mutants", *MODES, "equivalent", "unnoticed"), rows)
    causes = [f"{named(line)}: {why(line, known)}" for line in same]
    return "\n".join(
        [
            *table,
            "",
            "Equivalent:",
            "",
            *(causes or ["none"]),
            "",
            "Unnoticed:",
            "",
            *(list(map(named, left)) or ["none"]),
        ]
    )


def named(line: Record) -> str:
    """A mutant in a list."""
    return f"- `{line['file']}:{line['line']}` ({line['rung']}): `{line['before']}` -> `{line['after']}`"


def reasons(file: Path) -> list[Record]:
    """The reasons why mutants change no result, each with the change that it is for."""
    entries: list[Record] = tomllib.loads(file.read_text())["mutant"]
    return entries


def why(line: Record, known: Sequence[Record]) -> str | None:
    """Why a mutant changes no result; None if no reason is known."""
    for entry in known:
        same = (entry["file"], *entry["change"]) == (line["file"], line["before"], line["after"])
        if same and entry["code"] in line["code"] and entry.get("rung", line["rung"]) == line["rung"]:
            return str(entry["why"])
    return None


def equivalent(lines: Sequence[Record], known: Sequence[Record]) -> list[Record]:
    """Mutants that nothing noticed, for a reason."""
    return [line for line in lines if not line["noticed"] and why(line, known)]


def unnoticed(lines: Sequence[Record], known: Sequence[Record]) -> list[Record]:
    """Mutants that nothing noticed, without a reason."""
    return [line for line in lines if not line["noticed"] and not why(line, known)]


def noticed(lines: Sequence[Record]) -> Counter[str]:
    """How many mutants each mode notices."""
    return Counter("check" if mode in CHECKED else mode for line in lines for mode in line["noticed"])


def tried(lines: Sequence[Record]) -> str:
    """What else was tried, how often, and how often it went wrong."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        both = sums[line["what"], line["bad"]]
        both[0] += line["tried"]
        both[1] += line["count"]
    rows: list[tuple[Cell, ...]] = [(trial, times, bad, count) for (trial, bad), (times, count) in sums.items()]
    return "\n".join(markdown_table(("tried", "times", "what must not happen", "happened"), rows))


def cost(file: Path) -> str:
    """Wall time and kernel times with the audit over those without."""
    records = read([file])
    audits = [header for header in records.headers.values() if header["type"] == "audit"]
    points = [audit for audit in audits if audit["with"]["kernel"] and audit["without"]["kernel"]]
    (device,) = (header["name"] for header in records.headers.values() if header["type"] == "device")
    seconds = [fsum(audit[name]["seconds"] for audit in points) for name in ("without", "with")]
    ratios = {
        name: [audit["with"][name] / audit["without"][name] for audit in points] for name in ("kernel", "kernel_cold")
    }
    hot, cold = ratios["kernel"], ratios["kernel_cold"]
    return (
        f"On an {device}, {len(points)} points of AlexNet's layers, each measured without and with the audit: "
        f"{seconds[0]:.1f} s and {seconds[1]:.1f} s of wall time ({100 * (seconds[1] / seconds[0] - 1):.1f} % more). "
        f"Hot kernel times, with over without: median {median(hot):.3f}, from {min(hot):.3f} to {max(hot):.3f}; "
        f"cold ones {median(cold):.3f}, from {min(cold):.3f} to {max(cold):.3f}. "
        f"Outputs whose bits differ from those checked: {sum(audit['audit']['differing'] for audit in points)} of "
        f"{sum(audit['audit']['samples'] for audit in points)} samples; points refused: "
        f"{sum(audit['with']['status'] != 'ok' for audit in points)}."
    )


def kept_lines(file: Path) -> str:
    """Microseconds to load an array, by lines that the L2 cache is asked to keep and by others."""
    facts = [record for record in read([file]).headers.values() if record["type"] == "kept-lines"]
    times = {(record["mebibytes"], record["entry"], record["way"]): 1e3 * record["ms"] for record in facts}
    ways = {"flushed": "after a flush", "forgotten": "made ordinary, then a flush"}
    rows: list[tuple[Cell, ...]] = [
        (f"{size} MiB, {words}", *(f"{times[size, entry, way]:.1f}" for way in ways))
        for size in sorted({size for size, _, _ in times})
        for entry, words in (("load_ordinary", "ordinary lines"), ("load_kept", "lines to be kept"))
    ]
    return "\n".join(markdown_table(("microseconds to load", *ways.values()), rows))


def chosen(file: Path) -> str:
    """How much longer winners of searches took when they were run again."""
    first: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    again: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in read([file]).points:
        where = tuple(str(record["point"][axis]) for axis in ("rung", "layer", "N"))
        (again if AGAIN in record else first)[where].append(record)
    ratios = []
    for where, records in again.items():
        before, winner = min(
            ((median_of(record, "kernel") or inf, record["point"]) for record in first[where]),
            key=lambda pair: pair[0],
        )
        (after,) = (median_of(record, "kernel") for record in records if record["point"] == winner)
        ratios.append((after or nan) / before)
    tried = sum(len(first[where]) for where in again)
    number = f"{len(ratios)} search{'es' if len(ratios) > 1 else ''}"
    return (
        f"In {number} on an H200, of {tried} candidates, the fastest took {median(ratios):.3f} of its first time when "
        f"run again (median, from {min(ratios):.3f} to {max(ratios):.3f})."
    )


def alarms(files: Sequence[Path]) -> str:
    """How many points were audited, how many of them refused, and how many others were judged wrong."""
    points = read(files).points
    audited = [record for record in points if "audit" in record]
    refused = sum(record["status"] != "ok" for record in audited)
    wrong = Counter((record["point"]["rung"], record["reason"]) for record in points if record["status"] == "wrong")
    rungs = sorted({rung for rung, _ in wrong})
    others = f"; of the others {sum(wrong.values())} are `wrong`, of {', '.join(rungs)}" if wrong else ""
    return f"The H200 records in `results/` have {len(audited)} audited points, of which {refused} are refused{others}."


def lines_of(file: Path) -> list[Record]:
    """The lines of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]
