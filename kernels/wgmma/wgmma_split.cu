// wgmma-split: the accuracy of fp32 from three products of halves.
//
// Parent: wgmma-tf32, whose halves keep 11 bits of a float's 24.  Here a float is the sum of two halves, the nearest one
// and the rest, 22 bits and the sign of the rest; the product of two such sums has four terms, of which the product of
// the rests is smaller than a float's rounding and is left out.  Three products of halves cost less than half of what
// the same work costs on the CUDA cores.  (Markidis et al., "NVIDIA Tensor Core programmability, performance and
// precision", 2018; Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022, who found that
// the truncation inside the tensor cores has to be kept out of long sums.)
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
                    __half* __restrict__ filters,             // [M][BLOCKED_R][RUN]
                    __half* __restrict__ filters_rest)        // [M][BLOCKED_R][RUN]
{
    __half* const parts[] = {filters, filters_rest};
    prepare_scaled_filters(w, filter_ranges, filter_exponent, parts);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  float* __restrict__ ranges,   // [N][GROUPS][TILES]
                  __half* __restrict__ pixels,
                  __half* __restrict__ pixels_rest)  // both [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    let_next_launch_start();
    __half* const parts[] = {pixels, pixels_rest};
    prepare_usual_input<InputTile<2>>(x, ranges, parts);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels,
                     __half* __restrict__ pixels_rest)  // both [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    let_next_launch_start();
    wait_for_launches_before();  // which write the ranges and the pixels
    __half* const parts[] = {pixels, pixels_rest};
    prepare_unusual_input<InputTile<2>>(x, ranges, exponents, parts);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,               // of pixels
             const TensorMap* pixel_rest_map,          // of pixels_rest
             const TensorMap* filter_map,              // of filters
             const TensorMap* filter_rest_map,         // of filters_rest
             const int* __restrict__ exponents,        // [N]
             const int* __restrict__ filter_exponent,  // [1]
             float* __restrict__ y,                    // [N][M][E][F]
             long long N)
{
    wait_for_launches_before();  // which write the pixels and the exponents
    multiply_tiles(Maps<2>{{pixel_map, pixel_rest_map}, {filter_map, filter_rest_map}}, Tiles(N),
                   StudyOutput<EveryRow>{y, exponents, filter_exponent, {int(N)}});
}
