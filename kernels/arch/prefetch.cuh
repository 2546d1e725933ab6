// Prefetching to the L2 cache.  (PTX ISA, "cp.async.bulk.prefetch".)
#pragma once
#include "basics.cuh"

#ifndef HOST_CUDA
// Begins to bring contiguous bytes into the L2 cache; address and size are multiples of 16.
__device__ __forceinline__ void prefetch_l2(const void* from, unsigned bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
#endif
