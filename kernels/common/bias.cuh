// The epilogue of a sum: bias, residual and activation, where the layer has them, and where outputs lie.
//
// Gives: HAS_BIAS; activated; with_bias_and_relu; for an entry point that stores outputs BIAS_PARAMETER(type), its last
// parameter, and BIAS, the argument.  For rungs that take residuals and slices: HAS_RESIDUAL, Y_CHANNELS; Addends;
// EPILOGUE_PARAMETERS(type), the last parameters, and ADDENDS(type), the argument.
#pragma once
#include "shape.cuh"

#ifdef DYNAMIC_SHAPE  // a bias's address says whether there is one, a number whether ReLU is applied
#define CONV_BIAS
#define CONV_RELU
#endif
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
#ifdef CONV_CEILING
constexpr float CEILING = CONV_CEILING;  // the largest output that ReLU passes
#else
constexpr float CEILING = 0;  // none
#endif
#ifdef CONV_SILU
constexpr bool HAS_SILU = true;
#else
constexpr bool HAS_SILU = false;
#endif
#ifdef CONV_GELU
constexpr bool HAS_GELU = true;
#else
constexpr bool HAS_GELU = false;
#endif
#ifdef CONV_RESIDUAL
constexpr bool HAS_RESIDUAL = true;
#define RESIDUAL_PARAMETER(type) , const type* __restrict__ residual
#define RESIDUAL residual
#else
constexpr bool HAS_RESIDUAL = false;
#define RESIDUAL_PARAMETER(type)
#define RESIDUAL nullptr
#endif
#ifndef CONV_Y_CHANNELS
#define CONV_Y_CHANNELS CONV_M
#endif
NUMBER(Y_CHANNELS, CONV_Y_CHANNELS);  // of the array of which the outputs are a slice
NUMBER(RELU, HAS_RELU);
constexpr bool HAS_EPILOGUE = HAS_BIAS || HAS_RESIDUAL || HAS_RELU || HAS_SILU || HAS_GELU;
#define EPILOGUE_PARAMETERS(type) BIAS_PARAMETER(type) RESIDUAL_PARAMETER(type)
#define ADDENDS(type) Addends<type>{BIAS, RESIDUAL}

// The bias of filter m, in builds that take one.
template <class Value>
__device__ __forceinline__ Value bias_of(const Value* __restrict__ bias,  // [M]
                                         int m)
{
#ifdef DYNAMIC_SHAPE
    if (!bias) return Value(0);
#endif
    return bias[m];
}

// An output, given its sum; NaN stays NaN.
__device__ __forceinline__ float activated(float sum)
{
    if constexpr (HAS_SILU) return __fdividef(sum, 1 + __expf(-sum));
    if constexpr (HAS_GELU) return 0.5f * sum * (1 + erff(sum * 0.70710678f));
    if constexpr (CEILING > 0) sum = sum > CEILING ? CEILING : sum;
    if constexpr (HAS_RELU) sum = RELU && sum < 0 ? 0 : sum;
    return sum;
}

// The output of filter m, given its sum.
template <class Value>
__device__ __forceinline__ float with_bias_and_relu(float sum, const Value* __restrict__ bias,  // [M]
                                                    int m)
{
    if constexpr (HAS_BIAS) sum += float(bias_of(bias, m));
    return activated(sum);
}

// What is added to sums.
template <class Value>
struct Addends {
    const Value* bias;      // [M]
    const Value* residual;  // lies as y does: an output's value is at the output's place

    // The output at a place of y, given its sum with the bias.
    __device__ __forceinline__ float activated_at(size_t place, float sum) const
    {
        if constexpr (HAS_RESIDUAL) sum += float(__ldg(residual + place));
        return activated(sum);
    }

    // The output of filter m at a place of y, given its sum.
    __device__ __forceinline__ float finished(float sum, int m, size_t place) const
    {
        if constexpr (HAS_BIAS) sum += float(bias_of(bias, m));
        return activated_at(place, sum);
    }
};
