"""The multi-kernel rungs of the AlexNet study: direct convolution, split over the input channels (split-K)."""

from math import ceil

from alexconv.kernels.common.planes import (
    THREAD_OUTPUTS,
    mapping,
    outputs_per_thread,
    outside_plane_block,
    plane_block,
    plane_grid,
)
from alexconv.kernels.geometry import FLOAT, HALF, PORTABLE_SHARED, SharedBytes, round_up
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Array, Constant, Dims, Launch, Rung

BANKS = 32  # of shared memory
VECTOR = 4  # floats in the widest load
FILTER_REGISTERS = 32  # most taps of a filter that a thread of vectors.cuh holds whole in registers


def slices(p: Problem) -> int:
    """Split-K slices of CHANNELS input channels, and partial planes of an output plane."""
    return ceil(p.conv.C / p["CHANNELS"])


def slices_grid(p: Problem) -> Dims:
    """One block per partial plane."""
    return p.N, p.conv.M, slices(p)


def slice_filter_bytes(p: Problem) -> int:
    """Shared memory for the filter values of one slice."""
    return min(p["CHANNELS"], p.conv.C) * p.conv.R * p.conv.S * FLOAT


def filter_and_plane_bytes(itemsize: int) -> SharedBytes:
    """Shared memory for one channel's filter and, if PLANE_SHARED, its input plane."""
    return lambda p: (p.conv.R * p.conv.S + p["PLANE_SHARED"] * p.conv.H * p.conv.W) * itemsize


def filter_rows(p: Problem) -> int:
    """Filter rows that a thread of ``vectors.cuh`` holds in registers together: all of a small filter, else one."""
    return p.conv.R if p.conv.R * p.conv.S <= FILTER_REGISTERS else 1


def plane_columns(p: Problem) -> int:
    """Columns of the plane that a block of ``vectors.cuh`` reads, including those of outputs beyond E x F."""
    columns, _, _ = plane_block(p)
    return (columns * p["THREAD_OUTPUTS"] - 1) * p.conv.U + p.conv.S


def plane_pitch(p: Problem) -> int:
    """Floats from a row of the shared plane to the next: aligned for vector loads, padded against bank conflicts.

    The smallest pitch for which a warp's rows of threads are as many banks apart as neighbours in one row would be.
    """
    stride = p.conv.U * (1 if p["COALESCED"] else p["THREAD_OUTPUTS"])  # columns from a thread's window to the next
    vector = next(width for width in (4, 2, 1) if stride % width == 0)
    columns, _, _ = plane_block(p)
    smallest = round_up(plane_columns(p), vector)
    pitches = range(smallest, smallest + BANKS, vector)
    return next((pitch for pitch in pitches if (pitch - columns) * stride % BANKS == 0), smallest)


def vector_bytes(p: Problem) -> int:
    """Shared memory for one channel's filter and, if PLANE_SHARED, its plane, in rows padded for vector loads."""
    _, block_rows, _ = plane_block(p)
    rows = (block_rows * p["THREAD_OUTPUTS"] - 1) * p.conv.U + p.conv.R
    filter_floats = p.conv.R // filter_rows(p) * round_up(filter_rows(p) * p.conv.S, VECTOR)
    return (filter_floats + p["PLANE_SHARED"] * rows * plane_pitch(p)) * FLOAT


CHANNELS = Constant(
    "CHANNELS",
    "input channels of a split-K slice, which one block sums into a partial plane",
    lambda p: 1,
    ceiling=lambda p: p.conv.C,
)


def plane_shared(shared: SharedBytes) -> Constant:
    """Where the input plane is read from; by default from shared memory wherever every GPU has enough of it."""

    def fits(p: Problem) -> int:
        usual = p.having(THREAD_OUTPUTS=outputs_per_thread(p.conv), COALESCED=1, PLANE_SHARED=1)
        return int(shared(usual) <= PORTABLE_SHARED)

    return Constant("PLANE_SHARED", "1: input plane in shared memory; 0: in global memory", fits, choices=(0, 1))


