// Winograd's minimal filtering along the rows of a layer with stride 1: fewer products, each of transformed operands.
//
// TILE_OUTPUTS neighbouring outputs of a row and the TILE_TAPS taps above them are two polynomials; their product is
// determined by its values at POINTS = TILE_OUTPUTS + TILE_TAPS - 1 interpolation points, and so takes POINTS products
// instead of TILE_OUTPUTS * TILE_TAPS.  (Toom and Cook's algorithm, transposed; Winograd, "Arithmetic Complexity of
// Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.)  With inputs d,
// filter g and point i at a / b,
//
//     values_i = sum over j of basis_ij d_j,  filter_i = sum over k of a^k b^(TILE_TAPS-1-k) g_k,
//     output_k = sum over i of a^k b^(TILE_OUTPUTS-1-k) / weight_i  filter_i values_i,
//
// where basis_ij are the coefficients of the polynomial that is zero at all other points, and weight_i is its value at
// point i.  All are integers but for the quotients: with a common denominator for these, sums of integers stay exact.
// Along the columns nothing changes: the product at each point is a convolution of columns, of R taps and C channels,
// whose sums over taps and channels cost nothing extra.
//
// A filter row of more taps is cut into SEGMENTS of TILE_TAPS, the last filled with zeros (decomposable Winograd: Huang et
// al., "DWM: A Decomposable Winograd Method for Convolution Acceleration", AAAI 2020).  Here a multiple of TILE_OUTPUTS
// taps lies between segments, so segment j of a tile has the values of segment 0 of a later tile: they are transformed
// once, and the products of all segments are one sum over runs of taps.
//
// One dimension, not two: the sums of the large matrix product at each point go through memory, POINTS / TILE_OUTPUTS
// times the outputs' bytes; two dimensions square that factor.  And the errors, which grow with the numbers in these
// matrices, stay below those of a chain of fused multiply-adds.
//
// Gives: WinogradProblem (for warpgroups.cuh), WinogradTile and WinogradFilters (for scaling.cuh), Transforms.
//
// Needs: TILE_OUTPUTS, a constant of the rung, and LADDER_TILE_TAPS.
#pragma once
#include "../common/padding.cuh"
#include "../common/range.cuh"
#include "preparation.cuh"

static_assert(U == 1);
constexpr int TILE_TAPS = LADDER_TILE_TAPS;
constexpr int POINTS = TILE_OUTPUTS + TILE_TAPS - 1;
constexpr int SEGMENTS = (S + TILE_TAPS - 1) / TILE_TAPS;            // of a filter row
constexpr int SEGMENT_TILES = TILE_TAPS / TILE_OUTPUTS;              // tiles from a segment to the next
constexpr int TILES_ACROSS = (F + TILE_OUTPUTS - 1) / TILE_OUTPUTS;  // of a row of outputs
constexpr int VALUE_TILES = TILES_ACROSS + (SEGMENTS - 1) * SEGMENT_TILES;  // of a row of transformed inputs
constexpr int PADDED_C = (C + CHUNK - 1) / CHUNK * CHUNK;            // channels of a transformed input in memory
static_assert(SEGMENTS == 1 || TILE_TAPS % TILE_OUTPUTS == 0);

// The matrix product at each point, the Problem of warpgroups.cuh: a row for each tile of an image, those of a column
// of tiles side by side; a run of taps for each segment, since the channels of a column's inputs follow each other.
struct WinogradProblem {
    static constexpr int IMAGE_ROWS = TILES_ACROSS * E, ADJACENT_ROWS = E;
    static constexpr int RUNS = SEGMENTS, RUN = R * PADDED_C;

    static __device__ __forceinline__ int first_row(int row) { return row; }
    static __device__ __forceinline__ int first_column(int column) { return column; }
    static __device__ __forceinline__ int rows_to(int run) { return run * SEGMENT_TILES; }
    static __device__ __forceinline__ int columns_to(int) { return 0; }
};

// ---- The three matrices ----------------------------------------------------------------------------------------------

struct Fraction {
    int above, below;  // the point at infinity is 1 / 0
};

// The interpolation points: small numbers first, in pairs that are far apart (2 and -1/2); infinity is always the last.
constexpr Fraction FINITE_POINTS[] = {{0, 1}, {1, 1}, {-1, 1}, {2, 1}, {-1, 2}, {-2, 1}, {1, 2}};
static_assert(POINTS >= 2 && POINTS <= 8);

constexpr Fraction point_at(int i)
{
    return i == POINTS - 1 ? Fraction{1, 0} : FINITE_POINTS[i];
}

constexpr int raised(int base, int exponent)
{
    int power = 1;
    for (int i = 0; i < exponent; ++i) power *= base;
    return power;
}

constexpr int magnitude(int value)
{
    return value < 0 ? -value : value;
}

