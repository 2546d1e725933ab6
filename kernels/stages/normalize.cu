// normalize: local response normalization.
//
// Technique: one thread for some neighbouring channels of a pixel, which share the squares of their windows.
// Read next: stages/channels.cuh, then stages/max_pool.cu.
// Run: alexconv run --network alexnet-2012 --N 1
//
//     y[c] = x[c] / (k + alpha * sum of x[j]^2 over |j - c| <= WINDOW / 2) ^ (3/4)
//
// (Krizhevsky, Sutskever and Hinton, "ImageNet classification with deep convolutional neural networks", NIPS 2012,
// section 3.3.)  The power is two square roots: powf would be less exact and slower.  A quotient of x may take a
// division's slow path where x is zero, as half of the values are after ReLU; the reciprocal never does.
//
// Nothing is computed twice but the squares at the edges of a chunk, and the arrays are read and written once.
//
// A block computes THREADS chunks of channels, a thread one of them.
#include "../arch/dependent_launch.cuh"
#include "channels.cuh"

// Constants: WINDOW, the channels of a sum, an odd number; K_BITS and ALPHA_BITS, k and alpha as the bits of a float.
constexpr int THREADS = 256;
constexpr int BESIDE = WINDOW / 2;  // channels on each side
static_assert(WINDOW % 2 == 1, "a window of channels has a middle");

// The normalized values of a part's channels, in fp32.
__device__ __forceinline__ void normalized_part(const Value* __restrict__ x, const Part& part,
                                                float* values)  // [CHUNK]
{
    const int row = part.pixel / W, column = part.pixel % W;
    float around[CHUNK + 2 * BESIDE];  // channels part.first - BESIDE to part.first + CHUNK + BESIDE - 1
    load_part<H, W>(x, part.n, part.first, row, column, around + BESIDE);
#pragma unroll
    for (int i = 0; i < BESIDE; ++i) {
        const int before = part.first - BESIDE + i, after = part.first + CHUNK + i;
        around[i] = before >= 0 ? float(x[place<H, W>(part.n, before, row, column)]) : 0.0f;
        around[BESIDE + CHUNK + i] = after < C ? float(x[place<H, W>(part.n, after, row, column)]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) {
        float squares = 0;
#pragma unroll
        for (int j = 0; j < WINDOW; ++j) squares += around[i + j] * around[i + j];
        const float root = sqrtf(__uint_as_float(K_BITS) + __uint_as_float(ALPHA_BITS) * squares);
        values[i] = around[BESIDE + i] * (1 / (root * sqrtf(root)));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    normalize(const Value* __restrict__ x,  // [N] planes of H x W
              Value* __restrict__ y,        // likewise
              long long N)
{
    allow_dependent_launch();
    wait_for_primary_launches();
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (thread >= N * H * W * CHUNKS) return;
    const Part part = part_of<H * W>(thread);
    float values[CHUNK];
    normalized_part(x, part, values);
    store_part<H, W>(values, y, part.n, part.first, part.pixel / W, part.pixel % W);
}

ASSERT_BLOCK(NORMALIZE, THREADS, 1);
ASSERT_GRID(NORMALIZE, (H * W * CHUNKS + THREADS - 1) / THREADS, 1, 1);
