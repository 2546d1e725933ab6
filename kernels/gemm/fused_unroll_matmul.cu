// fused-unroll-matmul: the matrix product without a stored im2col matrix.
//
// Technique: implicit GEMM (fused im2col); shared-memory tiling of both operands.
// Read next: igemm/igemm.cu, the same idea with register tiling and reordered filters.
// Run: alexconv run --rungs fused-unroll-matmul --layers 2
//
// Parent: unroll-matmul, which writes the unrolled input to global memory and reads it back.  A block can find any of
// its values in the input itself, so it fills its tile from there: one kernel instead of two, no memory besides x, w
// and y, and the repeated reads of an input are left to the caches.  The price is index arithmetic at every load, with
// divisions by compile-time constants.  A block computes TILE filters at TILE pixels of an image; a thread computes one
// output.
#include "../common/hints.cuh"
#include "output_tile.cuh"

ASSERT_BLOCK(FUSED_UNROLL_MATMUL, TILE, TILE);
ASSERT_GRID(FUSED_UNROLL_MATMUL, (OUTPUT_TILES<TILE, TILE>), 1, 1);

constexpr int THREADS = TILE * TILE;
constexpr int UNROLL_PRODUCTS = UNROLL == 0 ? TILE : UNROLL;

extern "C" __global__ void __launch_bounds__(THREADS)
    fused_unroll_matmul(const float* MAYBE_RESTRICT x,  // [N][C][H][W]
                        const float* MAYBE_RESTRICT w,  // [M][K]
                        float* MAYBE_RESTRICT y)        // [N][M][PIXELS]
{
    __shared__ float filters[TILE][TILE];  // rows: filters, columns: taps
    __shared__ float inputs[TILE][TILE];   // rows: taps, columns: pixels
    const OutputTile tile = output_tile<TILE, TILE>();
    const int m = tile.row + threadIdx.y, pixel = tile.column + threadIdx.x;
    x += (size_t)tile.n * C * H * W + pixel / F * U * W + pixel % F * U;  // the window of the thread's pixel
    float sum = 0;
    for (int first = 0; first < K; first += TILE) {
        const int filter_tap = first + threadIdx.x, input_tap = first + threadIdx.y;
        const int c = input_tap / (R * S), r = input_tap / S % R, s = input_tap % S;
        if (first > 0) __syncthreads();  // every thread is done with the previous tiles before they are overwritten
        filters[threadIdx.y][threadIdx.x] = m < M && filter_tap < K ? w[m * K + filter_tap] : 0;
        inputs[threadIdx.y][threadIdx.x] = input_tap < K && pixel < PIXELS ? x[(c * H + r) * W + s] : 0;
        __syncthreads();  // all threads have written their value of both tiles before any thread reads them
#pragma unroll UNROLL_PRODUCTS
        for (int k = 0; k < TILE; ++k) sum += filters[threadIdx.y][k] * inputs[k][threadIdx.x];
    }
    if (m < M && pixel < PIXELS) y[((size_t)tile.n * M + m) * PIXELS + pixel] = sum;
}
