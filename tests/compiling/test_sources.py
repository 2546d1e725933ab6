"""Keys of compiled kernels depend on everything that the compiler sees, and on nothing else."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ladders import PERSISTENT

from alexconv.compiling.nvcc import cubin_key, lasting_path
from alexconv.compiling.sources import source_digest, source_files, tokens
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER
from alexconv.kernels.rung import FOLDER
from alexconv.kernels.stages.ladder import STAGE_RUNGS

RUNGS = (*ALL_DIRECTIONS, *STAGE_RUNGS, PERSISTENT)
LITERALS = [
    *('"a // b"', '"/*"', '"*/"', '"it\'s"', '"\\""', '"\\\\"', 'u8"x"', 'L"x"_km', '"%0, %1;"', '""'),
    *("'\"'", "'\\''", "'/'", "L'x'", "1'000'000", "0x1p-3f", "1.5e+3", ".5", "1e9f", "0b1'0"),
    *('R"(a // b)"', 'R"(/*)"', 'R"x(")")x"', 'R"(two\nlines \\\n three)"', 'u8R"--(it\'s)--"'),
]
OPERATORS = [*"+-*/%&|^<>=!~?:;,.()[]{}", "++", "->", "<<<", ">>>", "<<=", "::", "...", "->*", "&&", ">=", "<=", "##"]
NAMES = ["x", "threadIdx", "R", "fooR", "u8", "include", "define", "été", "a$b", "__syncthreads"]
TOKENS = LITERALS + OPERATORS + NAMES
# Each separates two tokens, in a directive or anywhere.
SPACES = [
    " ",
    "\t",
    "  ",
    " \\\n",
    "\\\n ",
    " \\ \t\n",
    "/* it's */",
    '/* " */',
    "/* // */",
    "/**/",
    '/* R"( */',
    " \\\r\n",
]
BREAKS = [
    *(
        "\n",
        "\n\n\n",
        "\r\n",
        "// a comment\n",
        "// it's\n",
        '// "\n',
        '// R"(\n',
        "// on \\\nand on\n",
        "/* a\n * b\n */",
    ),
    *(
        '/*\n#include "none"\n*/',
        "//* not a block\n",
        "/\\\n/ spliced\n",
        "/\\\n* spliced *\\\n/",
        "// /*\n",
        "/*\\\n*/",
    ),
]

code = st.lists(st.sampled_from([token for token in TOKENS if token != "##"]), min_size=1, max_size=8)
directive = st.one_of(
    st.lists(st.sampled_from(TOKENS), max_size=5).map(lambda rest: ["#", "define", "NAME", *rest]),
    st.lists(st.sampled_from(TOKENS), max_size=5).map(lambda rest: ["#", "define", "NAME(", "a", ")", *rest]),
    st.sampled_from(
        [["#", "pragma", "unroll"], ["#", "ifdef", "NAME"], ["#", "endif"], ["#", "include", "<a//b.h>"], ["#"]]
    ),
)
program = st.lists(st.one_of(code, code, directive), min_size=1, max_size=6)


def written(program: Sequence[Sequence[str]], data: st.DataObject) -> str:
    """The program's text: white space and comments between any two tokens, each directive on its own line."""
    inside, anywhere = st.sampled_from(SPACES), st.sampled_from(SPACES + BREAKS)

    def some(kind: st.SearchStrategy[str], *, least: int) -> str:
        drawn = "".join(data.draw(st.lists(kind, min_size=least, max_size=2)))
        return f" {drawn}" if drawn.startswith(("/", "\\")) else drawn  # not right after a / or within a word

    text = some(anywhere, least=0)
    for line in program:
        if line[0] == "#":
            words = [line[0], *(some(inside, least=i > 0) + word for i, word in enumerate(line[1:]))]
            # a directive has its line to itself
            text += "\n" + some(inside, least=0) + "".join(words) + some(inside, least=0) + "\n"
        else:
            text += "".join(some(anywhere, least=1) + word for word in line) + some(anywhere, least=1)
    return text


def plain(program: Sequence[Sequence[str]]) -> list[list[str]]:
    """The tokens, with neighbouring lines of code joined."""
    lines: list[list[str]] = []
    for line in program:
        if lines and "#" not in (line[0], lines[-1][0]):
            lines[-1] += line
        else:
            lines.append(list(line))
    return lines


@settings(deadline=None)
@given(program, st.data())
def test_comments_and_white_space_change_nothing(program, data):
    assert tokens(written(program, data)) == tokens(written(program, data))


