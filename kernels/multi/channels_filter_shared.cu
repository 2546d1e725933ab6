// channels-filter-shared: the block's slice of the filter in shared memory.
//
// Parent: channels, where every thread of a block reads the same CHANNELS*R*S filter values from global memory.  They
// move to shared memory once per block.  Unlike a whole filter in the single-kernel rungs, a slice is no more than R*S
// values at CHANNELS = 1: one load for each of R*S threads, and shared memory for many blocks at a time.  A block
// computes the partial plane (n, m, part); a thread computes its outputs one after the other.
#include "parts.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    channels_filter_shared(const float* __restrict__ x,  // [N][C][H][W]
                           const float* __restrict__ w,  // [M][C][R][S]
                           float* __restrict__ partial)  // [N][M][PARTS][E][F]
{
    DYNAMIC_SHARED(float, filter);  // [CHANNELS][R][S]
    const int n = blockIdx.x, m = blockIdx.y;
    const int first = first_channel(), count = end_channel() - first;
    x += ((size_t)n * C + first) * H * W;
    w += ((size_t)m * C + first) * R * S;
    partial = partial_plane(partial);
    stage(filter, w, count * R * S);
    __syncthreads();  // all threads have written their share of the slice before any thread reads it
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
    reduce_channels(const float* __restrict__ partial,  // [N][M][PARTS][E][F]
                    float* __restrict__ y)              // [N][M][E][F]
{
    add_parts(partial, y);
}
