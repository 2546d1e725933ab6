// What every kernel of a rung is compiled with: its convolution and the geometry of its launches.
//
// Gives: C, H, W, M, R, S, U, E, F as numbers; DYNAMIC_SHARED(type, name), which declares the block's dynamic shared
// memory for nvcc and for the host executor; ASSERT_BLOCK, ASSERT_GRID and ASSERT_SHARED_BYTES for an entry point,
// ASSERT_ELEMENTS for a scratch or prepared array (names in capitals): compilation fails if the ladder's geometry is
// not the one the kernel is written for.
// Needs: CONV_C to CONV_F, LADDER_<ENTRY>_... and LADDER_<ARRAY>_ELEMENTS, which the ladder passes with -D
// (kernels/rung.py).  In a build for every shape (dynamic_shape.cuh) they are numbers in memory, and nothing is
// asserted: the same expressions are, in the builds for one shape.
#pragma once
#include "dynamic_shape.cuh"

NUMBER(C, CONV_C); NUMBER(H, CONV_H); NUMBER(W, CONV_W);    // input plane, padding in memory included
NUMBER(M, CONV_M); DIVISOR(R, CONV_R); DIVISOR(S, CONV_S);  // filters
NUMBER(U, CONV_U);                                          // stride
NUMBER(E, CONV_E); DIVISOR(F, CONV_F);                      // output plane

#ifdef HOST_CUDA
#define DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(host_cuda::dynamic_shared())
#else
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

#ifdef DYNAMIC_SHAPE
#define ASSERT_BLOCK(ENTRY, x, y)
#define ASSERT_GRID(ENTRY, x, y, z)
#define ASSERT_SHARED_BYTES(ENTRY, bytes)
#define ASSERT_ELEMENTS(ARRAY, count)
#else
#define ASSERT_BLOCK(ENTRY, x, y) \
    static_assert(LADDER_##ENTRY##_BLOCK_X == (x) && LADDER_##ENTRY##_BLOCK_Y == (y) && \
                      LADDER_##ENTRY##_THREADS == (x) * (y), \
                  "the ladder launches another block")

// Of a launch over one image.
#define ASSERT_GRID(ENTRY, x, y, z) \
    static_assert(LADDER_##ENTRY##_GRID_X == (x) && LADDER_##ENTRY##_GRID_Y == (y) && \
                      LADDER_##ENTRY##_GRID_Z == (z), \
                  "the ladder launches another grid")

#define ASSERT_SHARED_BYTES(ENTRY, bytes) \
    static_assert(LADDER_##ENTRY##_SHARED_BYTES == (bytes), "the ladder gives other dynamic shared memory")

// For one image.
#define ASSERT_ELEMENTS(ARRAY, count) \
    static_assert(LADDER_##ARRAY##_ELEMENTS == (count), "the ladder allocates another array")
#endif
