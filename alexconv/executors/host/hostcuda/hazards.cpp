// Who may know what: the happens-before order of a block's threads, copies and products, held against every access.
//
// Threads are in order through barriers.  Each has a vector clock (FastTrack: Flanagan and Freund, PLDI 2009): how far it
// knows every other thread of the block, and further how many phases of each mbarrier it knows to have completed, how
// many groups of wgmmas each warp has waited for, and whether a thread has waited for the launches before.  An mbarrier
// collects the clocks of those who arrive, and gives them to those who wait for that phase; __syncthreads() needs one
// number for all, the epoch; the other barriers join the clocks of those who meet.
//
//   cp.async   writes for its thread, when that waits for the copy's group; until then nobody may touch the bytes.
//   TMA        writes when the phase ends at which its bytes count; only who knows that phase may touch them.
//   wgmma      reads its operands, and has its accumulators, until each warp of the group has waited for the wgmma's
//              group; who overwrites an operand has to know that of the warps that read it.
//   proxies    What threads write and TMA or wgmma touch needs a fence.proxy.async: a second vector clock says what
//              every thread knows to be fenced.
//
// None of this depends on when the copies and products take effect here, nor, but for races that a lock would settle,
// on the order in which the threads run.
#ifdef HOST_CUDA_HAZARDS

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "host_cuda.h"

namespace host_cuda::hazards {

using trace::Operation;

enum Moment : unsigned { EARLIEST, LATEST, RANDOM };

// What meets, and what was missing in between: the numbers that hazards.py reads.
enum Deed : unsigned { NOTHING, LOAD, STORE, ATOMIC, COPY, BULK_COPY, PRODUCT, BARRIER_INIT, BARRIER_USE, BLOCK_END };
enum Missing : unsigned {
    BARRIER,         // anything that orders two threads
    COMMIT_COPY,     // cp.async.commit_group
    WAIT_COPY,       // cp.async.wait_group
    WAIT_PHASE,      // of the mbarrier at which a TMA copy's bytes count
    COMMIT_PRODUCT,  // wgmma.commit_group
    WAIT_PRODUCT,    // wgmma.wait_group
    FENCE_PRODUCT,   // wgmma.fence
    FENCE_PROXY,     // fence.proxy.async
    WAIT_LAUNCH,     // griddepcontrol.wait
    FIRST_WRITE,     // of shared memory
};

// In the source: a file and a line, or the program counter of an instruction.
struct Place {
    const char* file = nullptr;
    std::uint64_t line = 0, counter = 0;
};

static Place place_of(Site site) { return {site.file, std::uint64_t(site.line), 0}; }

struct Row {
    std::uint64_t order;  // of finding
    std::uint64_t missing, first, second, first_thread, second_thread, block;
    Place first_place, second_place;
};

struct Report {
    std::uint64_t count;
    const Row* rows;
};

constexpr unsigned WORD = 4, CHUNK = sizeof(Chunk), WORDS = CHUNK / WORD;

// An access of a thread to some bytes of a word.
struct Mark {
    std::uint32_t clock = 0, epoch = 0;
    std::uint32_t counter = 0;  // program counter; of a cp.async its number among the copies
    std::uint16_t thread = 0;
    std::uint8_t bytes = 0;  // bits
    bool copy = false;       // by cp.async
};

// The last store to a word, and loads since of two threads of a warp and of one of another.
struct Cell {
    Mark store, load, load_of_other_lane, load_of_other_warp;
};

// Of 16 bytes: the last TMA copy to them, counted from one.
struct ChunkCell {
    std::uint32_t bulk_copy = 0;
    Cell words[WORDS];
};

struct Copy {
    Place place;
    unsigned thread, group;
};

struct BulkCopy {
    Place place;
    unsigned thread, slot;
    std::uint32_t phase;
    bool arrived;
};

struct GroupedProduct {
    Place place;
    unsigned group;
};

struct Accumulators {
    const char* begin;
    std::size_t bytes;
    std::uint32_t product;  // the last on them, counted from one
    bool touched;           // by the thread, since its last wgmma.fence
    std::uint32_t counter;  // where
};

using Clock = std::vector<std::uint32_t>;

static void join(Clock& into, const std::uint32_t* other)
{
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

struct BarrierSlot {
    std::uint32_t phases = 0;  // completed
    Mark init;
    Place init_place;
    Clock arrived, completed;                // clocks of those who have arrived, of those in completed phases
    Clock fenced_arrived, fenced_completed;  // likewise what they know to be fenced
    Place announced_place;
    std::uint64_t announced = 0, brought = 0;  // bytes, of this phase
};

// Shared memory of one kind, chunk by chunk.
class Shadow {
public:
    void begin(Extent extent, unsigned warps)
    {
        first_ = reinterpret_cast<std::uintptr_t>(extent.address) / CHUNK * CHUNK;
        bytes_ = extent.bytes ? reinterpret_cast<std::uintptr_t>(extent.address) + extent.bytes - first_ : 0;
        warps_ = warps;
        chunks_.assign((bytes_ + CHUNK - 1) / CHUNK, {});
        product_reads_.assign(chunks_.size() * warps, 0);
    }
    bool holds(std::uintptr_t address) const { return address - first_ < bytes_; }
    std::size_t number(std::uintptr_t address) const { return (address - first_) / CHUNK; }
    ChunkCell& chunk(std::size_t number) { return chunks_[number]; }
    // The last product, counted from one, that each warp reads it for.
    std::uint32_t* product_reads(std::size_t number) { return &product_reads_[number * warps_]; }
    std::size_t chunks() const { return chunks_.size(); }

private:
    std::uintptr_t first_ = 0;
    std::size_t bytes_ = 0;
    unsigned warps_ = 0;
    std::vector<ChunkCell> chunks_;
    std::vector<std::uint32_t> product_reads_;
};

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

    void block_begins(std::uint64_t block, unsigned threads, Extent static_shared, Extent dynamic_shared)
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
        slots_.clear();
        slot_of_.clear();
        std::fill(std::begin(all_know_), std::end(all_know_), 0);
        paused_ = 0;
        inside_ = true;
    }

