// The happens-before order of a block's threads, copies and products, against which every access is checked.
//
// Barriers order threads.  Each thread has a vector clock (FastTrack: Flanagan and Freund, PLDI 2009): how far it knows
// every other thread of the block, and also how many phases of each mbarrier it knows to have completed, how many
// groups of wgmmas each warp has waited for, and whether a thread has waited for earlier launches.  An mbarrier
// collects the clocks of the threads that arrive, and gives them to those that wait for that phase; __syncthreads()
// needs one number for all, the epoch; the other barriers join the clocks of the threads that meet.
//
//   cp.async   writes for its thread, when that waits for the copy's group; until then no thread may touch the bytes.
//   TMA        writes when the phase ends at which its bytes count; only threads that know of this may touch them.
//   wgmma      reads its operands, and owns its accumulators, until each warp of the group has waited for the wgmma's
//              group; a thread that overwrites an operand must know that the warps that read it have waited.
//   proxies    A fence.proxy.async must separate writes by threads from accesses by TMA or wgmma: a second vector clock
//              says what every thread knows to be fenced.
//
// None of this depends on when the copies and products take effect here, nor, except for races that a lock would
// settle, on the order in which the threads run.
#pragma once

#ifdef HOST_CUDA_HAZARDS

#include <dlfcn.h>

#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "shadow.h"

namespace host_cuda::hazards {

class Watcher {
public:
    Watcher(Moment moment, unsigned seed, const std::uint64_t* blocks, unsigned block_count, const Extent* dependent,
            unsigned dependent_count)
        : moment_(moment), random_(seed), wanted_(blocks, blocks + block_count),
          dependent_(dependent, dependent + dependent_count)
    {
        Dl_info library;
        dladdr(reinterpret_cast<void*>(&run_grid), &library);
        base_ = static_cast<const char*>(library.dli_fbase);
    }

    bool skips(std::uint64_t block) const
    {
        return !wanted_.empty() && std::find(wanted_.begin(), wanted_.end(), block) == wanted_.end();
    }

    void block_begins(std::uint64_t block, unsigned threads, Extent static_shared, Extent dynamic_shared);

    // All threads have exited.
    void block_completes();

    void block_ends()
    {
        inside_ = false;
        waiting_bulk_copies_.clear();
        for (auto& waiting : waiting_products_) waiting.clear();
    }

    void pause() { ++paused_; }
    void resume() { --paused_; }

    // ---- Barriers ----

    void block_meets();

    void some_meet(const unsigned* threads, unsigned count)
    {
        Clock all(width_, 0), fenced(width_, 0);
        for (unsigned i = 0; i < count; ++i) release(threads[i], all, fenced);
        for (unsigned i = 0; i < count; ++i) acquire(threads[i], all, fenced);
    }

    void arrives_at(int name, bool last, Site site);
    void barrier_starts(const uint64_t* barrier, Site site);

    void barrier_is_used(const uint64_t* barrier, Site site)
    {
        const BarrierSlot* state = slot(barrier);
        if (state && !ordered(state->init, me()))
            report(BARRIER, BARRIER_INIT, BARRIER_USE, state->init.thread, me(), state->init_place, place_of(site));
    }

    void arrives(const uint64_t* barrier)
    {
        if (BarrierSlot* state = slot(barrier)) release(me(), state->arrived, state->fenced_arrived);
    }

    void announces(const uint64_t* barrier, unsigned bytes, Site site);
    void phase_ends(const uint64_t* barrier, Site site);
    void has_waited(const uint64_t* barrier);
    void explain(const uint64_t* barrier, char* text, size_t size);

    // ---- cp.async ----

    void start_copy(void* to, const void* from, unsigned bytes, Site site, Effect effect);

    void commit_copies() { ++copies_committed_[me()]; }

    void wait_for_copies(unsigned open);
    void thread_exits();

    // ---- TMA ----

