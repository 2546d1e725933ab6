// Two compiler hints as constants, so that a run shows what each is worth.
//
// Gives: MAYBE_RESTRICT for pointers; UNROLL_ROWS and UNROLL_TAPS for the two loops over a filter.
// Needs: RESTRICT and UNROLL, constants of the rung.
//
// RESTRICT = 1 makes pointers __restrict__: no array overlaps another, so loads may use the read-only path and move
// across stores.  UNROLL = n unrolls a loop n times, 0 unrolls it fully.  The compiler unrolls short loops of known
// length on its own, so keeping a loop as written takes UNROLL = 1.
#pragma once
#include "shape.cuh"

#if RESTRICT
#define MAYBE_RESTRICT __restrict__
#else
#define MAYBE_RESTRICT
#endif

// The loop over a filter's rows is unrolled fully or not at all.
constexpr int UNROLL_ROWS = UNROLL == 0 ? R : 1;
constexpr int UNROLL_TAPS = UNROLL == 0 ? S : UNROLL;
