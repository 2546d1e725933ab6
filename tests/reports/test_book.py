"""The book: it is what records and sources say, and explains every word before it uses it."""

import json
import lzma
import re
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from alexconv.__main__ import COMMANDS
from alexconv.errors import UsageError
from alexconv.kernels.ladder import RUNGS
from alexconv.reports import book
from alexconv.reports.elements import Page
from alexconv.reports.page import BOOK, PAGE, html
from alexconv.reports.site import INDEX, Report

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = [path.name.removesuffix(".md.j2") for path in book.templates()]
FOLDER = ROOT / "docs" / "book"
SECTIONS = ("Shapes of the work", "Inside a kernel", "Instructions", "Numbers")  # of the glossary
WITHOUT_TIMES = ("00-first", "12-limits", "13-machine-code", "14-gradients", "15-whole")  # or with another table
CHECKS = tuple(f"alexconv check {name} " for name in ("first", "my_tile", "my_pipe", "my_ring"))  # of planted bugs
RECORD = "type them: python scripts/measure/book_exercises.py results/book/exercises.json.xz CHAPTER"
NVCC = shutil.which("nvcc")
FENCE = re.compile(r"^```.*?^```$|^    .*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`")
TARGET = re.compile(r"\]\([^)]*\)")


def plain(text):
    """Lower case, words and numbers alone."""
    return " ".join(re.findall(r"[a-z0-9.]+", text.lower().replace("-", " ")))


