"""Compiled kernels in the cache: damaged files are compiled again, and a failed compilation leaves nothing."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from alexconv.compiling import nvcc
from alexconv.compiling.compiled import compiled
from alexconv.errors import CompileError

CODE = b"\x7fELF" + b"made up machine code".ljust(60, b"\0")  # a header whose tables are empty
FAKE_NVCC = """#!/bin/sh
[ "$1" = --version ] && { echo 'Cuda compilation tools, release 99.1, V99.1.2'; exit; }
echo compiled >> {log}
while [ "$1" != -o ]; do shift; done
grep -q broken "$3" && { echo half > "$2"; echo "$3(1): error: broken" >&2; exit 2; }
cp {code} "$2"
"""

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "a byte short": lambda whole: whole[:-1],
    "a bit of the code": lambda whole: bytes([whole[0] ^ 1]) + whole[1:],
    "a bit of the digest": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    "without a digest": lambda whole: CODE,
}


@pytest.fixture
def compilations(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """An nvcc that writes CODE, in an empty cache; calling the fixture's value counts its runs."""
    log, code, script = tmp_path / "log", tmp_path / "code", tmp_path / "nvcc"
    code.write_bytes(CODE)
    script.write_text(FAKE_NVCC.replace("{log}", str(log)).replace("{code}", str(code)))
    script.chmod(0o755)
    monkeypatch.setenv("NVCC", str(script))
    nvcc.find_nvcc.cache_clear()
    nvcc.nvcc_version.cache_clear()
    yield lambda: len(log.read_text().splitlines()) if log.exists() else 0
    nvcc.find_nvcc.cache_clear()
    nvcc.nvcc_version.cache_clear()


def kernel(folder: Path, text: str = 'extern "C" __global__ void kernel() {}\n') -> Path:
    source = folder / "kernel.cu"
    source.write_text(text)
    return source


def test_a_cubin_is_compiled_once_and_for_each_target_and_macro(tmp_path, compilations):
    source = kernel(tmp_path)
    assert [nvcc.compile_cubin(source, {}, "90a"), nvcc.compile_cubin(source, {}, "90a")] == [CODE, CODE]
    assert compilations() == 1
    assert [nvcc.compile_cubin(source, {}, "80"), nvcc.compile_cubin(source, {"TILE": 8}, "90a")] == [CODE, CODE]
    assert compilations() == 3


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cubin_is_compiled_again(cache, tmp_path, compilations, damage):
    source = kernel(tmp_path)
    nvcc.compile_cubin(source, {}, "90a")
    (cubin,) = (cache / "cubin").iterdir()
    whole = cubin.read_bytes()
    cubin.write_bytes(DAMAGES[damage](whole))
    assert nvcc.compile_cubin(source, {}, "90a") == CODE
    assert compilations() == 2
    assert cubin.read_bytes() == whole
    assert nvcc.compile_cubin(source, {}, "90a") == CODE
    assert compilations() == 2


def test_a_failed_compilation_leaves_nothing_behind(cache, tmp_path, compilations):
    with pytest.raises(CompileError, match=r"^kernel\.cu\(1\): error: broken"):
        nvcc.compile_cubin(kernel(tmp_path, "broken"), {}, "90a")
    assert list((cache / "cubin").iterdir()) == []
    assert nvcc.compile_cubin(kernel(tmp_path), {}, "90a") == CODE


def test_a_compiler_that_writes_nothing_is_one_error(tmp_path):
    with pytest.raises(CompileError, match="kept: the compiler reported no error and wrote no file"):
        compiled(tmp_path / "kept", lambda target: None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_built_by_another_process_meanwhile_is_replaced(tmp_path):
    path = tmp_path / "kept"

    def build(target: Path) -> None:
        assert compiled(path, lambda other: other.write_bytes(CODE) and None) == CODE
        target.write_bytes(CODE)

    assert compiled(path, build) == CODE
    assert compiled(path, lambda target: pytest.fail("built again")) == CODE
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_concurrent_builds_of_one_file_run_once(tmp_path):
    path, start, built = tmp_path / "runtime.o", Barrier(4), []

    def build(target: Path) -> None:
        built.append(target)
        time.sleep(0.2)  # the others arrive meanwhile
        target.write_bytes(CODE)

    def one(_: int) -> bytes:
        start.wait()
        return compiled(path, build, waits=True)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == [CODE] * 4
    assert len(built) == 1


def test_a_builder_that_fails_lets_the_next_one_build(tmp_path):
    path = tmp_path / "runtime.o"
    with pytest.raises(CompileError, match="wrote no file"):
        compiled(path, lambda target: None, waits=True)
    assert compiled(path, lambda target: target.write_bytes(CODE) and None, waits=True) == CODE
