// Local response normalization over channels, in fp32.
//
// Gives: normalized_part, the normalized values of a thread's channels; channels.cuh.
// Needs: WINDOW, the channels of a sum, an odd number; K_BITS and ALPHA_BITS, k and alpha as the bits of a float.
//
//     y[c] = x[c] / (k + alpha * sum of x[j]^2 over |j - c| <= WINDOW / 2) ^ (3/4)
//
// (Krizhevsky, Sutskever and Hinton, "ImageNet classification with deep convolutional neural networks", NIPS 2012,
// section 3.3.)  The power is two square roots: powf would be less exact and slower.  A quotient of x may take a
// division's slow path where x is zero, as half of the values are after ReLU; the reciprocal never does.
#pragma once
#include "channels.cuh"

constexpr int BESIDE = WINDOW / 2;  // channels on each side
static_assert(WINDOW % 2 == 1, "a window of channels has a middle");

template <int ROWS, int COLUMNS>
__device__ __forceinline__ void normalized_part(const Value* __restrict__ x,  // [N] planes
                                                long long n, int first, int row, int column,
                                                float* values)  // [CHUNK]
{
    float around[CHUNK + 2 * BESIDE];  // channels first - BESIDE to first + CHUNK + BESIDE - 1
    load_part<ROWS, COLUMNS>(x, n, first, row, column, around + BESIDE);
#pragma unroll
    for (int i = 0; i < BESIDE; ++i) {
        const int before = first - BESIDE + i, after = first + CHUNK + i;
        around[i] = before >= 0 ? float(x[place<ROWS, COLUMNS>(n, before, row, column)]) : 0.0f;
        around[BESIDE + CHUNK + i] = after < C ? float(x[place<ROWS, COLUMNS>(n, after, row, column)]) : 0.0f;
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
