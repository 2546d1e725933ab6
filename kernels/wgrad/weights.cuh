// What the wgrad kernels share: numbers of weights, inputs under a tap, and the reduction of partial sums.
//
// Gives: TAPS, WEIGHTS; Weight; input_at; sum_of_slices, add_slices; common/padding.cuh, common/product.cuh.
//
// Where images, or parts of images, are summed by different blocks (slices of the sum), each leaves partial sums
// [slices][WEIGHTS], and a second kernel adds them in a fixed order, so that results have the same bits in every run.
// It adds groups of about the square root of their number: a chain of additions is then no longer than twice that.
#pragma once
#include "../common/padding.cuh"
#include "../common/product.cuh"

constexpr int TAPS = GROUP_C * R * S;                      // of a filter
constexpr int WEIGHTS = M * TAPS;
constexpr int REDUCTION_THREADS = 256;

// A weight by its number in dw [M][GROUP_C][R][S].
struct Weight {
    int m, c, r, s;  // filter, channel of x, tap

    __device__ __forceinline__ Weight(int m, int c, int r, int s) : m(m), c(c), r(r), s(s) {}

    __device__ __forceinline__ explicit Weight(int number)
        : m(number / TAPS), c(m / GROUP_M * GROUP_C + number / (R * S) % GROUP_C), r(number / S % R), s(number % S)
    {
    }
};

// The input of a channel under a tap of an output; padding is zero.
__device__ __forceinline__ float input_at(const float* __restrict__ plane,  // [H][W]
                                          int e, int f, int r, int s)
{
    const int row = e * U + r * DILATION_ROWS, column = f * V + s * DILATION_COLUMNS;
    return in_plane(row, column) ? plane[(row - TOP) * W + column - LEFT] : 0;
}

// The sum of a weight's partial sums.
__device__ __forceinline__ float sum_of_slices(const float* __restrict__ partial,  // [slices][WEIGHTS], from the weight on
                                               long long slices)
{
    long long group = 1;
    while (group * group < slices) ++group;
    float sum = 0;
    for (long long first = 0; first < slices; first += group) {
        float of_group = 0;
        for (long long slice = first; slice < first + group && slice < slices; ++slice)
            of_group += partial[slice * WEIGHTS];
        sum += of_group;
    }
    return sum;
}

// The second kernel: a thread computes one weight.
template <class Value>
__device__ __forceinline__ void add_slices(const float* __restrict__ partial,  // [slices][WEIGHTS]
                                           Value* __restrict__ dw,             // [M][GROUP_C][R][S]
                                           long long slices)
{
    const int weight = blockIdx.x * REDUCTION_THREADS + threadIdx.x;
    if (weight < WEIGHTS) dw[weight] = Value(sum_of_slices(partial + weight, slices));
}
