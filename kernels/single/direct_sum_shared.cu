// direct-sum-shared: the accumulator in shared memory instead of a register.
//
// Technique: direct convolution; filter and accumulators in shared memory.
// Read next: single/direct_half.cu.
// Run: alexconv run --rungs direct-sum-shared --layers 2
//
// Parent: direct-filter-one-thread.  An experiment on what a register is worth: each product is added to the thread's
// own word of shared memory.  That should be slower than the parent, by a load and a store per product, and faster than
// direct, whose accumulators are in global memory.  Only `volatile` keeps them in shared memory: a compiler may hold a
// word that one thread alone uses in a register, but every read and write of a volatile object has to happen.  A block
// computes the plane (n, m); a thread computes its outputs one after the other.  No barrier guards the accumulators,
// because threads do not share them.
#include "../common/plane.cuh"

ASSERT_BLOCK(DIRECT_SUM_SHARED, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(DIRECT_SUM_SHARED, 1, M, 1);
ASSERT_SHARED_BYTES(DIRECT_SUM_SHARED, (C * R * S + THREADS) * sizeof(float));

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_sum_shared(const float* __restrict__ x,  // [N][C][H][W]
                      const float* __restrict__ w,  // [M][C][R][S]
                      float* __restrict__ y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(float, filter);  // [C][R][S], then [THREADS] sums
    volatile float& sum = filter[C * R * S + thread_index()];
    const int n = blockIdx.x, m = blockIdx.y;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    if (thread_index() == 0)
        for (int i = 0; i < C * R * S; ++i) filter[i] = w[i];
    __syncthreads();  // the one thread has written the whole filter before any thread reads it
    for_each_output([&](int e, int f) {
        sum = 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum = sum + x[(c * H + e * U + r) * W + f * U + s] * filter[(c * R + r) * S + s];
        y[e * F + f] = sum;
    });
}
