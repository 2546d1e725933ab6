// What the instrumented kernel reports, replayed warp by warp.
//
// The threads of a block run one after the other, so the events of each are kept until its warp meets, and then
// replayed in lockstep: of the lanes deepest in calls those with the lowest program counter go next, and lanes at the
// same one go together.  That is where a warp's lanes reconverge after a branch, because compilers put what follows a
// branch after it.  (Collange, "Stack-less SIMT reconvergence at low cost", 2011.)  What lanes load or store together
// is one request.
//
// A race is two accesses to one byte by two threads, a store among them, with no barrier in between: the vector clocks
// of FastTrack (Flanagan and Freund, PLDI 2009), where a block's barrier needs one number for all its threads, and a
// clock per pair of lanes is left for the barriers of a warp.  It does not matter in which order the threads ran here.
// Barriers of some of the block's threads (mbarrier, named barriers, warpgroups) count as barriers of the whole block,
// so some races that they do not prevent are missed, depending on the order.  Likewise atomic functions that acquire,
// for what earlier blocks did.  Atomic functions race with nothing.
#ifdef HOST_CUDA_TRACE

#include "trace.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "host_cuda.h"

namespace host_cuda::trace {

enum Space : std::uint8_t { CODE, GLOBAL, SHARED };  // CODE: no access, a basic block begins

constexpr unsigned SECTOR = 32;               // bytes that the caches and the device memory move
constexpr unsigned BANKS = 32, BANK_WORD = 4;  // of shared memory: a wavefront takes one word from each

struct Event {
    std::uintptr_t address;
    std::uint32_t counter;  // the program counter, from the start of the library
    std::uint32_t bytes;
    std::uint16_t depth;  // of calls
    Space space : 4;
    Operation operation : 4;
};

// ---- Races ----------------------------------------------------------------------------------------------------------

// When an access happened.  Epochs count the barriers of all blocks, stamps those of a warp in its block.
struct Access {
    std::uint32_t counter, epoch, thread, stamp;
};

// What is kept of the accesses to a byte: the last store, and enough loads that a store which races with any load of
// its epoch races with one of these.
struct Byte {
    Access store, load;
    Access load_of_other_lane;  // of the warp of `load`
    Access load_of_other_warp;
    Access load_of_other_block;  // that ran before
};

// Epoch zero: no access.  Untouched memory costs nothing.
class Shadow {
public:
    explicit Shadow(Extent extent) : extent_(extent)
    {
        if (!extent.bytes) return;
        void* memory = mmap(nullptr, extent.bytes * sizeof(Byte), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        bytes_ = static_cast<Byte*>(memory);
    }
    ~Shadow()
    {
        if (bytes_) munmap(bytes_, extent_.bytes * sizeof(Byte));
    }
    Shadow(const Shadow&) = delete;

    bool holds(const char* address) const { return std::size_t(address - extent_.address) < extent_.bytes; }
    bool same(Extent other) const { return other.address == extent_.address && other.bytes == extent_.bytes; }
    Byte& operator[](const char* address) { return bytes_[address - extent_.address]; }

private:
    const Extent extent_;
    Byte* bytes_ = nullptr;
};

// Up to which of its warp's barriers a lane knows what another lane did before.
struct Clocks {
    std::uint32_t barriers = 0;
    std::uint32_t known[WARP][WARP] = {};  // [lane that knows][lane that is known]

