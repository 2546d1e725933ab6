// x in the form from which the TMA brings operands of wgrad, and the place of each weight in that form.
//
// Gives: SIDE; BLOCKED_C, BLOCKED_R, BLOCKED_S, BLOCKED_H, BLOCKED_W; RUNS, RUN, first_row, first_column, rows_to,
// columns_to; Place; weights.cuh.
//
// dw is the product of dy [M][pixels] and the im2col matrix [pixels][taps], whose taps come in RUNS runs of RUN: those
// of a run are neighbours in memory.  At stride 1, and wherever the TMA gathers x in place (IN_PLACE), a run has the
// channels under one tap.  With another stride U x U pixels become channels of one (space-to-depth, wgmma/blocked.cuh),
// whose planes include the padding, and a run is a row of the smaller filter.
#pragma once
#include "../wgmma/preparation.cuh"
#include "weights.cuh"

#ifndef IN_PLACE
#define IN_PLACE 0
#endif

constexpr bool UNIT_STRIDE = U == 1 && V == 1, POINTWISE = R == 1 && S == 1;
constexpr int SIDE = IN_PLACE || UNIT_STRIDE || POINTWISE ? 1 : U, SQUARE = SIDE * SIDE;
static_assert(SIDE == 1 || (U == V && DILATION_ROWS == 1 && DILATION_COLUMNS == 1), "squares need one stride");
static_assert(GROUPS == 1);

constexpr int BLOCKED_C = (C * SQUARE + CHUNK - 1) / CHUNK * CHUNK;
constexpr int BLOCKED_R = (R + SIDE - 1) / SIDE, BLOCKED_S = (S + SIDE - 1) / SIDE;
constexpr int BLOCKED_H = SIDE == 1 ? H : E + BLOCKED_R - 1, BLOCKED_W = SIDE == 1 ? W : F + BLOCKED_S - 1;
constexpr int RUNS = SIDE == 1 ? R * S : BLOCKED_R, RUN = SIDE == 1 ? BLOCKED_C : BLOCKED_S * BLOCKED_C;

// Where the first run under an output begins, and the offset of another run, in the map's coordinates.
__device__ __forceinline__ int first_row(int e)
{
    return SIDE == 1 ? e * U - TOP : e;
}

__device__ __forceinline__ int first_column(int f)
{
    return SIDE == 1 ? f * V - LEFT : f;
}

__device__ __forceinline__ int rows_to(int run)
{
    return SIDE == 1 ? run / S * DILATION_ROWS : run;
}

__device__ __forceinline__ int columns_to(int run)
{
    return SIDE == 1 ? run % S * DILATION_COLUMNS : 0;
}

// A weight's run and its tap in the run.
struct Place {
    int run, tap;

    __device__ __forceinline__ explicit Place(const Weight& weight)
    {
        if (SIDE == 1) {
            run = weight.r * S + weight.s, tap = weight.c;
        } else {
            run = weight.r / SIDE;
            tap = weight.s / SIDE * BLOCKED_C + weight.c * SQUARE + weight.r % SIDE * SIDE + weight.s % SIDE;
        }
    }

    // The blocked channel.
    __device__ __forceinline__ int channel() const
    {
        return tap % BLOCKED_C;
    }
};
