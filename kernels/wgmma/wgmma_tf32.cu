// wgmma-tf32: the accuracy of tf32 at the speed of half precision, for the study's arrays.
//
// Parent: wgmma-half-blocked, whose input comes as halves with the channels innermost.  A half has as many mantissa bits
// as a tf32 number and is multiplied twice as fast; what it lacks is range, which a power of two per image supplies.  So
// the floats are scaled and rounded to halves while a pass over the input changes the order of the axes, and a stride
// becomes depth (space-to-depth) in the same pass: layer 1 is then an ordinary layer for the tensor cores.
//
// find_filter_ranges: a block finds the largest absolute value of a share of the filters.  prepare_filters: block (r, m)
// brings row r of blocked filter m into the order of the input's channels.  prepare_input: block (tile, group, n) writes
// a tile of blocked image n.  prepare_outliers: block n converts image n again if its values are very large or small.
// multiply: a block computes tiles of TILE_PIXELS x TILE_FILTERS outputs; a thread of a consumer has the sums of
// TILE_FILTERS / 4 filters at two pixels of each unit.
#include <cuda_fp16.h>

#include "study_output.cuh"

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
    __half* const parts[] = {filters};
    prepare_scaled_filters(w, filter_ranges, filter_exponent, parts);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  float* __restrict__ ranges,   // [N][GROUPS][TILES]
                  __half* __restrict__ pixels)  // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    let_next_launch_start();
    __half* const parts[] = {pixels};
    prepare_usual_input<InputTile<1>>(x, ranges, parts);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels)  // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    let_next_launch_start();
    wait_for_launches_before();  // which write the ranges and the pixels
    __half* const parts[] = {pixels};
    prepare_unusual_input<InputTile<1>>(x, ranges, exponents, parts);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,               // of pixels
             const TensorMap* filter_map,              // of filters
             const int* __restrict__ exponents,        // [N]
             const int* __restrict__ filter_exponent,  // [1]
             float* __restrict__ y,                    // [N][M][E][F]
             long long N)
{
    wait_for_launches_before();  // which write the pixels and the exponents
    multiply_tiles(Maps<1>{{pixel_map}, {filter_map}}, Tiles(N),
                   StudyOutput<EveryRow>{y, exponents, filter_exponent, {int(N)}});
}
