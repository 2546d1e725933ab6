// wgrad-mma-half: fp16 operands, two pixels in a word, at twice the rate of tf32.
//
// Technique: implicit GEMM for wgrad on tensor cores (mma.sync, fp16 operands, fp32 accumulators); split-K over images and
// pixels with an ordered reduction; blocked summation.
// Read next: wgrad/mma_tile.cuh, then wgrad/wgrad_mma_split.cu.
// Run: alexconv run --rungs wgrad-mma-half --layers 2
//
// Parent: wgrad-mma-tf32.  Fragments of fp16 have the same layout in words, each with two neighbouring pixels, which are
// neighbours in memory too: planes are rows of pixels here, not of channels.  So the code is that of tf32, with twice the
// pixels in a K tile and nothing to round.  Partial sums are floats; the reduction rounds their sum once.
//
// wgrad_mma_half: a block computes a tile of ROWS filters at COLUMNS taps over one slice, a warp WARP_ROWS x
// WARP_COLUMNS of it, a thread four of every 16 x 8 weights.  reduce_slices: a thread adds the partial sums of one
// weight, in a fixed order.
#define OPERAND __half
#include "mma_tile.cuh"

struct Fp16 {
    static __device__ __forceinline__ void multiply_add(Accumulators& accumulators, const unsigned* rows,
                                                        const unsigned* columns)
    {
#pragma unroll
        for (int step = 0; step < WORDS / STEP; ++step) {
            Fragments words;
            words.load(rows, columns, step);
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
                for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
                    warp_mma_fp16(accumulators[i][j], words.rows[i], words.columns[j]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    wgrad_mma_half(const __half* __restrict__ x,   // [N][C][H][W]
                   const __half* __restrict__ dy,  // [N][M][E][F]
                   float* __restrict__ partial,    // [SLICES][WEIGHTS]
                   long long N)
{
    compute_slice<Fp16>(x, dy, partial, N);
}

ASSERT_BLOCK(WGRAD_MMA_HALF, THREADS, 1);
ASSERT_GRID(WGRAD_MMA_HALF, TILES * SLICES, 1, 1);
ASSERT_SHARED_BYTES(WGRAD_MMA_HALF, 0);
