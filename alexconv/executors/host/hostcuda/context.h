// Several stacks on one OS thread, and switching between them.
//
// A context is a suspended stack.  Switching saves the callee-saved registers and resumes the other context: a few
// nanoseconds in assembly.  Other CPUs use the C library's ucontext, which also saves the signal mask, a system call.
#pragma once

#include <cstdint>
#include <cstring>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define HOST_CUDA_UCONTEXT
#endif

#ifdef HOST_CUDA_UCONTEXT

#include <ucontext.h>

namespace host_cuda {

using Context = ucontext_t;

inline void prepare(Context& context, char* stack, std::size_t bytes, void (*start)())
{
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, start, 0);
}

inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

inline void prefetch(const Context&) {}

}  // namespace host_cuda

#else

extern "C" void host_cuda_switch(void** save_stack_pointer, void* stack_pointer);  // context.cpp

namespace host_cuda {

struct Context {
    void* stack_pointer;
};

// Lays out the stack as if host_cuda_switch had left it, about to resume at `start`.
inline void prepare(Context& context, char* stack, std::size_t bytes, void (*start)())
{
    constexpr std::uintptr_t stack_alignment = 16;
    const auto top = reinterpret_cast<std::uintptr_t>(stack + bytes) & ~(stack_alignment - 1);
#ifdef __x86_64__
    constexpr int slots = 8, resume_address = 6;  // six registers, `start`, and no address to return to
#else
    constexpr int slots = 20, resume_address = 1;
#endif
    void** frame = reinterpret_cast<void**>(top) - slots;
    std::memset(frame, 0, slots * sizeof *frame);
    frame[resume_address] = reinterpret_cast<void*>(start);
    context.stack_pointer = frame;
}

inline void switch_context(Context& from, Context& to) { host_cuda_switch(&from.stack_pointer, to.stack_pointer); }

// Prefetches the innermost frames of the context that runs next: many others ran since its turn.
inline void prefetch(const Context& context)
{
    constexpr std::size_t line = 64, lines = 4;
    for (std::size_t i = 0; i < lines; ++i) __builtin_prefetch(static_cast<const char*>(context.stack_pointer) + i * line);
}

}  // namespace host_cuda

#endif
