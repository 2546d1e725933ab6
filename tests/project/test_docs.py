"""The pages about the code name files that exist and words that occur in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/book/*.md"),
        *ROOT.glob("docs/report/*.md"),
        ROOT / "kernels" / "README.md",
        ROOT / "results" / "README.md",
    ]
)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
DEFINITION = re.compile(r"^\[[^\]]+\]: ([^#\n]+)", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = CODE.sub("", page.read_text())
    links = [link for link in LINK.findall(text) + DEFINITION.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_glossarys_terms_stand_in_its_files() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    entries = [row for row in rows if LINK.search(row[-1])]
    assert len(entries) > 30
    missing = []
    for _, term, *_, files in entries:
        words = plain(term)
        missing += [
            f"{term}: {link}" for link in LINK.findall(files) if words not in plain((ROOT / "docs" / link).read_text())
        ]
    assert missing == []


def plain(text: str) -> str:
    """Lower case, words and numbers alone: line breaks, comment signs and hyphens do not count."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
