// Accumulators of wgmma as rows of eight adjacent filters, transposed by shuffles.
//
// Gives: chunk_of_row.
#pragma once
#include "blocked.cuh"

// A thread holds, for j = 0, 1, ..., columns 8 j + 2 q and the next of a row, q being its quarter, its place among the
// four threads of the row.  Given its pairs of fp16 values for four j, the complete chunk of j = q: a transpose of 4 x 4
// pairs in two exchanges, with the thread whose quarter differs in the low bit, and in the high one.
__device__ __forceinline__ Chunk chunk_of_row(const unsigned (&pairs)[4], int quarter)
{
    const bool odd = quarter & 1, upper = quarter & 2;
    unsigned kept[2][2];  // [j's high bit][even, odd quarter]: pairs of j with the low bit of this quarter
#pragma unroll
    for (int high = 0; high < 2; ++high) {
        const unsigned even_j = pairs[2 * high], odd_j = pairs[2 * high + 1];
        const unsigned own = odd ? odd_j : even_j;
        const unsigned given = __shfl_xor_sync(0xffffffff, odd ? even_j : odd_j, 1);
        kept[high][0] = odd ? given : own;
        kept[high][1] = odd ? own : given;
    }
    Chunk row;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned own = upper ? kept[1][i] : kept[0][i];
        const unsigned given = __shfl_xor_sync(0xffffffff, upper ? kept[0][i] : kept[1][i], 2);
        row.pairs[i] = upper ? given : own;
        row.pairs[2 + i] = upper ? own : given;
    }
    return row;
}
