// mma-split: every operand is the sum of two fp16 terms: the precision of fp32 from tensor cores.
//
// Technique: split-fp16 emulation of fp32 (hi and lo terms, three mma.sync products, fp32 accumulation outside of the
// tensor cores); implicit GEMM; split-K over blocks and sliced-K over warps; multistage cp.async pipeline.
// Read next: mma_pairs.cuh (hi and lo terms), mma_tile.cuh (mainloop), then mma/mma_half.cu.
// Run: alexconv run --rungs mma-split --layers 3 --N 1
//
// Parent: mma-scaled, whose operands keep 11 of a float's 24 bits.  Here their rounding error is kept as a second fp16
// number (the lo term), and three of the four products are added, the small ones first; lo times lo is below a float's
// last bits.  (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
// theoretical peak performance", 2022.)  Tensor cores truncate when they accumulate, which over long sums is worse than
// rounding: they accumulate the products of one step only, and fp32 additions the steps.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp
// TILE_FILTERS / WARPS_DOWN of these filters for some of the steps; a thread four of every 16 x 8 outputs.
// mma_split_filters: a thread writes one word.
#include "../common/filter_exponents.cuh"
#include "mma_pairs.cuh"

struct SplitFp16 {
    static constexpr int TERMS = 2;  // hi, lo

    // Interleaves the products of several columns, so that a product seldom waits for the previous one on its
    // accumulator.
    static __device__ __forceinline__ void multiply_add(Accumulators& accumulators, const Fragments<2>& operands)
    {
        constexpr int COLUMNS = 4;
#pragma unroll
        for (int first = 0; first < FRAGMENTS_ACROSS; first += COLUMNS) {
            const int end = first + COLUMNS < FRAGMENTS_ACROSS ? first + COLUMNS : FRAGMENTS_ACROSS;
            float step[FRAGMENTS_DOWN][COLUMNS][4] = {};
#pragma unroll
            for (int product = 0; product < 3; ++product)
#pragma unroll
                for (int j = first; j < end; ++j)
#pragma unroll
                    for (int i = 0; i < FRAGMENTS_DOWN; ++i)
                        warp_mma_fp16(step[i][j - first], operands.filters[product == 0][i],
                                      operands.inputs[product == 1][j]);
#pragma unroll
            for (int j = first; j < end; ++j)
#pragma unroll
                for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
                    for (int k = 0; k < 4; ++k) accumulators[i][j][k] += step[i][j - first][k];
        }
    }
};

extern "C" __global__ void __launch_bounds__(RANGE_THREADS)
    mma_split_filters(const float* __restrict__ w,              // [M][GROUP_C][R][S]
                      const int* __restrict__ filter_exponents,  // [M]
                      unsigned* __restrict__ fragments)         // [FILTER_TILES][K_TILES][STEPS][FILTERS]
{
    prepare_scaled_fragments<SplitFp16>(w, filter_exponents, fragments);
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS)
    mma_split(const float* __restrict__ x,              // [N][C][H][W]
              const unsigned* __restrict__ fragments,   // [FILTER_TILES][K_TILES][STEPS][FILTERS]
              const int* __restrict__ filter_exponents,  // [M]
              const float* __restrict__ full_filters,    // [M][GROUP_C * R * S]
              float* partial,                           // [tiles][SPLIT_BLOCKS][TILE_ELEMENTS]
              unsigned* arrived,                        // [tiles][WARPS]
              float* __restrict__ y                     // [N][Y_CHANNELS][PIXELS]
              EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    compute_tile<Pairs<2>, SplitFp16>(x, fragments, partial, arrived, y, Scaled{full_filters, filter_exponents},
                 ADDENDS(float));
}

using Geometry = Sizes<Pairs<2>, SplitFp16>;
ASSERT_BLOCK(MMA_SPLIT, THREADS, 1);
ASSERT_GRID(MMA_SPLIT, IMAGE_TILES * SPLIT_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MMA_SPLIT, Geometry::SHARED_BYTES);
ASSERT_BLOCK(MMA_SPLIT_FILTERS, RANGE_THREADS, 1);
ASSERT_GRID(MMA_SPLIT_FILTERS, divide_up(Geometry::FRAGMENT_WORDS, LADDER_MMA_SPLIT_FILTERS_THREADS), 1, 1);
ASSERT_ELEMENTS(FRAGMENTS, Geometry::FRAGMENT_WORDS);
ASSERT_ELEMENTS(PARTIAL, PARTIAL_SUMS);
ASSERT_ELEMENTS(ARRIVED, ARRIVAL_COUNTERS);
