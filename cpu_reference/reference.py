"""Convolution and its gradients on the CPU as matrix products of unrolled patches, on all cores.

Memory does not depend on N, nor, forward, on K.

Unrolling (im2col): Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", IWFHR 2006.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import ceil, prod
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import threadpool_limits

from alexconv.machine import cores
from alexconv.parallel import each_image, each_slice
from alexconv.shapes import FORWARD, Conv

SOURCE = Path(__file__)

# A tile is the part of the unrolled patches that one product takes.  With fewer columns BLAS spends its time packing
# the filters; with more elements the tile exceeds the core's cache; very small layers need more columns, to amortize
# the interpreter's time per tile.
_TILE_COLUMNS = 1024
_TILE_ELEMENTS = 1 << 18
_UNROLLED_ELEMENTS = 1 << 24  # at once: of a larger tile some channels after others, whose products are added
_NORM_ELEMENTS = 1 << 19  # of the images whose norms are computed at once: threads seldom wait for one another

_BAND_ELEMENTS = 1 << 21  # of the unrolled patches of a gradient's product
_IMAGES_OF_RUN = 4  # images that one core sums for the filters' gradient

_Tile = tuple[slice, slice]  # images, rows of the output plane


Values = NDArray[np.float32]


def reference(conv: Conv, x: Values, w: Values, bias: Values | None = None) -> Values:
    """The output in the layer's direction, summed in float64 and rounded once to float32.

    Forward, ``x`` is ``[N][C][H][W]``, ``w`` is ``[M][C / groups][R][S]``, ``bias`` is ``[M]`` where the layer has one,
    and the output ``[N][M][E][F]``.  Gradients have the arrays of their direction (``alexconv.shapes.DIRECTIONS``).
    Raises ValueError for other shapes.
    """
    return convolve(conv, x, w, np.float64, bias) if conv.direction == FORWARD else gradient(conv, x, w)


def exact_sums(conv: Conv, x: Values, w: Values, bias: Values | None = None) -> Values:
    """``reference`` of operands whose sums are exact in float32, whatever their order: in float32, twice as fast."""
    return convolve(conv, x, w, np.float32, bias) if conv.direction == FORWARD else gradient(conv, x, w)


def convolve(conv: Conv, x: Values, w: Values, dtype: DTypeLike, bias: Values | None = None) -> Values:
    """The layer's output ``[N][M][E][F]``, unrolled, multiplied and summed in ``dtype`` on all cores.

    Raises ValueError for arrays as ``reference`` does.
    """
    N = len(x)
    if x.shape != conv.x_shape(N) or w.shape != conv.w_shape():
        raise ValueError(f"arrays {x.shape} and {w.shape} do not fit {conv}")
    if (bias is not None) != conv.bias or (bias is not None and bias.shape != (conv.M,)):
        raise ValueError(f"a bias of shape {None if bias is None else bias.shape} does not fit {conv}")
    y = np.empty(conv.y_shape(N), np.float32)
    step_down, step_across = conv.strides
    rows_apart, columns_apart = conv.dilation
    windows = sliding_window_view(with_border(conv, x), (conv.filter_rows, conv.filter_columns), axis=(2, 3))
    windows = windows[:, :, ::step_down, ::step_across, ::rows_apart, ::columns_apart]
    patches = windows.transpose(1, 4, 5, 0, 2, 3)  # [C][R][S][N][E][F], a view of x
    if conv.groups == conv.C > 1:
        _convolve_channels(conv, patches, w.astype(dtype), None if bias is None else bias.astype(dtype), y)
        return y
    C, M = conv.C // conv.groups, conv.M // conv.groups
    for group in range(conv.groups):
        channels, maps = slice(group * C, (group + 1) * C), slice(group * M, (group + 1) * M)
        filters = w[maps].reshape(M, conv.K).astype(dtype)  # [M][K]
        added = None if bias is None else bias[maps].astype(dtype)
        _convolve_group(conv, patches[channels], filters, added, y[:, maps])
    return y


def with_border(conv: Conv, x: NDArray[Any]) -> NDArray[Any]:
    """Planes ``[N][C][H][W]`` with the layer's padding in memory; ``x`` itself where it has none."""
    top, bottom, left, right = conv.padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right))) if any(conv.padding) else x


