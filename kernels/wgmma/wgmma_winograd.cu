// wgmma-winograd: fewer products, each of hi and lo fp16 terms.
//
// Technique: one-dimensional Winograd minimal filtering; split-fp16 emulation of fp32; stream-K over a persistent,
// warp-specialized GEMM (wgmma, TMA im2col mode); epilogue overlapped with the next tile's products.
// Read next: winograd.cuh (transforms), winograd_gemm.cuh (stream-K), then wgmma/wgmma_half_split_k.cu.
// Run: alexconv run --rungs wgmma-winograd --layers 3
//
// Parent: wgmma-split, whose three products saturate the tensor cores: only fewer products help.  Here a row of
// TILE_OUTPUTS outputs takes TILE_OUTPUTS + S - 1 products instead of TILE_OUTPUTS * S (winograd.cuh): 0.4 of them with
// 5 x 5 filters and tiles of four, 0.47 with 3 x 3 filters and tiles of five.  Longer filter rows are cut into segments
// of TILE_TAPS: 0.44 with 32 x 32 filters, tiles of four and segments of four.  The price is memory traffic: inputs grow
// by a factor of (TILE_OUTPUTS + TILE_TAPS - 1) / TILE_OUTPUTS before the products, as do the sums from which outputs
// are computed afterwards.
//
// find_filter_exponents: block m finds the power of two of filter m.  prepare_filters: block (r, m)
// transforms row r of filter m.  prepare_input: block (tile, slice, n) transforms some rows of up to 96 channels of
// image n.  prepare_outliers: block n transforms image n again if its values are very large or small.  multiply: a
// block computes tiles of TILE_PIXELS x TILE_FILTERS sums at all points, then its stream-K work unit.  make_outputs:
// block (span, group, n) computes some output rows of 64 filters of image n.
#include <cuda_fp16.h>

#include "study_full_range.cuh"
#include "winograd_gemm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_filters(const float* __restrict__ w,              // [M][C][R][S]
                    const int* __restrict__ filter_exponents,  // [M]
                    __half* __restrict__ filters_hi,
                    __half* __restrict__ filters_lo)  // both [POINTS][M][SEGMENTS][R][PADDED_C]
{
    __half* const terms[] = {filters_hi, filters_lo};
    prepare_scaled_filters<WinogradFilters>(w, filter_exponents, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                  __half* __restrict__ values_hi,
                  __half* __restrict__ values_lo)  // both [POINTS][N][VALUE_TILES][PADDED_H][PADDED_C]
{
    allow_dependent_launch();
    __half* const terms[] = {values_hi, values_lo};
    prepare_usual_input<WinogradTile<2>>(x, seen, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ values_hi,
                     __half* __restrict__ values_lo)  // both [POINTS][N][VALUE_TILES][PADDED_H][PADDED_C]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write `seen` and the values
    __half* const terms[] = {values_hi, values_lo};
    prepare_outlier_input<WinogradTile<2>>(x, seen, exponents, terms);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* value_hi_map,   // of values_hi
             const TensorMap* value_lo_map,   // of values_lo
             const TensorMap* filter_hi_map,  // of filters_hi
             const TensorMap* filter_lo_map,  // of filters_lo
             float* __restrict__ sums,        // [POINTS][N * IMAGE_ROWS][PITCH]
             float* __restrict__ tails,       // [GRID_BLOCKS][TILE_PIXELS][TILE_FILTERS]
             int* __restrict__ tail_of,       // [2 * GRID_BLOCKS]
             long long N)
{
    allow_dependent_launch();
    const StreamKWork work(N);
    wait_for_primary_launches();  // which write the values
    multiply_tiles<WinogradProblem, PromoteAndDeferStores>(
        OperandMaps<2>{{value_hi_map, value_lo_map}, {filter_hi_map, filter_lo_map}}, work,
        PointEpilogue{sums, tails, tail_of, int(N)});
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 5)
    make_outputs(const float* __restrict__ sums,           // [POINTS][N * IMAGE_ROWS][PITCH]
                 const float* __restrict__ tails,          // [GRID_BLOCKS][TILE_PIXELS][TILE_FILTERS]
                 const int* __restrict__ tail_of,          // [2 * GRID_BLOCKS]
                 const int* __restrict__ exponents,         // [N]
                 const int* __restrict__ filter_exponents,  // [M]
                 float* __restrict__ y                      // [N][M][E][F]
                 BIAS_PARAMETER(float))                     // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the sums and the exponents
    transform_outputs(sums, tails, tail_of, exponents, filter_exponents, y, BIAS);
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, (SHARED_BYTES<2, PointEpilogue>));
ASSERT_VALUE_MAP(VALUE_HI_MAP);
ASSERT_VALUE_MAP(VALUE_LO_MAP);
ASSERT_POINT_FILTER_MAP(FILTER_HI_MAP);
ASSERT_POINT_FILTER_MAP(FILTER_LO_MAP);
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, R, M, 1);
ASSERT_INPUT_TILES(WinogradTile<2>);
ASSERT_ELEMENTS(VALUES_HI, POINTS * VALUE_TILES * PADDED_H * PADDED_C);
ASSERT_ELEMENTS(VALUES_LO, POINTS * VALUE_TILES * PADDED_H * PADDED_C);
ASSERT_ELEMENTS(FILTERS_HI, POINTS * M * SEGMENTS * R * PADDED_C);
ASSERT_ELEMENTS(FILTERS_LO, POINTS * M * SEGMENTS * R * PADDED_C);
ASSERT_ELEMENTS(SUMS, POINTS * IMAGE_ROWS * PITCH);
ASSERT_ELEMENTS(TAILS, GRID_BLOCKS * TILE_PIXELS * TILE_FILTERS);
ASSERT_ELEMENTS(TAIL_OF, 2 * GRID_BLOCKS);
ASSERT_BLOCK(MAKE_OUTPUTS, BLOCK_THREADS, 1);
ASSERT_GRID(MAKE_OUTPUTS, SPANS_DOWN * SPANS_ACROSS, (M + OUTPUT_FILTERS - 1) / OUTPUT_FILTERS, 1);
ASSERT_SHARED_BYTES(MAKE_OUTPUTS, OUTPUT_FILTERS * SPAN_PITCH * sizeof(float));
