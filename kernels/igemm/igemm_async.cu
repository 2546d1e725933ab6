// igemm-async: copies run ahead of the products.
//
// Parent: igemm, in which a thread waits for its loads, then for its block, at every step, and counts on other warps to
// use the time; registers for more sums leave room for few others.  Here asynchronous copies (cp.async) bring steps
// ahead, past the registers, while a step is multiplied, and a tap's factors are loaded while those of the tap before
// are multiplied.  So a thread can have twice the sums, with fewer loads per product, and one barrier per step instead
// of two.
//
// prepare_filters: a block writes one step's part of a tile's filters.  igemm_async: a block computes ROWS filters at
// COLUMNS pixels of the batch, a thread THREAD_ROWS filters at THREAD_COLUMNS pixels.
#include "pipeline.cuh"

extern "C" __global__ void prepare_filters(const float* __restrict__ w,  // [M][C][R][S]
                                           float* __restrict__ filters)  // [TILES_DOWN][STEPS][DEPTH][ROWS]
{
    order_filters(w, filters);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    igemm_async(const float* __restrict__ x,        // [N][C][H][W]
                const float* __restrict__ filters,  // [TILES_DOWN][STEPS][DEPTH][ROWS]
                float* __restrict__ y,              // [N][M][PIXELS]
                long long N)
{
    const BatchTile tile(blockIdx.x);
    Sums sums;
    multiply(sums, x, filters, tile, N, 0, STEPS);
    store_rows(sums.at, 0, y, tile, N);
}
