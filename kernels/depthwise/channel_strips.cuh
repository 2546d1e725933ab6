// Depthwise convolution in NHWC from strips in registers: neighbouring channels in vectors.
//
// Gives: STRIP_THREADS, STRIP_BLOCKS; convolve_channels.
//
// A thread computes TILE_ROWS x TILE_COLUMNS outputs of VECTOR filters; neighbouring threads have neighbouring filters.
//
// Needs: VECTOR, a constant of the rung; TILE_ROWS, TILE_COLUMNS (strip.cuh).
#pragma once
#include "../arch/dependent_launch.cuh"
#include "strip.cuh"

static_assert(M % VECTOR == 0 && (VECTOR == 1 || MULTIPLIER == 1), "the filters of a vector have neighbouring channels");
constexpr int STRIP_THREADS = 128;
constexpr int THREADS_OF_IMAGE = M / VECTOR * STRIPS * TILES_ACROSS;
constexpr int STRIP_BLOCKS = (THREADS_OF_IMAGE + STRIP_THREADS - 1) / STRIP_THREADS;  // of an image

template <class Value>
__device__ __forceinline__ void convolve_channels(const Value* __restrict__ x,     // [N][H][W][C]
                                                  const Value* __restrict__ w,     // [M][1][R][S]
                                                  Value* __restrict__ y,           // [N][E][F][M]
                                                  const Value* __restrict__ bias)  // [M], or null
{
    const int n = blockIdx.x / STRIP_BLOCKS, index = blockIdx.x % STRIP_BLOCKS * STRIP_THREADS + threadIdx.x;
    if (index >= THREADS_OF_IMAGE) return;
    const int m = index % (M / VECTOR) * VECTOR, first_f = index / (M / VECTOR) % TILES_ACROSS * TILE_COLUMNS;
    const int first_e = index / (M / VECTOR * TILES_ACROSS) * TILE_ROWS;
    Strip<VECTOR> strip;
    strip.load_taps(w, m);
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
