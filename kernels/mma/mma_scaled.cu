// mma-scaled: fp16 has the 11 significant bits of tf32, at half the size and twice the rate.
//
// Technique: implicit GEMM on tensor cores (mma.sync, fp16 with fp32 accumulation) on scaled floats; split-K over
// blocks and sliced-K over warps; multistage cp.async pipeline; programmatic dependent launch.
// Read next: mma_pairs.cuh (scaling, layout), mma_tile.cuh (mainloop), then mma/mma_split.cu.
// Run: alexconv run --rungs mma-scaled --layers 3 --N 1
//
// Parent: mma-tf32, which reads four bytes per filter value from the L2 cache for every tile of pixels, and whose
// products run at half the rate of fp16.  What fp16 lacks is range: filters and inputs are multiplied by powers of two,
// filters when they are prepared, inputs on their way to shared memory, and the sums are divided by them.  Two
// channels, or two columns, share a word.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp
// TILE_FILTERS / WARPS_DOWN of these filters for some of the steps; a thread four of every 16 x 8 outputs.
// mma_scaled_filters: a thread writes one word.
#include "../common/filter_exponents.cuh"
#include "mma_pairs.cuh"

extern "C" __global__ void __launch_bounds__(RANGE_THREADS)
    mma_scaled_filters(const float* __restrict__ w,              // [M][GROUP_C][R][S]
                       const int* __restrict__ filter_exponents,  // [M]
                       unsigned* __restrict__ fragments)         // [FILTER_TILES][K_TILES][STEPS][FILTERS]
{
    prepare_scaled_fragments<Fp16>(w, filter_exponents, fragments);
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS)
    mma_scaled(const float* __restrict__ x,              // [N][C][H][W]
               const unsigned* __restrict__ fragments,   // [FILTER_TILES][K_TILES][STEPS][FILTERS]
               const int* __restrict__ filter_exponents,  // [M]
               const float* __restrict__ full_filters,    // [M][GROUP_C * R * S]
               float* partial,                           // [tiles][SPLIT_BLOCKS][TILE_ELEMENTS]
               unsigned* arrived,                        // [tiles][WARPS]
               float* __restrict__ y                     // [N][Y_CHANNELS][PIXELS]
               EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    compute_tile<Pairs<1>, Fp16>(x, fragments, partial, arrived, y, Scaled{full_filters, filter_exponents},
                 ADDENDS(float));
}

using Geometry = Sizes<Pairs<1>, Fp16>;
ASSERT_BLOCK(MMA_SCALED, THREADS, 1);
ASSERT_GRID(MMA_SCALED, IMAGE_TILES * SPLIT_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MMA_SCALED, Geometry::SHARED_BYTES);
ASSERT_BLOCK(MMA_SCALED_FILTERS, RANGE_THREADS, 1);
ASSERT_GRID(MMA_SCALED_FILTERS, divide_up(Geometry::FRAGMENT_WORDS, LADDER_MMA_SCALED_FILTERS_THREADS), 1, 1);
ASSERT_ELEMENTS(FRAGMENTS, Geometry::FRAGMENT_WORDS);
ASSERT_ELEMENTS(PARTIAL, PARTIAL_SUMS);
ASSERT_ELEMENTS(ARRIVED, ARRIVAL_COUNTERS);
