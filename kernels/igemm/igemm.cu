// igemm: implicit GEMM with register tiles: each thread accumulates a rectangle of outputs.
//
// Technique: implicit GEMM; block, warp and register tiling; vectorized shared-memory loads; filters reordered once.
// Read next: implicit_gemm.cuh (tiles, order of the taps, epilogue), then igemm/igemm_async.cu.
// Run: alexconv run --rungs igemm --layers 2
//
// Parent: fused-unroll-matmul, whose threads read two values from shared memory for every product, and address every
// input with divisions.  Here a thread computes THREAD_ROWS x THREAD_COLUMNS outputs, so a tap's operands, loaded in
// vectors of four, serve THREAD_ROWS * THREAD_COLUMNS products; a block's tile is larger, so each output takes fewer
// reads from the caches; a tile's pixels continue from image to image, so that small planes fill the blocks; and the
// filters are reordered once, so that copying them takes no index arithmetic.
//
// prepare_filters: a block writes one K tile of one tile's filters.  igemm: a block computes ROWS filters at COLUMNS
// pixels of the batch, a thread THREAD_ROWS filters at THREAD_COLUMNS pixels.  While one block of a multiprocessor
// loads, another computes.
#include "implicit_gemm.cuh"

extern "C" __global__ void prepare_filters(const float* __restrict__ w,  // [M][C][R][S]
                                           float* __restrict__ filters)  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
{
    order_filters(w, filters);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    igemm(const float* __restrict__ x,        // [N][C][H][W]
          const float* __restrict__ filters,  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
          float* __restrict__ y,              // [N][M][PIXELS]
          long long N)
{
    __shared__ __align__(VECTOR_BYTES) float shared_filters[DEPTH][ROWS];
    __shared__ __align__(VECTOR_BYTES) float shared_inputs[DEPTH][COLUMNS];
    const BatchTile tile(blockIdx.x);
    const int first_tap = threadIdx.x / COLUMNS, first_pixel = threadIdx.x % COLUMNS;
    const float* windows[COPIED_PIXELS];
#pragma unroll
    for (int j = 0; j < COPIED_PIXELS; ++j) windows[j] = window(x, tile.pixel + first_pixel + j * THREADS, N);
    filters += (size_t)tile.down * K_TILES * DEPTH * ROWS;
    Accumulators accumulators;
    // Mainloop: one K tile's operands in shared memory, single-buffered.
    for (int k_tile = 0; k_tile < K_TILES; ++k_tile, filters += DEPTH * ROWS) {
        if (k_tile > 0) __syncthreads();  // all threads have read the K tile before, which is now overwritten
#pragma unroll
        for (int i = VECTOR * threadIdx.x; i < DEPTH * ROWS; i += VECTOR * THREADS)
            *reinterpret_cast<float4*>(shared_filters[0] + i) = *reinterpret_cast<const float4*>(filters + i);
#pragma unroll
        for (int k = 0; k < DEPTH; k += COPIED_TAPS)
#pragma unroll
            for (int j = 0; j < COPIED_PIXELS; ++j)
                shared_inputs[k + first_tap][column_of(first_pixel + j * THREADS)] =
                    is_tap(k_tile, k + first_tap) ? windows[j][tap_offset(k_tile, k + first_tap)] : 0;
        __syncthreads();  // all threads have written their part of the K tile before any thread reads it
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            Fragments fragments;
            fragments.load(shared_filters[k] + thread_row(), shared_inputs[k] + thread_column());
            accumulators.multiply_add(fragments);
        }
    }
    store_rows(accumulators.at, 0, y, tile, N);
}

ASSERT_BLOCK(IGEMM, THREADS, 1);
ASSERT_GRID(IGEMM, IMAGE_TILES, 1, 1);
ASSERT_SHARED_BYTES(IGEMM, 0);
ASSERT_BLOCK(PREPARE_FILTERS, LADDER_PREPARE_FILTERS_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, TILES_DOWN * K_TILES, 1, 1);
ASSERT_ELEMENTS(FILTERS, FILTER_FLOATS);
