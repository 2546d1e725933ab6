// direct-few-filters: few filters of floats, rounded to tf32, NHWC.
//
// Technique: products of each pixel with all taps by mma.sync in tf32; sums of shifted products in shared memory
// (kn2row); implicit padding; programmatic dependent launch.
// Read next: multi/channels.cu.
// Run: alexconv run --rungs direct-few-filters --workload first-last --layers 6
//
// Parent: direct-few-filters-half.  A lane's 16 bytes are four floats, which it rounds.
//
// A block computes TILE_ROWS x TILE_COLUMNS outputs of all filters, a warp the products of 32 pixels at a time.
#include "few_filters.cuh"

template <>
struct Factors<float> {
    static constexpr int IN_WORD = 1;

    static __device__ __forceinline__ unsigned word(const float* w) { return to_tf32(*w); }

    static __device__ __forceinline__ unsigned rounded(unsigned word) { return to_tf32(__uint_as_float(word)); }

    static __device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
    {
        warp_mma_tf32(d, a, b);
    }
};

extern "C" __global__ void __launch_bounds__(FILTERS_THREADS)
    direct_few_filters(const float* __restrict__ x,  // [N][H][W][C]
                       const float* __restrict__ w,  // [M][C][R][S]
                       float* __restrict__ y         // [N][E][F][M]
                       BIAS_PARAMETER(float))        // [M]
{
    allow_dependent_launch();
    DYNAMIC_SHARED(uint2, memory);
    wait_for_primary_launches();  // which may write x, and still read y
    FewFilters<float>(memory).convolve(x, w, y, BIAS);
}

ASSERT_BLOCK(DIRECT_FEW_FILTERS, FILTERS_THREADS, 1);
ASSERT_GRID(DIRECT_FEW_FILTERS, TILES_DOWN * TILES_ACROSS, 1, 1);
ASSERT_SHARED_BYTES(DIRECT_FEW_FILTERS, FewFilters<float>::BYTES);
