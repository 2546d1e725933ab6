// The phases of a stride, and the taps of each.
//
// Gives: PHASES, PHASE_ROWS, PHASE_COLUMNS; ROW_STEP, COLUMN_STEP; PhaseTaps; common/padding.cuh.
//
// Values of dx whose rows, and columns, are a stride apart have the same taps with an output: they are a phase.
#pragma once
#include "../common/padding.cuh"

constexpr int PHASES = U * V;
constexpr int PHASE_ROWS = (H + U - 1) / U, PHASE_COLUMNS = (W + V - 1) / V;  // of the plane of a phase, at most

constexpr int greatest_divisor(int a, int b)
{
    return b == 0 ? a : greatest_divisor(b, a % b);
}

// From a tap with an output to the next.
constexpr int ROW_STEP = U / greatest_divisor(U, DILATION_ROWS), COLUMN_STEP = V / greatest_divisor(V, DILATION_COLUMNS);

// The taps of a phase: from first_r and first_s on, ROW_STEP and COLUMN_STEP apart.
struct PhaseTaps {
    int row, column;  // of the phase's first value in the plane
    int first_r, first_s;
    bool any;

    __device__ __forceinline__ explicit PhaseTaps(int phase)
        : row(phase / V), column(phase % V), first_r(first_tap(row + TOP, DILATION_ROWS, U, ROW_STEP)),
          first_s(first_tap(column + LEFT, DILATION_COLUMNS, V, COLUMN_STEP)),
          any(first_r < min(R, ROW_STEP) && first_s < min(S, COLUMN_STEP))
    {
    }

private:
    // The first tap along an axis that has an output for values at a place of the padded plane; `step` if none has.
    __device__ __forceinline__ static int first_tap(int place, int dilation, int stride, int step)
    {
        int tap = 0;
        while (tap < step && (place - tap * dilation) % stride != 0) ++tap;
        return tap;
    }
};
