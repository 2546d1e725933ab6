// dgrad with a stride by a forward rung's kernels: the phases of the stride as channels of one convolution of dy.
//
// Gives: phase_tap (TURNED_TAP of common/filter_tap.cuh), interleave; common/padding.cuh.  The kernels are compiled for that convolution: its C are the
// filters of dgrad's layer, its M the layer's channels, phase by phase; the layer's own numbers are LAYER_C, ....
//
// The rows of x that a stride of U takes apart by their number modulo U, in the padded plane, have taps apart, too:
// those of phase a meet the taps a, a + U, ..., of which there are R = ceil(LAYER_R / U), and no others.  So the
// gradients of all phases are a convolution of dy at stride 1, with U x U filters for each channel of x, and a last
// kernel puts the phases in their places.  Where U does not divide the filter some phases have a tap less, whose
// filters get a zero.  Zero times infinity is NaN: gradients that come out as infinity or NaN are summed again from the
// taps that they have.
#pragma once
#include "../common/padding.cuh"

#ifndef LAYER_TOP
#define LAYER_TOP 0
#endif
#ifndef LAYER_LEFT
#define LAYER_LEFT 0
#endif
constexpr int STRIDE = LAYER_U, PHASES = STRIDE * STRIDE;
static_assert(M == LAYER_C * PHASES && C == LAYER_M && GROUPS == 1 && U == 1);
static_assert(R == (LAYER_R + STRIDE - 1) / STRIDE && S == (LAYER_S + STRIDE - 1) / STRIDE);

// A tap of a phase's filter m: rotated, and exchanged with channels.
template <class Value>
__device__ __forceinline__ Value phase_tap(const Value* __restrict__ w,  // [LAYER_M][LAYER_C][LAYER_R][LAYER_S]
                                           int m, int filter, int tap)
{
    const int c = m % LAYER_C, phase = m / LAYER_C, r = tap / S, s = tap % S;
    const int row = phase / STRIDE + (R - 1 - r) * STRIDE, column = phase % STRIDE + (S - 1 - s) * STRIDE;
    const bool inside = row < LAYER_R && column < LAYER_S;
    return inside ? w[(((size_t)filter * LAYER_C + c) * LAYER_R + row) * LAYER_S + column] : Value(0);
}
#define TURNED_TAP phase_tap

// A gradient at a row and a column of the padded plane, tap by tap.
template <class Value, class Gradient>
__device__ __noinline__ float sum_of_taps(const Value* __restrict__ w,  // [LAYER_M][LAYER_C][LAYER_R][LAYER_S]
                                          int c, int row, int column, Gradient gradient)
{
    float sum = 0;
    for (int m = 0; m < LAYER_M; ++m)
        for (int r = row % STRIDE; r < LAYER_R; r += STRIDE)
            for (int s = column % STRIDE; s < LAYER_S; s += STRIDE) {
                const int down = row - r, across = column - s, e = down / STRIDE, f = across / STRIDE;
                const bool inside = down >= 0 && e < LAYER_E && across >= 0 && f < LAYER_F;
                sum += (inside ? gradient(m, e, f) : 0) * float(w[(((size_t)m * LAYER_C + c) * LAYER_R + r) * LAYER_S + s]);
            }
    return sum;
}

constexpr int INTERLEAVE_THREADS = 256;

// Threads write neighbouring values of dx, from the convolution's outputs. channels_innermost: NHWC, of all three
// arrays.
template <bool channels_innermost, class Value>
__device__ __forceinline__ void interleave_phases(const Value* __restrict__ phases,  // N outputs of the convolution
                                                  const Value* __restrict__ dy,      // N of [LAYER_M][LAYER_E][LAYER_F]
                                                  const Value* __restrict__ w,       // [LAYER_M][LAYER_C][LAYER_R][LAYER_S]
                                                  Value* __restrict__ dx,            // N of [LAYER_C][LAYER_H][LAYER_W]
                                                  long long N)
{
    constexpr unsigned EXPONENT = 0x7f800000;
    const long long values = N * LAYER_C * LAYER_H * LAYER_W, step = (long long)gridDim.x * INTERLEAVE_THREADS;
    for (long long i = (long long)blockIdx.x * INTERLEAVE_THREADS + threadIdx.x; i < values; i += step) {
        const long long n = i / (LAYER_C * LAYER_H * LAYER_W);
        const int place = int(i - n * (LAYER_C * LAYER_H * LAYER_W));
        const int c = channels_innermost ? place % LAYER_C : place / (LAYER_H * LAYER_W);
        const int pixel = channels_innermost ? place / LAYER_C : place % (LAYER_H * LAYER_W);
        const int row = pixel / LAYER_W + LAYER_TOP, column = pixel % LAYER_W + LAYER_LEFT;
        const int e = row / STRIDE, f = column / STRIDE;
        const int m = (row % STRIDE * STRIDE + column % STRIDE) * LAYER_C + c;
        const bool has_outputs = e < E && f < F;
        float value = 0;
        if (has_outputs)
            value = channels_innermost ? float(phases[(((size_t)n * E + e) * F + f) * M + m])
                                       : float(phases[(((size_t)n * M + m) * E + e) * F + f]);
        if (!has_outputs || (__float_as_uint(value) & EXPONENT) == EXPONENT)
            value = sum_of_taps(w, c, row, column, [&](int filter, int e, int f) {
                return channels_innermost
                           ? float(dy[(((size_t)n * LAYER_E + e) * LAYER_F + f) * LAYER_M + filter])
                           : float(dy[(((size_t)n * LAYER_M + filter) * LAYER_E + e) * LAYER_F + f]);
            });
        dx[i] = Value(value);
    }
}

ASSERT_ELEMENTS(PHASES, M * E * F);
ASSERT_BLOCK(INTERLEAVE, INTERLEAVE_THREADS, 1);
