// The interface of the build for async hazards to run-time, kernels and Python: forwards to the launch's Watcher.
#ifdef HOST_CUDA_HAZARDS

#include <new>
#include <optional>

#include "watcher.h"

namespace host_cuda::hazards {

static std::optional<Watcher> watcher;  // of the launch that is watched

void some_meet(const unsigned* threads, unsigned count)
{
    if (watcher) watcher->some_meet(threads, count);
}
void arrives_at(int name, bool last, Site site)
{
    if (watcher) watcher->arrives_at(name, last, site);
}
void thread_exits()
{
    if (watcher) watcher->thread_exits();
}
void block_completes()
{
    if (watcher) watcher->block_completes();
}
bool let_one_arrive() { return watcher && watcher->let_one_arrive(); }
void start_copy(void* to, const void* from, unsigned bytes, Site site, Effect effect)
{
    if (!watcher) return effect();
    const trace::Pause pause;
    watcher->start_copy(to, from, bytes, site, std::move(effect));
}
void commit_copies()
{
    if (watcher) watcher->commit_copies();
}
void wait_for_copies(unsigned open)
{
    if (watcher) watcher->wait_for_copies(open);
}
void barrier_starts(const uint64_t* barrier, Site site)
{
    if (watcher) watcher->barrier_starts(barrier, site);
}
void barrier_is_used(const uint64_t* barrier, Site site)
{
    if (watcher) watcher->barrier_is_used(barrier, site);
}
void arrives(const uint64_t* barrier)
{
    if (watcher) watcher->arrives(barrier);
}
void announces(const uint64_t* barrier, unsigned bytes, Site site)
{
    if (watcher) watcher->announces(barrier, bytes, site);
}
void phase_ends(const uint64_t* barrier, Site site)
{
    if (watcher) watcher->phase_ends(barrier, site);
}
void has_waited(const uint64_t* barrier)
{
    if (watcher) watcher->has_waited(barrier);
}
void explain(const uint64_t* barrier, char* text, size_t size)
{
    *text = 0;
    if (watcher) watcher->explain(barrier, text, size);
}
void start_bulk_copy(void* to, const void* from, unsigned bytes, const uint64_t* barrier, Site site, Effect effect)
{
    if (!watcher) return effect();
    watcher->start_bulk_copy(to, from, bytes, barrier, site, std::move(effect));
}
void fence_proxy()
{
    if (watcher) watcher->fence_proxy();
}
void start_product(const Product& product, Site site, Effect effect)
{
    if (!watcher) return effect();
    watcher->start_product(product, site, std::move(effect));
}
void fence_products()
{
    if (watcher) watcher->fence_products();
}
void commit_products()
{
    if (watcher) watcher->commit_products();
}
void wait_for_products(unsigned open)
{
    if (watcher) watcher->wait_for_products(open);
}
void wait_for_primary_launches()
{
    if (watcher) watcher->wait_for_primary_launches();
}

}  // namespace host_cuda::hazards

// ---- What trace.h declares ------------------------------------------------------------------------------------------

namespace host_cuda::trace {

using hazards::watcher;

bool skips(std::uint64_t block) { return watcher && watcher->skips(block); }
void block_begins(std::uint64_t block, unsigned threads, Extent static_shared, Extent dynamic_shared)
{
    if (watcher) watcher->block_begins(block, threads, static_shared, dynamic_shared);
}
void block_ends()
{
    if (watcher) watcher->block_ends();
}
void block_meets()
{
    if (watcher) watcher->block_meets();
}
void some_meet() {}
void acquires() {}
void warp_meets(unsigned warp, unsigned present, bool, bool orders_memory)
{
    if (!watcher || !orders_memory) return;
    unsigned threads[WARP], count = 0;
    for (unsigned lane = 0; lane < WARP; ++lane)
        if (present >> lane & 1) threads[count++] = warp * WARP + lane;
    watcher->some_meet(threads, count);
}
void warp_exits(unsigned) {}
void access(const void* address, std::size_t bytes, Operation operation, const void* return_address)
{
    if (watcher) watcher->access(address, bytes, operation, return_address);
}
void call(const void* return_address)
{
    if (watcher) watcher->call(return_address);
}
void leave()
{
    if (watcher) watcher->leave();
}
void basic_block(const void*) {}

Pause::Pause()
{
    if (watcher) watcher->pause();
}
Pause::~Pause()
{
    if (watcher) watcher->resume();
}

}  // namespace host_cuda::trace

// ---- Called from Python ---------------------------------------------------------------------------------------------

#define HOST_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

// Watches the next launch: these blocks, all if none are given; `dependent` is memory of launches that it may overtake.
HOST_CUDA_EXPORT bool host_cuda_hazards_begin(unsigned moment, unsigned seed, const std::uint64_t* blocks,
                                              unsigned block_count, const host_cuda::Extent* dependent,
                                              unsigned dependent_count)
{
    using namespace host_cuda::hazards;
    try {
        watcher.emplace(Moment(moment), seed, blocks, block_count, dependent, dependent_count);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

// The findings; their arrays last until host_cuda_hazards_end.
HOST_CUDA_EXPORT void host_cuda_hazards_report(host_cuda::hazards::Report* report)
{
    *report = host_cuda::hazards::watcher->report();
}

HOST_CUDA_EXPORT void host_cuda_hazards_end() { host_cuda::hazards::watcher.reset(); }

#endif
