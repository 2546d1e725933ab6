"""Every kernel through nvcc, for three generations of GPUs; no GPU needed."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest

from alexconv import ceilings
from alexconv.compiling.nvcc import compile_cubin, find_nvcc
from alexconv.errors import CompileError, MissingTool
from alexconv.kernels import dynamic
from alexconv.kernels.ladder import ALL_DIRECTIONS, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung, defines
from alexconv.paths import CACHE_VARIABLE
from alexconv.shapes import WORKLOADS, Conv

CAPABILITIES = {"80": (8, 0), "90a": (9, 0), "100": (10, 0)}
ARCHES = tuple(CAPABILITIES)
OWN = "90a"
ELF = b"\x7fELF"


def have_nvcc() -> bool:
    try:
        find_nvcc()
    except MissingTool:
        return False
    return True


pytestmark = pytest.mark.skipif(not have_nvcc(), reason="no nvcc on this machine")


@pytest.fixture(autouse=True)
def quickly(monkeypatch, shared_cache):
    """Less optimized, without C++17's special functions, in a cache of its own: these flags are in no cubin's key.

    What nvcc refuses depends on neither: syntax, types and assertions are the front end's, and ptxas checks operands,
    target and shared memory at every level.
    """
    flags = "-D_GLIBCXX_BITS_SPECFUN_H=1 -Xcicc -O1 -Xptxas -O1"
    monkeypatch.setenv("NVCC_APPEND_FLAGS", f"{os.environ.get('NVCC_APPEND_FLAGS', '')} {flags}")
    (folder := shared_cache / "quickly").mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))


def layers_taken(rung: Rung) -> list[Conv]:
    """Two layers that the rung takes, of the first workload with so many, else one."""
    taken: list[Conv] = []
    for workload in WORKLOADS.values():
        convs = (conv.toward(rung.direction) for conv in workload.layers)
        suitable = (conv for conv in convs if not rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))))
        taken = max(taken, [*islice(suitable, 2)], key=len)
        if len(taken) == 2:
            break
    return taken


def cases() -> Iterator:
    """Each rung for one of the targets that it suits and for one of two layers, in turn.

    Layer 1: several outputs per thread, the plane in global memory.  Layer 2: one output, the plane in shared memory.
    The front end is the same for all targets, and what a target lacks is in headers that neighbours share.
    """
    for place, rung in enumerate(ALL_DIRECTIONS):
        arches = [arch for arch, capability in CAPABILITIES.items() if not rung.unsuited(capability)]
        arch, conv = arches[place % len(arches)], layers_taken(rung)[place // 3 % 2 - 1]
        yield pytest.param(rung, conv, arch, id=f"{rung.name}-{arch}")


@pytest.mark.parametrize("rung, conv, arch", [*cases()])
def test_the_rung_compiles(rung: Rung, conv: Conv, arch: str):
    cubin = compile_cubin(rung.path, defines(rung, conv, rung.resolve(conv, {})), arch)
    assert cubin.startswith(ELF)
    for launch in rung.launches:
        assert b"\0" + launch.entry.encode() + b"\0" in cubin, "the entry point is a symbol with its plain name"


@pytest.mark.parametrize("rung", [rung for rung in RUNGS.values() if "terms" in rung.takes], ids=lambda rung: rung.name)
def test_a_build_that_takes_and_stores_terms_compiles(rung: Rung):
    padded = Conv(384, 13, 13, 256, 3, 3, top=1, bottom=1, left=1, right=1, bias=True, relu=True)
    conv = replace(padded, takes_terms=True, stores_terms=True)
    assert rung.refuses(Problem(conv, 1, constants := rung.resolve(conv, {}))) is None
    assert compile_cubin(rung.path, defines(rung, conv, constants), OWN).startswith(ELF)


@pytest.mark.parametrize("family", sorted({rung.family for rung in RUNGS.values() if rung.dynamic}))
def test_a_familys_build_for_every_shape_compiles(family: str):
    rung = next(rung for rung in RUNGS.values() if rung.family == family and rung.dynamic)
    assert rung.dynamic
    cubin = compile_cubin(rung.path, rung.dynamic.defines(rung.dynamic.builds[0]), OWN, lasting=True)
    assert cubin.startswith(ELF) and dynamic.SYMBOL.encode() + b"\0" in cubin, "the numbers are a symbol"


@pytest.mark.parametrize("factors", (0, 1))
def test_the_tensor_cores_ceilings_compile(factors: int):
    targets = {target for arch in ARCHES for target in ceilings.tensor_instructions(arch).values()}
    assert targets == {"80", "90", "90a", "100"}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cubins = list(pool.map(partial(compile_cubin, ceilings.TENSOR_SOURCE, {"FACTORS_FP16": factors}), targets))
    assert all(cubin.startswith(ELF) and b"\0multiply_tiles\0" in cubin for cubin in cubins)


@pytest.mark.parametrize(
    "conv, chosen",
    [
        (WORKLOADS["alexnet"].layer(1), {}),
        (WORKLOADS["alexnet"].layer(1), {"PLANE_SHARED": 1}),
        (WORKLOADS["alexnet"].layer(1), {"PLANE_SHARED": 1, "COALESCED": 0}),
        (WORKLOADS["alexnet"].layer(2), {}),
        (WORKLOADS["alexnet"].layer(2), {"THREAD_OUTPUTS": 4, "COALESCED": 0}),
        (WORKLOADS["alexnet"].layer(2), {"THREAD_OUTPUTS": 3, "COALESCED": 1}),
        (WORKLOADS["alexnet"].layer(3), {"THREAD_OUTPUTS": 2, "COALESCED": 0}),
        (Conv(C=2, H=33, W=47, M=3, R=6, S=7, U=6), {}),
    ],
    ids=str,
)
def test_the_ladder_and_the_kernel_agree_on_the_padded_rows_of_vectors(conv: Conv, chosen: dict[str, int]):
    rung = RUNGS["channels-vector"]
    macros = defines(rung, conv, rung.resolve(conv, chosen))
    compile_cubin(rung.path, macros, "90a")
    if macros["PLANE_SHARED"]:
        with pytest.raises(CompileError, match="static assertion"):
            compile_cubin(rung.path, {**macros, "LADDER_PLANE_PITCH": macros["LADDER_PLANE_PITCH"] - 1}, "90a")
