// tiled-scatter-atomic: a thread per input, which adds its products to every output that they belong to.
//
// Parent: tiled-channels-atomic, which gathers: an output's thread reads every input that it needs, and an input is read
// up to R*S times.  Turned round, an input is read once, and what is repeated is the atomic addition: one for each
// product instead of one for each output and channel, all of them in the L2 cache.  An experiment on what atomics cost.
// Block (n, m, tile) takes that tile of the input planes of image n; a thread takes one position of the plane in all
// channels, and adds to up to R*S outputs of the plane (n, m) for each.
#include "../common/tile.cuh"

constexpr int INPUT_TILES_ACROSS = (W + TILE - 1) / TILE;

extern "C" __global__ void __launch_bounds__(THREADS) clear(float* __restrict__ y)  // [N][M][E][F]
{
    const int e = output_row(), f = output_column();
    if (e < E && f < F) y[((size_t)blockIdx.x * M + blockIdx.y) * E * F + e * F + f] = 0;
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
                const int down = row - r, across = column - s;  // where a filter lies that has its tap (r, s) here
                const int e = down / U, f = across / U;
                if (down >= 0 && down % U == 0 && e < E && across >= 0 && across % U == 0 && f < F)
                    atomicAdd(&y[e * F + f], input * w[(c * R + r) * S + s]);
            }
    }
}
