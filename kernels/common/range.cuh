// Exact scaling of floats into the range of fp16, by powers of two.
//
// Gives: magnitude, best_exponent, scaling_exponent, power_of_two, NO_EXPONENT; Seen and seen_in_block (the range of a
// block's values); RANGE_THREADS.
//
// fp16 reaches from 2^-24 to 2^16.  Where the largest absolute value is near 1, as in most networks, a factor of 2^10
// leaves room above and keeps the lo terms of split values, 11 bits below, clear of the lower end.
//
// Values that fp16 cannot represent have no exponent and are recomputed from the floats (full_range.cuh): infinities
// and NaN, and values too faint next to the largest that shares their exponent (docs/precision.md).
#pragma once
#include "shape.cuh"

constexpr int USUAL_EXPONENT = 10;
constexpr int LARGEST_EXPONENT = 14, FLOAT_BIAS = 127, FLOAT_MANTISSA = 23;
constexpr int NO_EXPONENT = 127;             // exponents are less
constexpr int LEAST_FILTER_EXPONENT = -64;   // so that an image's and a filter's factor can be applied in turn
constexpr unsigned INFINITE = 0xff << FLOAT_MANTISSA, SIGN = 1u << 31;

// The bits of an absolute value, ordered as unsigned numbers: finite, infinity, NaN.
__device__ __forceinline__ unsigned magnitude(float value)
{
    return __float_as_uint(value) & ~SIGN;
}

// 2^exponent, for exponents between -126 and 127.
__device__ __forceinline__ constexpr unsigned bits_of_power(int exponent)
{
    return unsigned(exponent + FLOAT_BIAS) << FLOAT_MANTISSA;
}

__device__ __forceinline__ float power_of_two(int exponent)
{
    return __uint_as_float(bits_of_power(exponent));
}

// The exponent of the factor that brings a largest magnitude to 2^14, or as near as floats allow.
__device__ __forceinline__ int best_exponent(unsigned largest)
{
    if (largest == 0) return USUAL_EXPONENT;
    const int exponent = LARGEST_EXPONENT + FLOAT_BIAS - int(largest >> FLOAT_MANTISSA);
    return min(exponent, FLOAT_BIAS - 1);  // the power and its inverse are floats of full precision
}

// The usual exponent where it suits the largest magnitude, else the best.
__device__ __forceinline__ int scaling_exponent(unsigned largest)
{
    constexpr unsigned LEAST = bits_of_power(-5), MOST = bits_of_power(5);
    return largest == 0 || (largest >= LEAST && largest < MOST) ? USUAL_EXPONENT : best_exponent(largest);
}

// The range of a thread's or a block's values: the largest magnitude, whether a pixel was too faint, and whether a
// square of pixels was.
struct Seen {
    unsigned largest;
    bool faint, weak;
};

// The same for a block, returned to every thread: warp shuffles, then shared memory, with one barrier.
template <int threads>
__device__ __forceinline__ Seen seen_in_block(Seen mine)
{
    constexpr int lanes = 32;
    constexpr unsigned ALL_LANES = 0xffffffff;
    __shared__ unsigned of_warp[threads / lanes];
    __shared__ bool faint_of_warp[threads / lanes], weak_of_warp[threads / lanes];
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        mine.largest = max(mine.largest, __shfl_xor_sync(ALL_LANES, mine.largest, distance));
    mine.faint = __ballot_sync(ALL_LANES, mine.faint) != 0;
    mine.weak = __ballot_sync(ALL_LANES, mine.weak) != 0;
    if (threadIdx.x % lanes == 0) {
        of_warp[threadIdx.x / lanes] = mine.largest;
        faint_of_warp[threadIdx.x / lanes] = mine.faint;
        weak_of_warp[threadIdx.x / lanes] = mine.weak;
    }
    // All warps have written before any thread reads.  No __syncthreads_or: of a constant, where one thread alone uses the
    // result, ptxas 13.0 has that thread enter a second barrier.
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < threads / lanes; ++warp) {
        mine.largest = max(mine.largest, of_warp[warp]);
        mine.faint |= faint_of_warp[warp];
        mine.weak |= weak_of_warp[warp];
    }
    return mine;
}

constexpr int RANGE_THREADS = 256;  // of a block that scales operands
