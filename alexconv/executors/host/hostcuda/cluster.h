// The twins of kernels/arch/cluster.cuh: blocks of a cluster run one after the other, so each is a cluster by itself,
// which brings all parts and arrives at its own barriers for the others.
#pragma once

#define CLUSTER_DIMS(blocks)

inline bool brings(int, int) { return true; }
inline void cluster_barrier() {}
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
