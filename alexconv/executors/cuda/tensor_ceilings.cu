// Peak rate of the tensor cores: nothing but FP16 or TF32 products (macro FACTORS_FP16), accumulated in fp32, with
// operands in shared memory (wgmma, sm_90a) or in registers (mma.sync, other GPUs).
//
// In a step four warps compute a 64 x 128 tile in registers += 64 x K times K x 128, with K the values of a row of 128
// bytes: 64 halves or 32 floats.
#include <stdint.h>

constexpr int INSTRUCTIONS = 4;  // of 32 bytes of K each, in a step

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#if FACTORS_FP16
#define INSTRUCTION "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
#define ORDER ", 0, 0"  // both operands are K-major; no choice for tf32
#else
#define INSTRUCTION "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32"
#define ORDER ""
#endif

constexpr int ROW_WORDS = 32, A_WORDS = 64 * ROW_WORDS, OPERAND_WORDS = A_WORDS + 128 * ROW_WORDS;

#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.b32 add, 0, 0;\n" INSTRUCTION
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, add, 1, 1" ORDER ";\n"
                 "}"
                 : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
                 : "l"(a), "l"(b));
}

// The descriptor of a matrix of 128-byte rows with the 128-byte swizzle, which begins at an atom of 1024 bytes.
__device__ __forceinline__ uint64_t descriptor(const unsigned* rows)
{
    const uint64_t start = (static_cast<unsigned>(__cvta_generic_to_shared(rows)) & 0x3ffff) / 16;
    return start | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ float sum_of_products(const unsigned* in, int steps)
{
    __shared__ alignas(1024) unsigned operands[OPERAND_WORDS];
    for (int i = threadIdx.x; i < OPERAND_WORDS; i += blockDim.x) operands[i] = in[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();  // the operands are written; the wgmma of all warpgroups may read them
    const uint64_t a = descriptor(operands), b = descriptor(operands + A_WORDS);
    float d[64] = {};
    for (int step = 0; step < steps; ++step) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < INSTRUCTIONS; ++k) multiply(d, a + 2 * k, b + 2 * k);  // in units of 16 bytes
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int i = 1; i < 64; ++i) d[0] += d[i];
    return d[0];
}
#else
constexpr int WARP = 32, TILES = 16;  // of a warp: 16 x 8 each

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
#if FACTORS_FP16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
#endif
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ float sum_of_products(const unsigned* in, int steps)
{
    unsigned a[INSTRUCTIONS][4], b[INSTRUCTIONS][2];
    const unsigned* own = in + threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < INSTRUCTIONS; ++k) {
        for (int i = 0; i < 4; ++i) a[k][i] = own[(6 * k + i) * WARP];
        for (int i = 0; i < 2; ++i) b[k][i] = own[(6 * k + 4 + i) * WARP];
    }
    float d[TILES][4] = {};
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int k = 0; k < INSTRUCTIONS; ++k)
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) multiply(d[tile], a[k], b[(k + tile) % INSTRUCTIONS]);
    float sum = 0;
    for (int tile = 0; tile < TILES; ++tile) sum += d[tile][0] + d[tile][1] + d[tile][2] + d[tile][3];
    return sum;
}
#endif

extern "C" __global__ void __launch_bounds__(256, 2) multiply_tiles(const unsigned* in, float* out, int steps)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum_of_products(in, steps);
}
