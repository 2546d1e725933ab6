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

struct Grid {
    Grid(const char* name, Kernel kernel, Request& request);

    // Takes the next few blocks, [first, last); false when none are left.
    bool take(std::uint64_t& first, std::uint64_t& last);

    // Whether the launch failed or was cancelled, so that all threads should stop.
    bool stopping() const;

    // Of a cooperative launch: waits for a block's turn, and ends it; false if no block gets on.
    void await_turn(std::uint64_t block);
    bool end_turn(std::uint64_t block);
    void leave(std::uint64_t block);  // when the block has ended

    // Keeps the first failure's message and stops the launch.
    void fail(const char* message);

    const char* const name;
    const Kernel kernel;
    Request& request;
    std::vector<Thread> threads;  // [threads of a block], in the order they start
    const std::uint64_t blocks, blocks_at_a_time;
    std::atomic<std::uint64_t> next_block{0};
    std::atomic<bool> failed{false};
    unsigned fruitless = 0;  // turns in a row without an arrival

private:
    void give_turn(std::uint64_t after);

    std::mutex mutex_;
    std::deque<std::condition_variable> begins_;  // [blocks of a cooperative launch]
    std::vector<bool> ended_;                     // likewise
    std::uint64_t turn_ = 0;
};

}  // namespace host_cuda
