"""The single-kernel rungs of the AlexNet study: direct convolution, one block per output plane."""

from math import ceil

from alexconv.kernels.common.planes import THREAD_OUTPUTS, mapping, outside_plane_block, plane_block, plane_grid
from alexconv.kernels.geometry import FLOAT
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Dims, Launch, Rung
from alexconv.shapes import FEATURES

OUTPUT_THREADS = 256  # of a block whose threads have outputs of the batch


def filter_bytes(p: Problem) -> int:
    """Shared memory for the filter of one output plane."""
    return p.conv.K * FLOAT


def filter_and_sums_bytes(p: Problem) -> int:
    """Shared memory for a filter and an accumulator per thread."""
    x, y, _ = plane_block(p)
    return filter_bytes(p) + x * y * FLOAT


def outputs_grid(p: Problem) -> Dims:
    """A thread for each output of the batch."""
    return ceil(p.N * p.conv.M * p.conv.E * p.conv.F / OUTPUT_THREADS), 1, 1


def outputs_block(p: Problem) -> Dims:
    """A block of them."""
    return OUTPUT_THREADS, 1, 1


SINGLE_RUNGS: tuple[Rung, ...] = (
    Rung(
        "direct",
        alias="mcpy",
        idea="one thread per output, every product added in global memory",
        family="single",
        parent=None,
        file="single/direct.cu",
        launches=(Launch("direct", ("x", "w", "y"), plane_grid, plane_block),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(),
    ),
    Rung(
        "direct-register",
        alias="rla2m",
        idea="the accumulator in a register, one store per output",
        family="single",
        parent="direct",
        file="single/direct_register.cu",
        launches=(Launch("direct_register", ("x", "w", "y"), plane_grid, plane_block),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(),
    ),
    Rung(
        "direct-filter-one-thread",
        alias="rswbdla2m",
        idea="filter in shared memory, loaded by one thread while the others wait",
        family="single",
        parent="direct-register",
        file="single/direct_filter_one_thread.cu",
        launches=(Launch("direct_filter_one_thread", ("x", "w", "y"), plane_grid, plane_block, filter_bytes),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(filter_bytes),
    ),
    Rung(
        "direct-filter-shared",
        alias="rswmtla2m",
        idea="filter in shared memory, loaded by many threads",
        family="single",
        parent="direct-filter-one-thread",
        file="single/direct_filter_shared.cu",
        launches=(Launch("direct_filter_shared", ("x", "w", "y"), plane_grid, plane_block, filter_bytes),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(filter_bytes),
    ),
    Rung(
        "direct-sum-shared",
        alias="swso",
        idea="filter and accumulators in shared memory",
        family="single",
        parent="direct-filter-one-thread",
        file="single/direct_sum_shared.cu",
        launches=(Launch("direct_sum_shared", ("x", "w", "y"), plane_grid, plane_block, filter_and_sums_bytes),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        refuses=outside_plane_block(filter_and_sums_bytes),
    ),
    Rung(
        "direct-half",
        alias="half",
        idea="the naive convolution in half precision",
        family="single",
        parent="direct",
        file="single/direct_half.cu",
        launches=(Launch("direct_half", ("x", "w", "y"), plane_grid, plane_block),),
        constants=(THREAD_OUTPUTS, mapping(1)),
        precision="half",
        dtype="float16",
        refuses=outside_plane_block(),
    ),
    Rung(
        "direct-any",
        alias="any",
        idea="one thread per output of any layer: padding, strides, dilation, groups, bias and ReLU",
        family="single",
        parent="direct-register",
        file="single/direct_any.cu",
        launches=(Launch("direct_any", ("x", "w", "y", BATCH), outputs_grid, outputs_block, stores=True),),
        takes=tuple(FEATURES),
    ),
    Rung(
        "direct-any-half",
        alias="any-half",
        idea="any layer in fp16 with fp32 accumulators, NHWC",
        family="single",
        parent="direct-any",
        file="single/direct_any_half.cu",
        launches=(Launch("direct_any_half", ("x", "w", "y", BATCH), outputs_grid, outputs_block, stores=True),),
        precision="fp16",
        dtype="float16",
        layout="nhwc",
        takes=tuple(FEATURES),
    ),
)
