// shared-output-tile: input tile and filter in shared memory; the block is as large as its output tile.
//
// Technique: direct convolution; shared-memory tiling with halo, block = output tile; filter in shared memory.
// Read next: shared/input_tile.cuh (the size of an input tile), then shared/shared_input_tile.cu.
// Run: alexconv run --rungs shared-output-tile --layers 2
//
// Parent: tiled, where neighbouring outputs read the same inputs from the cache up to R*S times each.  Here a block
// loads what its tile needs of a channel once.  That is more inputs than the block has threads, so loading takes
// several steps, the last with some threads idle; then every thread computes.  Strategy 1 of Kirk and Hwu's
// "Programming Massively Parallel Processors".  Block (n, m, tile) computes that tile of the plane (n, m), one channel
// at a time; a thread computes one output.
#include "input_tile.cuh"

ASSERT_BLOCK(SHARED_OUTPUT_TILE, TILE, TILE);
ASSERT_GRID(SHARED_OUTPUT_TILE, 1, M, TILES);
ASSERT_SHARED_BYTES(SHARED_OUTPUT_TILE, (R * S + INPUT_ROWS * INPUT_COLUMNS) * sizeof(float));

extern "C" __global__ void __launch_bounds__(THREADS)
    shared_output_tile(const float* __restrict__ x,  // [N][C][H][W]
                       const float* __restrict__ w,  // [M][C][R][S]
                       float* __restrict__ y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(float, filter);        // [R][S]
    float* const input = filter + R * S;  // [INPUT_ROWS][INPUT_COLUMNS]
    const int n = blockIdx.x, m = blockIdx.y;
    const int thread = threadIdx.y * TILE + threadIdx.x;
    const int top = tile_row() * U, left = tile_column() * U;
    const int e = output_row(), f = output_column();
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    float sum = 0;
    for (int c = 0; c < C; ++c) {
        if (c > 0) __syncthreads();  // every thread is done with the previous channel before it is overwritten
        for (int i = thread; i < R * S; i += THREADS) filter[i] = w[c * R * S + i];
        for (int i = thread; i < INPUT_ROWS * INPUT_COLUMNS; i += THREADS) {
            const int row = top + i / INPUT_COLUMNS, column = left + i % INPUT_COLUMNS;
            if (row < H && column < W) input[i] = x[(c * H + row) * W + column];
        }
        __syncthreads();  // all threads have written their part of filter and input before any thread reads them
        if (e < E && f < F)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum += input[(threadIdx.y * U + r) * INPUT_COLUMNS + threadIdx.x * U + s] * filter[r * S + s];
    }
    if (e < E && f < F) y[e * F + f] = sum;
}
