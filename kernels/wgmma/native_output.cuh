// Stores a unit's sums as halves, channels innermost: y [N][E][F][M].
#pragma once
#include "blocked.cuh"
#include "warpgroups.cuh"

// `Where` says which pixel of the batch a row of the sums is, or none.
template <class Where>
struct NativeOutput {
    static constexpr int BYTES = CHUNK;  // of shared memory: none, but an array cannot be empty

    __half* y;  // [N][E][F][M]
    Where where;

    // Nothing but the first row.
    struct Rows {
        int first;
    };

    __device__ __forceinline__ Rows find(int first_row) const { return {first_row}; }

    __device__ __forceinline__ void store(const float (&sums)[UNITS][SUMS], Rows rows, int first_filter,
                                          unsigned char*) const
    {
#pragma unroll
        for (int u = 0; u < UNITS; ++u)
            store_unit(sums[u], rows.first + u / FILTER_UNITS * UNIT, first_filter + u % FILTER_UNITS * UNIT_FILTERS);
    }

    // A thread has, for j = 0, 1, ..., columns 8 j + 2 q and the next of two rows, with q its place among the four that
    // share the rows.  Four such threads exchange pairs so that each has eight columns in a row, one 16-byte store.
    __device__ __forceinline__ void store_unit(const float (&sums)[SUMS], int first_row, int first_filter) const
    {
        const int lane = threadIdx.x % LANES, quarter = lane % 4;
        const int row = first_row + threadIdx.x % WARPGROUP / LANES * 16 + lane / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int pixel = where.pixel(row + 8 * half);
            __half* const out = y + (size_t)pixel * M;
            if constexpr (M % CHUNK == 0 && SUMS % 16 == 0) {
#pragma unroll
                for (int group = 0; group < SUMS / 16; ++group) {  // of four j
                    const Chunk chunk = eight_in_a_row(sums, group, half, quarter);
                    const int filter = first_filter + (group * 4 + quarter) * CHUNK;
                    if (pixel >= 0 && filter < M) *reinterpret_cast<Chunk*>(out + filter) = chunk;
                }
            } else {
#pragma unroll
                for (int i = 0; i < SUMS / 2; ++i) {
                    const int filter = first_filter + i / 2 * 8 + quarter * 2 + i % 2;
                    if (pixel >= 0 && filter < M) out[filter] = __float2half_rn(sums[i / 2 * 4 + 2 * half + i % 2]);
                }
            }
        }
    }

    // Of four j the one whose number is the thread's quarter, complete: in round k a thread gives its pair of the j
    // that the thread k further wants.
    static __device__ __forceinline__ Chunk eight_in_a_row(const float (&sums)[SUMS], int group, int half, int quarter)
    {
        unsigned pairs[4];  // of this thread: one for each j
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int i = (group * 4 + j) * 4 + 2 * half;
            const __half2 pair = __floats2half2_rn(sums[i], sums[i + 1]);
            pairs[j] = *reinterpret_cast<const unsigned*>(&pair);
        }
        unsigned row[4];  // of the j that this thread stores: one pair from each of the four
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int other = quarter ^ k;
            const unsigned given = __shfl_xor_sync(0xffffffff, pick(pairs, other), k);
            put(row, other, given);
        }
        return {{row[0], row[1], row[2], row[3]}};
    }

    // Registers cannot be indexed by a number known at run time only: these compare.
    static __device__ __forceinline__ unsigned pick(const unsigned (&values)[4], int i)
    {
        const unsigned low = i & 1 ? values[1] : values[0], high = i & 1 ? values[3] : values[2];
        return i & 2 ? high : low;
    }

    static __device__ __forceinline__ void put(unsigned (&values)[4], int i, unsigned value)
    {
#pragma unroll
        for (int k = 0; k < 4; ++k) values[k] = i == k ? value : values[k];
    }
};
