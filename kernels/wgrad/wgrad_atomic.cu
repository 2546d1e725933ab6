// wgrad-atomic: the slices' sums are added to dw by atomic functions, without partial sums in memory.
//
// Technique: direct wgrad; split-K over images with atomicAdd in global memory.
// Read next: wgrad/weights.cuh, then wgrad/wgrad_shared.cu.
// Run: alexconv run --rungs wgrad-atomic --layers 1
//
// Parent: wgrad-partial, whose copies of dw are written and read again.  Here blocks add to dw itself: no scratch array,
// no reduction kernel.  But the order of the additions is that in which blocks happen to finish, so rounding errors, and
// with them the last bits of dw, differ from run to run.  A slice has IMAGES whole images, so that a weight gets no more
// than N additions.
//
// clear: a thread zeroes one weight.  wgrad_atomic: a block computes THREADS weights over the images of one slice, a
// thread one of them.
#include "weights.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS) clear(float* __restrict__ dw)  // [M][GROUP_C][R][S]
{
    const int number = blockIdx.x * THREADS + threadIdx.x;
    if (number < WEIGHTS) dw[number] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    wgrad_atomic(const float* __restrict__ x,   // [N][C][H][W]
                 const float* __restrict__ dy,  // [N][M][E][F]
                 float* __restrict__ dw,        // [M][GROUP_C][R][S]
                 long long N)
{
    const int number = blockIdx.x * THREADS + threadIdx.x;
    if (number >= WEIGHTS) return;
    const Weight weight(number);
    const long long first = (long long)blockIdx.y * IMAGES, end = min(first + IMAGES, N);
    float sum = 0;
    for (long long n = first; n < end; ++n) {
        const float *const plane = x + ((size_t)n * C + weight.c) * H * W;
        const float *const gradients = dy + ((size_t)n * M + weight.m) * PIXELS;
        float of_image = 0;
        for (int e = 0; e < E; ++e)
            for (int f = 0; f < F; ++f) of_image += input_at(plane, e, f, weight.r, weight.s) * gradients[e * F + f];
        sum += of_image;
    }
    atomicAdd(dw + number, sum);
}

ASSERT_BLOCK(CLEAR, THREADS, 1);
ASSERT_GRID(CLEAR, (WEIGHTS + THREADS - 1) / THREADS, 1, 1);
ASSERT_BLOCK(WGRAD_ATOMIC, THREADS, 1);
ASSERT_GRID(WGRAD_ATOMIC, (WEIGHTS + THREADS - 1) / THREADS, 1, 1);
