// Asynchronous copies (cp.async) and tensor-core products of a warp (mma): instructions of Ampere and later.
//
// Turing has other ones for all but tf32: loads and stores, complete when the copy is issued, and products of half the
// depth.  (PTX ISA, "Asynchronous copy", "Matrix fragments for mma.m16n8k8" and "for mma.m16n8k16".)
#pragma once
#include "basics.cuh"

#ifndef HOST_CUDA
// Asynchronous copies: each thread issues its own, commits them in groups, and waits until at most `open` of its groups
// are still in flight.

// Copies 16 bytes to shared memory, bypassing the L1 cache; writes zeros and reads nothing where `valid` is false.
__device__ __forceinline__ void copy_async_16(void* to, const void* from, bool valid)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
#else
    *static_cast<uint4*>(to) = valid ? __ldg(static_cast<const uint4*>(from)) : make_uint4(0, 0, 0, 0);
#endif
}

// Copies 4 bytes, through the L1 cache.
__device__ __forceinline__ void copy_async_4(void* to, const void* from, bool valid)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
#else
    *static_cast<unsigned*>(to) = valid ? __ldg(static_cast<const unsigned*>(from)) : 0;
#endif
}

__device__ __forceinline__ void copy_async_commit_group()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int open>
__device__ __forceinline__ void copy_async_wait_group()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
#endif
}

// Tensor-core products of a warp, with fp32 accumulators.

// d += a b: 16 x 8 fp32 += 16 x 16 fp16 times 16 x 8 fp16.
__device__ __forceinline__ void warp_mma_fp16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int half = 0; half < 2; ++half)  // of the depth
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}

// d += a b: 16 x 8 fp32 += 16 x 8 tf32 times 8 x 8 tf32.
__device__ __forceinline__ void warp_mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Rounds to the nearest tf32 number; returns its bits.
__device__ __forceinline__ unsigned to_tf32(float value)
{
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}
#endif

// Waits for all groups but the last `open`, where that is a number: at most `most`, for all if it is less.
template <int most>
__device__ __forceinline__ void copy_async_wait_all_but(int open)
{
    if (open < most)
        copy_async_wait_group<0>();
    else
        copy_async_wait_group<most>();
}
