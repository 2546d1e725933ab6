// The operand layout of mma-scaled and mma-split, the Layout of mma_tile.cuh: NCHW floats as words of two fp16 values.
//
// Gives: Pairs<terms>; Scaled (a Range); prepare_scaled_fragments; mma_planes.cuh.
//
// Two neighbouring channels share a word; where the last has no neighbour and the stride is even, two neighbouring
// columns do instead, since windows then begin at even columns.  A thread loads the two, multiplies them by a power of
// two and stores one word of fp16 values (the hi terms), or two: the hi and the lo terms.
//
// The first power is the usual one (range.cuh).  If a chunk's values do not suit it, the chunk is loaded again and the
// accumulators are rescaled to the new power, which never grows: values that are small beside the largest so far need
// no bits of their own.
//
// Needs: CHANNELS, a constant of the rung.
#pragma once
#include "mma_planes.cuh"
#include "../common/range.cuh"

// Two floats as fp16 values in a word: their hi terms, or with `term` 1 the lo terms, which the hi terms leave over.
__device__ __forceinline__ unsigned pair_of_halves(float2 values, int term)
{
    __half2 halves = __floats2half2_rn(values.x, values.y);
    if (term == 1) {
        const float2 nearest = __half22float2(halves);
        halves = __floats2half2_rn(values.x - nearest.x, values.y - nearest.y);
    }
    unsigned word;
    memcpy(&word, &halves, sizeof word);
    return word;
}

template <int terms>
struct Pairs : PlaneOutput {
    using Value = float;
    static constexpr bool COLUMNS = C % 2 == 1 && U % 2 == 0;  // that share a word, instead of channels

    // Words of a window's row, pairs in a row of inputs, and planes of pairs.
    static constexpr int WINDOW = COLUMNS ? divide_up(S, 2) : S, WIDTH = COLUMNS ? divide_up(W, 2) : W;
    static constexpr int PAIR_PLANES = COLUMNS ? CHANNELS : divide_up(CHANNELS, 2), WORDS = PAIR_PLANES * R * WINDOW;

    // Words from a pair to the next of its row, whose terms are read together, to the next row and to the next plane.
    static constexpr int NEXT = terms, PITCH = (COLUMNS ? WIDTH : SPREAD_PITCH) * NEXT, PLANE = INPUT_ROWS * PITCH;
    static constexpr int INPUT_WORDS = PAIR_PLANES * PLANE;

    // Word k of a chunk's depth is tap (pair of channels, r, s), or (c, r, pair of columns).
    static __device__ __forceinline__ int word(int k)
    {
        return k / (R * WINDOW) * PLANE + k / WINDOW % R * PITCH + k % WINDOW * NEXT;
    }

    // The first input of a pixel's window, in the tile's `row` of outputs.
    static __device__ __forceinline__ int pixel(int row, int column)
    {
        return row * U * PITCH + column * (COLUMNS ? U / 2 : U) * NEXT;
    }

    static __device__ __forceinline__ float2 filters(const float* w, int m, int chunk, int k)  // w [M][C][R][S]
    {
        const int plane = k / (R * WINDOW), r = k / WINDOW % R, column = k % WINDOW;
        const auto tap = [&](int channel, int s) {
            const int c = chunk * CHANNELS + channel;
            return channel < CHANNELS && c < C && s < S ? w[(((size_t)m * C + c) * R + r) * S + s] : 0;
        };
        return COLUMNS ? make_float2(tap(plane, 2 * column), tap(plane, 2 * column + 1))
                       : make_float2(tap(2 * plane, column), tap(2 * plane + 1, column));
    }

