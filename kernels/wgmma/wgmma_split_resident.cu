// wgmma-split-resident: filters that stay in shared memory.
//
// Technique: shared-memory-resident filters; split-fp16 emulation of fp32 (hi and lo terms); ping-pong consumers;
// persistent, warp-specialized kernel; wgmma without swizzle; bulk TMA copies; epilogue transposed through shared
// memory.
// Read next: resident.cuh (mainloop, ping-pong), study_epilogue.cuh, then wgmma/wgmma_winograd.cu.
// Run: alexconv run --rungs wgmma-split-resident --layers 1
//
// Parent: wgmma-split, which waits for the L2 cache where filters are few: every tile fetches all of them again, and
// every pixel once for each tap that uses it.  Here a block keeps the filters, hi and lo terms, and fetches a pixel
// once for each row of the filter.  The consumers alternate (ping-pong): while one multiplies, the other stores.
// Products of hi terms have accumulators of their own, so the tensor cores need not stop to have theirs promoted.
//
// find_filter_ranges: a block finds the largest absolute value of a part of the filters.  prepare_filters: block (i, s)
// writes the filters of tap s of a row in 16 channels.  prepare_input: block (tile, group, n) writes a tile of blocked
// image n.  prepare_outliers: block n converts image n again if its values are very large or small.  multiply: a block
// computes tiles of 64 positions x all filters, the consumers in ping-pong; a consumer thread accumulates a quarter of
// the filters at two positions.
#include <cuda_fp16.h>

#include "resident.cuh"

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
                    __half* __restrict__ filters)             // [STAGES_OF_TILE][BLOCKED_S] slices
{
    prepare_resident_filters(w, filter_ranges, filter_exponent, filters);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  float* __restrict__ ranges,   // [N][GROUPS][TILES]
                  __half* __restrict__ pixels_hi,
                  __half* __restrict__ pixels_lo)  // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
{
    allow_dependent_launch();
    __half* const terms[] = {pixels_hi, pixels_lo};
    prepare_usual_input<ResidentTile>(x, ranges, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels_hi,
                     __half* __restrict__ pixels_lo)  // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the ranges and the pixels
    __half* const terms[] = {pixels_hi, pixels_lo};
    prepare_outlier_input<ResidentTile>(x, ranges, exponents, terms);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const __half* __restrict__ pixels_hi,
             const __half* __restrict__ pixels_lo,     // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
             const __half* __restrict__ filters,       // [STAGES_OF_TILE][BLOCKED_S] slices
             const int* __restrict__ exponents,        // [N]
             const int* __restrict__ filter_exponent,  // [1]
             float* __restrict__ y,                    // [N][M][E][F]
             long long N)
{
    wait_for_primary_launches();  // which write the pixels and the exponents
    const __half* const terms[] = {pixels_hi, pixels_lo};
    multiply_resident(terms, filters, N, StudyEpilogue<ResidentPositions>{y, exponents, filter_exponent, {int(N)}});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, sizeof(ResidentStorage));
ASSERT_BLOCK(FIND_FILTER_RANGES, RANGE_THREADS, 1);
ASSERT_GRID(FIND_FILTER_RANGES, FILTER_RANGES, 1, 1);
ASSERT_ELEMENTS(FILTER_RANGES, FILTER_RANGES);
ASSERT_ELEMENTS(FILTER_EXPONENT, 1);
ASSERT_ELEMENTS(EXPONENTS, 1);
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, STAGES_OF_TILE, BLOCKED_S, 1);
ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_INPUT, ResidentTile::TILES, ResidentTile::GROUPS, 1);
ASSERT_SHARED_BYTES(PREPARE_INPUT, ResidentTile::BYTES);
ASSERT_BLOCK(PREPARE_OUTLIERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_OUTLIERS, 1, 1, 1);
ASSERT_SHARED_BYTES(PREPARE_OUTLIERS, ResidentTile::BYTES);
ASSERT_ELEMENTS(RANGES, ResidentTile::GROUPS * ResidentTile::TILES);
ASSERT_ELEMENTS(PIXELS_HI, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(PIXELS_LO, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS, sizeof(ResidentStorage::filters) / sizeof(__half));
