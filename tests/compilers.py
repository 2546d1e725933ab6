"""Marks for tests that need a certain C++ compiler."""

import pytest

from alexconv.compiling.toolchain import compiler_version, find_cxx

needs_gcc = pytest.mark.skipif("clang" in compiler_version(find_cxx()), reason="the trace build needs g++")
