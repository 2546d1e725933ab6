// mma-scaled: a half has the 11 bits of a tf32 number, and is half as large and twice as fast.
//
// Parent: mma-tf32, which reads four bytes of the L2 cache for each filter, again for every tile of pixels, and whose
// products have half the rate of halves'.  What halves lack is range: filters and inputs are multiplied by powers of
// two, filters when they are prepared, inputs on their way to shared memory, and their sums are divided by them.  Two
// channels, or two columns, share a word.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp all of these
// outputs for some of the steps; a thread of every 16 x 8 outputs four.  mma_scaled_filters: a thread writes one word.
#include "mma_pairs.cuh"

struct Halves {
    static constexpr int PARTS = 1;

    static __device__ __forceinline__ void multiply(Sums& sums, const Factors<1>& factors)
    {
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
                multiply_half(sums[i][j], factors.filters[0][i], factors.inputs[0][j]);
    }
};

extern "C" __global__ void __launch_bounds__(RANGE_THREADS)
    mma_scaled_ranges(const float* __restrict__ w,        // [M][C][R][S]
                      float* __restrict__ filter_ranges)  // [FILTER_RANGES]
{
    find_range_of_filters(w, filter_ranges);
}

extern "C" __global__ void __launch_bounds__(RANGE_THREADS)
    mma_scaled_filters(const float* __restrict__ w,              // [M][C][R][S]
                       const float* __restrict__ filter_ranges,  // [FILTER_RANGES]
                       int* __restrict__ filter_exponent,        // [1]
                       unsigned* __restrict__ fragments)         // [FILTER_TILES][CHUNKS][STEPS][FILTERS]
{
    prepare_scaled_fragments<1>(w, filter_ranges, filter_exponent, fragments);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mma_scaled(const float* __restrict__ x,              // [N][C][H][W]
               const unsigned* __restrict__ fragments,   // [FILTER_TILES][CHUNKS][STEPS][FILTERS]
               const int* __restrict__ filter_exponent,  // [1]
               float* partial,                           // [tiles][SPLIT_BLOCKS][TILE_OUTPUTS]
               unsigned* arrived,                        // [tiles][WARPS]
               float* __restrict__ y)                    // [N][M][PIXELS]
{
    compute_tile<Pairs<1>, Halves>(x, fragments, partial, arrived, y, Powers(filter_exponent));
}
