// Convolution with few filters, as in a last layer: every input times all taps first, then sums of taps (kn2row).
//
// Gives: FILTERS_THREADS; FewFilters: BYTES, of shared memory; convolve.
//
// With few filters an output tile of tensor cores is mostly empty.  But the products of a pixel with all taps of all
// filters are R S M columns, over which an input is loaded once: P[pixel][tap, filter] = x[pixel][C] w[C][tap, filter].
// An output is the sum of R S of them, each of another pixel.
//
// A block computes TILE_ROWS x TILE_COLUMNS outputs, and P for the window of inputs under them, in shared memory; a warp
// two tiles of 16 pixels at a time.  The lanes of a quad each load 16 bytes of a pixel: the K axis has its channels in
// the order in which the lanes then hold them.
//
// Needs: TILE_ROWS, a constant of the rung.
#pragma once
#include "../arch/ampere.cuh"
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "../common/padding.cuh"
#include "../common/vector.cuh"

constexpr int LANES = 32, FILTERS_THREADS = 256, WARPS = FILTERS_THREADS / LANES;
constexpr int TILE_COLUMNS = 32, MMA_PIXELS = 16, MMA_COLUMNS = 8, PIXEL_TILES = 2;  // of an instruction; of a warp
constexpr int TILES_DOWN = (E + TILE_ROWS - 1) / TILE_ROWS, TILES_ACROSS = (F + TILE_COLUMNS - 1) / TILE_COLUMNS;
constexpr int TAPS = R * S, PRODUCTS = TAPS * M, COLUMN_TILES = (PRODUCTS + MMA_COLUMNS - 1) / MMA_COLUMNS;
constexpr int WINDOW_ROWS = TILE_ROWS - 1 + PATCH_ROWS, WINDOW_COLUMNS = TILE_COLUMNS - 1 + PATCH_COLUMNS;
constexpr int WINDOW = WINDOW_ROWS * WINDOW_COLUMNS, GROUP = PIXEL_TILES * MMA_PIXELS;
constexpr int PITCH = (WINDOW + LANES - 1) / LANES * LANES + 4;  // the lanes of a result store to different banks
constexpr int STEPS = 2, QUAD = 4, WORD = 4;  // instructions for a load; lanes of a pixel; bytes
static_assert(U == 1 && V == 1 && GROUPS == 1);

// What differs between types: values of a word, a word of filters, the instruction.
template <class Value>
struct Factors;

template <class Value>
struct FewFilters {
    using Of = Factors<Value>;
    static constexpr int LOADED = QUAD * Of::IN_WORD, CHANNELS = QUAD * LOADED;  // values of a lane's load, of a quad's
    static constexpr int CHUNKS = (C + CHANNELS - 1) / CHANNELS;
    static constexpr int FILTER_WORDS = CHUNKS * STEPS * COLUMN_TILES * LANES * 2;
    static constexpr int BYTES = (FILTER_WORDS + PRODUCTS * PITCH) * WORD;
    static_assert(C % LOADED == 0, "a lane's values of a pixel are aligned, and all of them channels");

    uint2* filters;   // [CHUNKS][STEPS][COLUMN_TILES][LANES], in shared memory
    float* products;  // [PRODUCTS][PITCH], in shared memory
    int n, first_row, first_column;

    __device__ __forceinline__ explicit FewFilters(uint2* memory)
        : filters(memory),
          products(reinterpret_cast<float*>(memory) + FILTER_WORDS),
          n(blockIdx.x / (TILES_DOWN * TILES_ACROSS)),
          first_row(blockIdx.x / TILES_ACROSS % TILES_DOWN * TILE_ROWS),
          first_column(blockIdx.x % TILES_ACROSS * TILE_COLUMNS)
    {
    }

    // Loads the filters as the instruction's lanes hold them, zeros beyond the last channel and column.
    __device__ __forceinline__ void load_filters(const Value* __restrict__ w) const  // [M][C][R][S]
    {
#pragma unroll 4
        for (int i = threadIdx.x; i < FILTER_WORDS; i += FILTERS_THREADS) {
            const int part = i % 2, lane = i / 2 % LANES, tile = i / (2 * LANES) % COLUMN_TILES;
            const int step = i / (2 * LANES * COLUMN_TILES) % STEPS, chunk = i / (2 * LANES * COLUMN_TILES * STEPS);
            const int c = chunk * CHANNELS + lane % QUAD * LOADED + (step * 2 + part) * Of::IN_WORD;
            const int column = tile * MMA_COLUMNS + lane / QUAD, tap = column / M, m = column % M;
            const bool present = column < PRODUCTS && c < C;
            reinterpret_cast<unsigned*>(filters)[i] = present ? Of::word(w + ((size_t)m * C + c) * TAPS + tap) : 0;
        }
    }

