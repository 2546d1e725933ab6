// wgmma-split-resident: filters that stay in shared memory.
//
// Parent: wgmma-split, which waits for the L2 cache where filters are few: every tile brings all of them again, and
// every pixel once for each tap that meets it.  Here a block keeps the filters, both parts of them, and brings a pixel
// once for each row of the filter.  The consumers take turns: while one multiplies the other stores.  Products of big
// parts have sums of their own, so that the tensor cores need not stop to have theirs added up.
//
// find_filter_ranges: a block finds the largest absolute value of a share of the filters.  prepare_filters: block
// (i, s) writes what of the filters meets tap s of a row in 16 channels.  prepare_input: block (tile, group, n) writes
// a tile of blocked image n.  prepare_outliers: block n converts image n again if its values are very large or small.
// multiply: a block computes tiles of 64 positions x all filters, the consumers in turn; a thread of a consumer has the
// sums of a quarter of the filters at two positions.
#include <cuda_fp16.h>

constexpr int TILE_PIXELS = 128;  // positions of two tiles, one of each consumer
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
                  __half* __restrict__ pixels,
                  __half* __restrict__ pixels_rest)  // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
{
    let_next_launch_start();
    __half* const parts[] = {pixels, pixels_rest};
    prepare_usual_input<InputTile<2, ChunkPlanes>>(x, ranges, parts);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels,
                     __half* __restrict__ pixels_rest)  // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
{
    let_next_launch_start();
    wait_for_launches_before();  // which write the ranges and the pixels
    __half* const parts[] = {pixels, pixels_rest};
    prepare_unusual_input<InputTile<2, ChunkPlanes>>(x, ranges, exponents, parts);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const __half* __restrict__ pixels,
             const __half* __restrict__ pixels_rest,   // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
             const __half* __restrict__ filters,       // [STAGES_OF_TILE][BLOCKED_S] slices
             const int* __restrict__ exponents,        // [N]
             const int* __restrict__ filter_exponent,  // [1]
             float* __restrict__ y,                    // [N][M][E][F]
             long long N)
{
    wait_for_launches_before();  // which write the pixels and the exponents
    const __half* const parts[] = {pixels, pixels_rest};
    multiply_resident(parts, filters, N, StudyOutput<ResidentPositions>{y, exponents, filter_exponent, {int(N)}});
}
