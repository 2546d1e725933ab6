// Filters and images as halves in the form of a layer, each scaled by a power of two of its own.
//
// A file that includes this has the form from blocked.cuh or winograd.cuh: write_filters, and GROUPS x TILES tiles of an
// image, whose type it names.
//
// Whether an image's largest absolute value is near 1 is known only when the whole image has been read; so images are
// converted as if, and those few that were not are converted again.
#pragma once
#include "halves.cuh"
#include "../common/range.cuh"

static_assert(BLOCK_THREADS == RANGE_THREADS);

// Block (r, m) writes row r of filter m, scaled by a power of two that is the same for all, and is noted.
template <int parts>
__device__ __forceinline__ void prepare_scaled_filters(const float* __restrict__ w,       // [M][C][R][S]
                                                       const float* __restrict__ ranges,  // [FILTER_RANGES]
                                                       int* __restrict__ exponent,        // [1]
                                                       __half* const (&blocked)[parts])   // [M][BLOCKED_R][RUN]
{
    write_filters(w, blocked, power_of_two(exponent_of_filters(ranges, exponent)));
}

// Block (tile, group, n) writes a tile of image n, scaled as usual.
template <class Tile, int parts>
__device__ __forceinline__ void prepare_usual_input(const float* __restrict__ x,      // [N][C][H][W]
                                                    float* __restrict__ ranges,       // [N][GROUPS][TILES]
                                                    __half* const (&blocked)[parts])  // in their layout
{
    DYNAMIC_SHARED(float4, tile_memory);
    const Tile tile(tile_memory, blockIdx.x, blockIdx.y, blockIdx.z);
    // Its barrier also completes the tile, before it is read across.
    const float largest = largest_in_block<BLOCK_THREADS>(tile.read(x, power_of_two(USUAL_EXPONENT)));
    if (threadIdx.x == 0) ranges[((size_t)blockIdx.z * GROUPS + blockIdx.y) * TILES + blockIdx.x] = largest;
    tile.write(blocked);
}

// Block n notes the exponent of image n, and converts the image again if it is not the usual one.
template <class Tile, int parts>
__device__ __forceinline__ void prepare_unusual_input(const float* __restrict__ x,       // [N][C][H][W]
                                                      const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                                                      int* __restrict__ exponents,       // [N]
                                                      __half* const (&blocked)[parts])
{
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
        __syncthreads();  // the tile is complete before it is read across
        tile.write(blocked);
    }
}
