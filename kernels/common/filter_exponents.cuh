// The first kernel of the rungs with scaled filters: a power of two for each filter.
//
// Gives: find_filter_exponents.
//
// Block m stores the exponent of filter m, and a copy of the filter for full_range.cuh.
#pragma once
#include "filter_tap.cuh"
#include "range.cuh"

extern "C" __global__ void __launch_bounds__(RANGE_THREADS)
    find_filter_exponents(const float* __restrict__ w,         // [M][GROUP_C][R][S]
                          int* __restrict__ filter_exponents,  // [M]
                          float* __restrict__ full_filters)    // [M][GROUP_C * R * S]
{
    SHAPE_CONST int TAPS = GROUP_C * R * S;
    const int m = blockIdx.x;
    unsigned largest = 0;
#pragma unroll 8
    for (int i = threadIdx.x; i < TAPS; i += RANGE_THREADS) {
        const float value = filter_tap(w, m, i / (R * S), i % (R * S));
        full_filters[(size_t)m * TAPS + i] = value;
        largest = max(largest, magnitude(value));
    }
    largest = seen_in_block<RANGE_THREADS>({largest, false, false}).largest;
    if (threadIdx.x > 0) return;
    const int exponent = best_exponent(largest);
    filter_exponents[m] = largest < INFINITE && exponent >= LEAST_FILTER_EXPONENT ? exponent : NO_EXPONENT;
}

ASSERT_BLOCK(FIND_FILTER_EXPONENTS, RANGE_THREADS, 1);
ASSERT_GRID(FIND_FILTER_EXPONENTS, M, 1, 1);
ASSERT_ELEMENTS(FILTER_EXPONENTS, M);
ASSERT_ELEMENTS(FULL_FILTERS, GROUP_C * R * S * M);
