// wgmma of fp16 with both operands transposed: as in wgmma.cuh, but a and b lie in shared memory with M and N
// innermost, value after value of K. d is laid out as there.
//
// One overload for each n; nothing here but the operand lists.
#pragma once
#include "hopper.cuh"

#ifndef HOST_CUDA
// With the 128-byte swizzle: planes of 64 values of M or N, in which a row of 128 bytes has one value of K; eight rows
// make an atom. `rows` points to an atom, plus 2048 bytes for each 16 values of K to skip; the next 64 values of M or N
// are `distance` bytes further, a multiple of 1024.
__device__ __forceinline__ MatrixDescriptor transposed_descriptor(const void* rows, int distance)
{
    constexpr uint64_t UNIT = 16, SWIZZLE_128 = 1;
    const uint64_t start = (shared_address(rows) & 0x3ffff) / UNIT;
    return start | uint64_t(distance / UNIT) << 16 | (ATOM_BYTES / UNIT) << 32 | SWIZZLE_128 << 62;
}

// Operands of the instructions: eight registers, and eight of their numbers.
#define WGMMA_EIGHT(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define WGMMA_NUMBERS_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_NUMBERS_8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NUMBERS_16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NUMBERS_24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NUMBERS_32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NUMBERS_40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NUMBERS_48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_NUMBERS_56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NUMBERS_64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_NUMBERS_72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_NUMBERS_80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_NUMBERS_88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NUMBERS_96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_NUMBERS_104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_NUMBERS_112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_NUMBERS_120 "%120, %121, %122, %123, %124, %125, %126, %127"

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[16], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8
        "}, %16, %17, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8)
        : "l"(a), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[24], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %26, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8 ", " WGMMA_NUMBERS_16
        "}, %24, %25, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16)
        : "l"(a), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[32], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8 ", " WGMMA_NUMBERS_16 ", " WGMMA_NUMBERS_24
        "}, %32, %33, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24)
        : "l"(a), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[48], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %50, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8 ", " WGMMA_NUMBERS_16 ", " WGMMA_NUMBERS_24 ", " WGMMA_NUMBERS_32 ", "
        WGMMA_NUMBERS_40
        "}, %48, %49, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24), WGMMA_EIGHT(d, 32),
          WGMMA_EIGHT(d, 40)
        : "l"(a), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[64], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8 ", " WGMMA_NUMBERS_16 ", " WGMMA_NUMBERS_24 ", " WGMMA_NUMBERS_32 ", "
        WGMMA_NUMBERS_40 ", " WGMMA_NUMBERS_48 ", " WGMMA_NUMBERS_56
        "}, %64, %65, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24), WGMMA_EIGHT(d, 32),
          WGMMA_EIGHT(d, 40), WGMMA_EIGHT(d, 48), WGMMA_EIGHT(d, 56)
        : "l"(a), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[72], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %74, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n144k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8 ", " WGMMA_NUMBERS_16 ", " WGMMA_NUMBERS_24 ", " WGMMA_NUMBERS_32 ", "
        WGMMA_NUMBERS_40 ", " WGMMA_NUMBERS_48 ", " WGMMA_NUMBERS_56 ", " WGMMA_NUMBERS_64
        "}, %72, %73, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24), WGMMA_EIGHT(d, 32),
          WGMMA_EIGHT(d, 40), WGMMA_EIGHT(d, 48), WGMMA_EIGHT(d, 56), WGMMA_EIGHT(d, 64)
        : "l"(a), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[96], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8 ", " WGMMA_NUMBERS_16 ", " WGMMA_NUMBERS_24 ", " WGMMA_NUMBERS_32 ", "
        WGMMA_NUMBERS_40 ", " WGMMA_NUMBERS_48 ", " WGMMA_NUMBERS_56 ", " WGMMA_NUMBERS_64 ", " WGMMA_NUMBERS_72 ", "
        WGMMA_NUMBERS_80 ", " WGMMA_NUMBERS_88
        "}, %96, %97, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24), WGMMA_EIGHT(d, 32),
          WGMMA_EIGHT(d, 40), WGMMA_EIGHT(d, 48), WGMMA_EIGHT(d, 56), WGMMA_EIGHT(d, 64), WGMMA_EIGHT(d, 72),
          WGMMA_EIGHT(d, 80), WGMMA_EIGHT(d, 88)
        : "l"(a), "l"(b), "r"(int(add)));
}

__device__ __forceinline__ void wgmma_fp16_transposed(float (&d)[128], MatrixDescriptor a, MatrixDescriptor b, bool add)
{
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
        WGMMA_NUMBERS_0 ", " WGMMA_NUMBERS_8 ", " WGMMA_NUMBERS_16 ", " WGMMA_NUMBERS_24 ", " WGMMA_NUMBERS_32 ", "
        WGMMA_NUMBERS_40 ", " WGMMA_NUMBERS_48 ", " WGMMA_NUMBERS_56 ", " WGMMA_NUMBERS_64 ", " WGMMA_NUMBERS_72 ", "
        WGMMA_NUMBERS_80 ", " WGMMA_NUMBERS_88 ", " WGMMA_NUMBERS_96 ", " WGMMA_NUMBERS_104 ", "
        WGMMA_NUMBERS_112 ", " WGMMA_NUMBERS_120
        "}, %128, %129, add, 1, 1, 1, 1;\n"
        "}"
        : WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24), WGMMA_EIGHT(d, 32),
          WGMMA_EIGHT(d, 40), WGMMA_EIGHT(d, 48), WGMMA_EIGHT(d, 56), WGMMA_EIGHT(d, 64), WGMMA_EIGHT(d, 72),
          WGMMA_EIGHT(d, 80), WGMMA_EIGHT(d, 88), WGMMA_EIGHT(d, 96), WGMMA_EIGHT(d, 104), WGMMA_EIGHT(d, 112),
          WGMMA_EIGHT(d, 120)
        : "l"(a), "l"(b), "r"(int(add)));
}

#endif
