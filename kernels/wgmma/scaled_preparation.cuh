// The kernels around the product of wgmma-scaled and wgmma-window-scaled: floats scaled to fp16, in blocked form; and
// what fp16 cannot carry.
#pragma once
#include "../arch/dependent_launch.cuh"
#include "../common/full_range.cuh"
#include "blocked.cuh"
#include "scaling.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    find_filter_exponents(const float* __restrict__ w,         // [M][C][R][S]
                          int* __restrict__ filter_exponents,  // [M]
                          float* __restrict__ full_filters)    // [C * R * S][M]
{
    find_exponent_of_filter(w, filter_exponents, full_filters);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_filters(const float* __restrict__ w,              // [M][C][R][S]
                    const int* __restrict__ filter_exponents,  // [M]
                    __half* __restrict__ filters)             // [M][BLOCKED_R][RUN]
{
    __half* const terms[] = {filters};
    prepare_scaled_filters<BlockedFilters>(w, filter_exponents, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  unsigned* __restrict__ seen,  // [N][GROUPS][TILES]
                  __half* __restrict__ pixels)  // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    __half* const terms[] = {pixels};
    prepare_usual_input<BlockedTile<1>>(x, seen, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const unsigned* __restrict__ seen,  // [N][GROUPS][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels)       // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write what was seen and the pixels
    __half* const terms[] = {pixels};
    prepare_outlier_input<BlockedTile<1>>(x, seen, exponents, terms);
}

extern "C" __global__ void __launch_bounds__(FULL_THREADS)
    compute_full_range(const float* __restrict__ x,               // [N][C][H][W]
                       const float* __restrict__ full_filters,    // [C * R * S][M]
                       const int* __restrict__ exponents,         // [N]
                       const int* __restrict__ filter_exponents,  // [M]
                       float* __restrict__ y,                     // [N][M][E][F]
                       long long N)
{
    wait_for_primary_launches();  // which write the exponents and the other outputs
    compute_in_full_range(StudyArrays{x, full_filters, y}, exponents, filter_exponents, int(N));
}

ASSERT_BLOCK(FIND_FILTER_EXPONENTS, RANGE_THREADS, 1);
ASSERT_GRID(FIND_FILTER_EXPONENTS, M, 1, 1);
ASSERT_ELEMENTS(FILTER_EXPONENTS, M);
ASSERT_ELEMENTS(FULL_FILTERS, C * R * S * M);
ASSERT_BLOCK(COMPUTE_FULL_RANGE, FULL_THREADS, 1);
ASSERT_SHARED_BYTES(COMPUTE_FULL_RANGE, FULL_BYTES);
ASSERT_ELEMENTS(EXPONENTS, 1);
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, BLOCKED_R, M, 1);
ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_INPUT, BlockedTile<1>::TILES, BlockedTile<1>::GROUPS, 1);
ASSERT_SHARED_BYTES(PREPARE_INPUT, BlockedTile<1>::BYTES);
ASSERT_BLOCK(PREPARE_OUTLIERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_OUTLIERS, 1, 1, 1);
ASSERT_SHARED_BYTES(PREPARE_OUTLIERS, BlockedTile<1>::BYTES);
ASSERT_ELEMENTS(SEEN, BlockedTile<1>::GROUPS * BlockedTile<1>::TILES);
ASSERT_ELEMENTS(PIXELS, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
