"""The report's page in a real browser: it loads alone, sorts its tables, and fits a phone and a desktop."""

import csv
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report_records import whole_report

from alexconv.reports.elements import Section, Table
from alexconv.reports.page import Report
from alexconv.reports.page import html as write_html

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
)
TIME_MS = 20_000  # of the page's own clock
PHONE, DESKTOP = 390, 1280

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium found: apt-get install chromium")

# Runs beside the page, which lies in a frame of a screen's width: what the page holds, before and after clicks.
PROBE = """
onload = () => {
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const table = page.querySelector("[id='%(table)s'] table");
  const head = [...table.tHead.rows[0].cells].find(cell => cell.textContent.includes("%(column)s"));
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[head.cellIndex].textContent);
  const before = column();
  head.firstElementChild.click();
  const rising = column(), sort = head.getAttribute("aria-sort");
  head.firstElementChild.click();
  const falling = column();
  for (const details of page.querySelectorAll("details")) {
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  }
  const blocks = [...page.body.querySelectorAll("body > *, section, p, h2, h3, dl, figure, article, nav")];
  const wide = blocks.filter(block => block.getBoundingClientRect().right > root.clientWidth + 1);
  document.querySelector("pre").textContent = JSON.stringify({
    before, rising, falling, sort, wide: wide.map(block => block.outerHTML.slice(0, 99)),
    width: root.clientWidth, scroll: root.scrollWidth,
    tables: page.querySelectorAll("table").length, figures: page.querySelectorAll("figure svg").length,
    rows: Object.fromEntries([...page.querySelectorAll("article")].map(each =>
      [each.id, each.querySelectorAll("tbody tr").length])),
    unreachable: [...page.querySelectorAll(".scroll")].filter(each => each.tabIndex !== 0
      || each.getAttribute("role") !== "region" || !each.getAttribute("aria-label")).length,
    narrow: [...page.querySelectorAll(".drawing")].filter(each => each.scrollWidth > each.clientWidth).length,
    loaded: page.defaultView.performance.getEntriesByType("resource").map(entry => entry.name),
  });
};
"""

