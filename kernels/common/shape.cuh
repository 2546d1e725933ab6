// The convolution that a kernel is compiled for, and dynamic shared memory.
//
// Gives: C, H, W, M, R, S, U, E, F as numbers; DYNAMIC_SHARED(type, name), which declares the block's dynamic shared
// memory for nvcc and for the host executor.
// Needs: CONV_C to CONV_F, which the ladder passes with -D for every rung.
#pragma once

constexpr int C = CONV_C, H = CONV_H, W = CONV_W;  // input plane, zero padding included
constexpr int M = CONV_M, R = CONV_R, S = CONV_S;  // filters
constexpr int U = CONV_U;                          // stride
constexpr int E = CONV_E, F = CONV_F;              // output plane

#ifdef HOST_CUDA
#define DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(host_cuda::dynamic_shared())
#else
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif
