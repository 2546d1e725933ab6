"""One block per output plane: geometry and constants for ``plane.cuh``."""

from math import ceil, prod

from alexconv.kernels.geometry import Refusal, SharedBytes, no_bytes, outside_block
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import MAX_BLOCK, Constant, Dims
from alexconv.shapes import Conv


def outputs_per_thread(conv: Conv) -> int:
    """Smallest k such that a block of ceil(F/k) x ceil(E/k) threads, each with k x k outputs, covers the plane."""

    def threads(side: int, k: int) -> int:
        return -(-side // k)  # integer arithmetic, exact for planes of any size

    sides = (conv.F, conv.E)
    k = threads(max(sides), MAX_BLOCK)  # a longer row of threads exceeds a block by itself
    while prod(counts := [threads(side, k) for side in sides]) > MAX_BLOCK:
        # the next k with fewer threads, so at most one step per thread of either row
        k = min(threads(side, count - 1) for side, count in zip(sides, counts, strict=True) if count > 1)
    return k


def plane_block(p: Problem) -> Dims:
    """One block covers an output plane: E x F threads, or fewer with several outputs each."""
    return ceil(p.conv.F / p["THREAD_OUTPUTS"]), ceil(p.conv.E / p["THREAD_OUTPUTS"]), 1


def plane_grid(p: Problem) -> Dims:
    """One block per output plane."""
    return p.N, p.conv.M, 1


def outside_plane_block(shared: SharedBytes = no_bytes) -> Refusal:
    """Refuses a plane, or a choice of constants, that needs more threads or shared memory than a block has."""
    return outside_block(plane_block, shared)


THREAD_OUTPUTS = Constant(
    "THREAD_OUTPUTS",
    "outputs of one thread, along each axis of the plane",
    lambda p: outputs_per_thread(p.conv),
)


def mapping(default: int) -> Constant:
    """Which outputs a thread computes if it has several; the default is the study's choice for the rung."""
    return Constant(
        "COALESCED",
        "1: a thread's outputs are a block apart, so a warp's are neighbours (coalesced); 0: a thread's are neighbours",
        lambda p: default,
        choices=(0, 1),
        matters=lambda p: p["THREAD_OUTPUTS"] > 1,
    )