    // All threads have exited.
    void block_completes()
    {
        for (const BulkCopy& copy : bulk_copies_) {
            bool known = false;
            for (unsigned t = 0; t < threads_ && !known; ++t) known = knows_copy(t, copy);
            if (!known) report(WAIT_PHASE, BULK_COPY, BLOCK_END, copy.thread, copy.thread, copy.place, copy.place);
        }
    }

    void block_ends()
    {
        inside_ = false;
        waiting_bulk_copies_.clear();
        for (auto& waiting : waiting_products_) waiting.clear();
    }

    void pause() { ++paused_; }
    void resume() { --paused_; }

    // ---- Barriers ----

    void block_meets()
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

    void some_meet(const unsigned* threads, unsigned count)
    {
        Clock all(width_, 0), fenced(width_, 0);
        for (unsigned i = 0; i < count; ++i) release(threads[i], all, fenced);
        for (unsigned i = 0; i < count; ++i) acquire(threads[i], all, fenced);
    }

    void barrier_starts(const uint64_t* barrier, Site site)
    {
        const auto [found, is_new] = slot_of_.try_emplace(barrier, unsigned(slots_.size()));
        if (is_new) slots_.emplace_back();
        if (BARRIERS + found->second >= EXTRA) fail("more mbarriers than the build for async hazards follows", site);
        BarrierSlot& slot = slots_[found->second];
        const std::uint32_t phases = slot.phases;
        slot = {};
        slot.phases = phases;
        slot.init = now(0, ~0u);
        slot.init_place = place_of(site);
        slot.arrived.assign(width_, 0);
        slot.completed = slot.fenced_arrived = slot.fenced_completed = slot.arrived;
    }

    void barrier_is_used(const uint64_t* barrier, Site site)
    {
        const BarrierSlot* found = slot(barrier);
        if (found && !ordered(found->init, me()))
            report(BARRIER, BARRIER_INIT, BARRIER_USE, found->init.thread, me(), found->init_place, place_of(site));
    }

    void arrives(const uint64_t* barrier)
    {
        if (BarrierSlot* found = slot(barrier)) release(me(), found->arrived, found->fenced_arrived);
    }

