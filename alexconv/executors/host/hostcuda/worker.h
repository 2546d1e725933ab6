// A worker runs blocks, one at a time, on the OS thread that created it.
//
// The threads of a block are fibers: each may have its own stack, and the worker switches between them.  A thread
// that never waits needs none: a fiber runs one thread after the other until one of them waits, and only then does the
// worker start another fiber.
//
// A thread that has to wait joins a queue: the block's, its warp's, its warpgroup's, a named barrier's, or that for a
// phase of a barrier in shared memory, or for threads of other blocks.  The thread that completes the meeting or the
// phase moves that queue to the end of the ready queue; the next in line runs.  If no thread is ready although some have
// not exited, that is a deadlock; where blocks are resident together, the others of the group have their turns first.
// Everything is deterministic, and follows the order in which the threads were started.
//
// A fiber never migrates to another OS thread: compilers keep addresses of thread_local variables across calls.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <vector>

#include "asan.h"
#include "context.h"
#include "grid.h"

namespace host_cuda {

struct Fiber {
    Context context;
    Stack stack;
    bool prepared = false;
    Fiber* next = nullptr;  // in its queue

    Thread thread;  // the one that it runs, or ran last
    // While it waits:
    Site site;
    unsigned mask;
    Together together;
    void* mine;
    unsigned phase;            // of its cluster's barrier, at which it has arrived
    bool at_cluster = false;  // whether it has, since it last waited
};

// First come, first served; a fiber is in one queue at most.
class Queue {
public:
    Fiber* first() const { return first_; }

    void push(Fiber& fiber)
    {
        fiber.next = nullptr;
        (first_ ? last_->next : first_) = &fiber;
        last_ = &fiber;
    }

    Fiber* pop()
    {
        Fiber* fiber = first_;
        if (fiber) first_ = fiber->next;
        return fiber;
    }

    // Moves all fibers of the other queue to this one.
    void append(Queue& other)
    {
        if (!other.first_) return;
        (first_ ? last_->next : first_) = other.first_;
        last_ = other.last_;
        other.first_ = nullptr;
    }

private:
    Fiber *first_ = nullptr, *last_ = nullptr;
};

// Memory for the stacks of a worker's fibers.  Untouched pages cost nothing.
class Stacks {
public:
    explicit Stacks(size_t count);
    ~Stacks();
    Stacks(const Stacks&) = delete;
    Stack operator[](size_t i) const;

private:
    size_t bytes_;
    char* memory_;
};

// Dynamic shared memory of a worker: exactly as long as requested where AddressSanitizer is to see its end.  Elsewhere
// it is as long as its alignment asks for, and followed by pages without access: a fault in every run.
class DynamicShared {
public:
    explicit DynamicShared(size_t bytes);
    ~DynamicShared();
    DynamicShared(const DynamicShared&) = delete;
    void* memory() const { return memory_; }
    void clear();  // to NaN

private:
    void* memory_;
    const size_t bytes_;
    void* mapped_ = nullptr;
    size_t mapped_bytes_ = 0;
};

// The calling thread's copy of this library's thread_local variables: its static shared memory, and `running`.
struct ThreadLocals {
    char* address;
    size_t bytes;

    static ThreadLocals of_this_library();
};

class Worker {
public:
    // The worker of this number among so many.
    Worker(Grid& grid, unsigned number, unsigned workers);

    // Runs blocks until none are left, or until the launch is abandoned.  Where blocks are resident together, those of
    // one rank in their groups.
    void run();

    // See threads.h.
    int wait_for_block(int barrier, bool predicate, Site site);
    void wait_for_block(int barrier, Site site);
    void wait_for_warp(unsigned mask, Together together, void* mine, Site site);
    void wait_for_warpgroup(Together together, void* mine, Site site);
    void wait_at_named_barrier(int name, int threads, Site site);
    void wait_for_phase(const std::uint64_t* barrier, unsigned parity, Site site);
    void phase_ends(const std::uint64_t* barrier);
    void wait_for_arrivals(const unsigned* counter, unsigned arrivals, Site site);
    void has_arrived();
    void arrive_at_cluster(Site site);
    void wait_for_cluster(Site site);
    void* in_block(void* own, int rank, Site site);
    bool runs_alone() const { return !group_; }
    bool in_shared_memory(const void* address) const;
    [[noreturn]] void fail(const char* what, Site site);

private:
    struct Warp {
        unsigned live = 0, waiting = 0;  // lanes, as bits
        Queue queue;
    };

    struct Barrier {
        int number;  // which of the source's, while a thread waits
        unsigned arrived = 0;
        int predicates = 0;  // true ones among the arrived
        int result = 0;      // true ones when it last opened
        Queue queue;
    };

    // Of a warpgroup, or at a named barrier.
    struct Meeting {
        unsigned expected = WARPGROUP, arrived = 0;  // threads
        Queue queue;
    };

    // The fibers that wait for a phase of one barrier.
    struct Phase {
        const std::uint64_t* barrier;
        Queue queue;
    };

    void run_block(std::uint64_t block);
    void run_block(std::uint64_t block, Group& group);
    void poll_again();
    bool waits_for_others() const;
    void clear_shared();

    static void start_fiber();
    void run_threads();
    void thread_exits();

    void arrive(int barrier, bool predicate, Site site);
    void open_barrier();
    bool complete_warp(Warp& warp, unsigned mask);
    bool join(Meeting& meeting, Site site);
    void open(Meeting& meeting, bool orders_memory);
    void check_whole_warps(const Meeting& meeting);

    void let_others_run();
    Fiber& next_fiber();
    void switch_to(Fiber& fiber);
    Fiber& unused_fiber();
    [[noreturn]] void abandon();

    Warp& warp_of(const Thread& thread) { return warps_[thread.linear / WARP]; }
    Fiber& fiber_of(unsigned linear_thread);
    [[noreturn]] void report_deadlock();
    void report_phase();
    void report_meeting();
    [[noreturn]] __attribute__((format(printf, 3, 4))) void give_up(const Thread& thread, const char* format, ...);

    Grid& grid_;
    Group* group_ = nullptr;  // of the block
    const unsigned number_, workers_;
    unsigned rank_ = 0;  // of the block in its group
    Running& running_ = running;  // looking up a thread_local variable costs a call
    const ThreadLocals thread_locals_;
    DynamicShared dynamic_shared_;
    Stacks stacks_;
    std::vector<Fiber> fibers_;  // [threads of a block]
    Fiber own_;                  // the OS thread's own stack
    std::vector<Warp> warps_;
    Barrier barrier_;
    std::vector<Meeting> warpgroups_;  // the complete ones of the block
    Meeting named_[NAMES];
    std::vector<Phase> phases_;
    Queue ready_, polling_;  // that wait for other blocks
    Fiber* current_ = &own_;
    unsigned fibers_used_ = 0;  // by the block
    unsigned started_ = 0;      // threads of the block
    unsigned live_ = 0;         // threads of the block that have not exited, started or not
};

}  // namespace host_cuda
