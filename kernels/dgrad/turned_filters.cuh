// dgrad by a forward rung's kernels: the filters of a layer, turned as a preparation reads them.
//
// Gives: turned_tap (TURNED_TAP of common/filter_tap.cuh).  The kernels are compiled for the other layer: its C are the
// filters of dgrad's layer, its M the channels.
//
// Filters are rotated by 180 degrees, and exchanged with channels within each group.  A tap of neighbouring filters is
// R x S values apart, so a warp that prepares all taps of some filters reads whole rows of w.
#pragma once
#include "../common/padding.cuh"

template <class Value>
__device__ __forceinline__ Value turned_tap(const Value* __restrict__ w,  // [C][GROUP_M][R][S]
                                            int m, int c, int tap)
{
    const int filter = m / GROUP_M * GROUP_C + c;  // of dgrad's layer
    return w[((size_t)filter * GROUP_M + m % GROUP_M) * (R * S) + R * S - 1 - tap];
}
#define TURNED_TAP turned_tap