    void announces(const uint64_t* barrier, unsigned bytes, Site site)
    {
        BarrierSlot* found = slot(barrier);
        if (!found) return;
        found->announced += bytes;
        found->announced_place = place_of(site);
    }

    void phase_ends(const uint64_t* barrier)
    {
        BarrierSlot* found = slot(barrier);
        if (!found) return;
        join(found->completed, found->arrived.data());
        join(found->fenced_completed, found->fenced_arrived.data());
        found->announced = found->brought = 0;
        ++found->phases;
    }

    void has_waited(const uint64_t* barrier)
    {
        BarrierSlot* found = slot(barrier);
        if (!found) return;
        acquire(me(), found->completed, found->fenced_completed);
        learns(me(), BARRIERS + unsigned(found - slots_.data()), found->phases);
    }

    void explain(const uint64_t* barrier, char* text, size_t size)
    {
        const BarrierSlot* found = slot(barrier);
        *text = 0;
        if (found && found->announced)
            std::snprintf(text, size, "; %llu bytes are announced at %s:%llu and copies bring %llu",
                          (unsigned long long)found->announced, found->announced_place.file,
                          (unsigned long long)found->announced_place.line, (unsigned long long)found->brought);
    }

    // ---- cp.async ----

    void start_copy(void* to, const void* from, unsigned bytes, Site site, Effect effect)
    {
        const unsigned thread = me();
        if (from) depends(from, COPY, place_of(site));
        copies_.push_back({place_of(site), thread, copies_committed_[thread]});
        touch(reinterpret_cast<std::uintptr_t>(to), bytes, STORE, COPY, std::uint32_t(copies_.size() - 1), true);
        if (now_or_later())
            effect();
        else
            waiting_copies_[thread].emplace_back(copies_committed_[thread], std::move(effect));
    }

    void commit_copies() { ++copies_committed_[me()]; }

    void wait_for_copies(unsigned open)
    {
        const unsigned thread = me(), committed = copies_committed_[thread];
        const unsigned complete = std::max(copies_complete_[thread], committed > open ? committed - open : 0);
        copies_complete_[thread] = complete;
        completions_[thread].resize(complete, {epoch_, clocks_[thread]});
        arrive_copies(thread, complete);
    }

    void thread_exits()
    {
        const unsigned thread = me();
        arrive_copies(thread, ~0u);
        accumulators_[thread].clear();
        waiting_products_[thread / WARPGROUP].clear();  // nobody waits for them, and their accumulators are gone
    }

    // ---- TMA ----

