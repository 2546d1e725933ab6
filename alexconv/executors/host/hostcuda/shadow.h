// What the build for async hazards tracks in a block: accesses to shared memory, copies, products, barriers, clocks.
#pragma once

#ifdef HOST_CUDA_HAZARDS

#include <algorithm>
#include <cstdint>
#include <vector>

#include "host_cuda.h"

namespace host_cuda::hazards {

using trace::Operation;

enum Moment : unsigned { EARLIEST, LATEST, RANDOM };

// The two sides of a hazard, and what is missing between them: the numbers that checking/hazards.py reads.
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
    INITIAL_VALUE,   // of a local variable
};

// A place in the source: a file and a line, or the program counter of an instruction.
struct Place {
    const char* file = nullptr;
    std::uint64_t line = 0, counter = 0;
};

inline Place place_of(Site site) { return {site.file, std::uint64_t(site.line), 0}; }

constexpr unsigned CALLERS = 8;  // innermost calls that a report keeps

struct Row {
    std::uint64_t order;  // of discovery
    std::uint64_t missing, first, second, first_thread, second_thread, block;
    Place first_place, second_place;
    std::uint64_t callers[CALLERS];  // program counters of the calls around the second, the innermost first
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
    std::uint8_t bytes = 0;  // a bit each
    bool copy = false;       // by cp.async
};

// The last store to a word, that before it to other bytes of the word, and which warps have loaded it since, a bit each.
struct Cell {
    static constexpr unsigned ALL = (1u << WORD) - 1;

    Mark store, store_of_other_bytes;
    std::uint32_t loading_warps = 0;
};

// A warp's last load of a word, and the last of another of its lanes.
struct Loads {
    Mark last, of_other_lane;
};

// Of 16 bytes: the last TMA copy to them, counted from one, and which of them anything has written, a bit each.
struct ChunkCell {
    static constexpr unsigned ALL = (1u << CHUNK) - 1;

    std::uint32_t bulk_copy = 0;
    unsigned written = 0;
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

inline void join(Clock& into, const std::uint32_t* other)
{
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

struct BarrierSlot {
    std::uint32_t phases = 0, waited = 0;  // completed; of them when a thread last waited
    Mark init;
    Place init_place;
    Clock arrived, completed;                // clocks of the arrived threads, of those in completed phases
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
        loads_.resize(chunks_.size() * WORDS * warps);
    }
    bool holds(std::uintptr_t address) const { return address - first_ < bytes_; }
    std::size_t number(std::uintptr_t address) const { return (address - first_) / CHUNK; }
    ChunkCell& chunk(std::size_t number) { return chunks_[number]; }
    // The last product, counted from one, that each warp reads it for.
    std::uint32_t* product_reads(std::size_t number) { return &product_reads_[number * warps_]; }
    // Each warp's loads of a word of the chunk, valid where the word's cell says so.
    Loads* loads(std::size_t number, unsigned word) { return &loads_[(number * WORDS + word) * warps_]; }

private:
    std::uintptr_t first_ = 0;
    std::size_t bytes_ = 0;
    unsigned warps_ = 0;
    std::vector<ChunkCell> chunks_;
    std::vector<std::uint32_t> product_reads_;
    std::vector<Loads> loads_;
};

}  // namespace host_cuda::hazards

#endif
