// A layer's groups as matrix products, narrow groups together in one.
//
// Gives: GROUPS_TOGETHER, PRODUCTS, PRODUCT_C, PRODUCT_M; end_of_product, channel_of_product; padding.cuh.
//
// Tensor cores multiply 16 channels by a tile of filters, and the TMA brings rows of 64 channels: a narrow group would
// leave most of both empty.  So neighbouring groups share a product, up to SHARED channels and filters: a filter has
// zeros for the channels of the other groups (a block-diagonal product).  Zero times infinity is NaN:
// a rung whose products have channels of several groups computes such outputs again.
//
// A product of some of the groups has a multiple of ALIGNED_CHANNELS, since the TMA's im2col mode, which brings it from an
// unprepared input, begins at whole 16 bytes.
//
// Needs: SHARED, which a rung may define.
#pragma once
#include "../common/padding.cuh"

#ifndef SHARED
#define SHARED 64
#endif
constexpr int ALIGNED_CHANNELS = 8;

// The groups of a product.
constexpr int groups_together()
{
#ifndef DYNAMIC_SHAPE  // whose builds take one group
    for (int count = GROUPS; count > 1; --count) {
        const int channels = count * GROUP_C, filters = count * GROUP_M;
        const bool aligned = count == GROUPS || channels % ALIGNED_CHANNELS == 0;
        if (GROUPS % count == 0 && aligned && channels <= SHARED && filters <= SHARED) return count;
    }
#endif
    return 1;
}

constexpr int GROUPS_TOGETHER = groups_together(), PRODUCTS = GROUPS / GROUPS_TOGETHER;
SIZE(PRODUCT_C, GROUPS_TOGETHER * GROUP_C); SIZE(PRODUCT_M, GROUPS_TOGETHER * GROUP_M);

// One past the last filter of a filter's product.
__device__ __forceinline__ int end_of_product(int filter)
{
    return PRODUCTS == 1 ? M : (filter / PRODUCT_M + 1) * PRODUCT_M;
}

// The channel of its product where a filter's own group begins.
__device__ __forceinline__ int channel_of_product(int filter)
{
    return GROUPS_TOGETHER == 1 ? 0 : filter / GROUP_M % GROUPS_TOGETHER * GROUP_C;
}
