"""What a report's pages are: an index, and a page for each workload, study and topic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.records.labels import device_name
from alexconv.records.store import joined, read_file
from alexconv.reports import (
    alexnet,
    batches,
    card,
    coverage,
    diagnostics,
    history,
    interactive,
    ladder,
    layer_pages,
    lenet,
    orderings,
    overview,
    peers,
    predicted,
    rooflines,
    rung_pages,
    scaling,
    speed_error,
    transfers,
    winners,
)
from alexconv.reports.comparison import Frontier, gathered
from alexconv.reports.elements import Page, Plot, Section, Table
from alexconv.reports.measurements import Measurements, layer_numbers
from alexconv.reports.measurements import measurements as measurements_of
from alexconv.reports.published import ALEXNET_STUDY

INDEX = "index"
TABLES, FIGURES = "tables", "figures"  # folders beside the pages
UNTIMED = (
    "These records come from the host executor, which runs the kernels on the CPU to verify them: nothing in this "
    "report is a GPU time. Correctness, launches and memory hold for a GPU too."
)
FIRST_FACTS = ("Device", "Cards", "Driver", "Toolkit")  # the others are folded away
KINDS = {  # the lists of pages, in the order of the index
    "layer": "Layers",
    "workload": "Workloads",
    "study": "Studies",
    "topic": "Data and method",
    "rung": "Rungs",
}


@dataclass(frozen=True)
class Report:
    """A report before it has a file format; its first page is the index."""

    title: str
    facts: list[tuple[str, str]]
    bases: list[tuple[str, str]]
    pages: list[Page]
    timed: bool
    headline: str = ""  # the result in a sentence or two; empty where nothing was timed

    def tables(self) -> Iterator[Table]:
        """All tables in order."""
        return (item for item in self._items() if isinstance(item, Table))

    def plots(self) -> Iterator[Plot]:
        """All figures in order."""
        return (item for item in self._items() if isinstance(item, Plot))

    def _items(self) -> Iterator[Table | Plot]:
        """Tables and figures of all pages, each once."""
        items = (item for page in self.pages for section in page.sections for item in section.items)
        return iter({item.key: item for item in items}.values())


def report_of(files: Sequence[Path], device: str | None = None, ladder: Ladder = LADDER) -> Report:
    """The report of record files, of the device whose name has this text; raises UsageError."""
    by_file = {path: read_file(path) for path in files}
    measured = measurements_of(joined(by_file.values()), device, ladder)
    return compose(measured, gathered(by_file, device_name(measured.device), ladder))


def compose(measurements: Measurements, frontier: Frontier | None = None) -> Report:
    """The pages and sections that the records have something for.

    ``frontier`` are the comparisons with cuDNN, each within one of the files.
    """
    pages = [
        *(layer_pages.pages(measurements, frontier) if measurements.timed else ()),
        *(workload_page(measurements, workload, frontier) for workload in measurements.workloads),
        *study_pages(measurements),
        *topic_pages(measurements, frontier),
        *rung_pages.pages(measurements, frontier),
    ]
    shown_pages = [coverage_page(measurements, pages), *(page for page in pages if page.sections)]
    title = f"Convolution on {overview.device_line(measurements.device).partition(',')[0]}"
    bases = overview.bases(measurements) if measurements.timed else []
    return Report(
        title,
        overview.facts(measurements),
        bases,
        [index_page(measurements, frontier, title), *shown_pages],
        measurements.timed,
        peers.headline(measurements, frontier),
    )


def index_page(measurements: Measurements, frontier: Frontier | None, title: str) -> Page:
    """Which kernel is best on which layer and why, and the ladder; the site's lists of pages follow."""
    sections = []
    for workload in measurements.workloads[:1] if measurements.timed else ():
        best = winners.brief_table(measurements, frontier, workload, layer_numbers(workload))
        drawn = [
            item for item in ladder.section(measurements, workload, frontier).items if item.key == f"{workload}-ladder"
        ]
        sections = [Section("best", "Which kernel is best, and why", "", [best, *drawn])]
    return Page(INDEX, "", title, "", sections)


def with_items(*sections: Section) -> list[Section]:
    """The sections that have something to show."""
    return [section for section in sections if section.items or section.code]


def workload_page(measurements: Measurements, workload: str, frontier: Frontier | None) -> Page:
    """A workload's times: the ladder, peers, rooflines, errors, transfers, batches."""
    sections = []
    if measurements.timed:
        sections = [
            ladder.section(measurements, workload, frontier),
            peers.section(measurements, workload, frontier),
            overview.section(measurements, workload),
            *([lenet.defaults(measurements, workload)] if workload in STUDY_WORKLOADS.values() else []),
            replace(
                rooflines.section(measurements, workload), charts=interactive.roofline(measurements, workload, frontier)
            ),
            speed_error.section(measurements, workload),
            transfers.section(measurements, workload),
            batches.section(measurements, workload, frontier),
            orderings.section(measurements, workload),
        ]
    return Page(workload, "workload", workload, "All layers of the workload.", with_items(*sections), name=workload)


def study_pages(measurements: Measurements) -> Iterator[Page]:
    """What the studies published, beside ours."""
    first = with_items(alexnet.section(measurements))
    yield Page(ALEXNET_STUDY, "study", f"The AlexNet study, {ALEXNET_STUDY}", "", first, name=ALEXNET_STUDY)
    for study, workload in STUDY_WORKLOADS.items():
        sections = with_items(lenet.section(measurements, study))
        text = f"Its layers are those of {workload}."
        facts = [("Programs that differ", lenet.VARIANTS)]
        yield Page(study, "study", f"The LeNet-style study {study}", text, sections, facts, name=study)


def coverage_page(measurements: Measurements, pages: Sequence[Page]) -> Page:
    """Which page has which table or figure of the studies."""
    titles = {item.key: item.title for page in pages for section in page.sections for item in section.items}
    lenets = any(name in measurements.workloads for name in STUDY_WORKLOADS.values()) and measurements.timed
    variants = Section(
        "variants",
        "Variants of the LeNet-style studies",
        "How many of the studies' variants stand beside a rung with the same constants.",
        [lenet.coverage(measurements)] if lenets else [],
    )
    sections = [coverage.section(titles), *with_items(variants)]
    return Page("coverage", "topic", "Coverage of the studies", "", sections)


def topic_pages(measurements: Measurements, frontier: Frontier | None) -> Iterator[Page]:
    """Constants, streams, counters, correctness, launches, method."""
    parts = diagnostics.sections(measurements)
    runs = Section("runs", "Runs", "Where the figures come from.", [overview.runs_table(measurements)])
    yield Page("constants", "topic", "Constants and streams", "", with_items(parts["constants"], parts["streams"]))
    yield Page("counters", "topic", "Counters", "", with_items(parts["profiles"]))
    yield Page("correctness", "topic", "Correctness", "", [parts["correctness"], diagnostics.problems(measurements)])
    yield Page("launches", "topic", "Launches and memory", "", with_items(parts["launches"]))
    several = with_items(scaling.section(measurements))
    past = with_items(history.section(measurements, frontier)) if measurements.timed else []
    ahead = with_items(predicted.section(measurements)) if measurements.timed else []
    yield Page("predicted", "topic", "The ladder's times without a GPU", "", ahead)
    yield Page("card", "topic", card.TITLE, "", card.sections(measurements))
    yield Page("history", "topic", "History over commits and cards", "", past)
    yield Page("method", "topic", "Method and runs", "", [*(with_items(runs) if measurements.timed else []), *several])