def gradient(conv: Conv, x: Values, w: Values) -> Values:
    """The gradient in the layer's direction, summed in float64: of dy and w dx ``[N][C][H][W]``, of x and dy dw.

    ``dw`` is ``[M][C / groups][R][S]``.  Images are summed in runs and these in order, so that the number of
    cores changes no bit.  Raises ValueError for arrays of other shapes.
    """
    N, roles = len(x), conv.roles
    if x.shape != conv.shape_of(roles.x, N) or w.shape != conv.shape_of(roles.w, N):
        raise ValueError(f"arrays {x.shape} and {w.shape} do not fit {conv}")
    if not roles.sums_images:
        dx = np.empty(conv.x_shape(N), np.float32)
        with threadpool_limits(1, user_api="blas"):
            each_image(lambda n: _input_gradient(conv, x[n], w, dx[n]), N)
        return dx
    total, together = np.zeros(conv.w_shape()), _IMAGES_OF_RUN * cores()  # as many sums in memory as cores
    with threadpool_limits(1, user_api="blas"):
        for first in range(0, N, together):
            some_x, some_dy = x[first : first + together], w[first : first + together]
            of_run = partial(_filter_gradient, conv, some_x, some_dy)
            for part in each_slice(of_run, len(some_x), _IMAGES_OF_RUN):
                total += part
    with np.errstate(over="ignore"):
        return total.astype(np.float32)


