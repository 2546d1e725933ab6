// Floats as fp16 operands of wgrad: x and dy with the channels of a pixel innermost, each channel scaled by a power of
// two.
//
// Gives: prepare_tile, check_operands and the kernel reduce_fragments, around the product of wgrad-wgmma-scaled and
// wgrad-wgmma-split; Inputs, Gradients.
//
// A weight is a sum over one channel of x and one filter of dy, so these have a power each, for the whole batch.
// Whether a channel suits a power is known only when all images have been read.  So all are converted with the usual
// power, and the few outliers again. fp16's smallest step is 2^-24, so a small value is off by 2^-25 at most: a channel
// suits a power if its largest value stays in range, and if one of those that every tap multiplies is LEAST_STRONG or
// more; the error is then small beside the norm of what any tap multiplies (docs/precision.md).  A channel that suits
// none, or with an infinity or a NaN, has no exponent: its weights are summed from the floats.
//
// Needs: TERMS, of an operand: 1, or 2 (hi and lo).
#pragma once
#include "../common/range.cuh"
#include "stream_k.cuh"

constexpr unsigned LEAST_STRONG = 0x3c00, MOST_USUAL = 0x7800;  // scaled magnitudes, as fp16 bits: 1 and 2^15
constexpr int TILE_CHANNELS = 64, PLANE_TILE = 64;              // channels and pixels of a block
constexpr int PITCH = TILE_CHANNELS + 2;  // an odd number of words: no bank conflicts
constexpr int CHECK_THREADS = 1024, CHECKED = LANES, SHARERS = CHECK_THREADS / CHECKED;  // of a block of check_operands

// Whether every tap multiplies row h of x, and of dy row e; for columns alike.
__device__ __forceinline__ bool every_tap_reads(int h, int taps, int dilation, int stride, int padding, int outputs)
{
    const int first = (taps - 1) * dilation - padding, last = (outputs - 1) * stride - padding;
    return h >= first && h <= last && (h + padding) % stride == 0;
}

__device__ __forceinline__ bool every_tap_has(int e, int taps, int dilation, int stride, int padding, int inputs)
{
    const int first = e * stride - padding;
    return first >= 0 && first + (taps - 1) * dilation < inputs;
}

// x as pixels of BLOCKED_C channels, of which those from STORED on are zeros that fill a chunk.
struct InputPlanes {
    static constexpr int CHANNELS = BLOCKED_C, STORED = C * SQUARE, ROWS = BLOCKED_H, COLUMNS = BLOCKED_W;

    static __device__ __forceinline__ float value(const float* __restrict__ x,  // [N][C][H][W]
                                                  int n, int channel, int row, int column)
    {
        const int c = channel / SQUARE;
        if (c >= C) return 0;
        const float* const plane = x + ((size_t)n * C + c) * H * W;
        if (SIDE == 1) return plane[row * W + column];
        row = row * SIDE + channel / SIDE % SIDE, column = column * SIDE + channel % SIDE;
        return in_plane(row, column) ? plane[(row - TOP) * W + column - LEFT] : 0;
    }

    static __device__ __forceinline__ bool is_common(int row, int column)
    {
        if (SIDE > 1) return row >= BLOCKED_R - 1 && row < E && column >= BLOCKED_S - 1 && column < F;
        return every_tap_reads(row, R, DILATION_ROWS, U, TOP, E) &&
               every_tap_reads(column, S, DILATION_COLUMNS, V, LEFT, F);
    }
};

// dy as pixels of GRADIENT_C filters, likewise.
struct GradientPlanes {
    static constexpr int CHANNELS = GRADIENT_C, STORED = M, ROWS = E, COLUMNS = F;

    static __device__ __forceinline__ float value(const float* __restrict__ dy,  // [N][M][E][F]
                                                  int n, int filter, int row, int column)
    {
        return filter < M ? dy[((size_t)n * M + filter) * PIXELS + row * F + column] : 0;
    }