def partial_planes(itemsize: int) -> Array:
    """The scratch array between the two kernels of a multi-kernel rung."""
    return Array("partial", lambda p: (p.N, p.conv.M, slices(p), p.conv.E, p.conv.F), itemsize)


VECTOR_SIZES = (("FILTER_ROWS", filter_rows), ("PLANE_PITCH", plane_pitch))
REDUCE_CHANNELS = Launch("reduce_channels", ("partial", "y"), plane_grid, plane_block)

MULTI_RUNGS: tuple[Rung, ...] = (
    Rung(
        "channels",
        alias="mk",
        idea="split over input channels (split-K): partial planes, then a reduction kernel",
        family="multi",
        parent="direct-register",
        file="multi/channels.cu",
        launches=(Launch("channels", ("x", "w", "partial"), slices_grid, plane_block), REDUCE_CHANNELS),
        constants=(THREAD_OUTPUTS, mapping(0), CHANNELS),
        scratch=(partial_planes(FLOAT),),
        refuses=outside_plane_block(),
    ),
    Rung(
        "channels-filter-shared",
        alias="mk-sw-mt",
        idea="the filter values of the block's channels in shared memory",
        family="multi",
        parent="channels",
        file="multi/channels_filter_shared.cu",
        launches=(
            Launch("channels_filter_shared", ("x", "w", "partial"), slices_grid, plane_block, slice_filter_bytes),
            REDUCE_CHANNELS,
        ),
        constants=(THREAD_OUTPUTS, mapping(0), CHANNELS),
        scratch=(partial_planes(FLOAT),),
        refuses=outside_plane_block(slice_filter_bytes),
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
                "channels_plane_shared", ("x", "w", "partial"), slices_grid, plane_block, filter_and_plane_bytes(FLOAT)
            ),
            REDUCE_CHANNELS,
        ),
        constants=(THREAD_OUTPUTS, mapping(1), CHANNELS, plane_shared(filter_and_plane_bytes(FLOAT))),
        scratch=(partial_planes(FLOAT),),
        refuses=outside_plane_block(filter_and_plane_bytes(FLOAT)),
    ),
    Rung(
        "channels-vector",
        alias="mk-sw-mt-si-c-vec",
        idea="vectorized loads, and fully unrolled loops along filter rows",
        family="multi",
        parent="channels-plane-shared",
        file="multi/channels_vector.cu",
        launches=(
            Launch("channels_vector", ("x", "w", "partial"), slices_grid, plane_block, vector_bytes),
            REDUCE_CHANNELS,
        ),
        constants=(THREAD_OUTPUTS, mapping(1), CHANNELS, plane_shared(vector_bytes)),
        sizes=VECTOR_SIZES,
        scratch=(partial_planes(FLOAT),),
        refuses=outside_plane_block(vector_bytes),
    ),
    Rung(
        "channels-half",
        alias="mk-sw-mt-si-c-half",
        idea="filter and input plane in shared memory, in half precision",
        family="multi",
        parent="channels-plane-shared",
        file="multi/channels_half.cu",
        launches=(
            Launch("channels_half", ("x", "w", "partial"), slices_grid, plane_block, filter_and_plane_bytes(HALF)),
            REDUCE_CHANNELS,
        ),
        constants=(THREAD_OUTPUTS, mapping(1), CHANNELS, plane_shared(filter_and_plane_bytes(HALF))),
        scratch=(partial_planes(HALF),),
        precision="half",
        refuses=outside_plane_block(filter_and_plane_bytes(HALF)),
    ),
    Rung(
        "channels-atomic",
        alias="exp-mk-sw-mt-si-c-vec",
        idea="split-K with atomics: no partial planes",
        family="multi",
        parent="channels-vector",
        file="multi/channels_atomic.cu",
        launches=(
            Launch("clear", ("y",), plane_grid, plane_block),
            Launch("channels_atomic", ("x", "w", "y"), slices_grid, plane_block, vector_bytes),
        ),
        constants=(THREAD_OUTPUTS, mapping(1), CHANNELS, plane_shared(vector_bytes)),
        sizes=VECTOR_SIZES,
        refuses=outside_plane_block(vector_bytes),
        order_varies=True,
        atomic_additions=slices,
    ),
)
