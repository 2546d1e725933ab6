"""What a compiler says, in one line."""

import pytest

from alexconv.compiling.toolchain import compiler_version, first_error


@pytest.mark.parametrize(
    "output, line",
    [
        ("kernel.cu:1: warning: odd\nkernel.cu:3: error: no such name\nkernel.cu:4: error: another", 1),
        ("ptxas info    : fine\nptxas error   : too much shared data", 1),
        ("nvcc warning : old\nnvcc fatal   : no such option", 1),
        ("a.o: undefined reference to `f'\ncollect2: error: ld returned 1 exit status", 0),
    ],
)
def test_the_first_error_says_the_reason(output, line):
    assert first_error(output) == output.splitlines()[line]


def test_a_compiler_that_prints_nothing_is_reported():
    assert first_error("\n") == "the compiler printed nothing"


def test_a_replaced_compiler_is_asked_for_its_version_again(tmp_path):
    compiler, questions = tmp_path / "c++", tmp_path / "asked"
    for release in ("1", "2"):
        script = tmp_path / release
        script.write_text(f"#!/bin/sh\necho >> {questions}\necho c++ {release}\n")
        script.chmod(0o700)
        script.rename(compiler)
        assert [compiler_version(str(compiler)) for _ in range(2)] == [f"c++ {release}"] * 2
    assert len(questions.read_text().splitlines()) == 2
