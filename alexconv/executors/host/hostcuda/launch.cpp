// One launch: the blocks of a grid, handed out to OS threads.  Nothing outlives it.
#include <algorithm>
#include <cstdio>
#include <system_error>
#include <thread>

#include "grid.h"
#include "worker.h"

namespace host_cuda {

#if defined(HOST_CUDA_TRACE) || defined(HOST_CUDA_HAZARDS)
constexpr bool INSTRUMENTED = true;  // with one log, of one block at a time
#else
constexpr bool INSTRUMENTED = false;
#endif

static std::uint64_t count_blocks(const Request& request)
{
    return std::uint64_t(request.grid[0]) * request.grid[1] * request.grid[2];
}

// Few enough that the workers finish together, enough that they seldom contend for the counter.
static std::uint64_t share(const Request& request)
{
    constexpr std::uint64_t shares_per_worker = 16, most = 64;
    return std::clamp<std::uint64_t>(count_blocks(request) / (shares_per_worker * request.workers), 1, most);
}

static std::vector<Thread> start_order(const Request& request)
{
    const unsigned x = request.block[0], y = request.block[1], z = request.block[2];
    std::vector<Thread> threads;
    for (unsigned i = 0; i < x * y * z; ++i) {
        const unsigned linear = request.order[i];
        threads.push_back({{linear % x, linear / x % y, linear / (x * y)}, linear});
    }
    return threads;
}

// A cluster's blocks are each a cluster by itself where one block is watched at a time.
static unsigned size_of_groups(const Request& request)
{
    if (request.cluster > 1) return INSTRUMENTED ? 0 : request.cluster;
    return request.turns ? unsigned(count_blocks(request)) : 0;
}

Grid::Grid(const char* name, Kernel kernel, Request& request)
    : name(name),
      kernel(kernel),
      request(request),
      threads(start_order(request)),
      blocks(count_blocks(request)),
      blocks_at_a_time(share(request)),
      group_size(size_of_groups(request))
{
    if (group_size)
        for (std::uint64_t i = 0; i < blocks / group_size; ++i) groups.emplace_back(*this, group_size);
}

bool Grid::take(std::uint64_t& first, std::uint64_t& last)
{
    first = next_block.fetch_add(blocks_at_a_time, std::memory_order_relaxed);
    last = std::min(first + blocks_at_a_time, blocks);
    return first < blocks;
}

bool Grid::stopping() const
{
    return failed.load(std::memory_order_relaxed) || __atomic_load_n(&request.cancelled, __ATOMIC_RELAXED);
}

void Grid::fail(const char* message)
{
    if (!failed.exchange(true)) std::snprintf(request.message, sizeof request.message, "%s: %s", name, message);
}

// ---- Blocks that are resident together ------------------------------------------------------------------------------

Group::Group(const Grid& grid, unsigned size)
    : grid_(grid), begins_(size), ended_(size), shared_(size), live_(size * unsigned(grid.threads.size()))
{
}

void Group::await_turn(std::unique_lock<std::mutex>& lock, unsigned rank)
{
    begins_[rank].wait(lock, [=, this] { return (turn_ == rank && joined_ == size()) || grid_.stopping(); });
}

void Group::join(unsigned rank, void* shared)
{
    std::unique_lock lock(mutex_);
    shared_[rank] = shared;
    if (++joined_ == size()) begins_[turn_].notify_one();
    await_turn(lock, rank);
}

// To the next block that has not ended; `mutex_` is locked.
void Group::give_turn(unsigned after)
{
    for (unsigned i = 1; i <= size(); ++i) {
        turn_ = (after + i) % size();
        if (!ended_[turn_]) break;
    }
    begins_[turn_].notify_one();
}

bool Group::end_turn(unsigned rank)
{
    std::unique_lock lock(mutex_);
    if (++fruitless_ > 2 * size()) return false;
    give_turn(rank);
    await_turn(lock, rank);
    return true;
}

void Group::leave(unsigned rank)
{
    const std::lock_guard lock(mutex_);
    fruitless_ = 0;
    ended_[rank] = true;
    give_turn(rank);
}

void Group::wake()
{
    const std::lock_guard lock(mutex_);
    for (std::condition_variable& begins : begins_) begins.notify_all();
}

void Group::end_phase()
{
    arrived_ = 0;
    ++phase_;
    progresses();
}

unsigned Group::arrive()
{
    const unsigned phase = phase_;
    if (++arrived_ == live_) end_phase();
    return phase;
}

// A barrier waits for the threads that have not exited.
void Group::thread_exits(bool arrived)
{
    arrived_ -= arrived;
    --live_;
    if (arrived_ && arrived_ == live_) end_phase();
}

// ---- Workers --------------------------------------------------------------------------------------------------------

static void work(Grid& grid, unsigned number, unsigned workers)
{
    try {
        Worker(grid, number, workers).run();
    } catch (const std::exception& error) {
        grid.fail(error.what());
        for (Group& group : grid.groups) group.wake();
    }
}

// How many OS threads run the grid.
static unsigned count_workers(const Grid& grid)
{
    const std::uint64_t most = grid.request.workers;
    if (grid.group_size) {
        const std::uint64_t groups = std::clamp<std::uint64_t>(most / grid.group_size, 1, grid.groups.size());
        return unsigned(groups) * grid.group_size;
    }
    return unsigned(std::min(most, (grid.blocks + grid.blocks_at_a_time - 1) / grid.blocks_at_a_time));
}

bool run_grid(const char* name, Kernel kernel, Request& request)
{
    Grid grid(name, kernel, request);
    if (grid.group_size > 1 && INSTRUMENTED) {
        grid.fail("this build runs a cooperative launch of one block");
        return false;
    }
    if (request.cluster > 1 && grid.blocks % request.cluster) {
        grid.fail("the grid has no whole number of clusters");
        return false;
    }
    const unsigned workers = count_workers(grid);
    std::vector<std::thread> helpers;
    try {
        while (helpers.size() + 1 < workers)
            helpers.emplace_back(work, std::ref(grid), unsigned(helpers.size() + 1), workers);
    } catch (const std::system_error&) {
        // The system gives no more threads: fewer are slower, not wrong; but resident blocks need one each.
        if (grid.group_size) {
            grid.fail("the system gives too few threads for blocks that are resident together");
            for (Group& group : grid.groups) group.wake();
        }
    }
    work(grid, 0, workers);
    for (std::thread& helper : helpers) helper.join();
    return !grid.failed;
}

bool refuse_count(const char* name, size_t parameters, Request& request)
{
    std::snprintf(request.message, sizeof request.message, "%s takes %zu arguments, not %u", name, parameters,
                  request.argument_count);
    return false;
}

bool refuse_argument(const char* name, size_t position, Request& request)
{
    std::snprintf(request.message, sizeof request.message, "%s: argument %zu has the wrong type or is too large", name,
                  position + 1);
    return false;
}

}  // namespace host_cuda