    // Loads the rows from `first_row` on, scaled and converted; zeros beyond the last row, column or channel.  Returns
    // the largest absolute value among this thread's inputs.
    static __device__ __forceinline__ float load(unsigned* to, const float* __restrict__ x,  // x [C][H][W]
                                                 int first_row, int chunk, float power)
    {
        const int channels = C - chunk * CHANNELS, rows = H - first_row;
        x += ((size_t)chunk * CHANNELS * H + first_row) * W;
        float largest = 0;
        const auto load_pair = [=](int plane, int row, int column) {
            const int c = COLUMNS ? plane : 2 * plane;
            const float* const first = x + (c * H + row) * W + column * (COLUMNS ? 2 : 1);
            const bool there = row < rows && (C % CHANNELS == 0 || c < channels);
            const bool second_there = COLUMNS ? there && 2 * column + 1 < W
                                              : row < rows && (CHANNELS % 2 == 0 || c + 1 < CHANNELS) &&
                                                    (C % CHANNELS == 0 || c + 1 < channels);
            return make_float2(there ? __ldg(first) : 0, second_there ? __ldg(first + (COLUMNS ? 1 : H * W)) : 0);
        };
        const auto put_pair = [=, &largest](int plane, int row, int column, float2 values) {
            largest = fmaxf(largest, fmaxf(fabsf(values.x), fabsf(values.y)));
            values.x *= power, values.y *= power;
            unsigned* const at = to + plane * PLANE + row * PITCH + column * NEXT;
            if constexpr (terms == 1)
                *at = pair_of_halves(values, 0);
            else
                *reinterpret_cast<uint2*>(at) = make_uint2(pair_of_halves(values, 0), pair_of_halves(values, 1));
        };
        for_batches<PAIR_PLANES, WIDTH, float2>(load_pair, put_pair);
        return largest;
    }
};

// Inputs and filters scaled by powers of two: the Range of mma_tile.cuh for fp16 operands made of floats.
struct Scaled {
    int filter_exponent, exponent = USUAL_EXPONENT;
    bool seen = false;  // an input that is not zero

    __device__ __forceinline__ explicit Scaled(const int* of_filters) : filter_exponent(__ldg(of_filters)) {}

    // The bound on the values that suit the current power, from that on usual values.
    __device__ __forceinline__ float bound(float usual) const
    {
        return usual * power_of_two(USUAL_EXPONENT) * power_of_two(-exponent);
    }

    // Floats are converted on the way, so they are not copied ahead.
    template <class Layout>
    __device__ __forceinline__ void begin(unsigned*, const float*, int, int) const
    {
    }

    // Loads a chunk and ends with a barrier; returns the factor by which the accumulators have to be multiplied.
    template <class Layout, int later>
    __device__ __forceinline__ float complete(unsigned* inputs, const float* x, int first_row, int chunk, bool)
    {
        const int before = exponent;
        for (;;) {
            float largest = Layout::load(inputs, x, first_row, chunk, power_of_two(exponent));
            // All inputs of the chunk are in place, and no thread still reads the chunk before.
            bool suits = !__syncthreads_or(!(largest < bound(MOST_USUAL)));
            if (!seen) suits = __syncthreads_or(largest >= bound(LEAST_USUAL)) && suits;
            if (suits) break;
            largest = largest_in_block<THREADS>(largest);
            if (largest == 0) return 1;
            const int found = scaling_exponent(largest);
            if (found == exponent) break;  // the power that suits best
            exponent = found;
        }
        const bool summed = seen;
        seen = true;
        return summed ? power_of_two(max(exponent - before, 1 - FLOAT_BIAS)) : 1;
    }

    // Removes the scaling from a sum; in two steps, as the power may exceed a float's range.
    __device__ __forceinline__ float outside(float sum) const
    {
        const int both = -exponent - filter_exponent;
        return sum * power_of_two(both / 2) * power_of_two(both - both / 2);
    }
};

// Writes the filters as fragments, all scaled by one power of two, whose exponent is stored.
template <class Arithmetic>
__device__ __forceinline__ void prepare_scaled_fragments(const float* __restrict__ w,       // [M][C][R][S]
                                                         const float* __restrict__ ranges,  // [FILTER_RANGES]
                                                         int* __restrict__ exponent,        // [1]
                                                         unsigned* __restrict__ fragments)
{
    const float power = power_of_two(exponent_of_filters(ranges, exponent));
    using Layout = Pairs<Arithmetic::TERMS>;
    prepare_fragments<Layout, Arithmetic>(fragments, [=](int m, int chunk, int k, int term) {
        const float2 taps = Layout::filters(w, m, chunk, k);
        return pair_of_halves(make_float2(taps.x * power, taps.y * power), term);
    });
}
