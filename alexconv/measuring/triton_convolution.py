"""A convolution in Triton: implicit GEMM over channels-last arrays, for the peers; imported where Triton is there."""

import triton
import triton.language as tl


@triton.jit
def convolve(
    x,  # [N][H][W][C]
    w,  # [M][R][S][C]
    bias,  # [M]
    y,  # [N][E][F][M]
    pixels,  # N E F
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    M: tl.constexpr,
    E: tl.constexpr,
    F: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    DOWN: tl.constexpr,  # strides
    ACROSS: tl.constexpr,
    APART_DOWN: tl.constexpr,  # dilation
    APART_ACROSS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RELU: tl.constexpr,
    PRECISION: tl.constexpr,  # of products of floats: "ieee" or "tf32"
    BLOCK_PIXELS: tl.constexpr,
    BLOCK_FILTERS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A program computes BLOCK_PIXELS x BLOCK_FILTERS outputs; tiles of the same pixels follow each other."""
    filter_tiles: tl.constexpr = tl.cdiv(M, BLOCK_FILTERS)
    tile = tl.program_id(0)
    pixel = tile // filter_tiles * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    m = tile % filter_tiles * BLOCK_FILTERS + tl.arange(0, BLOCK_FILTERS)
    k = tl.arange(0, BLOCK_K)
    image, row, column = pixel // (E * F), pixel // F % E, pixel % F
    window = ((image * H + row * DOWN) * W + column * ACROSS) * C
    is_pixel, is_filter = pixel < pixels, m < M
    sums = tl.zeros((BLOCK_PIXELS, BLOCK_FILTERS), dtype=tl.float32)
    K: tl.constexpr = R * S * C
    filters = w + m[None, :] * K + k[:, None]
    for step in range(tl.cdiv(K, BLOCK_K)):
        if C % BLOCK_K == 0:  # channels of one tap, contiguous
            tap = step * BLOCK_K // C
            first = (tap // S * APART_DOWN * W + tap % S * APART_ACROSS) * C + step * BLOCK_K % C
            inputs = tl.load(x + (window[:, None] + first + k[None, :]), mask=is_pixel[:, None], other=0)
            taps = tl.load(filters + step * BLOCK_K, mask=is_filter[None, :], other=0)
        else:
            place = step * BLOCK_K + k
            tap, is_tap = place // C, place < K
            offset = (tap // S * APART_DOWN * W + tap % S * APART_ACROSS) * C + place % C
            inputs = tl.load(x + (window[:, None] + offset[None, :]), mask=is_pixel[:, None] & is_tap[None, :], other=0)
            taps = tl.load(filters + step * BLOCK_K, mask=is_filter[None, :] & is_tap[:, None], other=0)
        sums = tl.dot(inputs, taps, sums, input_precision=PRECISION)
    if HAS_BIAS:
        sums += tl.load(bias + m, mask=is_filter, other=0)[None, :].to(tl.float32)
    if HAS_RELU:
        sums = tl.where(sums < 0, 0.0, sums)  # NaN stays
    outputs = y + (pixel[:, None] * M + m[None, :])
    tl.store(outputs, sums.to(y.dtype.element_ty), mask=is_pixel[:, None] & is_filter[None, :])
