// wgrad-igemm: implicit GEMM with register tiles, its sum over the batch's pixels cut into slices.
//
// Technique: implicit GEMM for wgrad; block, warp and register tiling; register double buffering; split-K over images and
// pixels with an ordered reduction; blocked summation.
// Read next: wgrad/operands.cuh (K tiles, loads), igemm/implicit_gemm.cuh (fragments), then wgrad/wgrad_mma_tf32.cu.
// Run: alexconv run --rungs wgrad-igemm --layers 2
//
// Parent: wgrad-matmul, which writes and reads the unrolled input, and reads two values from shared memory for every
// product.  Here tiles are filled from the input itself, and a thread computes THREAD_ROWS x THREAD_COLUMNS weights, so
// that a pixel's operands, loaded in vectors of four, serve as many products.  The next K tile is loaded into registers
// while the current one is multiplied.  The product is small and its sum long: SLICES blocks share a tile's pixels, each
// with partial sums of its own, so that all multiprocessors have work.  After each run of pixels a block adds its
// accumulators to its partial sums, which stay in the L2 cache, and starts again from zero: no chain of additions grows
// with the batch.
//
// wgrad_igemm: a block computes a tile of ROWS filters at COLUMNS taps over one slice, a thread THREAD_ROWS filters at
// THREAD_COLUMNS taps.  reduce_slices: a thread adds the partial sums of one weight, in a fixed order.
#include "../common/padding.cuh"
#include "../igemm/implicit_gemm.cuh"
#include "operands.cuh"

constexpr int ROW_PITCH = ROWS + VECTOR, COLUMN_PITCH = COLUMNS + VECTOR;  // so that a column's stores differ in banks

// Adds the thread's accumulators to its partial sums, or stores them as the first, and clears them.
__device__ __forceinline__ void promote(Accumulators& accumulators,
                                        float* __restrict__ partial,  // [M][TAPS]
                                        int group, int m, int tap, bool is_first)
{
#pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; ++j) {
        const int column = tap + thread_pixel() + j / VECTOR * GROUP + j % VECTOR * LANES_ACROSS;
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i) {
            const int row = m + thread_row() + i / VECTOR * VECTOR * LANES_DOWN + i % VECTOR;
            if (row < GROUP_M && column < TAPS) {
                float& sum = partial[(size_t)(group * GROUP_M + row) * TAPS + column];
                sum = is_first ? accumulators.at[i][j] : sum + accumulators.at[i][j];
            }
            accumulators.at[i][j] = 0;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    wgrad_igemm(const float* __restrict__ x,   // [N][C][H][W]
                const float* __restrict__ dy,  // [N][M][E][F]
                float* __restrict__ partial,   // [SLICES][WEIGHTS]
                long long N)
{
    __shared__ __align__(VECTOR_BYTES) float shared_rows[2][DEPTH][ROW_PITCH];
    __shared__ __align__(VECTOR_BYTES) float shared_columns[2][DEPTH][COLUMN_PITCH];
    const int tile = blockIdx.x % TILES, slice = blockIdx.x / TILES;
    const int tap = tile % TILES_ACROSS * COLUMNS, m = tile / TILES_ACROSS % GROUP_TILES_DOWN * ROWS;
    const int group = tile / (TILES_ACROSS * GROUP_TILES_DOWN);
    const SliceOfSum k_tiles(slice, N);
    PixelLoader<float> loader(x, dy, N, k_tiles.first, group, m, tap);
    const int k = threadIdx.x % DEPTH;
    partial += (size_t)slice * WEIGHTS;
    Accumulators accumulators;
    sum_k_tiles(
        loader, k_tiles, [&](int stage, int row, float value) { shared_rows[stage][k][row] = value; },
        [&](int stage, int column, float value) { shared_columns[stage][k][column_of(column)] = value; },
        [&](int stage) {
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                Fragments fragments;
                fragments.load(shared_rows[stage][i] + thread_row(), shared_columns[stage][i] + thread_column());
                accumulators.multiply_add(fragments);
            }
        },
        [&](bool is_first) { promote(accumulators, partial, group, m, tap, is_first); });
}

ASSERT_BLOCK(WGRAD_IGEMM, THREADS, 1);
ASSERT_GRID(WGRAD_IGEMM, TILES * SLICES, 1, 1);
ASSERT_SHARED_BYTES(WGRAD_IGEMM, 0);
