// Instructions of Hopper: TMA's copies, products of a warpgroup (wgmma), setmaxnreg.
//
// (PTX ISA, "Tensor", "Asynchronous warpgroup level matrix instructions", "setmaxnreg".)
#pragma once
#include "basics.cuh"
#include "dependent_launch.cuh"
#include "mbarrier.cuh"

#ifndef HOST_CUDA
// A CUtensorMap: describes an array to the TMA, encoded by the host, opaque here.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

// TMA (tensor memory accelerator).  One thread issues a copy; its bytes count at the mbarrier.

// Tile mode: copies the map's box at these coordinates, innermost first.
__device__ __forceinline__ void tma_load_box(void* to, const TensorMap* map, Mbarrier* barrier, int i0, int i1, int i2)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(i0), "r"(i1), "r"(i2)
        : "memory");
}

// im2col mode: copies the channels from `channel` on of as many output pixels as the map says.  Pixels follow each
// other along w, h, n from (w, h, n) on; each is shifted by (dw, dh), the tap's place in the filter.  `channel` is a
// multiple of 16 bytes: at another, an H200 reports an illegal instruction (the PTX ISA does not say so).
__device__ __forceinline__ void tma_load_im2col(void* to, const TensorMap* map, Mbarrier* barrier, int channel, int w,
                                                int h, int n, unsigned short dw, unsigned short dh)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(channel), "r"(w), "r"(h), "r"(n), "h"(dw), "h"(dh)
        : "memory");
}

// Bulk copy of contiguous bytes, without a map; addresses and size are multiples of 16.
__device__ __forceinline__ void tma_load_bulk(void* to, const void* from, Mbarrier* barrier, unsigned bytes)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

// wgmma: products of a warpgroup, 128 threads whose first warp's number is a multiple of four.
//
// Both operands lie in shared memory, except a of wgmma_tf32.cuh.  With the 128-byte swizzle, an operand has rows of
// 128 bytes (64 fp16 values); eight of them make an atom of 1024 bytes, aligned to 1024, in which the 16-byte chunks of
// row i are permuted by exclusive-or with i, so that a column of chunks has no bank conflicts.  The permutation depends
// on the address alone, so an operand may begin with any row of an atom.

using MatrixDescriptor = uint64_t;

constexpr int ROW_BYTES = 128, ATOM_BYTES = 1024;

// `rows` points to the first row, plus 32 bytes for each 16 values of K to skip.
__device__ __forceinline__ MatrixDescriptor swizzled_descriptor(const void* rows)
{
    constexpr uint64_t UNIT = 16, SWIZZLE_128 = 1;
    const uint64_t start = (shared_address(rows) & 0x3ffff) / UNIT;
    return start | 1ull << 16 | (ATOM_BYTES / UNIT) << 32 | SWIZZLE_128 << 62;
}

// An operand without swizzle: planes of contiguous rows of 16 bytes (8 fp16 values), the next 8 values of K of all rows
// `distance` bytes further, a multiple of 16.  It may begin with any row.
__device__ __forceinline__ MatrixDescriptor unswizzled_descriptor(const void* rows, int distance)
{
    constexpr uint64_t UNIT = 16, EIGHT_ROWS = 8 * 16;
    const uint64_t start = (shared_address(rows) & 0x3ffff) / UNIT;
    return start | uint64_t(distance / UNIT) << 16 | (EIGHT_ROWS / UNIT) << 32;
}

// The descriptor of the matrix that lies `bytes` further, a multiple of 16: one addition, where rebuilding the
// descriptor takes several instructions.
__device__ __forceinline__ MatrixDescriptor advance_descriptor(MatrixDescriptor matrix, int bytes)
{
    constexpr int UNIT = 16;
    return matrix >> 32 << 32 | (unsigned(matrix) + bytes / UNIT);
}

// Before the first wgmma of a group: orders earlier writes to the accumulators.
__device__ __forceinline__ void warpgroup_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void warpgroup_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int open>
__device__ __forceinline__ void warpgroup_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(open) : "memory");
}

#include "wgmma.cuh"

// setmaxnreg: raises, or lowers, the registers per thread of this warpgroup; a multiple of 8.
template <int registers>
__device__ __forceinline__ void warpgroup_reg_alloc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void warpgroup_reg_dealloc()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
#endif

// Compilation fails if the ladder's tensor map differs (LADDER_<MAP>_..., kernels/rung.py).  For one image: extents,
// innermost first, then the strides in bytes of all dimensions but the innermost.
#ifdef DYNAMIC_SHAPE
#define ASSERT_MAP_3(...)
#define ASSERT_MAP_4(...)
#define ASSERT_BOX_2(...)
#define ASSERT_BOX_3(...)
#else
#define ASSERT_MAP_3(MAP, x, y, z, stride_y, stride_z) \
    static_assert(LADDER_##MAP##_DIM_0 == (x) && LADDER_##MAP##_DIM_1 == (y) && LADDER_##MAP##_DIM_2 == (z) && \
                      LADDER_##MAP##_STRIDE_0 == (stride_y) && LADDER_##MAP##_STRIDE_1 == (stride_z), \
                  "the ladder describes another array to TMA")
#define ASSERT_MAP_4(MAP, x, y, z, n, stride_y, stride_z, stride_n) \
    ASSERT_MAP_3(MAP, x, y, z, stride_y, stride_z); \
    static_assert(LADDER_##MAP##_DIM_3 == (n) && LADDER_##MAP##_STRIDE_2 == (stride_n), \
                  "the ladder describes another array to TMA")

#define ASSERT_BOX_2(MAP, x, y) \
    static_assert(LADDER_##MAP##_BOX_0 == (x) && LADDER_##MAP##_BOX_1 == (y), "TMA brings other boxes")
#define ASSERT_BOX_3(MAP, x, y, z) \
    ASSERT_BOX_2(MAP, x, y); \
    static_assert(LADDER_##MAP##_BOX_2 == (z), "TMA brings other boxes")
#endif
