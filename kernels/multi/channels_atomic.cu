// channels-atomic: the slices add up in the output itself, without partial planes.
//
// Technique: direct convolution; split-K with atomics (atomicAdd) instead of a reduction kernel; vectorized loads.
// Read next: tiles/tiled.cu.
// Run: alexconv run --rungs channels-atomic --layers 2
//
// Parent: channels-vector, whose partial planes take SLICES times the memory of the output and are written and read
// once more.  Here each block adds its sums to y with atomicAdd, so it needs no memory but y, and no other kernel but
// the one that clears it.  A plain read, add and write would lose what another block adds in between.  Blocks arrive in
// any order, so the rounding of a sum varies from run to run.  A block adds the slice (n, m, slice) to the plane
// (n, m); a thread computes its outputs together, with their accumulators in registers.
#include "vectors.cuh"

ASSERT_BLOCK(CLEAR, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(CLEAR, 1, M, 1);
ASSERT_BLOCK(CHANNELS_ATOMIC, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(CHANNELS_ATOMIC, 1, M, SLICES);
ASSERT_SHARED_BYTES(CHANNELS_ATOMIC, SHARED_FLOATS * sizeof(float));

extern "C" __global__ void __launch_bounds__(THREADS) clear(float* __restrict__ y)  // [N][M][E][F]
{
    y += ((size_t)blockIdx.x * M + blockIdx.y) * E * F;
    for_each_output([&](int e, int f) { y[e * F + f] = 0; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    channels_atomic(const float* __restrict__ x,  // [N][C][H][W]
                    const float* __restrict__ w,  // [M][C][R][S]
                    float* __restrict__ y)        // [N][M][E][F], cleared
{
    float sums[THREAD_OUTPUTS][THREAD_OUTPUTS] = {};
    convolve_slice(sums, x, w);
    y += ((size_t)blockIdx.x * M + blockIdx.y) * E * F;
    for_each_output(sums, [&](int e, int f, float sum) { atomicAdd(&y[e * F + f], sum); });
}