    void start_bulk_copy(void* to, const void* from, unsigned bytes, const uint64_t* barrier, Site site, Effect effect);
    bool let_one_arrive();
    void fence_proxy();

    // ---- wgmma ----

    void start_product(const Product& product, Site site, Effect effect);

    void fence_products()
    {
        fenced_products_[me()] = true;
        for (Accumulators& accumulators : accumulators_[me()]) accumulators.touched = false;
    }

    void commit_products() { ++products_committed_[me()]; }

    void wait_for_products(unsigned open);

    // ---- Launches ----

    void wait_for_primary_launches() { learns(me(), LAUNCHES, 1); }

    // ---- Loads and stores ----

    void access(const void* where, std::size_t bytes, Operation operation, const void* return_address);

    void call(const void* return_address)
    {
        if (inside_) calls_[me()].push_back(counter(return_address));
    }
    void leave()
    {
        if (inside_ && !calls_[me()].empty()) calls_[me()].pop_back();
    }

    Report report()
    {
        rows_.clear();
        for (const auto& [key, row] : found_) rows_.push_back(row);
        return {rows_.size(), rows_.data()};
    }

private:
    // Besides threads, a clock covers earlier launches, the warps' products and the barriers' phases; the clock of
    // fences has an epoch in place of the launches.
    static constexpr unsigned LAUNCHES = 0, FENCED_EPOCH = 0, WARPS = 1, BARRIERS = WARPS + 1024 / WARP, EXTRA = 160;

    unsigned me() const { return running.linear_thread; }
    std::uint32_t counter(const void* return_address) const
    {
        return std::uint32_t(static_cast<const char*>(return_address) - 1 - base_);
    }
    bool now_or_later() { return moment_ == EARLIEST || (moment_ == RANDOM && random_() % 2); }

    Shadow* shared_at(std::uintptr_t address)
    {
        if (dynamic_shared_.holds(address)) return &dynamic_shared_;
        const bool own = address - reinterpret_cast<std::uintptr_t>(&running) < sizeof running;
        return static_shared_.holds(address) && !own ? &static_shared_ : nullptr;
    }

    BarrierSlot* slot(const uint64_t* barrier)
    {
        const auto entry = slot_of_.find(barrier);
        return entry == slot_of_.end() ? nullptr : &slots_[entry->second];
    }

    // ---- Knowledge ----

    Mark now(std::uint32_t counter, unsigned bytes, bool copy = false) const
    {
        return {clocks_[me()], epoch_, counter, std::uint16_t(me()), std::uint8_t(bytes), copy};
    }

    bool ordered(std::uint32_t epoch, std::uint32_t clock, unsigned by, unsigned thread) const
    {
        return epoch < epoch_ || by == thread || (!known_[thread].empty() && known_[thread][by] >= clock);
    }
    bool ordered(const Mark& mark, unsigned thread) const { return ordered(mark.epoch, mark.clock, mark.thread, thread); }

    bool fenced(const Mark& mark, unsigned thread) const
    {
        if (fenced_.empty()) return false;
        return mark.epoch < fenced_[thread][threads_ + FENCED_EPOCH] || fenced_[thread][mark.thread] >= mark.clock;
    }

    std::uint32_t known(unsigned thread, unsigned extra) const
    {
        return std::max(all_know_[extra], known_[thread].empty() ? 0 : known_[thread][threads_ + extra]);
    }
    bool knows_copy(unsigned thread, const BulkCopy& copy) const
    {
        return copy.arrived && known(thread, BARRIERS + copy.slot) > copy.phase;
    }
    bool knows_product(unsigned thread, unsigned warp, const GroupedProduct& product) const
    {
        return known(thread, WARPS + warp) > product.group;
    }