    // Computes the products of the window's pixels with all taps.
    __device__ __forceinline__ void multiply(const Value* __restrict__ x) const  // [N][H][W][C]
    {
        x += (size_t)n * H * W * C;
        const int lane = threadIdx.x % LANES, row_of_quad = lane / QUAD, quad_lane = lane % QUAD;
        for (int first = threadIdx.x / LANES * GROUP; first < WINDOW; first += WARPS * GROUP) {
            const Value* pixels[PIXEL_TILES][2];
            bool inside[PIXEL_TILES][2];
#pragma unroll
            for (int i = 0; i < PIXEL_TILES; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int pixel = first + i * MMA_PIXELS + half * 8 + row_of_quad;
                    const int row = first_row + pixel / WINDOW_COLUMNS, column = first_column + pixel % WINDOW_COLUMNS;
                    inside[i][half] = pixel < WINDOW && in_plane(row, column);
                    pixels[i][half] = x + ((row - TOP) * W + column - LEFT) * C + quad_lane * LOADED;
                }
            float sums[PIXEL_TILES][COLUMN_TILES][4] = {};
#pragma unroll 4
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                Vector<Value, LOADED> loaded[PIXEL_TILES][2];
                const bool channels = C % CHANNELS == 0 || chunk * CHANNELS + quad_lane * LOADED < C;
#pragma unroll
                for (int i = 0; i < PIXEL_TILES; ++i)
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        loaded[i][half] =
                            load_or_zeros<LOADED>(pixels[i][half] + chunk * CHANNELS, inside[i][half] && channels);
#pragma unroll
                for (int step = 0; step < STEPS; ++step) {
                    unsigned factors[PIXEL_TILES][4];
#pragma unroll
                    for (int i = 0; i < PIXEL_TILES; ++i)
#pragma unroll
                        for (int part = 0; part < 4; ++part)
                            factors[i][part] = Of::rounded(words_of(loaded[i][part % 2].word, step * 2 + part / 2));
#pragma unroll
                    for (int tile = 0; tile < COLUMN_TILES; ++tile) {
                        const uint2 taps = filters[((chunk * STEPS + step) * COLUMN_TILES + tile) * LANES + lane];
                        const unsigned both[2] = {taps.x, taps.y};
#pragma unroll
                        for (int i = 0; i < PIXEL_TILES; ++i) Of::multiply(sums[i][tile], factors[i], both);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < PIXEL_TILES; ++i)
#pragma unroll
                for (int tile = 0; tile < COLUMN_TILES; ++tile)
#pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const int column = tile * MMA_COLUMNS + quad_lane * 2 + part % 2;
                        const int pixel = first + i * MMA_PIXELS + part / 2 * 8 + row_of_quad;
                        if (column < PRODUCTS && pixel < WINDOW) products[column * PITCH + pixel] = sums[i][tile][part];
                    }
        }
    }

    // Sums the taps of the block's outputs.
    __device__ __forceinline__ void store(Value* __restrict__ y,                 // [N][E][F][M]
                                          const Value* __restrict__ bias) const  // [M], or null
    {
        y += (size_t)n * E * F * M;
        for (int i = threadIdx.x; i < TILE_ROWS * TILE_COLUMNS; i += FILTERS_THREADS) {
            const int e = first_row + i / TILE_COLUMNS, f = first_column + i % TILE_COLUMNS;
            if (e >= E || f >= F) continue;
            const float* const first = products + i / TILE_COLUMNS * WINDOW_COLUMNS + i % TILE_COLUMNS;
#pragma unroll
            for (int m = 0; m < M; ++m) {
                float sum = 0;
#pragma unroll
                for (int tap = 0; tap < TAPS; ++tap)
                    sum += first[(tap * M + m) * PITCH + tap / S * DILATION_ROWS * WINDOW_COLUMNS +
                                 tap % S * DILATION_COLUMNS];
                y[(e * F + f) * M + m] = Value(with_bias_and_relu(sum, bias, m));
            }
        }
    }

    __device__ __forceinline__ void convolve(const Value* __restrict__ x, const Value* __restrict__ w,
                                             Value* __restrict__ y, const Value* __restrict__ bias) const
    {
        load_filters(w);
        __syncthreads();  // the filters are complete before any thread reads them
        multiply(x);
        __syncthreads();  // the products are complete before any thread sums them
        store(y, bias);
    }

  private:
    static __device__ __forceinline__ unsigned words_of(const uint4& words, int i)
    {
        return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
    }
};
