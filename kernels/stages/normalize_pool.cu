// normalize-pool: local response normalization and max pooling in one kernel.
//
// Technique: fusion; values are normalized as the pooling loads them.
// Read next: stages/linear.cu.
// Run: alexconv run --network alexnet-2012 --N 1
//
// Parent: max-pool after normalize.  The normalized plane, as large as the convolution's output, is neither written nor
// read, and one launch less is needed; a window's values are normalized again for each window that they lie in.
//
// A block computes THREADS chunks of channels, a thread one of them.
#include "../arch/dependent_launch.cuh"
#include "normalization.cuh"
#include "pooling.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    normalize_pool(const Value* __restrict__ x,  // [N] planes of H x W
                   Value* __restrict__ y,        // [N] planes of E x F
                   long long N)
{
    allow_dependent_launch();
    wait_for_primary_launches();
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (thread >= N * E * F * CHUNKS) return;
    const Part part = part_of<E * F>(thread);
    const int e = part.pixel / F, f = part.pixel % F;
    float largest[CHUNK];
    largest_part(e, f, largest, [&](int row, int column, float* values) {
        normalized_part<H, W>(x, part.n, part.first, row, column, values);
    });
    store_part<E, F>(largest, y, part.n, part.first, e, f);
}

ASSERT_BLOCK(NORMALIZE_POOL, THREADS, 1);
ASSERT_GRID(NORMALIZE_POOL, (E * F * CHUNKS + THREADS - 1) / THREADS, 1, 1);
