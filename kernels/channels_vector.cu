// channels-vector: vector loads, and loops along filter rows unrolled away.
//
// Parent: channels-plane-shared, which loads one float at a time and spends an instruction or more on the loop for every
// product.  Here a filter row is a few float4 loads for all outputs of a thread, a window of the input is as few loads as
// its alignment allows, and the products of a row follow each other without a branch.  vectors.cuh has the convolution
// and says why each vector load is aligned.  A block computes the partial plane (n, m, part), one channel after the
// other; a thread computes its outputs side by side, their sums in registers.
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
