// channels-plane-shared: the input plane in shared memory too, and coalesced accesses where it does not fit.
//
// Technique: direct convolution; split-K; filter and input plane in shared memory; register accumulators.
// Read next: multi/channels_vector.cu.
// Run: alexconv run --rungs channels-plane-shared --layers 2
//
// Parent: channels-filter-shared.  A block reads an input up to R*S times; with the plane in shared memory it reads
// each once from global memory.  PLANE_SHARED = 0 leaves the plane in global memory, for planes that are too large.  A
// block computes the partial plane (n, m, slice), one channel at a time, so that shared memory holds one channel of the
// filter and one plane; a thread keeps the accumulators of its outputs in registers from channel to channel.
#include "split_k.cuh"

ASSERT_BLOCK(CHANNELS_PLANE_SHARED, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(CHANNELS_PLANE_SHARED, 1, M, SLICES);
ASSERT_SHARED_BYTES(CHANNELS_PLANE_SHARED, (R * S + PLANE_SHARED * H * W) * sizeof(float));
ASSERT_ELEMENTS(PARTIAL, 1ll * M * SLICES * E * F);
ASSERT_BLOCK(REDUCE_CHANNELS, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(REDUCE_CHANNELS, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS)
    channels_plane_shared(const float* __restrict__ x,  // [N][C][H][W]
                          const float* __restrict__ w,  // [M][C][R][S]
                          float* __restrict__ partial)  // [N][M][SLICES][E][F]
{
    DYNAMIC_SHARED(float, filter);               // [R][S]
    float* const shared_plane = filter + R * S;  // [H][W] if PLANE_SHARED
    float sums[THREAD_OUTPUTS][THREAD_OUTPUTS] = {};
    const int n = blockIdx.x, m = blockIdx.y;
    const int first = first_channel();
    for (int c = first; c < end_channel(); ++c) {
        const float* const global_plane = x + ((size_t)n * C + c) * H * W;
        const float* const plane = PLANE_SHARED ? shared_plane : global_plane;
        if (c > first) __syncthreads();  // every thread is done with the previous channel before it is overwritten
        stage(filter, w + ((size_t)m * C + c) * R * S, R * S);
        if (PLANE_SHARED) stage(shared_plane, global_plane, H * W);
        __syncthreads();  // all threads have written their part of filter and plane before any thread reads them
        for_each_output(sums, [&](int e, int f, float& sum) {
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s) sum += plane[(e * U + r) * W + f * U + s] * filter[r * S + s];
        });
    }
    partial = partial_plane(partial);
    for_each_output(sums, [&](int e, int f, float sum) { partial[e * F + f] = sum; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_channels(const float* __restrict__ partial,  // [N][M][SLICES][E][F]
                    float* __restrict__ y)              // [N][M][E][F]
{
    add_slices(partial, y);
}
