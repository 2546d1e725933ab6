// Floats brought into the range of halves by powers of two, which round nothing.
//
// A half reaches from 2^-24 to 2^16.  Where the largest absolute value of an image is near 1, as it is in most networks,
// 2^10 leaves room above and keeps the rests, 11 bits below, clear of the lower end.  Whether it was near 1 is known only
// when the whole image has been read; so images are converted as if, and those few that were not are converted again.
#pragma once
#include "blocked.cuh"

constexpr int USUAL_EXPONENT = 10;
constexpr float LEAST_USUAL = 1.0f / 32, MOST_USUAL = 32;

constexpr int LARGEST_EXPONENT = 14, FLOAT_BIAS = 127, FLOAT_MANTISSA = 23;

// The exponent of the power of two for values of which this is the largest.
__device__ __forceinline__ int scaling_exponent(float largest)
{
    if (largest == 0 || (largest >= LEAST_USUAL && largest < MOST_USUAL)) return USUAL_EXPONENT;
    const int exponent = LARGEST_EXPONENT + FLOAT_BIAS - (__float_as_int(largest) >> FLOAT_MANTISSA);
    return min(exponent, FLOAT_BIAS - 1);  // the power and its inverse are floats of full precision
}

// 2^exponent, for exponents between -126 and 127.
__device__ __forceinline__ float power_of_two(int exponent)
{
    return __int_as_float((exponent + FLOAT_BIAS) << FLOAT_MANTISSA);
}

// The largest of what the block's threads have, handed to every thread.
__device__ __forceinline__ float largest_in_block(float largest)
{
    __shared__ float of_warp[BLOCK_WARPS];
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
    if (threadIdx.x % LANES == 0) of_warp[threadIdx.x / LANES] = largest;
    __syncthreads();  // all warps have written their largest value before anybody reads
#pragma unroll
    for (int warp = 0; warp < BLOCK_WARPS; ++warp) largest = fmaxf(largest, of_warp[warp]);
    return largest;
}

__device__ __forceinline__ float largest_of(const float* __restrict__ values, size_t first, size_t count, size_t step)
{
    float largest = 0;
#pragma unroll 8
    for (size_t i = first; i < count; i += step) largest = fmaxf(largest, fabsf(values[i]));
    return largest_in_block(largest);
}

// Block i of FILTER_RANGES writes the largest absolute value of its share of the filters.
constexpr int FILTER_RANGES = 128;

__device__ __forceinline__ void find_range_of_filters(const float* __restrict__ w,   // [M][C][R][S]
                                                      float* __restrict__ ranges)    // [FILTER_RANGES]
{
    const float largest = largest_of(w, blockIdx.x * BLOCK_THREADS + threadIdx.x, (size_t)M * C * R * S,
                                     FILTER_RANGES * BLOCK_THREADS);
    if (threadIdx.x == 0) ranges[blockIdx.x] = largest;
}

// Block (r, m) blocks row r of filter m, scaled by a power of two that is the same for all, and is noted.
template <int parts>
__device__ __forceinline__ void prepare_scaled_filters(const float* __restrict__ w,       // [M][C][R][S]
                                                       const float* __restrict__ ranges,  // [FILTER_RANGES]
                                                       int* __restrict__ exponent,        // [1]
                                                       __half* const (&blocked)[parts])   // [M][BLOCKED_R][RUN]
{
    const int found = scaling_exponent(largest_of(ranges, threadIdx.x, FILTER_RANGES, BLOCK_THREADS));
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *exponent = found;
    block_filters(w, blocked, power_of_two(found));
}

// Tiles of an image, of which each notes its largest absolute value.
constexpr int GROUPS = (BLOCKED_C + BLOCK_DEPTH - 1) / BLOCK_DEPTH, TILES = TILES_ACROSS * PLANE_H;

// Block (tile, group, n) writes a tile of blocked image n, scaled as usual.
template <class Layout = ChannelsInnermost, int parts>
__device__ __forceinline__ void prepare_usual_input(const float* __restrict__ x,      // [N][C][H][W]
                                                    float* __restrict__ ranges,       // [N][GROUPS][TILES]
                                                    __half* const (&blocked)[parts])  // in their layout
{
    DYNAMIC_SHARED(__half, depths);
    const InputTile<parts, Layout> tile(depths, blockIdx.x, blockIdx.y, blockIdx.z);
    // Its barrier also completes the tile, before it is read across.
    const float largest = largest_in_block(tile.read(x, power_of_two(USUAL_EXPONENT)));
    if (threadIdx.x == 0) ranges[((size_t)blockIdx.z * GROUPS + blockIdx.y) * TILES + blockIdx.x] = largest;
    tile.write(blocked);
}

// Block n notes the exponent of image n, and converts the image again if it is not the usual one.
template <class Layout = ChannelsInnermost, int parts>
__device__ __forceinline__ void prepare_unusual_input(const float* __restrict__ x,       // [N][C][H][W]
                                                      const float* __restrict__ ranges,  // [N][GROUPS][TILES]
                                                      int* __restrict__ exponents,       // [N]
                                                      __half* const (&blocked)[parts])
{
    DYNAMIC_SHARED(__half, depths);
    const int n = blockIdx.x;
    const float largest = largest_of(ranges + (size_t)n * GROUPS * TILES, threadIdx.x, GROUPS * TILES, BLOCK_THREADS);
    const int exponent = scaling_exponent(largest);
    if (threadIdx.x == 0) exponents[n] = exponent;
    if (exponent == USUAL_EXPONENT) return;
    for (int i = 0; i < GROUPS * TILES; ++i) {
        const InputTile<parts, Layout> tile(depths, i % TILES, i / TILES, n);
        __syncthreads();  // the tile before has been written out
        tile.read(x, power_of_two(exponent));
        __syncthreads();  // the tile is complete before it is read across
        tile.write(blocked);
    }
}