def glossary_terms():
    """The terms of the glossary's sections about kernels."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    commands = []
    for section in SECTIONS:
        body = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
        rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("| ")][1:]
        commands += [row[1].strip() for row in rows]
    assert len(commands) > 30
    return list(dict.fromkeys(commands))


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
def chapters():
    return book.chapters(ROOT / "results")


@pytest.fixture
def chapter(chapters, request):
    """The chapter whose name is the parameter."""
    return chapters[NAMES.index(request.param)]


@pytest.fixture(scope="module")
def made():
    """The files of the book and of its site."""
    files = dict(book.pages(ROOT / "results"))
    return files, dict(book.site(files))


def test_no_term_is_used_before_it_is_explained(chapters):
    assert used_too_early(chapters, glossary_terms()) == []


def test_a_term_used_too_early_is_found(chapters):
    terms = glossary_terms()
    assert used_too_early(chapters[::-1], terms)
    early = [*chapters[:2], book.Chapter("x", "x", (), "Its stages are swizzled; a *pipeline* and tiles.")]
    assert {line.partition(": ")[2] for line in used_too_early(early, terms)} >= {"stage", "pipeline", "tile"}


@pytest.mark.parametrize("chapter", NAMES, indirect=True)
def test_a_chapter_has_its_parts(chapter):
    for heading in ("## Try next", "## Exercise"):
        assert chapter.text.count(heading) == 1
    assert len(re.findall(r"!\[[^\]]+\]\(figures/[\w-]+\.svg\)", chapter.text)) == 1
    assert "Check" in chapter.text.partition("## Exercise")[2]
    for term in chapter.explains:
        assert re.search(rf"\*\*[^*]*{re.escape(term)}[^*]*\*\*", " ".join(chapter.text.split()), re.IGNORECASE), term
    if chapter.name not in WITHOUT_TIMES:
        assert "| kernel | predicted, ms | measured, ms | against cuDNN | counter |" in chapter.text
        assert "```cuda" in chapter.text


@pytest.mark.parametrize("chapter", NAMES, indirect=True)
def test_listings_are_whole(chapter):
    """They begin with a declaration, and close what they open."""
    for code in re.findall(r"```cuda\n(.*?)```", chapter.text, re.DOTALL):
        lines = code.splitlines()
        assert 2 <= len(lines) <= 36
        assert re.match(r"(//|extern|template|struct|__device__|__global__|int main|void) ?", lines[0]), lines[0]
        assert lines[-1].rstrip(";") == "}"
        assert code.count("{") == code.count("}")


@pytest.mark.parametrize("chapter", NAMES, indirect=True)
def test_an_exercise_has_a_folded_answer(chapter):
    exercise = chapter.text.partition("## Exercise")[2]
    assert re.search(r"\n<details>\n<summary>Answer</summary>\n\n.*\n\n</details>\n$", exercise, re.DOTALL)
    prose = CODE.sub(" ", FENCE.sub(" ", chapter.text))
    assert set(re.findall(r"<[^>]*>", prose)) == {"<details>", "<summary>", "</summary>", "</details>"}


@pytest.mark.parametrize("chapter", NAMES, indirect=True)
def test_what_commands_printed_is_on_record(chapter):
    """All of them were typed as they stand here, and an exercise took less than a minute."""
    recording = json.loads(lzma.decompress((ROOT / "results" / book.EXERCISES).read_bytes()))["commands"]
    typed = [answer for answer in recording if answer["chapter"] == chapter.name]
    assert [answer["command"] for answer in typed] == book.commands(chapter.text), RECORD
    assert sum(answer["seconds"] for answer in typed) < 60
    for answer in typed:
        assert answer["status"] in (0, 1)
        assert answer["status"] == 0 or answer["command"].startswith((*CHECKS, "./first_kernel")), answer


def test_predictions_that_commands_printed_are_those_of_the_records():
    sources = book.Sources(ROOT / "results")
    recording = json.loads(lzma.decompress((ROOT / "results" / book.EXERCISES).read_bytes()))["commands"]
    text = "\n".join(answer["output"] for answer in recording)
    printed = re.findall(
        r"^alexnet layer (\d) N=128 (\S+) pageable on NVIDIA H200, predicted: (\S+) ms", text, re.MULTILINE
    )
    compared = {(rung, layer): ms for layer, rung, ms in printed if rung in RUNGS}
    assert len(compared) > 10
    for (rung, layer), ms in compared.items():
        assert f"{sources.predicted(rung, int(layer)):.4g}" == ms, f"{rung}, layer {layer}: {RECORD}"


def test_what_no_command_printed_is_an_error():
    sources = book.Sources(ROOT / "results")
    with pytest.raises(UsageError, match="has 0 'alexconv nothing'"):
        sources.printed("alexconv nothing")
    with pytest.raises(UsageError, match="printed nothing with no such text"):
        sources.printed("./first_kernel", "no such text")
    with pytest.raises(UsageError, match="after line 0 has 'no such start'"):
        sources.printed("./first_kernel", start="no such start")


@pytest.mark.skipif(not NVCC, reason="nvcc is not on this machine: chapter 0's program is not compiled")
def test_the_first_program_compiles(tmp_path):
    command = [NVCC, "-Werror", "all-warnings", "-c", "-o", tmp_path / "first.o", ROOT / "examples" / "first_kernel.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("chapter", NAMES, indirect=True)
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
        sources.excerpt(file, ("no such line", "});"))
    with pytest.raises(UsageError, match="3 lines"):
        sources.excerpt(file, ("for (int", "});"))
    with pytest.raises(UsageError, match="no line"):
        sources.excerpt(file, ("for_each_output([&](int e, int f) {", "no such line"))
    with pytest.raises(UsageError, match="no record of direct on layer 9"):
        sources.ms("direct", 9)
    with pytest.raises(UsageError, match="no counters of tiled"):
        sources.counter("tiled", "fma_pipe")


def test_the_kernels_of_cudnn_are_those_of_the_record(chapters):
    sources = book.Sources(ROOT / "results")
    kernels = sources.cudnn_kernels("fp32").split(", ")
    assert kernels[:2] == ["`flip_filter`", "`fft2d_r2c_16x16` (twice)"]
    assert kernels[-1] == "`fft2d_c2r_16x16`"
    assert sources.fft_size("fp32") == 16
    assert sources.fft_size("fp32", 2) == 32
    with pytest.raises(UsageError, match="cuDNN uses no FFT in fp32 on layer 1"):
        sources.fft_size("fp32", 1)
    nested = "_ZN5cudnn3cnn23kern_precompute_indicesILb0EEEvPiiiiii"
    assert book.function_name(nested) == "kern_precompute_indices"
    assert book.function_name("sm80_xmma_gemm_f32_tn_n_tilesize64x64x8_stage3") == "sm80_xmma_gemm_f32_tn_n"
    chapter = next(chapter.text for chapter in chapters if chapter.name == "11-fewer")

    assert "576 for each pair" in chapter and "x 9 = 1521" in chapter


def test_an_excerpt_s_gaps_are_marked_and_its_braces_closed():
    code = book.Sources(ROOT / "results").excerpt(
        "shared/shared_output_tile.cu", ('extern "C" __global__', "{"), ("for (int c = 0", "if (c > 0)")
    )
    lines = [line.strip() for line in code.splitlines()]
    assert lines[:2] == ["```cuda", 'extern "C" __global__ void __launch_bounds__(THREADS)']
    body = lines[lines.index("{") + 1 : lines.index("```")]
    assert [line[:9] for line in body] == ["// ...", "for (int ", "if (c > 0", "// ...", "}", "// ...", "}"]


def test_only_paragraphs_are_reflowed():
    text = "# A\n\nOne\ntwo.  " + "word " * 40 + "a + b.\n\n| a | b |\n|---|---|\n\n```sh\nx   y\n```\n"
    page = book.reflowed(text)
    assert page.startswith("# A\n\nOne two.  word")
    assert max(map(len, page.splitlines())) <= book.COLUMNS
    assert page.endswith("| a | b |\n|---|---|\n\n```sh\nx   y\n```\n")
    for width in range(200):  # no line begins a list, wherever it is cut
        lines = book.reflowed("x" * width + " hi + lo - 1. and").splitlines()
        assert not any(re.match(r"[-+*] |\d+\. ", line) for line in lines)


def test_the_site_s_links_lead_to_files(repository_site):
    for page in sorted((repository_site / "book").glob("*.html")):
        text = page.read_text()
        assert "<svg" in text or page.name == "index.html"
        for link in re.findall(r'href="([^"#]+)', text):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_site_folds_answers(repository_site):
    for page in sorted((repository_site / "book").glob("[0-9]*.html")):
        text = page.read_text()
        assert text.count("<details>") == text.count("</details>") == text.count("<summary>Answer</summary>") == 1
        assert "&lt;details" not in text


def test_code_that_scrolls_takes_the_focus(repository_site):
    for page in sorted((repository_site / "book").glob("*.html")):
        assert all("tabindex=" in tag for tag in re.findall("<pre[^>]*>", page.read_text())), page.name


def test_the_report_links_to_the_book_where_there_is_one(repository_site):
    assert f'<a href="{BOOK}">' in (repository_site / PAGE).read_text()
    report = Report("A title", [], [], [Page(INDEX, "", "A title", "", [])], timed=True)
    assert BOOK not in html(report, {})[PAGE]
    assert BOOK in html(report, {}, BOOK)[PAGE]
