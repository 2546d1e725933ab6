// unroll-matmul: the input unrolled into a matrix, then a matrix product with tiles in shared memory.
//
// Technique: im2col + tiled matmul (explicit GEMM); shared-memory tiling of both operands.
// Read next: common/product.cuh (the matrices), gemm/im2col.cuh, gemm/output_tile.cuh, then gemm/unroll_matmul_constant.cu.
// Run: alexconv run --rungs unroll-matmul --layers 2
//
// Parent: tiled.  As a matrix product the convolution gets the standard tiling: a tile of each operand is copied to
// shared memory, where every value serves TILE outputs, so that a multiply-add costs 2/TILE loads from global memory
// instead of two, whatever the shapes of plane and filter.  The price is the unrolled input, R*S/U^2 times as large as
// the input, which is written and read again.
//
// unroll: a block writes channel c of image n for UNROLL_THREADS pixels; a thread writes the R*S rows of one pixel.
// multiply: a block computes TILE filters at TILE pixels of an image; a thread computes one output.
#include "im2col.cuh"

ASSERT_BLOCK(MULTIPLY, TILE, TILE);
ASSERT_GRID(MULTIPLY, (OUTPUT_TILES<TILE, TILE>), 1, 1);

constexpr int THREADS = TILE * TILE;

extern "C" __global__ void unroll(const float* __restrict__ x,   // [N][C][H][W]
                                  float* __restrict__ unrolled)  // [N][K][PIXELS]
{
    unroll_input(x, unrolled);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply(const float* __restrict__ w,         // [M][K]
             const float* __restrict__ unrolled,  // [N][K][PIXELS]
             float* __restrict__ y)               // [N][M][PIXELS]
{
    __shared__ float filters[TILE][TILE];  // rows: filters, columns: taps
    __shared__ float inputs[TILE][TILE];   // rows: taps, columns: pixels
    const OutputTile tile = output_tile<TILE, TILE>();
    const int m = tile.row + threadIdx.y, pixel = tile.column + threadIdx.x;
    unrolled += (size_t)tile.n * K * PIXELS;
    float sum = 0;
    for (int first = 0; first < K; first += TILE) {
        const int filter_tap = first + threadIdx.x, input_tap = first + threadIdx.y;
        if (first > 0) __syncthreads();  // every thread is done with the previous tiles before they are overwritten
        filters[threadIdx.y][threadIdx.x] = m < M && filter_tap < K ? w[m * K + filter_tap] : 0;
        inputs[threadIdx.y][threadIdx.x] =
            input_tap < K && pixel < PIXELS ? unrolled[(size_t)input_tap * PIXELS + pixel] : 0;
        __syncthreads();  // all threads have written their value of both tiles before any thread reads them
        for (int k = 0; k < TILE; ++k) sum += filters[threadIdx.y][k] * inputs[k][threadIdx.x];
    }
    if (m < M && pixel < PIXELS) y[((size_t)tile.n * M + m) * PIXELS + pixel] = sum;
}
