// The operand layout of mma-scaled and mma-split, the Layout of mma_tile.cuh: NCHW floats as words of two fp16 values.
//
// Gives: Pairs<terms>; Scaled (a Range); prepare_scaled_fragments; mma_planes.cuh.
//
// Two neighbouring channels share a word; if C is odd and the stride even, two neighbouring columns do instead, since
// windows then begin at even columns.  A thread loads both, multiplies them by a power of two and stores one word (the
// hi terms), or two (hi and lo terms).
//
// The first power is the usual one (range.cuh).  If a K tile's values do not suit it, the K tile is loaded again and
// the accumulators are rescaled to the new power, which never grows: values that are small next to the largest so far
// need no bits of their own.  But a pixel with only small channels would lose bits that its outputs need, and fp16
// cannot carry an infinity: the block then recomputes its outputs from the floats, in fp32.
//
// Needs: TILE_FILTERS, CHANNELS and WARPS, constants of the rung.
#pragma once
#include "mma_planes.cuh"
#include "../arch/basics.cuh"
#include "../common/range.cuh"

// Two floats as fp16 values in a word: their hi terms, or with `term` 1 the lo terms: the rounding errors of the hi
// terms.
__device__ __forceinline__ unsigned pair_of_fp16(float2 values, int term)
{
    __half2 rounded = __floats2half2_rn(values.x, values.y);
    if (term == 1) {
        const float2 nearest = __half22float2(rounded);
        rounded = __floats2half2_rn(values.x - nearest.x, values.y - nearest.y);
    }
    unsigned word;
    memcpy(&word, &rounded, sizeof word);
    return word;
}

template <int terms>
struct Pairs : PlaneOutput {
    using Value = float;
    // Whether columns share a word, instead of channels.
    MEMBER_FLAG(COLUMNS, GROUP_C % 2 == 1 && V % 2 == 0 && DILATION_COLUMNS == 1);

    // Words of a window's row, pairs in a row of inputs, and planes of pairs.
    MEMBER_DIVISOR(WINDOW, WINDOW_WORDS, OF(Pairs, COLUMNS) ? divide_up(S, 2) : S);
    MEMBER_DIVISOR(WIDTH, ROW_WORDS, OF(Pairs, COLUMNS) ? divide_up(PADDED_W, 2) : PADDED_W);
    MEMBER_DIVISOR(PLANE_TAPS, PLANE_TAPS, R * OF(Pairs, WINDOW));
    MEMBER_SIZE(PAIR_PLANES, OF(Pairs, COLUMNS) ? int(CHANNELS) : divide_up(CHANNELS, 2));
    MEMBER_SIZE(WORDS, OF(Pairs, PAIR_PLANES) * R * OF(Pairs, WINDOW));

    // Words from a pair to the next of its row, whose terms are read together, to the next row and to the next plane.
    static constexpr int NEXT = terms;
    MEMBER_SIZE(PITCH, (OF(Pairs, COLUMNS) ? int(OF(Pairs, WIDTH)) : int(SPREAD_PITCH)) * NEXT);
    MEMBER_SIZE(PLANE, INPUT_ROWS * OF(Pairs, PITCH));
    MEMBER_SIZE(INPUT_WORDS, OF(Pairs, PAIR_PLANES) * OF(Pairs, PLANE));

