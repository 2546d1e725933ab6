// Copies by cp.async and TMA in the build for async hazards: when they take effect, and which threads know it.
#ifdef HOST_CUDA_HAZARDS

#include "watcher.h"

namespace host_cuda::hazards {

void Watcher::start_copy(void* to, const void* from, unsigned bytes, Site site, Effect effect)
{
    const unsigned thread = me();
    if (!shared_at(reinterpret_cast<std::uintptr_t>(to))) fail("cp.async copies to shared memory alone", site);
    if (from) depends(from, COPY, place_of(site));
    copies_.push_back({place_of(site), thread, copies_committed_[thread]});
    touch(reinterpret_cast<std::uintptr_t>(to), bytes, STORE, COPY, std::uint32_t(copies_.size() - 1), true);
    if (now_or_later())
        effect();
    else
        waiting_copies_[thread].emplace_back(copies_committed_[thread], std::move(effect));
}

void Watcher::wait_for_copies(unsigned open)
{
    const unsigned thread = me(), committed = copies_committed_[thread];
    const unsigned complete = std::max(copies_complete_[thread], committed > open ? committed - open : 0);
    copies_complete_[thread] = complete;
    completions_[thread].resize(complete, {epoch_, clocks_[thread]});
    arrive_copies(thread, complete);
}

void Watcher::thread_exits()
{
    const unsigned thread = me();
    arrive_copies(thread, ~0u);
    accumulators_[thread].clear();
    waiting_products_[thread / WARPGROUP].clear();  // nobody waits for them, and their accumulators are gone
}

void Watcher::start_bulk_copy(void* to, const void* from, unsigned bytes, const uint64_t* barrier, Site site, Effect effect)
{
    const unsigned thread = me();
    BarrierSlot* state = slot(barrier);
    if (!state) fail("the barrier is not initialised", site);
    depends(from, BULK_COPY, place_of(site));
    if (!ordered(state->init, thread) || !fenced(state->init, thread))
        report(ordered(state->init, thread) ? FENCE_PROXY : BARRIER, BARRIER_INIT, BULK_COPY, state->init.thread,
               thread, state->init_place, place_of(site));
    bulk_copies_.push_back({place_of(site), thread, unsigned(state - slots_.data()), 0, false});
    const std::uint32_t number = std::uint32_t(bulk_copies_.size());
    const auto first = reinterpret_cast<std::uintptr_t>(to);
    for (std::uintptr_t at = first; at < first + bytes; at += CHUNK) overwrite(at, number);
    waiting_bulk_copies_.push_back([this, number, bytes, effect] {
        BulkCopy& copy = bulk_copies_[number - 1];
        BarrierSlot& at = slots_[copy.slot];
        copy.arrived = true;
        copy.phase = at.phases;
        at.brought += bytes;
        effect();
    });
    if (now_or_later()) let_one_arrive();
}

bool Watcher::let_one_arrive()
{
    if (waiting_bulk_copies_.empty()) return false;
    const std::size_t which = moment_ == RANDOM ? random_() % waiting_bulk_copies_.size() : 0;
    const Effect effect = std::move(waiting_bulk_copies_[which]);
    waiting_bulk_copies_.erase(waiting_bulk_copies_.begin() + std::ptrdiff_t(which));
    ++paused_;
    effect();
    --paused_;
    return true;
}

void Watcher::fence_proxy()
{
    const unsigned thread = me();
    if (fenced_.empty()) fenced_.assign(threads_, Clock(width_, 0));
    Clock& fenced = fenced_[thread];
    if (!known_[thread].empty()) join(fenced, known_[thread].data());
    fenced[thread] = clocks_[thread]++;
    fenced[threads_ + FENCED_EPOCH] = std::max(fenced[threads_ + FENCED_EPOCH], epoch_);
}

void Watcher::overwrite(std::uintptr_t address, std::uint32_t number)
{
    Shadow* const shadow = shared_at(address);
    const BulkCopy& copy = bulk_copies_[number - 1];
    if (!shadow) fail("a TMA copy leaves the shared memory of the block", {copy.place.file, int(copy.place.line)});
    const unsigned thread = me();
    const std::size_t place = shadow->number(address);
    ChunkCell& chunk = shadow->chunk(place);
    meet_bulk_copy(chunk, thread, BULK_COPY, copy.place);
    meet_products(*shadow, place, thread, BULK_COPY, copy.place);
    for (unsigned word = 0; word < WORDS; ++word) {
        Cell& cell = chunk.words[word];
        meet_stores(cell, Cell::ALL, thread, BULK_COPY, copy.place, true);
        meet_loads(cell, shadow->loads(place, word), Cell::ALL, thread, BULK_COPY, copy.place);
    }
    chunk = {};
    chunk.bulk_copy = number;
    chunk.written = ChunkCell::ALL;
    std::fill_n(shadow->product_reads(place), warps_, 0);
}

void Watcher::arrive_copies(unsigned thread, unsigned complete)
{
    auto& waiting = waiting_copies_[thread];
    ++paused_;
    for (; !waiting.empty() && waiting.front().first < complete; waiting.pop_front()) waiting.front().second();
    --paused_;
}

}  // namespace host_cuda::hazards

#endif
