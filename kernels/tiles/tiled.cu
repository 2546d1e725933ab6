// tiled: small blocks of one size, as many as a plane needs.
//
// Technique: direct convolution; two-dimensional thread-block tiles; register accumulator.
// Read next: common/tile.cuh (which output a thread computes), then tiles/tiled_constant.cu.
// Run: alexconv run --rungs tiled --layers 2
//
// Parent: direct-register, whose block is as large as the plane and whose threads compute several outputs if the plane
// is too large for a block.  Here a block covers a tile of TILE x TILE outputs and the grid has one block per tile:
// every thread has one output, several blocks share a multiprocessor, and a small batch of large planes fills the GPU.
// The price is idle threads at the edges if TILE divides neither E nor F.  Block (n, m, tile) computes that tile of the
// plane (n, m); a thread computes one output.
#include "../common/hints.cuh"
#include "../common/tile.cuh"

ASSERT_BLOCK(TILED, TILE, TILE);
ASSERT_GRID(TILED, 1, M, TILES);

extern "C" __global__ void __launch_bounds__(THREADS)
    tiled(const float* MAYBE_RESTRICT x,  // [N][C][H][W]
          const float* MAYBE_RESTRICT w,  // [M][C][R][S]
          float* MAYBE_RESTRICT y)        // [N][M][E][F]
{
    const int n = blockIdx.x, m = blockIdx.y;
    const int e = output_row(), f = output_column();
    if (e >= E || f >= F) return;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
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
