// Blocks and barriers in the build for async hazards: how knowledge passes between threads.
#ifdef HOST_CUDA_HAZARDS

#include <cstdio>

#include "watcher.h"

namespace host_cuda::hazards {

void Watcher::block_begins(std::uint64_t block, unsigned threads, Extent static_shared, Extent dynamic_shared)
{
    block_ = block;
    threads_ = threads;
    warps_ = (threads + WARP - 1) / WARP;
    width_ = threads + EXTRA;
    ++epoch_;
    static_shared_.begin(static_shared, warps_);
    dynamic_shared_.begin(dynamic_shared, warps_);
    clocks_.assign(threads, 1);
    known_.resize(threads);
    for (Clock& clock : known_) clock.clear();
    fenced_.clear();
    for (auto* counts : {&copies_committed_, &copies_complete_, &products_committed_, &products_complete_})
        counts->assign(threads, 0);
    completions_.assign(threads, {});
    waiting_copies_.assign(threads, {});
    fenced_products_.assign(threads, false);
    accumulators_.assign(threads, {});
    waiting_products_.assign(warps_, {});
    waiting_bulk_copies_.clear();
    copies_.clear();
    bulk_copies_.clear();
    products_.clear();
    calls_.assign(threads, {});
    slots_.clear();
    slot_of_.clear();
    std::fill(std::begin(all_know_), std::end(all_know_), 0);
    paused_ = 0;
    inside_ = true;
}

void Watcher::block_completes()
{
    for (const BulkCopy& copy : bulk_copies_) {
        bool known = false;
        for (unsigned t = 0; t < threads_ && !known; ++t) known = knows_copy(t, copy);
        if (!known) report(WAIT_PHASE, BULK_COPY, BLOCK_END, copy.thread, copy.thread, copy.place, copy.place);
    }
}

void Watcher::block_meets()
{
    ++epoch_;
    for (const Clock& clock : known_)
        if (!clock.empty())
            for (unsigned i = 0; i < EXTRA; ++i) all_know_[i] = std::max(all_know_[i], clock[threads_ + i]);
    if (fenced_.empty()) return;
    Clock all(width_, 0);
    for (const Clock& clock : fenced_) join(all, clock.data());
    for (Clock& clock : fenced_) clock = all;
}

// A GPU counts arrivals, whoever's they are.
void Watcher::arrives_at(int name, bool last, Site site)
{
    if (!ordered(opened_[name], me()))
        fail("other threads, which no barrier puts before this one, use the same named barrier", site);
    if (last) opened_[name] = now(0, 0);
}

void Watcher::barrier_starts(const uint64_t* barrier, Site site)
{
    const auto [entry, is_new] = slot_of_.try_emplace(barrier, unsigned(slots_.size()));
    if (is_new) slots_.emplace_back();
    if (BARRIERS + entry->second >= EXTRA) fail("more mbarriers than the build for async hazards follows", site);
    BarrierSlot& slot = slots_[entry->second];
    const std::uint32_t phases = slot.phases;
    slot = {};
    slot.phases = slot.waited = phases;
    slot.init = now(0, ~0u);
    slot.init_place = place_of(site);
    slot.arrived.assign(width_, 0);
    slot.completed = slot.fenced_arrived = slot.fenced_completed = slot.arrived;
}

void Watcher::announces(const uint64_t* barrier, unsigned bytes, Site site)
{
    BarrierSlot* state = slot(barrier);
    if (!state) return;
    state->announced += bytes;
    state->announced_place = place_of(site);
}

void Watcher::phase_ends(const uint64_t* barrier, Site site)
{
    BarrierSlot* state = slot(barrier);
    if (!state) return;
    join(state->completed, state->arrived.data());
    join(state->fenced_completed, state->fenced_arrived.data());
    state->announced = state->brought = 0;
    ++state->phases;
    // By its parity a waiter cannot tell this phase from the last but one.
    if (state->phases > state->waited + 1)
        fail("two phases of the barrier in a row end that no thread waits for", site);
}

void Watcher::has_waited(const uint64_t* barrier)
{
    BarrierSlot* state = slot(barrier);
    if (!state) return;
    state->waited = state->phases;
    acquire(me(), state->completed, state->fenced_completed);
    learns(me(), BARRIERS + unsigned(state - slots_.data()), state->phases);
}

void Watcher::explain(const uint64_t* barrier, char* text, size_t size)
{
    const BarrierSlot* state = slot(barrier);
    *text = 0;
    if (state && state->announced)
        std::snprintf(text, size, "; %llu bytes are announced at %s:%llu and copies bring %llu",
                      (unsigned long long)state->announced, state->announced_place.file,
                      (unsigned long long)state->announced_place.line, (unsigned long long)state->brought);
}

}  // namespace host_cuda::hazards

#endif
