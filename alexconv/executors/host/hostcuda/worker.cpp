#include "worker.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "hazards.h"
#include "trace.h"

namespace host_cuda {

__thread Running running;

// ---- Memory of a worker ---------------------------------------------------------------------------------------------

Stacks::Stacks(size_t count) : bytes_(count * HOST_CUDA_STACK_BYTES)
{
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
}

Stacks::~Stacks() { munmap(memory_, bytes_); }

Stack Stacks::operator[](size_t i) const
{
    // Equal frames of different fibers would all compete for the same sets of the L1 cache: shift them.
    constexpr size_t line = 64, lines_in_page = 64;
    return {memory_ + i * HOST_CUDA_STACK_BYTES, HOST_CUDA_STACK_BYTES - i % lines_in_page * line};
}

constexpr size_t SHARED_ALIGNMENT = ATOM_BYTES;  // the largest that anything in shared memory needs

static size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

#ifdef HOST_CUDA_ASAN

DynamicShared::DynamicShared(size_t bytes) : memory_(nullptr), bytes_(bytes)
{
    if (bytes && posix_memalign(&memory_, SHARED_ALIGNMENT, bytes)) throw std::bad_alloc();
    clear();
}

DynamicShared::~DynamicShared() { std::free(memory_); }

#else

DynamicShared::DynamicShared(size_t bytes) : memory_(nullptr), bytes_(rounded_up(bytes, SHARED_ALIGNMENT))
{
    if (!bytes) return;
    constexpr size_t guard = 1 << 16;  // whole pages
    const size_t body = rounded_up(bytes_, guard);
    mapped_bytes_ = guard + body + guard;
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    char* const first = static_cast<char*>(mapped_) + guard;
    if (mprotect(first, body, PROT_READ | PROT_WRITE)) throw std::bad_alloc();
    memory_ = first + body - bytes_;
    clear();
}

DynamicShared::~DynamicShared()
{
    if (mapped_) munmap(mapped_, mapped_bytes_);
}

#endif

void DynamicShared::clear()
{
    if (memory_) std::memset(memory_, NOT_A_NUMBER, bytes_);
}

// The C library's, which makes the thread's copy of a library's variables on first use.
struct OfModule {
    size_t module, offset;
};
extern "C" void* __tls_get_addr(OfModule* place);

ThreadLocals ThreadLocals::of_this_library()
{
    struct ModuleLocals {
        size_t module, bytes;
    } locals_of_library{0, 0};
    const auto visit = [](dl_phdr_info* library, size_t, void* result) {
        const auto code = reinterpret_cast<ElfW(Addr)>(&run_grid);
        const ElfW(Phdr)* locals = nullptr;
        bool ours = false;
        for (int i = 0; i < library->dlpi_phnum; ++i) {
            const ElfW(Phdr)& part = library->dlpi_phdr[i];
            if (part.p_type == PT_TLS) locals = &part;
            if (part.p_type == PT_LOAD) ours |= code - library->dlpi_addr - part.p_vaddr < part.p_memsz;
        }
        if (ours && locals) *static_cast<ModuleLocals*>(result) = {library->dlpi_tls_modid, locals->p_memsz};
        return int(ours);
    };
    dl_iterate_phdr(visit, &locals_of_library);
    if (!locals_of_library.module) return {nullptr, 0};
    OfModule first{locals_of_library.module, 0};
    return {static_cast<char*>(__tls_get_addr(&first)), locals_of_library.bytes};
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

Worker::Worker(Grid& grid, unsigned number, unsigned workers)
    : grid_(grid),
      number_(number),
      workers_(workers),
      thread_locals_(ThreadLocals::of_this_library()),
      dynamic_shared_(grid.request.dynamic_shared),
      stacks_(grid.threads.size()),
      fibers_(grid.threads.size()),
      own_{},
      warps_((grid.threads.size() + WARP - 1) / WARP),
      warpgroups_(grid.threads.size() / WARPGROUP)
{
    own_.stack = asan::own_stack();
}

void Worker::run()
{
    if (const unsigned size = grid_.group_size) {
        rank_ = number_ % size;
        for (std::uint64_t group = number_ / size; group < grid_.groups.size(); group += workers_ / size)
            run_block(group * size + rank_, grid_.groups[group]);
    } else {
        std::uint64_t block, last;
        while (grid_.take(block, last))
            for (; block < last && !grid_.stopping(); ++block)
                if (!trace::skips(block)) run_block(block);
    }
    for (Fiber& fiber : fibers_) asan::forget(fiber.stack);
}

// Its shared memory is NaN until the block begins, and as soon as it ends: other blocks may read it only in between.
void Worker::run_block(std::uint64_t block, Group& group)
{
    group_ = &group;
    group.join(rank_, dynamic_shared_.memory());
    if (!trace::skips(block) && !grid_.stopping()) run_block(block);
    dynamic_shared_.clear();
    group.leave(rank_);
}

void Worker::run_block(std::uint64_t block)
{
    const unsigned threads = unsigned(grid_.threads.size());
    const unsigned *grid = grid_.request.grid, *size = grid_.request.block;
    clear_shared();  // before `running` is set: it lies among the thread_local variables
    const std::uint64_t row = block / grid[0];
    running_.block = {unsigned(block % grid[0]), unsigned(row % grid[1]), unsigned(row / grid[1])};
    running_.block_size = {size[0], size[1], size[2]};
    running_.grid_size = {grid[0], grid[1], grid[2]};
    running_.dynamic_shared = dynamic_shared_.memory();
    running_.worker = this;

    for (unsigned first = 0; first < threads; first += WARP)
        warps_[first / WARP].live = threads - first >= WARP ? ALL_LANES : (1u << (threads - first)) - 1;
    live_ = threads;
    started_ = fibers_used_ = 0;
    trace::block_begins(block, threads, {thread_locals_.address, thread_locals_.bytes},
                        {static_cast<char*>(dynamic_shared_.memory()), grid_.request.dynamic_shared});
    switch_to(unused_fiber());  // returns when all threads have exited
    if (!live_) hazards::block_completes();
    trace::block_ends();
}

bool Worker::in_shared_memory(const void* address) const
{
    const auto within = [=](const void* begin, size_t bytes) {
        return std::uintptr_t(address) - std::uintptr_t(begin) < bytes;
    };
    return within(dynamic_shared_.memory(), grid_.request.dynamic_shared)
#ifndef HOST_CUDA_ASAN
           || within(thread_locals_.address, thread_locals_.bytes)
#endif
        ;
}

void Worker::clear_shared()
{
#ifndef HOST_CUDA_ASAN  // there, shared memory is not thread_local
    std::memset(thread_locals_.address, NOT_A_NUMBER, thread_locals_.bytes);
#endif
    dynamic_shared_.clear();
}

// ---- Threads --------------------------------------------------------------------------------------------------------

void Worker::start_fiber()
{
    asan::arrived(nullptr);
    running.worker->run_threads();
}

// A fiber's main loop: runs threads of this block and, when it is used again, of a later one.
void Worker::run_threads()
{
    for (;;) {
        while (started_ < grid_.threads.size() && !grid_.stopping()) {
            current_->thread = grid_.threads[started_++];
            current_->at_cluster = false;
            running_.thread = current_->thread.index;
            running_.linear_thread = current_->thread.linear;
            grid_.kernel(grid_.request.arguments);
            thread_exits();
        }
        let_others_run();
    }
}

void Worker::thread_exits()
{
    Warp& warp = warp_of(current_->thread);
    warp.live &= ~(1u << lane());
    if (!warp.live) trace::warp_exits(current_->thread.linear / WARP);
    hazards::thread_exits();
    if (group_) group_->thread_exits(current_->at_cluster && !group_->ended(current_->phase));
    --live_;
    if (barrier_.arrived && barrier_.arrived == live_) open_barrier();
    const Fiber* fiber = warp.queue.first();
    while (fiber) fiber = complete_warp(warp, fiber->mask) ? warp.queue.first() : fiber->next;
}

inline void Worker::arrive(int barrier, bool predicate, Site site)
{
    if (const Fiber* other = barrier_.queue.first(); other && barrier_.number != barrier)
        give_up(current_->thread, "divergent barriers: waits at %s:%d, thread (%u,%u,%u) at %s:%d", site.file,
                site.line, other->thread.index.x, other->thread.index.y, other->thread.index.z, other->site.file,
                other->site.line);
    barrier_.number = barrier;
    barrier_.predicates += predicate;
    current_->site = site;
    barrier_.queue.push(*current_);
    if (++barrier_.arrived == live_) open_barrier();
}

int Worker::wait_for_block(int barrier, bool predicate, Site site)
{
    arrive(barrier, predicate, site);
    let_others_run();
    return barrier_.result;  // it cannot open again before this thread resumes
}

// Ends with a tail call: the thread resumes directly in the kernel, without a further return that the CPU would
// mispredict because the stacks were exchanged.
void Worker::wait_for_block(int barrier, Site site)
{
    arrive(barrier, false, site);
    let_others_run();
}

void Worker::open_barrier()
{
    barrier_.result = barrier_.predicates;
    barrier_.predicates = 0;
    barrier_.arrived = 0;
    ready_.append(barrier_.queue);
    trace::block_meets();
}

void Worker::wait_for_warp(unsigned mask, Together together, void* mine, Site site)
{
    const unsigned bit = 1u << lane();
    if (!(mask & bit)) fail("a lane calls a warp function with a mask that does not name it", site);
    Fiber& self = *current_;
    self.site = site;
    self.mask = mask;
    self.together = together;
    self.mine = mine;
    Warp& warp = warp_of(self.thread);
    warp.waiting |= bit;
    warp.queue.push(self);
    complete_warp(warp, mask);
    let_others_run();
}

// Resumes the lanes that wait with this mask if all have arrived; returns whether they had.
bool Worker::complete_warp(Warp& warp, unsigned mask)
{
    const unsigned expected = mask & warp.live;
    if (expected & ~warp.waiting) return false;

    void* lanes[WARP];
    unsigned present = 0;
    const Fiber* first = nullptr;
    for (const Fiber* fiber = warp.queue.first(); fiber; fiber = fiber->next) {
        if (fiber->mask != mask) continue;
        if (!first) first = fiber;
        if (fiber->together != first->together)
            give_up(fiber->thread, "the lanes of a warp call different functions, at %s:%d and %s:%d", fiber->site.file,
                    fiber->site.line, first->site.file, first->site.line);
        const unsigned lane = fiber->thread.linear % WARP;
        lanes[lane] = fiber->mine;
        present |= 1u << lane;
    }
    if (present != expected) return false;  // some of them wait with another mask, for now

    {
        const trace::Pause pause;
        first->together(lanes, present);
    }
    // Shuffles and votes exchange registers; only __syncwarp orders memory.
    trace::warp_meets(first->thread.linear / WARP, present, present == warp.live, first->together == nothing);
    warp.waiting &= ~present;
    Queue others;
    while (Fiber* fiber = warp.queue.pop()) (fiber->mask == mask ? ready_ : others).push(*fiber);
    warp.queue = others;
    return true;
}

// Joins a meeting; returns whether it is complete.
bool Worker::join(Meeting& meeting, Site site)
{
    current_->site = site;
    meeting.queue.push(*current_);
    return ++meeting.arrived == meeting.expected;
}

void Worker::open(Meeting& meeting, bool orders_memory)
{
    if (hazards::WATCHES && orders_memory) {
        std::vector<unsigned> threads;
        for (const Fiber* fiber = meeting.queue.first(); fiber; fiber = fiber->next)
            threads.push_back(fiber->thread.linear);
        hazards::some_meet(threads.data(), unsigned(threads.size()));
    }
    meeting.arrived = 0;
    ready_.append(meeting.queue);
    trace::some_meet();
}

void Worker::wait_for_warpgroup(Together together, void* mine, Site site)
{
    const unsigned group = current_->thread.linear / WARPGROUP;
    if (group >= warpgroups_.size()) fail("a warpgroup has 128 threads, and this block ends before", site);
    current_->together = together;
    current_->mine = mine;
    Meeting& meeting = warpgroups_[group];
    if (join(meeting, site)) {
        void* threads[WARPGROUP];
        for (const Fiber* fiber = meeting.queue.first(); fiber; fiber = fiber->next) {
            if (fiber->together != together)
                give_up(fiber->thread, "the threads of a warpgroup call different functions, at %s:%d and %s:%d",
                        fiber->site.file, fiber->site.line, site.file, site.line);
            threads[fiber->thread.linear % WARPGROUP] = fiber->mine;
        }
        {
            const trace::Pause pause;
            together(threads, ALL_LANES);
        }
        for (unsigned warp = 0; warp < WARPGROUP / WARP; ++warp)
            trace::warp_meets(group * (WARPGROUP / WARP) + warp, ALL_LANES, true, false);
        open(meeting, false);
    }
    let_others_run();
}

void Worker::wait_at_named_barrier(int name, int threads, Site site)
{
    if (name < 1 || name >= int(NAMES)) fail("a named barrier is one of 1 to 15", site);
    if (threads < 1 || unsigned(threads) % WARP || unsigned(threads) > grid_.threads.size())
        fail("a named barrier waits for whole warps of the block", site);
    Meeting& meeting = named_[name];
    if (meeting.arrived && meeting.expected != unsigned(threads)) {
        const Fiber& other = *meeting.queue.first();
        give_up(current_->thread, "named barrier %d waits for %d threads at %s:%d and for %u at %s:%d", name, threads,
                site.file, site.line, meeting.expected, other.site.file, other.site.line);
    }
    meeting.expected = unsigned(threads);
    const bool last = join(meeting, site);
    hazards::arrives_at(name, last, site);
    if (last) {
        check_whole_warps(meeting);
        open(meeting, true);
    }
    let_others_run();
}

// bar.sync is an instruction of whole warps, and counts all threads of each.
void Worker::check_whole_warps(const Meeting& meeting)
{
    std::vector<unsigned> lanes(warps_.size());
    for (const Fiber* fiber = meeting.queue.first(); fiber; fiber = fiber->next) ++lanes[fiber->thread.linear / WARP];
    for (const Fiber* fiber = meeting.queue.first(); fiber; fiber = fiber->next)
        if (const unsigned present = lanes[fiber->thread.linear / WARP]; present != WARP)
            give_up(fiber->thread, "waits at %s:%d, at a named barrier, with %u of the %u lanes of its warp",
                    fiber->site.file, fiber->site.line, present, WARP);
}

void Worker::wait_for_phase(const std::uint64_t* barrier, unsigned parity, Site site)
{
    current_->site = site;
    while (state_of(barrier, site).parity == parity) {
        Phase* mine = nullptr;
        for (Phase& phase : phases_)
            if (phase.barrier == barrier || (!mine && !phase.queue.first())) mine = &phase;
        if (!mine) mine = &phases_.emplace_back();
        mine->barrier = barrier;
        mine->queue.push(*current_);
        let_others_run();
    }
}

void Worker::phase_ends(const std::uint64_t* barrier)
{
    for (Phase& phase : phases_)
        if (phase.barrier == barrier) ready_.append(phase.queue);
    if (group_) group_->progresses();  // another block's thread may wait for it
    trace::some_meet();
}

void Worker::wait_for_arrivals(const unsigned* counter, unsigned arrivals, Site site)
{
    if (!grid_.request.turns || grid_.request.cluster) fail("a block waits for others in a launch that is not cooperative", site);
    current_->site = site;
    while (!have_arrived(counter, arrivals)) {
        polling_.push(*current_);
        let_others_run();
    }
}

void Worker::has_arrived()
{
    if (!group_) return;
    group_->progresses();
    if (grid_.request.turns == WITH_ARRIVALS) group_->end_turn(rank_);
}

void Worker::arrive_at_cluster(Site site)
{
    if (!group_) return;
    if (current_->at_cluster) fail("arrives at its cluster's barrier again before it has waited there", site);
    current_->phase = group_->arrive();
    current_->at_cluster = true;
    has_arrived();
}

// A block that runs alone is a cluster by itself, whose barrier is the block's.
void Worker::wait_for_cluster(Site site)
{
    constexpr int CLUSTER_BARRIER = -1;  // no __COUNTER__ is
    if (!group_) return wait_for_block(CLUSTER_BARRIER, site);
    if (!current_->at_cluster) fail("waits at its cluster's barrier before it has arrived there", site);
    current_->site = site;
    while (!group_->ended(current_->phase)) {
        polling_.push(*current_);
        let_others_run();
    }
    current_->at_cluster = false;
}

void* Worker::in_block(void* own, int rank, Site site)
{
    const auto offset = std::uintptr_t(own) - std::uintptr_t(dynamic_shared_.memory());
    if (offset >= grid_.request.dynamic_shared) fail("only dynamic shared memory is written in other blocks", site);
    if (!group_) return own;
    if (rank < 0 || unsigned(rank) >= group_->size()) fail("no block of the cluster has that rank", site);
    if (group_->has_left(unsigned(rank))) fail("that block of the cluster has ended", site);
    return static_cast<char*>(group_->shared(unsigned(rank))) + offset;
}

// After a turn of each of the other blocks.
void Worker::poll_again()
{
    if (!group_->end_turn(rank_)) {
        if (!polling_.first()) report_phase();
        const Fiber& waiting = *polling_.first();
        give_up(waiting.thread, "deadlock: waits at %s:%d for arrivals of blocks that all wait", waiting.site.file,
                waiting.site.line);
    }
    ready_.append(polling_);
    if (grid_.request.cluster)
        for (Phase& phase : phases_) ready_.append(phase.queue);
}

// Whether threads wait for what other blocks may do.
bool Worker::waits_for_others() const
{
    const auto waits = [](const Phase& phase) { return phase.queue.first(); };
    return polling_.first() ||
           (group_ && grid_.request.cluster && std::any_of(phases_.begin(), phases_.end(), waits));
}

// ---- Switching ------------------------------------------------------------------------------------------------------

void Worker::let_others_run()
{
    if (grid_.stopping()) abandon();
    switch_to(next_fiber());
}

Fiber& Worker::next_fiber()
{
    if (Fiber* ready = ready_.pop()) {
        if (const Fiber* next = ready_.first()) prefetch(next->context);
        return *ready;
    }
    if (started_ < grid_.threads.size()) return unused_fiber();
    while (live_ && hazards::let_one_arrive())
        if (Fiber* ready = ready_.pop()) return *ready;
    if (waits_for_others()) {
        poll_again();
        return *ready_.pop();
    }
    if (live_) report_deadlock();
    return own_;
}

// Never inlined: fibers that wait at the same kind of barrier then have the same return addresses on their stacks, and
// the CPU predicts the returns although the stacks were exchanged.
__attribute__((noinline)) void Worker::switch_to(Fiber& fiber)
{
    Fiber& from = *current_;
    if (&fiber == &from) return;
    current_ = &fiber;
    running_.thread = fiber.thread.index;
    running_.linear_thread = fiber.thread.linear;
    void* ticket = asan::leaving(fiber.stack);
    switch_context(from.context, fiber.context);
    asan::arrived(ticket);
}

Fiber& Worker::unused_fiber()
{
    Fiber& fiber = fibers_[fibers_used_];
    if (!fiber.prepared) {
        fiber.stack = stacks_[fibers_used_];
        prepare(fiber.context, fiber.stack.bottom, fiber.stack.bytes, start_fiber);
        fiber.prepared = true;
    }
    ++fibers_used_;
    return fiber;
}

// Abandons all fibers.  Their stacks hold nothing that needs to be destroyed.
void Worker::abandon()
{
    switch_to(own_);
    __builtin_unreachable();
}

// ---- Failures -------------------------------------------------------------------------------------------------------

void Worker::give_up(const Thread& thread, const char* format, ...)
{
    char text[sizeof grid_.request.message];
    const int used = std::snprintf(text, sizeof text, "block (%u,%u,%u), thread (%u,%u,%u): ", running_.block.x,
                                   running_.block.y, running_.block.z, thread.index.x, thread.index.y, thread.index.z);
    std::va_list values;
    va_start(values, format);
    std::vsnprintf(text + used, sizeof text - size_t(used), format, values);
    va_end(values);
    grid_.fail(text);
    abandon();
}

void Worker::fail(const char* what, Site site)
{
    if (!site.line) give_up(current_->thread, "%s", what);
    give_up(current_->thread, "%s, at %s:%d", what, site.file, site.line);
}

// The fiber of a thread that has started and not exited.
Fiber& Worker::fiber_of(unsigned linear_thread)
{
    Fiber* fiber = fibers_.data();
    while (fiber->thread.linear != linear_thread) ++fiber;
    return *fiber;
}

// Fails the launch if a thread waits for a phase of a barrier.  One that lacks only bytes explains the others.
void Worker::report_phase()
{
    for (const bool lacks_bytes : {true, false})
        for (const Phase& phase : phases_) {
            const Fiber* const waiting = phase.queue.first();
            if (!waiting) continue;
            const BarrierState state = state_of(phase.barrier, waiting->site);
            if (lacks_bytes && (state.pending || !state.bytes)) continue;
            char announced[256];
            hazards::explain(phase.barrier, announced, sizeof announced);
            give_up(waiting->thread,
                    "deadlock: waits at %s:%d for a barrier's phase, which lacks %u of %u arrivals and %d bytes%s",
                    waiting->site.file, waiting->site.line, unsigned(state.pending), unsigned(state.expected),
                    int(state.bytes), announced);
        }
}

// Fails the launch if a thread waits for a warpgroup or at a named barrier.
void Worker::report_meeting()
{
    const auto report = [this](const Meeting& meeting, const char* what) {
        if (!meeting.arrived) return;
        const Fiber& waiting = *meeting.queue.first();
        give_up(waiting.thread, "deadlock: waits at %s:%d for %u more threads %s", waiting.site.file, waiting.site.line,
                meeting.expected - meeting.arrived, what);
    };
    for (const Meeting& meeting : named_) report(meeting, "at a named barrier");
    for (const Meeting& meeting : warpgroups_) report(meeting, "of its warpgroup");
}

// All threads wait.  Reports first the wait that explains the others.  If all wait for their block or their warp, some
// wait in a warp, else the block's barrier would have opened; names one, and one it waits for.
void Worker::report_deadlock()
{
    report_phase();
    report_meeting();
    const Fiber* waiting = nullptr;
    for (const Warp& warp : warps_)
        if (!waiting) waiting = warp.queue.first();
    const Warp& warp = warp_of(waiting->thread);
    unsigned missing = waiting->mask & warp.live;
    for (const Fiber* fiber = warp.queue.first(); fiber; fiber = fiber->next)
        if (fiber->mask == waiting->mask) missing &= ~(1u << fiber->thread.linear % WARP);
    const unsigned lane = unsigned(__builtin_ctz(missing));
    const Fiber& other = fiber_of(waiting->thread.linear / WARP * WARP + lane);
    give_up(waiting->thread, "deadlock: waits at %s:%d for lane %u of its warp, which waits at %s:%d",
            waiting->site.file, waiting->site.line, lane, other.site.file, other.site.line);
}

int wait_for_block(int barrier, bool predicate, Site site)
{
    return running.worker->wait_for_block(barrier, predicate, site);
}

void wait_for_block(int barrier, Site site) { running.worker->wait_for_block(barrier, site); }

void wait_for_warp(unsigned mask, Together together, void* mine, Site site)
{
    running.worker->wait_for_warp(mask, together, mine, site);
}

void wait_for_warpgroup(Together together, void* mine, Site site)
{
    running.worker->wait_for_warpgroup(together, mine, site);
}

void wait_at_named_barrier(int name, int threads, Site site)
{
    running.worker->wait_at_named_barrier(name, threads, site);
}

void wait_for_phase(const uint64_t* barrier, unsigned parity, Site site)
{
    running.worker->wait_for_phase(barrier, parity, site);
}

void phase_ends(const uint64_t* barrier) { running.worker->phase_ends(barrier); }

bool have_arrived(const unsigned* counter, unsigned arrivals)
{
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE) + 1 >= arrivals;
}

void wait_for_arrivals(const unsigned* counter, unsigned arrivals, Site site)
{
    running.worker->wait_for_arrivals(counter, arrivals, site);
}

void has_arrived() { running.worker->has_arrived(); }

void arrive_at_cluster(Site site) { running.worker->arrive_at_cluster(site); }

void wait_for_cluster(Site site) { running.worker->wait_for_cluster(site); }

void* in_block(void* own, int rank, Site site) { return running.worker->in_block(own, rank, site); }

bool runs_alone() { return running.worker->runs_alone(); }

bool in_shared_memory(const void* address) { return running.worker->in_shared_memory(address); }

void fail(const char* what, Site site) { running.worker->fail(what, site); }

}  // namespace host_cuda

// What <assert.h> calls, in place of the C library's: an assertion fails the launch, with its thread.  One in launch code,
// which no thread of a kernel runs, ends the process.
void __assert_fail(const char* assertion, const char* file, unsigned line, const char*) noexcept
{
    if (!host_cuda::running.worker) std::abort();
    char text[512];
    std::snprintf(text, sizeof text, "assert(%s) fails", assertion);
    host_cuda::fail(text, {file, int(line)});
}
