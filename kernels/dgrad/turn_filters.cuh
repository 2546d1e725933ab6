// The first kernel of dgrad by a forward rung's kernels: turns the filters, which then serve as those of another layer.
//
// Gives: turn; common/padding.cuh.  The kernel is compiled for the other layer: its C are the filters of dgrad's layer,
// its M the channels.
//
// A thread writes one tap: filters are rotated by 180 degrees, and exchanged with channels within each group.
#pragma once
#include "../common/padding.cuh"

template <class Value>
__device__ __forceinline__ void turn(const Value* __restrict__ w,  // [C][GROUP_M][R][S]
                                     Value* __restrict__ turned)   // [M][GROUP_C][R][S]
{
    const int number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= M * GROUP_C * R * S) return;
    const int tap = number % (R * S), c = number / (R * S) % GROUP_C, m = number / (R * S * GROUP_C);
    const int filter = m / GROUP_M * GROUP_C + c;  // of dgrad's layer
    turned[number] = w[((size_t)filter * GROUP_M + m % GROUP_M) * R * S + R * S - 1 - tap];
}

ASSERT_GRID(TURN_FILTERS, (M * GROUP_C * R * S + LADDER_TURN_FILTERS_THREADS - 1) / LADDER_TURN_FILTERS_THREADS, 1, 1);
ASSERT_ELEMENTS(TURNED, M * GROUP_C * R * S);
