// Threads that each compute some neighbouring channels of an output pixel.
//
// Gives: CHUNK, channels of a thread; CHUNKS of a pixel; Part, a thread's image, pixel and first channel; part_of;
// load_part, store_part; values.cuh.
// Needs: LADDER_CHUNK.
//
// With the channels innermost neighbouring threads take neighbouring chunks, else neighbouring pixels: accesses
// coalesce in both layouts.
#pragma once
#include "values.cuh"

constexpr int CHUNK = LADDER_CHUNK, CHUNKS = (C + CHUNK - 1) / CHUNK;
constexpr bool WHOLE_VECTORS = CHANNELS_LAST && C % CHUNK == 0;  // every chunk is one aligned vector

struct Part {
    long long n;
    int pixel, first;
};

// The part of a thread, numbered through the batch, of an array whose planes have PIXELS pixels.
template <int PIXELS>
__device__ __forceinline__ Part part_of(long long thread)
{
    if constexpr (CHANNELS_LAST) {
        const long long rest = thread / CHUNKS;
        return {rest / PIXELS, int(rest % PIXELS), int(thread % CHUNKS) * CHUNK};
    }
    const long long rest = thread / PIXELS;
    return {rest / CHUNKS, int(thread % PIXELS), int(rest % CHUNKS) * CHUNK};
}

// CHUNK channels of a pixel from `first` on; zero beyond the last.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void load_part(const Value* __restrict__ x,  // [N] planes
                                          long long n, int first, int row, int column,
                                          float* values)  // [CHUNK]
{
    if constexpr (WHOLE_VECTORS) {
        load_vector<true, CHUNK>(x + place<ROWS, COLUMNS>(n, first, row, column), values);
    } else {
#pragma unroll
        for (int i = 0; i < CHUNK; ++i)
            values[i] = first + i < C ? float(x[place<ROWS, COLUMNS>(n, first + i, row, column)]) : 0.0f;
    }
}

template <int ROWS, int COLUMNS>
__device__ __forceinline__ void store_part(const float* values,  // [CHUNK]
                                           Value* __restrict__ y,  // [N] planes
                                           long long n, int first, int row, int column)
{
    if constexpr (WHOLE_VECTORS) {
        store_vector<true, CHUNK>(values, y + place<ROWS, COLUMNS>(n, first, row, column));
    } else {
#pragma unroll
        for (int i = 0; i < CHUNK; ++i)
            if (first + i < C) y[place<ROWS, COLUMNS>(n, first + i, row, column)] = Value(values[i]);
    }
}
