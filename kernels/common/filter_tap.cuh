// The filters that a preparation reads.
//
// Gives: filter_tap.
//
// Kernels of the forward direction read a layer's filters as they lie.  dgrad's files include the same kernels with
// filters that are turned as they are read: they define TURNED_TAP before (dgrad/turned_filters.cuh, dgrad/phases.cuh).
#pragma once
#include "padding.cuh"

// Tap number `tap` of channel c of a group, of filter m.
template <class Value>
__device__ __forceinline__ Value filter_tap(const Value* __restrict__ w,  // [M][GROUP_C][R][S], or as TURNED_TAP says
                                            int m, int c, int tap)
{
#ifdef TURNED_TAP
    return TURNED_TAP(w, m, c, tap);
#else
    return w[((size_t)m * GROUP_C + c) * (R * S) + tap];
#endif
}
