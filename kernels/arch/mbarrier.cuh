// mbarrier: barriers in shared memory, for arrivals and for bytes that come asynchronously.
//
// One counts arrivals and bytes (transactions).  A phase completes when none of either is pending; the next begins then.
// Phases have parity 0, 1, 0, ...  (PTX ISA, "mbarrier".)
#pragma once
#include "basics.cuh"

#ifndef HOST_CUDA
using Mbarrier = uint64_t;  // in shared memory

__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster and to the async proxy, through which the TMA signals.
__device__ __forceinline__ void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and announces the bytes that TMA copies will deliver in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier* barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity has completed.
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, unsigned parity)
{
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 ended, [%0], %1;\n"
        "@ended bra done;\n"
        "bra again;\n"
        "done:\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}
#endif
