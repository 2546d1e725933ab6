// im2col: the kernel that writes the unrolled input.
//
// Gives: unroll_input; output_tile.cuh.
#pragma once
#include "output_tile.cuh"

constexpr int UNROLL_THREADS = LADDER_UNROLL_THREADS;

ASSERT_BLOCK(UNROLL, UNROLL_THREADS, 1);
ASSERT_GRID(UNROLL, 1, C, (PIXELS + UNROLL_THREADS - 1) / UNROLL_THREADS);
ASSERT_ELEMENTS(UNROLLED, 1ll * K * PIXELS);

// Block (n, c, z) writes the R*S rows of channel c in image n for UNROLL_THREADS pixels; a thread writes these rows at one
// pixel, so stores are coalesced.
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