    Clock& row(unsigned thread)
    {
        if (known_[thread].empty()) known_[thread].assign(width_, 0);
        return known_[thread];
    }
    void learns(unsigned thread, unsigned extra, std::uint32_t value)
    {
        std::uint32_t& number = row(thread)[threads_ + extra];
        number = std::max(number, value);
    }
    void release(unsigned thread, Clock& into, Clock& fenced_into)
    {
        if (!known_[thread].empty()) join(into, known_[thread].data());
        into[thread] = clocks_[thread]++;
        if (!fenced_.empty()) join(fenced_into, fenced_[thread].data());
    }
    void acquire(unsigned thread, const Clock& from, const Clock& fenced_from)
    {
        join(row(thread), from.data());
        if (!fenced_.empty()) join(fenced_[thread], fenced_from.data());
    }

    // ---- Shared memory ----

    Place place_of_store(const Mark& mark) const
    {
        return mark.copy ? copies_[mark.counter].place : Place{nullptr, 0, mark.counter};
    }

    // An access of a thread, or of TMA or wgmma on its behalf (`async`), to what a store or a cp.async has written.
    void meet_store(const Mark& store, unsigned thread, Deed deed, const Place& place, bool async);

    // An access to bytes of a word, a bit each, and what has stored them.
    void meet_stores(const Cell& cell, unsigned bytes, unsigned thread, Deed deed, const Place& place, bool async)
    {
        for (const Mark* store : {&cell.store, &cell.store_of_other_bytes})
            if (store->bytes & bytes) meet_store(*store, thread, deed, place, async);
    }

    // A store to bytes of a word, a bit each, which then counts as unread.
    void meet_loads(Cell& cell, Loads* loads, unsigned bytes, unsigned thread, Deed deed, const Place& place)
    {
        for (unsigned warps = cell.loading_warps; warps; warps &= warps - 1) {
            Loads& of_warp = loads[__builtin_ctz(warps)];
            for (Mark* load : {&of_warp.last, &of_warp.of_other_lane}) {
                if (load->bytes & bytes && !ordered(*load, thread))
                    report(BARRIER, LOAD, deed, load->thread, thread, {nullptr, 0, load->counter}, place);
                load->bytes &= std::uint8_t(~bytes);
            }
        }
        if ((bytes & Cell::ALL) == Cell::ALL) cell.loading_warps = 0;
    }

    void store(Cell& cell, Mark store)
    {
        const Mark& last = cell.store;
        const bool same = !store.copy && !last.copy && last.thread == store.thread && last.epoch == store.epoch &&
                          last.clock == store.clock;
        const auto others = std::uint8_t(~store.bytes);
        if (same)
            store.bytes |= last.bytes;
        else if (last.bytes & others)
            cell.store_of_other_bytes = last;
        cell.store_of_other_bytes.bytes &= others;
        cell.store = store;
    }

    void load(Cell& cell, Loads* loads, unsigned bytes, unsigned thread, std::uint32_t counter)
    {
        Loads& of_warp = loads[thread / WARP];
        const std::uint32_t warp = 1u << thread / WARP;
        Mark load = now(counter, bytes);
        if (!(cell.loading_warps & warp))
            of_warp = {};
        else if (of_warp.last.thread != thread)
            of_warp.of_other_lane = of_warp.last;
        else if (of_warp.last.epoch == epoch_ && of_warp.last.clock == load.clock)
            load.bytes |= of_warp.last.bytes;
        of_warp.last = load;
        cell.loading_warps |= warp;
    }

    void meet_products(Shadow& shadow, std::size_t number, unsigned thread, Deed deed, const Place& place);

    void meet_bulk_copy(const ChunkCell& chunk, unsigned thread, Deed deed, const Place& place)
    {
        if (!chunk.bulk_copy) return;
        const BulkCopy& copy = bulk_copies_[chunk.bulk_copy - 1];
        if (!knows_copy(thread, copy)) report(WAIT_PHASE, BULK_COPY, deed, copy.thread, thread, copy.place, place);
    }