    // Two flag bytes per pixel: whether a channel is strong, and whether one is nonzero.  Next to a scaled magnitude of
    // 2^STRONG, errors of smaller values are negligible: those of fp16 are 2^-25 at most, and an operand's relative
    // error may be 2^-22, or 2^-11 with one term.  Where every nonzero value is strong, no flag is set.
    static constexpr int STRONG = terms == 2 ? 0 : -8, HALF_BIAS = 15, HALF_MANTISSA = 10;
    static constexpr unsigned LEAST_STRONG = (STRONG + HALF_BIAS) << HALF_MANTISSA;  // as fp16
    static constexpr int WORD_BYTES = sizeof(unsigned);
    MEMBER_DIVISOR(PIXEL_WORDS, PIXEL_WORDS, INPUT_ROWS * OF(Pairs, WIDTH));
    MEMBER_SIZE(STRONG_FLAGS, divide_up(OF(Pairs, PIXEL_WORDS) * (OF(Pairs, COLUMNS) ? 2 : 1), WORD_BYTES));
    MEMBER_SIZE(FLAGS, 2 * OF(Pairs, STRONG_FLAGS));  // words: the strong ones first
    static constexpr int FACTORS = TILE_FILTERS;    // words
    static constexpr int LEAST_HALF = -24;  // the least fp16 value is that power of two; up to half of it rounds to zero
    static constexpr bool CARRIES_INFINITY = false;  // such a block is recomputed

    // Word k of a K tile's depth is tap (pair of channels, r, s), or (c, r, pair of columns).
    static __device__ __forceinline__ int word(int k)
    {
        return k / OF(Pairs, PLANE_TAPS) * OF(Pairs, PLANE) +
               k / OF(Pairs, WINDOW) % R * DILATION_ROWS * OF(Pairs, PITCH) +
               k % OF(Pairs, WINDOW) * DILATION_COLUMNS * NEXT;
    }

    // The first input of a pixel's window, in the tile's `row` of outputs.
    static __device__ __forceinline__ int pixel(int row, int column)
    {
        return row * U * OF(Pairs, PITCH) + column * (OF(Pairs, COLUMNS) ? V / 2 : int(V)) * NEXT;
    }

    static __device__ __forceinline__ float2 filters(const float* w,  // [M][GROUP_C][R][S]
                                                     int m, int k_tile, int k)
    {
        const int plane = k / OF(Pairs, PLANE_TAPS), r = k / OF(Pairs, WINDOW) % R, column = k % OF(Pairs, WINDOW);
        const auto tap = [&](int channel, int s) {
            const int c = k_tile * CHANNELS + channel;
            return channel < CHANNELS && c < GROUP_C && s < S ? filter_tap(w, m, c, r * S + s) : 0;
        };
        return OF(Pairs, COLUMNS) ? make_float2(tap(plane, 2 * column), tap(plane, 2 * column + 1))
                                  : make_float2(tap(2 * plane, column), tap(2 * plane + 1, column));
    }

    // The input pair in a plane of the K tile, zeros beyond the last row, column or channel, and in the padding.
    static __device__ __forceinline__ float2 input(const float* __restrict__ x,  // [GROUP_C][H][W], of the K tile and row
                                                   int first_row, int channels, int plane, int row, int column)
    {
        SHAPE_CONST bool BY_COLUMNS = OF(Pairs, COLUMNS);
        const int c = BY_COLUMNS ? plane : 2 * plane, rows = H + TOP - first_row;
        const float* const first = x + (c * H + row) * W + column * (BY_COLUMNS ? 2 : 1);
        bool there = row < rows && (KNOWN(GROUP_C % CHANNELS == 0) || c < channels);
        bool second_there = BY_COLUMNS ? there && 2 * column + 1 < LEFT + W
                                    : row < rows && (KNOWN(CHANNELS % 2 == 0) || c + 1 < CHANNELS) &&
                                          (KNOWN(GROUP_C % CHANNELS == 0) || c + 1 < channels);
        if constexpr (HAS_PADDING) {
            there = there && clear_of_border(first_row + row, column * (BY_COLUMNS ? 2 : 1));
            second_there = second_there && clear_of_border(first_row + row, column * (BY_COLUMNS ? 2 : 1) + BY_COLUMNS);
        }
        return make_float2(there ? __ldg(first) : 0, second_there ? __ldg(first + (BY_COLUMNS ? 1 : H * W)) : 0);
    }

