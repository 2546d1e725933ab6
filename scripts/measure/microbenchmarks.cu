// Microbenchmarks of a multiprocessor's units: rates, latencies, the order in which warps issue.
//
// Every kernel leaves in clocks[2 * warp] and clocks[2 * warp + 1] the multiprocessor's clock before and after the
// measured part, for each warp of the grid.  `data` is zeroed memory, `steps` the trips of the measured loop.
#include <cuda_fp16.h>

#include "../../kernels/arch/ampere.cuh"
#include "../../kernels/arch/dependent_launch.cuh"
#include "../../kernels/arch/hopper.cuh"
#include "../../kernels/arch/wgmma_tf32.cuh"

constexpr int CHAINS = 8;   // independent results of a warp
constexpr int UNROLL = 32;  // instructions of each chain in a trip

__device__ __forceinline__ long long now()
{
    long long cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}

struct Stopwatch {
    long long* place;
    long long begin;

    __device__ explicit Stopwatch(long long* clocks)
        : place(clocks + 2 * ((blockIdx.x * blockDim.x + threadIdx.x) / 32))
    {
        __syncthreads();  // all warps begin together
        begin = now();
    }

    __device__ void stop() const
    {
        const long long end = now();
        if (threadIdx.x % 32 == 0) {
            place[0] = begin;
            place[1] = end;
        }
    }
};

#define KERNEL_OF(threads, name) \
    extern "C" __global__ void __launch_bounds__(threads) name(unsigned* data, long long* clocks, int steps)
#define KERNEL(name) KERNEL_OF(1024, name)

