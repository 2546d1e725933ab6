// dgrad-direct: a thread computes one value's gradient, gathered from all outputs that the value takes part in.
//
// Technique: direct dgrad (gradient of the input, transposed convolution) by gathering; register accumulator.
// Read next: common/padding.cuh, then dgrad/dgrad_phases.cu, dgrad/dgrad_scatter.cu, wgrad/wgrad_direct.cu.
// Run: alexconv run --rungs dgrad-direct --layers 2
//
// The gradient of an input is a sum over the filters and their taps: dy at the output whose window has the input under
// that tap, times the tap.  With a stride only every stride-th row and column of taps has such an output; the others are
// left out, not multiplied by zero.  Beyond the edges of its plane dy counts as zero, as padding does in the forward
// pass.
//
// A block computes THREADS consecutive values of dx, a thread one of them.
#include "../common/padding.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    dgrad_direct(const float* __restrict__ dy,  // [N][M][E][F]
                 const float* __restrict__ w,   // [M][GROUP_C][R][S]
                 float* __restrict__ dx,        // [N][C][H][W]
                 long long N)
{
    const long long value = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (value >= N * C * H * W) return;
    const int column = value % W + LEFT, row = value / W % H + TOP, c = value / (H * W) % C;
    const int group = c / GROUP_C;
    dy += ((size_t)(value / ((long long)C * H * W)) * M + group * GROUP_M) * E * F;
    w += ((size_t)group * GROUP_M * GROUP_C + c % GROUP_C) * R * S;
    float sum = 0;
    for (int m = 0; m < GROUP_M; ++m)
        for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s) {
                const int down = row - r * DILATION_ROWS, across = column - s * DILATION_COLUMNS;
                if (down % U != 0 || across % V != 0) continue;
                const int e = down / U, f = across / V;
                const bool inside = down >= 0 && e < E && across >= 0 && f < F;
                sum += (inside ? dy[((size_t)m * E + e) * F + f] : 0) * w[((size_t)m * GROUP_C * R + r) * S + s];
            }
    dx[value] = sum;
}

ASSERT_BLOCK(DGRAD_DIRECT, THREADS, 1);
ASSERT_GRID(DGRAD_DIRECT, (C * H * W + THREADS - 1) / THREADS, 1, 1);
