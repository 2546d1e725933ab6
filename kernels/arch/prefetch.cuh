// Prefetch into the L2 cache, of memory that a later kernel reads.
//
// (PTX ISA, "prefetch": it returns no value, and is dropped where it cannot be done.)
#pragma once

#ifndef HOST_CUDA
__device__ __forceinline__ void prefetch_into_l2(const void* address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
#else
inline void prefetch_into_l2(const void*) {}
#endif
