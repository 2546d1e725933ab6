"""The report's Markdown pages: they show what the site shows, their links resolve, and a hosting site renders them."""

import re
from pathlib import Path

from report_records import published_report

from alexconv.reports.elements import Plot
from alexconv.reports.markdown import in_file, items_of, markdown_pages, slug
from alexconv.reports.site import UNTIMED, report_of

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "report"
PAGES = {path.name: path.read_text() for path in REPORT.glob("*.md")}
MOST_BYTES = 100_000


def test_pages_are_small() -> None:
    assert {name for name, text in PAGES.items() if len(text.encode()) > MOST_BYTES} == set()


def test_every_table_and_figure_but_those_of_rungs_is_on_a_page() -> None:
    report, whole = published_report(), "\n".join(PAGES.values())
    pages = [page for page in report.pages if page.kind != "rung"]
    every = {item.key: item for page in pages for section in page.sections for item in section.items}
    assert {key for key, item in every.items() if isinstance(item, Plot) or item.csv} <= {
        i.key for i in items_of(report)
    }
    for item in items_of(report):
        link = f"figures/{item.key}.svg" if isinstance(item, Plot) else f"tables/{item.key}.csv"
        assert f"\n### {item.title}\n" in whole
        if isinstance(item, Plot) or in_file(item):
            assert f"]({link})" in whole and (REPORT / link).is_file()


def test_links_lead_to_headings() -> None:
    anchors = {
        name: {slug(title) for title in re.findall(r"^#+ (.+)", text, re.MULTILINE)} for name, text in PAGES.items()
    }
    links = [
        link for text in PAGES.values() for link in re.findall(r"^\[[^\]]+\]: (\S+\.md)#(\S+)", text, re.MULTILINE)
    ]
    assert len(links) > 50
    assert [(page, anchor) for page, anchor in links if anchor not in anchors[page]] == []


def test_names_in_brackets_have_an_address() -> None:
    for name, text in PAGES.items():
        used = set(re.findall(r"\| \[([^\]|]+)\](?= [|(\[])", text))
        defined = set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))
        assert defined <= used, name
        assert all("=" in missing for missing in used - defined), name  # constants


def test_sources_are_folded_at_the_end() -> None:
    for name, text in PAGES.items():
        shown = text.partition("<details><summary>Source")[0]
        captions = [line for line in shown.splitlines() if not line.startswith(("|", "- **Cards**"))]
        assert not [line for line in captions if "(GPU-" in line or "alexconv run" in line], name


def test_pages_of_a_cpu_s_records_say_so() -> None:
    report = report_of([ROOT / "results" / "host" / "main-job.jsonl"])
    assert all(UNTIMED in text for text in markdown_pages(report).values())
    assert not any(UNTIMED in text for text in PAGES.values())


def test_a_slug_is_that_of_the_hosting_site() -> None:
    assert slug("Fig. 3a: speedup of layer 1, N=128 (ms)") == "fig-3a-speedup-of-layer-1-n128-ms"