// Independent instructions: `body` computes r[chain].
#define RATE(name, body)                                  \
    KERNEL(rate_##name)                                   \
    {                                                     \
        unsigned r[CHAINS];                               \
        unsigned a = data[threadIdx.x], b = data[1];      \
        for (int c = 0; c < CHAINS; c++)                  \
            r[c] = data[c];                               \
        const Stopwatch watch(clocks);                    \
        for (int s = 0; s < steps; s++)                   \
            _Pragma("unroll") for (int u = 0; u < UNROLL; u++) _Pragma("unroll") for (int c = 0; c < CHAINS; c++) body; \
        watch.stop();                                     \
        unsigned sum = a + b;                             \
        for (int c = 0; c < CHAINS; c++)                  \
            sum += r[c];                                  \
        if (sum == 12345)                                 \
            data[0] = sum;                                \
    }

// A chain of instructions that each need the last result, r.
#define LATENCY(name, body)                                         \
    KERNEL(latency_##name)                                          \
    {                                                               \
        unsigned r = data[0], a = data[threadIdx.x];                \
        const Stopwatch watch(clocks);                              \
        for (int s = 0; s < steps; s++)                             \
            _Pragma("unroll") for (int u = 0; u < UNROLL; u++) body; \
        watch.stop();                                               \
        if (r + a == 12345)                                         \
            data[0] = r;                                            \
    }

#define TWO(text) asm volatile(text : "+r"(r[c]) : "r"(a), "r"(b))
RATE(ffma, TWO("fma.rn.f32 %0, %1, %2, %0;"))
RATE(imad, TWO("mad.lo.s32 %0, %1, %2, %0;"))
RATE(lop3, TWO("lop3.b32 %0, %1, %2, %0, 0x96;"))
RATE(shf, TWO("shf.l.wrap.b32 %0, %0, %1, %2;"))
RATE(prmt, TWO("prmt.b32 %0, %0, %1, %2;"))
RATE(hfma2, TWO("fma.rn.f16x2 %0, %1, %2, %0;"))
RATE(fmnmx, TWO("max.f32 %0, %1, %0;"))
RATE(mufu, TWO("ex2.approx.ftz.f32 %0, %0;"))
RATE(f2i, TWO("cvt.rni.s32.f32 %0, %0;"))
RATE(i2f, TWO("cvt.rn.f32.s32 %0, %0;"))
RATE(popc, TWO("popc.b32 %0, %0;"))
RATE(half_to_float, asm volatile("{.reg .b16 h, l; mov.b32 {l, h}, %0; cvt.f32.f16 %0, l;}" : "+r"(r[c])))
RATE(pack_half, TWO("cvt.rn.f16x2.f32 %0, %0, %1;"))

LATENCY(mufu, asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+r"(r)))
LATENCY(barrier, __syncthreads())

// Shared memory, room for 32 * `room` vectors of `words`: `place` is the vector of a lane, which several may share.
#define SHARED(name, words, room, place, load)                                                       \
    KERNEL(rate_##name)                                                                              \
    {                                                                                                \
        __shared__ __align__(16) unsigned memory[32 * words * room];                                 \
        const unsigned lane = threadIdx.x % 32, at = shared_address(memory + (place) * words);       \
        unsigned v[4] = {data[0], data[1], data[2], data[3]};                                        \
        for (int i = threadIdx.x; i < 32 * words * room; i += blockDim.x)                            \
            memory[i] = 0;                                                                           \
        const Stopwatch watch(clocks);                                                               \
        for (int s = 0; s < steps; s++)                                                              \
            _Pragma("unroll") for (int u = 0; u < UNROLL * CHAINS; u++) load;                        \
        watch.stop();                                                                                \
        if (v[0] + v[1] + v[2] + v[3] == 12345)                                                      \
            data[0] = memory[v[0] & 7];                                                              \
    }
#define LDS1 asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(v[u % 4]) : "r"(at))
#define LDS2 asm volatile("ld.volatile.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(at))
#define LDS4 asm volatile("ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at))
#define STS1 asm volatile("st.volatile.shared.b32 [%1], %0;" ::"r"(v[0]), "r"(at))
#define STS4 asm volatile("st.volatile.shared.v4.b32 [%4], {%0, %1, %2, %3};" ::"r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(at))
SHARED(lds, 1, 1, lane, LDS1)
SHARED(lds64, 2, 1, lane, LDS2)
SHARED(lds128, 4, 1, lane, LDS4)
SHARED(lds_conflict32, 1, 32, lane * 32, LDS1)
SHARED(sts, 1, 1, lane, STS1)
SHARED(sts128, 4, 1, lane, STS4)
SHARED(lds_8_words, 1, 1, lane % 8, LDS1)
SHARED(lds64_pairs, 2, 1, lane / 2, LDS2)
SHARED(lds64_every_second, 2, 1, lane & ~2, LDS2)
SHARED(lds64_quads, 2, 1, lane / 4, LDS2)
SHARED(lds64_octets, 2, 1, lane / 8, LDS2)
SHARED(lds64_8_vectors, 2, 1, lane % 8, LDS2)
SHARED(lds64_16_vectors, 2, 1, lane % 16, LDS2)
SHARED(lds128_pairs, 4, 1, lane / 2, LDS4)
SHARED(lds128_every_second, 4, 1, lane & ~2, LDS4)
SHARED(lds128_quads, 4, 1, lane / 4, LDS4)
SHARED(lds128_octets, 4, 1, lane / 8, LDS4)
SHARED(lds128_one, 4, 1, 0, LDS4)
SHARED(lds128_4_vectors, 4, 1, lane % 4, LDS4)
SHARED(lds128_8_vectors, 4, 1, lane % 8, LDS4)
SHARED(lds128_16_vectors, 4, 1, lane % 16, LDS4)

// Loads that hit L1: `stride` words between lanes; the sum keeps the compiler from removing them.
#define CACHED(name, stride, load)                                                                            \
    KERNEL(rate_##name)                                                                                       \
    {                                                                                                         \
        constexpr int LOADS = 64, PLACES = 4;                                                                 \
        const unsigned* first = data + threadIdx.x % 32 * stride;                                             \
        unsigned sum = 0;                                                                                     \
        auto trip = [&](int s) {                                                                              \
            const unsigned* at = first + s % PLACES * LOADS * 32;                                             \
            unsigned v[4] = {};                                                                               \
            _Pragma("unroll") for (int u = 0; u < LOADS; u++)                                                 \
            {                                                                                                 \
                load;                                                                                         \
                sum += v[0] + v[1] + v[2] + v[3];                                                             \
            }                                                                                                 \
        };                                                                                                    \
        for (int s = 0; s < PLACES; s++)                                                                      \
            trip(s);                                                                                          \
        const Stopwatch watch(clocks);                                                                        \
        for (int s = 0; s < steps; s++)                                                                       \
            trip(s);                                                                                          \
        watch.stop();                                                                                         \
        if (sum == 12345)                                                                                     \
            data[0] = sum;                                                                                    \
    }
#define LDG1 asm volatile("ld.global.ca.b32 %0, [%1];" : "=r"(v[0]) : "l"(at + 32 * u))
CACHED(ldg, 1, LDG1)
CACHED(ldg_stride27, 27, LDG1)
CACHED(ldg_stride33, 33, LDG1)

// A chain of loads: each word holds the byte distance to the next, 0 here, so every load hits the first word's line.
KERNEL(latency_lds)
{
    __shared__ unsigned memory[64];
    memory[threadIdx.x % 64] = 0;
    unsigned r = shared_address(memory), base = r;
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++)
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            asm volatile("{.reg .b32 t; ld.shared.b32 t, [%0]; add.u32 %0, t, %1;}" : "+r"(r) : "r"(base));
    watch.stop();
    if (r == 12345)
        data[0] = r;
}

#define CHASE(name, operator)                                                                               \
    KERNEL(latency_##name)                                                                                  \
    {                                                                                                       \
        unsigned long long r = reinterpret_cast<unsigned long long>(data);                                  \
        const unsigned long long base = r;                                                                  \
        asm volatile("{.reg .b64 t; " operator " t, [%0]; add.u64 %0, t, %1;}" : "+l"(r) : "l"(base));     \
        const Stopwatch watch(clocks);                                                                      \
        for (int s = 0; s < steps; s++)                                                                     \
            _Pragma("unroll") for (int u = 0; u < UNROLL; u++) asm volatile(                                \
                "{.reg .b64 t; " operator " t, [%0]; add.u64 %0, t, %1;}" : "+l"(r) : "l"(base));          \
        watch.stop();                                                                                       \
        if (r == 12345)                                                                                     \
            data[0] = unsigned(r);                                                                          \
    }
CHASE(l1, "ld.global.ca.u64")
CHASE(l2, "ld.global.cg.u64")

// L2 latency by place: a lane of one warp reads `steps` lines, 128 bytes apart, one after the other; each line's time.
KERNEL(latency_by_line)
{
    __shared__ unsigned kept[32];
    const unsigned long long base = reinterpret_cast<unsigned long long>(data);
    for (int pass = 0; pass < 2; pass++)  // the first brings the lines into L2
        for (int s = 0; s < steps; s++) {
            unsigned value;
            const long long begin = now();
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(base + 128ull * s) : "memory");
            // A store waits for what it stores, and the clock is read after it.
            asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(shared_address(kept + threadIdx.x % 32)), "r"(value)
                         : "memory");
            const long long end = now();
            if (threadIdx.x == 0) {
                clocks[2 * s] = begin;
                clocks[2 * s + 1] = end;
            }
        }
}

// An asynchronous copy of 16 bytes a lane that hits L2, and the wait for it.
KERNEL(copy_async_16)
{
    __shared__ __align__(16) unsigned landing[4 * 1024];
    const unsigned to = shared_address(landing + threadIdx.x * 4 % 4096);
    const unsigned* from = data + threadIdx.x * 4;
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + s % 64 * 32768) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    watch.stop();
}

// Asynchronous copies of a warp that hit L1, 4 bytes a lane, COPIES after each other, the lanes' places `stride` words
// apart: cycles until the last one has issued (UNTIL_ISSUED), until a load from shared memory after them has its value
// (UNTIL_LOADED), until they have arrived (UNTIL_ARRIVED).
enum Until { UNTIL_ISSUED, UNTIL_LOADED, UNTIL_ARRIVED };

template <int stride, Until until>
__device__ void copy_group(unsigned* data, long long* clocks, int steps)
{
    constexpr int COPIES = 8, WARPS = 8, PITCH = 32 * 8, LANDING = WARPS * 32;
    __shared__ unsigned landing[COPIES * LANDING], words[32];
    words[threadIdx.x % 32] = 0;
    const unsigned to = shared_address(landing + threadIdx.x);
    const unsigned kept = shared_address(words + threadIdx.x % 32);
    const unsigned* from = data + threadIdx.x / 32 * COPIES * PITCH + threadIdx.x % 32 * stride;
    long long cycles = 0;
    unsigned sum = 0;
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++) {
        __syncthreads();
        const long long begin = now();
#pragma unroll
        for (int u = 0; u < COPIES; u++)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + u * LANDING * 4), "l"(from + u * PITCH)
                         : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (until == UNTIL_LOADED) {
            unsigned value;
            asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(value) : "r"(kept) : "memory");
            asm volatile("st.volatile.shared.b32 [%0], %1;" ::"r"(kept), "r"(value) : "memory");
            sum += value;
        }
        if (until == UNTIL_ARRIVED)
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        cycles += now() - begin;
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    if (threadIdx.x % 32 == 0) {
        watch.place[0] = 0;
        watch.place[1] = cycles;
    }
    if (sum == 12345)
        data[0] = sum;
}
#define COPIES(name, stride)                                                                  \
    KERNEL(name##_issued) { copy_group<stride, UNTIL_ISSUED>(data, clocks, steps); }          \
    KERNEL(name##_loaded) { copy_group<stride, UNTIL_LOADED>(data, clocks, steps); }          \
    KERNEL(name##_arrived) { copy_group<stride, UNTIL_ARRIVED>(data, clocks, steps); }
COPIES(copies_4, 1)
COPIES(copies_4_stride2, 2)
COPIES(copies_4_stride8, 8)

// Where a block runs, and when it begins: clocks[2 * warp] is its multiprocessor.  It takes `steps` cycles.
KERNEL(placement)
{
    unsigned multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    const long long begin = now();
    while (now() - begin < steps) {
    }
    if (threadIdx.x % 32 == 0) {
        clocks[2 * blockIdx.x] = multiprocessor;
        clocks[2 * blockIdx.x + 1] = begin;
    }
}

// Uses the sums of chains, so that the compiler leaves them in.
__device__ __forceinline__ void keep(const float (&r)[CHAINS], unsigned* data)
{
    float sum = 0;
    for (int u = 0; u < CHAINS; u++)
        sum += r[u];
    if (sum == 1)
        data[0] = 1;
}

// Issue order: warps of one scheduler compete with independent FFMAs, each `steps` of them; who ends when tells.
KERNEL(issue_order)
{
    float r[CHAINS] = {}, a = __uint_as_float(data[0]);
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++)
#pragma unroll
        for (int u = 0; u < CHAINS; u++)
            asm volatile("fma.rn.f32 %0, %1, %1, %0;" : "+f"(r[u]) : "f"(a));
    watch.stop();
    keep(r, data);
}

// Straight-line code, `length` independent FFMAs and the loop's branch: what instruction fetch can keep up with.
#define STRAIGHT(length)                                                                       \
    KERNEL(straight_##length)                                                                  \
    {                                                                                          \
        float r[CHAINS] = {}, a = __uint_as_float(data[0]);                                    \
        const Stopwatch watch(clocks);                                                         \
        _Pragma("unroll 1") for (int s = 0; s < steps; s++)                                    \
            _Pragma("unroll") for (int u = 0; u < length; u++)                                 \
                asm volatile("fma.rn.f32 %0, %1, %1, %0;" : "+f"(r[u % CHAINS]) : "f"(a));     \
        watch.stop();                                                                          \
        keep(r, data);                                                                         \
    }
STRAIGHT(2048)
STRAIGHT(4096)
STRAIGHT(8192)
STRAIGHT(16384)

// Tensor cores, products of a warp; `chains` independent accumulators.
using Product = void(float (&)[4], const unsigned (&)[4], const unsigned (&)[2]);

template <Product product, int chains>
__device__ void warp_products(unsigned* data, long long* clocks, int steps)
{
    float d[chains][4] = {};
    const unsigned a[4] = {data[0], data[1], data[2], data[3]}, b[2] = {data[4], data[5]};
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++)
#pragma unroll
        for (int u = 0; u < 64; u++)
            product(d[u % chains], a, b);
    watch.stop();
    float sum = 0;
    for (int c = 0; c < chains; c++)
        sum += d[c][0] + d[c][1] + d[c][2] + d[c][3];
    if (sum == 1)
        data[0] = 1;
}
KERNEL(latency_hmma_fp16) { warp_products<warp_mma_fp16, 1>(data, clocks, steps); }
KERNEL(rate_hmma_fp16) { warp_products<warp_mma_fp16, 8>(data, clocks, steps); }
KERNEL(rate_hmma_tf32) { warp_products<warp_mma_tf32, 8>(data, clocks, steps); }

// 64 KiB of operands in shared memory: zeros, or fp16 values of either sign between 1/2 and 2.
template <bool zeros>
__device__ unsigned char* operands_of_products()
{
    extern __shared__ __align__(1024) unsigned char operands[];
    for (unsigned i = threadIdx.x; i < 65536 / 4; i += blockDim.x) {
        const unsigned hash = (i + 1) * 2654435761u ^ (i + 1) * 2246822519u >> 13;
        reinterpret_cast<unsigned*>(operands)[i] = zeros ? 0 : (hash & 0x87ff87ffu) + 0x38003800u;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    return operands;
}

template <int columns>
__device__ void use(const float (&d)[columns / 2], unsigned* data)
{
    float sum = 0;
    for (int i = 0; i < columns / 2; i++)
        sum += d[i];
    if (sum == 1)
        data[0] = 1;
}

// Products of a warpgroup: 8 of them in a group, then wait for it.
template <int columns, bool zeros>
__device__ void warpgroup_products(unsigned* data, long long* clocks, int steps)
{
    unsigned char* const operands = operands_of_products<zeros>();
    float d[columns / 2] = {};
    const MatrixDescriptor a = swizzled_descriptor(operands + threadIdx.x / 128 % 2 * 8192);
    const MatrixDescriptor b = swizzled_descriptor(operands + 16384);
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++) {
        warpgroup_fence();
#pragma unroll
        for (int u = 0; u < 8; u++)
            wgmma_fp16(d, advance_descriptor(a, 32 * (u % 4)), advance_descriptor(b, 32 * (u % 4)), true);
        warpgroup_commit_group();
        warpgroup_wait_group<0>();
    }
    watch.stop();
    use<columns>(d, data);
}
KERNEL_OF(384, rate_hgmma_96) { warpgroup_products<96, true>(data, clocks, steps); }
KERNEL_OF(384, rate_hgmma_128) { warpgroup_products<128, true>(data, clocks, steps); }
KERNEL_OF(384, rate_hgmma_256) { warpgroup_products<256, true>(data, clocks, steps); }
KERNEL_OF(384, busy_hgmma_zeros) { warpgroup_products<256, true>(data, clocks, steps); }
KERNEL_OF(384, busy_hgmma) { warpgroup_products<256, false>(data, clocks, steps); }

// The same with the first factor, tf32, in registers: a product of K = 8.
template <int columns>
__device__ void products_from_registers(unsigned* data, long long* clocks, int steps)
{
    unsigned char* const operands = operands_of_products<true>();
    float d[columns / 2] = {};
    unsigned a[4][4];
    for (int k = 0; k < 16; k++)
        a[k / 4][k % 4] = data[k];
    const MatrixDescriptor b = swizzled_descriptor(operands + 16384);
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++) {
        warpgroup_fence();
#pragma unroll
        for (int u = 0; u < 8; u++)
            wgmma_tf32(d, a[u % 4], advance_descriptor(b, 32 * (u % 4)), true);
        warpgroup_commit_group();
        warpgroup_wait_group<0>();
    }
    watch.stop();
    use<columns>(d, data);
}
KERNEL_OF(384, rate_hgmma_registers_64) { products_from_registers<64>(data, clocks, steps); }
KERNEL_OF(384, rate_hgmma_registers_128) { products_from_registers<128>(data, clocks, steps); }

// FFMA on every scheduler, as long as `steps` trips take.
KERNEL(busy_ffma)
{
    float r[CHAINS];
    const float a = __uint_as_float(data[threadIdx.x]), b = __uint_as_float(data[1]);
    for (int c = 0; c < CHAINS; c++)
        r[c] = c;
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++)
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
                asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(r[c]) : "f"(a), "f"(b));
    watch.stop();
    float sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += r[c];
    if (sum == 1)
        data[0] = 1;
}

