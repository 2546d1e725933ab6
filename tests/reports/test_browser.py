"""The report's site in a real browser: it loads alone, sorts and chooses rows, finds, and fits phone and desktop."""

import csv
import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from report_records import kernel_ms, whole_report

from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.records.statistics import faster
from alexconv.reports.comparison import FP32
from alexconv.reports.elements import Chart, Page, Section, Table
from alexconv.reports.page import PAGE
from alexconv.reports.page import html as write_html
from alexconv.reports.site import Report

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
AXE = next(
    (
        path
        for folder in ("/usr/lib/node_modules", "/usr/local/lib/node_modules")
        if (path := Path(folder, "axe-core", "axe.min.js")).is_file()
    ),
    None,
)
DARK = re.compile(r"@media \(prefers-color-scheme: ?dark\)")
TIME_MS = 20_000  # of the page's own clock
PHONE, DESKTOP, WIDE = 390, 1280, 1440
AT_ONCE = 12  # pages in one browser
EACH_RUNG = 8  # of the rungs' pages, which are alike, every eighth
MOST_NODES = 12_000  # of a page whose tables are all opened
MOST_ROWS = 64  # of a table before it is asked for more

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium found: apt-get install chromium")

# Measures each page, in a frame of a screen's width, after opening its tables.
PROBE = """
const looked = page => {
  const root = page.documentElement;
  for (const details of page.querySelectorAll("details")) {
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  }
  const blocks = [...page.body.querySelectorAll("body > *, section, p, h2, h3, dl, figure, article, nav")];
  const wide = blocks.filter(block => block.getBoundingClientRect().right > root.clientWidth + 1);
  return {
    wide: wide.map(block => block.outerHTML.slice(0, 99)), width: root.clientWidth, scroll: root.scrollWidth,
    nodes: page.querySelectorAll("*").length,
    tables: page.querySelectorAll("table").length, figures: page.querySelectorAll("figure img").length,
    rows: Object.fromEntries([...page.querySelectorAll("article:has(table)")].map(each =>
      [each.id, each.querySelectorAll("tbody tr").length])),
    counted: Object.fromEntries([...page.querySelectorAll("article:has(output)")].map(each =>
      [each.id, each.querySelector("output").textContent])),
    unreachable: [...page.querySelectorAll(".scroll")].filter(each => each.tabIndex !== 0
      || each.getAttribute("role") !== "region" || !each.getAttribute("aria-label")).length,
    narrow: [...page.querySelectorAll(".drawing")].filter(each => each.scrollWidth > each.clientWidth).length,
    loaded: page.defaultView.performance.getEntriesByType("resource").map(entry => entry.name),
  };
};
"""

# Sorts a table by a column, twice.
SORTED = """
const looked = page => {
  const table = page.querySelector("[id='%(table)s'] table");
  const head = [...table.tHead.rows[0].cells].find(cell => cell.textContent.includes("%(column)s"));
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[head.cellIndex].textContent);
  const before = column();
  head.firstElementChild.click();
  const rising = column(), sort = head.getAttribute("aria-sort");
  head.firstElementChild.click();
  return { before, rising, falling: column(), sort };
};
"""

# Chooses rows of a table by a column's value, then by words, and asks for more rows.
CHOSEN = """
const looked = page => {
  const details = page.querySelector("#launches details"), article = page.querySelector("#launches");
  details.open = true;
  details.dispatchEvent(new Event("toggle"));
  const rows = () => [...article.querySelectorAll("tbody tr")].map(row => [...row.cells].map(cell => cell.textContent));
  const first = rows().length, labels = [...article.querySelectorAll("label")];
  article.querySelector(".more").click();
  const second = rows().length, label = labels.find(each => each.textContent.startsWith("layer"));
  const choice = label.querySelector("select");
  const words = article.querySelector("input");
  choice.value = "3";
  choice.dispatchEvent(new Event("change"));
  const third = rows();
  words.value = "vector channels";
  words.dispatchEvent(new Event("input"));
  return { first, second, third, fourth: rows(), told: article.querySelector("output").textContent };
};
"""

