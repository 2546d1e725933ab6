"""The tables of docs/trust.md, from the tests of tests/attacks and the records in results/trust.

python scripts/trust_tables.py [--check]

With --check it changes nothing, and says whether the page is stale.
"""

import json
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import fsum, nan
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "attacks")]

import test_cheating_rungs  # noqa: E402, F401  importing them fills the table of what they show
import test_timed_cheats  # noqa: E402, F401
from attacks import CAUGHT_BY, SHOWN  # noqa: E402

from alexconv.records.statistics import median_of  # noqa: E402
from alexconv.records.store import Record, read  # noqa: E402
from alexconv.reports.elements import Cell, markdown_table  # noqa: E402
from alexconv.reports.generated import check, updated  # noqa: E402
from alexconv.tune.search import AGAIN, fastest  # noqa: E402

PAGE, RESULTS = ROOT / "docs" / "trust.md", ROOT / "results" / "trust"
EQUIVALENT = tomllib.loads((ROOT / "scripts" / "equivalent_mutants.toml").read_text())["mutant"]
MODES = ("compiler", "rule", "fault", "endless", "error", "integers", "again", "order", "race", "crash", "check")
CHECKED = {"data", "addresses", "races", "async", "undefined"}  # kinds of alexconv check, one column together


def attacks() -> str:
    """Each attack, what catches it, and the tests that show it."""
    rows: list[tuple[Cell, ...]] = [
        (attack, by, ", ".join(f"`{name}`" for name in sorted(set(SHOWN.get(attack, ["–"])))))
        for attack, by in CAUGHT_BY.items()
    ]
    return "\n".join(markdown_table(("attack", "caught by", "shown by"), rows))


def mutants(lines: Sequence[dict]) -> str:
    """Mutants by rung: how many, how many each mode notices, those that are equivalent and why, and those left."""
    by_rung: dict[str, list[dict]] = defaultdict(list)
    for line in lines:
        by_rung[line["rung"]].append(line)
    rows: list[tuple[Cell, ...]] = []
    for rung, found in by_rung.items():
        counts = noticed(found)
        ends = len(equivalent(found)), len(unnoticed(found))
        rows.append((rung, len(found), *(counts[mode] or None for mode in MODES), *(end or None for end in ends)))
    counts, same, left = noticed(lines), equivalent(lines), unnoticed(lines)
    rows.append(("all", len(lines), *(counts[mode] for mode in MODES), len(same), len(left)))
    table = markdown_table(("rung", "mutants", *MODES, "equivalent", "unnoticed"), rows)
    reasons = [f"{named(line)}: {why(line)}" for line in same]
    return "\n".join(
        [
            *table,
            "",
            "Equivalent:",
            "",
            *(reasons or ["none"]),
            "",
            "Unnoticed:",
            "",
            *(list(map(named, left)) or ["none"]),
        ]
    )


def named(line: dict) -> str:
    """A mutant in a list."""
    return f"- `{line['file']}:{line['line']}` ({line['rung']}): `{line['before']}` -> `{line['after']}`"


def why(line: dict) -> str | None:
    """Why a mutant changes no result; None if no reason is recorded."""
    for each in EQUIVALENT:
        same = (each["file"], *each["change"]) == (line["file"], line["before"], line["after"])
        if same and each["code"] in line["code"] and each.get("rung", line["rung"]) == line["rung"]:
            return str(each["why"])
    return None


def equivalent(lines: Sequence[dict]) -> list[dict]:
    """Mutants that nothing noticed, for a reason."""
    return [line for line in lines if not line["noticed"] and why(line)]


def unnoticed(lines: Sequence[dict]) -> list[dict]:
    """Mutants that nothing noticed, without a reason."""
    return [line for line in lines if not line["noticed"] and not why(line)]


def noticed(lines: Sequence[dict]) -> Counter[str]:
    """How many mutants each mode notices."""
    return Counter("check" if mode in CHECKED else mode for line in lines for mode in line["noticed"])


