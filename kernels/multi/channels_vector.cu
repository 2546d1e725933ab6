// channels-vector: vector loads, and loops along filter rows unrolled away.
//
// Parent: channels-plane-shared, which loads the plane one float at a time and spends instructions on the loop along a
// filter row.  Here filter rows are a few float4 loads for all outputs of a thread, a window of the input is as few
// loads as its alignment allows, and products follow each other without a branch.  vectors.cuh has the convolution and
// says why each vector load is aligned.  A block computes the partial plane (n, m, part), one channel after the other;
// a thread computes its outputs together, their sums in registers.
#include "vectors.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    channels_vector(const float* __restrict__ x,  // [N][C][H][W]
                    const float* __restrict__ w,  // [M][C][R][S]
                    float* __restrict__ partial)  // [N][M][PARTS][E][F]
{
    float sums[OUTPUTS][OUTPUTS] = {};
    convolve_part(sums, x, w);
    partial = partial_plane(partial);
    for_each_output(sums, [&](int e, int f, float sum) { partial[e * F + f] = sum; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_channels(const float* __restrict__ partial,  // [N][M][PARTS][E][F]
                    float* __restrict__ y)              // [N][M][E][F]
{
    add_parts(partial, y);
}
