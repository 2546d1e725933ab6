// Accumulators of wgmma as rows of eight adjacent filters, transposed by shuffles.
//
// Gives: chunk_of_row.
#pragma once
#include "blocked.cuh"

// Registers cannot be indexed at run time: these select by comparison.
__device__ __forceinline__ unsigned pick(const unsigned (&values)[4], int i)
{
    const unsigned low = i & 1 ? values[1] : values[0], high = i & 1 ? values[3] : values[2];
    return i & 2 ? high : low;
}

__device__ __forceinline__ void put(unsigned (&values)[4], int i, unsigned value)
{
#pragma unroll
    // undefined: a value that is not put yet stays as it is
    for (int k = 0; k < 4; ++k) values[k] = i == k ? value : values[k];
}

// A thread holds, for j = 0, 1, ..., columns 8 j + 2 q and the next of a row, q being its quarter, its place among the
// four threads of the row.  Given its pairs of fp16 values for four j, the complete chunk of one of them, that with the
// number of the quarter: in round k a thread passes its pair of j = quarter ^ k to the thread of that quarter.
__device__ __forceinline__ Chunk chunk_of_row(const unsigned (&pairs)[4], int quarter)
{
    unsigned row[4];  // of the j that this thread stores: one pair from each of the four
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const int other = quarter ^ k;
        const unsigned given = __shfl_xor_sync(0xffffffff, pick(pairs, other), k);
        put(row, other, given);
    }
    return {{row[0], row[1], row[2], row[3]}};
}
