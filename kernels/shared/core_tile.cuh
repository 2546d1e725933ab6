// The convolution of shared-core-tile and shared-core-tile-constant: the core of an input tile from shared memory, the
// halo around it from global memory.
//
// Gives: CORE; convolve_core; tile.cuh and MAYBE_RESTRICT.
// Needs: TILE, RESTRICT and UNROLL, here the unroll factor of the loop over the channels; constants of the rung.
//
// The core is the block's own part of the plane: CORE x CORE inputs, in the middle of those that the block needs, so
// that the cores of neighbouring blocks touch.  What one block reads as halo another block reads as core, at about the
// same time, and the L2 cache is likely to have it.
#pragma once
#include "../common/hints.cuh"
#include "../common/tile.cuh"

constexpr int CORE = TILE * U;  // rows and columns
constexpr int HALO_ROWS = R > U ? (R - U) / 2 : 0;  // above the core; as many below it, or one more
constexpr int HALO_COLUMNS = S > U ? (S - U) / 2 : 0;

constexpr int UNROLL_CHANNELS = UNROLL;

// The sum of the thread's output; meaningless for a thread without one.
__device__ __forceinline__ float convolve_core(const float* MAYBE_RESTRICT x,  // [C][H][W], one image
                                               const float* MAYBE_RESTRICT w,  // [C][R][S], one filter
                                               float* core)                    // [CORE][CORE], shared
{
    const int top = tile_row() * U + HALO_ROWS, left = tile_column() * U + HALO_COLUMNS;
    const int e = output_row(), f = output_column();
    float sum = 0;
#pragma unroll UNROLL_CHANNELS
    for (int c = 0; c < C; ++c) {
        const float* const plane = x + c * H * W;
        if (c > 0) __syncthreads();  // every thread is done with the previous channel before it is overwritten
        for (int i = threadIdx.y; i < CORE; i += TILE)
            for (int j = threadIdx.x; j < CORE; j += TILE)
                if (top + i < H && left + j < W) core[i * CORE + j] = plane[(top + i) * W + left + j];
        __syncthreads();  // all threads have written their part of the core before any thread reads it
        if (e < E && f < F)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s) {
                    const int row = e * U + r, column = f * U + s;
                    const int i = row - top, j = column - left;
                    const bool inside = i >= 0 && i < CORE && j >= 0 && j < CORE;
                    sum += (inside ? core[i * CORE + j] : plane[row * W + column]) * w[(c * R + r) * S + s];
                }
    }
    return sum;
}