    static __device__ __forceinline__ bool is_common(int row, int column)
    {
        return every_tap_has(row, R, DILATION_ROWS, U, TOP, H) &&
               every_tap_has(column, S, DILATION_COLUMNS, V, LEFT, W);
    }
};

// An operand: its floats, its fp16 terms [N][ROWS][COLUMNS][CHANNELS], and what is known of its channels' magnitudes.
template <class Planes>
struct Operand {
    static constexpr int PIXELS_OF_PLANE = Planes::ROWS * Planes::COLUMNS;
    static constexpr int TILES_OF_PLANE = (PIXELS_OF_PLANE + PLANE_TILE - 1) / PLANE_TILE;
    static constexpr int SLICES = (Planes::CHANNELS + TILE_CHANNELS - 1) / TILE_CHANNELS;
    static constexpr int BLOCKS = TILES_OF_PLANE * SLICES;                    // of an image
    static constexpr int MAGNITUDES = TILES_OF_PLANE * Planes::CHANNELS;      // of an image
    static constexpr long long ELEMENTS = 1ll * PIXELS_OF_PLANE * Planes::CHANNELS;  // of an image

    const float* values;
    unsigned* magnitudes;  // [N][TILES_OF_PLANE][CHANNELS]: the largest scaled one, and above it that of common pixels
    int* exponents;        // [CHANNELS]
    __half* terms[TERMS];

    // Block (i, 0, n) writes a tile of image n with the usual power.
    __device__ __forceinline__ void write_tile(int block, int n, __half* tile_memory) const
    {
        using Tile = __half[PLANE_TILE][PITCH];
        Tile* const tiles = reinterpret_cast<Tile*>(tile_memory);  // [TERMS]
        const int first_pixel = block % TILES_OF_PLANE * PLANE_TILE;
        const int first_channel = block / TILES_OF_PLANE * TILE_CHANNELS;
        const int own = threadIdx.x % PLANE_TILE, pixel = first_pixel + own;
        const int row = pixel / Planes::COLUMNS, column = pixel % Planes::COLUMNS;
        constexpr int ABREAST = BLOCK_THREADS / PLANE_TILE, READS = TILE_CHANNELS / ABREAST, TOGETHER_READ = 8;
#pragma unroll
        for (int first = 0; first < READS; first += TOGETHER_READ) {
            float loaded[TOGETHER_READ];
#pragma unroll
            for (int i = 0; i < TOGETHER_READ; ++i) {
                const int channel = first_channel + threadIdx.x / PLANE_TILE + (first + i) * ABREAST;
                const bool inside = pixel < PIXELS_OF_PLANE && channel < Planes::CHANNELS;
                loaded[i] = inside ? Planes::value(values, n, channel, row, column) : 0;
            }
#pragma unroll
            for (int i = 0; i < TOGETHER_READ; ++i) {
                __half halves[TERMS];
                split<TERMS>(loaded[i] * power_of_two(USUAL_EXPONENT), halves);
#pragma unroll
                for (int term = 0; term < TERMS; ++term)
                    tiles[term][own][threadIdx.x / PLANE_TILE + (first + i) * ABREAST] = halves[term];
            }
        }
        __syncthreads();  // the tile is complete before it is read transposed
        write_chunks(tiles, n, first_pixel, first_channel);
        write_magnitudes(tiles[0], n, first_pixel, first_channel);
    }

private:
    __device__ __forceinline__ void write_chunks(const __half (*tiles)[PLANE_TILE][PITCH], int n, int first_pixel,
                                                 int first_channel) const
    {
        constexpr int CHUNKS = TILE_CHANNELS / CHUNK;
#pragma unroll
        for (int i = threadIdx.x; i < PLANE_TILE * CHUNKS; i += BLOCK_THREADS) {
            const int place = i / CHUNKS, channel = first_channel + i % CHUNKS * CHUNK;
            if (first_pixel + place >= PIXELS_OF_PLANE || channel >= Planes::CHANNELS) continue;
            const size_t to = ((size_t)n * PIXELS_OF_PLANE + first_pixel + place) * Planes::CHANNELS + channel;
#pragma unroll
            for (int term = 0; term < TERMS; ++term) {
                const unsigned* const words =
                    reinterpret_cast<const unsigned*>(&tiles[term][place][i % CHUNKS * CHUNK]);
                *reinterpret_cast<uint4*>(terms[term] + to) = make_uint4(words[0], words[1], words[2], words[3]);
            }
        }
    }

