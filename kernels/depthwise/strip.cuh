// A thread's part of a depthwise convolution: a strip of outputs, in registers, under which rows of the input pass once.
//
// Gives: MULTIPLIER; WINDOW_ROWS, SPAN; STRIPS, TILES_ACROSS; COLUMNS_STORED; Strip: load_taps, add.
//
// A strip is TILE_ROWS x TILE_COLUMNS outputs of one filter, or of neighbouring filters in NHWC.  A row of the input is
// added to all output rows that it is part of, so that a thread holds one row at a time and loads each only once.
//
// Needs: TILE_ROWS, TILE_COLUMNS, constants of the rung.
#pragma once
#include "../common/bias.cuh"
#include "../common/padding.cuh"
#include "../common/vector.cuh"

static_assert(GROUPS == C && M % C == 0 && DILATION_ROWS == 1 && DILATION_COLUMNS == 1);
constexpr int MULTIPLIER = M / C, TAPS = R * S;  // filters of a channel, products of an output
constexpr int WINDOW_ROWS = (TILE_ROWS - 1) * U + R, SPAN = (TILE_COLUMNS - 1) * V + S;  // of the input, for a strip
constexpr int STRIPS = (E + TILE_ROWS - 1) / TILE_ROWS, TILES_ACROSS = (F + TILE_COLUMNS - 1) / TILE_COLUMNS;

// The values of the widest vector in multiples of which a row and a tile of outputs come.
constexpr int COLUMNS_STORED = F % 8 == 0 && TILE_COLUMNS % 8 == 0   ? 8
                               : F % 4 == 0 && TILE_COLUMNS % 4 == 0 ? 4
                               : F % 2 == 0 && TILE_COLUMNS % 2 == 0 ? 2
                                                                     : 1;

// VALUES: neighbouring filters.
template <int VALUES>
struct Strip {
    float taps[VALUES][TAPS];
    float sums[TILE_ROWS][TILE_COLUMNS][VALUES] = {};

    // The taps of filters that follow each other.
    template <class Value>
    __device__ __forceinline__ void load_taps(const Value* __restrict__ from)  // [VALUES][R][S]
    {
#pragma unroll
        for (int i = 0; i < VALUES * TAPS; i += VALUES) {
            const Vector<Value, VALUES> vector = load_or_zeros<VALUES>(from + i, true);
#pragma unroll
            for (int k = 0; k < VALUES; ++k) taps[(i + k) / TAPS][(i + k) % TAPS] = float(vector.values[k]);
        }
    }

    // Adds the j-th row of the window to the outputs; its first SKIP values lie left of the window.
    template <int SKIP, int COUNT>
    __device__ __forceinline__ void add(int j, const float (&row)[COUNT][VALUES])
    {
#pragma unroll
        for (int e = 0; e < TILE_ROWS; ++e) {
            const int r = j - e * U;
            if (r < 0 || r >= R) continue;
#pragma unroll
            for (int s = 0; s < S; ++s)
#pragma unroll
                for (int f = 0; f < TILE_COLUMNS; ++f)
#pragma unroll
                    for (int k = 0; k < VALUES; ++k) sums[e][f][k] += row[SKIP + f * V + s][k] * taps[k][r * S + s];
        }
    }
};
