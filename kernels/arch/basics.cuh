// Instructions of every GPU that CUDA C++ does not expose: addresses, loads, atomics and barriers of a warp or block.
//
// Each is a named function with a twin of the same signature in the host executor (hopper.h); so are the functions of
// ampere.cuh, dependent_launch.cuh and hopper.cuh.
#pragma once
#include "../common/shape.cuh"

#ifndef HOST_CUDA
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ unsigned shared_address(const void* address)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(address));
}

// A load that the compiler issues here and does not sink to the first use of the value.
__device__ __forceinline__ int load_now(const int* address)
{
    int value;
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(value) : "l"(address));
    return value;
}

__device__ __forceinline__ float load_now(const float* address)
{
    float value;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(address));
    return value;
}

// The larger of two values, NaN if one of them is (max.NaN: Ampere and later).
__device__ __forceinline__ float max_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return b > a || b != b ? b : a;
#endif
}

// The same of each of two fp16 values in a word.
__device__ __forceinline__ unsigned max_nan_fp16x2(unsigned a, unsigned b)
{
#if __CUDA_ARCH__ >= 800
    unsigned larger;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    const float2 first = __half22float2(*reinterpret_cast<__half2*>(&a));
    const float2 second = __half22float2(*reinterpret_cast<__half2*>(&b));
    const __half2 larger = __floats2half2_rn(max_nan(first.x, second.x), max_nan(first.y, second.y));
    return *reinterpret_cast<const unsigned*>(&larger);
#endif
}

// Lane 0's value.  The compiler then knows it to be uniform across the warp, and keeps values computed from it in
// uniform registers.
__device__ __forceinline__ int warp_uniform(int value)
{
    return __shfl_sync(0xffffffff, value, 0);
}

// atomicInc with acquire and release semantics: counts up to `last`, then wraps to zero; returns the old value.
// Whatever this thread has written or observed is visible to every thread that increments the counter later.
__device__ __forceinline__ unsigned atomic_inc_acq_rel(unsigned* counter, unsigned last)
{
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
    return before;
}

// Waits until `threads` threads of the block, a multiple of 32, have reached the barrier of this number (1 to 15).
__device__ __forceinline__ void named_barrier(int name, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
#endif