    // A thread looks at two channels of every eighth pixel; the eight lanes of the same channels combine what they
    // have.
    __device__ __forceinline__ void write_magnitudes(const __half (*tile)[PITCH], int n, int first_pixel,
                                                     int first_channel) const
    {
        constexpr unsigned MAGNITUDES_OF_PAIR = 0x7fff7fff, ALL_LANES = 0xffffffff;
        constexpr int PARTS = 8, PAIRS = TILE_CHANNELS / 2;
        static_assert(PARTS * PAIRS == BLOCK_THREADS);
        const int lane = threadIdx.x % LANES, part = lane % PARTS;
        const int pair = threadIdx.x / LANES + lane / PARTS * (PAIRS / (LANES / PARTS));
        unsigned largest[2] = {}, common[2] = {};
#pragma unroll
        for (int i = 0; i < PLANE_TILE / PARTS; ++i) {
            const int place = part + i * PARTS, pixel = first_pixel + place;
            const unsigned words = *reinterpret_cast<const unsigned*>(&tile[place][2 * pair]) & MAGNITUDES_OF_PAIR;
            const bool is_common = Planes::is_common(pixel / Planes::COLUMNS, pixel % Planes::COLUMNS);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const unsigned bits = j == 0 ? words & 0xffff : words >> 16;
                largest[j] = max(largest[j], bits);
                common[j] = max(common[j], is_common ? bits : 0);
            }
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
            for (int distance = PARTS / 2; distance > 0; distance /= 2) {
                largest[j] = max(largest[j], __shfl_xor_sync(ALL_LANES, largest[j], distance));
                common[j] = max(common[j], __shfl_xor_sync(ALL_LANES, common[j], distance));
            }
            const int channel = first_channel + 2 * pair + j;
            if (part == 0 && channel < Planes::CHANNELS)
                magnitudes[((size_t)n * TILES_OF_PLANE + first_pixel / PLANE_TILE) * Planes::CHANNELS + channel] =
                    largest[j] | common[j] << 16;
        }
    }

public:
    // Finds the exponents of the CHECKED channels from `first` on, and converts those again that the usual one does not
    // suit.  A thread looks at one channel of every 32nd tile.
    __device__ __forceinline__ void check_channels(int first, long long N) const
    {
        using OfChannels = unsigned[CHECKED + 1];   // one is unused; threads of a warp access a row
        DYNAMIC_SHARED(OfChannels, of_sharers);  // [SHARERS]
        const int own = threadIdx.x % CHECKED, sharer = threadIdx.x / CHECKED, channel = first + own;
        unsigned largest = 0, common = 0;
        if (channel < Planes::CHANNELS) {
#pragma unroll 8
            for (long long i = sharer; i < N * TILES_OF_PLANE; i += SHARERS) {
                const unsigned of_tile = magnitudes[i * Planes::CHANNELS + channel];
                largest = max(largest, of_tile & 0xffff);
                common = max(common, of_tile >> 16);
            }
        }
        of_sharers[sharer][own] = largest | common << 16;
        __syncthreads();  // all threads have stored what they have seen
        unsigned unsuited = 0;  // of the warp's channels, whose sharers' magnitudes its lanes combine
        if (channel < Planes::CHANNELS) {
            for (int i = 0; i < SHARERS; ++i) {
                largest = max(largest, of_sharers[i][own] & 0xffff);
                common = max(common, of_sharers[i][own] >> 16);
            }
            // Where the usual power makes all values zero no strong one is seen.
            unsuited = channel < Planes::STORED && (largest >= MOST_USUAL || common < LEAST_STRONG);
            if (sharer == 0) exponents[channel] = USUAL_EXPONENT;
        }
        unsuited = __ballot_sync(0xffffffff, unsuited);  // the same in every warp
        for (; unsuited != 0; unsuited &= unsuited - 1) {
            const int unsuited_channel = first + __ffs(unsuited) - 1, exponent = convert_again(unsuited_channel, N);
            if (threadIdx.x == 0) exponents[unsuited_channel] = exponent;
        }
    }