def tried(lines: Sequence[dict]) -> str:
    """What else was tried, how often, and how often it went wrong."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        both = sums[line["what"], line["bad"]]
        both[0] += line["tried"]
        both[1] += line["count"]
    rows: list[tuple[Cell, ...]] = [(what, times, bad, count) for (what, bad), (times, count) in sums.items()]
    return "\n".join(markdown_table(("tried", "times", "what must not happen", "happened"), rows))


def cost() -> str:
    """Wall time and kernel times with the audit over those without."""
    records = read([RESULTS / "h200-audit.jsonl"])
    audits = [each for each in records.headers.values() if each["type"] == "audit"]
    points = [each for each in audits if each["with"]["kernel"] and each["without"]["kernel"]]
    (device,) = (each["name"] for each in records.headers.values() if each["type"] == "device")
    seconds = [fsum(each[name]["seconds"] for each in points) for name in ("without", "with")]
    ratios = {
        name: [each["with"][name] / each["without"][name] for each in points] for name in ("kernel", "kernel_cold")
    }
    hot, cold = ratios["kernel"], ratios["kernel_cold"]
    return (
        f"On an {device}, {len(points)} points of AlexNet's layers, each measured without and with the audit: "
        f"{seconds[0]:.1f} s and {seconds[1]:.1f} s of wall time ({100 * (seconds[1] / seconds[0] - 1):.1f} % more). "
        f"Hot kernel times, with over without: median {median(hot):.3f}, from {min(hot):.3f} to {max(hot):.3f}; "
        f"cold ones {median(cold):.3f}, from {min(cold):.3f} to {max(cold):.3f}. "
        f"Outputs whose bits differ from those checked: {sum(each['audit']['differing'] for each in points)} of "
        f"{sum(each['audit']['samples'] for each in points)} samples; points refused: "
        f"{sum(each['with']['status'] != 'ok' for each in points)}."
    )


def kept_lines() -> str:
    """Microseconds to load an array, by lines that the L2 cache is asked to keep and by others."""
    facts = [
        each for each in read([RESULTS / "h200-kept-lines.jsonl"]).headers.values() if each["type"] == "kept-lines"
    ]
    found = {(each["mebibytes"], each["entry"], each["way"]): 1e3 * each["ms"] for each in facts}
    ways = {"flushed": "after a flush", "forgotten": "made ordinary, then a flush"}
    rows: list[tuple[Cell, ...]] = [
        (f"{size} MiB, {words}", *(f"{found[size, entry, way]:.1f}" for way in ways))
        for size in sorted({size for size, _, _ in found})
        for entry, words in (("load_ordinary", "ordinary lines"), ("load_kept", "lines to be kept"))
    ]
    return "\n".join(markdown_table(("microseconds to load", *ways.values()), rows))


def chosen() -> str:
    """How much longer winners of searches took when they were run again."""
    first: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    again: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for each in read([RESULTS / "h200-tuning.jsonl"]).points:
        where = tuple(str(each["point"][axis]) for axis in ("rung", "layer", "N"))
        (again if AGAIN in each else first)[where].append(each)
    ratios = []
    for where, records in again.items():
        winner = fastest(first[where])
        (same,) = (each for each in records if winner and each["point"] == winner["point"])
        ratios.append((median_of(same, "kernel") or nan) / (median_of(winner or {}, "kernel") or nan))
    tried = sum(len(first[where]) for where in again)
    number = f"{len(ratios)} search{'es' if len(ratios) > 1 else ''}"
    return (
        f"In {number} on an H200, of {tried} candidates, the fastest took {median(ratios):.3f} of its first time when "
        f"run again (median, from {min(ratios):.3f} to {max(ratios):.3f})."
    )


def alarms() -> str:
    """How many points were audited, how many of them refused, and how many others were judged wrong."""
    points = read(sorted((ROOT / "results").rglob("h200*.jsonl"))).points
    audited = [each for each in points if "audit" in each]
    refused = sum(each["status"] != "ok" for each in audited)
    wrong = Counter((each["point"]["rung"], each["reason"]) for each in points if each["status"] == "wrong")
    rungs = sorted({rung for rung, _ in wrong})
    found = f"; of the others {sum(wrong.values())} are `wrong`, of {', '.join(rungs)}" if wrong else ""
    return f"The H200 records in `results/` have {len(audited)} audited points, of which {refused} are refused{found}."


def lines_of(name: str) -> list[dict]:
    """The lines of a record in results/trust."""
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    """Writes the page, or says that it is stale."""
    old = PAGE.read_text()
    parts = {
        "attacks": attacks(),
        "cost": cost(),
        "kept": kept_lines(),
        "chosen": chosen(),
        "alarms": alarms(),
        "mutants": mutants(lines_of("mutants.jsonl")),
        "tried": tried(lines_of("attacks.jsonl")),
    }
    new = updated(old, parts)
    if "--check" in sys.argv[1:]:
        return check([PAGE] if new != old else [], "scripts.trust_tables", [], PAGE)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