# Opens all tables, and returns the ids of those that are wider than their place.
CUT = """
const looked = page => {
  for (const details of page.querySelectorAll("details")) {
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  }
  const blocks = [...page.querySelectorAll("article .scroll:has(table)")];
  const cut = blocks.filter(block => block.scrollWidth > block.clientWidth + 1);
  return { tables: blocks.length, cut: cut.map(block => block.closest("article").id) };
};
"""

# Types into the search, and returns what it finds once search.js is loaded.
SEARCHED = """
const looked = page => new Promise(done => {
  const field = page.querySelector(".search input");
  field.value = "table 4";
  field.dispatchEvent(new Event("input"));
  setTimeout(() => done([...page.querySelectorAll(".search li a")].map(link => link.getAttribute("href"))), 500);
});
"""

# Under the rules for print, returns the blocks that would be cut on paper, the smallest text, and the headings with
# nothing below them.
PRINTED = """
const looked = page => {
  const view = page.defaultView;
  if (%(event)s) view.dispatchEvent(new Event("beforeprint"));
  const seen = (block, what) => [...block.querySelectorAll(what)].some(each => each.checkVisibility());
  const articles = [...page.querySelectorAll("article:has(table)")];
  const details = [...page.querySelectorAll("footer details")];
  const pointers = articles.filter(each => seen(each, ".paper"));
  const bare = articles.filter(each => !seen(each, "tbody tr") && !pointers.includes(each));
  const closed = details.filter(each => !seen(each, "summary") || !seen(each, "dd"));
  const cells = [...page.querySelectorAll("td, th")].filter(cell => cell.checkVisibility());
  const blocks = [...page.querySelectorAll(".scroll")].filter(block => block.offsetParent);
  const cut = blocks.filter(block => view.getComputedStyle(block).overflowX !== "visible"
    || view.getComputedStyle(block).overflowY !== "visible" || block.scrollWidth > block.clientWidth + 1);
  return {
    blocks: blocks.length, cut: cut.map(block => block.getAttribute("aria-label")),
    bare: [...bare, ...closed].map(each => each.textContent.slice(0, 99)),
    pointers: Object.fromEntries(pointers.map(each => [each.id, each.querySelector(".paper").textContent])),
    doubled: pointers.filter(each => seen(each, "table")).map(each => each.id),
    smallest: Math.min(1e9, ...cells.map(cell => parseFloat(view.getComputedStyle(cell).fontSize))),
    rows: page.querySelectorAll("#launches tbody tr").length, details: details.length,
    still_open: (view.dispatchEvent(new Event("afterprint")), page.querySelectorAll("#launches details[open]").length),
  };
};
"""

# Looks at each frame in turn.
EACH = """
onload = async () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) found[frame.name] = await looked(frame.contentDocument);
  document.querySelector("pre").textContent = JSON.stringify(found);
};
"""
# Steps through the rungs of a roofline to the last, in all classes.
STEPPED = """
const looked = page => {
  const figure = page.querySelector("[data-kind=roofline]"), [back, on] = figure.querySelectorAll("button");
  const [layer, kind] = figure.querySelectorAll("select"), name = () => figure.querySelector(".panel a").textContent;
  Object.assign(layer, { value: "3" }).onchange();
  Object.assign(kind, { value: "all" }).onchange();
  const names = [name()];
  while (!on.disabled) { on.click(); names.push(name()); }
  const told = [...figure.querySelectorAll(".panel p")].map(each => each.textContent);
  back.click();
  return { names, told, back: name(), dots: figure.querySelectorAll("circle").length };
};
"""

