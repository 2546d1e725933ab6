"""The pages of the repository that show results: they are what the record files say, and stale ones are noticed."""

import re
from pathlib import Path

import pytest
from report_records import published_report

from alexconv.errors import UsageError
from alexconv.reports import build
from alexconv.reports.generated import BEGINS, markers, updated
from alexconv.reports.site import Report

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_pages_are_what_the_records_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "published", lambda results: published_report())  # of the same records
    assert build.main(["--check"]) == 0, capsys.readouterr().err


def test_every_part_between_markers_is_generated() -> None:
    files = (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("results/*/README.md"))
    pages = {str(page.relative_to(ROOT)): page.read_text() for page in files}
    marked = {page for page, text in pages.items() if re.search(BEGINS, text)}
    assert marked == {*build.PAGES, "docs/architecture.md"}  # whose table is that of a test


def test_stale_pages_are_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / build.REPORT
    files = {"page.md": "1 ms", "docs/report/missing.csv": "", "docs/same.svg": "<svg><text>1</text></svg>"}
    for name, text in {"page.md": "2 ms", "docs/same.svg": "<svg> <text y='1'>1</text></svg>"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("results/none", "docs/report/left.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(build, "CHECKOUT", tmp_path)
    monkeypatch.setattr(build, "published", lambda results: Report("", [], [], [], timed=False))
    monkeypatch.setattr(build, "texts", lambda report: {Path(name): text for name, text in files.items()})
    assert build.main(["--check"]) == 1
    message = "stale: page.md, docs/report/missing.csv, docs/report/left.csv: run make report"
    assert capsys.readouterr().err.strip() == message
    assert (folder / "left.csv").exists() and (tmp_path / "page.md").read_text() == "2 ms"
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    assert [path.name for path in folder.glob("*.csv")] == ["missing.csv"]
    assert (tmp_path / "page.md").read_text() == "1 ms"


def test_parts_stand_between_their_markers() -> None:
    marks = [markers(name) for name in ("one", "two")]
    page = "before\n" + "\nmiddle\n".join(f"{begin}\nold\n{end}" for begin, end in marks) + "\nafter\n"
    text = updated(page, {"two": "2 ms", "one": "1 ms"})
    assert text == page.replace("old", "1 ms", 1).replace("old", "2 ms")
    with pytest.raises(UsageError, match="has no markers <!-- three: begin -->"):
        updated(page, {"one": "", "two": "", "three": ""})
    with pytest.raises(UsageError, match="has markers of two, which its record files do not give"):
        updated(page, {"one": ""})


def test_a_missing_record_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path} has no h200-main-job.jsonl")):
        build.PAGES["docs/commands.md"](tmp_path)
