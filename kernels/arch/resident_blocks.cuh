// Counters in memory through which blocks of one launch wait for each other: all of them must be resident.
//
// A counter begins as all ones, as scratch memory does, and so the first arrival makes it zero.  (PTX ISA, "Memory
// Consistency Model": release and acquire order what the block's other threads do before, and after, a barrier, too.)
#pragma once
#include "basics.cuh"

#ifndef HOST_CUDA
// Counts an arrival.  Whatever this thread has written or observed is visible to those that wait for it.
__device__ __forceinline__ void arrive_at(unsigned* counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// Waits until so many have arrived, and sees what they have written.
__device__ __forceinline__ void wait_for_arrivals(const unsigned* counter, unsigned arrivals)
{
    unsigned latest;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(latest) : "l"(counter) : "memory");
    while (latest + 1 < arrivals);
}

// Counts an arrival, and sees what those before it have written; whether it is the last of so many.
__device__ __forceinline__ bool arrives_last(unsigned* counter, unsigned arrivals)
{
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before + 2 == arrivals;
}

// Nanoseconds of a clock that all multiprocessors share.
__device__ __forceinline__ unsigned long long nanoseconds()
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
#endif