# Moves a layer's slider to each batch size.
SLID = """
const looked = page => {
  const figure = page.querySelector("[data-kind=batches]"), slider = figure.querySelector("input");
  return [...Array(Number(slider.max) + 1).keys()].map(place => {
    slider.value = String(place);
    slider.dispatchEvent(new Event("input"));
    const texts = [...figure.querySelectorAll("text")].map(each => each.textContent);
    return [figure.querySelector(".panel").textContent, ...texts];
  });
};
"""
# Moves each diagram's slider to its end.
ENDED = """
const looked = page => Object.fromEntries([...page.querySelectorAll(".chart")].map(figure => {
  const slider = figure.querySelector("input");
  slider.value = slider.max;
  slider.dispatchEvent(new Event("input"));
  return [figure.dataset.kind, [figure.querySelector(".panel").textContent, figure.querySelectorAll("rect").length]];
}));
"""
# The line of the source that is chosen at first, then that of an instruction.
LISTED = """
const looked = page => {
  const figure = page.querySelector(".chart"), told = figure.querySelector(".panel");
  const [source, code] = figure.querySelectorAll(".pane");
  const chosen = pane => [...pane.querySelectorAll(".chosen")].map(each => each.textContent), first = told.textContent;
  const lines = chosen(source), instructions = chosen(code).length;
  code.querySelector("button").click();
  return { first, lines, instructions, second: told.textContent, last: chosen(source) };
};
"""
# Runs axe-core over a page, with all of it open: the rules that are broken, how often, and where first.
JUDGED = """
const looked = page => new Promise(done => {
  for (const details of page.querySelectorAll("details")) {
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
  }
  const script = page.createElement("script");
  script.src = "axe.min.js";
  script.onload = async () => {
    const found = await page.defaultView.axe.run(page, { resultTypes: ["violations"], %(rules)s });
    done(found.violations.map(each => [each.id, each.nodes.length, each.nodes[0].html.slice(0, 199)]));
  };
  page.querySelector("head, title").append(script);
});
"""
PAPER = 1047  # CSS pixels of the 277 mm between the margins of A4, landscape
SMALLEST_PX = 8  # 6 pt


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a report of everything."""
    whole = whole_report()
    return Path(shutil.copytree(whole, tmp_path_factory.mktemp("browser") / "site"))


@pytest.fixture(scope="module")
def pages(site: Path) -> list[str]:
    """The names of its pages, with only one rung's and one layer's."""
    names = sorted(path.name for path in site.glob("*.html"))
    of_kind = {kind: [name for name in names if name.startswith(kind)] for kind in ("rung-", "layer-")}
    others = [name for name in names if not name.startswith(tuple(of_kind))]
    return others + [name for group in of_kind.values() for name in group[:1]]


def browse(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Opens a file in a fresh browser."""
    assert BROWSER
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # the browser may still be exiting
        command = [BROWSER, *QUIET, f"--user-data-dir={profile}", f"--virtual-time-budget={TIME_MS}"]
        return subprocess.run([*command, *options, file.as_uri()], capture_output=True, text=True, check=True)


def framed(
    site: Path, pages: list[str], width: int, script: str, name: str, styles: str = "site.css"
) -> dict[str, Any]:
    """What a script finds in each of the pages, in frames of a width."""
    style = f"width:{width}px;height:800px;border:0"
    texts = {page: (site / page).read_text().replace("site.css", styles) for page in pages}
    frames = [
        f'<iframe name="{page}" style="{style}" srcdoc="{html.escape(text)}"></iframe>' for page, text in texts.items()
    ]
    file = site / f"probe-{name}-{width}.htm"
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8><pre></pre>{''.join(frames)}<script>{script}{EACH}</script>")
    done = browse(file, "--dump-dom")
    output = re.search(r"<pre>(.+?)</pre>", done.stdout, re.DOTALL)
    assert output, done.stderr
    return dict(json.loads(html.unescape(output[1])))


def test_a_page_loads_from_a_file_without_a_complaint(site: Path) -> None:
    done = browse(site / "index.html", "--dump-dom")
    assert "NVIDIA Test 9000" in done.stdout
    assert "CONSOLE" not in done.stderr


def test_a_complaint_would_be_noticed(site: Path) -> None:
    broken = site / "broken.htm"
    broken.write_text((site / PAGE).read_text().replace("</body>", '<img src="https://example.invalid/x.png"></body>'))
    assert "CONSOLE" in browse(broken, "--dump-dom").stderr


@pytest.fixture(scope="module")
def probed(site: Path, pages: list[str]) -> dict[int, dict[str, Any]]:
    """What the probe finds in the pages, by the screen's width."""
    return {width: framed(site, pages, width, PROBE, "probe") for width in (PHONE, DESKTOP)}


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_is_wider_than_the_screen(
    site: Path, pages: list[str], probed: dict[int, dict[str, Any]], width: int
) -> None:
    facts_of = probed[width]
    assert len(facts_of) == len(pages) > 10
    for name, facts in facts_of.items():
        assert abs(facts["width"] - width) < 20, "the frame may have a scroll bar"
        assert facts["scroll"] <= facts["width"], name
        assert facts["wide"] == [], name
        assert facts["nodes"] < MOST_NODES, name
        assert all(address.startswith(site.as_uri()) for address in facts["loaded"]), name
        assert min(facts["rows"].values(), default=1) > 0, name
        assert facts["unreachable"] == 0, name
        assert (facts["narrow"] > 0) == (width == PHONE and facts["figures"] > 0), "figures scroll on a phone only"
    assert sum(facts["tables"] for facts in facts_of.values()) > 40
    assert sum(facts["figures"] for facts in facts_of.values()) > 40


