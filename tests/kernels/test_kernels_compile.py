"""Every kernel through nvcc, for three generations of GPUs; no GPU needed."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alexconv.compiling.nvcc import compile_cubin, find_nvcc
from alexconv.errors import MissingTool
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import FOLDER, Rung, defines
from alexconv.shapes import WORKLOADS, Conv

CAPABILITIES = {"80": (8, 0), "90a": (9, 0), "100": (10, 0)}
ARCHES = tuple(CAPABILITIES)
# Layer 1: several outputs per thread, the plane in global memory.  Layer 2: one output, the plane in shared memory.
# The front end is the same for all targets, so one layer shows what is not to be had on one of them.
JOBS = [(1, "90a"), *((2, arch) for arch in ARCHES)]
ELF = b"\x7fELF"


def have_nvcc() -> bool:
    try:
        find_nvcc()
    except MissingTool:
        return False
    return True


pytestmark = pytest.mark.skipif(not have_nvcc(), reason="no nvcc on this machine")


def layers_taken(rung: Rung) -> tuple[Conv, ...]:
    """The layers of the first workload of which the rung takes the most: AlexNet's, or smaller ones."""
    taken = [
        tuple(conv for conv in workload.layers if not rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))))
        for workload in WORKLOADS.values()
    ]
    return max(taken, key=lambda layers: min(len(layers), 2))


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_the_rung_compiles(rung: Rung):
    layers = layers_taken(rung)
    assert layers

    def compiled(job: tuple[int, str]) -> bytes:
        number, arch = job
        conv = layers[min(number, len(layers)) - 1]
        return compile_cubin(rung.path, defines(rung, conv, rung.resolve(conv, {})), arch)

    suited = [(number, arch) for number, arch in JOBS if not rung.unsuited(CAPABILITIES[arch])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cubins = list(pool.map(compiled, suited))
    assert cubins
    for cubin in cubins:
        assert cubin.startswith(ELF)
        for launch in rung.launches:
            assert b"\0" + launch.entry.encode() + b"\0" in cubin, "the entry point is a symbol with its plain name"


def test_the_ladder_and_the_kernels_agree_on_the_shared_memory_of_vectors(tmp_path: Path):
    source = tmp_path / "shared_memory.cu"
    source.write_text(
        f'#include "{FOLDER}/multi/vectors.cuh"\n'
        "static_assert((FILTER_FLOATS + PLANE_FLOATS) * sizeof(float) == LADDER_CHANNELS_VECTOR_SHARED_BYTES);\n"
    )
    rung = RUNGS["channels-vector"]
    cases = [
        (WORKLOADS["alexnet"].layer(1), {}),
        (WORKLOADS["alexnet"].layer(1), {"PLANE_SHARED": 1}),
        (WORKLOADS["alexnet"].layer(1), {"PLANE_SHARED": 1, "COALESCED": 0}),
        (WORKLOADS["alexnet"].layer(2), {}),
        (WORKLOADS["alexnet"].layer(2), {"OUTPUTS": 4, "COALESCED": 0}),
        (WORKLOADS["alexnet"].layer(2), {"OUTPUTS": 3, "COALESCED": 1}),
        (WORKLOADS["alexnet"].layer(3), {"OUTPUTS": 2, "COALESCED": 0}),
        (Conv(C=2, H=33, W=47, M=3, R=6, S=7, U=6), {}),
    ]

    def agree(conv: Conv, chosen: dict[str, int]) -> None:
        compile_cubin(source, defines(rung, conv, rung.resolve(conv, chosen)), "90a")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda case: agree(*case), cases))
