// mma-split: every factor the sum of two halves: the precision of floats from tensor cores.
//
// Parent: mma-scaled, whose factors keep 11 of a float's 24 bits.  What rounding drops is again rounded to a half, and
// three of the four products are added, the small ones first; the fourth is below a float's last bits.  (Ootomo and
// Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
// performance", 2022.)  Tensor cores truncate where they add, which for a long row of sums is worse than rounding: they
// add no more than one step's products, and ordinary additions the steps.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp all of these
// outputs for some of the steps; a thread of every 16 x 8 outputs four.  mma_split_filters: a thread writes one word.
#include "mma_pairs.cuh"

struct Split {
    static constexpr int PARTS = 2;  // big, small

    // The products of some columns at a time, so that a product seldom waits for the one that it is added to.
    static __device__ __forceinline__ void multiply(Sums& sums, const Factors<2>& factors)
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
                        multiply_half(step[i][j - first], factors.filters[product == 0][i],
                                      factors.inputs[product == 1][j]);
#pragma unroll
            for (int j = first; j < end; ++j)
#pragma unroll
                for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
                    for (int k = 0; k < 4; ++k) sums[i][j][k] += step[i][j - first][k];
        }
    }
};

extern "C" __global__ void __launch_bounds__(RANGE_THREADS)
    mma_split_ranges(const float* __restrict__ w,        // [M][C][R][S]
                     float* __restrict__ filter_ranges)  // [FILTER_RANGES]
{
    find_range_of_filters(w, filter_ranges);
}

extern "C" __global__ void __launch_bounds__(RANGE_THREADS)
    mma_split_filters(const float* __restrict__ w,              // [M][C][R][S]
                      const float* __restrict__ filter_ranges,  // [FILTER_RANGES]
                      int* __restrict__ filter_exponent,        // [1]
                      unsigned* __restrict__ fragments)         // [FILTER_TILES][CHUNKS][STEPS][FILTERS]
{
    prepare_scaled_fragments<2>(w, filter_ranges, filter_exponent, fragments);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mma_split(const float* __restrict__ x,              // [N][C][H][W]
              const unsigned* __restrict__ fragments,   // [FILTER_TILES][CHUNKS][STEPS][FILTERS]
              const int* __restrict__ filter_exponent,  // [1]
              float* partial,                           // [tiles][SPLIT_BLOCKS][TILE_OUTPUTS]
              unsigned* arrived,                        // [tiles][WARPS]
              float* __restrict__ y)                    // [N][M][PIXELS]
{
    compute_tile<Pairs<2>, Split>(x, fragments, partial, arrived, y, Powers(filter_exponent));
}
