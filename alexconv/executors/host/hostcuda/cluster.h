// The twins of kernels/arch/cluster.cuh and multicast.cuh.
//
// Where blocks of a cluster read each other's shared memory, which the launch says, they run on an OS thread each and
// take turns: one runs until all of its threads wait, then the next one does; or, if the launch asks for that, a turn
// ends with each arrival.  In all other launches, and in the builds that watch one block at a time, they run one after
// the other: each is a cluster by itself, which brings all parts, arrives at its own barriers for the others, and finds
// its own shared memory in place of theirs.
#pragma once

namespace host_cuda {

void arrive_at_cluster(Site site);
void wait_for_cluster(Site site);
const void* in_block(const void* own, int rank, Site site);

}  // namespace host_cuda

#define CLUSTER_DIMS(blocks)

inline void cluster_arrive(host_cuda::Site site = host_cuda::here()) { host_cuda::arrive_at_cluster(site); }
inline void cluster_wait(host_cuda::Site site = host_cuda::here()) { host_cuda::wait_for_cluster(site); }
inline void cluster_barrier(host_cuda::Site site = host_cuda::here())
{
    cluster_arrive(site);
    cluster_wait(site);
}

inline float4 load_from_block(const float4* own, int rank, host_cuda::Site site = host_cuda::here())
{
    return *static_cast<const float4*>(host_cuda::in_block(own, rank, site));
}

inline bool brings(int, int) { return true; }
inline void mbarrier_arrive_at(Mbarrier* barrier, int, host_cuda::Site site = host_cuda::here())
{
    mbarrier_arrive(barrier, site);
}

template <int blocks>
void tma_multicast_box(void* to, const TensorMap* map, Mbarrier* barrier, int i0, int i1, int i2,
                       host_cuda::Site site = host_cuda::here())
{
    tma_load_box(to, map, barrier, i0, i1, i2, site);
}