private:
    // The largest of a block's numbers, to every thread.
    static __device__ __forceinline__ unsigned of_block(unsigned mine)
    {
        __syncthreads();  // all threads have read what an earlier call left in shared memory
        return seen_in_block<CHECK_THREADS>({mine, false, false}).largest;
    }

    __device__ __forceinline__ int convert_again(int channel, long long N) const
    {
        unsigned largest = 0, common = 0;
        for (long long n = 0; n < N; ++n)
#pragma unroll 8
            for (int pixel = threadIdx.x; pixel < PIXELS_OF_PLANE; pixel += CHECK_THREADS) {
                const int row = pixel / Planes::COLUMNS, column = pixel % Planes::COLUMNS;
                const unsigned bits = magnitude(Planes::value(values, int(n), channel, row, column));
                largest = max(largest, bits);
                if (Planes::is_common(row, column)) common = max(common, bits);
            }
        largest = of_block(largest);
        common = of_block(common);
        if (largest >= INFINITE) return NO_EXPONENT;
        if (largest == 0) return USUAL_EXPONENT;  // its terms are zero already
        const int exponent = best_exponent(largest);
        const float power = power_of_two(exponent);
        for (long long n = 0; n < N; ++n)
            for (int pixel = threadIdx.x; pixel < PIXELS_OF_PLANE; pixel += CHECK_THREADS) {
                const int row = pixel / Planes::COLUMNS, column = pixel % Planes::COLUMNS;
                __half halves[TERMS];
                split<TERMS>(Planes::value(values, int(n), channel, row, column) * power, halves);
#pragma unroll
                for (int term = 0; term < TERMS; ++term)
                    terms[term][((size_t)n * PIXELS_OF_PLANE + pixel) * Planes::CHANNELS + channel] = halves[term];
            }
        return magnitude(__uint_as_float(common) * power) >= magnitude(1.0f) ? exponent : NO_EXPONENT;
    }
};

using Inputs = Operand<InputPlanes>;
using Gradients = Operand<GradientPlanes>;

// Block (i, 0, n) writes a tile of image n: of x, or of dy.
__device__ __forceinline__ void prepare_tile(const Inputs& inputs, const Gradients& gradients)
{
    DYNAMIC_SHARED(uint4, tiles_memory);
    __half* const tile_memory = reinterpret_cast<__half*>(tiles_memory);
    if (blockIdx.x < Inputs::BLOCKS)
        inputs.write_tile(blockIdx.x, blockIdx.z, tile_memory);
    else
        gradients.write_tile(blockIdx.x - Inputs::BLOCKS, blockIdx.z, tile_memory);
}

// Block i has the i-th CHECKED channels: of x, or of dy.
constexpr int INPUT_CHECKS = (InputPlanes::CHANNELS + CHECKED - 1) / CHECKED;
constexpr int GRADIENT_CHECKS = (GradientPlanes::CHANNELS + CHECKED - 1) / CHECKED;

__device__ __forceinline__ void check_operands(const Inputs& inputs, const Gradients& gradients, long long N)
{
    if (blockIdx.x < INPUT_CHECKS)
        inputs.check_channels(blockIdx.x * CHECKED, N);
    else
        gradients.check_channels((blockIdx.x - INPUT_CHECKS) * CHECKED, N);
}

