// The epilogue for NHWC fp16 outputs: accumulators to y [N][E][F][M], straight from registers.
//
// Gives: NativeEpilogue<Where, Others>, an Epilogue of warpgroups.cuh and window.cuh.
//
// Needs: TILE_FILTERS, a constant of the rung.
#pragma once
#include "../common/bias.cuh"
#include "blocked.cuh"
#include "own_channels.cuh"
#include "row_chunks.cuh"
#include "warpgroups.cuh"

// Where: maps a row of the product to a pixel of the batch, or to none (EveryRow, OutputPositions).  Others: whether
// products have channels of other groups (NoOthers, OwnChannels).
template <class Where, class Others = NoOthers>
struct NativeEpilogue {
    static constexpr int BYTES = CHUNK;  // of shared memory: none, but an array cannot be empty

    __half* y;  // [N][E][F][Y_CHANNELS]
    Where where;
    Addends<__half> added;
    Others own = {};

    // A thread stores chunks of eight filters.  Their bias comes in pairs: a lane has the tile's pair with its number,
    // and every 32nd after it.  They are loaded before the products and passed on by shuffles: a thread's own pairs,
    // loaded in the epilogue, would not fit beside the accumulators.
    static constexpr bool WHOLE_CHUNKS = ACCUMULATORS % 16 == 0;
    MEMBER_FLAG(CHUNKS, PRODUCT_M % CHUNK == 0 && WHOLE_CHUNKS);
#ifdef DYNAMIC_SHAPE
    static constexpr bool PAIRS = HAS_BIAS && WHOLE_CHUNKS;  // zeros where there are none
#else
    static constexpr bool PAIRS = HAS_BIAS && CHUNKS;
#endif
    static constexpr int OWN_PAIRS = (TILE_FILTERS / 2 + LANES - 1) / LANES;

    struct Rows {
        int first;
        int bias[PAIRS ? OWN_PAIRS : 1];
    };

