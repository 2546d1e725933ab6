// dgrad with a stride by a forward rung's kernels: the phases of the stride as channels of one convolution of dy.
//
// Gives: phase_tap (TURNED_TAP of common/filter_tap.cuh), interleave_phases.  The kernels are compiled for that
// convolution: its C are the layer's filters, its M the layer's channels, phase by phase; the layer has LAYER_C, ....
//
// The rows of x that a stride of U takes apart by their number modulo U, in the padded plane, have taps apart, too:
// those of phase a meet the taps a, a + U, ..., of which there are R = ceil(LAYER_R / U), and no others.  So the
// gradients of all phases are a convolution of dy at stride 1, with U x U filters for each channel of x, and a last
// kernel puts the phases in their places.  Where U does not divide the filter some phases have a tap less, whose
// filters get a zero.  Zero times infinity is NaN: gradients that come out as infinity or NaN are summed again from the
// taps that they have.
#pragma once
#include "../common/padding.cuh"
#include "../common/vector.cuh"

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

// Threads write neighbouring values of dx, from the convolution's outputs: each one, or with channels innermost those of
// 16 bytes. channels_innermost: NHWC, of all three arrays.
template <bool channels_innermost, class Value>
__device__ __forceinline__ void interleave_phases(const Value* __restrict__ phases,  // N outputs of the convolution
                                                  const Value* __restrict__ dy,      // N of [LAYER_M][LAYER_E][LAYER_F]
                                                  const Value* __restrict__ w,       // [LAYER_M][LAYER_C][LAYER_R][LAYER_S]
                                                  Value* __restrict__ dx,            // N of [LAYER_C][LAYER_H][LAYER_W]
                                                  long long N)
{
    constexpr unsigned EXPONENT = 0x7f800000;
    constexpr int WIDEST = 16 / sizeof(Value), COUNT = channels_innermost && LAYER_C % WIDEST == 0 ? WIDEST : 1;
    constexpr int GROUPS_OF_IMAGE = LAYER_C * LAYER_H * LAYER_W / COUNT, GROUPS_OF_PIXEL = LAYER_C / COUNT;
    using Group = Vector<Value, COUNT>;  // of neighbouring channels
    const long long step = (long long)gridDim.x * INTERLEAVE_THREADS, step_n = step / GROUPS_OF_IMAGE;
    const int step_place = int(step - step_n * GROUPS_OF_IMAGE);
    const long long first = (long long)blockIdx.x * INTERLEAVE_THREADS + threadIdx.x;
    long long n = first / GROUPS_OF_IMAGE;
    int place = int(first - n * GROUPS_OF_IMAGE);
    while (n < N) {
        const int c = channels_innermost ? place % GROUPS_OF_PIXEL * COUNT : place / (LAYER_H * LAYER_W);
        const int pixel = channels_innermost ? place / GROUPS_OF_PIXEL : place % (LAYER_H * LAYER_W);
        const int row = pixel / LAYER_W + LAYER_TOP, column = pixel % LAYER_W + LAYER_LEFT;
        const int e = row / STRIDE, f = column / STRIDE;
        const int m = (row % STRIDE * STRIDE + column % STRIDE) * LAYER_C + c;
        const bool has_outputs = e < E && f < F;
        Group group = {};
        if (has_outputs)
            group = *reinterpret_cast<const Group*>(phases + (channels_innermost ? (((size_t)n * E + e) * F + f) * M + m
                                                                                 : (((size_t)n * M + m) * E + e) * F + f));
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (!has_outputs || (__float_as_uint(float(group.values[i])) & EXPONENT) == EXPONENT)
                group.values[i] = Value(sum_of_taps(w, c + i, row, column, [&](int filter, int e, int f) {
                    return channels_innermost
                               ? float(dy[(((size_t)n * LAYER_E + e) * LAYER_F + f) * LAYER_M + filter])
                               : float(dy[(((size_t)n * LAYER_M + filter) * LAYER_E + e) * LAYER_F + f]);
                }));
        reinterpret_cast<Group*>(dx)[n * GROUPS_OF_IMAGE + place] = group;
        n += step_n;
        place += step_place;
        if (place >= GROUPS_OF_IMAGE) {
            place -= GROUPS_OF_IMAGE;
            ++n;
        }
    }
}

ASSERT_ELEMENTS(PHASES, M * E * F);
ASSERT_BLOCK(INTERLEAVE, INTERLEAVE_THREADS, 1);
