// What a network's layer has beyond the studies' contract: padding that is not in memory, stride pairs and dilation.
//
// Gives: TOP, BOTTOM, LEFT, RIGHT and HAS_PADDING; PADDED_H, PADDED_W, the plane with its padding; V, the stride along
// columns; DILATION_ROWS, DILATION_COLUMNS, FILTER_ROWS, FILTER_COLUMNS; in_plane, plane_row, plane_column; shape.cuh.
//
// A kernel counts rows and columns of the padded plane, and reads zeros for those that in_plane does not have.  Without
// padding these are constants and comparisons with the plane's end, as in a kernel that knows of none.
#pragma once
#include "shape.cuh"

#ifndef CONV_TOP
#define CONV_TOP 0
#endif
#ifndef CONV_BOTTOM
#define CONV_BOTTOM 0
#endif
#ifndef CONV_LEFT
#define CONV_LEFT 0
#endif
#ifndef CONV_RIGHT
#define CONV_RIGHT 0
#endif
#ifndef CONV_V
#define CONV_V CONV_U
#endif
#ifndef CONV_DILATION_ROWS
#define CONV_DILATION_ROWS 1
#endif
#ifndef CONV_DILATION_COLUMNS
#define CONV_DILATION_COLUMNS 1
#endif

constexpr int TOP = CONV_TOP, BOTTOM = CONV_BOTTOM, LEFT = CONV_LEFT, RIGHT = CONV_RIGHT;
constexpr int V = CONV_V, DILATION_ROWS = CONV_DILATION_ROWS, DILATION_COLUMNS = CONV_DILATION_COLUMNS;
constexpr bool HAS_PADDING = TOP > 0 || BOTTOM > 0 || LEFT > 0 || RIGHT > 0;
constexpr int PADDED_H = H + TOP + BOTTOM, PADDED_W = W + LEFT + RIGHT;
constexpr int FILTER_ROWS = (R - 1) * DILATION_ROWS + 1, FILTER_COLUMNS = (S - 1) * DILATION_COLUMNS + 1;
static_assert(E == (PADDED_H - FILTER_ROWS) / U + 1 && F == (PADDED_W - FILTER_COLUMNS) / V + 1);

// Whether a row, or a column, of the padded plane is in memory.
__device__ __forceinline__ bool is_plane_row(int row)
{
    return TOP == 0 ? row < H : unsigned(row - TOP) < unsigned(H);
}

__device__ __forceinline__ bool is_plane_column(int column)
{
    return LEFT == 0 ? column < W : unsigned(column - LEFT) < unsigned(W);
}

// Whether a place in the padded plane, known to be above the padding at the bottom, is in memory.
__device__ __forceinline__ bool clear_of_border(int row, int column)
{
    return (TOP == 0 || row >= TOP) && (LEFT == 0 || column >= LEFT) && (RIGHT == 0 || column < LEFT + W);
}

// A filter's patches have a whole square of stride x stride pixels, aligned to squares, even where they reach into the
// padding.
constexpr int LEAST_ROWS_IN_PLANE = R - (TOP > BOTTOM ? TOP : BOTTOM);
constexpr int LEAST_COLUMNS_IN_PLANE = S - (LEFT > RIGHT ? LEFT : RIGHT);
constexpr bool PATCHES_HAVE_SQUARES = U == V && DILATION_ROWS == 1 && DILATION_COLUMNS == 1 &&
                                      (HAS_PADDING ? LEAST_ROWS_IN_PLANE >= 2 * U - 1 && LEAST_COLUMNS_IN_PLANE >= 2 * U - 1
                                                   : R >= U && S >= U);
