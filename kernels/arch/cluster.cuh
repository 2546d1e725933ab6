// Clusters: blocks that run side by side, wait for each other and read each other's shared memory (distributed shared
// memory).
//
// A block's rank is its number in the cluster: blockIdx.x % blocks, where a grid's clusters lie along x.  (PTX ISA,
// "barrier.cluster", "mapa".)
#pragma once
#include "basics.cuh"

#ifndef HOST_CUDA
#define CLUSTER_DIMS(blocks) __cluster_dims__(blocks, 1, 1)

// Arrives at the barrier of all threads of the cluster; each thread does so before it waits.
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

// Waits until all threads of the cluster that have not ended have arrived; what they had written to shared memory is
// then visible, what they had read may be overwritten.
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void cluster_barrier()
{
    cluster_arrive();
    cluster_wait();
}

// Loads what lies at the same place of the shared memory of the block of this rank.
__device__ __forceinline__ float4 load_from_block(const float4* own, int rank)
{
    float4 values;
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
        "}"
        : "=f"(values.x), "=f"(values.y), "=f"(values.z), "=f"(values.w)
        : "r"(shared_address(own)), "r"(rank)
        : "memory");
    return values;
}
#endif
