"""The book: it is what records and sources say, and explains every word before it uses it."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from alexconv.__main__ import COMMANDS
from alexconv.errors import UsageError
from alexconv.reports import book
from alexconv.reports.elements import Page
from alexconv.reports.page import BOOK, PAGE, html
from alexconv.reports.site import INDEX, Report

ROOT = Path(__file__).resolve().parent.parent.parent
CHAPTERS = book.chapters(ROOT / "results")
FOLDER = ROOT / "docs" / "book"
SECTIONS = ("Shapes of the work", "Inside a kernel", "Instructions", "Numbers")  # of the glossary
FENCE = re.compile(r"^```.*?^```$|^    .*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`")
TARGET = re.compile(r"\]\([^)]*\)")


def plain(text):
    """Lower case, words and numbers alone."""
    return " ".join(re.findall(r"[a-z0-9.]+", text.lower().replace("-", " ")))


def glossary_terms():
    """The terms of the glossary's sections about kernels."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    found = []
    for section in SECTIONS:
        body = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
        rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("| ")][1:]
        found += [row[1].strip() for row in rows]
    assert len(found) > 30
    return list(dict.fromkeys(found))


def uses(text, term):
    """Whether prose uses a term: not in code, in a link's target or as part of another word."""
    prose = plain(TARGET.sub("]", CODE.sub(" ", FENCE.sub(" ", text))))
    return re.search(rf"(?<![a-z0-9]){re.escape(plain(term))}(?:s|es)?(?![a-z0-9])", prose) is not None


def used_too_early(chapters, terms):
    """Terms that a chapter uses before the one that explains them, or that none explains."""
    known, early = set(), []
    for chapter in chapters:
        known |= {plain(term) for term in chapter.explains}
        early += [f"{chapter.name}: {term}" for term in terms if plain(term) not in known and uses(chapter.text, term)]
    return early


@pytest.fixture(scope="module")
def made():
    """The files of the book and of its site."""
    files = dict(book.pages(ROOT / "results"))
    return files, dict(book.site(files))


def test_no_term_is_used_before_it_is_explained():
    assert used_too_early(CHAPTERS, glossary_terms()) == []


def test_a_term_used_too_early_is_found():
    terms = glossary_terms()
    assert used_too_early(CHAPTERS[::-1], terms)
    early = [*CHAPTERS[:2], book.Chapter("x", "x", (), "Its stages are swizzled; a *pipeline* and tiles.")]
    assert {line.partition(": ")[2] for line in used_too_early(early, terms)} >= {"stage", "pipeline", "tile"}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_a_chapter_has_its_parts(chapter):
    assert 10 <= len(CHAPTERS) <= 12
    for heading in ("## Try next", "## Exercise"):
        assert chapter.text.count(heading) == 1
    assert len(re.findall(r"!\[[^\]]+\]\(figures/[\w-]+\.svg\)", chapter.text)) == 1
    assert "Check" in chapter.text.partition("## Exercise")[2]
    for term in chapter.explains:
        assert re.search(rf"\*\*[^*]*{re.escape(term)}[^*]*\*\*", " ".join(chapter.text.split()), re.IGNORECASE), term
    if chapter is not CHAPTERS[-1]:
        assert "| kernel | predicted, ms | measured, ms | of cuDNN's speed | the counter |" in chapter.text
    if chapter is not CHAPTERS[-1]:
        assert "```cuda" in chapter.text
    for code in re.findall(r"```cuda\n(.*?)```", chapter.text, re.DOTALL):
        assert 2 <= len(code.splitlines()) <= 26


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_commands_of_exercises_have_the_options_that_they_use(chapter):
    commands = re.findall(r"^alexconv (.*)$", chapter.text, re.MULTILINE)
    assert commands
    for command in commands:
        name, *words = shlex.split(command)
        options = import_module(COMMANDS[name]).parser()
        known = {option for action in options._actions for option in action.option_strings}
        assert {word for word in words if word.startswith("--")} <= known, command


def test_excerpts_that_are_not_there_are_an_error():
    sources = book.Sources(ROOT / "results")
    file = "single/direct.cu"
    with pytest.raises(UsageError, match=r"0 lines of kernels/single/direct\.cu"):
        sources.excerpt(file, "no such line", "});")
    with pytest.raises(UsageError, match="3 lines"):
        sources.excerpt(file, "for (int", "});")
    with pytest.raises(UsageError, match="no line"):
        sources.excerpt(file, "for_each_output([&](int e, int f) {", "no such line")
    with pytest.raises(UsageError, match="no record of direct on layer 9"):
        sources.ms("direct", 9)
    with pytest.raises(UsageError, match="no counters of tiled"):
        sources.counter("tiled", "fma_pipe")


def test_the_kernels_of_cudnn_are_those_of_the_record():
    sources = book.Sources(ROOT / "results")
    kernels = sources.cudnn_kernels("fp32").split(", ")
    assert kernels[:2] == ["`flip_filter`", "`fft2d_r2c_16x16` (2 times)"]
    assert kernels[-1] == "`fft2d_c2r_16x16`"
    assert sources.fft_size("fp32") == 16
    assert sources.fft_size("fp32", 2) == 32
    with pytest.raises(UsageError, match="cuDNN uses no FFT in fp32 on layer 1"):
        sources.fft_size("fp32", 1)
    nested = "_ZN5cudnn3cnn23kern_precompute_indicesILb0EEEvPiiiiii"
    assert book.function_name(nested) == "kern_precompute_indices"
    assert book.function_name("sm80_xmma_gemm_f32_tn_n_tilesize64x64x8_stage3") == "sm80_xmma_gemm_f32_tn_n"
    chapter = next(chapter.text for chapter in CHAPTERS if chapter.name == "11-fewer")

    assert "576 for each pair" in chapter and "x 9 = 1521" in chapter


def test_only_paragraphs_are_reflowed():
    text = "# A\n\nOne\ntwo.  " + "word " * 40 + "a + b.\n\n| a | b |\n|---|---|\n\n```sh\nx   y\n```\n"
    found = book.reflowed(text)
    assert found.startswith("# A\n\nOne two.  word")
    assert max(map(len, found.splitlines())) <= book.COLUMNS
    assert found.endswith("| a | b |\n|---|---|\n\n```sh\nx   y\n```\n")
    for width in range(200):  # no line begins a list, wherever it is cut
        lines = book.reflowed("x" * width + " hi + lo - 1. and").splitlines()
        assert not any(re.match(r"[-+*] |\d+\. ", line) for line in lines)


def test_the_site_s_links_lead_to_files(repository_site):
    for page in sorted((repository_site / "book").glob("*.html")):
        text = page.read_text()
        assert "<svg" in text or page.name == "index.html"
        for link in re.findall(r'href="([^"#]+)', text):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_code_that_scrolls_takes_the_focus(repository_site):
    for page in sorted((repository_site / "book").glob("*.html")):
        assert all("tabindex=" in tag for tag in re.findall("<pre[^>]*>", page.read_text())), page.name


def test_the_report_links_to_the_book_where_there_is_one(repository_site):
    assert f'<a href="{BOOK}">' in (repository_site / PAGE).read_text()
    report = Report("A title", [], [], [Page(INDEX, "", "A title", "", [])], timed=True)
    assert BOOK not in html(report, {})[PAGE]
    assert BOOK in html(report, {}, BOOK)[PAGE]
