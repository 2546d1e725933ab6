// wgrad-mma-tf32: the products of the implicit GEMM on tensor cores, operands rounded to tf32.
//
// Technique: implicit GEMM for wgrad on tensor cores (mma.sync, tf32); split-K over images and pixels with an ordered
// reduction; blocked summation.
// Read next: wgrad/mma_tile.cuh, then wgrad/wgrad_mma_half.cu, wgrad/wgrad_mma_split.cu.
// Run: alexconv run --rungs wgrad-mma-tf32 --layers 2
//
// Parent: wgrad-igemm, whose products are one by one on CUDA cores.  Here a warp multiplies 16 filters by 8 taps over 8
// pixels in one instruction.  The rest is its parent's: loads, slices of the sum, runs that are promoted, reduction.
//
// wgrad_mma_tf32: a block computes a tile of ROWS filters at COLUMNS taps over one slice, a warp WARP_ROWS x
// WARP_COLUMNS of it, a thread four of every 16 x 8 weights.  reduce_slices: a thread adds the partial sums of one
// weight, in a fixed order.
#include "mma_tile.cuh"

struct Tf32 {
    static __device__ __forceinline__ void multiply_add(Accumulators& accumulators, const unsigned* rows,
                                                        const unsigned* columns)
    {
#pragma unroll
        for (int step = 0; step < WORDS / STEP; ++step) {
            Fragments words;
            words.load(rows, columns, step);
            unsigned of_rows[FRAGMENTS_DOWN][4], of_columns[FRAGMENTS_ACROSS][2];
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
                for (int k = 0; k < 4; ++k) of_rows[i][k] = to_tf32(__uint_as_float(words.rows[i][k]));
#pragma unroll
            for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
                for (int k = 0; k < 2; ++k) of_columns[j][k] = to_tf32(__uint_as_float(words.columns[j][k]));
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
                for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
                    warp_mma_tf32(accumulators[i][j], of_rows[i], of_columns[j]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    wgrad_mma_tf32(const float* __restrict__ x,   // [N][C][H][W]
                   const float* __restrict__ dy,  // [N][M][E][F]
                   float* __restrict__ partial,   // [SLICES][WEIGHTS]
                   long long N)
{
    compute_slice<Tf32>(x, dy, partial, N);
}

ASSERT_BLOCK(WGRAD_MMA_TF32, THREADS, 1);
ASSERT_GRID(WGRAD_MMA_TF32, TILES * SLICES, 1, 1);
ASSERT_SHARED_BYTES(WGRAD_MMA_TF32, 0);
