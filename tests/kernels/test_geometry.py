"""Every kernel asserts the geometry that the ladder computes: blocks, shared memory, arrays, tensor maps."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from alexconv.compiling.toolchain import compiler_version, find_cxx
from alexconv.executors import host
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung, defines
from alexconv.shapes import WORKLOADS

RUNTIME = Path(host.__file__).parent / "hostcuda"
HEADER = "host_cuda.h"

each_rung = pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)


def problem(rung: Rung) -> Problem:
    """The first layer that the rung takes."""
    problems = [Problem(conv, 1, rung.resolve(conv, {})) for load in WORKLOADS.values() for conv in load.layers]
    return next(p for p in problems if rung.refuses(p) is None)


def to_assert(rung: Rung) -> set[str]:
    """The macros of a rung's geometry that no kernel may ignore."""
    p = problem(rung)
    launches = (*rung.prepare, *rung.launches)
    threads = {f"LADDER_{launch.entry.upper()}_THREADS" for launch in launches}
    shared = {f"LADDER_{launch.entry.upper()}_SHARED_BYTES" for launch in launches if launch.dynamic_shared(p)}
    maps = {
        f"LADDER_{tensor_map.name.upper()}_{part}_{axis}"
        for tensor_map in rung.maps
        for part, sizes in (("DIM", tensor_map.dims(p)), ("STRIDE", tensor_map.strides(p)), ("BOX", tensor_map.box(p)))
        for axis in range(len(sizes))
    }
    return (
        threads | shared | maps | {f"LADDER_{array.name.upper()}_ELEMENTS" for array in (*rung.scratch, *rung.prepared)}
    )


@cache
def assertions(rung: Rung) -> list[str]:
    """The conditions of a rung's static assertions, with the ladder's macros not expanded."""
    command = [find_cxx(), "-E", "-P", "-x", "c++", "-I", str(RUNTIME), str(rung.path)]
    source = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [" ".join(text.split()) for text in re.findall(r"static_assert\s*\((.*?)\)\s*;", source, re.DOTALL)]


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run-time's headers, precompiled."""
    folder = tmp_path_factory.mktemp("headers")
    target = folder / f"{HEADER}.gch"
    command = [find_cxx(), "-std=c++17", "-march=native", "-x", "c++-header", str(RUNTIME / HEADER), "-o", str(target)]
    subprocess.run(command, check=True)
    return folder


def errors(rung: Rung, macros: dict[str, int], headers: Path) -> list[str]:
    """The compiler's errors on a rung."""
    lines = [f'#include "{HEADER}"', *(f"#define {name} {value}" for name, value in macros.items())]
    unit = "\n".join([*lines, f'#include "{rung.path}"\n'])
    folders = ["-I", str(headers), "-I", str(RUNTIME)]
    every_error = "-ferror-limit=0" if "clang" in compiler_version(find_cxx()) else "-fmax-errors=0"
    command = [find_cxx(), "-std=c++17", "-march=native", every_error, "-fsyntax-only", "-x", "c++", *folders, "-"]
    done = subprocess.run(command, input=unit, capture_output=True, text=True, check=False)
    return re.findall(r"error: (.*)", done.stderr)


@each_rung
def test_every_rung_asserts_its_geometry(rung: Rung):
    asserted = {name for condition in assertions(rung) for name in re.findall(r"LADDER_\w+", condition)}
    assert to_assert(rung) <= asserted


@each_rung
def test_another_geometry_does_not_compile(rung: Rung, headers: Path):
    p, names = problem(rung), to_assert(rung)
    macros = defines(rung, p.conv, p.constants)
    assert errors(rung, macros, headers) == []
    affected = [condition for condition in assertions(rung) if any(f"{name} ==" in condition for name in names)]
    assert affected
    messages = errors(rung, {name: value + (name in names) for name, value in macros.items()}, headers)
    assert len([error for error in messages if re.match("static[_ ]assert", error)]) >= len(affected)
