// direct-any-half: any convolution layer in fp16 with the channels innermost, accumulated in fp32.
//
// Technique: direct convolution in NHWC, fp16 with fp32 accumulation; padding, stride pairs, dilation, groups, bias and
// ReLU.
// Read next: single/direct_groups.cu.
// Run: alexconv run --rungs direct-any-half --layers 2
//
// Parent: direct-any.  Neighbouring threads compute neighbouring filters of a pixel, so stores are coalesced, and in a
// depthwise layer (a channel per filter) so are the loads of inputs.
//
// A block computes THREADS consecutive outputs of y, a thread one of them.
#include <cuda_fp16.h>

#include "../common/bias.cuh"
#include "../common/padding.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_any_half(const __half* __restrict__ x,  // [N][H][W][C]
                    const __half* __restrict__ w,  // [M][GROUP_C][R][S]
                    __half* __restrict__ y,        // [N][E][F][M]
                    long long N BIAS_PARAMETER(__half))  // [M]
{
    const long long output = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (output >= N * M * E * F) return;
    const int m = output % M, f = output / M % F, e = output / ((long long)M * F) % E;
    const long long n = output / ((long long)M * E * F);
    x += (size_t)n * H * W * C + m / GROUP_M * GROUP_C;
    w += (size_t)m * GROUP_C * R * S;
    float sum = 0;
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) {
            const int row = e * U + r * DILATION_ROWS, column = f * V + s * DILATION_COLUMNS;
            const bool inside = in_plane(row, column);
            const __half* const pixel = x + ((size_t)(row - TOP) * W + column - LEFT) * C;
            for (int c = 0; c < GROUP_C; ++c) {
                const float input = inside ? __half2float(pixel[c]) : 0.0f;
                sum += input * __half2float(w[(c * R + r) * S + s]);
            }
        }
    y[output] = __float2half_rn(with_bias_and_relu<__half>(sum, BIAS, m));
}

ASSERT_BLOCK(DIRECT_ANY_HALF, THREADS, 1);
ASSERT_GRID(DIRECT_ANY_HALF, (M * E * F + THREADS - 1) / THREADS, 1, 1);