@pytest.mark.long
def test_no_table_is_cut_on_a_wide_screen(repository_site: Path) -> None:
    every = sorted(path.name for path in repository_site.glob("*.html"))
    rungs = [name for name in every if name.startswith("rung-")]
    names = [name for name in every if name not in rungs] + rungs[::EACH_RUNG]
    tables, cut = 0, []
    for first in range(0, len(names), AT_ONCE):
        facts_of = framed(repository_site, names[first:][:AT_ONCE], WIDE, CUT, f"cut-{first}")
        tables += sum(page["tables"] for page in facts_of.values())
        cut += [(name, key) for name, page in facts_of.items() for key in page["cut"]]
    assert len(names) > 35 and len(every) > 70 and tables > 150
    assert cut == []


@pytest.fixture(scope="module")
def with_axe(repository_site: Path) -> Path:
    """The repository's site with axe-core."""
    if AXE is None:
        pytest.skip("no axe-core found: npm install --global axe-core@4")
    shutil.copy(AXE, repository_site)
    return repository_site


def in_the_dark(site: Path, name: str) -> str:
    """The name of a copy of a page with the colours of a dark screen."""
    (site / "dark.css").write_text(DARK.sub("@media all", (site / "site.css").read_text()))
    copy = site / f"dark-{name.replace('/', '-')}.htm"
    copy.write_text(DARK.sub("@media all", (site / name).read_text().replace("site.css", "dark.css")))
    return copy.name


@pytest.mark.long
def test_every_kind_of_page_is_accessible_by_light_and_dark(with_axe: Path) -> None:
    names = ["index.html", "layer-alexnet-3.html", "lenet-72-k7.html", "ece408-2023.html", "counters.html"]
    names += ["rung-wgmma-split.html", "rung-direct.html", "book/00-first.html"]
    light = framed(with_axe, names, DESKTOP, JUDGED % {"rules": ""}, "axe")
    of_colours = JUDGED % {"rules": 'runOnly: ["color-contrast"]'}
    dark = framed(with_axe, [in_the_dark(with_axe, name) for name in names], DESKTOP, of_colours, "axe-dark")
    assert len(light) == len(dark) == len(names)
    assert {name: violations for name, violations in (light | dark).items() if violations} == {}


def test_axe_would_notice(with_axe: Path) -> None:
    text = (with_axe / "index.html").read_text()
    (with_axe / "faulty.htm").write_text(text.replace("</main>", '<img src="x.png"></main>'))
    violations = framed(with_axe, ["faulty.htm"], DESKTOP, JUDGED % {"rules": ""}, "faulty")["faulty.htm"]
    assert "image-alt" in {rule for rule, _, _ in violations}


def test_tables_that_are_opened_have_all_their_rows_or_say_how_many(
    site: Path, probed: dict[int, dict[str, Any]]
) -> None:
    facts_of = probed[DESKTOP]
    rows = {key: count for facts in facts_of.values() for key, count in facts["rows"].items()}
    counted = {key: text for facts in facts_of.values() for key, text in facts["counted"].items()}
    for path in (site / "tables").glob("*.csv"):
        whole = len(list(csv.reader(path.read_text().splitlines()))) - 1
        if path.stem in rows:
            assert rows[path.stem] == min(whole, MOST_ROWS), path.stem
        assert (
            counted.get(path.stem, f"{min(whole, MOST_ROWS)} of {whole} rows")
            == f"{min(whole, MOST_ROWS)} of {whole} rows"
        )
    assert len(rows) > 40
    assert any(int(text.split(" ")[2]) > MOST_ROWS for text in counted.values())