    void start_bulk_copy(void* to, const void* from, unsigned bytes, const uint64_t* barrier, Site site, Effect effect)
    {
        const unsigned thread = me();
        BarrierSlot* found = slot(barrier);
        if (!found) fail("the barrier is not initialised", site);
        depends(from, BULK_COPY, place_of(site));
        if (!ordered(found->init, thread) || !fenced(found->init, thread))
            report(ordered(found->init, thread) ? FENCE_PROXY : BARRIER, BARRIER_INIT, BULK_COPY, found->init.thread,
                   thread, found->init_place, place_of(site));
        bulk_copies_.push_back({place_of(site), thread, unsigned(found - slots_.data()), 0, false});
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

    bool let_one_arrive()
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

    void fence_proxy()
    {
        const unsigned thread = me();
        if (fenced_.empty()) fenced_.assign(threads_, Clock(width_, 0));
        Clock& fenced = fenced_[thread];
        if (!known_[thread].empty()) join(fenced, known_[thread].data());
        fenced[thread] = clocks_[thread]++;
        fenced[threads_ + FENCED_EPOCH] = std::max(fenced[threads_ + FENCED_EPOCH], epoch_);
    }

    // ---- wgmma ----

    void start_product(const Product& product, Site site, Effect effect)
    {
        const unsigned group = me() / WARPGROUP, first_thread = group * WARPGROUP;
        products_.push_back({place_of(site), products_committed_[first_thread]});
        const std::uint32_t number = std::uint32_t(products_.size());
        constexpr unsigned group_warps = WARPGROUP / WARP;
        const unsigned of_warp = product.first_count / group_warps;
        for (unsigned w = 0; w < group_warps; ++w) {
            const unsigned warp = first_thread / WARP + w;
            known_good_ = 0;
            for (unsigned i = w * of_warp; i < (w + 1) * of_warp; ++i) read_by_product(product.first[i], warp, number);
            for (unsigned i = 0; i < product.second_count; ++i) read_by_product(product.second[i], warp, number);
        }
        for (unsigned i = 0; i < WARPGROUP; ++i)
            take_accumulators(first_thread + i, reinterpret_cast<const char*>(product.accumulators[i]),
                              product.floats * sizeof(float), number);
        waiting_products_[group].emplace_back(products_.back().group, std::move(effect));
        if (now_or_later()) carry_out_products(group, ~0u);
    }

    void fence_products()
    {
        fenced_products_[me()] = true;
        for (Accumulators& each : accumulators_[me()]) each.touched = false;
    }

    void commit_products() { ++products_committed_[me()]; }

    void wait_for_products(unsigned open)
    {
        const unsigned thread = me(), committed = products_committed_[thread];
        const unsigned complete = std::max(products_complete_[thread], committed > open ? committed - open : 0);
        products_complete_[thread] = complete;
        learns(thread, WARPS + thread / WARP, complete);
        ++paused_;
        carry_out_products(thread / WARPGROUP, complete);
        --paused_;
    }

    // ---- Launches ----

    void wait_for_primary_launches() { learns(me(), LAUNCHES, 1); }

    // ---- Loads and stores ----

    void access(const void* where, std::size_t bytes, Operation operation, const void* return_address)
    {
        if (!inside_ || paused_) return;
        const auto address = reinterpret_cast<std::uintptr_t>(where);
        const Deed deed = operation == trace::LOAD ? LOAD : operation == trace::STORE ? STORE : ATOMIC;
        if (shared_at(address)) {
            touch(address, bytes, deed, deed, counter(return_address), false);
            return;
        }
        if (!accumulators_[me()].empty()) touch_accumulators(static_cast<const char*>(where), bytes, deed, return_address);
        if (!dependent_.empty()) depends(where, deed, {nullptr, 0, counter(return_address)});
    }

    Report report()
    {
        rows_.clear();
        for (const auto& [key, row] : found_) rows_.push_back(row);
        return {rows_.size(), rows_.data()};
    }

private:
    // Beside threads, a clock tells of the launches before, the warps' products and the barriers' phases; the clock of
    // what is fenced has an epoch in the place of the launches.
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
        const auto found = slot_of_.find(barrier);
        return found == slot_of_.end() ? nullptr : &slots_[found->second];
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
    void meet_store(const Mark& store, unsigned thread, Deed deed, const Place& place, bool async)
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

    void meet_loads(const Cell& cell, unsigned bytes, unsigned thread, Deed deed, const Place& place)
    {
        for (const Mark* load : {&cell.load, &cell.load_of_other_lane, &cell.load_of_other_warp})
            if (load->bytes & bytes && !ordered(*load, thread))
                report(BARRIER, LOAD, deed, load->thread, thread, {nullptr, 0, load->counter}, place);
    }

    void meet_products(Shadow& shadow, std::size_t number, unsigned thread, Deed deed, const Place& place)
    {
        const std::uint32_t* const reads = shadow.product_reads(number);
        for (unsigned warp = 0; warp < warps_; ++warp) {
            if (!reads[warp]) continue;
            const GroupedProduct& product = products_[reads[warp] - 1];
            if (knows_product(thread, warp, product)) continue;
            const bool committed = product.group < products_committed_[warp * WARP];
            report(committed ? WAIT_PRODUCT : COMMIT_PRODUCT, PRODUCT, deed, warp * WARP, thread, product.place, place);
        }
    }

    void meet_bulk_copy(const ChunkCell& chunk, unsigned thread, Deed deed, const Place& place)
    {
        if (!chunk.bulk_copy) return;
        const BulkCopy& copy = bulk_copies_[chunk.bulk_copy - 1];
        if (!knows_copy(thread, copy)) report(WAIT_PHASE, BULK_COPY, deed, copy.thread, thread, copy.place, place);
    }

    // A load, store or atomic function of this thread, or the store of its cp.async.
    void touch(std::uintptr_t address, std::size_t bytes, Deed kind, Deed deed, std::uint32_t counter, bool copy)
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
            Cell& cell = chunk.words[at / WORD % WORDS];
            if (number != last_chunk) {
                meet_bulk_copy(chunk, thread, deed, place);
                if (kind != LOAD) meet_products(*shadow, number, thread, deed, place);
                last_chunk = number;
            }
            if (kind == ATOMIC) {
                if (cell.store.copy && cell.store.bytes & mask) meet_store(cell.store, thread, deed, place, false);
                if (!cell.store.bytes) cell.store = {0, 0, counter, std::uint16_t(thread), std::uint8_t(mask), false};
                continue;
            }
            if (cell.store.bytes & mask) meet_store(cell.store, thread, deed, place, false);
            if (kind == STORE) {
                meet_loads(cell, mask, thread, deed, place);
                Mark store = now(counter, mask, copy);
                if (!copy && !cell.store.copy && cell.store.thread == thread && cell.store.epoch == epoch_ &&
                    cell.store.clock == store.clock)
                    store.bytes |= cell.store.bytes;
                cell = {store, {}, {}, {}};
                continue;
            }
            if (!cell.store.bytes && !chunk.bulk_copy)
                report(FIRST_WRITE, NOTHING, deed, thread, thread, {}, place);
            if (!cell.load.bytes || cell.load.thread / WARP != thread / WARP) {
                cell.load_of_other_warp = cell.load;
                cell.load_of_other_lane = {};
            } else if (cell.load.thread != thread) {
                cell.load_of_other_lane = cell.load;
            }
            cell.load = now(counter, mask);
        }
    }

    // By a TMA copy of this thread.
    void overwrite(std::uintptr_t address, std::uint32_t number)
    {
        Shadow* const shadow = shared_at(address);
        const BulkCopy& copy = bulk_copies_[number - 1];
        if (!shadow) fail("a TMA copy leaves the shared memory of the block", {copy.place.file, int(copy.place.line)});
        const unsigned thread = me();
        const std::size_t place = shadow->number(address);
        ChunkCell& chunk = shadow->chunk(place);
        meet_bulk_copy(chunk, thread, BULK_COPY, copy.place);
        meet_products(*shadow, place, thread, BULK_COPY, copy.place);
        for (Cell& cell : chunk.words) {
            if (cell.store.bytes) meet_store(cell.store, thread, BULK_COPY, copy.place, true);
            meet_loads(cell, ~0u, thread, BULK_COPY, copy.place);
        }
        chunk = {};
        chunk.bulk_copy = number;
        std::fill_n(shadow->product_reads(place), warps_, 0);
    }

    void read_by_product(std::uintptr_t address, unsigned warp, std::uint32_t number)
    {
        Shadow* const shadow = shared_at(address);
        const Place& place = products_[number - 1].place;
        if (!shadow) fail("wgmma reads outside the shared memory of the block", {place.file, int(place.line)});
        const std::size_t at = shadow->number(address);
        const ChunkCell& chunk = shadow->chunk(at);
        const bool stored = std::any_of(chunk.words, chunk.words + WORDS, [](const Cell& cell) { return cell.store.bytes; });
        const bool copied = chunk.bulk_copy && chunk.bulk_copy != known_good_;
        for (unsigned thread = warp * WARP; (stored || copied) && thread < (warp + 1) * WARP; ++thread) {
            if (copied) meet_bulk_copy(chunk, thread, PRODUCT, place);
            for (const Cell& cell : chunk.words)
                if (cell.store.bytes) meet_store(cell.store, thread, PRODUCT, place, true);
        }
        if (copied) known_good_ = chunk.bulk_copy;  // reported or not: once is enough
        shadow->product_reads(at)[warp] = number;
    }

    // ---- Registers ----

    void take_accumulators(unsigned thread, const char* begin, std::size_t bytes, std::uint32_t number)
    {
        auto& all = accumulators_[thread];
        const Place& place = products_[number - 1].place;
        auto found = std::find_if(all.begin(), all.end(), [=](const Accumulators& each) { return each.begin == begin; });
        if (found == all.end()) {
            all.push_back({begin, bytes, 0, false, 0});
            found = all.end() - 1;
        }
        if (!fenced_products_[thread])
            report(FENCE_PRODUCT, NOTHING, PRODUCT, thread, thread, {}, place);
        else if (found->touched)
            report(FENCE_PRODUCT, LOAD, PRODUCT, thread, thread, {nullptr, 0, found->counter}, place);
        *found = {begin, bytes, number, false, 0};
    }

    void touch_accumulators(const char* address, std::size_t bytes, Deed deed, const void* return_address)
    {
        const unsigned thread = me();
        for (Accumulators& each : accumulators_[thread]) {
            if (address + bytes <= each.begin || address >= each.begin + each.bytes) continue;
            const GroupedProduct& product = products_[each.product - 1];
            const Place place{nullptr, 0, counter(return_address)};
            if (product.group >= products_complete_[thread]) {
                const bool committed = product.group < products_committed_[thread];
                report(committed ? WAIT_PRODUCT : COMMIT_PRODUCT, PRODUCT, deed, thread, thread, product.place, place);
            }
            each.touched = true;
            each.counter = std::uint32_t(place.counter);
        }
    }

    // ---- Global memory ----

    void depends(const void* where, Deed deed, const Place& place)
    {
        if (dependent_.empty() || known(me(), LAUNCHES)) return;
        const char* const address = static_cast<const char*>(where);
        for (const Extent& extent : dependent_)
            if (std::size_t(address - extent.address) < extent.bytes)
                report(WAIT_LAUNCH, NOTHING, deed, me(), me(), {}, place);
    }

    // ---- Effects ----

    void arrive_copies(unsigned thread, unsigned complete)
    {
        auto& waiting = waiting_copies_[thread];
        ++paused_;
        for (; !waiting.empty() && waiting.front().first < complete; waiting.pop_front()) waiting.front().second();
        --paused_;
    }

    void carry_out_products(unsigned group, unsigned complete)
    {
        auto& waiting = waiting_products_[group];
        for (; !waiting.empty() && waiting.front().first < complete; waiting.pop_front()) waiting.front().second();
    }

    void report(Missing missing, Deed first, Deed second, unsigned first_thread, unsigned second_thread,
                const Place& first_place, const Place& second_place)
    {
        const auto key = [](const Place& place) { return std::tuple(place.file, place.line, place.counter); };
        found_.try_emplace({missing, first, second, key(first_place), key(second_place)},
                           Row{found_.size(), missing, first, second, first_thread, second_thread, block_, first_place,
                               second_place});
    }

    const Moment moment_;
    std::minstd_rand random_;
    const std::vector<std::uint64_t> wanted_;
    const std::vector<Extent> dependent_;  // memory that launches before may still write or read
    const char* base_;

    std::uint64_t block_ = 0;
    unsigned threads_ = 0, warps_ = 0, width_ = 0, paused_ = 0;
    bool inside_ = false;
    std::uint32_t epoch_ = 0, known_good_ = 0;
    Shadow static_shared_, dynamic_shared_;

    std::vector<std::uint32_t> clocks_;   // [threads]
    std::vector<Clock> known_, fenced_;   // [threads][width], empty where nothing was learnt
    std::uint32_t all_know_[EXTRA] = {};  // since the last __syncthreads

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

    using Key = std::tuple<const char*, std::uint64_t, std::uint64_t>;
    std::map<std::tuple<unsigned, unsigned, unsigned, Key, Key>, Row> found_;
    std::vector<Row> rows_;
};

static std::optional<Watcher> watcher;  // of the launch that is watched

void some_meet(const unsigned* threads, unsigned count)
{
    if (watcher) watcher->some_meet(threads, count);
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
void phase_ends(const uint64_t* barrier)
{
    if (watcher) watcher->phase_ends(barrier);
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

// ---- What trace.h announces -----------------------------------------------------------------------------------------

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
void call() {}
void leave() {}
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

// The next launch is watched: these blocks of it, all if there are none; the memory of launches that it may overtake.
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

// What was found; its arrays stay until host_cuda_hazards_end.
HOST_CUDA_EXPORT void host_cuda_hazards_report(host_cuda::hazards::Report* report)
{
    *report = host_cuda::hazards::watcher->report();
}

HOST_CUDA_EXPORT void host_cuda_hazards_end() { host_cuda::hazards::watcher.reset(); }

#endif
