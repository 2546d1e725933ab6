// tiled-scatter-atomic: a thread per input, which adds its products to every output they belong to.
//
// Technique: direct convolution as a scatter (input-stationary); one atomicAdd per product.
// Read next: tiles/tiled_half.cu.
// Run: alexconv run --rungs tiled-scatter-atomic --layers 2
//
// Parent: tiled-channels-atomic, which gathers: a thread reads every input of its output, and an input is read up to
// R*S times.  In a scatter an input is read once, but atomic additions are repeated: one per product instead of one per
// output and channel, all of them in the L2 cache.  An experiment on what atomics cost.  Block (n, m, tile) takes that
// tile of the input planes of image n; a thread takes one position of the plane in all channels, and for each adds to
// up to R*S outputs of the plane (n, m).
#include "../common/tile.cuh"

constexpr int INPUT_TILES_ACROSS = (W + TILE - 1) / TILE;

ASSERT_BLOCK(CLEAR, TILE, TILE);
ASSERT_GRID(CLEAR, 1, M, TILES);
ASSERT_BLOCK(TILED_SCATTER_ATOMIC, TILE, TILE);
ASSERT_GRID(TILED_SCATTER_ATOMIC, 1, M, INPUT_TILES_ACROSS * ((H + TILE - 1) / TILE));

extern "C" __global__ void __launch_bounds__(THREADS) clear(float* __restrict__ y)  // [N][M][E][F]
{
    clear_output(y);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    tiled_scatter_atomic(const float* __restrict__ x,  // [N][C][H][W]
                         const float* __restrict__ w,  // [M][C][R][S]
                         float* __restrict__ y)        // [N][M][E][F], cleared
{
    const int n = blockIdx.x, m = blockIdx.y;
    const int row = blockIdx.z / INPUT_TILES_ACROSS * TILE + threadIdx.y;
    const int column = blockIdx.z % INPUT_TILES_ACROSS * TILE + threadIdx.x;
    if (row >= H || column >= W) return;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    for (int c = 0; c < C; ++c) {
        const float input = x[(c * H + row) * W + column];
        for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s) {
                const int down = row - r, across = column - s;  // the window whose tap (r, s) is here
                const int e = down / U, f = across / U;
                if (down >= 0 && down % U == 0 && e < E && across >= 0 && across % U == 0 && f < F)
                    atomicAdd(&y[e * F + f], input * w[(c * R + r) * S + s]);
            }
    }
}
