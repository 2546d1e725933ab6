"""Machine code that serves every shape, compiled once a machine: rungs' builds, generic.cu and copy.cu."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from alexconv.compiling import nvcc
from alexconv.compiling.compiled import is_compiled
from alexconv.kernels.ladder import LADDER
from alexconv.library.generic import SOURCES
from alexconv.machine import cores

BYTES = "ELEMENT_BYTES"  # the macro of copy.cu and generic.cu
ITEMSIZES = (2, 4)


class Build(NamedTuple):
    """A file, its macros and the target for which nvcc compiles it."""

    source: Path
    macros: Mapping[str, int]
    arch: str

    @property
    def path(self) -> Path:
        """The path of its machine code, there or not."""
        return nvcc.lasting_path(*self)

    def compile(self) -> bytes:
        """Its machine code; raises MissingTool without nvcc, and CompileError."""
        return nvcc.compile_cubin(*self, lasting=True)


def builds(arch: str, capability: tuple[int, int]) -> list[Build]:
    """All builds for a GPU."""
    return [*of_library(arch), *of_rungs(arch, capability)]


def of_library(arch: str) -> list[Build]:
    """The library's own kernels, without which it computes nothing."""
    return [Build(source, {BYTES: size}, arch) for source in SOURCES for size in ITEMSIZES]


def of_rungs(arch: str, capability: tuple[int, int], *precisions: str) -> Iterator[Build]:
    """The rungs' builds that suit a GPU, of some classes or of all."""
    for rung in LADDER:
        if rung.dynamic and not rung.unsuited(capability) and (not precisions or rung.precision in precisions):
            yield from (Build(rung.path, rung.dynamic.defines(build), arch) for build in rung.dynamic.builds)


def missing(wanted: Sequence[Build]) -> list[Build]:
    """Those that are not compiled."""
    return [build for build in wanted if not is_compiled(build.path)]


def compile_all(wanted: Sequence[Build]) -> list[Path]:
    """Compiles what is missing, a compiler per core; returns the paths of all."""
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(Build.compile, missing(wanted)))
    return [build.path for build in wanted]
