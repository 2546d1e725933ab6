"""The cache: private folders, files that are whole or absent, and odd things in their places."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from alexconv import files, paths
from alexconv.compiling.compiled import compiled
from alexconv.cpu_reference.baseline import blas_time
from alexconv.cpu_reference.cache import LayerData, ensure
from alexconv.errors import CompileError, UsageError
from alexconv.executors.host.runtime import HostRuntime
from alexconv.paths import CACHE_VARIABLE, cache_dir
from alexconv.shapes import Conv

SMALL = Conv(C=1, H=4, W=4, M=2, R=3, S=3)
KERNEL = 'extern "C" __global__ void one(int* y) { y[0] = 1; }\n'


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_users_cache_is_private_whatever_the_umask(cache: Path) -> None:
    for umask in (0, 0o022, 0o277):
        before = os.umask(umask)
        try:
            folder = cache_dir(f"part{umask}")
        finally:
            os.umask(before)
        assert (mode(cache), mode(folder)) == (0o700, 0o700)


@pytest.mark.parametrize("writable", [0o770, 0o707, 0o777, 0o1777])
@pytest.mark.parametrize("which", ["root", "part"])
def test_a_folder_that_others_may_write_to_is_refused(cache: Path, which: str, writable: int) -> None:
    folder = cache_dir("host")
    (cache if which == "root" else folder).chmod(writable)
    if (which, writable) == ("root", 0o1777):
        assert cache_dir("host") == folder  # like /tmp: users cannot replace each other's files
        return
    with pytest.raises(UsageError, match="other users may write"):
        cache_dir("host")


def test_a_folder_of_another_owner_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_dir("host")
    monkeypatch.setattr(paths.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match=f"belongs to user {os.getuid()}"):
        cache_dir("host")


def test_nothing_is_loaded_from_a_folder_that_others_may_write_to(fresh_cache: Path, tmp_path: Path) -> None:
    (source := tmp_path / "one.cu").write_text(KERNEL)
    HostRuntime().compile(source, {}, ["one"])
    (fresh_cache / "host").chmod(0o777)
    with pytest.raises(UsageError, match="could be someone else's"):
        HostRuntime().compile(source, {}, ["one"])


def put(path: Path, what: str) -> None:
    """Something else in a file's place."""
    path.unlink(missing_ok=True)
    if what == "folder":
        path.mkdir()
        (path / "more").write_text("content")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "loop":
        path.symlink_to(path)
    elif what == "nowhere":
        path.symlink_to("nowhere")
    else:
        path.write_bytes(b"\xff\x00")


ODD = ("folder", "pipe", "loop", "nowhere", "bytes")


@pytest.mark.parametrize("what", ODD)
def test_another_file_in_a_librarys_place_is_replaced_or_reported(cache: Path, tmp_path: Path, what: str) -> None:
    path = tmp_path / "kernel.cubin"
    put(path, what)
    if what == "folder":
        with pytest.raises(UsageError, match=r"kernel\.cubin is a folder"):
            compiled(path, lambda target: target.write_bytes(b"code"))
        return
    assert compiled(path, lambda target: target.write_bytes(b"code")) == b"code"
    assert compiled(path, lambda target: pytest.fail("compiled again")) == b"code"


@pytest.mark.parametrize("what", ODD)
def test_another_file_in_a_references_place_is_reported_and_replaced(cache: Path, what: str) -> None:
    def reference() -> np.ndarray:
        return ensure(LayerData("test", 1, SMALL), 2, say=lines.append).read(0, 2)

    lines: list[str] = []
    whole = reference()
    (file,) = cache.glob("reference/*/*.h5")
    put(file, what)
    np.testing.assert_array_equal(reference(), whole)
    assert len(lines) == 1 and str(file) in lines[0]


@pytest.mark.parametrize("what", ODD)
def test_another_file_in_a_baselines_place_is_replaced(cache: Path, what: str) -> None:
    lines: list[str] = []
    blas_time("test", 1, SMALL, say=lines.append)
    (file,) = cache.glob("baseline/*.json")
    put(file, what)
    again = blas_time("test", 1, SMALL, say=lines.append)
    assert blas_time("test", 1, SMALL, say=lines.append) == again
    assert len(lines) == (what != "nowhere")


def test_every_changed_byte_of_a_baseline_is_noticed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = blas_time("test", 1, SMALL)
    (file,) = cache.glob("baseline/*.json")
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            content = files.read_json(file)
        except ValueError:
            continue
        assert content is not None and content["samples_ms"] == list(before.samples_ms), place


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path) -> None:
    old, new = (tmp_path / f"{name}.so.1234{files.TEMPORARY_SUFFIX}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half of it")
    os.utime(old, (0, 0))
    files.write_json(tmp_path / "another.json", {})
    assert (old.exists(), new.exists()) == (False, True)


def test_sources_and_record_files_may_have_bytes_that_are_no_text(fresh_cache: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (source := folder / "one.cu").write_bytes(KERNEL.encode() + b"// caf\xe9\n")
    y = HostRuntime().allocate(4)
    HostRuntime().compile(source, {}, ["one"]).launch("one", (1, 1, 1), (1, 1, 1), 0, [y])
    assert y.array("i4", (1,))[0] == 1
    source.write_bytes(b'extern "C" __global__ void one(int* y) { caf\xe9 = 1; }\n')
    with pytest.raises(CompileError, match=r"one\.cu:1"):
        HostRuntime().compile(source, {}, ["one"])


RUN = [sys.executable, "-m", "alexconv.run", "--workload", "lenet-70-k5", "--layers", "1", "--rungs", "direct"]
RUN += ["--backend", "host", "--no-baseline", "--out"]


def test_a_record_files_name_need_not_be_utf8(tmp_path: Path) -> None:
    out = os.fsencode(tmp_path) + b"/r\xe9sum\xe9.jsonl"
    done = subprocess.run([*RUN, os.fsdecode(out)], capture_output=True, check=False)
    assert (done.returncode, done.stderr.count(b"Traceback")) == (0, 0), done.stderr
    assert Path(os.fsdecode(out)).is_file()
    report = [sys.executable, "-m", "alexconv.reports", os.fsdecode(out), "-o", os.fsdecode(out + b".report")]
    done = subprocess.run(report, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cache_path_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    done = subprocess.run([*RUN, "r.jsonl"], env={**os.environ, CACHE_VARIABLE: odd}, capture_output=True, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert b"not UTF-8" in done.stderr


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_the_suite_needs_no_cache_of_pytests(tmp_path: Path, workers: list[str]) -> None:
    root, test = Path(__file__).parents[2], "test_a_conv2d_serves_several_shapes_and_an_empty_batch"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base")]
    command += [*workers, f"tests/library/test_library.py::{test}"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, cwd=root, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "base").glob("alexconv")
    assert any((folder / "host").iterdir()), "compiled kernels"