// Each warp keeps a sum in a line of its own and stores it after every addend, which the compiler cannot know to be
// elsewhere.
KERNEL(rate_partial_sums)
{
    float* const own = reinterpret_cast<float*>(data) + blockIdx.x * blockDim.x + threadIdx.x;
    const float* const addends = reinterpret_cast<float*>(data) + (1 << 24) + steps;
    float sum = 0;
    const Stopwatch watch(clocks);
    for (int s = 0; s < steps; s++)
#pragma unroll
        for (int u = 0; u < UNROLL * CHAINS; u++)
            *own = sum += addends[u];
    watch.stop();
}

// Bulk copies of the TMA: one thread of a block brings BULK_BYTES, waits, and again: the latency of a copy.  With
// `stages` in flight: its rate.
// `together` neighbouring blocks copy the same bytes.
template <int bytes, int stages, int together = 1>
__device__ void bulk_copies(unsigned* data, long long* clocks, int steps)
{
    extern __shared__ __align__(1024) unsigned char landing[];
    __shared__ Mbarrier full[stages];
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; s++)
            mbarrier_init(&full[s], 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned char* from = reinterpret_cast<const unsigned char*>(data);
        constexpr size_t SPAN = 16u << 20;  // bytes that all blocks read: they stay in L2
        size_t at = size_t(blockIdx.x / together) * 131072;
        auto copy = [&](int stage) {
            mbarrier_arrive_expect_tx(&full[stage], bytes);
            tma_load_bulk(landing + stage * bytes, from + at % SPAN, &full[stage], bytes);
            at += bytes;
        };
        const long long begin = now();
        for (int s = 0; s < stages; s++)
            copy(s);
        for (int i = 0; i < steps; i++) {
            mbarrier_wait(&full[i % stages], i / stages % 2);
            if (i + stages < steps)
                copy(i % stages);
        }
        const long long end = now();
        clocks[2 * blockIdx.x] = begin;
        clocks[2 * blockIdx.x + 1] = end;
    }
}
KERNEL(tma_latency_128) { bulk_copies<128, 1>(data, clocks, steps); }
KERNEL(tma_rate_16384) { bulk_copies<16384, 6>(data, clocks, steps); }
KERNEL(tma_rate_16384_pairs) { bulk_copies<16384, 6, 2>(data, clocks, steps); }
KERNEL(tma_rate_16384_twelves) { bulk_copies<16384, 6, 12>(data, clocks, steps); }
KERNEL(tma_rate_16384_all) { bulk_copies<16384, 6, 1 << 20>(data, clocks, steps); }

