"""What figures show, in the words of their titles; from the values that are drawn."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from alexconv.records.statistics import Summary, faster
from alexconv.reports.charts import Dot, Duel, Line, Stack, Step


def titled(name: str, finding: str) -> str:
    """A figure's name, and what it shows."""
    return f"{name}: {finding}" if finding else name


def fastest(rows: Sequence[Dot], words: str = "{} is fastest", *, least: bool = False) -> str:
    """The row of the largest value, or with ``least`` of the smallest, here and in the study."""
    here = {row.label: row.ours.median for row in rows if row.ours}
    there = {row.label: row.published for row in rows if row.published is not None}
    if not here:
        return ""
    own, published = (leader(values, least=least) for values in (here, there))
    beside = f", in the study {published}" if published else ""
    return words.format(own) + (", as in the study" if own == published else beside)


def by_panel(panels: Sequence[tuple[str, Sequence[Dot]]]) -> str:
    """The row of the smallest value in each panel, once if it is the same."""
    leaders = {name.partition(",")[0]: fastest(rows, least=True).replace(" *", "") for name, rows in panels}
    same = len(set(leaders.values())) == 1
    return next(iter(leaders.values())) if same else "; ".join(f"{name}, {text}" for name, text in leaders.items())


def leader(values: Mapping[str, float], *, least: bool) -> str:
    """The label of the largest or the smallest value; empty without any."""
    choose = min if least else max
    return choose(values, key=lambda label: values[label], default="")


def copies(bars: Iterable[Stack]) -> str:
    """The copies' share of the time."""
    times = [(fsum(bar.copies.values()), bar.kernel.median) for bar in bars if bar.kernel and bar.copies]
    shares = [100 * moved / (moved + kernel) for moved, kernel in times]
    return f"copies take {extent(shares, ' %')} of the time" if shares else ""


def extent(values: Sequence[float], unit: str) -> str:
    """The smallest and the largest of some values, rounded."""
    low, high = (f"{value:,.0f}" for value in (min(values), max(values)))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def span(lines: Iterable[Line]) -> str:
    """The range of some curves."""
    values = [value.median for line in lines for value in line.ours if value]
    return extent(values, "×") if values else ""


def wins(rows: Iterable[tuple[str, str, Summary | None]]) -> str:
    """Which of several rungs has the larger value at how many places; rows are rung, place and value."""
    places: dict[str, dict[str, float]] = {}
    for rung, place, value in rows:
        if value:
            places.setdefault(place, {})[rung] = value.median
    leaders = Counter(leader(values, least=False) for values in places.values())
    return "; ".join(f"{name} is faster on {count} of {len(places)} layers" for name, count in leaders.items())


def climb(steps: Sequence[Step]) -> str:
    """The fastest rung of a ladder, next to its first."""
    last = min(steps, key=lambda step: step.own.median)
    ratio = steps[0].own.median / last.own.median
    whole = "" if not last.partly else " with its parents"
    return f"{last.name}{whole} is fastest, {faster(ratio)} than {steps[0].name}" if last is not steps[0] else ""


def leap(steps: Sequence[Step]) -> str:
    """The largest gain of a rung over its parent."""
    gains = {step.name: step.parent / step.own.median for step in steps if step.parent}
    most = leader(gains, least=False)
    return f"the largest step is {most}, {faster(gains[most])} than its parent" if most and gains[most] > 1 else ""


def duels_won(panels: Iterable[tuple[str, Sequence[Duel]]]) -> str:
    """On how many rows ours is faster than the peer in each of its layouts."""
    rows = [(duel.ours, [ms for ms in duel.theirs.values() if ms]) for _, duels in panels for duel in duels]
    met = [(ours, theirs) for ours, theirs in rows if ours and theirs]
    won = sum(ours < min(theirs) for ours, theirs in met)
    return f"ours is faster on {won} of {len(met)} rows" if met else ""


def batching(lines: Iterable[Line]) -> str:
    """What the largest batch saves per image, for the line that is fastest there."""
    ends = {line.label: (line.x[0], line.ours[0], line.x[-1], line.ours[-1]) for line in lines if not line.quiet}
    whole = {label: times for label, times in ends.items() if times[1] and times[3]}
    label = leader({label: last.median for label, (_, _, _, last) in whole.items() if last}, least=True)
    if not label:
        return ""
    few, first, many, last = whole[label]
    ratio = first.median / last.median if first and last else 1.0
    return f"an image takes {ratio:.3g}× less at N={many:g} than at N={few:g} with {label}" if ratio > 1 else ""
