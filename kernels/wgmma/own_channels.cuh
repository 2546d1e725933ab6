// Outputs from a group's own channels, where a product over unprepared inputs has those of other groups too.
//
// Gives: OwnChannels, NoOthers; for an entry point whose products may have channels of several groups
// GROUP_PARAMETERS(an OwnChannels), its parameters before the bias, and OWN_CHANNELS, the argument.
//
// A filter has zeros for the other groups' channels, but zero times infinity is NaN.  So an epilogue computes a warp's
// outputs again if one of its sums is an infinity or a NaN.
#pragma once
#include "../common/range.cuh"
#include "blocked.cuh"

#if CONV_GROUPS > 1
#define GROUP_PARAMETERS(Own) , const Own::Value* __restrict__ x, const Own::Prepared* __restrict__ filters
#define OWN_CHANNELS {x, filters}
#else
#define GROUP_PARAMETERS(Own)
#define OWN_CHANNELS {nullptr, nullptr}
#endif

// For products without the channels of other groups, or whose inputs are finite.
struct NoOthers {
    static constexpr bool SEEN = false;
};

// For products with channels of other groups, if `seen`.  Taps: the prepared filters, a Prepared for each of TAP_C
// channels of a tap, where it `places` them, as a float (HalfTaps; FloatTaps of floats.cuh).
template <class Input, class Taps, bool seen>
struct OwnChannels {
    using Value = Input;
    using Prepared = typename Taps::Prepared;
    static constexpr bool SEEN = seen;

    const Value* x;           // [N][H][W][C]
    const Prepared* filters;  // [M][R][S][TAP_C]

    // Whether a sum of the warp is an infinity or a NaN.
    template <int count>
    static __device__ __forceinline__ bool any_infinite(const float (&sums)[count])
    {
        bool any = false;
#pragma unroll
        for (int i = 0; i < count; ++i) any |= magnitude(sums[i]) >= INFINITE;
        return __any_sync(0xffffffff, any);
    }

    __device__ __forceinline__ float sum(int pixel, int m) const
    {
        const int n = pixel / PIXELS, row = pixel % PIXELS / F * U, column = pixel % PIXELS % F * V;
        const int first = m / GROUP_M * GROUP_C, first_of_tap = channel_of_product(m);
        float sum = 0;
#pragma unroll 1
        for (int tap = 0; tap < R * S; ++tap) {
            const int h = row + tap / S * DILATION_ROWS, w = column + tap % S * DILATION_COLUMNS;
            const bool there = !HAS_PADDING || in_plane(h, w);
            const Value* const inputs = x + (((size_t)n * H + h - TOP) * W + w - LEFT) * C + first;
            const Prepared* const taps = filters + ((size_t)m * R * S + tap) * Taps::TAP_C;
#pragma unroll 1
            for (int c = 0; c < GROUP_C; ++c)
                sum += (there ? float(inputs[c]) : 0) * Taps::value(taps[Taps::place(first_of_tap + c)]);
        }
        return sum;
    }
};

// fp16 filters, channel after channel.
template <int count>
struct HalfTaps {
    using Prepared = __half;
    static constexpr int TAP_C = count;

    static __device__ __forceinline__ int place(int channel) { return channel; }
    static __device__ __forceinline__ float value(__half tap) { return float(tap); }
};
