// wgrad-mma-split: every operand is the sum of two tf32 terms: the precision of fp32 from tensor cores.
//
// Technique: split-tf32 emulation of fp32 (hi and lo terms, three mma.sync products, fp32 accumulation outside of the
// tensor cores); implicit GEMM for wgrad; split-K with an ordered reduction; blocked summation.
// Read next: wgrad/mma_tile.cuh, then wgrad/wgrad_direct.cu.
// Run: alexconv run --rungs wgrad-mma-split --layers 2
//
// Parent: wgrad-mma-tf32, whose operands keep 11 of a float's 24 bits.  Here their rounding error is kept as a second tf32
// number (the lo term), and three of the four products are added, the small ones first; lo times lo is below a float's
// last bits.  Terms are made as fragments are loaded, so shared memory holds floats and is read once for all three
// products.  Tensor cores truncate when they accumulate: they accumulate the products of one K tile only, and fp32
// additions the K tiles.
//
// wgrad_mma_split: a block computes a tile of ROWS filters at COLUMNS taps over one slice, a warp WARP_ROWS x
// WARP_COLUMNS of it, a thread four of every 16 x 8 weights.  reduce_slices: a thread adds the partial sums of one
// weight, in a fixed order.
#include "mma_tile.cuh"

// A value's hi and lo terms.
__device__ __forceinline__ void split(float value, unsigned& hi, unsigned& lo)
{
    hi = to_tf32(value);
    lo = to_tf32(value - __uint_as_float(hi));
}

struct SplitTf32 {
    static __device__ __forceinline__ void multiply_add(Accumulators& accumulators, const unsigned* rows,
                                                        const unsigned* columns)
    {
        float sums[FRAGMENTS_DOWN][FRAGMENTS_ACROSS][4] = {};  // of the K tile
#pragma unroll
        for (int step = 0; step < WORDS / STEP; ++step) {
            Fragments words;
            words.load(rows, columns, step);
            unsigned of_columns[2][FRAGMENTS_ACROSS][2];  // hi, lo
#pragma unroll
            for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
                for (int k = 0; k < 2; ++k)
                    split(__uint_as_float(words.columns[j][k]), of_columns[0][j][k], of_columns[1][j][k]);
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i) {
                unsigned of_rows[2][4];
#pragma unroll
                for (int k = 0; k < 4; ++k) split(__uint_as_float(words.rows[i][k]), of_rows[0][k], of_rows[1][k]);
#pragma unroll
                for (int product = 0; product < 3; ++product)
#pragma unroll
                    for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
                        warp_mma_tf32(sums[i][j], of_rows[product == 0], of_columns[product == 1][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
            for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
                for (int element = 0; element < 4; ++element) accumulators[i][j][element] += sums[i][j][element];
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    wgrad_mma_split(const float* __restrict__ x,   // [N][C][H][W]
                    const float* __restrict__ dy,  // [N][M][E][F]
                    float* __restrict__ partial,   // [SLICES][WEIGHTS]
                    long long N)
{
    compute_slice<SplitTf32>(x, dy, partial, N);
}

ASSERT_BLOCK(WGRAD_MMA_SPLIT, THREADS, 1);
ASSERT_GRID(WGRAD_MMA_SPLIT, TILES * SLICES, 1, 1);
ASSERT_SHARED_BYTES(WGRAD_MMA_SPLIT, 0);
