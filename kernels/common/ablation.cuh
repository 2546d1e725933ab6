// Two hints to the compiler, as constants, so that what each is worth is a run and not an edit.
//
// RESTRICT = 1 promises that no array overlaps another: loads may take the read-only path and move across stores.
//
// UNROLL is how often a loop's body is repeated before its condition is tested again; 0 repeats it for every iteration
// and drops the test, as a compiler does unasked where trip counts are known and small.  So not unrolling has to be asked
// for too: that is 1, the loop as it is written.
#pragma once
#include "shape.cuh"

#if RESTRICT
#define MAYBE_RESTRICT __restrict__
#else
#define MAYBE_RESTRICT
#endif

// The two loops over a filter: its rows, and the taps of a row.
constexpr int UNROLL_ROWS = UNROLL == 0 ? R : 1;
constexpr int UNROLL_TAPS = UNROLL == 0 ? S : UNROLL;