    // Whether one of these bytes of a chunk, a bit each, is as the block found it.
    static bool unwritten(const ChunkCell& chunk, std::uintptr_t address, unsigned bytes);

    // A load, store or atomic function of this thread, or the store of its cp.async.
    void touch(std::uintptr_t address, std::size_t bytes, Deed kind, Deed deed, std::uint32_t counter, bool copy);

    // By a TMA copy of this thread.
    void overwrite(std::uintptr_t address, std::uint32_t number);
    void read_by_product(std::uintptr_t address, unsigned warp, std::uint32_t number);

    // ---- Local variables ----

    // In the build for definedness every local variable stays in memory, and begins as
    // -ftrivial-auto-var-init=pattern of g++ fills it.
#ifdef HOST_CUDA_DEFINEDNESS
    static constexpr bool LOCALS_BEGIN_UNDEFINED = true;
#else
    static constexpr bool LOCALS_BEGIN_UNDEFINED = false;
#endif
    static constexpr unsigned char UNDEFINED = 0xfe;

    void read_local(const unsigned char* address, std::size_t bytes, std::uint32_t counter);

    // ---- Registers ----

    void take_accumulators(unsigned thread, const char* begin, std::size_t bytes, std::uint32_t number);
    void touch_accumulators(const char* address, std::size_t bytes, Deed deed, const void* return_address);

    // ---- Global memory ----

    void depends(const void* where, Deed deed, const Place& place);

    // ---- Effects ----

    void arrive_copies(unsigned thread, unsigned complete);

    void carry_out_products(unsigned group, unsigned complete)
    {
        auto& waiting = waiting_products_[group];
        for (; !waiting.empty() && waiting.front().first < complete; waiting.pop_front()) waiting.front().second();
    }

    void report(Missing missing, Deed first, Deed second, unsigned first_thread, unsigned second_thread,
                const Place& first_place, const Place& second_place);

    const Moment moment_;
    std::minstd_rand random_;
    const std::vector<std::uint64_t> wanted_;
    const std::vector<Extent> dependent_;  // memory that earlier launches may still write or read
    const char* base_;

    std::uint64_t block_ = 0;
    unsigned threads_ = 0, warps_ = 0, width_ = 0, paused_ = 0;
    bool inside_ = false;
    std::uint32_t epoch_ = 0, known_good_ = 0;
    Shadow static_shared_, dynamic_shared_;

    std::vector<std::uint32_t> clocks_;   // [threads]
    std::vector<Clock> known_, fenced_;   // [threads][width], empty where nothing was learnt
    std::uint32_t all_know_[EXTRA] = {};  // since the last __syncthreads
    Mark opened_[NAMES];                  // by name: when the named barrier last opened

    std::vector<unsigned> copies_committed_, copies_complete_;                     // groups, by thread
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> completions_;  // by thread and group: epoch, clock
    std::vector<std::deque<std::pair<unsigned, Effect>>> waiting_copies_;          // by thread: group, effect
    std::vector<Copy> copies_;

    std::deque<Effect> waiting_bulk_copies_;
    std::vector<BulkCopy> bulk_copies_;
    std::vector<BarrierSlot> slots_;
    std::map<const uint64_t*, unsigned> slot_of_;

    std::vector<unsigned> products_committed_, products_complete_;  // groups, by thread
    std::vector<bool> fenced_products_;
    std::vector<std::vector<Accumulators>> accumulators_;  // by thread
    std::vector<std::deque<std::pair<unsigned, Effect>>> waiting_products_;  // by warpgroup: group, effect
    std::vector<GroupedProduct> products_;

    std::vector<std::vector<std::uint32_t>> calls_;  // by thread: where its open calls are, the outermost first

    using Key = std::tuple<const char*, std::uint64_t, std::uint64_t>;
    std::map<std::tuple<unsigned, unsigned, unsigned, Key, Key>, Row> found_;
    std::vector<Row> rows_;
};

}  // namespace host_cuda::hazards

#endif
