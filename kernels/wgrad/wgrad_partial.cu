// wgrad-partial: parts of the batch in parallel, each with partial sums of its own, which a second kernel adds up.
//
// Technique: direct wgrad; split-K over images and rows of pixels with an ordered reduction kernel.
// Read next: wgrad/weights.cuh (the reduction and its order), then wgrad/wgrad_atomic.cu.
// Run: alexconv run --rungs wgrad-partial --layers 1
//
// Parent: wgrad-direct, which has a thread for each weight: with few weights, or few images, too few to hide the latency
// of their loads, and each with a loop over the whole batch.  The sum over pixels is what can be cut: a grid of blocks
// for each slice of ROWS rows of outputs, counted through the batch, is as many times as large.  The price is a copy of
// dw for each slice, written here and read by reduce_slices.
//
// wgrad_partial: a block computes the partial sums of THREADS weights over one slice, a thread those of one weight.
// reduce_slices: a thread adds the partial sums of one weight, in a fixed order.
#include "weights.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    wgrad_partial(const float* __restrict__ x,   // [N][C][H][W]
                  const float* __restrict__ dy,  // [N][M][E][F]
                  float* __restrict__ partial,   // [slices][WEIGHTS]
                  long long N)
{
    const int number = blockIdx.x * THREADS + threadIdx.x;
    if (number >= WEIGHTS) return;
    const Weight weight(number);
    x += (size_t)weight.c * H * W;
    dy += (size_t)weight.m * PIXELS;
    const long long first = (long long)blockIdx.y * ROWS, end = min(first + ROWS, N * E);  // rows of the slice
    float sum = 0;
    for (long long row = first; row < end;) {
        const long long n = row / E;
        const long long end_of_image = min(end, (n + 1) * E);
        const float *const plane = x + (size_t)n * C * H * W, *const gradients = dy + (size_t)n * M * PIXELS;
        float of_image = 0;
        for (; row < end_of_image; ++row) {
            const int e = row - n * E;
            for (int f = 0; f < F; ++f) of_image += input_at(plane, e, f, weight.r, weight.s) * gradients[e * F + f];
        }
        sum += of_image;
    }
    partial[(size_t)blockIdx.y * WEIGHTS + number] = sum;
}

extern "C" __global__ void __launch_bounds__(REDUCTION_THREADS)
    reduce_slices(const float* __restrict__ partial,  // [slices][WEIGHTS]
                  float* __restrict__ dw,             // [M][GROUP_C][R][S]
                  long long N)
{
    add_slices(partial, dw, (N * E + ROWS - 1) / ROWS);
}

ASSERT_BLOCK(WGRAD_PARTIAL, THREADS, 1);
ASSERT_GRID(WGRAD_PARTIAL, (WEIGHTS + THREADS - 1) / THREADS, (E + ROWS - 1) / ROWS, 1);
ASSERT_ELEMENTS(PARTIAL, (E + ROWS - 1) / ROWS * WEIGHTS);
ASSERT_BLOCK(REDUCE_SLICES, REDUCTION_THREADS, 1);
ASSERT_GRID(REDUCE_SLICES, (WEIGHTS + REDUCTION_THREADS - 1) / REDUCTION_THREADS, 1, 1);
