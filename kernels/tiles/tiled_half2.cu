// tiled-half2: two filters at once, in pairs of fp16 values.
//
// Technique: direct convolution in packed fp16 (half2); thread-block tiles; filters in shared memory.
// Read next: shared/shared_output_tile.cu.
// Run: alexconv run --rungs tiled-half2 --layers 2
//
// Parent: tiled-half, whose multiply-add computes one product where the same instruction on a half2 computes two.  The
// pair is two filters at the same output: their taps multiply the same input, so it is loaded once for both and no pair
// in the input has to start at an even address.  The taps of two filters are far apart in memory; packing them for each
// use would cost what the pair saves, so a block packs its two filters once, into shared memory.  Block (n, pair, tile)
// computes that tile of two planes; a thread computes one output of each.
#include <cuda_fp16.h>

#include "../common/hints.cuh"
#include "../common/tile.cuh"

ASSERT_BLOCK(TILED_HALF2, TILE, TILE);
ASSERT_GRID(TILED_HALF2, 1, (M + 1) / 2, TILES);
ASSERT_SHARED_BYTES(TILED_HALF2, C * R * S * sizeof(__half2));

extern "C" __global__ void __launch_bounds__(THREADS)
    tiled_half2(const __half* MAYBE_RESTRICT x,  // [N][C][H][W]
                const __half* MAYBE_RESTRICT w,  // [M][C][R][S]
                __half* MAYBE_RESTRICT y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(__half2, filters);  // [C][R][S] pairs of taps
    const int n = blockIdx.x, first = 2 * blockIdx.y;
    const int second = first + 1 < M ? first + 1 : first;  // the last of an odd number is paired with itself
    const int e = output_row(), f = output_column();
    x += (size_t)n * C * H * W;
    for (int i = threadIdx.y * TILE + threadIdx.x; i < C * R * S; i += THREADS)
        filters[i] = __halves2half2(w[(size_t)first * C * R * S + i], w[(size_t)second * C * R * S + i]);
    __syncthreads();  // all threads have written their part of the pairs before any thread reads them
    if (e >= E || f >= F) return;
    __half2 sums = __float2half2_rn(0);
    for (int c = 0; c < C; ++c)
#pragma unroll UNROLL_ROWS
        for (int r = 0; r < R; ++r)
#pragma unroll UNROLL_TAPS
            for (int s = 0; s < S; ++s)
                sums = __hfma2(__half2half2(x[(c * H + e * U + r) * W + f * U + s]), filters[(c * R + r) * S + s], sums);
    y[((size_t)n * M + first) * E * F + e * F + f] = __low2half(sums);
    y[((size_t)n * M + second) * E * F + e * F + f] = __high2half(sums);
}
