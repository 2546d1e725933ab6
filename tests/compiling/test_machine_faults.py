"""A machine that cannot compile is not a kernel that does not: nothing is recorded, and a later run does the rest."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alexconv.compiling import nvcc
from alexconv.compiling.toolchain import failure, find_cxx, run_compiler
from alexconv.errors import AlexconvError, CompileError, MachineFault
from alexconv.paths import CACHE_VARIABLE

RUN = ["--workload", "lenet-70-k5", "--layers", "1", "--N", "1", "--rungs", "direct,tiled", "--backend", "host"]
WRITTEN = {
    "g++": "<stdin>:1:146: fatal error: error writing to {}/ccA1GEYT.s: No space left on device",
    "ld.gold": "ld.gold: fatal error: {}/a.so: No space left on device\ncollect2: error: ld returned 1 exit status",
    "as": "Assembler messages:\nFatal error: can't create {}/a.o: Read-only file system",
    "nvcc": "nvcc fatal   : Could not open output file '{}/tmpxft_00003ed6_0000000a'",
    "cpp": "<built-in>: fatal error: when writing output to {}/b.cpp1.ii: Disk quota exceeded\ncompilation terminated.",
    "driver": "Cannot create temporary file in {}/: Permission denied",
}
MEMORY = {
    "memory": "virtual memory exhausted: Cannot allocate memory",
    "clang": "LLVM ERROR: out of memory",
    "processes": "g++: fatal error: cannot execute 'cc1plus': vfork: Resource temporarily unavailable",
    "killed": "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
    "nvcc": "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
}
OF_SOURCE = {
    "error": 'tiled.cu:1:2: error: #error "No space left on device"',
    "assertion": 'tiled.cu(3): error: static assertion failed with "Out of memory"',
    "excerpt": "tiled.cu:3:5: error: expected ';'\n    3 | int x // Killed: No space left on device\n      | ^",
    "name": "tiled.cu:3:9: error: 'Killed' was not declared in this scope",
    "name, as nvcc says it": 'tiled.cu(3): error: identifier "Terminated" is undefined',
    "bug of the compiler": "tiled.cu:7: internal compiler error: Segmentation fault signal terminated program cc1plus",
}


@pytest.mark.parametrize("tool", WRITTEN)
@pytest.mark.parametrize("temporary", [True, False])
def test_a_full_disk_is_the_machines_fault_and_its_folder_is_named(tool, temporary, tmp_path, monkeypatch):
    cache, temporaries = tmp_path / "cache", tmp_path / "temporaries"
    monkeypatch.setenv("TMPDIR", str(temporaries))
    place, variable = (temporaries, "TMPDIR") if temporary else (cache, CACHE_VARIABLE)
    error = failure("tiled.cu", WRITTEN[tool].format(place), cache)
    assert isinstance(error, MachineFault)
    assert f"cannot write to {place} (" in str(error) and str(error).endswith(f"set {variable}")
    assert "\n" not in str(error)


def test_a_checkout_in_the_folder_of_temporary_files_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    full = tmp_path / "cache"
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0) if path == full else usage)
    line = f"{tmp_path}/checkout/launch.h:82:1: fatal error: cannot write PCH file: No space left on device"
    assert f"cannot write to {full} (" in str(failure("launch.h", line, full))


@pytest.mark.parametrize("what", MEMORY)
def test_a_compiler_without_memory_or_killed_is_the_machines_fault(what, tmp_path):
    error = failure("tiled.cu", MEMORY[what], tmp_path)
    assert isinstance(error, MachineFault)
    assert MEMORY[what].splitlines()[0] in str(error)


@pytest.mark.parametrize("what", OF_SOURCE)
def test_what_the_source_says_is_the_sources_fault(what, tmp_path):
    assert isinstance(failure("tiled.cu", OF_SOURCE[what], tmp_path), CompileError)


def test_an_error_names_its_file_once(tmp_path):
    for place in ("tiled.cu:26:9", "tiled.cu(26)"):
        assert str(failure("tiled.cu", f"{place}: error: x", tmp_path)) == f"{place}: error: x"
    assert str(failure("tiled.cu", "plane.cuh:3:1: error: x", tmp_path)) == "tiled.cu: plane.cuh:3:1: error: x"


def test_a_compiler_that_crashes_on_a_full_disk_is_the_machines_fault(tmp_path, monkeypatch):
    crash = "Segmentation fault\n"
    assert isinstance(failure("tiled.cu", crash, tmp_path), CompileError)
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert isinstance(failure("tiled.cu", crash, tmp_path), MachineFault)
    assert isinstance(failure("tiled.cu", OF_SOURCE["error"], tmp_path), CompileError)


def fake(folder: Path, body: str) -> Path:
    """A compiler that fails in its own way, and answers for its version."""
    program = folder / "fake-c++"
    version = f"exec {find_cxx()} --version"
    program.write_text(f'#!/bin/sh\ncase "$*" in *--version*) {version};; esac\n{body}\n')
    program.chmod(0o700)
    return program


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV"])
def test_a_signal_that_the_compiler_did_not_cause_is_the_machines_fault(name, tmp_path):
    program = fake(tmp_path, f"kill -{name.removeprefix('SIG')} $$")
    with pytest.raises(AlexconvError, match=name) as caught:
        run_compiler([program], "tiled.cu", tmp_path)
    assert caught.type is (CompileError if name == "SIGSEGV" else MachineFault)
    assert getattr(signal, name)


def test_a_compiler_that_cannot_be_run_is_the_machines_fault(tmp_path):
    with pytest.raises(MachineFault, match="cannot run"):
        run_compiler([tmp_path], "tiled.cu", tmp_path)


def run_with(cxx: str, out: Path, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "alexconv.run", *RUN, "--out", str(out), "--resume"]
    variables = {**os.environ, "CXX": cxx, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=out.parent)


def statuses(out: Path) -> list[str]:
    lines = map(json.loads, out.read_text().splitlines())
    return [line["status"] for line in lines if line["type"] == "point"]


def test_a_run_on_a_full_disk_records_nothing_of_it_and_a_later_one_does_the_rest(tmp_path):
    """The compiler fails on one rung of two, and then, under the same name and version, no longer."""
    full = f'fail() {{ echo "x: fatal error: error writing to {tmp_path}/cc.s: No space left on device" >&2; exit 1; }}'
    check = 'unit=$(cat); case "$unit" in *tiled.cu*) fail;; esac; printf "%s\\n" "$unit" |'
    program = fake(tmp_path, f'{full}\n{check} exec {find_cxx()} "$@"')
    out, cache = tmp_path / "records.jsonl", str(tmp_path / "cache")
    failed = run_with(str(program), out, TMPDIR=str(tmp_path), ALEXCONV_CACHE_DIR=cache)
    assert failed.returncode == 1
    assert f"cannot write to {tmp_path} (" in failed.stderr and "Traceback" not in failed.stderr
    assert "run again with --resume" in failed.stderr
    assert statuses(out) == ["ok"]
    fake(tmp_path, f'exec {find_cxx()} "$@"')
    done = run_with(str(program), out, TMPDIR=str(tmp_path), ALEXCONV_CACHE_DIR=cache)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 points are already" in done.stderr + done.stdout
    assert statuses(out) == ["ok", "ok"]


def test_machine_code_that_ends_early_is_the_machines_fault_and_not_kept(tmp_path, monkeypatch, cache):
    """nvcc ends with status 0 where it could write a part only."""
    part, source = tmp_path / "part", tmp_path / "k.cu"
    part.write_bytes(b"\x7fELF" + bytes(28) + (200).to_bytes(8, "little") + bytes(14) + b"\x38\0\x02\0" + bytes(100))
    source.write_text("// nothing")
    program = tmp_path / "nvcc"
    copies = 'while [ "$1" != -o ]; do shift; done'
    program.write_text(f'#!/bin/sh\ncase "$1" in --version) echo V13.0.88; exit;; esac\n{copies}; cp {part} "$2"\n')
    program.chmod(0o700)
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: str(program))
    monkeypatch.setattr(nvcc, "nvcc_version", lambda: "13.0.88")
    with pytest.raises(MachineFault, match="a part of the machine code"):
        nvcc.compile_cubin(source, {}, "90a")
    part.write_bytes(part.read_bytes() + bytes(200))
    assert nvcc.compile_cubin(source, {}, "90a") == part.read_bytes()
    assert not nvcc.is_whole(b"\x7fELF") and not nvcc.is_whole(b"")


@pytest.mark.parametrize(("variable", "size"), [("TMPDIR", "4k"), (CACHE_VARIABLE, "600k")])
def test_a_small_disk_that_fills_up_is_named(variable, size, tmp_path, fresh_cache):
    mount = f"mkdir small && mount -t tmpfs -o size={size} tmpfs small || exit 77"
    script = f'{mount}\n{variable}=$PWD/small exec "$@"'
    out = tmp_path / "records.jsonl"
    words = [sys.executable, "-m", "alexconv.run", *RUN, "--out", str(out)]
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare (util-linux)")
    command = ["unshare", "--mount", "sh", "-c", script, "sh", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode in (1, 2)
    last = done.stderr.strip().splitlines()[-1]
    assert f"cannot write to {tmp_path}/small" in last and "Traceback" not in done.stderr, done.stderr
    assert "compile-error" not in statuses(out)