    __device__ __forceinline__ Rows find(int first_row, int first_filter) const
    {
        Rows found = {first_row, {}};
#ifdef DYNAMIC_SHAPE
        if (!added.bias || !OF(NativeEpilogue, CHUNKS)) return found;
#endif
        if constexpr (PAIRS)
#pragma unroll
            for (int i = 0; i < OWN_PAIRS; ++i) {
                // Clamped: the bias ends at the last filter, beyond which nothing is stored.
                const int filter = min(first_filter + 2 * int(i * LANES + threadIdx.x % LANES), M - 2);
                found.bias[i] = load_now(reinterpret_cast<const int*>(added.bias + filter));
            }
        return found;
    }

    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& rows,
                                          int first_filter, unsigned char*) const
    {
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u) {
            const int row = rows.first + u / WGMMAS_ACROSS * WGMMA_ROWS;
            const int across = u % WGMMAS_ACROSS * WGMMA_FILTERS;
            const int filter = first_filter + across, end = end_of_product(first_filter);
            store_tile(accumulators[u], row, filter, end, rows, across);
            if constexpr (Others::SEEN)
                if (Others::any_infinite(accumulators[u])) store_again(row, filter, min(filter + WGMMA_FILTERS, end));
        }
    }

    // Computes the warp's outputs from their own channels.
    __device__ __forceinline__ void store_again(int first_row, int first_filter, int end_filter) const
    {
        constexpr int WARP_ROWS = 16;
        __syncwarp();  // the warp's other lanes have stored the outputs that this one overwrites
        first_row += threadIdx.x % WARPGROUP / LANES * WARP_ROWS;
#pragma unroll 1
        for (int row = first_row; row < first_row + WARP_ROWS; ++row) {
            const int pixel = where.pixel(row);
            if (pixel < 0) continue;
#pragma unroll 1
            for (int filter = first_filter + threadIdx.x % LANES; filter < end_filter; filter += LANES) {
                const size_t place = (size_t)pixel * Y_CHANNELS + filter;
                y[place] = __float2half_rn(added.finished(own.sum(pixel, filter), filter, place));
            }
        }
    }

    // The four threads of a row transpose pairs by shuffles, so that each stores eight adjacent columns, 16 bytes.
    __device__ __forceinline__ void store_tile(const float (&accumulators)[ACCUMULATORS], int first_row,
                                               int first_filter, int end_filter, const Rows& rows, int across) const
    {
        const int lane = threadIdx.x % LANES, quarter = lane % 4;
        const int row = first_row + threadIdx.x % WARPGROUP / LANES * 16 + lane / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int pixel = where.pixel(row + 8 * half);
            const size_t of_pixel = (size_t)pixel * Y_CHANNELS;
            __half* const out = y + of_pixel;
            IF_SHAPE (OF(NativeEpilogue, CHUNKS)) {
#pragma unroll
                for (int group = 0; group < ACCUMULATORS / 16; ++group) {  // of four j
                    AddendsOfFour of_four = bias_of(rows, across, group, quarter);
                    const int first = first_filter + group * 4 * CHUNK;
                    if (pixel >= 0) add_residual(of_four, of_pixel + first, end_filter - first, quarter);
                    const Chunk chunk = eight_in_a_row(accumulators, group, half, quarter, of_four);
                    const int filter = first_filter + (group * 4 + quarter) * CHUNK;
                    if (pixel >= 0 && filter < end_filter) *reinterpret_cast<Chunk*>(out + filter) = chunk;
                }
            } else {
#pragma unroll
                for (int i = 0; i < ACCUMULATORS / 2; ++i) {
                    const int filter = first_filter + i / 2 * 8 + quarter * 2 + i % 2;
                    const float value = accumulators[i / 2 * 4 + 2 * half + i % 2];
                    if (pixel >= 0 && filter < end_filter)
                        out[filter] = __float2half_rn(added.finished(value, filter, of_pixel + filter));
                }
            }
        }
    }

    // What is added to a thread's pairs of a group.
    struct AddendsOfFour {
        float of[4][2];
    };

    // Their bias, of accumulators that begin `across` filters after the tile's first.
    __device__ __forceinline__ AddendsOfFour bias_of(const Rows& rows, int across, int group, int quarter) const
    {
        AddendsOfFour of_four = {};
#ifdef DYNAMIC_SHAPE
        if (!added.bias) return of_four;
#endif
        if constexpr (PAIRS)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int first = across / 2 + (group * 4 + j) * 4;  // pair of the first quarter
                const int bits = __shfl_sync(0xffffffff, rows.bias[first / LANES], first % LANES + quarter);
                const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&bits));
                of_four.of[j][0] = pair.x, of_four.of[j][1] = pair.y;
            }
        return of_four;
    }

    // Adds the residual, given the place of the group's first filter in y and the filters from there on.
    __device__ __forceinline__ void add_residual(AddendsOfFour& of_four, size_t place, int filters, int quarter) const
    {
        if constexpr (HAS_RESIDUAL)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int filter = j * CHUNK + quarter * 2;
                if (filter >= filters) continue;
                const int bits = __ldg(reinterpret_cast<const int*>(added.residual + place + filter));
                const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&bits));
                of_four.of[j][0] += pair.x, of_four.of[j][1] += pair.y;
            }
    }

    // The chunk of eight filters that this thread stores of a group's four.
    static __device__ __forceinline__ Chunk eight_in_a_row(const float (&accumulators)[ACCUMULATORS], int group,
                                                           int half, int quarter, const AddendsOfFour& of_four)
    {
        unsigned pairs[4];  // of this thread: one for each j
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int i = (group * 4 + j) * 4 + 2 * half;
            const __half2 pair = __floats2half2_rn(output(accumulators[i], of_four.of[j][0]),
                                                   output(accumulators[i + 1], of_four.of[j][1]));
            pairs[j] = *reinterpret_cast<const unsigned*>(&pair);
        }
        return chunk_of_row(pairs, quarter);
    }

    static __device__ __forceinline__ float output(float sum, float addend)
    {
        if constexpr (PAIRS || HAS_RESIDUAL) sum += addend;
        return activated(sum);
    }
};
