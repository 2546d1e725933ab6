// igemm-async: asynchronous copies run ahead of the products.
//
// Technique: implicit GEMM; multistage cp.async pipeline (STAGES stages); double-buffered register fragments.
// Read next: pipeline.cuh (mainloop), implicit_gemm.cuh (tiles, epilogue), then igemm/igemm_stream_k.cu.
// Run: alexconv run --rungs igemm-async --layers 2
//
// Parent: igemm, in which a thread waits for its loads, then for its block, at every K tile, and relies on other warps
// to hide that latency; registers for more accumulators leave room for few other warps.  Here asynchronous copies
// (cp.async) fetch later K tiles past the registers while one is multiplied, and a tap's fragments are loaded while the
// previous tap's are multiplied.  So a thread can have twice the accumulators, with fewer loads per product, and one
// barrier per K tile instead of two.
//
// prepare_filters: a block writes one K tile of one tile's filters.  igemm_async: a block computes ROWS filters at
// COLUMNS pixels of the batch, a thread THREAD_ROWS filters at THREAD_COLUMNS pixels.
#include "pipeline.cuh"

extern "C" __global__ void prepare_filters(const float* __restrict__ w,  // [M][C][R][S]
                                           float* __restrict__ filters)  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
{
    order_filters(w, filters);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    igemm_async(const float* __restrict__ x,        // [N][C][H][W]
                const float* __restrict__ filters,  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
                float* __restrict__ y,              // [N][M][PIXELS]
                long long N)
{
    const BatchTile tile(blockIdx.x);
    Accumulators accumulators;
    mainloop(accumulators, x, filters, tile, N, 0, K_TILES);
    store_rows(accumulators.at, 0, y, tile, N);  // epilogue
}

ASSERT_BLOCK(IGEMM_ASYNC, THREADS, 1);
ASSERT_GRID(IGEMM_ASYNC, IMAGE_TILES, 1, 1);
ASSERT_SHARED_BYTES(IGEMM_ASYNC, STAGES * STAGE * sizeof(float));
ASSERT_BLOCK(PREPARE_FILTERS, LADDER_PREPARE_FILTERS_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, TILES_DOWN * K_TILES, 1, 1);
ASSERT_ELEMENTS(FILTERS, FILTER_FLOATS);
