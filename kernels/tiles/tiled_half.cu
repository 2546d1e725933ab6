// tiled-half: the tiled convolution in half precision.
//
// Technique: direct convolution in fp16; thread-block tiles; fp16 register accumulator.
// Read next: tiles/tiled_half2.cu.
// Run: alexconv run --rungs tiled-half --layers 2
//
// Parent: tiled.  Input, filters and output take half the bytes, and every product is added with one fused multiply-add
// in fp16, which rounds once.  A scalar fp16 operation takes as long as one in fp32, so only memory traffic can be
// saved.  Block (n, m, tile) computes that tile of the plane (n, m); a thread computes one output.
#include <cuda_fp16.h>

#include "../common/hints.cuh"
#include "../common/tile.cuh"

ASSERT_BLOCK(TILED_HALF, TILE, TILE);
ASSERT_GRID(TILED_HALF, 1, M, TILES);

extern "C" __global__ void __launch_bounds__(THREADS)
    tiled_half(const __half* MAYBE_RESTRICT x,  // [N][C][H][W]
               const __half* MAYBE_RESTRICT w,  // [M][C][R][S]
               __half* MAYBE_RESTRICT y)        // [N][M][E][F]
{
    const int n = blockIdx.x, m = blockIdx.y;
    const int e = output_row(), f = output_column();
    if (e >= E || f >= F) return;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    __half sum = 0.0f;
    for (int c = 0; c < C; ++c)
#pragma unroll UNROLL_ROWS
        for (int r = 0; r < R; ++r)
#pragma unroll UNROLL_TAPS
            for (int s = 0; s < S; ++s)
                sum = __hfma(x[(c * H + e * U + r) * W + f * U + s], w[(c * R + r) * S + s], sum);
    y[e * F + f] = sum;
}
