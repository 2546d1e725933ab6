// Reports stack switches to AddressSanitizer; does nothing in the other builds.
#pragma once

#include <cstddef>

#ifdef HOST_CUDA_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace host_cuda {

struct Stack {
    char* bottom = nullptr;
    std::size_t bytes = 0;
};

namespace asan {

#ifdef HOST_CUDA_ASAN

Stack own_stack();  // of the calling OS thread

// Before and after every switch between stacks; the ticket of one goes to the other when the stack is entered again.
inline void* leaving(const Stack& next)
{
    void* ticket;
    __sanitizer_start_switch_fiber(&ticket, next.bottom, next.bytes);
    return ticket;
}
inline void arrived(void* ticket) { __sanitizer_finish_switch_fiber(ticket, nullptr, nullptr); }

// A stack goes out of use: its red zones must not stay poisoned for the next owner of the memory.
inline void forget(const Stack& stack) { __asan_unpoison_memory_region(stack.bottom, stack.bytes); }

#else

inline Stack own_stack() { return {}; }
inline void* leaving(const Stack&) { return nullptr; }
inline void arrived(void*) {}
inline void forget(const Stack&) {}

#endif

}  // namespace asan
}  // namespace host_cuda
