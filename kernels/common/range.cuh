// Exact scaling of floats into the range of fp16, by powers of two.
//
// Gives: scaling_exponent, power_of_two; largest_of (block-wide maximum); find_range_of_filters and
// exponent_of_filters, the two steps that choose one exponent for all filters.
//
// fp16 reaches from 2^-24 to 2^16.  Where the largest absolute value is near 1, as in most networks, a factor of 2^10
// leaves room above and keeps the low halves of split values, 11 bits below, clear of the lower end.
#pragma once
#include "shape.cuh"

constexpr int USUAL_EXPONENT = 10;
constexpr float LEAST_USUAL = 1.0f / 32, MOST_USUAL = 32;

constexpr int LARGEST_EXPONENT = 14, FLOAT_BIAS = 127, FLOAT_MANTISSA = 23;

// The exponent of the scaling factor for values whose largest absolute value is `largest`.
__device__ __forceinline__ int scaling_exponent(float largest)
{
    if (largest == 0 || (largest >= LEAST_USUAL && largest < MOST_USUAL)) return USUAL_EXPONENT;
    const int exponent = LARGEST_EXPONENT + FLOAT_BIAS - (__float_as_int(largest) >> FLOAT_MANTISSA);
    return min(exponent, FLOAT_BIAS - 1);  // the power and its inverse are floats of full precision
}

// 2^exponent, for exponents between -126 and 127.
__device__ __forceinline__ float power_of_two(int exponent)
{
    return __int_as_float((exponent + FLOAT_BIAS) << FLOAT_MANTISSA);
}

// Block-wide maximum of the threads' values, returned to every thread: warp shuffles, then shared memory.
template <int threads>
__device__ __forceinline__ float largest_in_block(float largest)
{
    constexpr int lanes = 32;
    __shared__ float of_warp[threads / lanes];
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
    if (threadIdx.x % lanes == 0) of_warp[threadIdx.x / lanes] = largest;
    __syncthreads();  // all warps have written their largest value before any thread reads
#pragma unroll
    for (int warp = 0; warp < threads / lanes; ++warp) largest = fmaxf(largest, of_warp[warp]);
    return largest;
}

// Block-wide maximum of |values[i]| over i = first, first + step, ... below count; first differs from thread to thread.
template <int threads>
__device__ __forceinline__ float largest_of(const float* __restrict__ values, size_t first, size_t count, size_t step)
{
    float largest = 0;
#pragma unroll 8
    for (size_t i = first; i < count; i += step) largest = fmaxf(largest, fabsf(values[i]));
    return largest_in_block<threads>(largest);
}

// Block i of FILTER_RANGES writes the largest absolute value of its chunk of the filters.
constexpr int FILTER_RANGES = 128, RANGE_THREADS = 256;

__device__ __forceinline__ void find_range_of_filters(const float* __restrict__ w,   // [M][C][R][S]
                                                      float* __restrict__ ranges)    // [FILTER_RANGES]
{
    const float largest = largest_of<RANGE_THREADS>(w, blockIdx.x * RANGE_THREADS + threadIdx.x,
                                                    (size_t)M * C * R * S, FILTER_RANGES * RANGE_THREADS);
    if (threadIdx.x == 0) ranges[blockIdx.x] = largest;
}

// The exponent for all filters; the first block stores it.  All RANGE_THREADS threads of each block call this.
__device__ __forceinline__ int exponent_of_filters(const float* __restrict__ ranges,  // [FILTER_RANGES]
                                                   int* __restrict__ exponent)        // [1]
{
    const int found = scaling_exponent(largest_of<RANGE_THREADS>(ranges, threadIdx.x, FILTER_RANGES, RANGE_THREADS));
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *exponent = found;
    return found;
}