    // The range of the magnitudes that a thread has loaded.  NaN is the largest; the smallest is kept less one, so that
    // zero wraps around and does not count.
    struct Range {
        unsigned largest = 0, smallest_less_one = ~0u;

        __device__ __forceinline__ void add(unsigned magnitude)
        {
            largest = max(largest, magnitude), smallest_less_one = min(smallest_less_one, magnitude - 1);
        }

        // Whether a magnitude is 2^power or more; whether a nonzero one is less.
        __device__ __forceinline__ bool reaches(int power) const { return largest >= bits_of_power(power); }
        __device__ __forceinline__ bool falls_below(int power) const
        {
            return smallest_less_one < bits_of_power(max(power, 1 - FLOAT_BIAS)) - 1;
        }
    };

    // Loads the rows from `first_row` on, scaled and converted; returns the range of this thread's inputs.
    static __device__ __forceinline__ Range load(unsigned* to, const float* __restrict__ x,  // x [GROUP_C][H][W]
                                                 int first_row, int k_tile, float power)
    {
        const int channels = GROUP_C - k_tile * CHANNELS;
        x += ((size_t)k_tile * CHANNELS * H + first_row) * W;
        x -= TOP * W + LEFT;
        Range range;
        const auto load_pair = [=](int plane, int row, int column) {
            return input(x, first_row, channels, plane, row, column);
        };
        const auto put_pair = [=, &range](int plane, int row, int column, float2 values) {
            IF_SHAPE (OF(Pairs, COLUMNS))
                range.add(magnitude(values.x)), range.add(magnitude(values.y));
            else
                range.add(__float_as_uint(max_nan(fabsf(values.x), fabsf(values.y))));  // two channels of a pixel
            values.x *= power, values.y *= power;
            unsigned* const at = to + plane * OF(Pairs, PLANE) + row * OF(Pairs, PITCH) + column * NEXT;
            if constexpr (terms == 1)
                *at = pair_of_fp16(values, 0);
            else
                *reinterpret_cast<uint2*>(at) = make_uint2(pair_of_fp16(values, 0), pair_of_fp16(values, 1));
        };
        for_batches<PAIR_PLANES, WIDTH, float2>(load_pair, put_pair);
        return range;
    }

    // Sets a pixel's flags, given the bits of its largest value in fp16.  Threads with other channels of the pixel
    // store the same value.
    static __device__ __forceinline__ void set_flags(unsigned* flags, int pixel, unsigned largest)
    {
        unsigned char* const strong = reinterpret_cast<unsigned char*>(flags);
        if (largest >= LEAST_STRONG) strong[pixel] = 1;
        if (largest > 0) strong[OF(Pairs, STRONG_FLAGS) * WORD_BYTES + pixel] = 1;
    }

