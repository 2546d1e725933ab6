// wgrad on tensor cores: a block's tile of the implicit GEMM of operands.cuh by products of warps (mma.sync).
//
// Gives: compute_slice; Floats; Accumulators, Fragments; TILES.
// Needs: WARPS_DOWN, WARPS_ACROSS, FRAGMENTS_DOWN, FRAGMENTS_ACROSS, the warps of a block and a warp's fragments of 16
// filters and of 8 taps; DEPTH and SLICES; constants of the rung.
//
// Both operands lie in memory along the pixels, which is the order of a warp's fragments: row by row, K innermost.  In
// shared memory a row is PITCH words, so that the lanes of a fragment, eight rows and four pixels, have different
// banks; those of a store, sixteen words of two rows of floats, share four of them.
//
// Floats are rounded to tf32, or split into two tf32 terms, as fragments are loaded.  tf32 has the exponents of floats,
// so nothing is scaled; but infinities and NaN have no lo term, and values near the ends of the exponents lose it.  A
// thread tests all values that it loads.  If any is beyond range, the block sums its slice again in fp32, with the same
// loads: slow, exact in its exceptions, and seldom needed.
//
// fp16 operands are multiplied as they are, two pixels in a word; what is said of floats' range is not of them.
//
//     compute_slice<Arithmetic>(x, dy, partial, N);
//
// Arithmetic: multiply_add(accumulators, rows, columns) adds the products of a K tile, given in words.
#pragma once
#include "../arch/ampere.cuh"
#include "../common/range.cuh"

constexpr int WARP = 32, THREADS = WARP * WARPS_DOWN * WARPS_ACROSS;
constexpr int FRAGMENT_ROWS = 16, FRAGMENT_COLUMNS = 8, STEP = 8;  // filters, taps and words of K of a warp's product
constexpr int WARP_ROWS = FRAGMENTS_DOWN * FRAGMENT_ROWS, WARP_COLUMNS = FRAGMENTS_ACROSS * FRAGMENT_COLUMNS;
constexpr int ROWS = WARPS_DOWN * WARP_ROWS, COLUMNS = WARPS_ACROSS * WARP_COLUMNS;

#include "operands.cuh"

constexpr int WORDS = 16, PITCH = WORDS + 4;  // of a K tile's row
constexpr unsigned LEAST_SPLIT = bits_of_power(-100), MOST_SPLIT = bits_of_power(100);

using Accumulators = float[FRAGMENTS_DOWN][FRAGMENTS_ACROSS][4];

// The lane's place in a fragment: its first row (of two, eight apart) or column, and its first pixel (of two, four
// apart).
__device__ __forceinline__ int lane_row()
{
    return threadIdx.x % WARP / 4;
}

__device__ __forceinline__ int lane_pixel()
{
    return threadIdx.x % 4;
}

// The warp's first row and column in the block's tile.
__device__ __forceinline__ int warp_row()
{
    return threadIdx.x / WARP % WARPS_DOWN * WARP_ROWS;
}

__device__ __forceinline__ int warp_column()
{
    return threadIdx.x / (WARP * WARPS_DOWN) * WARP_COLUMNS;
}

// The place of an element of a thread's accumulators of a fragment: its row and column there.
__device__ __forceinline__ int element_row(int element)
{
    return lane_row() + element / 2 * 8;
}

__device__ __forceinline__ int element_column(int element)
{
    return 2 * lane_pixel() + element % 2;
}

// The words of the warp's fragments at a step, from its first row and column on.
struct Fragments {
    unsigned rows[FRAGMENTS_DOWN][4], columns[FRAGMENTS_ACROSS][2];

    __device__ __forceinline__ void load(const unsigned* from_rows,     // [WARP_ROWS][PITCH]
                                         const unsigned* from_columns,  // [WARP_COLUMNS][PITCH]
                                         int step)
    {
        const int place = lane_row() * PITCH + step * STEP + lane_pixel();
#pragma unroll
        for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
            for (int k = 0; k < 4; ++k)
                rows[i][k] = from_rows[(i * FRAGMENT_ROWS + k % 2 * 8) * PITCH + k / 2 * 4 + place];
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int k = 0; k < 2; ++k)
                columns[j][k] = from_columns[j * FRAGMENT_COLUMNS * PITCH + k * 4 + place];
    }
};

// Products in fp32 by the threads themselves, where tensor cores cannot represent the operands.
struct Floats {
    static __device__ __forceinline__ void multiply_add(Accumulators& accumulators, const unsigned* rows,
                                                        const unsigned* columns)
    {
#pragma unroll 1
        for (int k = 0; k < WORDS; ++k)
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
                for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
                    for (int element = 0; element < 4; ++element)
                        accumulators[i][j][element] +=
                            __uint_as_float(rows[(i * FRAGMENT_ROWS + element_row(element)) * PITCH + k]) *
                            __uint_as_float(columns[(j * FRAGMENT_COLUMNS + element_column(element)) * PITCH + k]);
    }
};

