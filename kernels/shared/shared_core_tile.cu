// shared-core-tile: only the core of the input tile in shared memory, the halo from the caches.
//
// Technique: direct convolution; shared-memory tiling without halo, halo from the L1 and L2 caches.
// Read next: shared/core_tile.cuh (the convolution), then shared/shared_core_tile_constant.cu.
// Run: alexconv run --rungs shared-core-tile --layers 2
//
// Parent: shared-output-tile.  Neighbouring blocks load overlapping tiles, and each keeps its own copy of the overlap
// in shared memory.  Here a block keeps TILE*U x TILE*U inputs that no other tile of the plane has: every thread loads
// the same number, without index divisions, and shared memory is smaller.  The halo is left to the L1 and L2 caches, at
// the price of a test for every product.  Strategy 3 of Kirk and Hwu's "Programming Massively Parallel Processors".
// Block (n, m, tile) computes that tile of the plane (n, m), one channel at a time; a thread computes one output.
#include "core_tile.cuh"

ASSERT_BLOCK(SHARED_CORE_TILE, TILE, TILE);
ASSERT_GRID(SHARED_CORE_TILE, 1, M, TILES);
ASSERT_SHARED_BYTES(SHARED_CORE_TILE, CORE * CORE * sizeof(float));

extern "C" __global__ void __launch_bounds__(THREADS)
    shared_core_tile(const float* MAYBE_RESTRICT x,  // [N][C][H][W]
                     const float* MAYBE_RESTRICT w,  // [M][C][R][S]
                     float* MAYBE_RESTRICT y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(float, core);  // [CORE][CORE]
    const int n = blockIdx.x, m = blockIdx.y;
    const int e = output_row(), f = output_column();
    const float sum = convolve_core(x + (size_t)n * C * H * W, w + (size_t)m * C * R * S, core);
    if (e < E && f < F) y[((size_t)n * M + m) * E * F + e * F + f] = sum;
}