    void meet(unsigned present)
    {
        ++barriers;
        std::uint32_t joined[WARP] = {};
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (present >> lane & 1)
                for (unsigned other = 0; other < WARP; ++other) joined[other] = std::max(joined[other], known[lane][other]);
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (present >> lane & 1) joined[lane] = barriers;
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (present >> lane & 1) std::copy(joined, joined + WARP, known[lane]);
    }
};

// ---- What goes to Python: each a row of unsigned 64-bit numbers, as trace.py reads them -----------------------------

struct Site {
    std::uint64_t counter, space, operation, bytes;
    std::uint64_t requests, lanes;
    std::uint64_t transactions;  // sectors of global memory, wavefronts of shared memory
    std::uint64_t useful;        // bytes of global memory that lanes requested, each counted once per request
};

struct Race {
    std::uint64_t space, first_counter, second_counter, first_operation, second_operation;
    std::uint64_t first_thread, second_thread, block, between_blocks;
};

struct Report {
    std::uint64_t blocks, issued, issued_lanes;  // blocks traced, basic blocks that warps and that lanes went through
    std::uint64_t site_count, race_count;
    const Site* sites;
    const Race* races;
};

// ---- The tracer -----------------------------------------------------------------------------------------------------

class Tracer {
public:
    Tracer(const Extent* buffers, unsigned buffer_count, const std::uint64_t* blocks, unsigned block_count)
        : wanted_(blocks, blocks + block_count)
    {
        for (unsigned i = 0; i < buffer_count; ++i) global_.emplace_back(buffers[i]);
        Dl_info library;
        dladdr(reinterpret_cast<void*>(&run_grid), &library);
        base_ = static_cast<const char*>(library.dli_fbase);
    }

    bool skips(std::uint64_t block) const { return std::find(wanted_.begin(), wanted_.end(), block) == wanted_.end(); }

    void block_begins(std::uint64_t block, unsigned threads, Extent static_shared, Extent dynamic_shared)
    {
        block_ = block;
        block_epoch_ = ++epoch_;
        acquired_ = false;
        for (auto [shadow, extent] : {std::pair{&static_shared_, static_shared}, {&dynamic_shared_, dynamic_shared}})
            if (!*shadow || !(*shadow)->same(extent)) shadow->emplace(extent);
        events_.resize(threads);
        depths_.assign(threads, 0);
        clocks_.assign((threads + WARP - 1) / WARP, {});
        inside_ = true;
        ++report_.blocks;
    }

    void block_ends() { inside_ = false; }
    void pause() { inside_ = false; }
    void resume() { inside_ = true; }

    void block_meets()
    {
        ++epoch_;
        for (unsigned warp = 0; warp < clocks_.size(); ++warp) replay(warp);
    }

    void some_meet() { ++epoch_; }

    void acquires() { acquired_ = true; }

    void warp_meets(unsigned warp, unsigned present, bool all, bool orders_memory)
    {
        if (orders_memory) clocks_[warp].meet(present);
        if (all) replay(warp);
    }

    void replay(unsigned warp)
    {
        const unsigned first = warp * WARP, count = std::min<unsigned>(WARP, unsigned(events_.size()) - first);
        std::vector<Event>* const lanes = &events_[first];
        std::size_t done[WARP] = {};
        Event together[WARP];
        for (;;) {
            const Event* next = nullptr;
            for (unsigned lane = 0; lane < count; ++lane) {
                if (done[lane] == lanes[lane].size()) continue;
                const Event& event = lanes[lane][done[lane]];
                if (!next || event.depth > next->depth || (event.depth == next->depth && event.counter < next->counter))
                    next = &event;
            }
            if (!next) break;
            unsigned present = 0;
            for (unsigned lane = 0; lane < count; ++lane) {
                if (done[lane] == lanes[lane].size()) continue;
                const Event& event = lanes[lane][done[lane]];
                if (event.depth != next->depth || event.counter != next->counter) continue;
                together[present++] = event;
                ++done[lane];
            }
            issue(together, present);
        }
        for (unsigned lane = 0; lane < count; ++lane) lanes[lane].clear();
    }

    void basic_block(const void* return_address)
    {
        if (inside_) keep({0, counter(return_address), 0, depths_[running.linear_thread], CODE, LOAD});
    }

    void access(const void* where, std::size_t bytes, Operation operation, const void* return_address)
    {
        if (!inside_) return;
        const char* const address = static_cast<const char*>(where);
        Space space = SHARED;
        Shadow* shadow = shared_at(address);
        if (!shadow) {
            space = GLOBAL;
            shadow = global_at(address);
        }
        if (!shadow) return;  // a local variable, a constant
        const unsigned thread = running.linear_thread;
        const Access now{counter(return_address), epoch_, thread, clocks_[thread / WARP].barriers};
        keep({reinterpret_cast<std::uintptr_t>(address), now.counter, std::uint32_t(bytes), depths_[thread], space, operation});
        if (operation == ATOMIC) return;
        for (std::size_t i = 0; i < bytes; ++i) check((*shadow)[address + i], now, operation, space);
    }