constexpr int common_multiple(int a, int b)
{
    int x = a, y = b;
    while (y != 0) {
        const int rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

// The least exponent whose power of two is `value` or more.
constexpr int exponent_above(int value)
{
    int exponent = 0;
    while (1 << exponent < value) ++exponent;
    return exponent;
}

// The matrices, in floats that hold them exactly.  Powers of two bring values and filters at every point back into the
// range of inputs and filters, and are removed from the outputs.
struct Transforms {
    float values[POINTS][POINTS], filters[POINTS][TILE_TAPS], outputs[TILE_OUTPUTS][POINTS];
    float denominator;  // of all outputs

    constexpr Transforms() : values(), filters(), outputs(), denominator()
    {
        int basis[POINTS][POINTS] = {}, weights[POINTS] = {}, common = 1;
        for (int i = 0; i < POINTS; ++i) {
            basis[i][0] = weights[i] = 1;
            const Fraction here = point_at(i);
            for (int j = 0, degree = 0; j < POINTS; ++j) {
                if (j == i) continue;
                const Fraction zero = point_at(j);  // the factor is (below x - above)
                ++degree;
                for (int k = degree; k >= 0; --k)
                    basis[i][k] = (k > 0 ? zero.below * basis[i][k - 1] : 0) - zero.above * basis[i][k];
                weights[i] *= zero.below * here.above - zero.above * here.below;
            }
            common = common_multiple(common, magnitude(weights[i]));
        }
        denominator = common;
        for (int i = 0; i < POINTS; ++i) {
            const Fraction here = point_at(i);
            int most_values = 0, most_filters = 0;
            for (int j = 0; j < POINTS; ++j) most_values += magnitude(basis[i][j]);
            for (int k = 0; k < TILE_TAPS; ++k) most_filters += magnitude(filter_term(here, k));
            const int values_by = exponent_above(most_values), filters_by = exponent_above(most_filters);
            for (int j = 0; j < POINTS; ++j) values[i][j] = float(basis[i][j]) / (1 << values_by);
            for (int k = 0; k < TILE_TAPS; ++k) filters[i][k] = float(filter_term(here, k)) / (1 << filters_by);
            for (int k = 0; k < TILE_OUTPUTS; ++k)
                outputs[k][i] = float(raised(here.above, k) * raised(here.below, TILE_OUTPUTS - 1 - k)) *
                                (common / weights[i]) * (1 << (values_by + filters_by));
        }
    }

    static constexpr int filter_term(Fraction point, int k)
    {
        return raised(point.above, k) * raised(point.below, TILE_TAPS - 1 - k);
    }
};

// ---- Inputs and filters ----------------------------------------------------------------------------------------------

// A block transforms BLOCK_ROWS rows of up to 96 channels of one image.
constexpr int MOST_CHANNELS = 96, CHANNEL_SLICES = (C + MOST_CHANNELS - 1) / MOST_CHANNELS;
constexpr int BLOCK_CHANNELS = ((C + CHANNEL_SLICES - 1) / CHANNEL_SLICES + CHUNK - 1) / CHUNK * CHUNK;
constexpr int PAIRS = BLOCK_CHANNELS / 2;
constexpr int BLOCK_ROWS = 32 / PADDED_W < 1 ? 1 : 32 / PADDED_W < PADDED_H ? 32 / PADDED_W : PADDED_H;
constexpr int BLOCK_INPUTS = BLOCK_ROWS * PADDED_W;
constexpr int CHANNEL_PITCH = BLOCK_CHANNELS + 2;  // floats: a warp's writes have two-way bank conflicts, not 32-way
static_assert(BLOCK_CHANNELS % BLOCK_WARPS == 0);

// A block's rows of the input, transformed through shared memory: the Tile of scaling.cuh.
template <int terms>
struct WinogradTile {
    // Tiles of an image: slices of the channels, and for each slice TILES along the rows.
    static constexpr int SLICES = CHANNEL_SLICES, TILES = (PADDED_H + BLOCK_ROWS - 1) / BLOCK_ROWS;
    static constexpr int BYTES = BLOCK_INPUTS * CHANNEL_PITCH * sizeof(float);  // of shared memory
    static constexpr int SHARERS = BLOCK_WARPS, MASKS = (BLOCK_INPUTS + LANES - 1) / LANES;  // of scaling.cuh

    float* inputs;  // [BLOCK_INPUTS][CHANNEL_PITCH], in shared memory
    int n, first_h, first_c;

    __device__ __forceinline__ WinogradTile(float4* memory, int tile, int slice, int image)
        : inputs(reinterpret_cast<float*>(memory)),
          n(image),
          first_h(tile * BLOCK_ROWS),
          first_c(slice * BLOCK_CHANNELS)
    {
    }

    // Reads floats times `power`, zeros beyond the last channel; returns the thread's largest magnitude, and writes
    // masks of pixels that are not below `least`.  A warp reads neighbouring inputs of successive channels.
    __device__ __forceinline__ Seen read(const float* __restrict__ x,  // [N][C][H][W]
                                         float power, unsigned least,
                                         PixelMasks* masks) const  // [SHARERS][MASKS]
    {
        const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
        const int count = min(BLOCK_INPUTS, (PADDED_H - first_h) * PADDED_W);
        const float* const in = x + (((size_t)n * C + first_c + warp) * H + first_h) * W;
        Seen seen = {0, false, true};
        for (int i = lane, word = 0; word < MASKS; i += LANES, ++word) {
            constexpr int READS = BLOCK_CHANNELS / BLOCK_WARPS;
            float values[READS];
#pragma unroll
            for (int j = 0; j < READS; ++j)
                if constexpr (HAS_PADDING)
                    values[j] = i < count && in_plane(first_h + i / PADDED_W, i % PADDED_W) &&
                                        (C % BLOCK_CHANNELS == 0 || first_c + warp + j * BLOCK_WARPS < C)
                                    ? in[(size_t)j * BLOCK_WARPS * H * W + i / PADDED_W * W + i % PADDED_W -
                                         (TOP * W + LEFT)]
                                    : 0;
                else
                    values[j] = i < count && (C % BLOCK_CHANNELS == 0 || first_c + warp + j * BLOCK_WARPS < C)
                                    ? in[(size_t)j * BLOCK_WARPS * H * W + i]
                                    : 0;
            unsigned largest = 0;
#pragma unroll
            for (int j = 0; j < READS; ++j) {
                largest = max(largest, magnitude(values[j]));
                if (i < count) inputs[i * CHANNEL_PITCH + warp + j * BLOCK_WARPS] = values[j] * power;
            }
            const PixelMasks own = {__ballot_sync(0xffffffff, largest != 0),
                                    __ballot_sync(0xffffffff, largest >= least)};
            if (lane == 0) masks[warp * MASKS + word] = own;
            seen.largest = max(seen.largest, largest);
        }
        return seen;
    }

    // Writes the values of the tiles of every row at all points: a thread has two neighbouring channels.
    __device__ __forceinline__ void write(
        __half* const (&values)[terms]) const  // [POINTS][N][VALUE_TILES][PADDED_H][PADDED_C]
    {
        const size_t of_point = (size_t)gridDim.z * VALUE_TILES * PADDED_H * PADDED_C;
        const int rows = min(BLOCK_ROWS, PADDED_H - first_h);
        constexpr Transforms transforms;
        for (int i = threadIdx.x; i < rows * VALUE_TILES * PAIRS; i += BLOCK_THREADS) {
            const int pair = i % PAIRS, row = i / PAIRS / VALUE_TILES, tile = i / PAIRS % VALUE_TILES;
            const int w = tile * TILE_OUTPUTS, c = first_c + 2 * pair;
            if (PADDED_C % BLOCK_CHANNELS != 0 && c >= PADDED_C) continue;
            const float* const from = inputs + (row * PADDED_W + w) * CHANNEL_PITCH + 2 * pair;
            float2 d[POINTS];
#pragma unroll
            for (int j = 0; j < POINTS; ++j)
                d[j] = w + j < PADDED_W ? *reinterpret_cast<const float2*>(from + j * CHANNEL_PITCH) : make_float2(0, 0);
            const size_t place = (((size_t)n * VALUE_TILES + tile) * PADDED_H + first_h + row) * PADDED_C + c;
#pragma unroll
            for (int point = 0; point < POINTS; ++point) {
                float2 value = make_float2(0, 0);
#pragma unroll
                for (int j = 0; j < POINTS; ++j) {
                    const float factor = transforms.values[point][j];
                    if (factor == 0) continue;
                    value.x += factor * d[j].x;
                    value.y += factor * d[j].y;
                }
                __half first[terms], second[terms];
                split(value.x, first);
                split(value.y, second);
#pragma unroll
                for (int term = 0; term < terms; ++term)
                    *reinterpret_cast<__half2*>(values[term] + point * of_point + place) =
                        __halves2half2(first[term], second[term]);
            }
        }
    }
};

// Block (r, m) writes row r of filter m at all points: the Filters of scaling.cuh.
struct WinogradFilters {
    template <int terms>
    static __device__ __forceinline__ void write(const float* __restrict__ w,     // [M][C][R][S]
                                                 __half* const (&values)[terms],  // [POINTS][M][SEGMENTS][R][PADDED_C]
                                                 float power)
    {
        const int m = blockIdx.y, r = blockIdx.x;
        constexpr Transforms transforms;
        for (int i = threadIdx.x; i < SEGMENTS * PADDED_C; i += BLOCK_THREADS) {
            const int c = i % PADDED_C, segment = i / PADDED_C, first_s = segment * TILE_TAPS;
            const float* const from = w + (((size_t)m * C + c) * R + r) * S + first_s;
            float g[TILE_TAPS];
#pragma unroll
            for (int k = 0; k < TILE_TAPS; ++k)
                g[k] = c < C && (S % TILE_TAPS == 0 || first_s + k < S) ? from[k] * power : 0;
#pragma unroll
            for (int point = 0; point < POINTS; ++point) {
                float value = 0;
#pragma unroll
                for (int k = 0; k < TILE_TAPS; ++k) value += transforms.filters[point][k] * g[k];
                __half halves[terms];
                split(value, halves);
#pragma unroll
                for (int term = 0; term < terms; ++term)
                    values[term][((((size_t)point * M + m) * SEGMENTS + segment) * R + r) * PADDED_C + c] = halves[term];
            }
        }
    }
};
