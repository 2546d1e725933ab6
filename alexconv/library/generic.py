"""Launch configurations of kernels whose shape is an argument: those of generic.cu, copy.cu and sum.cu."""

from math import ceil, prod
from pathlib import Path

from alexconv.kernels.rung import Dims
from alexconv.library.arrays import Descriptor
from alexconv.library.packets import Struct
from alexconv.shapes import Conv

GENERIC_SOURCE, COPY_SOURCE, SUM_SOURCE, PIXELS_SOURCE = SOURCES = tuple(
    Path(__file__).with_name(name) for name in ("generic.cu", "copy.cu", "sum.cu", "pixels.cu")
)
TILE, THREADS = 64, 256  # filters and pixels of a block, and threads; as in generic.cu
LEAST_FILTERS = 8  # of a group, below which a tile is mostly empty
MOST_GROUPS = 65535  # CUDA's limit on gridDim.y
ALONG_TILE, INNER_TILE = 64, 32  # of copy_transposed; as in copy.cu
ELEMENTS = 8  # of a thread of copy_elements
COPY_BLOCK = 32, 4, 1
MOST_ACROSS = 32  # neighbouring filters that a block of sum.cu sums
SUM_BLOCKS = 1024  # wanted, whatever the GPU: the same sums everywhere
PARTIAL_BYTES = 4
LEAST_TRANSPOSED = 8  # extents below which a tile is mostly empty

Launch = tuple[str, Dims, Dims, list[Struct]]  # entry, grid, block, the structs and numbers that follow the arrays


def shape_words(conv: Conv, N: int, x: Descriptor, w: Descriptor, y: Descriptor) -> Struct:
    """``Shape`` in generic.cu."""
    return [
        *(N, conv.H, conv.W),
        *(conv.M // conv.groups, conv.C // conv.groups, conv.R, conv.S),
        *(conv.E, conv.F),
        *(*conv.strides, conv.top, conv.left),
        *(*conv.dilation, conv.groups, *activation_words(conv)),
        *(*x.strides, *w.strides, *y.strides),
    ]


def activation_words(conv: Conv) -> Struct:
    """``Activation`` in activation.cuh."""
    return [int(conv.relu), conv.ceiling, int(conv.silu), int(conv.gelu)]


def convolution(conv: Conv, N: int, x: Descriptor, w: Descriptor, y: Descriptor) -> Launch:
    """The launch that computes a layer; the arrays are x, w, bias and y."""
    words, filters = shape_words(conv, N, x, w, y), conv.M // conv.groups
    if filters >= LEAST_FILTERS and conv.groups <= MOST_GROUPS:
        tiles = ceil(N * conv.E * conv.F / TILE) * ceil(filters / TILE)
        return "convolve_tiles", (tiles, conv.groups, 1), (THREADS, 1, 1), [words]
    return "convolve_each", over(prod(conv.y_shape(N))), (THREADS, 1, 1), [words]


def finish(conv: Conv, N: int, y: Descriptor, residual: Descriptor) -> Launch:
    """The launch that adds bias and residual and applies the activation; the arrays are bias, residual and y."""
    return "finish", over(prod(conv.y_shape(N))), (THREADS, 1, 1), [shape_words(conv, N, residual, y, y)]


def over(elements: int) -> Dims:
    """A grid with a thread for each element."""
    return ceil(elements / THREADS), 1, 1


def sums(dy: Descriptor) -> tuple[list[tuple[str, Dims, list[Struct]]], int]:
    """The launches of THREADS threads that sum each filter's plane of dy over the batch, and bytes of partial sums.

    The arrays are dy and partial, then partial and the sums.
    """
    if dy.strides[2] == dy.shape[3] * dy.strides[3]:
        dy = one_row(dy)
    N, M, *_ = dy.shape
    across = MOST_ACROSS if dy.strides[1] == 1 and M >= MOST_ACROSS else 1
    columns = ceil(M / across)
    images = ceil(N / min(N, ceil(SUM_BLOCKS / columns)))
    slices = ceil(N / images)
    words = [*dy.shape, *dy.strides, across, images]
    launches: list[tuple[str, Dims, list[Struct]]] = [
        ("sum_slices", (columns, slices, 1), [words]),
        ("sum_partials", over(M), [[M], [slices]]),
    ]
    return launches, slices * M * PARTIAL_BYTES


def copy(source: Descriptor, target: Descriptor, before: tuple[int, int]) -> Launch:
    """The launch that copies planes into a target after ``before`` rows and columns of zeros; zeros fill the rest.

    The arrays are source and target.
    """
    if source.shape == target.shape and all(
        array.strides[2] == array.shape[3] * array.strides[3] for array in (source, target)
    ):
        source, target = one_row(source), one_row(target)
    margins = dict(zip("NCHW", (0, 0, *before), strict=True))
    axes = {
        name: (extent, step, source_step, margins[name], count)
        for name, extent, step, source_step, count in zip(
            "NCHW", target.shape, target.strides, source.strides, source.shape, strict=True
        )
    }
    order = {name: (extent == 1, step, extent) for name, (extent, step, *_) in axes.items()}
    outer, middle, inner = sorted("CHW", key=order.__getitem__, reverse=True)
    along = min("CHW", key=lambda name: (axes[name][4] == 1, abs(axes[name][2])))  # neighbours in the source
    if along != inner and min(axes[along][0], axes[inner][0]) >= LEAST_TRANSPOSED:
        (other,) = {outer, middle} - {along}
        tiles = ceil(axes[along][0] / ALONG_TILE) * ceil(axes[inner][0] / INNER_TILE)
        grid = target.shape[0] * axes[other][0] * tiles, 1, 1
        return (
            "copy_transposed",
            grid,
            COPY_BLOCK,
            [axes[name] for name in ("N", other, along, inner)],
        )
    blocks = ceil(prod(target.shape[1:]) / (THREADS * ELEMENTS))
    parameters: list[Struct] = [*(axes[name] for name in ("N", outer, middle, inner)), [blocks]]
    return "copy_elements", (target.shape[0] * blocks, 1, 1), (THREADS, 1, 1), parameters


def turned(w: Descriptor) -> tuple[Descriptor, Descriptor, int]:
    """A copy that turns filters ``[M][R][S][C]`` for dgrad, into ``[C][R][S][M]`` with the taps in reverse order.

    Source, target, and the element at which the target begins, as an axis of the taps.
    """
    M, C, R, S = w.shape
    taps = R * S
    source = w._replace(shape=(taps, C, 1, M), strides=(C, 1, 0, taps * C))
    return source, source._replace(strides=(-M, taps * M, 0, 1)), (taps - 1) * M


def one_row(planes: Descriptor) -> Descriptor:
    """Planes whose rows follow each other, as planes of one row."""
    N, C, H, W = planes.shape
    a, b, _, d = planes.strides
    return planes._replace(shape=(N, C, 1, H * W), strides=(a, b, 0, d))
