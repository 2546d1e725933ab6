// Vectors of neighbouring values in memory.
//
// Gives: Vector, of 2 to 16 bytes; load_or_zeros; store.
#pragma once
#include <type_traits>

#include "shape.cuh"

// The type as which an instruction moves a vector: a condition then selects whole words.
template <int BYTES>
using Word = std::conditional_t<
    BYTES == 16, uint4, std::conditional_t<BYTES == 8, uint2, std::conditional_t<BYTES == 4, unsigned, unsigned short>>>;

template <class Value, int COUNT>
union Vector {
    Word<COUNT * sizeof(Value)> word;
    Value values[COUNT];
};

template <int COUNT, class Value>
__device__ __forceinline__ Vector<Value, COUNT> load_or_zeros(const Value* from, bool valid)
{
    using Words = Word<COUNT * sizeof(Value)>;
    return {valid ? *reinterpret_cast<const Words*>(from) : Words{}};
}

template <class Value, int COUNT>
__device__ __forceinline__ void store(Value* to, const Vector<Value, COUNT>& vector)
{
    *reinterpret_cast<Word<COUNT * sizeof(Value)>*>(to) = vector.word;
}
