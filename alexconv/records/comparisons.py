"""Points of two record files beside each other: which became faster or slower."""

from collections.abc import Sequence
from dataclasses import dataclass

from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.records.faults import fault_of
from alexconv.records.labels import changed_in, changed_today, label_of
from alexconv.records.statistics import FEWEST_FOR_INTERVAL, ratio_of
from alexconv.records.store import Record, Records, identity

FASTER, SLOWER, SAME, UNCLEAR = VERDICTS = ("FASTER", "SLOWER", "SAME", "UNCLEAR")
MARGIN = 0.03


@dataclass(frozen=True)
class Comparison:
    """A point's verdict, and B's median over A's with its interval."""

    label: str
    verdict: str
    ratio: float
    low: float
    high: float
    point: Record  # its axes
    before: Sequence[float]  # samples in ms
    after: Sequence[float]
    same_bits: bool | None  # of the outputs; None unless both records have their digests, and of the same inputs


def judge(before: Sequence[float], after: Sequence[float], margin: float = MARGIN) -> tuple[str, float, float, float]:
    """Verdict, ratio after/before and its interval.  Raises ValueError if a side has no samples."""
    interval = ratio_of([after], [before])
    ratio, low, high = interval.value, interval.low, interval.high
    least, most = 1 / (1 + margin), 1 + margin
    if min(len(before), len(after)) < FEWEST_FOR_INTERVAL:
        verdict = UNCLEAR
    elif high < 1 and ratio <= least:
        verdict = FASTER
    elif low > 1 and ratio >= most:
        verdict = SLOWER
    else:
        verdict = SAME if least <= low and high <= most else UNCLEAR
    return verdict, ratio, low, high


def compare(
    before: Records, after: Records, figure: str, margin: float = MARGIN, ladder: Ladder = LADDER
) -> list[Comparison]:
    """Every point that is ok and timed in both, in the order of the second."""
    old_records, new_records = timed(before, figure, ladder), timed(after, figure, ladder)
    same_models = not {*map(before.model, old_records)}.isdisjoint(map(after.model, new_records))
    known = {matched(before, record, same_models): record for record in old_records}
    comparisons = []
    for name, record in {matched(after, record, same_models): record for record in new_records}.items():
        if old := known.get(name):
            samples = old["samples"][figure], record["samples"][figure]
            verdict, ratio, low, high = judge(*samples, margin)
            if old.get("throttled") or record.get("throttled"):
                verdict = UNCLEAR
            changed = changed_today(record["point"], ladder) if same_models else changed_in(record)
            label = label_of(record["point"], changed)
            bits = same_bits(old, record)
            comparisons.append(Comparison(label, verdict, ratio, low, high, record["point"], *samples, bits))
    return comparisons


def same_bits(before: Record, after: Record) -> bool | None:
    """Whether two records' outputs have the same bits; None where a digest is missing or the inputs differ."""
    first, second = (record["audit"]["digests"] if digested(record) else {} for record in (before, after))
    if not first or not second or first["inputs"] != second["inputs"]:
        return None
    return bool(first["outputs"] == second["outputs"])


def bits_compared(comparisons: Sequence[Comparison]) -> tuple[int, list[str]]:
    """How many points have digests of outputs in both, and the labels of those with other bits."""
    both = [item for item in comparisons if item.same_bits is not None]
    return len(both), [item.label for item in both if not item.same_bits]


def digested(record: Record) -> bool:
    """Whether a record has digests of its outputs and of the inputs that they are of."""
    audit = record.get("audit")
    digests = audit.get("digests") if isinstance(audit, dict) else None
    return isinstance(digests, dict) and digests.keys() >= {"inputs", "outputs"}


def matched(records: Records, record: Record, same_models: bool) -> tuple[str, str]:
    """By what a point of one file is found in the other; of files with a model in common, on its own model."""
    if not same_models:
        return identity(record["point"] | {"constants": changed_in(record)}), ""
    return identity(record["point"]), records.model(record)


def timed(records: Records, figure: str, ladder: Ladder = LADDER) -> list[Record]:
    """The latest record of each point, on each model, that is ok and has the figure's samples."""
    return [
        record
        for record in records.latest()
        if fault_of(record, ladder) is None and record["status"] == "ok" and record.get("samples", {}).get(figure)
    ]


def devices_of(records: Records) -> list[Record]:
    """The headers of devices."""
    return [header for header in records.headers.values() if header["type"] == "device"]
