// softmax: the scores of an image as probabilities.
//
// Technique: a block per image; warp-shuffle reductions of the largest score and of the sum of exponentials.
// Read next: common/bias.cuh.
// Run: alexconv run --network alexnet-2012 --N 1
//
// The largest score is subtracted before exponentials are taken, so that none overflows.
//
// A block computes an image, a thread every THREADS-th of its classes.
#include "../arch/dependent_launch.cuh"
#include "values.cuh"

constexpr int THREADS = 256, WARP = 32, WARPS = THREADS / WARP;

// The combination of all threads' values, in every thread; `shared` may be used again after the next barrier.
template <class Combine>
__device__ __forceinline__ float of_block(float value, float* shared,  // [WARPS]
                                          Combine combine)
{
#pragma unroll
    for (int apart = WARP / 2; apart > 0; apart /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, apart));
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = value;
    __syncthreads();  // every warp's value is in `shared`
    value = shared[0];
    for (int warp = 1; warp < WARPS; ++warp) value = combine(value, shared[warp]);
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax(const Value* __restrict__ x,  // [N][C]
            Value* __restrict__ y)        // [N][C]
{
    __shared__ float largest_of[WARPS], sum_of[WARPS];
    allow_dependent_launch();
    wait_for_primary_launches();
    x += (size_t)blockIdx.x * C;
    y += (size_t)blockIdx.x * C;
    float largest = -INFINITY;
    for (int c = threadIdx.x; c < C; c += THREADS) largest = fmaxf(largest, float(x[c]));
    largest = of_block(largest, largest_of, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int c = threadIdx.x; c < C; c += THREADS) sum += expf(float(x[c]) - largest);
    sum = of_block(sum, sum_of, [](float a, float b) { return a + b; });
    for (int c = threadIdx.x; c < C; c += THREADS) y[c] = Value(expf(float(x[c]) - largest) / sum);
}

ASSERT_BLOCK(SOFTMAX, THREADS, 1);
ASSERT_GRID(SOFTMAX, 1, 1, 1);
