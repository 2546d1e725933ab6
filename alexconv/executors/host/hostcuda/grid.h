// What the workers of one launch share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "host_cuda.h"

namespace host_cuda {

// A thread's place in its block: its index, and its number with x fastest.
struct Thread {
    uint3 index;
    unsigned linear;
};

struct Grid;

// Blocks that are resident together, those of a cooperative launch or of a cluster: they take turns.
class Group {
public:
    Group(const Grid& grid, unsigned size);

    // Waits until all blocks are there and it is this one's turn; `shared`: its dynamic shared memory.
    void join(unsigned rank, void* shared);

    // Ends a block's turn and waits for its next; false if no block gets on.
    bool end_turn(unsigned rank);
    void leave(unsigned rank);  // when the block has ended
    void progresses() { fruitless_ = 0; }

    // Ends all waits of a launch that failed outside of its blocks.
    void wake();

    // The barrier of all threads.  The number of the phase in which this one arrives; whether that phase has ended.
    unsigned arrive();
    bool ended(unsigned phase) const { return phase_ != phase; }
    void thread_exits(bool arrived);  // in the present phase

    void* shared(unsigned rank) const { return shared_[rank]; }
    bool has_left(unsigned rank) const { return ended_[rank]; }
    unsigned size() const { return unsigned(shared_.size()); }

private:
    void await_turn(std::unique_lock<std::mutex>& lock, unsigned rank);
    void give_turn(unsigned after);
    void end_phase();

    const Grid& grid_;
    std::mutex mutex_;
    std::deque<std::condition_variable> begins_;  // [size]
    std::vector<bool> ended_;                     // likewise
    std::vector<void*> shared_;                   // likewise
    unsigned joined_ = 0, turn_ = 0;
    unsigned fruitless_ = 0;           // turns in a row without an arrival
    unsigned live_, arrived_ = 0, phase_ = 0;  // threads of all blocks; phases
};

struct Grid {
    Grid(const char* name, Kernel kernel, Request& request);

    // Takes the next few blocks, [first, last); false when none are left.
    bool take(std::uint64_t& first, std::uint64_t& last);

    // Whether the launch failed or was cancelled, so that all threads should stop.
    bool stopping() const;

    // Keeps the first failure's message and stops the launch.
    void fail(const char* message);

    const char* const name;
    const Kernel kernel;
    Request& request;
    std::vector<Thread> threads;  // [threads of a block], in the order they start
    const std::uint64_t blocks, blocks_at_a_time;
    std::atomic<std::uint64_t> next_block{0};
    std::atomic<bool> failed{false};
    const unsigned group_size;  // blocks that are resident together; 0: each runs alone
    std::deque<Group> groups;
};

}  // namespace host_cuda
