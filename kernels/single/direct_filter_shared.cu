// direct-filter-shared: the filter in shared memory, loaded by many threads.
//
// Technique: direct convolution; cooperative, coalesced load of the filter into shared memory; register accumulator.
// Read next: single/direct_sum_shared.cu.
// Run: alexconv run --rungs direct-filter-shared --layers 2
//
// Parent: direct-filter-one-thread.  The loads are spread over R*S threads, each of which loads its tap of every
// channel, or over C*R*S threads, one load each, if the block has that many.  The barrier then waits for C loads or one
// instead of C*R*S, and neighbouring threads load neighbouring addresses (coalescing).  A block computes the plane (n,
// m); a thread computes its outputs one after the other.
#include "../common/plane.cuh"

ASSERT_BLOCK(DIRECT_FILTER_SHARED, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(DIRECT_FILTER_SHARED, 1, M, 1);
ASSERT_SHARED_BYTES(DIRECT_FILTER_SHARED, C * R * S * sizeof(float));

// A block smaller than the filter of one channel loads with all its threads.
constexpr int LOADERS = C * R * S <= THREADS ? C * R * S : R * S <= THREADS ? R * S : THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_filter_shared(const float* __restrict__ x,  // [N][C][H][W]
                         const float* __restrict__ w,  // [M][C][R][S]
                         float* __restrict__ y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(float, filter);  // [C][R][S]
    const int n = blockIdx.x, m = blockIdx.y;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    if (thread_index() < LOADERS)
        for (int i = thread_index(); i < C * R * S; i += LOADERS) filter[i] = w[i];
    __syncthreads();  // the loaders have written the whole filter before any thread reads it
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum += x[(c * H + e * U + r) * W + f * U + s] * filter[(c * R + r) * S + s];
        y[e * F + f] = sum;
    });
}
