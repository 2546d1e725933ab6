// tiled-constant: the filters in constant memory.
//
// Technique: direct convolution; thread-block tiles; filters in constant memory.
// Read next: tiles/tiled_channels_atomic.cu.
// Run: alexconv run --rungs tiled-constant --workload lenet-86-k7 --layers 2
//
// Parent: tiled.  All threads of a block read the same tap at the same time, which is what the constant cache is made
// for: it broadcasts one word to a whole warp, as an operand of the multiply-add, without a load instruction.  The L1
// cache and the load units are left to the input.  Constant memory holds 64 KiB, so larger filter sets are refused.
// Block (n, m, tile) computes that tile of the plane (n, m); a thread computes one output.
#include "../common/hints.cuh"
#include "../common/tile.cuh"

ASSERT_BLOCK(TILED_CONSTANT, TILE, TILE);
ASSERT_GRID(TILED_CONSTANT, 1, M, TILES);

__constant__ float filters[M * C * R * S];  // [M][C][R][S]

extern "C" __global__ void __launch_bounds__(THREADS)
    tiled_constant(const float* MAYBE_RESTRICT x,  // [N][C][H][W]
                   float* MAYBE_RESTRICT y)        // [N][M][E][F]
{
    const int n = blockIdx.x, m = blockIdx.y;
    const int e = output_row(), f = output_column();
    if (e >= E || f >= F) return;
    const float* const w = filters + m * C * R * S;
    x += (size_t)n * C * H * W;
    y += ((size_t)n * M + m) * E * F;
    float sum = 0;
    for (int c = 0; c < C; ++c)
#pragma unroll UNROLL_ROWS
        for (int r = 0; r < R; ++r)
#pragma unroll UNROLL_TAPS
            for (int s = 0; s < S; ++s)
                sum += x[(c * H + e * U + r) * W + f * U + s] * w[(c * R + r) * S + s];
    y[e * F + f] = sum;
}
