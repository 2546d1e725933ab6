// normalize: local response normalization.
//
// Technique: one thread for some neighbouring channels of a pixel, which share the squares of their windows.
// Read next: stages/normalization.cuh, then stages/max_pool.cu.
// Run: alexconv run --network alexnet-2012 --N 1
//
// Nothing is computed twice but the squares at the edges of a chunk, and the arrays are read and written once: the
// bytes decide.
//
// A block computes THREADS chunks of channels, a thread one of them.
#include "../arch/dependent_launch.cuh"
#include "normalization.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    normalize(const Value* __restrict__ x,  // [N] planes of H x W
              Value* __restrict__ y,        // likewise
              long long N)
{
    allow_dependent_launch();
    wait_for_primary_launches();
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (thread >= N * H * W * CHUNKS) return;
    const Part part = part_of<H * W>(thread);
    float values[CHUNK];
    normalized_part<H, W>(x, part.n, part.first, part.pixel / W, part.pixel % W, values);
    store_part<H, W>(values, y, part.n, part.first, part.pixel / W, part.pixel % W);
}

ASSERT_BLOCK(NORMALIZE, THREADS, 1);
ASSERT_GRID(NORMALIZE, (H * W * CHUNKS + THREADS - 1) / THREADS, 1, 1);
