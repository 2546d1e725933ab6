// channels-filter-shared: the filter values of the block's channels in shared memory.
//
// Technique: direct convolution; split-K; filter in shared memory, cooperative coalesced load; register accumulator.
// Read next: multi/channels_plane_shared.cu.
// Run: alexconv run --rungs channels-filter-shared --layers 2
//
// Parent: channels, where every thread of a block reads the same CHANNELS*R*S filter values from global memory.  The
// block copies them to shared memory once.  Unlike a whole filter in the single-kernel rungs, that is only R*S values
// at CHANNELS = 1: one load for each of R*S threads, and little enough shared memory for many resident blocks.  A block
// computes the partial plane (n, m, slice); a thread computes its outputs one after the other.
#include "split_k.cuh"

ASSERT_BLOCK(CHANNELS_FILTER_SHARED, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(CHANNELS_FILTER_SHARED, 1, M, SLICES);
ASSERT_SHARED_BYTES(CHANNELS_FILTER_SHARED, (CHANNELS < C ? CHANNELS : C) * R * S * sizeof(float));
ASSERT_ELEMENTS(PARTIAL, 1ll * M * SLICES * E * F);
ASSERT_BLOCK(REDUCE_CHANNELS, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(REDUCE_CHANNELS, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS)
    channels_filter_shared(const float* __restrict__ x,  // [N][C][H][W]
                           const float* __restrict__ w,  // [M][C][R][S]
                           float* __restrict__ partial)  // [N][M][SLICES][E][F]
{
    DYNAMIC_SHARED(float, filter);  // [CHANNELS][R][S]
    const int n = blockIdx.x, m = blockIdx.y;
    const int first = first_channel(), count = end_channel() - first;
    x += ((size_t)n * C + first) * H * W;
    w += ((size_t)m * C + first) * R * S;
    partial = partial_plane(partial);
    stage(filter, w, count * R * S);
    __syncthreads();  // all threads have written their part of the slice before any thread reads it
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int c = 0; c < count; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum += x[(c * H + e * U + r) * W + f * U + s] * filter[(c * R + r) * S + s];
        partial[e * F + f] = sum;
    });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_channels(const float* __restrict__ partial,  // [N][M][SLICES][E][F]
                    float* __restrict__ y)              // [N][M][E][F]
{
    add_slices(partial, y);
}
