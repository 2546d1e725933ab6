// unroll-matmul-constant: the same product, its filters from constant memory.
//
// Technique: im2col + tiled matmul; filters in constant memory, im2col tile in shared memory.
// Read next: gemm/unroll_register_matmul.cu.
// Run: alexconv run --rungs unroll-matmul-constant --workload lenet-86-k7 --layers 2
//
// Parent: unroll-matmul, whose tile of filters takes a load, a store and room in shared memory.  Constant memory needs
// none of them, and one of the two bounds checks is gone.  But the constant cache serves one address at a time, and a
// warp reads one per row of the block that it covers: one at TILE = 32, two at 16.  And it is small, while the warps of
// a block read TILE filters at the same time.  Constant memory holds 64 KiB, so larger filter sets are refused.
//
// unroll: a block writes channel c of image n for UNROLL_THREADS pixels; a thread writes the R*S rows of one pixel.
// multiply: a block computes TILE filters at TILE pixels of an image; a thread computes one output.
#include "im2col.cuh"

ASSERT_BLOCK(MULTIPLY, TILE, TILE);
ASSERT_GRID(MULTIPLY, (OUTPUT_TILES<TILE, TILE>), 1, 1);

constexpr int THREADS = TILE * TILE;

__constant__ float filters[M * K];  // [M][K]

extern "C" __global__ void unroll(const float* __restrict__ x,   // [N][C][H][W]
                                  float* __restrict__ unrolled)  // [N][K][PIXELS]
{
    unroll_input(x, unrolled);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply(const float* __restrict__ unrolled,  // [N][K][PIXELS]
             float* __restrict__ y)               // [N][M][PIXELS]
{
    __shared__ float inputs[TILE][TILE];  // rows: taps, columns: pixels
    const OutputTile tile = output_tile<TILE, TILE>();
    const int m = tile.row + threadIdx.y, pixel = tile.column + threadIdx.x;
    const float* const w = filters + (m < M ? m : 0) * K;  // a thread beyond the last filter drops its sum
    unrolled += (size_t)tile.n * K * PIXELS;
    float sum = 0;
    for (int first = 0; first < K; first += TILE) {
        const int input_tap = first + threadIdx.y;
        if (first > 0) __syncthreads();  // every thread is done with the previous tile before it is overwritten
        if (input_tap < K && pixel < PIXELS)
            inputs[threadIdx.y][threadIdx.x] = unrolled[(size_t)input_tap * PIXELS + pixel];
        __syncthreads();  // all threads have written their value of the tile before any thread reads it
        // undefined: the sum of a pixel beyond the last is not stored
        for (int k = 0; k < TILE && first + k < K; ++k) sum += w[first + k] * inputs[k][threadIdx.x];
    }
    if (m < M && pixel < PIXELS) y[((size_t)tile.n * M + m) * PIXELS + pixel] = sum;
}