// The whole chip.  `data` has `words` words; each kernel makes `steps` trips over them.
#define CHIP(name) \
    extern "C" __global__ void __launch_bounds__(1024) name(unsigned* data, unsigned long long words, int steps)

// Reads 16 bytes a lane, bypassing L1; in each trip a block reads what another block read in the last one.
CHIP(chip_read)
{
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    unsigned sum = 0;
    for (int s = 0; s < steps; s++) {
        const unsigned long long block = (blockIdx.x + 37ull * s) % gridDim.x;
        for (unsigned long long i = 4 * (block * blockDim.x + threadIdx.x); i < words; i += 16 * threads) {
            unsigned v[4][4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const unsigned long long at = i + 4 * k * threads < words ? i + 4 * k * threads : i;
                asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(v[k][0]), "=r"(v[k][1]), "=r"(v[k][2]), "=r"(v[k][3])
                             : "l"(data + at));
            }
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum += v[k][0] + v[k][1] + v[k][2] + v[k][3];
        }
    }
    if (sum == 12345)
        data[0] = sum;
}

// Stores a word a lane: lane l of a group of `lanes` neighbours goes to word l of a piece of `pitch` words; pieces
// follow each other from word `first` on.  Lanes that fill no sector leave it partly written.
template <int lanes, int pitch, int first>
__device__ void store_pieces(unsigned* data, unsigned long long words, int steps)
{
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (int s = 0; s < steps; s++)
        for (unsigned long long t = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;; t += threads) {
            const unsigned long long at = t / lanes * pitch + t % lanes + first;
            if (at >= words)
                break;
            asm volatile("st.global.b32 [%0], %1;" ::"l"(data + at), "r"(s) : "memory");
        }
}
CHIP(store_whole) { store_pieces<32, 32, 0>(data, words, steps); }
CHIP(store_shifted) { store_pieces<32, 32, 3>(data, words, steps); }
CHIP(store_half_sectors) { store_pieces<4, 8, 0>(data, words, steps); }
CHIP(store_words_of_sectors) { store_pieces<1, 8, 0>(data, words, steps); }

// Reductions without a result: `group` neighbouring threads share a word, and the words repeat after `words` of them.
template <int group, int first = 0>
__device__ void reduce(unsigned* data, unsigned long long words, int steps)
{
    float* sums = reinterpret_cast<float*>(data);
    const unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (int s = 0; s < steps; s++) {
        const unsigned long long at = ((thread + threads * s) / group + first) % words;
        asm volatile("red.global.add.f32 [%0], %1;" ::"l"(sums + at), "f"(1.0f) : "memory");
    }
}
CHIP(red_coalesced) { reduce<1>(data, words, steps); }
CHIP(red_shifted) { reduce<1, 3>(data, words, steps); }
CHIP(red_pairs) { reduce<2>(data, words, steps); }
CHIP(red_quads) { reduce<4>(data, words, steps); }
CHIP(red_warp_one_word) { reduce<32>(data, words, steps); }

CHIP(nothing)
{
    if (steps == 12345)
        data[0] = unsigned(words);
}

// The same as a programmatic dependent launch.
CHIP(dependent)
{
    allow_dependent_launch();
    wait_for_primary_launches();
    if (steps == 12345)
        data[0] = unsigned(words);
}
