// Max pooling of the input as it is loaded: an input's value is the largest of a window of an unpooled plane.
//
// Gives: POOLS, whether x has unpooled planes; PLANE_ELEMENTS, of a plane of x; place_in_plane, where a row and a column
// of the input begin there; load_input, a value from such a place; padding.cuh.
//
// Windows that overlap are loaded again for each input; the caches serve all but the first.
#pragma once
#include "../arch/basics.cuh"
#include "padding.cuh"

#ifdef CONV_POOL_SIZE
constexpr int POOL_SIZE = CONV_POOL_SIZE, POOL_STRIDE = CONV_POOL_STRIDE, UNPOOLED_W = CONV_UNPOOLED_COLUMNS;
constexpr int PLANE_ELEMENTS = CONV_UNPOOLED_ROWS * UNPOOLED_W;
constexpr bool POOLS = true;
static_assert(H == (CONV_UNPOOLED_ROWS - POOL_SIZE) / POOL_STRIDE + 1 && W == (UNPOOLED_W - POOL_SIZE) / POOL_STRIDE + 1);
#else
constexpr int POOL_SIZE = 1, POOL_STRIDE = 1;
SIZE(UNPOOLED_W, W); SIZE(PLANE_ELEMENTS, H * W);
constexpr bool POOLS = false;
#endif

// Offset, in elements, in a plane of x; negative before its first row.
__device__ __forceinline__ int place_in_plane(int row, int column)
{
    return (row * UNPOOLED_W + column) * POOL_STRIDE;
}

__device__ __forceinline__ float load_input(const float* __restrict__ x)
{
    float value = x[0];
    if constexpr (POOLS)
#pragma unroll
        for (int tap = 1; tap < POOL_SIZE * POOL_SIZE; ++tap)
            value = max_nan(value, x[tap / POOL_SIZE * UNPOOLED_W + tap % POOL_SIZE]);
    return value;
}
