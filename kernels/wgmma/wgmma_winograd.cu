// wgmma-winograd: fewer products, each of two halves for a float.
//
// Parent: wgmma-split, whose three products of halves keep the tensor cores busy without a pause: only fewer of them help.
// Here a row of OUTPUTS outputs takes OUTPUTS + S - 1 products instead of OUTPUTS * S (winograd.cuh): with 5 x 5 filters
// and tiles of four 0.4 of them, with 3 x 3 filters and tiles of five 0.47.  The price is paid in bytes: inputs grow by
// (OUTPUTS + S - 1) / OUTPUTS before the products, and the outputs are made from as many more sums afterwards.
//
// find_filter_ranges: a block finds the largest absolute value of a share of the filters.  prepare_filters: block (r, m)
// transforms row r of filter m.  prepare_input: block (tile, group, n) transforms some rows of up to 96 channels of image n.
// prepare_outliers: block n transforms image n again if its values are very large or small.  multiply: a block computes
// its share of the tiles of TILE_PIXELS x TILE_FILTERS sums of all points.  make_outputs: block (span, group, n) makes
// some rows of outputs of 64 filters of image n.
#include <cuda_fp16.h>

#include "point_products.cuh"

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
                    __half* __restrict__ filters,
                    __half* __restrict__ filters_rest)  // both [POINTS][M][R][DEPTH]
{
    __half* const parts[] = {filters, filters_rest};
    prepare_scaled_filters(w, filter_ranges, filter_exponent, parts);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  float* __restrict__ ranges,   // [N][GROUPS][TILES]
                  __half* __restrict__ values,
                  __half* __restrict__ values_rest)  // both [POINTS][N][TILES_ACROSS][H][DEPTH]
{
    let_next_launch_start();
    __half* const parts[] = {values, values_rest};
    prepare_usual_input<InputTile<2>>(x, ranges, parts);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ values,
                     __half* __restrict__ values_rest)  // both [POINTS][N][TILES_ACROSS][H][DEPTH]
{
    let_next_launch_start();
    wait_for_launches_before();  // which write the ranges and the values
    __half* const parts[] = {values, values_rest};
    prepare_unusual_input<InputTile<2>>(x, ranges, exponents, parts);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* value_map,        // of values
             const TensorMap* value_rest_map,   // of values_rest
             const TensorMap* filter_map,       // of filters
             const TensorMap* filter_rest_map,  // of filters_rest
             float* __restrict__ sums,          // [POINTS][N * PIXELS][PITCH]
             float* __restrict__ tails,         // [BLOCKS][TILE_PIXELS][TILE_FILTERS]
             int* __restrict__ tail_of,         // [2 * BLOCKS]
             long long N)
{
    let_next_launch_start();
    const Share share(N);
    wait_for_launches_before();  // which write the values
    multiply_tiles(Maps<2>{{value_map, value_rest_map}, {filter_map, filter_rest_map}}, share,
                   PointSums{sums, tails, tail_of, int(N)});
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 5)
    make_outputs(const float* __restrict__ sums,           // [POINTS][N * PIXELS][PITCH]
                 const float* __restrict__ tails,          // [BLOCKS][TILE_PIXELS][TILE_FILTERS]
                 const int* __restrict__ tail_of,          // [2 * BLOCKS]
                 const int* __restrict__ exponents,        // [N]
                 const int* __restrict__ filter_exponent,  // [1]
                 float* __restrict__ y)                    // [N][M][E][F]
{
    wait_for_launches_before();  // which write the sums and the exponents
    make_rows_of_outputs(sums, tails, tail_of, exponents, filter_exponent, y);
}
