// tiled-channels-atomic: the input channels in parallel too, added up in the output with atomics.
//
// Technique: direct convolution; thread-block tiles; split-K, one slice per input channel, with atomics (atomicAdd).
// Read next: tiles/tiled_scatter_atomic.cu.
// Run: alexconv run --rungs tiled-channels-atomic --layers 2
//
// Parent: tiled, where one thread loops over all channels.  With a block for every channel of every tile the grid has C
// times the blocks and a thread's loop is R*S products long, which helps where N and M are small.  The price is C
// atomic additions per output instead of one store, and a kernel that clears the output first.  Blocks arrive in any
// order, so the rounding of a sum varies from run to run.  Block (n, c, m, tile) adds channel c to that tile of the
// plane (n, m); a thread adds to one output.
#include "../common/tile.cuh"

ASSERT_BLOCK(CLEAR, TILE, TILE);
ASSERT_GRID(CLEAR, 1, M, TILES);
ASSERT_BLOCK(TILED_CHANNELS_ATOMIC, TILE, TILE);
ASSERT_GRID(TILED_CHANNELS_ATOMIC, C, M, TILES);

extern "C" __global__ void __launch_bounds__(THREADS) clear(float* __restrict__ y)  // [N][M][E][F]
{
    clear_output(y);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    tiled_channels_atomic(const float* __restrict__ x,  // [N][C][H][W]
                          const float* __restrict__ w,  // [M][C][R][S]
                          float* __restrict__ y)        // [N][M][E][F], cleared
{
    const int n = blockIdx.x / C, c = blockIdx.x % C, m = blockIdx.y;  // only x may exceed 65535
    const int e = output_row(), f = output_column();
    if (e >= E || f >= F) return;
    x += ((size_t)n * C + c) * H * W;
    w += ((size_t)m * C + c) * R * S;
    y += ((size_t)n * M + m) * E * F;
    float sum = 0;
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) sum += x[(e * U + r) * W + f * U + s] * w[r * S + s];
    atomicAdd(&y[e * F + f], sum);
}
