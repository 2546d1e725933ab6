// A layer's features beyond the studies' contract: implicit padding, stride pairs, dilation and groups.
//
// Gives: TOP, BOTTOM, LEFT, RIGHT and HAS_PADDING; PADDED_H, PADDED_W, the plane with its padding; V, the stride along
// columns; DILATION_ROWS, DILATION_COLUMNS, PATCH_ROWS, PATCH_COLUMNS; GROUPS, GROUP_C, GROUP_M, end_of_group;
// in_plane, clear_of_border;
// PATCHES_HAVE_SQUARES; shape.cuh.
//
// A kernel numbers rows and columns in the padded plane, and reads zeros outside in_plane.  Without padding the tests
// reduce to constants and comparisons with the plane's end.
#pragma once
#include "shape.cuh"

#ifdef DYNAMIC_SHAPE
constexpr bool HAS_PADDING = true;  // or none: the tests of places hold for both
#ifdef DYNAMIC_GROUPS
NUMBER(GROUPS, );
#else
constexpr int GROUPS = 1;
#endif
#else
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
#ifndef CONV_GROUPS
#define CONV_GROUPS 1
#endif

constexpr bool HAS_PADDING = CONV_TOP > 0 || CONV_BOTTOM > 0 || CONV_LEFT > 0 || CONV_RIGHT > 0;
constexpr int GROUPS = CONV_GROUPS;
#endif

NUMBER(TOP, CONV_TOP); NUMBER(BOTTOM, CONV_BOTTOM); NUMBER(LEFT, CONV_LEFT); NUMBER(RIGHT, CONV_RIGHT);
NUMBER(V, CONV_V); NUMBER(DILATION_ROWS, CONV_DILATION_ROWS); NUMBER(DILATION_COLUMNS, CONV_DILATION_COLUMNS);
NUMBER(GROUP_C, C / GROUPS); DIVISOR(GROUP_M, M / GROUPS);  // channels and filters of a group
SIZE(PADDED_H, H + TOP + BOTTOM); DIVISOR(PADDED_W, W + LEFT + RIGHT);
SIZE(PATCH_ROWS, (R - 1) * DILATION_ROWS + 1); SIZE(PATCH_COLUMNS, (S - 1) * DILATION_COLUMNS + 1);
#ifndef DYNAMIC_SHAPE
static_assert(E == (PADDED_H - PATCH_ROWS) / U + 1 && F == (PADDED_W - PATCH_COLUMNS) / V + 1);
#endif

// One past the last filter of a filter's group.
__device__ __forceinline__ int end_of_group(int filter)
{
    return GROUPS == 1 ? M : (filter / GROUP_M + 1) * GROUP_M;
}

// Whether a row and a column of the padded plane are in memory.
__device__ __forceinline__ bool in_plane(int row, int column)
{
    return unsigned(row - TOP) < unsigned(H) && unsigned(column - LEFT) < unsigned(W);
}

// Whether a place in the padded plane, known not to be in the bottom padding, is in memory.
__device__ __forceinline__ bool clear_of_border(int row, int column)
{
    return (KNOWN(TOP == 0) || row >= TOP) && (KNOWN(LEFT == 0) || column >= LEFT) &&
           (KNOWN(RIGHT == 0) || column < LEFT + W);
}

// The least rows and columns of a patch that are in memory.
SIZE(ROWS_BESIDE, R - (TOP > BOTTOM ? TOP : BOTTOM)); SIZE(COLUMNS_BESIDE, S - (LEFT > RIGHT ? LEFT : RIGHT));
SIZE(LEAST_ROWS, ROWS_BESIDE < H ? ROWS_BESIDE : H); SIZE(LEAST_COLUMNS, COLUMNS_BESIDE < W ? COLUMNS_BESIDE : W);

// Whether every patch has a whole stride x stride square, of those that tile the padded plane, clear of the padding.
FLAG(PATCHES_HAVE_SQUARES, U == V && DILATION_ROWS == 1 && DILATION_COLUMNS == 1 &&
                               (HAS_PADDING ? LEAST_ROWS >= 2 * U - 1 && LEAST_COLUMNS >= 2 * U - 1
                                            : R >= U && S >= U));