// A weight whose channel or filter has no exponent: image by image, from the floats.
__device__ __noinline__ float sum_in_floats(const float* __restrict__ x,   // [N][C][H][W]
                                            const float* __restrict__ dy,  // [N][M][E][F]
                                            const Weight& weight, long long N)
{
    x += (size_t)weight.c * H * W;
    dy += (size_t)weight.m * PIXELS;
    float sum = 0;
    for (long long n = 0; n < N; ++n, x += (size_t)C * H * W, dy += (size_t)M * PIXELS) {
        float of_image = 0;
        for (int e = 0; e < E; ++e)
            for (int f = 0; f < F; ++f) of_image += input_at(x, e, f, weight.r, weight.s) * dy[e * F + f];
        sum += of_image;
    }
    return sum;
}

// Sums divided by the powers of two of their channel and their filter; the factors are the channels' exponents.
struct Unscaled {
    static constexpr int FACTORS = REDUCED_C * SQUARE;

    const int* __restrict__ input_exponents;     // [BLOCKED_C]
    const int* __restrict__ gradient_exponents;  // [GRADIENT_C]
    const float* __restrict__ x;                 // [N][C][H][W]
    const float* __restrict__ dy;                // [N][M][E][F]
    long long N;
    int of_gradient = 0;  // the filter's exponent

    __device__ __forceinline__ void load(int* own, int m, int first, int count)
    {
        of_gradient = gradient_exponents[m];
        for (int i = threadIdx.x; i < count; i += REDUCED_THREADS) own[i] = input_exponents[first + i];
    }

    __device__ __forceinline__ float finish(float sum, const Weight& weight, const int* factor) const
    {
        const int of_input = *factor;
        if (of_input == NO_EXPONENT || of_gradient == NO_EXPONENT) return sum_in_floats(x, dy, weight, N);
        // One power in two halves, the other's between them: no product leaves a float's range unless the weight does.
        const float first = power_of_two(-of_input / 2), second = power_of_two(-of_input - -of_input / 2);
        return sum * first * power_of_two(-of_gradient) * second;
    }
};

extern "C" __global__ void __launch_bounds__(REDUCED_THREADS, REDUCED_BLOCKS)
    reduce_fragments(const float* __restrict__ partial,             // [SLOTS][TILE_FILTERS][TILE_TAPS]
                     const int* __restrict__ input_exponents,       // [BLOCKED_C]
                     const int* __restrict__ gradient_exponents,    // [GRADIENT_C]
                     const float* __restrict__ x,                   // [N][C][H][W]
                     const float* __restrict__ dy,                  // [N][M][E][F]
                     float* __restrict__ dw,                        // [M][C][R][S]
                     long long N)
{
    reduce_stream(partial, dw, N, Unscaled{input_exponents, gradient_exponents, x, dy, N});
}

ASSERT_BLOCK(PREPARE, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE, Inputs::BLOCKS + Gradients::BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(PREPARE, TERMS * PLANE_TILE * PITCH * sizeof(__half));
ASSERT_BLOCK(PREPARE_OUTLIERS, CHECK_THREADS, 1);
ASSERT_SHARED_BYTES(PREPARE_OUTLIERS, SHARERS * (CHECKED + 1) * sizeof(unsigned));
ASSERT_GRID(PREPARE_OUTLIERS, INPUT_CHECKS + GRADIENT_CHECKS, 1, 1);
ASSERT_ELEMENTS(INPUT_MAGNITUDES, Inputs::MAGNITUDES);
ASSERT_ELEMENTS(GRADIENT_MAGNITUDES, Gradients::MAGNITUDES);
ASSERT_ELEMENTS(INPUT_EXPONENTS, InputPlanes::CHANNELS);
ASSERT_ELEMENTS(GRADIENT_EXPONENTS, GradientPlanes::CHANNELS);
ASSERT_STREAM(TERMS, Unscaled);
