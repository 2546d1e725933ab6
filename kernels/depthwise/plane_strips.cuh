// Depthwise convolution in NCHW from strips in registers: the rows of a plane in vectors.
//
// Gives: STRIP_THREADS, STRIP_BLOCKS; convolve_planes.
//
// A thread computes TILE_ROWS x TILE_COLUMNS outputs of a plane; neighbouring threads have neighbouring columns.
//
// Needs: VECTOR, a constant of the rung; TILE_ROWS, TILE_COLUMNS (strip.cuh).
#pragma once
#include "../arch/dependent_launch.cuh"
#include "strip.cuh"

constexpr int STRIP_THREADS = 128;
constexpr int THREADS_OF_IMAGE = M * STRIPS * TILES_ACROSS;
constexpr int STRIP_BLOCKS = (THREADS_OF_IMAGE + STRIP_THREADS - 1) / STRIP_THREADS;  // of an image
// A vector lies in the plane or outside of it, and is aligned, as whole rows and tiles are multiples of vectors.
static_assert(W % VECTOR == 0 && (VECTOR == 1 || TILE_COLUMNS * V % VECTOR == 0));
constexpr int SKIPPED = (VECTOR - LEFT % VECTOR) % VECTOR;  // values of the first vector before the window
constexpr int ROW_VECTORS = (SKIPPED + SPAN + VECTOR - 1) / VECTOR;

template <class Value>
__device__ __forceinline__ void convolve_planes(const Value* __restrict__ x,     // [N][C][H][W]
                                                const Value* __restrict__ w,     // [M][1][R][S]
                                                Value* __restrict__ y,           // [N][M][E][F]
                                                const Value* __restrict__ bias)  // [M], or null
{
    const int n = blockIdx.x / STRIP_BLOCKS, index = blockIdx.x % STRIP_BLOCKS * STRIP_THREADS + threadIdx.x;
    if (index >= THREADS_OF_IMAGE) return;
    const int first_f = index % TILES_ACROSS * TILE_COLUMNS, first_e = index / TILES_ACROSS % STRIPS * TILE_ROWS;
    const int m = index / (TILES_ACROSS * STRIPS);
    Strip<1> strip;
    strip.load_taps(w + (size_t)m * TAPS);
    const int column = first_f * V - LEFT - SKIPPED;
    x += ((size_t)n * C + m / MULTIPLIER) * H * W;
#pragma unroll
    for (int j = 0; j < WINDOW_ROWS; ++j) {
        const int row = first_e * U - TOP + j;
        float values[ROW_VECTORS * VECTOR][1];
#pragma unroll
        for (int i = 0; i < ROW_VECTORS; ++i) {
            const bool inside = unsigned(row) < unsigned(H) && unsigned(column + i * VECTOR) < unsigned(W);
            const Vector<Value, VECTOR> vector = load_or_zeros<VECTOR>(x + row * W + column + i * VECTOR, inside);
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) values[i * VECTOR + k][0] = float(vector.values[k]);
        }
        strip.template add<SKIPPED>(j, values);
    }
    constexpr int WIDEST = 16 / sizeof(Value), STORE = COLUMNS_STORED < WIDEST ? COLUMNS_STORED : WIDEST;
    Value* const out = y + (((size_t)n * M + m) * E + first_e) * F + first_f;
#pragma unroll
    for (int e = 0; e < TILE_ROWS; ++e) {
        if (first_e + e >= E) break;
#pragma unroll
        for (int f = 0; f < TILE_COLUMNS; f += STORE) {
            if (first_f + f >= F) break;
            Vector<Value, STORE> vector;
#pragma unroll
            for (int k = 0; k < STORE; ++k)
                vector.values[k] = Value(with_bias_and_relu(strip.sums[e][f + k][0], bias, m));
            store(out + e * F + f, vector);
        }
    }
}
