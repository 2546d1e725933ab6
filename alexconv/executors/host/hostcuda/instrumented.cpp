// What an instrumented kernel calls: before every load and store, at atomic functions, in every function and basic block.
#if defined(HOST_CUDA_TRACE) || defined(HOST_CUDA_HAZARDS)

#include <cstdint>

#include "host_cuda.h"

#define HOST_CUDA_ACCESS(name, bytes, operation)                                                                   \
    extern "C" void __tsan_##name(void* address)                                                                   \
    {                                                                                                              \
        using namespace host_cuda::trace;                                                                          \
        access(address, bytes, operation, __builtin_return_address(0));                        \
    }
#define HOST_CUDA_ACCESSES(bytes)                                                    \
    HOST_CUDA_ACCESS(read##bytes, bytes, LOAD)                                       \
    HOST_CUDA_ACCESS(write##bytes, bytes, STORE)                                     \
    HOST_CUDA_ACCESS(unaligned_read##bytes, bytes, LOAD)                             \
    HOST_CUDA_ACCESS(unaligned_write##bytes, bytes, STORE)
HOST_CUDA_ACCESSES(1)
HOST_CUDA_ACCESSES(2)
HOST_CUDA_ACCESSES(4)
HOST_CUDA_ACCESSES(8)
HOST_CUDA_ACCESSES(16)

#define HOST_CUDA_RANGE(name, operation)                                                                           \
    extern "C" void __tsan_##name##_range(void* address, size_t bytes)                                             \
    {                                                                                                              \
        using namespace host_cuda::trace;                                                                          \
        access(address, bytes, operation, __builtin_return_address(0));                        \
    }
HOST_CUDA_RANGE(read, LOAD)
HOST_CUDA_RANGE(write, STORE)

// The loops of atomics.h load first and then exchange until it succeeds; a GPU needs one request for this, so the load
// is not counted.
#define HOST_CUDA_ATOMIC(bits, type)                                                                               \
    extern "C" type __tsan_atomic##bits##_load(const type* address, int order)                                     \
    {                                                                                                              \
        return __atomic_load_n(address, order);                                                                    \
    }                                                                                                              \
    static bool exchange(type* address, type* expected, type value, const void* return_address)                    \
    {                                                                                                              \
        using namespace host_cuda::trace;                                                                          \
        access(address, sizeof(type), ATOMIC, return_address);                                 \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);   \
    }                                                                                                              \
    extern "C" bool __tsan_atomic##bits##_compare_exchange_weak(type* address, type* expected, type value, int, int) \
    {                                                                                                              \
        return exchange(address, expected, value, __builtin_return_address(0));                                    \
    }                                                                                                              \
    extern "C" bool __tsan_atomic##bits##_compare_exchange_strong(type* address, type* expected, type value, int, int) \
    {                                                                                                              \
        return exchange(address, expected, value, __builtin_return_address(0));                                    \
    }
HOST_CUDA_ATOMIC(16, std::uint16_t)
HOST_CUDA_ATOMIC(32, std::uint32_t)
HOST_CUDA_ATOMIC(64, std::uint64_t)

extern "C" void __tsan_atomic_thread_fence(int order) { __atomic_thread_fence(order); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void* return_address)
{
    host_cuda::trace::call(return_address);
}
extern "C" void __tsan_func_exit()
{
    host_cuda::trace::leave();
}
extern "C" void __sanitizer_cov_trace_pc()
{
    host_cuda::trace::basic_block(__builtin_return_address(0));
}

#endif