    void call()
    {
        if (inside_) ++depths_[running.linear_thread];
    }

    void leave()
    {
        if (inside_) --depths_[running.linear_thread];
    }

    Report report()
    {
        for (auto& [key, site] : sites_) site_rows_.push_back(site);
        for (auto& [key, race] : races_) race_rows_.push_back(race);
        report_.site_count = site_rows_.size();
        report_.race_count = race_rows_.size();
        report_.sites = site_rows_.data();
        report_.races = race_rows_.data();
        return report_;
    }

private:
    // The call before the return address is what belongs to the source line.
    std::uint32_t counter(const void* return_address) const
    {
        return std::uint32_t(static_cast<const char*>(return_address) - 1 - base_);
    }

    void keep(const Event& event) { events_[running.linear_thread].push_back(event); }

    Shadow* shared_at(const char* address)
    {
        if (dynamic_shared_->holds(address)) return &*dynamic_shared_;
        const bool own = std::size_t(address - reinterpret_cast<const char*>(&running)) < sizeof running;
        return static_shared_->holds(address) && !own ? &*static_shared_ : nullptr;
    }

    Shadow* global_at(const char* address)
    {
        for (Shadow& shadow : global_)
            if (shadow.holds(address)) return &shadow;
        return nullptr;
    }

    void check(Byte& byte, const Access& now, Operation operation, Space space)
    {
        against(byte.store, STORE, now, operation, space);
        if (operation == STORE) {
            for (const Access* load :
                 {&byte.load, &byte.load_of_other_lane, &byte.load_of_other_warp, &byte.load_of_other_block})
                against(*load, LOAD, now, operation, space);
            byte.store = now;
            return;
        }
        const bool same_block = byte.load.epoch >= block_epoch_;
        if (!same_block) byte.load_of_other_block = byte.load;
        if (!same_block || byte.load.thread / WARP != now.thread / WARP) {
            byte.load_of_other_warp = byte.load;
            byte.load_of_other_lane = {};
        } else if (byte.load.thread != now.thread) {
            byte.load_of_other_lane = byte.load;
        }
        byte.load = now;
    }

    void against(const Access& before, Operation operation_before, const Access& now, Operation operation, Space space)
    {
        const bool between_blocks = before.epoch < block_epoch_;
        if (!before.epoch || (between_blocks && (space == SHARED || acquired_))) return;
        if (!between_blocks && (before.thread == now.thread || ordered(before, now))) return;
        races_.try_emplace({before.counter, now.counter},
                           Race{space, before.counter, now.counter, operation_before, operation, before.thread, now.thread,
                                block_, between_blocks});
    }

    bool ordered(const Access& before, const Access& now) const
    {
        if (before.epoch != now.epoch) return true;
        if (before.thread / WARP != now.thread / WARP) return false;
        return clocks_[now.thread / WARP].known[now.thread % WARP][before.thread % WARP] > before.stamp;
    }

    void issue(const Event* lanes, unsigned present)
    {
        const Event& first = lanes[0];
        if (first.space == CODE) {
            ++report_.issued;
            report_.issued_lanes += present;
            return;
        }
        Site& site = sites_[{first.counter, first.space}];
        site.counter = first.counter;
        site.space = first.space;
        site.operation = first.operation;
        site.bytes = first.bytes;
        ++site.requests;
        site.lanes += present;
        if (first.space == GLOBAL) {
            site.transactions += distinct(lanes, present, SECTOR);
            site.useful += distinct(lanes, present, 1);
        } else {
            site.transactions += wavefronts(lanes, present);
        }
    }

    // The number of `unit`-byte pieces of memory that the lanes touch.
    std::uint64_t distinct(const Event* lanes, unsigned present, unsigned unit)
    {
        collect(lanes, present, unit);
        return pieces_.size();
    }

