// The build for async hazards: when asynchronous copies and products take effect, and which threads may rely on it.
//
// On a GPU a copy by cp.async, a copy by TMA and the products of wgmma take effect at any moment between the
// instruction that starts them and the one that waits for them.  In this build they do so at the earliest moment, at
// the latest or at a random one, as the launch asks for; and every load and store of the kernel is checked against what
// its thread can know: which copies and products it has waited for itself, or has learnt of through a barrier
// (watcher.h).  In the other builds everything takes effect immediately, and nothing of this is compiled.
#pragma once

#include "trace.h"

#ifdef HOST_CUDA_HAZARDS
#include <functional>
#include <vector>
#endif

namespace host_cuda::hazards {

#ifdef HOST_CUDA_HAZARDS

constexpr bool WATCHES = true;

using Effect = std::function<void()>;

// These threads of the block (linear numbers) have met at a barrier.
void some_meet(const unsigned* threads, unsigned count);
void thread_exits();
void block_completes();

// The thread arrives at a named barrier, which opens if it is the last.
void arrives_at(int name, bool last, Site site);

// Completes one of the copies in flight; false if there is none.
bool let_one_arrive();

// cp.async.
void start_copy(void* to, const void* from, unsigned bytes, Site site, Effect effect);
void commit_copies();
void wait_for_copies(unsigned open);

// mbarrier.  `count` is the moment when a phase may end.
void barrier_starts(const uint64_t* barrier, Site site);
void barrier_is_used(const uint64_t* barrier, Site site);
void arrives(const uint64_t* barrier);
void announces(const uint64_t* barrier, unsigned bytes, Site site);
void phase_ends(const uint64_t* barrier, Site site);
void has_waited(const uint64_t* barrier);
// What was announced to a barrier whose phase does not end, in words; empty if unknown.
void explain(const uint64_t* barrier, char* text, size_t size);

// TMA: copies to `bytes` contiguous bytes of shared memory; `effect` also counts them at the barrier.
void start_bulk_copy(void* to, const void* from, unsigned bytes, const uint64_t* barrier, Site site, Effect effect);

// fence.proxy.async.
void fence_proxy();

// wgmma.  The first operand has 16 rows for each warp of the group, the second is read by all.
struct Product {
    const uint64_t* first;   // [first_count] addresses of chunks of 16 bytes, warp by warp
    const uint64_t* second;  // [second_count]
    unsigned first_count, second_count;
    float* const* accumulators;  // [WARPGROUP]
    unsigned floats;             // of each thread
};
void start_product(const Product& product, Site site, Effect effect);
void fence_products();
void commit_products();
void wait_for_products(unsigned open);

// griddepcontrol.wait.
void wait_for_primary_launches();

#else

constexpr bool WATCHES = false;

inline void some_meet(const unsigned*, unsigned) {}
inline void arrives_at(int, bool, Site) {}
inline void thread_exits() {}
inline void block_completes() {}
inline bool let_one_arrive() { return false; }
inline void commit_copies() {}
inline void wait_for_copies(unsigned) {}
inline void barrier_starts(const uint64_t*, Site) {}
inline void barrier_is_used(const uint64_t*, Site) {}
inline void arrives(const uint64_t*) {}
inline void announces(const uint64_t*, unsigned, Site) {}
inline void phase_ends(const uint64_t*, Site) {}
inline void has_waited(const uint64_t*) {}
inline void explain(const uint64_t*, char* text, size_t) { *text = 0; }
inline void fence_proxy() {}
inline void fence_products() {}
inline void commit_products() {}
inline void wait_for_products(unsigned) {}
inline void wait_for_primary_launches() {}

// Immediately.
template <class Effect>
__forceinline__ void start_copy(void*, const void*, unsigned, Site, Effect effect)
{
    effect();
}
template <class Effect>
__forceinline__ void start_bulk_copy(void*, const void*, unsigned, const uint64_t*, Site, Effect effect)
{
    effect();
}

#endif

}  // namespace host_cuda::hazards
