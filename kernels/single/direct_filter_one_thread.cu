// direct-filter-one-thread: the filter in shared memory, loaded by one thread.
//
// Technique: direct convolution; filter in shared memory; register accumulator.
// Read next: single/direct_filter_shared.cu.
// Run: alexconv run --rungs direct-filter-one-thread --layers 2
//
// Parent: direct-register, where every thread of a block reads the same C*R*S filter values from global memory.  Shared
// memory has a lower latency, so the block copies them there once.  One thread does it, the simplest way, and the price
// shows: C*R*S loads in one lane while all other threads wait at the barrier.  A block computes the plane (n, m); a
// thread computes its outputs one after the other.
#include "../common/plane.cuh"

ASSERT_BLOCK(DIRECT_FILTER_ONE_THREAD, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(DIRECT_FILTER_ONE_THREAD, 1, M, 1);
ASSERT_SHARED_BYTES(DIRECT_FILTER_ONE_THREAD, C * R * S * sizeof(float));

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_filter_one_thread(const float* __restrict__ x,  // [N][C][H][W]
                             const float* __restrict__ w,  // [M][C][R][S]
                             float* __restrict__ y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(float, filter);  // [C][R][S]
    const int n = blockIdx.x, m = blockIdx.y;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    if (thread_index() == 0)
        for (int i = 0; i < C * R * S; ++i) filter[i] = w[i];
    __syncthreads();  // the one thread has written the whole filter before any thread reads it
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum += x[(c * H + e * U + r) * W + f * U + s] * filter[(c * R + r) * S + s];
        y[e * F + f] = sum;
    });
}