def test_rows_are_chosen_by_value_and_by_words(site: Path) -> None:
    facts = framed(site, ["launches.html"], DESKTOP, CHOSEN, "chosen")["launches.html"]
    assert (facts["first"], facts["second"]) == (MOST_ROWS, 2 * MOST_ROWS)
    assert len(facts["third"]) == MOST_ROWS
    assert {row[1] for row in facts["third"]} == {"3"}
    assert facts["fourth"]
    assert all({"3"} == {row[1]} and "channels-vector" in row[3] for row in facts["fourth"])
    assert facts["told"].startswith(f"{len(facts['fourth'])} of ")


def test_a_roofline_is_stepped_through_in_ladder_order(site: Path) -> None:
    steps = framed(site, ["alexnet.html"], DESKTOP, STEPPED, "stepped")["alexnet.html"]
    names = [name.partition(": ")[2] for name in steps["names"]]
    assert names == [rung.name for rung in LADDER]
    assert steps["dots"] == len(names) and steps["back"].endswith(f": {names[-2]}")
    last = kernel_ms("alexnet", 3, 128, len(names) - 1)
    parent = [rung.name for rung in LADDER].index(LADDER[-1].parent or "")
    assert f"{last:#.3g} ms" in steps["told"][1]
    assert f"{faster(kernel_ms('alexnet', 3, 128, parent) / last)} than its parent" in steps["told"][1]


def test_a_slider_shows_the_fastest_kernels_of_each_batch_size(site: Path) -> None:
    steps = framed(site, ["layer-alexnet-3.html"], DESKTOP, SLID, "slid")["layer-alexnet-3.html"]
    fastest = [rung.name for rung in LADDER if FP32.kept_by(rung)][-1]
    for N, (message, *texts) in zip((1, 32, 128), steps, strict=False):
        ms = f"{kernel_ms('alexnet', 3, N, [*RUNGS].index(fastest)):#.3g} ms"
        assert message.startswith(f"N = {N}: {fastest}, ")
        assert texts[texts.index(fastest) + 1] == ms
        assert ("cuDNN NCHW fp32" in texts) == (N == 128)


def test_diagrams_reach_their_last_step(site: Path) -> None:
    names = ["rung-wgmma-split.html", "rung-igemm-stream-k.html", "rung-wgmma-winograd.html"]
    diagrams = framed(site, names, DESKTOP, ENDED, "ended")
    assert [set(diagrams[name]) for name in names] == [{"tile", "ring", "waves"}, {"ring", "waves"}, {"winograd"}]
    assert "At 2.00: 0 blocks run" in diagrams[names[0]]["waves"][0]
    assert "100 % of the time" in diagrams[names[1]]["waves"][0]
    assert diagrams[names[2]]["winograd"][0].startswith("Tile 3 of 3: 7 inputs, 7 products")
    assert all(rectangles > 3 for drawn in diagrams.values() for _, rectangles in drawn.values())


def test_a_line_of_source_shows_its_instructions(site: Path) -> None:
    rows = [("MOV R1, R2", 10.0, "toy.cu:1"), ("FFMA R0, R1, R2, R0", 60.0, "toy.cu:2"), ("EXIT", 30.0, "toy.cu:2")]
    data = {"kernels": {"toy": rows}, "files": {"toy.cu": ["first", "second"]}}
    page = Page("toy", "rung", "toy", "", [Section("code", "", "", charts=[Chart("code", "toy", "", "listing", data)])])
    (site / "toy.htm").write_text(write_html(Report("title", [], [], [page], True), {})["toy.html"])
    listing = framed(site, ["toy.htm"], DESKTOP, LISTED, "listed")["toy.htm"]
    assert listing["first"] == "toy.cu:2: 2 of 3 instructions, 90.0 % of the cycles."
    assert (listing["lines"], listing["instructions"]) == (["90.0  2  second"], 2)
    assert listing["second"] == "toy.cu:1: 1 of 3 instructions, 10.0 % of the cycles."
    assert listing["last"] == ["10.0  1  first"]


def test_the_search_finds_a_table_by_its_title(site: Path) -> None:
    addresses = framed(site, ["index.html"], DESKTOP, SEARCHED, "searched")["index.html"]
    assert addresses[0] == "purdue-2020.html#table-4"


def on_paper(site: Path, pages: list[str], event: str, name: str) -> dict[str, Any]:
    """What is found in pages under the rules for print."""
    rules = (site / "site.css").read_text()
    assert rules.count("@media print") == 1
    (site / "print.css").write_text(rules.replace("@media print", "@media all"))
    return framed(site, pages, PAPER, PRINTED % {"event": event}, name, "print.css")


