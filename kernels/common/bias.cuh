// Bias and ReLU in the epilogue, where the layer has them.
//
// Gives: HAS_BIAS, HAS_RELU; with_bias_and_relu; for an entry point that stores outputs BIAS_PARAMETER(type), its last
// parameter, and BIAS, the argument.
#pragma once
#include "shape.cuh"

#ifdef CONV_BIAS
constexpr bool HAS_BIAS = true;
#define BIAS_PARAMETER(type) , const type* __restrict__ bias
#define BIAS bias
#else
constexpr bool HAS_BIAS = false;
#define BIAS_PARAMETER(type)
#define BIAS nullptr
#endif
#ifdef CONV_RELU
constexpr bool HAS_RELU = true;
#else
constexpr bool HAS_RELU = false;
#endif

// The output of filter m, given its sum; NaN stays NaN.
template <class Value>
__device__ __forceinline__ float with_bias_and_relu(float sum, const Value* __restrict__ bias,  // [M]
                                                    int m)
{
    if constexpr (HAS_BIAS) sum += float(bias[m]);
    if constexpr (HAS_RELU) sum = sum < 0 ? 0 : sum;
    return sum;
}
