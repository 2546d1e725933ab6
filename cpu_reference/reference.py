"""Convolution on the CPU as a matrix product of unrolled patches, on all cores, in memory that N does not change.

Unrolling (im2col): Chellapilla, Puri and Simard, "High performance convolutional neural networks for document
processing", IWFHR 2006.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import threadpool_limits

from alexconv.machine import cores
from alexconv.shapes import Conv

SOURCE = Path(__file__)
REFERENCE_VERSION = 1  # part of every cache key: raise it when `reference` may give other values

# A tile is the part of the unrolled patches that one product takes.  With fewer columns BLAS spends its time packing
# the filters; with more elements the tile leaves the core's cache; very small layers need more columns, for else the
# interpreter's time per tile shows.
_TILE_COLUMNS = 1024
_TILE_ELEMENTS = 1 << 18

_Tile = tuple[slice, slice]  # images, rows of the output plane


def reference(conv: Conv, x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
    """The layer's output ``[N][M][E][F]``, summed in float64 and rounded once to float32.

    ``x`` is ``[N][C][H][W]`` and ``w`` is ``[M][C][R][S]``.  Raises ValueError for other shapes.
    """
    return convolve(conv, x, w, np.float64)


def convolve(conv: Conv, x: NDArray[np.float32], w: NDArray[np.float32], dtype: DTypeLike) -> NDArray[np.float32]:
    """The layer's output ``[N][M][E][F]``, unrolled, multiplied and summed in ``dtype`` on all cores.

    Raises ValueError when ``x`` is not ``[N][C][H][W]`` or ``w`` is not ``[M][C][R][S]``.
    """
    N = len(x)
    if x.shape != conv.x_shape(N) or w.shape != conv.w_shape():
        raise ValueError(f"arrays {x.shape} and {w.shape} do not fit {conv}")
    windows = sliding_window_view(x, (conv.R, conv.S), axis=(2, 3))[:, :, :: conv.U, :: conv.U]
    patches = windows.transpose(1, 4, 5, 0, 2, 3)  # [C][R][S][N][E][F], a view of x
    filters = w.reshape(conv.M, conv.K).astype(dtype)  # [M][K]
    y = np.empty(conv.y_shape(N), np.float32)

    workers = cores()
    columns = min(max(_TILE_COLUMNS, _TILE_ELEMENTS // conv.K), ceil(N * conv.E * conv.F / workers))
    tiles = iter(_tiles(conv, N, columns))  # shared: each worker takes the next tile when it has finished one
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        for worker in [pool.submit(_multiply, tiles, patches, filters, y) for _ in range(workers)]:
            worker.result()
    return y


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
    tiles: Iterator[_Tile], patches: NDArray[np.float32], filters: NDArray[np.floating], y: NDArray[np.float32]
) -> None:
    """Unroll tiles of ``patches`` ``[C][R][S][N][E][F]`` and multiply them by ``filters`` ``[M][K]``.

    The products go to ``y`` ``[N][M][E][F]``.  A worker's two buffers last from tile to tile.
    """
    M, K = filters.shape
    unrolled = products = np.empty(0, filters.dtype)
    for images, rows in tiles:
        tile = patches[:, :, :, images, rows]
        columns = tile[0, 0, 0].size
        if columns * K > unrolled.size:
            unrolled, products = np.empty(columns * K, filters.dtype), np.empty(columns * M, filters.dtype)
        matrix = unrolled[: columns * K].reshape(K, columns)
        product = products[: columns * M].reshape(M, columns)
        np.copyto(matrix.reshape(tile.shape), tile)
        with np.errstate(invalid="ignore"):  # of infinities: NaN, as IEEE has it
            np.matmul(filters, matrix, out=product)
        with np.errstate(over="ignore"):  # beyond float32's range the sum is infinite, as IEEE has it
            y[images, :, rows] = product.reshape(M, *tile.shape[3:]).swapaxes(0, 1)


def patch_norms(conv: Conv, x: NDArray[np.float32], reach: int = 0) -> NDArray[np.float32]:
    """Euclidean norm of the patch under each output pixel, ``[N][E][F]``, summed in float64 over C, R and S.

    ``x`` is ``[N][C][H][W]``; an output is at most its patch's norm times its filter's norm.  The patch is widened by
    ``reach`` columns to each side, as far as the plane goes.
    """
    rows = slice(0, (conv.E - 1) * conv.U + 1, conv.U)
    columns = slice(0, (conv.F - 1) * conv.U + 1, conv.U)
    norms = np.empty((len(x), conv.E, conv.F), np.float32)
    for image, norm in zip(x, norms, strict=True):
        squares = np.square(image, dtype=np.float64).sum(axis=0)  # [H][W]
        # Adding R rows, then S columns, costs R + S additions a pixel and, unlike cumulative sums, cancels nothing.
        bands = sum(squares[r:][rows] for r in range(conv.R))  # [E][W]
        if reach:
            bands = np.pad(bands, ((0, 0), (reach, reach)))
        norm[:] = np.sqrt(sum(bands[:, s:][:, columns] for s in range(conv.S + 2 * reach)))
    return norms


def filter_norms(w: NDArray[np.float32]) -> NDArray[np.float64]:
    """Euclidean norm of each filter, ``[M]``, of filters ``[M][C][R][S]``."""
    squares: NDArray[np.float64] = np.square(w, dtype=np.float64).sum(axis=(1, 2, 3))
    return np.sqrt(squares)
