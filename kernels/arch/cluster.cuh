// Clusters: blocks that run side by side, wait for each other and store to each other's shared memory (distributed shared
// memory).
//
// A block's rank is its number in the cluster: blockIdx.x % blocks, where a grid's clusters lie along x.  (PTX ISA,
// "barrier.cluster", "mapa", "st.async".)
#pragma once
#include "mbarrier.cuh"

#ifndef HOST_CUDA
#define CLUSTER_DIMS(blocks) __cluster_dims__(blocks, 1, 1)

// Makes mbarriers that this thread has initialised visible to the cluster, once it has met at its barrier.
__device__ __forceinline__ void cluster_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives at the barrier of all threads of the cluster; each thread does so before it waits.  It publishes nothing but
// fenced mbarriers: a release would be a memory barrier, for which a warp waits hundreds of cycles.
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

// Waits until all threads of the cluster have arrived.
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Waits until all threads of the cluster are here; what they have written to shared memory is then visible to all.
__device__ __forceinline__ void cluster_barrier()
{
    asm volatile(
        "barrier.cluster.arrive.release;\n"
        "barrier.cluster.wait.acquire;" ::
            : "memory");
}

// The rank by which the block `to` tells what comes from this one: its own.  (On the host a block that runs alone stands
// for all others.)
__device__ __forceinline__ int sender(int rank, int to)
{
    return rank;
}

// Stores asynchronously to the same place of the shared memory of the block of this rank, where the bytes count at the
// mbarrier.  Who has waited there sees them: no thread waits for a memory barrier, nor for the store.
__device__ __forceinline__ void store_to_block(float4* own, float4 values, Mbarrier* barrier, int rank)
{
    asm volatile(
        "{\n"
        ".reg .b32 remote, counted;\n"
        "mapa.shared::cluster.u32 remote, %0, %6;\n"
        "mapa.shared::cluster.u32 counted, %1, %6;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%2, %3, %4, %5}, [counted];\n"
        "}" ::"r"(shared_address(own)),
        "r"(shared_address(barrier)), "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(rank)
        : "memory");
}
#endif
