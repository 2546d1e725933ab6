// unroll-register-matmul: joint register and shared-memory tiling of the product.
//
// Technique: im2col + tiled matmul; register tiling (ROWS accumulators per thread); vectorized shared-memory loads.
// Read next: gemm/fused_unroll_matmul.cu.
// Run: alexconv run --rungs unroll-register-matmul --layers 2
//
// Parent: unroll-matmul, which reads two values from shared memory for every multiply-add.  Here a thread keeps ROWS
// accumulators in registers: an input is loaded from global memory straight into a register and multiplied with ROWS
// taps, which are contiguous in shared memory, the same for the whole block, and loaded four at a time.  So a
// multiply-add costs a quarter of a load or less.  (Volkov and Demmel, "Benchmarking GPUs to tune dense linear
// algebra", SC 2008.)  Shared memory holds the filters because a layer has few of them and many pixels, which give a
// block its threads.
//
// unroll: a block writes channel c of image n for UNROLL_THREADS pixels; a thread writes the R*S rows of one pixel.
// multiply: a block computes ROWS filters at COLUMNS pixels of an image, DEPTH taps at a time; a thread computes all
// ROWS outputs of one pixel.
#include "im2col.cuh"

ASSERT_BLOCK(MULTIPLY, COLUMNS, 1);
ASSERT_GRID(MULTIPLY, (OUTPUT_TILES<ROWS, COLUMNS>), 1, 1);

constexpr int VECTOR_BYTES = 16;  // of the widest load

extern "C" __global__ void unroll(const float* __restrict__ x,   // [N][C][H][W]
                                  float* __restrict__ unrolled)  // [N][K][PIXELS]
{
    unroll_input(x, unrolled);
}

extern "C" __global__ void __launch_bounds__(COLUMNS)
    multiply(const float* __restrict__ w,         // [M][K]
             const float* __restrict__ unrolled,  // [N][K][PIXELS]
             float* __restrict__ y)               // [N][M][PIXELS]
{
    __shared__ __align__(VECTOR_BYTES) float filters[DEPTH][ROWS];  // rows: taps, columns: filters
    const OutputTile tile = output_tile<ROWS, COLUMNS>();
    const int pixel = tile.column + threadIdx.x;
    unrolled += (size_t)tile.n * K * PIXELS;
    float sums[ROWS] = {};
    for (int first = 0; first < K; first += DEPTH) {
        if (first > 0) __syncthreads();  // every thread is done with the previous taps before they are overwritten
        for (int i = threadIdx.x; i < DEPTH * ROWS; i += COLUMNS) {
            const int m = tile.row + i / DEPTH, tap = first + i % DEPTH;
            filters[i % DEPTH][i / DEPTH] = m < M && tap < K ? w[m * K + tap] : 0;
        }
        __syncthreads();  // all threads have written their part of the taps before any thread reads them
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const float input =
                first + k < K && pixel < PIXELS ? unrolled[(size_t)(first + k) * PIXELS + pixel] : 0;
#pragma unroll
            for (int i = 0; i < ROWS; ++i) sums[i] += filters[k][i] * input;
        }
    }
    y += (size_t)tile.n * M * PIXELS + pixel;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
        if (tile.row + i < M && pixel < PIXELS) y[(size_t)(tile.row + i) * PIXELS] = sums[i];
}
