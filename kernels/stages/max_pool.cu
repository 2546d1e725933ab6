// max-pool: max pooling, with windows that may overlap.
//
// Technique: one thread for some neighbouring channels of an output pixel, by 16-byte vectors where channels are
// innermost.
// Read next: stages/channels.cuh, then stages/linear.cu.
// Run: alexconv run --network alexnet-2012 --N 1
//
// Windows of 3 x 3 with a stride of 2 read every input up to four times; the caches serve all but the first.  Values
// are not normalized as the pooling loads them: that would spare the normalized plane, but normalize a value up to four
// times.
//
// A block computes THREADS chunks of channels, a thread one of them.
#include "../arch/dependent_launch.cuh"
#include "channels.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    max_pool(const Value* __restrict__ x,  // [N] planes of H x W
             Value* __restrict__ y,        // [N] planes of E x F
             long long N)
{
    allow_dependent_launch();
    wait_for_primary_launches();
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (thread >= N * E * F * CHUNKS) return;
    const Part part = part_of<E * F>(thread);
    const int e = part.pixel / F, f = part.pixel % F;
    if constexpr (WHOLE_VECTORS && sizeof(Value) == sizeof(__half)) {  // as they lie, two in a register
        const auto load = [=](int tap) {
            const size_t from = place<H, W>(part.n, part.first, e * U + tap / S, f * U + tap % S);
            return *reinterpret_cast<const uint4*>(x + from);
        };
        uint4 largest = load(0);
#pragma unroll
        for (int tap = 1; tap < R * S; ++tap) {
            const uint4 values = load(tap);
            largest.x = max_nan_fp16x2(largest.x, values.x), largest.y = max_nan_fp16x2(largest.y, values.y);
            largest.z = max_nan_fp16x2(largest.z, values.z), largest.w = max_nan_fp16x2(largest.w, values.w);
        }
        *reinterpret_cast<uint4*>(y + place<E, F>(part.n, part.first, e, f)) = largest;
    } else {
        float largest[CHUNK];
        load_part<H, W>(x, part.n, part.first, e * U, f * U, largest);
#pragma unroll
        for (int tap = 1; tap < R * S; ++tap) {
            float values[CHUNK];
            load_part<H, W>(x, part.n, part.first, e * U + tap / S, f * U + tap % S, values);
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) largest[i] = max_nan(largest[i], values[i]);
        }
        store_part<E, F>(largest, y, part.n, part.first, e, f);
    }
}

ASSERT_BLOCK(MAX_POOL, THREADS, 1);
ASSERT_GRID(MAX_POOL, (E * F * CHUNKS + THREADS - 1) / THREADS, 1, 1);
