// Several stacks on one OS thread, and switching between them.
//
// A context is a stack that stands still.  Switching saves what the calling convention asks a function to preserve and
// goes on where the other context left off: a few nanoseconds in assembly.  Other CPUs take the C library's ucontext,
// which saves the signal mask too and needs a system call for it.
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

}  // namespace host_cuda

#else

extern "C" void host_cuda_switch(void** save_stack_pointer, void* stack_pointer);

// Ends with a jump, not a return: the CPU's return predictor would expect the caller on the stack that was left.
#ifdef __x86_64__
asm(R"(
    .text
    .p2align 4
    .globl host_cuda_switch
    .hidden host_cuda_switch
    .type host_cuda_switch, @function
host_cuda_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
    .size host_cuda_switch, .-host_cuda_switch
)");
#else
asm(R"(
    .text
    .p2align 4
    .globl host_cuda_switch
    .hidden host_cuda_switch
    .type host_cuda_switch, %function
host_cuda_switch:
    sub sp, sp, #160
    stp x29, x30, [sp]
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x29, x30, [sp]
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    mov x16, x30
    br x16
    .size host_cuda_switch, .-host_cuda_switch
)");
#endif

namespace host_cuda {

struct Context {
    void* stack_pointer;
};

// Lays out the stack as if host_cuda_switch had left it, about to go on at `start`.
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

}  // namespace host_cuda

#endif
