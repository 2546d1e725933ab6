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

Grid::Grid(const char* name, Kernel kernel, Request& request)
    : name(name),
      kernel(kernel),
      request(request),
      threads(start_order(request)),
      blocks(count_blocks(request)),
      blocks_at_a_time(request.turns ? 1 : share(request)),
      begins_(request.turns ? blocks : 0),
      ended_(begins_.size())
{
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

void Grid::await_turn(std::uint64_t block)
{
    std::unique_lock lock(mutex_);
    begins_[block].wait(lock, [=, this] { return turn_ == block; });
}

// To the next block that has not ended; `mutex_` is locked.
void Grid::give_turn(std::uint64_t after)
{
    for (std::uint64_t i = 1; i <= blocks; ++i) {
        turn_ = (after + i) % blocks;
        if (!ended_[turn_]) break;
    }
    begins_[turn_].notify_one();
}

bool Grid::end_turn(std::uint64_t block)
{
    if (++fruitless > 2 * blocks) return false;
    {
        const std::lock_guard lock(mutex_);
        give_turn(block);
    }
    await_turn(block);
    return true;
}

void Grid::leave(std::uint64_t block)
{
    const std::lock_guard lock(mutex_);
    fruitless = 0;
    ended_[block] = true;
    give_turn(block);
}

static void work(Grid& grid)
{
    try {
        Worker(grid).run();
    } catch (const std::exception& error) {
        grid.fail(error.what());
    }
}

bool run_grid(const char* name, Kernel kernel, Request& request)
{
    Grid grid(name, kernel, request);
    if (request.turns && grid.blocks > 1 && INSTRUMENTED) {
        grid.fail("this build runs a cooperative launch of one block");
        return false;
    }
    const std::uint64_t useful = (grid.blocks + grid.blocks_at_a_time - 1) / grid.blocks_at_a_time;
    std::vector<std::thread> helpers;
    try {
        while (helpers.size() + 1 < (request.turns ? grid.blocks : std::min<std::uint64_t>(request.workers, useful)))
            helpers.emplace_back(work, std::ref(grid));
    } catch (const std::system_error&) {
        // The system gives no more threads: fewer are slower, not wrong; but resident blocks need one each.
        if (request.turns) grid.fail("the system gives too few threads for the blocks of a cooperative launch");
    }
    work(grid);
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
