// Depthwise convolution in NHWC from strips in registers: neighbouring channels in vectors.
//
// Gives: STRIP_THREADS, STRIP_BLOCKS; convolve_channels.
//
// A thread computes TILE_ROWS x TILE_COLUMNS outputs of VECTOR filters; neighbouring threads have neighbouring filters,
// so the same tap of a warp's filters lies in as many cache lines.  Where filters have many taps, and strips few rows to
// use them for, a block therefore copies those of its threads into shared memory, one after the other.
//
// Needs: VECTOR, a constant of the rung; TILE_ROWS, TILE_COLUMNS (strip.cuh).
#pragma once
#include "../arch/dependent_launch.cuh"
#include "strip.cuh"

static_assert(M % VECTOR == 0 && (VECTOR == 1 || MULTIPLIER == 1), "the filters of a vector have neighbouring channels");
constexpr int STRIP_THREADS = 128;
constexpr int THREADS_OF_IMAGE = M / VECTOR * STRIPS * TILES_ACROSS;
constexpr int STRIP_BLOCKS = (THREADS_OF_IMAGE + STRIP_THREADS - 1) / STRIP_THREADS;  // of an image
constexpr int FEW_TAPS = 9, MOST_SHARED = 48 * 1024;
constexpr int THREAD_TAPS = VECTOR * TAPS, BLOCK_TAPS = STRIP_THREADS * THREAD_TAPS;

// The filters of a block's threads, from the one whose first filter is `first`.
template <class Bits>
__device__ __forceinline__ void copy_filters(const Bits* __restrict__ w,  // [M][1][R][S]
                                             int first, Bits* filters)    // [STRIP_THREADS][THREAD_TAPS]
{
    Bits loaded[THREAD_TAPS];
#pragma unroll
    for (int i = 0; i < THREAD_TAPS; ++i)
        loaded[i] = w[(first * TAPS + i * STRIP_THREADS + threadIdx.x) % (M * TAPS)];
#pragma unroll
    for (int i = 0; i < THREAD_TAPS; ++i) filters[i * STRIP_THREADS + threadIdx.x] = loaded[i];
}

template <class Value>
__device__ __forceinline__ void convolve_channels(const Value* __restrict__ x,     // [N][H][W][C]
                                                  const Value* __restrict__ w,     // [M][1][R][S]
                                                  Value* __restrict__ y,           // [N][E][F][M]
                                                  const Value* __restrict__ bias)  // [M], or null
{
    constexpr int MOST_ROWS = sizeof(Value) / 2;  // beyond which the copy takes longer than it saves, as predicted
    constexpr bool SHARED =
        TAPS > FEW_TAPS && TILE_ROWS <= MOST_ROWS && BLOCK_TAPS * int(sizeof(Value)) <= MOST_SHARED;
    using Bits = Word<sizeof(Value)>;
    __shared__ __align__(16) Bits filters[SHARED ? BLOCK_TAPS : 1];
    const int n = blockIdx.x / STRIP_BLOCKS, first = blockIdx.x % STRIP_BLOCKS * STRIP_THREADS;
    const int index = first + threadIdx.x;
    if constexpr (SHARED) {
        copy_filters(reinterpret_cast<const Bits*>(w), first % (M / VECTOR) * VECTOR, filters);
        __syncthreads();  // the filters are in shared memory
    }
    if (index >= THREADS_OF_IMAGE) return;
    const int m = index % (M / VECTOR) * VECTOR, first_f = index / (M / VECTOR) % TILES_ACROSS * TILE_COLUMNS;
    const int first_e = index / (M / VECTOR * TILES_ACROSS) * TILE_ROWS;
    Strip<VECTOR> strip;
    if constexpr (SHARED)
        strip.load_taps(reinterpret_cast<const Value*>(filters) + threadIdx.x * THREAD_TAPS);
    else
        strip.load_taps(w + (size_t)m * TAPS);
    x += (size_t)n * H * W * C + m / MULTIPLIER;
#pragma unroll
    for (int j = 0; j < WINDOW_ROWS; ++j) {
        const int row = first_e * U - TOP + j;
        float values[SPAN][VECTOR];
#pragma unroll
        for (int i = 0; i < SPAN; ++i) {
            const int column = first_f * V - LEFT + i;
            const bool inside = unsigned(row) < unsigned(H) && unsigned(column) < unsigned(W);
            const Vector<Value, VECTOR> vector = load_or_zeros<VECTOR>(x + (row * W + column) * C, inside);
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) values[i][k] = float(vector.values[k]);
        }
        strip.template add<0>(j, values);
    }
    Value* const out = y + (((size_t)n * E + first_e) * F + first_f) * M + m;
#pragma unroll
    for (int e = 0; e < TILE_ROWS; ++e) {
        if (first_e + e >= E) break;
#pragma unroll
        for (int f = 0; f < TILE_COLUMNS; ++f) {
            if (first_f + f >= F) break;
            Vector<Value, VECTOR> vector;
#pragma unroll
            for (int k = 0; k < VECTOR; ++k)
                vector.values[k] = Value(with_bias_and_relu(strip.sums[e][f][k], bias, m + k));
            store(out + (e * F + f) * M, vector);
        }
    }
}
