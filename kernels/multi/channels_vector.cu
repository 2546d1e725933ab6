// channels-vector: vector loads, and fully unrolled loops along filter rows.
//
// Technique: direct convolution; split-K; vectorized loads (float4) from padded shared memory; register blocking.
// Read next: multi/vectors.cuh (the convolution), then multi/channels_half.cu.
// Run: alexconv run --rungs channels-vector --layers 2
//
// Parent: channels-plane-shared, which loads the plane one float at a time and spends instructions on the loop along a
// filter row.  Here a few float4 loads fetch a filter row for all outputs of a thread, a window of the input takes as
// few loads as its alignment allows, and multiply-adds follow each other without a branch.  vectors.cuh has the
// convolution and the reason why each vector load is aligned.  A block computes the partial plane (n, m, slice), one
// channel at a time; a thread computes its outputs together, with their accumulators in registers.
#include "vectors.cuh"

ASSERT_BLOCK(CHANNELS_VECTOR, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(CHANNELS_VECTOR, 1, M, SLICES);
ASSERT_SHARED_BYTES(CHANNELS_VECTOR, SHARED_FLOATS * sizeof(float));
ASSERT_ELEMENTS(PARTIAL, 1ll * M * SLICES * E * F);
ASSERT_BLOCK(REDUCE_CHANNELS, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(REDUCE_CHANNELS, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS)
    channels_vector(const float* __restrict__ x,  // [N][C][H][W]
                    const float* __restrict__ w,  // [M][C][R][S]
                    float* __restrict__ partial)  // [N][M][SLICES][E][F]
{
    float sums[THREAD_OUTPUTS][THREAD_OUTPUTS] = {};
    convolve_slice(sums, x, w);
    partial = partial_plane(partial);
    for_each_output(sums, [&](int e, int f, float sum) { partial[e * F + f] = sum; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_channels(const float* __restrict__ partial,  // [N][M][SLICES][E][F]
                    float* __restrict__ y)              // [N][M][E][F]
{
    add_slices(partial, y);
}