def _row_bands(conv: Conv) -> list[slice]:
    """The output's rows in bands whose unrolled patches have a bounded size."""
    rows = max(1, _BAND_ELEMENTS // (conv.K * conv.F))
    return [slice(first, min(first + rows, conv.E)) for first in range(0, conv.E, rows)]


def _groups(conv: Conv) -> list[tuple[slice, slice]]:
    """Each group's channels and filters."""
    C, M = conv.C // conv.groups, conv.M // conv.groups
    return [(slice(g * C, (g + 1) * C), slice(g * M, (g + 1) * M)) for g in range(conv.groups)]


def _input_gradient(conv: Conv, dy: Values, w: Values, dx: Values) -> None:
    """Fills an image's gradient ``dx [C][H][W]``, from ``dy [M][E][F]``: products added where their taps lie.

    Beyond its planes dy is zero, as padding is, so an infinite tap makes NaN there; between the rows and columns of a
    stride it is nothing.
    """
    if not np.isfinite(w).all():
        conv, dy = _with_zeros_around(conv, dy)
    C = conv.C // conv.groups
    planes = np.zeros((conv.C, *conv.padded))
    with np.errstate(invalid="ignore", over="ignore"):
        for rows in _row_bands(conv):
            for channels, maps in _groups(conv):
                pixels = dy[maps, rows].reshape(conv.M // conv.groups, -1).astype(np.float64)
                unrolled = w[maps].reshape(-1, conv.K).T.astype(np.float64) @ pixels
                of_taps = unrolled.reshape(C, conv.R, conv.S, rows.stop - rows.start, conv.F)
                for r, s, down, across in conv.taps(rows):
                    planes[channels, down, across] += of_taps[:, r, s]
        dx[:] = planes[:, conv.top : conv.top + conv.H, conv.left : conv.left + conv.W]


def _with_zeros_around(conv: Conv, dy: Values) -> tuple[Conv, Values]:
    """The problem with as many zeros around ``dy [M][E][F]`` as have taps within the plane."""
    (down, across), rows, columns = conv.strides, conv.filter_rows - 1, conv.filter_columns - 1
    above, beside = -(-rows // down), -(-columns // across)
    below, right = (-(-(reach + step - 1) // step) for reach, step in ((rows, down), (columns, across)))
    wider = replace(
        conv,
        top=conv.top + above * down,
        bottom=conv.bottom + below * down,
        left=conv.left + beside * across,
        right=conv.right + right * across,
    )
    return wider, np.pad(dy, ((0, 0), (above, below), (beside, right)))


def _filter_gradient(conv: Conv, x: Values, dy: Values, images: slice) -> NDArray[np.float64]:
    """The filters' gradient ``[M][C / groups][R][S]`` from some images, in float64."""
    C, M = conv.C // conv.groups, conv.M // conv.groups
    dw = np.zeros((conv.M, conv.K))
    bands = _row_bands(conv)
    patches = np.empty((C, conv.R, conv.S, bands[0].stop, conv.F))
    with np.errstate(invalid="ignore", over="ignore"):
        for planes, of_image in zip(with_border(conv, x[images]), dy[images], strict=True):
            for rows in bands:
                tile = patches[:, :, :, : rows.stop - rows.start]
                for channels, maps in _groups(conv):
                    for r, s, down, across in conv.taps(rows):
                        tile[:, r, s] = planes[channels, down, across]
                    dw[maps] += of_image[maps, rows].reshape(M, -1).astype(np.float64) @ tile.reshape(conv.K, -1).T
    return dw.reshape(conv.w_shape())


def norms(
    conv: Conv, x: Values, w: Values, bias: Values | None = None, reach: int = 0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two arrays whose products are the norms that errors of outputs are compared with (``patch_norms``).

    Forward, norms of patches ``[N][E][F]`` and of filters ``[M]``.  Of gradients the first has the output's shape: of
    each output, the norms of the operands' values that it is a sum of products of; the second is ones.
    """
    if conv.direction == FORWARD:
        return patch_norms(conv, x, reach), filter_norms(w, bias)
    ones = np.ones(conv.shape_of(conv.roles.y, 1)[1])
    squares_of_x, squares_of_w = (np.square(values, dtype=np.float64) for values in (x, w))
    with np.errstate(invalid="ignore"):
        of_outputs = _filter_gradient_norms if conv.roles.sums_images else _input_gradient_norms
        return of_outputs(conv, squares_of_x, squares_of_w), ones


def _filter_gradient_norms(conv: Conv, x: NDArray[np.float64], dy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Norms of the outputs of wgrad ``[M][C / groups][R][S]``, from the squares of ``x`` and ``dy``."""
    planes = with_border(conv, x.sum(axis=0)[None])[0]  # [C][H][W], with the padding
    pixels, in_memory = dy.sum(axis=0), with_border(conv, np.ones((1, 1, conv.H, conv.W)))[0, 0]
    norms = np.empty(conv.w_shape())
    for r, s, down, across in conv.taps():
        of_windows = np.sqrt(planes[:, down, across].sum(axis=(1, 2)))
        of_maps = np.sqrt((pixels * in_memory[down, across]).sum(axis=(1, 2)))
        for channels, maps in _groups(conv):
            norms[maps, :, r, s] = of_maps[maps, None] * of_windows[channels]
    return norms


def _input_gradient_norms(conv: Conv, dy: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Norms of the outputs of dgrad ``[N][C][H][W]``, from the squares of ``dy [N][M][E][F]`` and ``w``."""
    norms = np.empty(conv.x_shape(len(dy)))
    for channels, maps in _groups(conv):
        of_pixels, of_taps = dy[:, maps].sum(axis=1), w[maps].sum(axis=0)  # [N][E][F], [C / groups][R][S]
        patches, filters = np.zeros((len(dy), *conv.padded)), np.zeros((len(of_taps), *conv.padded))
        for r, s, down, across in conv.taps():
            patches[:, down, across] += of_pixels
            filters[:, down, across] += of_taps[:, r, s, None, None]
        inner = slice(conv.top, conv.top + conv.H), slice(conv.left, conv.left + conv.W)
        norms[:, channels] = np.sqrt(patches[:, *inner])[:, None] * np.sqrt(filters[:, *inner])
    return norms


def _convolve_channels(
    conv: Conv, patches: Values, filters: NDArray[np.floating], bias: NDArray[np.floating] | None, y: Values
) -> None:
    """Fills the outputs ``[N][M][E][F]`` of a depthwise layer, tap by tap: its products are too few for BLAS.

    ``patches`` is ``[C][R][S][N][E][F]``, ``filters`` ``[M][1][R][S]``.
    """

    def fill(images: slice) -> None:
        sums = np.zeros(y[images].shape, filters.dtype)
        with np.errstate(invalid="ignore"):  # of infinities: NaN, as IEEE has it
            for r, s in product(range(conv.R), range(conv.S)):
                planes = patches[:, r, s, images].swapaxes(0, 1).astype(filters.dtype)  # [n][C][E][F]
                sums += planes.repeat(conv.M // conv.C, axis=1) * filters[:, :, r, s, None]
            if bias is not None:
                sums += bias[:, None, None]
            if conv.relu:
                np.maximum(sums, 0, out=sums)  # of NaN: NaN
        with np.errstate(over="ignore"):  # beyond float32's range the sum is infinite, as IEEE has it
            y[images] = sums

    each_slice(fill, len(y), _TILE_ELEMENTS // prod(y.shape[1:]))


def _convolve_group(
    conv: Conv, patches: Values, filters: NDArray[np.floating], bias: NDArray[np.floating] | None, y: Values
) -> None:
    """Fills a group's outputs ``[N][M][E][F]``, given its patches ``[C][R][S][N][E][F]``."""
    N = len(y)
    workers = cores()
    columns = min(max(_TILE_COLUMNS, _TILE_ELEMENTS // conv.K), ceil(N * conv.E * conv.F / workers))
    tiles = iter(_tiles(conv, N, columns))  # shared: each worker takes the next tile when it has finished one
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        for worker in [pool.submit(_multiply, tiles, patches, filters, bias, conv.relu, y) for _ in range(workers)]:
            worker.result()


def _tiles(conv: Conv, N: int, columns: int) -> list[_Tile]:
    """The output cut into tiles of about ``columns`` pixels: rows of one image, or several whole images."""
    rows = min(max(columns // conv.F, 1), conv.E)
    rows = ceil(conv.E / ceil(conv.E / rows))  # equal heights: a thin last tile would multiply slowly
    images = max(columns // (conv.E * conv.F), 1)
    return [
        (slice(n, min(n + images, N)), slice(e, min(e + rows, conv.E)))
        for n in range(0, N, images)
        for e in range(0, conv.E, rows)
    ]


def _multiply(
    tiles: Iterator[_Tile],
    patches: Values,
    filters: NDArray[np.floating],
    bias: NDArray[np.floating] | None,
    relu: bool,
    y: Values,
) -> None:
    """Unrolls tiles of ``patches`` ``[C][R][S][N][E][F]`` and multiplies them by ``filters`` ``[M][K]``.

    Writes the outputs to ``y`` ``[N][M][E][F]``, with ``bias`` ``[M]`` and ReLU where the layer has them.  A worker
    reuses its buffers for all tiles.
    """
    M, K = filters.shape
    taps = K // len(patches)
    unrolled = products = np.empty(0, filters.dtype)
    for images, rows in tiles:
        tile = patches[:, :, :, images, rows]
        columns = tile[0, 0, 0].size
        channels = min(len(tile), max(1, _UNROLLED_ELEMENTS // (columns * taps)))  # at once
        if channels * taps * columns > unrolled.size or columns * M > products.size:
            unrolled, products = (np.empty(rows_ * columns, filters.dtype) for rows_ in (channels * taps, M))
        product = products[: columns * M].reshape(M, columns)
        with np.errstate(invalid="ignore"):  # of infinities: NaN, as IEEE has it
            for first in range(0, len(tile), channels):
                part = tile[first : first + channels]
                matrix = unrolled[: part.size].reshape(-1, columns)
                np.copyto(matrix.reshape(part.shape), part)
                factors = filters[:, first * taps : first * taps + len(matrix)]
                if first == 0:
                    np.matmul(factors, matrix, out=product)
                else:
                    product += factors @ matrix
            if bias is not None:
                product += bias[:, None]
            if relu:
                np.maximum(product, 0, out=product)  # of NaN: NaN
        with np.errstate(over="ignore"):  # beyond float32's range the sum is infinite, as IEEE has it
            y[images, :, rows] = product.reshape(M, *tile.shape[3:]).swapaxes(0, 1)


def patch_norms(conv: Conv, x: Values, reach: int = 0) -> Values:
    """Euclidean norm of the patch under each output pixel, ``[N][E][F]``, summed in float64 over C, R and S.

    ``x`` is ``[N][C][H][W]``; an output is at most its patch's norm times its filter's norm.  The patch is widened by
    ``reach`` columns to each side, as far as the plane goes.  A layer with groups has norms for each output,
    ``[N][M][E][F]``.  A bias counts as one more tap, with an input of 1.
    """
    (down, across), (apart, columns_apart) = conv.strides, conv.dilation
    rows = slice(0, (conv.E - 1) * down + 1, down)
    columns = slice(0, (conv.F - 1) * across + 1, across)
    planes = with_border(conv, x)
    norms = np.empty((len(x), conv.groups, conv.E, conv.F), np.float32)

    def fill(images: slice) -> None:
        squares = np.square(planes[images], dtype=np.float64)
        squares = squares.reshape(len(squares), conv.groups, -1, *squares.shape[2:]).sum(axis=2)  # [n][groups][H][W]
        # R rows, then S columns: R + S additions per pixel and, unlike with cumulative sums, no cancellation.
        bands = reduce(add, (squares[:, :, r * apart :][:, :, rows] for r in range(conv.R)))  # [n][groups][E][W]
        taps = range(0, conv.filter_columns, columns_apart)
        if reach:
            bands = np.pad(bands, ((0, 0), (0, 0), (0, 0), (reach, reach)))
            taps = range(conv.filter_columns + 2 * reach)
        norms[images] = np.sqrt(reduce(add, (bands[..., s:][..., columns] for s in taps)) + conv.bias)

    each_slice(fill, len(x), _NORM_ELEMENTS // prod(planes.shape[1:]))
    return norms[:, 0] if conv.groups == 1 else np.repeat(norms, conv.M // conv.groups, axis=1)


def filter_norms(w: Values, bias: Values | None = None) -> NDArray[np.float64]:
    """Euclidean norm of each filter, ``[M]``, of ``w`` ``[M][C][R][S]``; a ``bias`` ``[M]`` counts as one more tap."""
    squares: NDArray[np.float64] = np.square(w, dtype=np.float64).sum(axis=(1, 2, 3))
    return np.sqrt(squares if bias is None else squares + np.square(bias, dtype=np.float64))
