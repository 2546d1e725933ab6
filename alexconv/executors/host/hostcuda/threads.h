// The identity of a kernel's thread, and how it waits for the other threads of its block and of its warp.
#pragma once

namespace host_cuda {

constexpr unsigned WARP = 32;               // threads of a warp
constexpr unsigned WARPGROUP = 4 * WARP;    // of four warps, the first of which has a number divisible by four
constexpr unsigned ALL_LANES = 0xffffffff;  // a mask that names the whole warp
constexpr unsigned NAMES = 16;              // of named barriers; 0 is __syncthreads

// A place in the source, for messages.
struct Site {
    const char* file;
    int line;  // 0: the place is unknown
};

// As a default argument: the place of the call.
constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

class Worker;

// What every byte of shared memory is when a block begins: a float, double or half of such bytes is a NaN.
constexpr unsigned char NOT_A_NUMBER = 0xff;

// The state of the running thread, kept up to date by the worker.
struct Running {
    uint3 thread, block, block_size, grid_size;
    unsigned linear_thread;  // x fastest, as CUDA counts threads into warps
    void* dynamic_shared;
    Worker* worker;
};

// __thread, not thread_local: the latter would check at every access whether a constructor must run first.
extern __thread Running running __attribute__((visibility("hidden")));

inline void* dynamic_shared() { return running.dynamic_shared; }
inline unsigned lane() { return running.linear_thread % WARP; }

// Waits for the threads of the block that have not exited, and counts those that arrived with a true predicate.  The
// number identifies a barrier of the source, also among several on one line.
int wait_for_block(int barrier, bool predicate, Site site);
void wait_for_block(int barrier, Site site);  // without a predicate

// What the lanes of a warp do together when they meet: the last to arrive does it for all.  `lanes` holds each lane's
// part, `present` has a bit for every lane that arrived.
using Together = void (*)(void* const* lanes, unsigned present);

// Waits for the lanes in `mask` that have not exited; `mine` is this lane's part of what they do together.
void wait_for_warp(unsigned mask, Together together, void* mine, Site site);

// The same for the threads of a warpgroup: all 128 must arrive.  `lanes` holds each thread's part.
void wait_for_warpgroup(Together together, void* mine, Site site);

// Waits for `threads` threads of the block, this one included, that name the same barrier.
void wait_at_named_barrier(int name, int threads, Site site);

// Waits until the barrier's phase (barriers.h) has another parity; phase_ends wakes the waiting threads.
void wait_for_phase(const uint64_t* barrier, unsigned parity, Site site);
void phase_ends(const uint64_t* barrier);

// Whether an address is in the running block's shared memory.  (In the build for AddressSanitizer, whose static arrays
// are not thread_local: in its dynamic shared memory.)
bool in_shared_memory(const void* address);

// Abandons the launch with a message; the other threads and blocks do not continue.
[[noreturn]] void fail(const char* what, Site site);

}  // namespace host_cuda

#define threadIdx (host_cuda::running.thread)
#define blockIdx (host_cuda::running.block)
#define blockDim (host_cuda::running.block_size)
#define gridDim (host_cuda::running.grid_size)
constexpr int warpSize = host_cuda::WARP;

#define HOST_CUDA_BARRIER(predicate) host_cuda::wait_for_block(__COUNTER__, predicate, host_cuda::here())
#define __syncthreads() host_cuda::wait_for_block(__COUNTER__, host_cuda::here())
#define __syncthreads_count(predicate) HOST_CUDA_BARRIER((predicate) != 0)
#define __syncthreads_or(predicate) (HOST_CUDA_BARRIER((predicate) != 0) != 0)
#define __syncthreads_and(predicate) (HOST_CUDA_BARRIER((predicate) == 0) == 0)
