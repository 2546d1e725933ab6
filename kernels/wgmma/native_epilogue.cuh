// The epilogue for NHWC fp16 outputs: accumulators to y [N][E][F][M], straight from registers.
//
// Gives: NativeEpilogue<Where>, an Epilogue of warpgroups.cuh and window.cuh.
#pragma once
#include "../common/bias.cuh"
#include "blocked.cuh"
#include "warpgroups.cuh"

// Where: maps a row of the product to a pixel of the batch, or to none (EveryRow, OutputPositions).
template <class Where>
struct NativeEpilogue {
    static constexpr int BYTES = CHUNK;  // of shared memory: none, but an array cannot be empty

    __half* y;  // [N][E][F][M]
    Where where;
    const __half* bias;  // [M]

    struct Rows {
        int first;
    };

    __device__ __forceinline__ Rows find(int first_row, int) const { return {first_row}; }

    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], Rows rows,
                                          int first_filter, unsigned char*) const
    {
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
            store_tile(accumulators[u], rows.first + u / WGMMAS_ACROSS * WGMMA_ROWS,
                       first_filter + u % WGMMAS_ACROSS * WGMMA_FILTERS, end_of_group(first_filter));
    }

    // A thread holds, for j = 0, 1, ..., columns 8 j + 2 q and the next of two rows, q being its place among the four
    // threads of these rows.  The four transpose pairs by shuffles, so that each stores eight adjacent columns, 16
    // bytes.
    __device__ __forceinline__ void store_tile(const float (&accumulators)[ACCUMULATORS], int first_row,
                                               int first_filter, int end_filter) const
    {
        const int lane = threadIdx.x % LANES, quarter = lane % 4;
        const int row = first_row + threadIdx.x % WARPGROUP / LANES * 16 + lane / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int pixel = where.pixel(row + 8 * half);
            __half* const out = y + (size_t)pixel * M;
            if constexpr (GROUP_M % CHUNK == 0 && ACCUMULATORS % 16 == 0) {
#pragma unroll
                for (int group = 0; group < ACCUMULATORS / 16; ++group) {  // of four j
                    const Chunk chunk = eight_in_a_row(accumulators, group, half, quarter, first_filter);
                    const int filter = first_filter + (group * 4 + quarter) * CHUNK;
                    if (pixel >= 0 && filter < end_filter) *reinterpret_cast<Chunk*>(out + filter) = chunk;
                }
            } else {
#pragma unroll
                for (int i = 0; i < ACCUMULATORS / 2; ++i) {
                    const int filter = first_filter + i / 2 * 8 + quarter * 2 + i % 2;
                    const float value = accumulators[i / 2 * 4 + 2 * half + i % 2];
                    if (pixel >= 0 && filter < end_filter)
                        out[filter] = __float2half_rn(with_bias_and_relu(value, bias, filter));
                }
            }
        }
    }

    // The complete chunk of one j of four, that with the number of the thread's quarter: in round k a thread passes its
    // pair of j = quarter ^ k to the thread of that quarter.
    __device__ __forceinline__ Chunk eight_in_a_row(const float (&accumulators)[ACCUMULATORS], int group, int half,
                                                    int quarter, int first_filter) const
    {
        unsigned pairs[4];  // of this thread: one for each j
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int i = (group * 4 + j) * 4 + 2 * half;
            // Clamped: the bias ends at the last filter, beyond which nothing is stored.
            const int filter = min(first_filter + (group * 4 + j) * CHUNK + 2 * quarter, M - 2);
            const __half2 pair = __floats2half2_rn(with_bias_and_relu(accumulators[i], bias, filter),
                                                   with_bias_and_relu(accumulators[i + 1], bias, filter + 1));
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

    // Registers cannot be indexed at run time: these select by comparison.
    static __device__ __forceinline__ unsigned pick(const unsigned (&values)[4], int i)
    {
        const unsigned low = i & 1 ? values[1] : values[0], high = i & 1 ? values[3] : values[2];
        return i & 2 ? high : low;
    }

    static __device__ __forceinline__ void put(unsigned (&values)[4], int i, unsigned value)
    {
#pragma unroll
        // undefined: a value that is not put yet stays as it is
        for (int k = 0; k < 4; ++k) values[k] = i == k ? value : values[k];
    }
};
