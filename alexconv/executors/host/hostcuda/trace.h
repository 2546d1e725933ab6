// The build for tracing: which loads and stores the lanes of a warp do together, and which of them race.
//
// The kernel is compiled with g++'s ThreadSanitizer and coverage instrumentation, whose library is not linked: the
// calls before every load, every store and in every basic block arrive in trace.cpp.  There is one worker, and only the
// requested blocks run.  In the other builds nothing of this is compiled, except in the one for async hazards
// (hazards.h), which takes the same reports in hazards.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "threads.h"

namespace host_cuda {

struct Extent {
    const char* address;
    std::size_t bytes;
};

namespace trace {

#if defined(HOST_CUDA_TRACE) || defined(HOST_CUDA_HAZARDS)

enum Operation : std::uint8_t { LOAD, STORE, ATOMIC };

// From the instrumented kernel (instrumented.cpp).
void access(const void* address, std::size_t bytes, Operation operation, const void* return_address);
void call(const void* return_address);
void leave();
void basic_block(const void* return_address);

bool skips(std::uint64_t block);
void block_begins(std::uint64_t block, unsigned threads, Extent static_shared, Extent dynamic_shared);
void block_ends();
void block_meets();  // at __syncthreads
void some_meet();    // at any other barrier: what all threads did is taken to happen before what follows
void acquires();     // at an atomic function that acquires: earlier blocks are taken to happen before what follows
void warp_meets(unsigned warp, unsigned present, bool all, bool orders_memory);  // at __syncwarp, a shuffle, a vote
void warp_exits(unsigned warp);

// While it lives, nothing is recorded: what the last lane does for its whole warp is not the kernel's work.
struct Pause {
    Pause();
    ~Pause();
};

#else

inline bool skips(std::uint64_t) { return false; }
inline void block_begins(std::uint64_t, unsigned, Extent, Extent) {}
inline void block_ends() {}
inline void block_meets() {}
inline void some_meet() {}
inline void acquires() {}
inline void warp_meets(unsigned, unsigned, bool, bool) {}
inline void warp_exits(unsigned) {}
struct Pause {
    ~Pause() {}
};

#endif

}  // namespace trace
}  // namespace host_cuda