    // Sets the pixel flags of a loaded K tile from its hi terms.  A thread takes some planes of a word of pixels.
    static __device__ __forceinline__ void set_all_flags(unsigned* flags, const unsigned* inputs)
    {
#ifdef DYNAMIC_SHAPE
        constexpr int TOGETHER = 8;
#else
        constexpr int TOGETHER = smaller(PAIR_PLANES, 8);
#endif
        SHAPE_CONST int COUNT = OF(Pairs, PAIR_PLANES), ITEMS = divide_up(COUNT, TOGETHER) * OF(Pairs, PIXEL_WORDS);
#pragma unroll 1
        for (int i = threadIdx.x; i < ITEMS; i += THREADS) {
            const int word = i % OF(Pairs, PIXEL_WORDS), first = i / OF(Pairs, PIXEL_WORDS) * TOGETHER;
            const unsigned* const from =
                inputs + word / OF(Pairs, WIDTH) * OF(Pairs, PITCH) + word % OF(Pairs, WIDTH) * NEXT;
            unsigned low = 0, high = 0;
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j) {
                const int plane = KNOWN(COUNT % TOGETHER == 0) ? first + j : smaller(first + j, COUNT - 1);
                const unsigned pair = from[plane * OF(Pairs, PLANE)] & 0x7fff7fff;
                low = max(low, pair & 0xffff), high = max(high, pair >> 16);
            }
            IF_SHAPE (OF(Pairs, COLUMNS)) {
                set_flags(flags, 2 * word, low);
                set_flags(flags, 2 * word + 1, high);
            } else {
                set_flags(flags, word, max(low, high));
            }
        }
    }

    // Sets the flags of this thread's nonzero values, for values so small that fp16 rounds them to zero.
    static __device__ __forceinline__ void set_flags_of_floats(unsigned* flags, const float* __restrict__ x,
                                                               int first_row, int k_tile)
    {
        const int channels = GROUP_C - k_tile * CHANNELS;
        x += ((size_t)k_tile * CHANNELS * H + first_row) * W;
        x -= TOP * W + LEFT;
        for_inputs<PAIR_PLANES, WIDTH, 1>([&](int plane, int row, int column) {
            const float2 values = input(x, first_row, channels, plane, row, column);
            const int word = row * OF(Pairs, WIDTH) + column;
            set_flags(flags, OF(Pairs, COLUMNS) ? 2 * word : word, values.x != 0);
            set_flags(flags, OF(Pairs, COLUMNS) ? 2 * word + 1 : word, values.y != 0);
        });
    }

    // Whether one of this thread's pixels is nonzero without a strong channel.
    static __device__ __forceinline__ bool has_faint_pixel(const unsigned* flags)
    {
        bool faint = false;
        for (int i = threadIdx.x; i < OF(Pairs, STRONG_FLAGS); i += THREADS)
            faint |= (flags[OF(Pairs, STRONG_FLAGS) + i] & ~flags[i]) != 0;
        return faint;
    }

    // Whether one of this thread's squares of U x U pixels, in the image's rows and clear of the padding, has no strong
    // one.  Also true where patches need not contain a whole square, at stride 1, and where a square has so many values
    // that their errors would count.
    static __device__ __forceinline__ bool has_weak_square(const unsigned* flags, int first_row)
    {
        SHAPE_CONST int ACROSS = (LEFT + W) / U, PIXELS_ACROSS = OF(Pairs, WIDTH) * (OF(Pairs, COLUMNS) ? 2 : 1);
        IF_SHAPE (U == 1 || !PATCHES_HAVE_SQUARES || GROUP_C * U * U > 64) return true;
        const unsigned char* const strong = reinterpret_cast<const unsigned char*>(flags);
        bool weak = false;
        const int rows = H + TOP - first_row;
        for (int i = threadIdx.x; i < min(INPUT_ROWS, rows) / U * ACROSS; i += THREADS) {
            if (HAS_PADDING && !clear_of_border(first_row + i / ACROSS * U, i % ACROSS * U)) continue;
            bool any = false;
            for (int j = 0; j < U * U; ++j)
                any |= strong[(i / ACROSS * U + j / U) * PIXELS_ACROSS + i % ACROSS * U + j % U] != 0;
            weak |= !any;
        }
        return weak;
    }

    // Clears the flags of strong pixels.
    static __device__ __forceinline__ void weaken(unsigned* flags)
    {
        for (int i = threadIdx.x; i < OF(Pairs, STRONG_FLAGS); i += THREADS) flags[i] = 0;
    }
};

// Inputs and filters scaled by powers of two: the Range of mma_tile.cuh for fp16 operands made from floats.
struct Scaled {
    // A first K tile whose largest scaled value is below this gets another power: small values have too few bits.
    static constexpr int LEAST_SUITABLE = 8;  // as an exponent of two

    static constexpr int THREAD_FACTORS = divide_up(TILE_FILTERS, THREADS);