@settings(deadline=None)
@given(program, st.data())
def test_any_other_token_changes_the_key(program, data):
    line = data.draw(st.integers(0, len(program) - 1))
    place = data.draw(st.integers(0, len(program[line]) - 1))
    old = program[line][place]
    new = data.draw(st.sampled_from([token for token in [*TOKENS, "NAME", "pragma"] if token != old]))
    if old == "#" or (line and old == "NAME("):
        new = "changed"
    changed = [list(words) for words in program]
    changed[line][place] = new
    assert tokens(written(program, data)) != tokens(written(changed, data))


@settings(deadline=None)
@given(program, program, st.data())
def test_tokens_differ_exactly_when_programs_do(one, other, data):
    assert (tokens(written(one, data)) == tokens(written(other, data))) == (plain(one) == plain(other))


@pytest.mark.parametrize(
    "one, other",
    [
        ("a b", "ab"),
        ("+ +", "++"),
        ("a > > b", "a >> b"),
        ('u8 "x"', 'u8"x"'),
        ('"x" _km', '"x"_km'),
        ("#define f(x) x", "#define f (x) x"),
        ("#pragma unroll\nx", "#pragma unroll x"),
        ("x\n#y", "x #y"),
        ("'a'", "'b'"),
        ('"a b"', '"a  b"'),
        ('R"(a b)"', 'R"(a  b)"'),
        ('R"(a\\\nb)"', 'R"(ab)"'),
        ('"a"', 'R"(a)"'),
        ("a /* b */", "a /* b */ */"),
        ("a // b\\\nc", "a // b\nc"),
        ("#include <a//b>", "#include <a//c>"),
        ("1'000 + 'x'", "1'000 + 'y'"),
    ],
)
def test_similar_sources_have_different_tokens(one, other):
    assert tokens(one) != tokens(other)


def headers(folder: Path, **texts: str) -> Path:
    """Files by name; returns the kernel's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder / "kernel.cu"


def test_headers_count_by_content_and_order_whatever_their_names(tmp_path):
    one, two = "#pragma once\nint a;\n", "#pragma once\nint b;\n"
    kernel = '#include "a.cuh"\n#include "b.cuh"\nint c;\n'
    key = source_digest(headers(tmp_path / "1", a__cuh=one, b__cuh=two, kernel__cu=kernel), {})
    renamed = kernel.replace("a.cuh", "../2/x.cuh").replace("b.cuh", "y.cuh")
    assert source_digest(headers(tmp_path / "2", x__cuh=one, y__cuh=two, kernel__cu=renamed), {}) == key
    assert source_digest(headers(tmp_path / "3", a__cuh=two, b__cuh=one, kernel__cu=kernel), {}) != key
    assert source_digest(headers(tmp_path / "4", a__cuh=one, kernel__cu=kernel), {}) != key  # b.cuh is missing
    commented = '/* #include "b.cuh" */ #include "a.cuh" // "b.cuh"\n#include "b.cuh"\nint c;'
    assert source_digest(headers(tmp_path / "5", a__cuh=one, b__cuh=two, kernel__cu=commented), {}) == key


def test_an_include_that_is_repeated_counts(tmp_path):
    """The first of two may be in a branch that is not compiled."""
    once = '#if X\n#include "a.cuh"\n#endif\n'
    first = headers(tmp_path / "1", a__cuh="int a;", kernel__cu=once)
    second = headers(tmp_path / "2", a__cuh="int a;", kernel__cu=once + '#include "a.cuh"\n')
    assert source_digest(first, {}) != source_digest(second, {})


def test_files_that_include_each_other_end(tmp_path):
    kernel = headers(tmp_path, a__cuh='#include "kernel.cu"\n', kernel__cu='#include "a.cuh"\nint a;\n')
    assert [file.name for file in source_files(kernel)] == ["kernel.cu", "a.cuh"]
    assert len(source_digest(kernel, {})) == 32


def test_macros_flags_and_lines_count(tmp_path):
    kernel = headers(tmp_path / "1", kernel__cu="int a;\n")
    shifted = headers(tmp_path / "2", kernel__cu="// a comment\nint a;\n")
    keys = {
        source_digest(kernel, {}),
        source_digest(kernel, {"TILE": 8}),
        source_digest(kernel, {"TILE": 16}),
        source_digest(kernel, {}, "-O3"),
        source_digest(kernel, {}, exact=True),
        source_digest(shifted, {}, exact=True),
    }
    assert len(keys) == 6
    assert source_digest(shifted, {}) in keys


@pytest.mark.parametrize(
    "directive",
    ['#include "a.cuh"', '%:include"a.cuh"', '# /* " */ include /* it\'s */ "a.cuh"', '#include \\\n  "a.cuh"'],
)
def test_headers_count_by_their_bytes_however_they_are_included(tmp_path, directive):
    one, other = (
        headers(tmp_path / name, a__cuh=f"int a;  // {name}\n", kernel__cu=directive + "\n") for name in ("1", "2")
    )
    assert source_digest(one, {}) == source_digest(other, {})
    assert source_digest(one, {}, exact=True) != source_digest(other, {}, exact=True)


@pytest.mark.parametrize("text", ["int a = __LINE__;", "assert(a);", "#define TEXT(a) #a\nTEXT(b);"])
def test_positions_count_where_the_code_sees_them(tmp_path, text):
    one = headers(tmp_path / "1", kernel__cu=text)
    other = headers(tmp_path / "2", kernel__cu="\n" + text)
    assert source_digest(one, {}) != source_digest(other, {})


def test_a_file_that_is_not_text_has_a_key(tmp_path):
    keys = set()
    for byte in (b"\xff", b"\xfe", b"\x00", b"\xc3\xa9"):
        (tmp_path / "kernel.cu").write_bytes(b"int a" + byte + b";")
        keys.add(source_digest(tmp_path / "kernel.cu", {}))
    assert len(keys) == 4


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A copy of the kernels."""
    return Path(shutil.copytree(FOLDER, tmp_path / "kernels", ignore=shutil.ignore_patterns("*.py", "__pycache__")))


