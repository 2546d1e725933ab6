// direct-few-filters-half: few filters in fp16 with fp32 accumulation, NHWC.
//
// Technique: products of each pixel with all taps by mma.sync, fp16 with fp32 accumulation; sums of shifted products in
// shared memory (kn2row); implicit padding; programmatic dependent launch.
// Read next: few_filters.cuh, then single/direct_few_filters.cu.
// Run: alexconv run --rungs direct-few-filters-half --workload first-last --layers 6
//
// Parent: direct-any-half, one of whose threads reads all inputs of an output.  Rungs on tensor cores with tiles of
// filters would load every input once for each tap, for tiles that are mostly empty.
//
// A block computes TILE_ROWS x TILE_COLUMNS outputs of all filters, a warp the products of 32 pixels at a time.
#include <cuda_fp16.h>

#include "few_filters.cuh"

template <>
struct Factors<__half> {
    static constexpr int IN_WORD = 2;

    // The taps of two neighbouring channels.
    static __device__ __forceinline__ unsigned word(const __half* w)  // [2][R][S]
    {
        Vector<__half, 2> pair;
        pair.values[0] = w[0];
        pair.values[1] = w[TAPS];
        return pair.word;
    }

    static __device__ __forceinline__ unsigned rounded(unsigned word) { return word; }

    static __device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
    {
        warp_mma_fp16(d, a, b);
    }
};

extern "C" __global__ void __launch_bounds__(FILTERS_THREADS)
    direct_few_filters_half(const __half* __restrict__ x,  // [N][H][W][C]
                            const __half* __restrict__ w,  // [M][C][R][S]
                            __half* __restrict__ y         // [N][E][F][M]
                            BIAS_PARAMETER(__half))        // [M]
{
    allow_dependent_launch();
    DYNAMIC_SHARED(uint2, memory);
    wait_for_primary_launches();  // which may write x, and still read y
    FewFilters<__half>(memory).convolve(x, w, y, BIAS);
}

ASSERT_BLOCK(DIRECT_FEW_FILTERS_HALF, FILTERS_THREADS, 1);
ASSERT_GRID(DIRECT_FEW_FILTERS_HALF, TILES_DOWN * TILES_ACROSS, 1, 1);
ASSERT_SHARED_BYTES(DIRECT_FEW_FILTERS_HALF, FewFilters<__half>::BYTES);
