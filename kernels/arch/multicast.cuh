// TMA copies that go to all blocks of a cluster (multicast).
//
// A stage that the blocks of a cluster share is brought in as many parts: each block brings one, to itself and to the
// others, at the same place of their shared memory, and its bytes count at the mbarrier there.  On the host blocks run
// one after the other: a block brings all parts itself, to itself, and arrives at its own barrier for the others. (PTX
// ISA, "cp.async.bulk.tensor", "mapa".)
#pragma once
#include "cluster.cuh"
#include "hopper.cuh"

#ifndef HOST_CUDA
// Whether the block of this rank brings a part.
__device__ __forceinline__ bool brings(int part, int rank)
{
    return part == rank;
}

// Arrives at the mbarrier at the same place of the shared memory of a block of the cluster, once this thread has read
// what may then be overwritten.  It publishes no writes: a release in the cluster's scope would be a memory barrier,
// for which a warp waits hundreds of cycles.
__device__ __forceinline__ void mbarrier_arrive_at(Mbarrier* barrier, int rank)
{
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cta.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
}

// As tma_load_box, to every block of a cluster of `blocks`.
template <int blocks>
__device__ __forceinline__ void tma_multicast_box(void* to, const TensorMap* map, Mbarrier* barrier, int i0, int i1, int i2)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(i0), "r"(i1), "r"(i2), "h"((unsigned short)((1 << blocks) - 1))
        : "memory");
}
#endif
