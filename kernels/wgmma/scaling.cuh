// Filters and images as fp16 operands, scaled by powers of two: one for all filters, one for each image.
//
// Gives: prepare_scaled_filters, prepare_usual_input, prepare_outlier_input.
//
// Whether an image's largest absolute value is near 1 is known only when the whole image has been read.  So images are
// converted with the usual power, and the few outliers are converted again.
//
// Template parameters.  Filters: write(w, operands, power) writes a block's filters (BlockedFilters, WinogradFilters).
// Tile: a block's part of an image, of GROUPS x TILES; read(x, power) and write(operands) (BlockedTile, WinogradTile).
#pragma once
#include "../common/range.cuh"
#include "preparation.cuh"

static_assert(BLOCK_THREADS == RANGE_THREADS);

// Block (r, m) writes row r of filter m, scaled by a power of two that is the same for all; stores its exponent.
template <class Filters, int terms>
__device__ __forceinline__ void prepare_scaled_filters(const float* __restrict__ w,       // [M][C][R][S]
                                                       const float* __restrict__ ranges,  // [FILTER_RANGES]
                                                       int* __restrict__ exponent,        // [1]
                                                       __half* const (&operands)[terms])  // in the form of Filters
{
    Filters::write(w, operands, power_of_two(exponent_of_filters(ranges, exponent)));
}

// Block (tile, group, n) writes a tile of image n, scaled by the usual power.
template <class Tile, int terms>
__device__ __forceinline__ void prepare_usual_input(const float* __restrict__ x,       // [N][C][H][W]
                                                    float* __restrict__ ranges,        // [N][GROUPS][TILES]
                                                    __half* const (&operands)[terms])  // in the form of Tile
{
    DYNAMIC_SHARED(float4, tile_memory);
    const Tile tile(tile_memory, blockIdx.x, blockIdx.y, blockIdx.z);
    // Its barrier also completes the tile, before it is read transposed.
    const float largest = largest_in_block<BLOCK_THREADS>(tile.read(x, power_of_two(USUAL_EXPONENT)));
    if (threadIdx.x == 0) ranges[((size_t)blockIdx.z * Tile::GROUPS + blockIdx.y) * Tile::TILES + blockIdx.x] = largest;
    tile.write(operands);
}

// Block n stores the exponent of image n, and converts the image again if it is not the usual one.
template <class Tile, int terms>
__device__ __forceinline__ void prepare_outlier_input(const float* __restrict__ x,       // [N][C][H][W]
                                                      const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                                                      int* __restrict__ exponents,       // [N]
                                                      __half* const (&operands)[terms])  // in the form of Tile
{
    constexpr int GROUPS = Tile::GROUPS, TILES = Tile::TILES;
    DYNAMIC_SHARED(float4, tile_memory);
    const int n = blockIdx.z;
    const float largest =
        largest_of<BLOCK_THREADS>(ranges + (size_t)n * GROUPS * TILES, threadIdx.x, GROUPS * TILES, BLOCK_THREADS);
    const int exponent = scaling_exponent(largest);
    if (threadIdx.x == 0) exponents[n] = exponent;
    if (exponent == USUAL_EXPONENT) return;
    for (int i = 0; i < GROUPS * TILES; ++i) {
        const Tile tile(tile_memory, i % TILES, i / TILES, n);
        __syncthreads();  // the tile before has been written out
        tile.read(x, power_of_two(exponent));
        __syncthreads();  // the tile is complete before it is read transposed
        tile.write(operands);
    }
}
