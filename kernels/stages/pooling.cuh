// Max pooling: the largest of the values under a window, for a thread's channels.
//
// Gives: largest_part, which takes how a pixel's channels are loaded; channels.cuh.
#pragma once
#include "channels.cuh"

// The largest values of a thread's channels at the output pixel (e, f); load(row, column, values) gives a pixel's.
template <class Load>
__device__ __forceinline__ void largest_part(int e, int f, float* largest,  // [CHUNK]
                                             Load load)
{
    load(e * U, f * U, largest);
#pragma unroll
    for (int tap = 1; tap < R * S; ++tap) {
        float values[CHUNK];
        load(e * U + tap / S, f * U + tap % S, values);
#pragma unroll
        for (int i = 0; i < CHUNK; ++i) largest[i] = larger(largest[i], values[i]);
    }
}
