// Prefetch of tensor maps, so that the first copy need not wait for its map.
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
