// wgrad-direct: a thread computes one weight's gradient, over all images and pixels.
//
// Technique: direct wgrad (gradient of the filters), one kernel; blocked summation in a register.
// Read next: wgrad/weights.cuh, then wgrad/wgrad_partial.cu.
// Run: alexconv run --rungs wgrad-direct --layers 2
//
// The gradient of a weight is a sum over the batch's output pixels of dy times the input under the weight's tap: of
// N * E * F products, where an output of the forward pass is a sum of C * R * S.  So there are few threads, and each has
// a long loop.  Neighbouring threads compute neighbouring taps of one filter: they share dy, and read neighbouring
// inputs.  An image's products are summed by themselves, and the images' sums are added in order: no product takes part
// in more than E * F + N additions, so that rounding errors do not grow with N * E * F.
//
// A block computes THREADS consecutive weights of dw, a thread one of them.
#include "weights.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    wgrad_direct(const float* __restrict__ x,   // [N][C][H][W]
                 const float* __restrict__ dy,  // [N][M][E][F]
                 float* __restrict__ dw,        // [M][GROUP_C][R][S]
                 long long N)
{
    const int number = blockIdx.x * THREADS + threadIdx.x;
    if (number >= WEIGHTS) return;
    const Weight weight(number);
    x += (size_t)weight.c * H * W;
    dy += (size_t)weight.m * PIXELS;
    float sum = 0;
    for (long long n = 0; n < N; ++n, x += (size_t)C * H * W, dy += (size_t)M * PIXELS) {
        float of_image = 0;
        for (int e = 0; e < E; ++e)
            for (int f = 0; f < F; ++f) of_image += input_at(x, e, f, weight.r, weight.s) * dy[e * F + f];
        sum += of_image;
    }
    dw[number] = sum;
}

ASSERT_BLOCK(WGRAD_DIRECT, THREADS, 1);
ASSERT_GRID(WGRAD_DIRECT, (WEIGHTS + THREADS - 1) / THREADS, 1, 1);
