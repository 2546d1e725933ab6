// channels-half: filter and input plane in shared memory, in half precision.
//
// Technique: direct convolution in fp16; split-K with fp32 reduction; shared memory; fp16 register accumulators.
// Read next: multi/channels_atomic.cu.
// Run: alexconv run --rungs channels-half --layers 2
//
// Parent: channels-plane-shared.  Input, filters, partial planes and output take half the bytes, in global memory and
// in shared memory, so planes of twice as many elements fit.  Arithmetic is fp16 too: each product is added with a
// fused multiply-add, which rounds once.  Pairs (half2) would need even addresses, but the rows of an odd plane and the
// windows of neighbouring outputs start at odd ones.  A block computes the partial plane (n, m, slice); a thread keeps
// the accumulators of its outputs in registers from channel to channel.
//
// The second kernel adds in fp32 and rounds once: it is bound by reading the partial planes, so the wider accumulator
// is free, and it saves up to C roundings of a growing fp16 sum.
#include <cuda_fp16.h>

#include "split_k.cuh"

ASSERT_BLOCK(CHANNELS_HALF, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(CHANNELS_HALF, 1, M, SLICES);
ASSERT_SHARED_BYTES(CHANNELS_HALF, (R * S + PLANE_SHARED * H * W) * sizeof(__half));
ASSERT_ELEMENTS(PARTIAL, 1ll * M * SLICES * E * F);
ASSERT_BLOCK(REDUCE_CHANNELS, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(REDUCE_CHANNELS, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS)
    channels_half(const __half* __restrict__ x,  // [N][C][H][W]
                  const __half* __restrict__ w,  // [M][C][R][S]
                  __half* __restrict__ partial)  // [N][M][SLICES][E][F]
{
    DYNAMIC_SHARED(__half, filter);               // [R][S]
    __half* const shared_plane = filter + R * S;  // [H][W] if PLANE_SHARED
    __half sums[THREAD_OUTPUTS][THREAD_OUTPUTS] = {};
    const int n = blockIdx.x, m = blockIdx.y;
    const int first = first_channel();
    for (int c = first; c < end_channel(); ++c) {
        const __half* const global_plane = x + ((size_t)n * C + c) * H * W;
        const __half* const plane = PLANE_SHARED ? shared_plane : global_plane;
        if (c > first) __syncthreads();  // every thread is done with the previous channel before it is overwritten
        stage(filter, w + ((size_t)m * C + c) * R * S, R * S);
        if (PLANE_SHARED) stage(shared_plane, global_plane, H * W);
        __syncthreads();  // all threads have written their part of filter and plane before any thread reads them
        for_each_output(sums, [&](int e, int f, __half& sum) {
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s) sum = __hfma(plane[(e * U + r) * W + f * U + s], filter[r * S + s], sum);
        });
    }
    partial = partial_plane(partial);
    for_each_output(sums, [&](int e, int f, __half sum) { partial[e * F + f] = sum; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_channels(const __half* __restrict__ partial,  // [N][M][SLICES][E][F]
                    __half* __restrict__ y)              // [N][M][E][F]
{
    add_slices(partial, y);
}
