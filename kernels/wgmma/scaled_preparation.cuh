// The kernels around the product of wgmma-scaled and wgmma-window-scaled: floats scaled to fp16, in blocked form; and
// images and filters that fp16 cannot carry.
#pragma once
#include "blocked.cuh"
#include "scaling.cuh"
#include "study_full_range.cuh"

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
                  unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                  __half* __restrict__ pixels)  // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    __half* const terms[] = {pixels};
    prepare_usual_input<BlockedTile<1>>(x, seen, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels)       // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write `seen` and the pixels
    __half* const terms[] = {pixels};
    prepare_outlier_input<BlockedTile<1>>(x, seen, exponents, terms);
}

ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, BLOCKED_R, M, 1);
ASSERT_INPUT_TILES(BlockedTile<1>);
ASSERT_ELEMENTS(PIXELS, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
