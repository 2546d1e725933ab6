// Recomputes NHWC fp16 images with infinities or NaN.
//
// Gives: compute_full_range, the last kernel of wgmma-half-blocked and wgmma-window-half.
//
// With a stride, a blocked filter has taps beyond the filter: zeros, but they multiply inputs outside of an output's
// patch, and zero times infinity would be NaN; so have the filters of products with several groups, for the channels of
// other groups.  Block (part, 0, n) computes some tiles of image n if that has an infinity or a NaN.
#pragma once
#include "../arch/dependent_launch.cuh"
#include "../common/full_range.cuh"
#include "blocked.cuh"

struct NativeArrays {
    const __half* x;        // [N][H][W][C]
    const __half* filters;  // [M][BLOCKED_R][BLOCKED_S][BLOCKED_C]
    __half* y;              // [N][E][F][Y_CHANNELS]
    Addends<__half> added;

    // Row and column are those of the padded plane.
    __device__ __forceinline__ float input(int n, int c, int h, int w) const
    {
        if (HAS_PADDING && !in_plane(h, w)) return 0;
        return __half2float(x[(((size_t)n * H + h) * W + w - (TOP * W + LEFT)) * C + c]);
    }

    __device__ __forceinline__ float filter(int m, int c, int r, int s) const
    {
        const int channel = (channel_of_product(m) + c) * SPACE_TO_DEPTH + r % SIDE * SIDE + s % SIDE;
        return __half2float(
            filters[((size_t)m * BLOCKED_R + r / SIDE) * (BLOCKED_S * BLOCKED_C) + s / SIDE * BLOCKED_C + channel]);
    }

    __device__ __forceinline__ void store(int n, int m, int pixel, float value) const
    {
        const size_t place = ((size_t)n * (E * F) + pixel) * Y_CHANNELS + m;
        y[place] = __float2half_rn(added.finished(value, m, place));
    }
};

extern "C" __global__ void __launch_bounds__(FULL_THREADS)
    compute_full_range(const __half* __restrict__ x,        // [N][H][W][C]
                       const __half* __restrict__ filters,  // [M][BLOCKED_R][BLOCKED_S][BLOCKED_C]
                       const int* __restrict__ infinite,    // [N][SLICES][TILES]
                       __half* __restrict__ y               // [N][E][F][Y_CHANNELS]
                       EPILOGUE_PARAMETERS(__half))         // [M]; as y
{
    SHAPE_CONST int COUNT = OF(BlockedTile<1>, SLICES) * OF(BlockedTile<1>, TILES);
    wait_for_primary_launches();  // which find infinities and write the other outputs
    if constexpr (SIDE > 1 || GROUPS_TOGETHER > 1) {
        const int n = blockIdx.z;
        bool any = false;
        for (int i = threadIdx.x; i < COUNT; i += FULL_THREADS) any |= infinite[(size_t)n * COUNT + i] != 0;
        if (!__syncthreads_or(any)) return;
        for (int tile = blockIdx.x; tile < FULL_DOWN * FULL_PIXEL_TILES; tile += gridDim.x)
            compute_tile_in_full_range(NativeArrays{x, filters, y, ADDENDS(__half)}, n, full_filter(tile % FULL_DOWN),
                                       tile / FULL_DOWN * FULL_TILE);
    }
}

ASSERT_BLOCK(COMPUTE_FULL_RANGE, FULL_THREADS, 1);
ASSERT_SHARED_BYTES(COMPUTE_FULL_RANGE, FULL_BYTES);
ASSERT_ELEMENTS(INFINITE, BlockedTile<1>::SLICES * BlockedTile<1>::TILES);