    const float* full_filters;     // [M][GROUP_C * R * S]
    const int* filter_exponents;  // [M]
    int exponent = USUAL_EXPONENT;
    bool seen = false;                      // a nonzero input
    bool flagged = false, skipped = false;  // a K tile that set flags, and one that did not
    bool lost = false;                      // an infinity or NaN, or a power that shrank after a K tile without flags
    int thread_exponents[THREAD_FACTORS] = {};

    // Loads the exponents of the tile's filters early.
    __device__ __forceinline__ void prepare(const SplitKSlice& slice)
    {
#pragma unroll
        for (int i = 0; i < THREAD_FACTORS; ++i) {
            const int filter = min(slice.filter() + i * THREADS + (int)threadIdx.x, GROUP_M - 1);
            thread_exponents[i] = load_now(filter_exponents + slice.group * GROUP_M + filter);
        }
    }

    // Writes the factors of the tile's filters to shared memory; zero for those without an exponent.
    __device__ __forceinline__ void write_factors(float* factors) const
    {
#pragma unroll
        for (int i = 0; i < THREAD_FACTORS; ++i) {
            const int filter = i * THREADS + threadIdx.x;
            if (filter < TILE_FILTERS) factors[filter] = power_of_two(-thread_exponents[i]);
        }
    }

    // Floats are converted on their way to shared memory, so they cannot be copied asynchronously.
    template <class Layout>
    __device__ __forceinline__ void begin(unsigned*, const float*, int, int) const
    {
    }

    // Loads a K tile and ends with a barrier; returns the factor to multiply the accumulators by.
    template <class Layout, class Sizes>
    __device__ __forceinline__ float complete(unsigned* inputs, unsigned* flags, const float* x, int first_row,
                                              int k_tile, bool)
    {
        const int before = exponent;
        bool empty = false, special;
        typename Layout::Range range;
        for (;;) {
            range = Layout::load(inputs, x, first_row, k_tile, power_of_two(exponent));
            const bool large = range.reaches(LARGEST_EXPONENT + 1 - exponent);
            // All inputs of the K tile are in place, and no thread still reads the previous one.
            special = __syncthreads_or(large || range.falls_below(Layout::STRONG - exponent));
            const bool fits = !special || !__syncthreads_or(large);
            if (fits && (seen || __syncthreads_or(range.reaches(LEAST_SUITABLE - exponent)))) break;
            const unsigned largest = seen_in_block<THREADS>({range.largest, false, false}).largest;
            empty = largest == 0;
            lost |= skipped || largest >= INFINITE;
            const int found = best_exponent(largest);
            if (lost || found == exponent) break;  // the power that suits best
            exponent = found;
            Layout::weaken(flags);
        }
        if (special) {
            if (range.falls_below(Layout::LEAST_HALF - exponent))
                Layout::set_flags_of_floats(flags, x, first_row, k_tile);
            Layout::set_all_flags(flags, inputs);
            flagged = true;
        } else {
            skipped |= !empty;
        }
        const float factor = seen ? power_of_two(max(exponent - before, 1 - FLOAT_BIAS)) : 1;
        seen |= !empty;
        return factor;
    }

    // Whether fp16 could not represent the block's inputs: an infinity, or a pixel and a square that are too faint.
    // Also a barrier.
    template <class Layout>
    __device__ __forceinline__ bool beyond(const unsigned* flags, int first_row) const
    {
        __syncthreads();  // all flags are set
        if (lost || !flagged) return lost;
        if (!__syncthreads_or(Layout::has_faint_pixel(flags))) return false;
        return __syncthreads_or(Layout::has_weak_square(flags, first_row));
    }

