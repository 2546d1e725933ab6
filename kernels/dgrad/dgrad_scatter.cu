// dgrad-scatter: each output pixel adds its products to the values that it was computed from, by atomic functions.
//
// Technique: direct dgrad by scattering, atomicAdd in global memory.
// Read next: common/padding.cuh, then dgrad/dgrad_mma_split.cu.
// Run: alexconv run --rungs dgrad-scatter --layers 1
//
// Parent: dgrad-direct, whose threads search for the outputs that a value takes part in: with a stride most of their
// taps have none.  Here the loops run as in the forward pass, over the window of an output, with no tests of the stride,
// and every product is one that is needed.  The price is an atomic addition for each tap, in an order that varies from
// run to run, and with it the last bits of dx.  The filters are summed first, in a register.
//
// clear: a thread zeroes a value, or makes it NaN where an infinite tap lies on it beyond the plane of dy.
// dgrad_scatter: a thread adds the products of all filters, at one output pixel and one channel, for each tap.
#include "../common/padding.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    clear(const float* __restrict__ w,  // [M][GROUP_C][R][S]
          float* __restrict__ dx,       // [N][C][H][W]
          long long N)
{
    const long long value = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (value >= N * C * H * W) return;
    const int column = value % W + LEFT, row = value / W % H + TOP, c = value / (H * W) % C;
    w += ((size_t)(c / GROUP_C) * GROUP_M * GROUP_C + c % GROUP_C) * R * S;
    float sum = 0;
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) {
            const int down = row - r * DILATION_ROWS, across = column - s * DILATION_COLUMNS;
            const bool inside = down >= 0 && down / U < E && across >= 0 && across / V < F;
            if (inside || down % U != 0 || across % V != 0) continue;
            for (int m = 0; m < GROUP_M; ++m) sum += 0 * w[((size_t)m * GROUP_C * R + r) * S + s];
        }
    dx[value] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    dgrad_scatter(const float* __restrict__ dy,  // [N][M][E][F]
                  const float* __restrict__ w,   // [M][GROUP_C][R][S]
                  float* __restrict__ dx,        // [N][C][H][W]
                  long long N)
{
    const long long number = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (number >= N * C * E * F) return;
    const int pixel = number % (E * F), c = number / (E * F) % C, group = c / GROUP_C;
    const long long n = number / ((long long)C * E * F);
    dy += ((size_t)n * M + group * GROUP_M) * E * F + pixel;
    w += ((size_t)group * GROUP_M * GROUP_C + c % GROUP_C) * R * S;
    dx += ((size_t)n * C + c) * H * W;
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) {
            const int row = pixel / F * U + r * DILATION_ROWS, column = pixel % F * V + s * DILATION_COLUMNS;
            if (!in_plane(row, column)) continue;
            float sum = 0;
            for (int m = 0; m < GROUP_M; ++m)
                sum += dy[(size_t)m * E * F] * w[((size_t)m * GROUP_C * R + r) * S + s];
            atomicAdd(dx + (row - TOP) * W + column - LEFT, sum);
        }
}

ASSERT_BLOCK(CLEAR, THREADS, 1);
ASSERT_GRID(CLEAR, (C * H * W + THREADS - 1) / THREADS, 1, 1);
ASSERT_BLOCK(DGRAD_SCATTER, THREADS, 1);
ASSERT_GRID(DGRAD_SCATTER, (C * E * F + THREADS - 1) / THREADS, 1, 1);
