// shared-core-tile-constant: the core of the input tile in shared memory, the filters in constant memory.
//
// Technique: direct convolution; shared-memory tiling without halo; filters in constant memory.
// Read next: gemm/unroll_matmul.cu.
// Run: alexconv run --rungs shared-core-tile-constant --workload lenet-86-k7 --layers 2
//
// Parent: shared-core-tile.  All threads of a warp need the same tap at the same time: the constant cache broadcasts
// it, and the L1 cache is left to the halo.  But that cache is small, and the many small blocks of a multiprocessor are
// each at a different channel: if their taps do not fit together, every access misses.  Constant memory holds 64 KiB,
// so larger filter sets are refused.  Block (n, m, tile) computes that tile of the plane (n, m), one channel at a time;
// a thread computes one output.
#include "core_tile.cuh"

ASSERT_BLOCK(SHARED_CORE_TILE_CONSTANT, TILE, TILE);
ASSERT_GRID(SHARED_CORE_TILE_CONSTANT, 1, M, TILES);
ASSERT_SHARED_BYTES(SHARED_CORE_TILE_CONSTANT, CORE * CORE * sizeof(float));

__constant__ float filters[M * C * R * S];  // [M][C][R][S]

extern "C" __global__ void __launch_bounds__(THREADS)
    shared_core_tile_constant(const float* MAYBE_RESTRICT x,  // [N][C][H][W]
                              float* MAYBE_RESTRICT y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(float, core);  // [CORE][CORE]
    const int n = blockIdx.x, m = blockIdx.y;
    const int e = output_row(), f = output_column();
    const float sum = convolve_core(x + (size_t)n * C * H * W, filters + m * C * R * S, core);
    if (e < E && f < F) y[((size_t)n * M + m) * E * F + e * F + f] = sum;
}