# Puts the rules for print in force and tells which blocks would be cut on paper, which letters are too small to read,
# and which headings would have nothing under them.
PRINTED = """
onload = () => {
  const page = document.querySelector("iframe").contentDocument, view = page.defaultView;
  for (const sheet of page.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule.media && rule.media.mediaText === "print") rule.media.mediaText = "all";
  if (%(event)s) view.dispatchEvent(new Event("beforeprint"));
  const seen = (block, what) => [...block.querySelectorAll(what)].some(each => each.checkVisibility());
  const articles = [...page.querySelectorAll("article")];
  const details = [...page.querySelectorAll("header details, footer details")];
  const pointers = articles.filter(each => seen(each, ".paper"));
  const bare = articles.filter(each => !seen(each, "tbody tr") && !pointers.includes(each));
  const closed = details.filter(each => !seen(each, "summary") || !seen(each, "dd"));
  const cells = [...page.querySelectorAll("td, th")].filter(cell => cell.checkVisibility());
  const blocks = [...page.querySelectorAll(".scroll")].filter(block => block.offsetParent);
  const cut = blocks.filter(block => view.getComputedStyle(block).overflowX !== "visible"
    || view.getComputedStyle(block).overflowY !== "visible" || block.scrollWidth > block.clientWidth + 1);
  document.querySelector("pre").textContent = JSON.stringify({
    blocks: blocks.length, cut: cut.map(block => block.getAttribute("aria-label")),
    bare: [...bare, ...closed].map(each => each.textContent.slice(0, 99)),
    pointers: Object.fromEntries(pointers.map(each => [each.id, each.querySelector(".paper").textContent])),
    doubled: pointers.filter(each => seen(each, "table")).map(each => each.id),
    smallest: Math.min(...cells.map(cell => parseFloat(view.getComputedStyle(cell).fontSize))),
    rows: page.querySelectorAll("#launches tbody tr").length, details: details.length,
    still_open: (view.dispatchEvent(new Event("afterprint")), page.querySelectorAll("#launches details[open]").length),
  });
};
"""
PAPER = 1047  # CSS pixels of the 277 mm between the margins of A4, landscape
SMALLEST_PX = 8  # 6 pt


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report of everything."""
    whole = whole_report(tmp_path_factory.getbasetemp()) / "index.html"
    return Path(shutil.copy(whole, tmp_path_factory.mktemp("browser")))


def browse(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Opens a file in a fresh browser."""
    assert BROWSER
    fresh = f"--user-data-dir={file.parent / 'profile'}"
    command = [BROWSER, *QUIET, fresh, f"--virtual-time-budget={TIME_MS}", *options, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def probe(page: Path, width: int, table: str, column: str) -> dict:
    """What the probe finds in the page at a width."""
    return framed(page, width, PROBE % {"table": table, "column": column}, f"probe-{width}-{table}.html")


def framed(page: Path, width: int, script: str, name: str) -> dict:
    """What a script finds in the page, which lies in a frame of a width."""
    frame = f'<iframe style="width:{width}px;height:800px;border:0" srcdoc="{html.escape(page.read_text())}"></iframe>'
    file = page.with_name(name)
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8><pre></pre>{frame}<script>{script}</script>")
    done = browse(file, "--dump-dom")
    found = re.search(r"<pre>(.+?)</pre>", done.stdout, re.DOTALL)
    assert found, done.stderr
    return dict(json.loads(html.unescape(found[1])))


def test_the_page_loads_from_a_file_without_a_complaint(page: Path) -> None:
    done = browse(page, "--dump-dom")
    assert "NVIDIA Test 9000" in done.stdout
    assert "CONSOLE" not in done.stderr


def test_a_complaint_would_be_noticed(page: Path) -> None:
    broken = page.with_name("broken.html")
    broken.write_text(page.read_text().replace("</body>", '<img src="https://example.invalid/x.png"></body>'))
    assert "CONSOLE" in browse(broken, "--dump-dom").stderr


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_is_wider_than_the_screen(page: Path, width: int) -> None:
    seen = probe(page, width, "table-4", "N")
    assert abs(seen["width"] - width) < 20, "the frame may have a scroll bar"
    assert seen["scroll"] <= seen["width"]
    assert seen["wide"] == []
    assert seen["tables"] > 20
    assert seen["figures"] > 30
    assert seen["loaded"] == []
    assert min(seen["rows"].values()) > 0
    assert seen["unreachable"] == 0
    assert (seen["narrow"] > 0) == (width == PHONE), "figures scroll on a phone only"


def test_tables_that_are_opened_have_all_their_rows(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = whole_report(tmp_path_factory.getbasetemp())
    rows = probe(page, DESKTOP, "table-4", "N")["rows"]
    for path in (folder / "tables").glob("*.csv"):
        assert rows[path.stem] == len(list(csv.reader(path.read_text().splitlines()))) - 1


@pytest.fixture(scope="module", params=["true", "false"], ids=["beforeprint", "no event"])
def printed(page: Path, request: pytest.FixtureRequest) -> dict:
    """The page as it is printed, by a browser that tells the page so and by one that does not."""
    return framed(page, PAPER, PRINTED % {"event": request.param}, f"printed-{request.param}.html")


def test_nothing_is_cut_or_scrolled_or_too_small_on_paper(printed: dict) -> None:
    assert printed["blocks"] > 50
    assert printed["cut"] == []
    assert printed["smallest"] >= SMALLEST_PX


def test_every_heading_on_paper_has_its_content_or_names_the_file(printed: dict) -> None:
    assert printed["details"] == 2
    assert printed["bare"] == printed["doubled"] == []
    assert printed["rows"] == printed["still_open"] == 0, "a long table is printed if it was opened before"
    assert "launches" in printed["pointers"]
    for key, text in printed["pointers"].items():
        assert f"tables/{key}.csv" in text


def test_a_table_too_broad_for_paper_names_its_file_there(tmp_path: Path) -> None:
    tables = [Table(f"of-{size}", "title", "", ("column",) * size, [(1.0,) * size]) for size in (24, 25)]
    page = tmp_path / "broad.html"
    page.write_text(
        write_html(Report("title", [("Clocks", "1980 MHz")], [], [Section("all", "all", "", list(tables))], True), {})
    )
    seen = framed(page, PAPER, PRINTED % {"event": "true"}, "printed.html")
    assert list(seen["pointers"]) == ["of-25"]
    assert seen["bare"] == seen["doubled"] == []


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="no pdftotext found: apt-get install poppler-utils")
def test_a_table_has_its_heads_on_each_of_its_pages(page: Path) -> None:
    alone = page.with_name("alone.html")
    others = r'<article id="(?!alexnet-layers").*?</article>|<figure .*?</figure>'
    opened = "for (const each of document.querySelectorAll('article details')) { fill(each); each.open = true; }"
    text = re.sub(others, "", page.read_text(), flags=re.DOTALL)
    alone.write_text(text.replace("</body>", f"<script>{opened}</script></body>"))
    pdf = alone.with_suffix(".pdf")
    browse(alone, f"--print-to-pdf={pdf}")
    done = subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, text=True, timeout=60, check=True)
    rows = [sheet for sheet in done.stdout.split("\f") if re.search(r"\bok +\w", sheet)]
    assert len(rows) > 5
    assert [sheet for sheet in rows if "transfer" not in sheet] == []


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace(",", "")) for text in texts if text != "–"]


def test_tables_sort_by_number_on_click_and_back(page: Path) -> None:
    seen = probe(page, DESKTOP, "table-10", "direct-filter-shared (ms)")
    assert seen["sort"] == "ascending"
    assert numbers(seen["before"]) != sorted(numbers(seen["before"]))
    assert numbers(seen["rising"]) == sorted(numbers(seen["rising"]))
    assert numbers(seen["falling"]) == numbers(seen["rising"])[::-1]
    assert any("," in text for text in seen["rising"]) or max(numbers(seen["rising"])) < 1000


def test_missing_cells_stay_last_and_texts_sort_as_they_read(page: Path) -> None:
    gaps = probe(page, DESKTOP, "lenet-86-k7-op-times", "N=5000, study (ms)")
    assert gaps["rising"][-1] == gaps["falling"][-1] == "–"
    texts = [text for text in probe(page, DESKTOP, "alexnet-peers-table", "fastest rung")["rising"] if text != "–"]
    assert texts == sorted(texts) and len(set(texts)) > 1
