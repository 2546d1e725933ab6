// Loads and stores in the build for async hazards, checked against earlier stores, copies and products.
#ifdef HOST_CUDA_HAZARDS

#include "watcher.h"

namespace host_cuda::hazards {

void Watcher::access(const void* where, std::size_t bytes, Operation operation, const void* return_address)
{
    if (!inside_ || paused_) return;
    const auto address = reinterpret_cast<std::uintptr_t>(where);
    const Deed deed = operation == trace::LOAD ? LOAD : operation == trace::STORE ? STORE : ATOMIC;
    if (shared_at(address)) {
        touch(address, bytes, deed, deed, counter(return_address), false);
        return;
    }
    if (operation == trace::LOAD) read_local(static_cast<const unsigned char*>(where), bytes, counter(return_address));
    if (!accumulators_[me()].empty()) touch_accumulators(static_cast<const char*>(where), bytes, deed, return_address);
    if (!dependent_.empty()) depends(where, deed, {nullptr, 0, counter(return_address)});
}

// One byte may have this value by chance, and a copy of a struct may contain some of it: only whole values count.
void Watcher::read_local(const unsigned char* address, std::size_t bytes, std::uint32_t counter)
{
    const auto* const top_of_stack = static_cast<const unsigned char*>(__builtin_frame_address(0));
    if (!LOCALS_BEGIN_UNDEFINED || bytes < 2 || std::size_t(address - top_of_stack) >= HOST_CUDA_STACK_BYTES) return;
    if (std::all_of(address, address + bytes, [](unsigned char byte) { return byte == UNDEFINED; }))
        report(INITIAL_VALUE, NOTHING, LOAD, me(), me(), {}, {nullptr, 0, counter});
}

void Watcher::meet_store(const Mark& store, unsigned thread, Deed deed, const Place& place, bool async)
{
    if (store.copy) {
        const Copy& copy = copies_[store.counter];
        if (copy.group >= copies_complete_[copy.thread]) {
            report(copy.group >= copies_committed_[copy.thread] ? COMMIT_COPY : WAIT_COPY, COPY, deed, copy.thread,
                   thread, copy.place, place);
            return;
        }
        const auto [epoch, clock] = completions_[copy.thread][copy.group];
        if (!ordered(epoch, clock, copy.thread, thread))
            report(BARRIER, COPY, deed, copy.thread, thread, copy.place, place);
        return;
    }
    if (!ordered(store, thread))
        report(BARRIER, STORE, deed, store.thread, thread, place_of_store(store), place);
    else if (async && !fenced(store, thread))
        report(FENCE_PROXY, STORE, deed, store.thread, thread, place_of_store(store), place);
}

// Some stores go unseen (a struct that a function returns, memset): they leave other bytes than those of the beginning.
bool Watcher::unwritten(const ChunkCell& chunk, std::uintptr_t address, unsigned bytes)
{
    const auto* const memory = reinterpret_cast<const unsigned char*>(address);
    const unsigned unseen = bytes & ~chunk.written;
    for (unsigned i = 0; i < CHUNK; ++i)
        if (unseen >> i & 1 && memory[i] != NOT_A_NUMBER) return false;
    return unseen != 0;
}

void Watcher::touch(std::uintptr_t address, std::size_t bytes, Deed kind, Deed deed, std::uint32_t counter, bool copy)
{
    Shadow* const shadow = shared_at(address);
    if (!shadow) return;
    const unsigned thread = me();
    const Place place = copy ? copies_[counter].place : Place{nullptr, 0, counter};
    const std::uintptr_t end = address + bytes;
    std::size_t last_chunk = ~std::size_t(0);
    for (std::uintptr_t at = address / WORD * WORD; at < end; at += WORD) {
        unsigned mask = 0;
        for (unsigned i = 0; i < WORD; ++i) mask |= unsigned(at + i >= address && at + i < end) << i;
        const std::size_t number = shadow->number(at);
        ChunkCell& chunk = shadow->chunk(number);
        const unsigned word = unsigned(at / WORD % WORDS);
        Cell& cell = chunk.words[word];
        if (number != last_chunk) {
            meet_bulk_copy(chunk, thread, deed, place);
            if (kind != LOAD) meet_products(*shadow, number, thread, deed, place);
            last_chunk = number;
        }
        if (kind != STORE && unwritten(chunk, at / CHUNK * CHUNK, mask << word * WORD))
            report(FIRST_WRITE, NOTHING, deed, thread, thread, {}, place);
        if (kind != LOAD) chunk.written |= mask << word * WORD;
        meet_stores(cell, mask, thread, deed, place, false);
        if (kind == ATOMIC) {
            if (!cell.store.bytes) cell.store = {0, 0, counter, std::uint16_t(thread), std::uint8_t(mask), false};
            continue;
        }
        if (kind == STORE) {
            meet_loads(cell, shadow->loads(number, word), mask, thread, deed, place);
            store(cell, now(counter, mask, copy));
            continue;
        }
        load(cell, shadow->loads(number, word), mask, thread, counter);
    }
}

void Watcher::depends(const void* where, Deed deed, const Place& place)
{
    if (dependent_.empty() || known(me(), LAUNCHES)) return;
    const char* const address = static_cast<const char*>(where);
    for (const Extent& extent : dependent_)
        if (std::size_t(address - extent.address) < extent.bytes)
            report(WAIT_LAUNCH, NOTHING, deed, me(), me(), {}, place);
}

void Watcher::report(Missing missing, Deed first, Deed second, unsigned first_thread, unsigned second_thread,
            const Place& first_place, const Place& second_place)
{
    const auto key = [](const Place& place) { return std::tuple(place.file, place.line, place.counter); };
    const auto [entry, is_new] =
        found_.try_emplace({missing, first, second, key(first_place), key(second_place)},
                           Row{found_.size(), missing, first, second, first_thread, second_thread, block_, first_place,
                               second_place, {}});
    const std::vector<std::uint32_t>& calls = calls_[me()];
    if (is_new) std::copy_n(calls.rbegin(), std::min<std::size_t>(calls.size(), CALLERS), entry->second.callers);
}

}  // namespace host_cuda::hazards

#endif
