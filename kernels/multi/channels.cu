// channels: the input channels run in parallel too, and a second kernel adds them up.
//
// Technique: direct convolution; split over input channels with a reduction kernel (split-K); register accumulator.
// Read next: multi/split_k.cuh (slices and their reduction), then multi/channels_filter_shared.cu.
// Run: alexconv run --rungs channels --layers 2
//
// Parent: direct-register.  Its grid N x M is small at N = 1, and each thread loops over all of C.  A grid of N x M x
// SLICES blocks, one for each slice of CHANNELS input channels, is SLICES times as large, and its loops are shorter by
// that factor.  The price is SLICES partial planes per output plane, written here and read by reduce_channels.  A block
// computes the partial plane (n, m, slice) from CHANNELS channels; a thread computes its outputs one after the other.
#include "split_k.cuh"

ASSERT_BLOCK(CHANNELS, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(CHANNELS, 1, M, SLICES);
ASSERT_ELEMENTS(PARTIAL, 1ll * M * SLICES * E * F);
ASSERT_BLOCK(REDUCE_CHANNELS, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(REDUCE_CHANNELS, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS)
    channels(const float* __restrict__ x,  // [N][C][H][W]
             const float* __restrict__ w,  // [M][C][R][S]
             float* __restrict__ partial)  // [N][M][SLICES][E][F]
{
    const int n = blockIdx.x, m = blockIdx.y;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    partial = partial_plane(partial);
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int c = first_channel(); c < end_channel(); ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum += x[(c * H + e * U + r) * W + f * U + s] * w[(c * R + r) * S + s];
        partial[e * F + f] = sum;
    });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_channels(const float* __restrict__ partial,  // [N][M][SLICES][E][F]
                    float* __restrict__ y)              // [N][M][E][F]
{
    add_slices(partial, y);
}