// Whether a value is neither zero nor of an exponent that both terms of a split have room for.
__device__ __forceinline__ bool beyond_range(float value)
{
    const unsigned bits = magnitude(value);
    return bits != 0 && bits - LEAST_SPLIT >= MOST_SPLIT - LEAST_SPLIT;
}

__device__ __forceinline__ bool beyond_range(__half)
{
    return false;
}

// Adds the thread's accumulators to its partial sums, or stores them as the first, and clears them.
__device__ __forceinline__ void promote(Accumulators& accumulators,
                                        float* __restrict__ partial,  // [M][TAPS]
                                        int group, int m, int tap, bool is_first)
{
#pragma unroll
    for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int element = 0; element < 4; ++element) {
                const int row = m + warp_row() + i * FRAGMENT_ROWS + element_row(element);
                const int column = tap + warp_column() + j * FRAGMENT_COLUMNS + element_column(element);
                float& accumulator = accumulators[i][j][element];
                if (row < GROUP_M && column < TAPS) {
                    float& sum = partial[(size_t)(group * GROUP_M + row) * TAPS + column];
                    sum = is_first ? accumulator : sum + accumulator;
                }
                accumulator = 0;
            }
}

// Sums a slice of a tile into partial sums; returns whether the thread has loaded a value beyond range.
template <class Arithmetic, class Value>
__device__ __forceinline__ bool sum_slice(unsigned (&shared_rows)[2][ROWS][PITCH],
                                          unsigned (&shared_columns)[2][COLUMNS][PITCH],
                                          const Value* __restrict__ x,   // [N][C][H][W]
                                          const Value* __restrict__ dy,  // [N][M][E][F]
                                          float* __restrict__ partial,   // [M][TAPS]
                                          long long N, int slice, int group, int m, int tap)
{
    static_assert(DEPTH * sizeof(Value) == WORDS * sizeof(unsigned));
    const SliceOfSum k_tiles(slice, N);
    PixelLoader<Value> loader(x, dy, N, k_tiles.first, group, m, tap);
    const int k = threadIdx.x % DEPTH;
    bool beyond = false;
    Accumulators accumulators = {};
    const auto put = [&](unsigned(&words)[PITCH], Value value) {
        reinterpret_cast<Value*>(words)[k] = value;
        beyond |= beyond_range(value);
    };
    sum_k_tiles(
        loader, k_tiles, [&](int stage, int row, Value value) { put(shared_rows[stage][row], value); },
        [&](int stage, int column, Value value) { put(shared_columns[stage][column], value); },
        [&](int stage) {
            Arithmetic::multiply_add(accumulators, shared_rows[stage][warp_row()], shared_columns[stage][warp_column()]);
        },
        [&](bool is_first) { promote(accumulators, partial, group, m, tap, is_first); });
    return beyond;
}

// Not inlined: its registers are not those of the usual path.
template <class Value>
__device__ __noinline__ void sum_slice_in_floats(unsigned (&shared_rows)[2][ROWS][PITCH],
                                                 unsigned (&shared_columns)[2][COLUMNS][PITCH],
                                                 const Value* __restrict__ x,   // [N][C][H][W]
                                                 const Value* __restrict__ dy,  // [N][M][E][F]
                                                 float* __restrict__ partial,   // [M][TAPS]
                                                 long long N, int slice, int group, int m, int tap)
{
    sum_slice<Floats>(shared_rows, shared_columns, x, dy, partial, N, slice, group, m, tap);
}

template <class Arithmetic, class Value>
__device__ __forceinline__ void compute_slice(const Value* __restrict__ x,   // [N][C][H][W]
                                              const Value* __restrict__ dy,  // [N][M][E][F]
                                              float* __restrict__ partial,   // [SLICES][WEIGHTS]
                                              long long N)
{
    __shared__ unsigned shared_rows[2][ROWS][PITCH], shared_columns[2][COLUMNS][PITCH];
    const int tile = blockIdx.x % TILES, slice = blockIdx.x / TILES;
    const int tap = tile % TILES_ACROSS * COLUMNS, m = tile / TILES_ACROSS % GROUP_TILES_DOWN * ROWS;
    const int group = tile / (TILES_ACROSS * GROUP_TILES_DOWN);
    partial += (size_t)slice * WEIGHTS;
    const bool beyond = sum_slice<Arithmetic>(shared_rows, shared_columns, x, dy, partial, N, slice, group, m, tap);
    if constexpr (sizeof(Value) == sizeof(float)) {
        // Also: no thread still reads the last K tile, which is overwritten if any has loaded a value beyond range.
        if (__syncthreads_or(beyond))
            sum_slice_in_floats(shared_rows, shared_columns, x, dy, partial, N, slice, group, m, tap);
    }
}