    // Removes the scaling from the thread's sums, or recomputes them if fp16 could not represent their filter or, with
    // `beyond`, the block's inputs.  The inputs' power is applied in two halves, so that no product leaves a float's
    // range unless the sum does.
    template <class Layout>
    __device__ __forceinline__ void outside(float4 (&sums)[THREAD_VECTORS], const float* factors,
                                            const SplitKSlice& slice, bool beyond,
                                            const float* x) const  // [GROUP_C][H][W]
    {
        const float first = power_of_two(-exponent / 2), second = power_of_two(-exponent - -exponent / 2);
#pragma unroll
        for (int i = 0; i < THREAD_VECTORS; ++i) {
            const float factor = has_vector(i) ? factors[Layout::filter_of(vector_start(i))] : 1;
            sums[i].x *= first, sums[i].y *= first, sums[i].z *= first, sums[i].w *= first;
            sums[i].x *= factor, sums[i].y *= factor, sums[i].z *= factor, sums[i].w *= factor;
            sums[i].x *= second, sums[i].y *= second, sums[i].z *= second, sums[i].w *= second;
            beyond |= factor == 0;
        }
        if (beyond) compute_in_full_range<Layout>(sums, slice, x);
    }

    // The filter of a thread's vector, clamped to the group's last.
    template <class Layout>
    static __device__ __forceinline__ int filter_of(const SplitKSlice& slice, int vector)
    {
        return slice.group * GROUP_M + min(slice.filter() + Layout::filter_of(vector_start(vector)), GROUP_M - 1);
    }

    // The sums of the slice's channels, in fp32.
    template <class Layout>
    __device__ __forceinline__ void compute_in_full_range(float4 (&sums)[THREAD_VECTORS], const SplitKSlice& slice,
                                                          const float* x) const  // [GROUP_C][H][W]
    {
        // Offsets of windows in a channel; with padding, row and column, 16 bits each: the ladder refuses more rows.
        int windows[THREAD_VECTORS][VECTOR];
#pragma unroll
        for (int i = 0; i < THREAD_VECTORS; ++i) {
            sums[i] = make_float4(0, 0, 0, 0);
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                const int pixel = min(slice.pixel + Layout::pixel_of(vector_start(i)) + j, PIXELS - 1);
                const int row = pixel / F * U, column = pixel % F * V;
                windows[i][j] = HAS_PADDING ? row << 16 | column : row * W + column;
            }
        }
        const int first = slice.first_k_tile * CHANNELS * R * S, end = min(slice.end_k_tile * CHANNELS, GROUP_C) * R * S;
#pragma unroll 1
        for (int tap = first; tap < end; ++tap) {
            const int r = tap / S % R * DILATION_ROWS, s = tap % S * DILATION_COLUMNS;
            const float* const in = x + ((size_t)(tap / FILTER_TAPS) * H + r) * W + s - (TOP * W + LEFT);
            const auto under = [=](int window) {
                if constexpr (!HAS_PADDING) return in[window];
                const int row = window >> 16, column = window & 0xffff;
                const bool there = row + r < H + TOP && clear_of_border(row + r, column + s);
                return there ? in[row * W + column] : 0;
            };
#pragma unroll
            for (int i = 0; i < THREAD_VECTORS; ++i) {
                const float filter = full_filters[(size_t)filter_of<Layout>(slice, i) * (GROUP_C * R * S) + tap];
                sums[i].x += filter * under(windows[i][0]);
                sums[i].y += filter * under(windows[i][1]);
                sums[i].z += filter * under(windows[i][2]);
                sums[i].w += filter * under(windows[i][3]);
            }
        }
    }
};

// Writes the filters as fragments, each filter scaled by its power of two.
template <class Arithmetic>
__device__ __forceinline__ void prepare_scaled_fragments(const float* __restrict__ w,        // [M][GROUP_C][R][S]
                                                         const int* __restrict__ exponents,  // [M]
                                                         unsigned* __restrict__ fragments)
{
    using Layout = Pairs<Arithmetic::TERMS>;
    prepare_fragments<Layout, Arithmetic>(fragments, [=](int m, int k_tile, int k, int term) {
        const float2 taps = Layout::filters(w, m, k_tile, k);
        const float power = power_of_two(exponents[m]);
        return pair_of_fp16(make_float2(taps.x * power, taps.y * power), term);
    });
}