def unit_keys(folder: Path) -> dict[str, str]:
    return {rung.name: source_digest(folder / rung.file, {}) for rung in RUNGS}


def test_a_changed_comment_makes_no_kernel_stale(kernels):
    before = unit_keys(kernels)
    for file in kernels.glob("*/*.cu*"):
        lines = [f'{line}  // it\'s "{number}"' for number, line in enumerate(file.read_text().splitlines())]
        text = "\n".join("\n" if line.lstrip().startswith("//") else line for line in lines)
        file.write_text(re.sub(r"\\  //.*", r"\\", text))
    assert unit_keys(kernels) == before
    for file in kernels.glob("*/*.cuh"):
        file.rename(file.with_name(f"renamed_{file.name}"))
    for file in kernels.glob("*/*.cu*"):
        file.write_text(re.sub(r'(#include "(?:[^"]*/)?)(?=[^/"]*\.cuh")', r"\1renamed_", file.read_text()))
    assert unit_keys(kernels) == before


def test_a_changed_token_makes_just_those_kernels_stale_that_see_it(kernels, tmp_path):
    """A kernel has the same key where all files are changed that it does not see, and another for each that it does."""
    changed = Path(shutil.copytree(kernels, tmp_path / "changed"))
    originals = {changed / file.relative_to(kernels): file.read_text() for file in kernels.glob("*/*.cu*")}
    untried = {*originals}

    def change(file: Path) -> None:
        file.write_text(originals[file] + "\nconstexpr int changed = 0;\n")

    for file in originals:
        change(file)
    for rung in RUNGS:
        kernel, key = changed / rung.file, source_digest(kernels / rung.file, {})
        sources = {changed / file.relative_to(kernels) for file in source_files(kernels / rung.file)}
        for file in sources:
            file.write_text(originals[file])
        assert source_digest(kernel, {}) == key
        for file in sources & untried:
            change(file)
            assert source_digest(kernel, {}) != key
            file.write_text(originals[file])
        for file in sources:
            change(file)
        untried -= sources
    assert not untried


def test_no_first_call_waits_for_tokens(monkeypatch):
    """They take longer than all else that a first call computes to find a build for every shape."""
    monkeypatch.setattr("alexconv.compiling.sources._tokens", None)
    dynamic = [rung.path for rung in LADDER if rung.dynamic]
    assert len({lasting_path(path, {}, "90a") for path in dynamic}) == len(dynamic)


def test_a_cubins_key_depends_on_its_tokens(kernels, monkeypatch):
    monkeypatch.setattr("alexconv.compiling.nvcc.nvcc_version", lambda: "13.0")
    file = kernels / LADDER[0].file
    key = cubin_key(file, {"TILE": 8}, "90a")
    file.write_text("// a comment\n" + file.read_text())
    assert cubin_key(file, {"TILE": 8}, "90a") == key
    assert cubin_key(file, {"TILE": 8}, "80") != key
    file.write_text(file.read_text() + ";\n")
    assert cubin_key(file, {"TILE": 8}, "90a") != key
