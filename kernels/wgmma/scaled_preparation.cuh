// The kernels that prepare wgmma-scaled and wgmma-window-scaled: floats scaled to fp16, in blocked form.
#pragma once
#include "../arch/dependent_launch.cuh"
#include "blocked.cuh"
#include "scaling.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    find_filter_ranges(const float* __restrict__ w,        // [M][C][R][S]
                       float* __restrict__ filter_ranges)  // [FILTER_RANGES]
{
    find_range_of_filters(w, filter_ranges);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_filters(const float* __restrict__ w,              // [M][C][R][S]
                    const float* __restrict__ filter_ranges,  // [FILTER_RANGES]
                    int* __restrict__ filter_exponent,        // [1]
                    __half* __restrict__ filters)             // [M][BLOCKED_R][RUN]
{
    __half* const terms[] = {filters};
    prepare_scaled_filters<BlockedFilters>(w, filter_ranges, filter_exponent, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  float* __restrict__ ranges,   // [N][GROUPS][TILES]
                  __half* __restrict__ pixels)  // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    __half* const terms[] = {pixels};
    prepare_usual_input<BlockedTile<1>>(x, ranges, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels)       // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the ranges and the pixels
    __half* const terms[] = {pixels};
    prepare_outlier_input<BlockedTile<1>>(x, ranges, exponents, terms);
}

ASSERT_BLOCK(FIND_FILTER_RANGES, RANGE_THREADS, 1);
ASSERT_GRID(FIND_FILTER_RANGES, FILTER_RANGES, 1, 1);
ASSERT_ELEMENTS(FILTER_RANGES, FILTER_RANGES);
ASSERT_ELEMENTS(FILTER_EXPONENT, 1);
ASSERT_ELEMENTS(EXPONENTS, 1);
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, BLOCKED_R, M, 1);
ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_INPUT, BlockedTile<1>::TILES, BlockedTile<1>::GROUPS, 1);
ASSERT_SHARED_BYTES(PREPARE_INPUT, BlockedTile<1>::BYTES);
ASSERT_BLOCK(PREPARE_OUTLIERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_OUTLIERS, 1, 1, 1);
ASSERT_SHARED_BYTES(PREPARE_OUTLIERS, BlockedTile<1>::BYTES);
ASSERT_ELEMENTS(RANGES, BlockedTile<1>::GROUPS * BlockedTile<1>::TILES);
ASSERT_ELEMENTS(PIXELS, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
