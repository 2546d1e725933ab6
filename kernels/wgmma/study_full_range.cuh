// Recomputes what fp16 operands cannot carry: the last kernel of the rungs with scaled operands and the study's arrays.
//
// Gives: compute_full_range.
#pragma once
#include "../arch/dependent_launch.cuh"
#include "../common/filter_exponents.cuh"
#include "../common/full_range.cuh"

extern "C" __global__ void __launch_bounds__(FULL_THREADS)
    compute_full_range(const float* __restrict__ x,               // [N][C][H][W]
                       const float* __restrict__ full_filters,    // [M][C * R * S]
                       const int* __restrict__ exponents,         // [N]
                       const int* __restrict__ filter_exponents,  // [M]
                       float* __restrict__ y,                     // [N][Y_CHANNELS][E][F]
                       long long N EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    wait_for_primary_launches();  // which write the exponents and the other outputs
    compute_in_full_range(StudyArrays{x, full_filters, y, ADDENDS(float)}, exponents, filter_exponents, int(N));
}

ASSERT_BLOCK(COMPUTE_FULL_RANGE, FULL_THREADS, 1);
ASSERT_SHARED_BYTES(COMPUTE_FULL_RANGE, FULL_BYTES);
ASSERT_ELEMENTS(EXPONENTS, 1);
