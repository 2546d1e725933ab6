// The twins of kernels/arch/cluster.cuh and multicast.cuh.
//
// Where blocks of a cluster store to each other's shared memory, which the launch says, they run on an OS thread each and
// take turns: one runs until all of its threads wait, then the next one does; or, if the launch asks for that, a turn
// ends with each arrival.  In all other launches, and in the builds that watch one block at a time, they run one after
// the other: each is a cluster by itself, which brings all parts, arrives at its own barriers for the others, and gets
// its own parts in place of theirs.
#pragma once

namespace host_cuda {

void arrive_at_cluster(Site site);
void wait_for_cluster(Site site);
void* in_block(void* own, int rank, Site site);
bool runs_alone();

}  // namespace host_cuda

#define CLUSTER_DIMS(blocks)

inline void cluster_init_fence() { host_cuda::hazards::fence_proxy(); }
inline void cluster_arrive(host_cuda::Site site = host_cuda::here()) { host_cuda::arrive_at_cluster(site); }
inline void cluster_wait(host_cuda::Site site = host_cuda::here()) { host_cuda::wait_for_cluster(site); }
inline void cluster_barrier(host_cuda::Site site = host_cuda::here())
{
    cluster_arrive(site);
    cluster_wait(site);
}

inline int sender(int rank, int to) { return host_cuda::runs_alone() ? to : rank; }

inline void store_to_block(float4* own, float4 values, Mbarrier* barrier, int rank,
                           host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    if (misalignment(own, sizeof values)) fail("store_to_block needs an address that is a multiple of 16 bytes", site);
    const trace::Pause pause;
    auto* const to = static_cast<float4*>(in_block(own, rank, site));
    auto* const there = static_cast<Mbarrier*>(in_block(barrier, rank, site));
    hazards::start_bulk_copy(to, to, sizeof values, there, site, [=] {
        *to = values;
        count(there, 0, 0, sizeof values, site);
    });
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
