// The convolution that this kernel is compiled for, and the two words that nvcc and the host executor spell apart.
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
