// wgmma-floats-split: the accuracy of fp32 straight from NHWC floats.
//
// Technique: split-tf32 emulation of fp32 (hi and lo terms, 3xTF32), split in registers; persistent, warp-specialized
// implicit GEMM; wgmma with operand A in registers and each stage's sums promoted; TMA im2col mode.
// Read next: floats.cuh (SplitIntoTf32).
// Run: alexconv run --rungs wgmma-floats-split --layers 3
//
// Parent: wgmma-floats.  A float is the sum of two tf32 terms, hi and lo, to 22 bits and the sign of lo, as with the
// fp16 terms of wgmma-split.  tf32 multiplies half as fast, but has the range of floats, so images need no scaling.
// The input is read once, where wgmma-split first rewrites it as two terms.
//
// find_filter_exponents: block m finds the power of two of filter m.  order_filters: block (run, m) splits a run of
// filter m and reorders it.  multiply: a block computes tiles of TILE_PIXELS x TILE_FILTERS outputs; a consumer thread
// accumulates TILE_FILTERS / 4 filters at two pixels of each accumulator tile.  compute_full_range: recomputes images
// with values that are too large, or too small for tf32 to hold their lo terms in full; most launches find none.
#include <cuda_fp16.h>

#define GATHER GATHER_AS_IT_LIES
#include "../arch/resident_blocks.cuh"
#include "../common/filter_exponents.cuh"
#include "../common/full_range.cuh"
#include "floats.cuh"

// The filters' powers of two; and `refused`, a word per image, NO_EXPONENT where the image has unsafe values.
struct FilterExponents {
    const int* filter_exponents;  // [M]
    int* refused;                 // [N]

    __device__ __forceinline__ float factor(int filter) const { return power_of_two(-filter_exponents[filter]); }
    __device__ __forceinline__ void refuse(int n) const { refused[n] = NO_EXPONENT; }
};

// The arrays of compute_tile_in_full_range.
struct FloatArrays {
    const float* x;             // [N][H][W][C]
    const float* full_filters;  // [M][GROUP_C * R * S]
    float* y;                   // [N][E][F][Y_CHANNELS]
    Addends<float> added;

    // Row and column are those of the padded plane.
    __device__ __forceinline__ float input(int n, int c, int h, int w) const
    {
        if (HAS_PADDING && !in_plane(h, w)) return 0;
        return x[(((size_t)n * H + h) * W + w - (TOP * W + LEFT)) * C + c];
    }

    __device__ __forceinline__ float filter(int m, int c, int r, int s) const
    {
        return full_filters[((size_t)m * GROUP_C + c) * (R * S) + r * S + s];
    }

    __device__ __forceinline__ void store(int n, int m, int pixel, float value) const
    {
        const size_t place = ((size_t)n * PIXELS + pixel) * Y_CHANNELS + m;
        y[place] = added.finished(value, m, place);
    }
};

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    order_filters(const float* __restrict__ w,              // [M][GROUP_C][R][S]
                  const int* __restrict__ filter_exponents,  // [M]
                  unsigned* __restrict__ filters_hi,
                  unsigned* __restrict__ filters_lo)  // both [M][RUNS][FILTER_VALUES]
{
    unsigned* const terms[] = {filters_hi, filters_lo};
    FloatFilters::write(w, terms, power_of_two(filter_exponents[blockIdx.y]));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,                // of x [N][H][W][C]
             const TensorMap* filter_hi_map,            // of filters_hi
             const TensorMap* filter_lo_map,            // of filters_lo
             const int* __restrict__ filter_exponents,  // [M]
             int* __restrict__ refused,                 // [N]
             float4* partial,                           // [tiles][SPLITS][TILE_WARPS][WARP_SUMS]
             unsigned* arrived,                         // [tiles][TILE_WARPS]
             float* __restrict__ y,                     // [N][E][F][Y_CHANNELS]
             long long N EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    allow_dependent_launch();
    multiply_floats<FloatProblem, SplitIntoTf32>(
        pixel_map, FilterMaps<2>{{filter_hi_map, filter_lo_map}}, SplitKTiles<FloatProblem>(N),
        FloatEpilogue<FilterExponents>{y, ADDENDS(float), int(N), {partial, arrived}, {filter_exponents, refused}});
}

// The last block to finish clears `refused` and sets `finished` back: both are ready for a next launch of any grid.
extern "C" __global__ void __launch_bounds__(FULL_THREADS)
    compute_full_range(const float* __restrict__ x,               // [N][H][W][C]
                       const float* __restrict__ full_filters,    // [M][C * R * S]
                       int* refused,                              // [N]
                       const int* __restrict__ filter_exponents,  // [M]
                       unsigned* finished,                        // [1]: blocks, from all ones on
                       float* __restrict__ y,                     // [N][E][F][Y_CHANNELS]
                       long long N EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    wait_for_primary_launches();  // which write `refused` and the other outputs
    if (!any_without_exponent(refused, filter_exponents, int(N))) return;
    const int tiles = int(N) * FULL_DOWN * FULL_PIXEL_TILES, own = threadIdx.x % FULL_TILE;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int n = tile / (FULL_DOWN * FULL_PIXEL_TILES), m = full_filter(tile % FULL_DOWN);
        const bool of_filter = m + own < end_of_group(m) && filter_exponents[m + own] == NO_EXPONENT;
        if (__syncthreads_or(refused[n] == NO_EXPONENT || of_filter))
            compute_tile_in_full_range(FloatArrays{x, full_filters, y, ADDENDS(float)}, n, m,
                                       tile / FULL_DOWN % FULL_PIXEL_TILES * FULL_TILE);
    }
    __syncthreads();  // all threads have read `refused` before the block counts as finished
    if (threadIdx.x > 0 || !arrives_last(finished, gridDim.x)) return;
    for (int n = 0; n < int(N); ++n) refused[n] = 0;
    *finished = ~0u;
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, SPLITS > 1 ? IMAGE_TILES * SPLITS : GRID_BLOCKS, 1, 1);
ASSERT_ELEMENTS(PARTIAL, PARTIAL_SUMS);
ASSERT_ELEMENTS(ARRIVED, ARRIVAL_COUNTERS);
ASSERT_SHARED_BYTES(MULTIPLY, FLOAT_SHARED_BYTES<2>);
ASSERT_FLOAT_MAP(PIXEL_MAP);
ASSERT_FLOAT_FILTER_MAP(FILTER_HI_MAP);
ASSERT_FLOAT_FILTER_MAP(FILTER_LO_MAP);
ASSERT_BLOCK(ORDER_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(ORDER_FILTERS, OF(FloatProblem, RUNS), M, 1);
ASSERT_ELEMENTS(FILTERS_HI, FLOAT_FILTER_ELEMENTS);
ASSERT_ELEMENTS(FILTERS_LO, FLOAT_FILTER_ELEMENTS);
ASSERT_BLOCK(COMPUTE_FULL_RANGE, FULL_THREADS, 1);
ASSERT_SHARED_BYTES(COMPUTE_FULL_RANGE, FULL_BYTES);
ASSERT_ELEMENTS(REFUSED, 1);
ASSERT_ELEMENTS(FINISHED, 1);
