"""Compares two record files: which points became faster or slower.

python -m alexconv.compare A B

For each point in both files, B's median time over A's, with a 95 % bootstrap
confidence interval.  A verdict needs significance and size:

FASTER, SLOWER   the interval excludes 1, and the medians differ by the margin
SAME             the whole interval lies within the margin
UNCLEAR          anything else: a wide interval, too few samples (a longer
                 --seconds takes more), or throttled clocks

The margin stands for run-to-run variation, which the samples of one run do not
show: two runs of the same program on the same GPU differ.

A point on one model of card matches the same point on that model.  Where A and
B have no model in common, points match whose constants are the defaults of
their card, whatever their values, and those with the same changed ones.

It also says whether outputs have the same bits in both, where both records have
their digests (timed on a GPU, from the same inputs, by a rung whose sums have a
fixed order).
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.messages import print_to_stderr
from alexconv.options import exits_cleanly, positive, program
from alexconv.own.folders import add_own, ladder_of
from alexconv.records.comparisons import (
    MARGIN,
    SLOWER,
    VERDICTS,
    Comparison,
    bits_compared,
    compare,
    devices_of,
    timed,
)
from alexconv.records.faults import fault_of
from alexconv.records.labels import device_name
from alexconv.records.statistics import Ratio, faster, faster_between
from alexconv.records.store import AXES, Records, read

MOST_NUMBERS, MOST_LETTERS = 10, 40  # shown of unreadable lines, and of a value
FIGURES = ("kernel", "kernel_cold", "kernel_sustained", "prepare", "total", "h2d", "d2h")


def left_out(records: Records, ladder: Ladder = LADDER) -> Iterator[str]:
    """Why lines and points are left out: a line for unreadable lines, and one for each faulty point."""
    if records.unreadable:
        yield f"{len(records.unreadable)} unreadable lines: {', '.join(map(str, records.unreadable[:MOST_NUMBERS]))}"
    for record in records.latest():
        if fault := fault_of(record, ladder):
            axes = (str(value)[:MOST_LETTERS] for value in list(record["point"].values())[: AXES.index("precision")])
            yield f"the point {' '.join(axes)}: {fault}"


def devices(records: Records) -> str:
    """The names of the devices in a file."""
    names = [device_name(header) for header in devices_of(records) if header.get("name") or header.get("backend")]
    return ", ".join(dict.fromkeys(names)) or "an unnamed device"


def bits_of(comparisons: Sequence[Comparison]) -> str:
    """How many points have the same output bits in both files, and which have others."""
    known, others = bits_compared(comparisons)
    if not known:
        return "bits of outputs: no common point has digests of outputs from the same inputs in both"
    return f"bits of outputs: the same in {known - len(others)} of {known} points" + "".join(
        f"\n  differ: {label}" for label in others
    )


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per point and a summary; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=program("alexconv.compare"), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, metavar="A", help="record file to compare with")
    parser.add_argument("after", type=Path, metavar="B", help="record file to judge")
    parser.add_argument(
        "--figure",
        default="kernel",
        choices=FIGURES,
        metavar="FIGURE",
        help=f"time to compare: {', '.join(FIGURES)} (default: kernel)",
    )
    parser.add_argument(
        "--margin", type=positive, default=MARGIN, help=f"smallest relative change that counts (default: {MARGIN})"
    )
    parser.add_argument(
        "--fail-on-slower", action="store_true", help="exit status 1 if any point is SLOWER, 2 if none is common"
    )
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="also write a site with both files side by side")
    add_own(parser)
    options = parser.parse_args(arguments)
    ladder = ladder_of(options)
    before, after = read([options.before]), read([options.after])
    for path, records in ((options.before, before), (options.after, after)):
        for line in left_out(records, ladder):
            print_to_stderr(f"{path}: left out: {line}")
        if not records.points:
            raise UsageError(f"the record file {path} holds no points")
    comparisons = compare(before, after, options.figure, options.margin, ladder)
    if options.fail_on_slower and not comparisons:
        raise UsageError(f"--fail-on-slower: no point has {options.figure} times in both files")
    for item in comparisons:
        within = faster_between(Ratio(item.ratio, item.low, item.high).inverse())
        print(f"{item.verdict:<8} {faster(1 / item.ratio):<13} ({within})  {item.label}")
    counts = Counter(item.verdict for item in comparisons)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    ours, theirs = (len(timed(records, options.figure, ladder)) for records in (before, after))
    print(f"{options.figure} time of B over A, {devices(after)} over {devices(before)}: {summary}")
    common = len(comparisons)
    print(f"{common} common points with times; {ours - common} only in A, {theirs - common} only in B")
    print(bits_of(comparisons))
    if options.out:
        pages = import_module("alexconv.reports.side_by_side")  # by its name: nothing else here needs the reports
        files = (options.before, before), (options.after, after)
        print(pages.write(comparisons, options.figure, files, options.out, ladder))
    return int(options.fail_on_slower and counts[SLOWER] > 0)


if __name__ == "__main__":
    sys.exit(main())
