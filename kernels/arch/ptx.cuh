// The PTX instructions that CUDA C++ has no words for, as small named functions.
//
// From Ampere on: asynchronous copies (cp.async), tensor-core products of a warp (mma).
// From Hopper on: barriers that count bytes (mbarrier), the copy engine (TMA), products of a warpgroup (wgmma),
// launches that overlap (griddepcontrol).
// The host executor's twins of these functions are in its hopper.h; signatures are the same.
// (PTX ISA, sections "Asynchronous copy", "Matrix fragments for mma", "mbarrier", "Tensor", "Asynchronous warpgroup
// level matrix instructions", "griddepcontrol".)
#pragma once
#include "../common/shape.cuh"

#ifndef HOST_CUDA
#include <cuda_fp16.h>
#include <stdint.h>

using Barrier = uint64_t;  // in shared memory

// What TMA knows of an array: made by the host, 128 bytes that mean nothing here.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

__device__ __forceinline__ unsigned shared_address(const void* address)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(address));
}

// Loads here and now: the compiler does not put it off until the value is needed.
__device__ __forceinline__ int load_early(const int* address)
{
    int value;
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(value) : "l"(address));
    return value;
}

// Asynchronous copies: each thread starts its own, closes groups of them, and waits until at most so many are open.

// Copies 16 bytes into shared memory; where `valid` is false writes zeros and does not read.
__device__ __forceinline__ void copy_async_16(void* to, const void* from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

// Copies 4 bytes, through the L1 cache.
__device__ __forceinline__ void copy_async_4(void* to, const void* from, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_async_close_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int open>
__device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

// The first lane's value, of which the compiler then knows that the whole warp has it: addresses made from it are
// computed once for the warp.
__device__ __forceinline__ int same_in_warp(int value)
{
    return __shfl_sync(0xffffffff, value, 0);
}

// Counts up to `last`, then starts again from zero; returns what was there before.  What this thread has written, or
// knows to be written, is seen by whoever counts after it.
__device__ __forceinline__ unsigned count_in_order(unsigned* counter, unsigned last)
{
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
    return before;
}

// Launches that overlap (from Hopper on; before, a launch follows the last one's end).

// The next launch on the stream may start, if it was asked to start early.
__device__ __forceinline__ void let_next_launch_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the launches before this one have ended and what they wrote is seen, in case this one started early.
__device__ __forceinline__ void wait_for_launches_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Tensor-core products of a warp.

// d += a b: 16 x 8 floats += 16 x 16 halves times 16 x 8 halves.
__device__ __forceinline__ void multiply_half(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b: 16 x 8 floats += 16 x 8 tf32 numbers times 8 x 8 tf32 numbers.
__device__ __forceinline__ void multiply_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The nearest tf32 number, as bits.
__device__ __forceinline__ unsigned to_tf32(float value)
{
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}

// Barriers that count arrivals and bytes.  A phase ends when both are complete; phases have parity 0, 1, 0, ...

__device__ __forceinline__ void barrier_init(Barrier* barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives and announces bytes that the copy engine will bring in this phase.
__device__ __forceinline__ void barrier_arrive_expecting(Barrier* barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity has ended.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, unsigned parity)
{
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 ended, [%0], %1;\n"
        "@ended bra done;\n"
        "bra again;\n"
        "done:\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Waits for so many threads of the block, a multiple of 32, that name the same barrier (1 to 15).
__device__ __forceinline__ void named_barrier(int name, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// The copy engine (TMA).  One thread starts a copy; its bytes count at the barrier.

// Brings the box of the map at these coordinates, innermost first.
__device__ __forceinline__ void load_box(void* to, const TensorMap* map, Barrier* barrier, int i0, int i1, int i2)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(i0), "r"(i1), "r"(i2)
        : "memory");
}

// Brings a column of an im2col map: channels from `channel` on of the map's number of output pixels, which follow each
// other along w, h, n from (w, h, n) on, each shifted by (dw, dh), the place in the filter.
__device__ __forceinline__ void load_im2col(void* to, const TensorMap* map, Barrier* barrier, int channel, int w, int h,
                                            int n, unsigned short dw, unsigned short dh)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(channel), "r"(w), "r"(h), "r"(n), "h"(dw), "h"(dh)
        : "memory");
}

// Brings neighbouring bytes, a multiple of 16, between addresses that are multiples of 16.
__device__ __forceinline__ void load_bytes(void* to, const void* from, Barrier* barrier, unsigned bytes)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

// Products of a warpgroup: 128 threads, whose first warp's number is a multiple of four.
//
// Both factors lie in shared memory.  Swizzled, a factor has rows of 128 bytes (64 halves) of which eight make an atom
// of 1024 bytes, aligned to 1024, in which the 16-byte chunks of row i are permuted by exclusive-or with i: TMA's
// 128-byte swizzle.  The permutation goes by the address, so a factor may begin with any row of an atom.

using MatrixDescriptor = uint64_t;

constexpr int ROW_BYTES = 128, ATOM_BYTES = 1024;

// `rows` points to the first row, or 32 bytes further for each 16 halves of the rows that are to be skipped.
__device__ __forceinline__ MatrixDescriptor describe_matrix(const void* rows)
{
    constexpr uint64_t UNIT = 16, SWIZZLE_128 = 1;
    const uint64_t start = (shared_address(rows) & 0x3ffff) / UNIT;
    return start | 1ull << 16 | (ATOM_BYTES / UNIT) << 32 | SWIZZLE_128 << 62;
}

// A factor in planes, without swizzle: rows of 16 bytes (8 halves) that follow each other, and the next 8 halves of all
// of them `distance` bytes further, a multiple of 16.  It may begin with any row.
__device__ __forceinline__ MatrixDescriptor describe_planes(const void* rows, int distance)
{
    constexpr uint64_t UNIT = 16, EIGHT_ROWS = 8 * 16;
    const uint64_t start = (shared_address(rows) & 0x3ffff) / UNIT;
    return start | uint64_t(distance / UNIT) << 16 | (EIGHT_ROWS / UNIT) << 32;
}

// The same matrix so many bytes further, a multiple of 16: one addition, where describing it anew takes several.
__device__ __forceinline__ MatrixDescriptor shift_matrix(MatrixDescriptor matrix, int bytes)
{
    constexpr int UNIT = 16;
    return matrix >> 32 << 32 | (unsigned(matrix) + bytes / UNIT);
}

// Before the first product of a group: registers that were written are seen.
__device__ __forceinline__ void warpgroup_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void warpgroup_close_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int open>
__device__ __forceinline__ void warpgroup_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(open) : "memory");
}

#include "wgmma.cuh"

// Registers per thread of this warpgroup from here on, a multiple of 8.
template <int registers>
__device__ __forceinline__ void warpgroup_take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void warpgroup_give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
#endif
