// Blocks that wait for each other through counters in memory: the twin of kernels/arch/resident_blocks.cuh.
//
// All blocks of a cooperative launch are resident, each on an OS thread of its own, and take turns: one runs until all of
// its threads wait, then the next one does.  So a block that does not wait for another runs ahead of it, as far as it
// can; or, if the launch asks for that, a block's turn ends with each arrival, before its other threads go on.
#pragma once

namespace host_cuda {

bool have_arrived(const unsigned* counter, unsigned arrivals);
void wait_for_arrivals(const unsigned* counter, unsigned arrivals, Site site);
void has_arrived();

}  // namespace host_cuda

inline void arrive_at(unsigned* counter)
{
    __threadfence();
    atomicAdd(counter, 1);
    host_cuda::has_arrived();
}

inline void wait_for_arrivals(const unsigned* counter, unsigned arrivals, host_cuda::Site site = host_cuda::here())
{
    host_cuda::wait_for_arrivals(counter, arrivals, site);
    __threadfence();
    host_cuda::trace::acquires();
}

inline bool arrives_last(unsigned* counter, unsigned arrivals)
{
    __threadfence();
    const unsigned before = atomicAdd(counter, 1);
    __threadfence();
    host_cuda::trace::acquires();
    return before + 2 == arrivals;
}

inline unsigned long long nanoseconds() { return 0; }
