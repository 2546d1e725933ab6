// Prefetch of tensor maps: the copy engine reads a map before its first copy, which then need not wait for it.
#pragma once
#include "hopper.cuh"

#ifndef HOST_CUDA
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap* map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
#else
inline void prefetch_tensor_map(const TensorMap*) {}
#endif
