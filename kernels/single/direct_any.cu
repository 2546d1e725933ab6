// direct-any: any convolution layer of a network.
//
// Technique: direct convolution, one thread per output of the batch; padding, stride pairs, dilation, groups (depthwise
// too), bias and ReLU.
// Read next: common/padding.cuh, common/bias.cuh, then single/direct_any_half.cu; depthwise/depthwise_window.cu for
// depthwise layers.
// Run: alexconv run --rungs direct-any --layers 2
//
// Parent: direct-register, whose blocks cover planes of limited size, without padding.  Here outputs are numbered
// through the batch, so no plane is too large, and taps outside the plane multiply a zero (NaN for an infinite tap).
// Neighbouring threads compute neighbouring outputs of a plane: they share the filter and read neighbouring inputs.
// With one channel in a group (depthwise) there is little to reuse.
//
// A block computes THREADS consecutive outputs of y, a thread one of them.
#include "../common/bias.cuh"
#include "../common/padding.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_any(const float* __restrict__ x,  // [N][C][H][W]
               const float* __restrict__ w,  // [M][GROUP_C][R][S]
               float* __restrict__ y,        // [N][M][E][F]
               long long N BIAS_PARAMETER(float))  // [M]
{
    const long long output = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (output >= N * M * E * F) return;
    const int f = output % F, e = output / F % E, m = output / (E * F) % M;
    const long long n = output / ((long long)M * E * F);
    x += ((size_t)n * C + m / GROUP_M * GROUP_C) * H * W;
    w += (size_t)m * GROUP_C * R * S;
    float sum = 0;
    for (int c = 0; c < GROUP_C; ++c)
        for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s) {
                const int row = e * U + r * DILATION_ROWS, column = f * V + s * DILATION_COLUMNS;
                const bool inside = in_plane(row, column);
                const float input = inside ? x[((size_t)c * H + row - TOP) * W + column - LEFT] : 0.0f;
                sum += input * w[(c * R + r) * S + s];
            }
    y[output] = with_bias_and_relu<float>(sum, BIAS, m);
}

ASSERT_BLOCK(DIRECT_ANY, THREADS, 1);
ASSERT_GRID(DIRECT_ANY, (M * E * F + THREADS - 1) / THREADS, 1, 1);
