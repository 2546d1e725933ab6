// The arrays of a network's stage: their type, and where a value lies.
//
// Gives: Value; VECTOR, the values of a 16-byte vector; place, a value's index; load_vector, store_vector, some values
// as floats; basics.cuh.
// Needs: LADDER_ELEMENT_BYTES, 2 or 4, and LADDER_CHANNELS_LAST, 1 for [N][H][W][C] and 0 for [N][C][H][W].
#pragma once
#include <cuda_fp16.h>

#include "../arch/basics.cuh"

template <int BYTES>
struct ValueOf {
    using Type = float;
};
template <>
struct ValueOf<2> {
    using Type = __half;
};
using Value = ValueOf<LADDER_ELEMENT_BYTES>::Type;

constexpr bool CHANNELS_LAST = LADDER_CHANNELS_LAST;
constexpr int VECTOR_BYTES = 16, VECTOR = VECTOR_BYTES / int(sizeof(Value));

// Of a value of an array of ROWS x COLUMNS planes with C channels.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ size_t place(long long n, int c, int row, int column)
{
    if constexpr (CHANNELS_LAST) return (((size_t)n * ROWS + row) * COLUMNS + column) * C + c;
    return (((size_t)n * C + c) * ROWS + row) * COLUMNS + column;
}

// COUNT values from an address, as floats: by one vector where `vectors` says that they fill one, aligned.
template <bool vectors, int COUNT>
__device__ __forceinline__ void load_vector(const Value* __restrict__ from,  // [COUNT]
                                            float* values)                   // [COUNT]
{
    if constexpr (vectors && COUNT == VECTOR) {
        const uint4 loaded = *reinterpret_cast<const uint4*>(from);
        Value parts[COUNT];
        memcpy(parts, &loaded, VECTOR_BYTES);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) values[i] = float(parts[i]);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) values[i] = float(from[i]);
    }
}

// COUNT values to an address, likewise.
template <bool vectors, int COUNT>
__device__ __forceinline__ void store_vector(const float* values,     // [COUNT]
                                             Value* __restrict__ to)  // [COUNT]
{
    if constexpr (vectors && COUNT == VECTOR) {
        Value parts[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) parts[i] = Value(values[i]);
        uint4 stored;
        memcpy(&stored, parts, VECTOR_BYTES);
        *reinterpret_cast<uint4*>(to) = stored;
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) to[i] = Value(values[i]);
    }
}
