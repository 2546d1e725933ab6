// A layer as a product of matrices: filters [M][K] times the unrolled input [K][PIXELS] of an image is its output
// [M][PIXELS].
//
// Column p of the unrolled input has the inputs of output pixel p = e*F + f, row k = (c*R + r)*S + s those that tap
// (c, r, s) of every filter meets.  (Chellapilla, Puri, Simard, "High performance convolutional neural networks for
// document processing", 2006.)
#pragma once
#include "shape.cuh"

constexpr int K = C * R * S;
constexpr int PIXELS = E * F;

// A tile of one image's output: the image, first row (a filter) and first column (a pixel).
struct OutputTile {
    int n, row, column;
};

// The block's tile of rows x columns outputs.  All tiles of a batch stand in one row of blocks, because only x may count
// beyond 65535; those of one image are neighbours, so that blocks that run together find its inputs in the L2 cache.
template <int rows, int columns>
__device__ __forceinline__ OutputTile output_tile()
{
    constexpr int down = (M + rows - 1) / rows, across = (PIXELS + columns - 1) / columns;
    const int tile = blockIdx.x % (down * across);
    return {int(blockIdx.x / (down * across)), tile / across * rows, tile % across * columns};
}

// Writes the unrolled input.  Block (n, c, part) writes the R*S rows of channel c in image n for some of the pixels; a
// thread writes one pixel's part of these rows, and neighbouring threads write neighbouring addresses.
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