@pytest.fixture(scope="module", params=["true", "false"], ids=["beforeprint", "no event"])
def printed(site: Path, pages: list[str], request: pytest.FixtureRequest) -> dict[str, Any]:
    """The pages as printed by a browser that sends ``beforeprint`` and by one that does not."""
    return on_paper(site, pages, request.param, f"printed-{request.param}")


def test_nothing_is_cut_or_scrolled_or_too_small_on_paper(printed: dict[str, Any]) -> None:
    assert sum(facts["blocks"] for facts in printed.values()) > 80
    for name, facts in printed.items():
        assert facts["cut"] == [], name
        assert facts["smallest"] >= SMALLEST_PX, name


def test_every_heading_on_paper_has_its_content_or_names_the_file(printed: dict[str, Any]) -> None:
    assert printed["index.html"]["details"] == 2
    for name, facts in printed.items():
        assert facts["bare"] == facts["doubled"] == [], name
        for key, text in facts["pointers"].items():
            assert f"tables/{key}.csv" in text or "open it on the page" in text
    facts = printed["launches.html"]
    assert facts["rows"] == facts["still_open"] == 0, "a long table is printed if it was opened before"
    assert "launches" in facts["pointers"]


def test_a_table_too_broad_for_a_page_links_to_its_file(site: Path) -> None:
    tables = [Table(f"of-{size}", "title", "", ("column",) * size, [(1.0,) * size]) for size in (24, 25)]
    page = Page("broad", "topic", "title", "", [Section("all", "all", "", list(tables))])
    (site / "broad.htm").write_text(write_html(Report("title", [], [], [page], True), {})["broad.html"])
    facts = on_paper(site, ["broad.htm"], "true", "broad")["broad.htm"]
    assert (facts["blocks"], facts["bare"], facts["pointers"]) == (1, [], {})
    assert '1 rows, 25 columns: <a href="tables/of-25.csv">' in (site / "broad.htm").read_text()


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="no pdftotext found: apt-get install poppler-utils")
def test_a_table_has_its_header_on_every_page(site: Path) -> None:
    alone = site / "alone.htm"
    others = r'<article id="(?!alexnet-layers").*?</article>|<figure .*?</figure>'
    text = re.sub(others, "", (site / "alexnet.html").read_text(), flags=re.DOTALL)
    alone.write_text(text.replace("<details>", "<details open>"))
    pdf = alone.with_suffix(".pdf")
    browse(alone, f"--print-to-pdf={pdf}")
    done = subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, text=True, check=True)
    rows = [sheet for sheet in done.stdout.split("\f") if re.search(r"\bok +\w", sheet)]
    assert len(rows) > 5
    assert [sheet for sheet in rows if "transfer" not in sheet] == []


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace(",", "")) for text in texts if text != "–"]


def in_order(site: Path, page: str, table: str, column: str) -> dict[str, Any]:
    """A column before it is sorted, rising and falling."""
    return dict(framed(site, [page], DESKTOP, SORTED % {"table": table, "column": column}, f"sorted-{table}")[page])


def test_tables_sort_by_number_on_click_and_back(site: Path) -> None:
    orders = in_order(site, "purdue-2020.html", "table-10", "direct-filter-shared (ms)")
    assert orders["sort"] == "ascending"
    assert numbers(orders["before"]) != sorted(numbers(orders["before"]))
    assert numbers(orders["rising"]) == sorted(numbers(orders["rising"]))
    assert numbers(orders["falling"]) == numbers(orders["rising"])[::-1]
    assert any("," in text for text in orders["rising"]) or max(numbers(orders["rising"])) < 1000


def test_missing_cells_stay_last_and_texts_sort_as_they_read(site: Path) -> None:
    gaps = in_order(site, "ece408-2023.html", "ece408-2023-op-times", "N=5000, here (ms)")
    assert gaps["rising"][-1] == gaps["falling"][-1] == "–"
    cells = in_order(site, "alexnet.html", "alexnet-peers-table", "fastest rung")["rising"]
    texts = [text for text in cells if text != "–"]
    assert texts == sorted(texts) and len(set(texts)) > 1
