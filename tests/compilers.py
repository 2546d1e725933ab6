"""Marks for tests that need a certain C++ compiler, and compilers with something changed."""

import platform
from pathlib import Path

import pytest

from alexconv.compiling.toolchain import compiler_machine, compiler_version, find_cxx
from alexconv.errors import MissingTool
from alexconv.executors.host.runtime import asan_environment

IS_CLANG = "clang" in compiler_version(find_cxx())


def _no_address_sanitizer() -> str:
    try:
        asan_environment()
    except MissingTool as error:
        return str(error)
    return ""


_MISSING = _no_address_sanitizer()

IS_CROSS = compiler_machine(find_cxx()) != platform.machine()
needs_gcc = pytest.mark.skipif(IS_CLANG or IS_CROSS, reason="the trace build needs g++ for this machine")
runs_here = pytest.mark.skipif(IS_CROSS, reason="QEMU runs no script in place of the launcher")
needs_asan = pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "AddressSanitizer is there")


def wrapper(path: Path, script: str) -> Path:
    """A compiler that runs a shell script, in which ``$CXX`` is the compiler of this machine."""
    path.write_text(f'#!/bin/sh\nCXX="{find_cxx()}"\n{script}\n')
    path.chmod(0o755)
    return path
