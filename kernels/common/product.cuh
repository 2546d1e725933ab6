// Convolution as GEMM: filters [M][K] times the im2col matrix [K][PIXELS] of an image gives its output [M][PIXELS].
//
// Gives: K, PIXELS; output_tile (the block's tile of the output matrix); unroll_input (im2col).
//
// Column p of the im2col matrix, the unrolled input, holds the inputs of output pixel p = e*F + f; row
// k = (c*R + r)*S + s those that meet tap (c, r, s) of every filter.  (Chellapilla, Puri, Simard, "High performance
// convolutional neural networks for document processing", 2006.)
#pragma once
#include "shape.cuh"

constexpr int K = C * R * S;
constexpr int PIXELS = E * F;

// A tile of one image's output: the image, first row (a filter) and first column (a pixel).
struct OutputTile {
    int n, row, column;
};

// The block's tile of rows x columns outputs.  The grid is one-dimensional because only x may exceed 65535; the tiles of
// an image follow each other, so that blocks that run at the same time find its inputs in the L2 cache.
template <int rows, int columns>
__device__ __forceinline__ OutputTile output_tile()
{
    constexpr int down = (M + rows - 1) / rows, across = (PIXELS + columns - 1) / columns;
    const int tile = blockIdx.x % (down * across);
    return {int(blockIdx.x / (down * across)), tile / across * rows, tile % across * columns};
}

// im2col.  Block (n, c, z) writes the R*S rows of channel c in image n for blockDim.x pixels; a thread writes these rows
// at one pixel, so stores are coalesced.
__device__ __forceinline__ void unroll_input(const float* __restrict__ x,   // [N][C][H][W]
                                             float* __restrict__ unrolled)  // [N][K][PIXELS]
{
    const int pixel = blockIdx.z * blockDim.x + threadIdx.x;
    if (pixel >= PIXELS) return;
    const size_t plane = (size_t)blockIdx.x * C + blockIdx.y;
    x += plane * H * W + pixel / F * U * W + pixel % F * U;
    unrolled += plane * R * S * PIXELS + pixel;
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) unrolled[(size_t)(r * S + s) * PIXELS] = x[r * W + s];
}
