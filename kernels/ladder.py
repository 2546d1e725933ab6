"""The ladder: every rung in reading order.

A rung is a ``.cu`` file and an entry in the table here or in a file of its kind beside this one: docs/adding-a-rung.md.
Whether ``auto`` prefers it is said in ``alexconv.auto``.
"""

from collections.abc import Callable
from math import ceil, prod

from alexconv.kernels.geometry import FLOAT, HALF, PORTABLE_SHARED, SharedBytes, no_bytes, outside_block, round_up
from alexconv.kernels.igemm.ladder import FRONTIER_RUNGS
from alexconv.kernels.ladder_lenet import LENET_RUNGS
from alexconv.kernels.mma.ladder import MMA_RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import MAX_BLOCK, Array, Constant, Dims, Launch, Rung
from alexconv.kernels.wgmma.ladder import WGMMA_RUNGS
from alexconv.kernels.wgmma.ladder_resident import RESIDENT_RUNGS
from alexconv.kernels.wgmma.ladder_winograd import WINOGRAD_RUNGS
from alexconv.shapes import Conv

BANKS = 32  # of shared memory
VECTOR = 4  # floats in the widest load
FILTER_REGISTERS = 32  # taps of a filter that vectors.cuh keeps in registers as a whole


def outputs_per_thread(conv: Conv) -> int:
    """Smallest k such that a block of ceil(F/k) x ceil(E/k) threads, each with k x k outputs, covers the plane."""

    def threads(side: int, k: int) -> int:
        return -(-side // k)  # in whole numbers, which no plane is too large for

    sides = (conv.F, conv.E)
    k = threads(max(sides), MAX_BLOCK)  # a longer row of threads is too many by itself
    while prod(counts := [threads(side, k) for side in sides]) > MAX_BLOCK:
        # the next k with fewer threads: from here at most one step per thread of either row
        k = min(threads(side, count - 1) for side, count in zip(sides, counts, strict=True) if count > 1)
    return k


def plane_block(p: Problem) -> Dims:
    """One block covers an output plane: E x F threads, or fewer with several outputs each."""
    return ceil(p.conv.F / p["OUTPUTS"]), ceil(p.conv.E / p["OUTPUTS"]), 1


def grid_nm(p: Problem) -> Dims:
    """One block per output plane."""
    return p.N, p.conv.M, 1


def parts(p: Problem) -> int:
    """Partial planes that the multi-kernel rungs write per output plane."""
    return ceil(p.conv.C / p["CHANNELS"])


def grid_nmc(p: Problem) -> Dims:
    """One block per partial plane."""
    return p.N, p.conv.M, parts(p)


def filter_bytes(p: Problem) -> int:
    """Shared memory for the filter of one output plane."""
    return p.conv.K * FLOAT


def filter_and_sums_bytes(p: Problem) -> int:
    """Shared memory for a filter and a sum for each thread."""
    x, y, _ = plane_block(p)
    return filter_bytes(p) + x * y * FLOAT


def slice_bytes(p: Problem) -> int:
    """Shared memory for the filter's values at the channels of one part."""
    return min(p["CHANNELS"], p.conv.C) * p.conv.R * p.conv.S * FLOAT


def filter_and_plane_bytes(itemsize: int) -> SharedBytes:
    """Shared memory for one channel's filter and, if PLANE_SHARED, its input plane."""
    return lambda p: (p.conv.R * p.conv.S + p["PLANE_SHARED"] * p.conv.H * p.conv.W) * itemsize


def vector_bytes(p: Problem) -> int:
    """The same in rows padded for vector loads: FILTER_FLOATS and PLANE_FLOATS in ``vectors.cuh``."""
    outputs = p["OUTPUTS"]
    block_columns, block_rows, _ = plane_block(p)
    step = p.conv.U * (1 if p["COALESCED"] else outputs)
    width = next(width for width in (4, 2, 1) if step % width == 0)
    rows = (block_rows * outputs - 1) * p.conv.U + p.conv.R
    columns = round_up((block_columns * outputs - 1) * p.conv.U + p.conv.S, width)
    candidates = range(columns, columns + BANKS, width)
    pitch = next((pitch for pitch in candidates if (pitch - block_columns) * step % BANKS == 0), columns)
    taps = p.conv.R * p.conv.S
    filter_floats = round_up(taps, VECTOR) if taps <= FILTER_REGISTERS else p.conv.R * round_up(p.conv.S, VECTOR)
    return (filter_floats + p["PLANE_SHARED"] * rows * pitch) * FLOAT


def too_large(shared: SharedBytes = no_bytes) -> Callable[[Problem], str | None]:
    """Refuses a shape, or a choice of constants, that asks more of a block than any GPU gives."""
    return outside_block(plane_block, shared)


OUTPUTS = Constant(
    "OUTPUTS", "outputs of one thread, along each axis of the plane", lambda p: outputs_per_thread(p.conv)
)


def mapping(default: int) -> Constant:
    """Which outputs a thread takes when it takes several; the default is what the study used for the rung."""
    return Constant(
        "COALESCED",
        "1: a thread's outputs lie a block apart, a warp's side by side; 0: a thread's lie side by side",
        lambda p: default,
        choices=(0, 1),
        matters=lambda p: p["OUTPUTS"] > 1,
    )


CHANNELS = Constant(
    "CHANNELS",
    "input channels that one block sums before it passes on a partial plane",
    lambda p: 1,
    ceiling=lambda p: p.conv.C,
)


def plane_shared(shared: SharedBytes) -> Constant:
    """Where the input plane is read from; by default from shared memory wherever every GPU has enough of it."""

    def fits(p: Problem) -> int:
        usual = p.having(OUTPUTS=outputs_per_thread(p.conv), COALESCED=1, PLANE_SHARED=1)
        return int(shared(usual) <= PORTABLE_SHARED)

    return Constant("PLANE_SHARED", "1: input plane in shared memory; 0: in global memory", fits, choices=(0, 1))


def partial_planes(itemsize: int) -> Array:
    """The scratch array between the two kernels of a multi-kernel rung."""
    return Array("partial", lambda p: (p.N, p.conv.M, parts(p), p.conv.E, p.conv.F), itemsize)


REDUCE_CHANNELS = Launch("reduce_channels", ("partial", "y"), grid_nm, plane_block)

ALEXNET_RUNGS: tuple[Rung, ...] = (
    Rung(
        "direct",
        alias="mcpy",
        idea="one thread per output, every product added in global memory",
        family="single",
        parent=None,
        file="single/direct.cu",
        launches=(Launch("direct", ("x", "w", "y"), grid_nm, plane_block),),
        constants=(OUTPUTS, mapping(1)),
        refuses=too_large(),
    ),
    Rung(
        "direct-register",
        alias="rla2m",
        idea="sums in a register, one store per output",
        family="single",
        parent="direct",
        file="single/direct_register.cu",
        launches=(Launch("direct_register", ("x", "w", "y"), grid_nm, plane_block),),
        constants=(OUTPUTS, mapping(1)),
        refuses=too_large(),
    ),
    Rung(
        "direct-filter-one-thread",
        alias="rswbdla2m",
        idea="filter in shared memory, loaded by one thread while the others wait",
        family="single",
        parent="direct-register",
        file="single/direct_filter_one_thread.cu",
        launches=(Launch("direct_filter_one_thread", ("x", "w", "y"), grid_nm, plane_block, filter_bytes),),
        constants=(OUTPUTS, mapping(1)),
        refuses=too_large(filter_bytes),
    ),
    Rung(
        "direct-filter-shared",
        alias="rswmtla2m",
        idea="filter in shared memory, loaded by many threads",
        family="single",
        parent="direct-filter-one-thread",
        file="single/direct_filter_shared.cu",
        launches=(Launch("direct_filter_shared", ("x", "w", "y"), grid_nm, plane_block, filter_bytes),),
        constants=(OUTPUTS, mapping(1)),
        refuses=too_large(filter_bytes),
    ),
    Rung(
        "direct-sum-shared",
        alias="swso",
        idea="filter and sums in shared memory",
        family="single",
        parent="direct-filter-one-thread",
        file="single/direct_sum_shared.cu",
        launches=(Launch("direct_sum_shared", ("x", "w", "y"), grid_nm, plane_block, filter_and_sums_bytes),),
        constants=(OUTPUTS, mapping(1)),
        refuses=too_large(filter_and_sums_bytes),
    ),
    Rung(
        "direct-half",
        alias="half",
        idea="the naive convolution in half precision",
        family="single",
        parent="direct",
        file="single/direct_half.cu",
        launches=(Launch("direct_half", ("x", "w", "y"), grid_nm, plane_block),),
        constants=(OUTPUTS, mapping(1)),
        precision="half",
        dtype="float16",
        refuses=too_large(),
    ),
    Rung(
        "channels",
        alias="mk",
        idea="input channels in parallel too: partial planes, then a kernel that adds them",
        family="multi",
        parent="direct-register",
        file="multi/channels.cu",
        launches=(Launch("channels", ("x", "w", "partial"), grid_nmc, plane_block), REDUCE_CHANNELS),
        constants=(OUTPUTS, mapping(0), CHANNELS),
        scratch=(partial_planes(FLOAT),),
        refuses=too_large(),
    ),
    Rung(
        "channels-filter-shared",
        alias="mk-sw-mt",
        idea="the block's slice of the filter in shared memory",
        family="multi",
        parent="channels",
        file="multi/channels_filter_shared.cu",
        launches=(
            Launch("channels_filter_shared", ("x", "w", "partial"), grid_nmc, plane_block, slice_bytes),
            REDUCE_CHANNELS,
        ),
        constants=(OUTPUTS, mapping(0), CHANNELS),
        scratch=(partial_planes(FLOAT),),
        refuses=too_large(slice_bytes),
    ),
    Rung(
        "channels-plane-shared",
        alias="mk-sw-mt-si-c",
        idea="the input plane in shared memory too; coalesced accesses where it does not fit",
        family="multi",
        parent="channels-filter-shared",
        file="multi/channels_plane_shared.cu",
        launches=(
            Launch(
                "channels_plane_shared", ("x", "w", "partial"), grid_nmc, plane_block, filter_and_plane_bytes(FLOAT)
            ),
            REDUCE_CHANNELS,
        ),
        constants=(OUTPUTS, mapping(1), CHANNELS, plane_shared(filter_and_plane_bytes(FLOAT))),
        scratch=(partial_planes(FLOAT),),
        refuses=too_large(filter_and_plane_bytes(FLOAT)),
    ),
    Rung(
        "channels-vector",
        alias="mk-sw-mt-si-c-vec",
        idea="vector loads, and loops along filter rows unrolled away",
        family="multi",
        parent="channels-plane-shared",
        file="multi/channels_vector.cu",
        launches=(
            Launch("channels_vector", ("x", "w", "partial"), grid_nmc, plane_block, vector_bytes),
            REDUCE_CHANNELS,
        ),
        constants=(OUTPUTS, mapping(1), CHANNELS, plane_shared(vector_bytes)),
        scratch=(partial_planes(FLOAT),),
        refuses=too_large(vector_bytes),
    ),
    Rung(
        "channels-half",
        alias="mk-sw-mt-si-c-half",
        idea="filter slice and input plane in shared memory, in half precision",
        family="multi",
        parent="channels-plane-shared",
        file="multi/channels_half.cu",
        launches=(
            Launch("channels_half", ("x", "w", "partial"), grid_nmc, plane_block, filter_and_plane_bytes(HALF)),
            REDUCE_CHANNELS,
        ),
        constants=(OUTPUTS, mapping(1), CHANNELS, plane_shared(filter_and_plane_bytes(HALF))),
        scratch=(partial_planes(HALF),),
        precision="half",
        dtype="float16",
        refuses=too_large(filter_and_plane_bytes(HALF)),
    ),
    Rung(
        "channels-atomic",
        alias="exp-mk-sw-mt-si-c-vec",
        idea="channels added in the output with atomics: no partial planes",
        family="multi",
        parent="channels-vector",
        file="multi/channels_atomic.cu",
        launches=(
            Launch("clear", ("y",), grid_nm, plane_block),
            Launch("channels_atomic", ("x", "w", "y"), grid_nmc, plane_block, vector_bytes),
        ),
        constants=(OUTPUTS, mapping(1), CHANNELS, plane_shared(vector_bytes)),
        refuses=too_large(vector_bytes),
        order_varies=True,
    ),
)

LADDER: tuple[Rung, ...] = (
    ALEXNET_RUNGS + LENET_RUNGS + FRONTIER_RUNGS + MMA_RUNGS + WGMMA_RUNGS + RESIDENT_RUNGS + WINOGRAD_RUNGS
)
RUNGS: dict[str, Rung] = {rung.name: rung for rung in LADDER}
ALIASES: dict[str, str] = {rung.alias: rung.name for rung in LADDER}
FORMER_NAMES: dict[str, str] = {name: rung.name for rung in LADDER for name in rung.formerly}

# The study's abbreviations that name a rung under a transfer.
TRANSFER_ALIASES: dict[str, tuple[str, str]] = {"um": ("direct", "managed")}