    // A bank serves one word at a time, to all lanes that want it.
    std::uint64_t wavefronts(const Event* lanes, unsigned present)
    {
        collect(lanes, present, BANK_WORD);
        unsigned words[BANKS] = {};
        for (const std::uintptr_t word : pieces_) ++words[word % BANKS];
        return *std::max_element(words, words + BANKS);
    }

    void collect(const Event* lanes, unsigned present, unsigned unit)
    {
        pieces_.clear();
        for (unsigned i = 0; i < present; ++i) {
            const std::uintptr_t last = (lanes[i].address + lanes[i].bytes - 1) / unit;
            for (std::uintptr_t piece = lanes[i].address / unit; piece <= last; ++piece) pieces_.push_back(piece);
        }
        std::sort(pieces_.begin(), pieces_.end());
        pieces_.erase(std::unique(pieces_.begin(), pieces_.end()), pieces_.end());
    }

    const std::vector<std::uint64_t> wanted_;
    const char* base_;
    std::deque<Shadow> global_;
    std::optional<Shadow> static_shared_, dynamic_shared_;
    std::uint64_t block_ = 0;
    std::uint32_t epoch_ = 0, block_epoch_ = 0;
    bool acquired_ = false;  // by a thread of the block
    bool inside_ = false;
    std::vector<std::vector<Event>> events_;  // [threads]
    std::vector<std::uint16_t> depths_;       // [threads]
    std::vector<Clocks> clocks_;              // [warps]
    std::vector<std::uintptr_t> pieces_;      // of memory that a request touches
    std::map<std::pair<std::uint32_t, Space>, Site> sites_;                  // by program counter
    std::map<std::pair<std::uint32_t, std::uint32_t>, Race> races_;  // by both program counters
    std::vector<Site> site_rows_;
    std::vector<Race> race_rows_;
    Report report_{};
};

static std::optional<Tracer> tracer;  // of the launch that is traced

bool skips(std::uint64_t block) { return tracer && tracer->skips(block); }
void block_begins(std::uint64_t block, unsigned threads, Extent static_shared, Extent dynamic_shared)
{
    if (tracer) tracer->block_begins(block, threads, static_shared, dynamic_shared);
}
void block_ends()
{
    if (tracer) tracer->block_ends();
}
void block_meets()
{
    if (tracer) tracer->block_meets();
}
void some_meet()
{
    if (tracer) tracer->some_meet();
}

void acquires()
{
    if (tracer) tracer->acquires();
}
void warp_meets(unsigned warp, unsigned present, bool all, bool orders_memory)
{
    if (tracer) tracer->warp_meets(warp, present, all, orders_memory);
}
void warp_exits(unsigned warp)
{
    if (tracer) tracer->replay(warp);
}

void access(const void* address, std::size_t bytes, Operation operation, const void* return_address)
{
    if (tracer) tracer->access(address, bytes, operation, return_address);
}
void call(const void*)
{
    if (tracer) tracer->call();
}
void leave()
{
    if (tracer) tracer->leave();
}
void basic_block(const void* return_address)
{
    if (tracer) tracer->basic_block(return_address);
}

Pause::Pause()
{
    if (tracer) tracer->pause();
}
Pause::~Pause()
{
    if (tracer) tracer->resume();
}

}  // namespace host_cuda::trace

// ---- Called from Python ---------------------------------------------------------------------------------------------

#define HOST_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

// Traces the next launch: these blocks of it, and these buffers as global memory.  False if memory is short.
HOST_CUDA_EXPORT bool host_cuda_trace_begin(const host_cuda::Extent* buffers, unsigned buffer_count,
                                            const std::uint64_t* blocks, unsigned block_count)
{
    using host_cuda::trace::tracer;
    try {
        tracer.emplace(buffers, buffer_count, blocks, block_count);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

// The findings; their arrays last until host_cuda_trace_end.
HOST_CUDA_EXPORT void host_cuda_trace_report(host_cuda::trace::Report* report)
{
    *report = host_cuda::trace::tracer->report();
}

HOST_CUDA_EXPORT void host_cuda_trace_end() { host_cuda::trace::tracer.reset(); }

#endif
