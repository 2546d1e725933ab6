// Implicit GEMM: a layer as one matrix product for the whole batch, whose im2col matrix is never written.
//
// Gives: THREADS, ROWS, COLUMNS, K_TILES; order_filters; BatchTile; window, tap_offset; Fragments, Accumulators;
// store_rows (the epilogue).
//
// Rows of the product are filters, columns the N*PIXELS output pixels of all images in one sequence, so only the last
// blocks of a batch have unused columns.  A block computes a tile of ROWS x COLUMNS outputs, a K tile of DEPTH taps in
// each iteration of the mainloop.
//
// Order of the taps.  Where DEPTH divides C, the taps of a K tile are DEPTH channels at one place (r, s) of the filter;
// K tiles visit all places of these channels, whose inputs stay in the L1 cache meanwhile, before the next channels.
// Where a row of the filter has DEPTH taps or slightly fewer, that row is a K tile.  In both cases the addresses that a
// thread reads in a K tile differ by immediate offsets, so a K tile costs one pointer addition and no other index
// arithmetic.  Otherwise taps come in the order of w, and their places are found by divisions by compile-time
// constants.
//
// The lanes of a warp form LANES_DOWN rows and LANES_ACROSS columns.  A thread takes THREAD_ROWS filters, in vectors
// LANES_DOWN vectors apart, and THREAD_COLUMNS pixels, so every vector load of a warp from shared memory covers at most
// one row of 32 banks: no bank conflicts.  Within GROUP pixels the columns are permuted: the vector of a thread holds
// pixels LANES_ACROSS apart, so the lanes' stores of one output are coalesced without a transpose.
// (Thakkar et al., CUTLASS, 2017: the same hierarchy of tiles; Chetlur et al., "cuDNN: efficient primitives for deep
// learning", 2014: the im2col matrix that exists in shared memory only.)
//
// Needs: WARPS_DOWN, WARPS_ACROSS, THREAD_ROWS, THREAD_COLUMNS and DEPTH, constants of the rung.
#pragma once
#include "../common/product.cuh"

constexpr int WARP = 32, LANES_DOWN = 4, LANES_ACROSS = 8;
constexpr int PHASE_LANES = 8, PHASE_ACROSS = 4;  // lanes that shared memory serves in one phase, and their columns
constexpr int LANES_SIDE_BY_SIDE = PHASE_LANES * LANES_ACROSS / PHASE_ACROSS;
constexpr int VECTOR = 4;  // floats in the widest load
constexpr int VECTOR_BYTES = 16;
constexpr int GROUP = VECTOR * LANES_ACROSS;

constexpr int THREADS = WARP * WARPS_DOWN * WARPS_ACROSS;
constexpr int ROWS = WARPS_DOWN * LANES_DOWN * THREAD_ROWS;
constexpr int COLUMNS = WARPS_ACROSS * LANES_ACROSS * THREAD_COLUMNS;
DIVISOR(TILES_DOWN, (M + ROWS - 1) / ROWS);

FLAG(CHANNELS_TOGETHER, C % DEPTH == 0);
FLAG(ROW_TOGETHER, !CHANNELS_TOGETHER && S <= DEPTH && 4 * S >= 3 * DEPTH);
FLAG(REGULAR, CHANNELS_TOGETHER || ROW_TOGETHER);
SIZE(TAP_PITCH, CHANNELS_TOGETHER ? H * W : 1);  // inputs from one tap of a regular K tile to the next
DIVISOR(K_TILES, ROW_TOGETHER ? C * R : (K + DEPTH - 1) / DEPTH);
DIVISOR(FILTER_TAPS, R * S);  // of a channel

#ifndef DYNAMIC_SHAPE
constexpr size_t FILTER_FLOATS = (size_t)TILES_DOWN * K_TILES * DEPTH * ROWS;  // reordered and padded
constexpr int IMAGE_TILES = (PIXELS + COLUMNS - 1) / COLUMNS * TILES_DOWN;   // of a batch of one image
#endif

// Of a K tile's inputs each thread copies COPIED_PIXELS columns, THREADS apart, at every COPIED_TAPS-th tap.
constexpr int COPIED_PIXELS = COLUMNS > THREADS ? COLUMNS / THREADS : 1;
constexpr int COPIED_TAPS = COLUMNS < THREADS ? THREADS / COLUMNS : 1;

struct Tap {
    int c, r, s;
};

// The tap in row i of a K tile.
__device__ __forceinline__ Tap tap(int k_tile, int i)
{
    if (CHANNELS_TOGETHER) return {k_tile / FILTER_TAPS * DEPTH + i, k_tile / S % R, k_tile % S};
    if (ROW_TOGETHER) return {k_tile / R, k_tile % R, i};
    const int k = k_tile * DEPTH + i;
    return {k / FILTER_TAPS, k / S % R, k % S};
}

// Whether the filters have that tap.
__device__ __forceinline__ bool is_tap(int k_tile, int i)
{
    return CHANNELS_TOGETHER || (ROW_TOGETHER ? i < S : k_tile * DEPTH + i < K);
}

// Offset from the first input of a pixel's window to the input under the tap.
__device__ __forceinline__ int tap_offset(int k_tile, int i)
{
    const Tap at = tap(k_tile, i);
    return (at.c * H + at.r) * W + at.s;
}

// Reorders the filters into the order of the K tiles, padded with zeros beyond the last filter and tap.  A block writes
// one K tile of one tile.
__device__ __forceinline__ void order_filters(const float* __restrict__ w,  // [M][C][R][S]
                                              float* __restrict__ filters)  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
{
    const int row = blockIdx.x / K_TILES * ROWS, k_tile = blockIdx.x % K_TILES;
    filters += (size_t)blockIdx.x * DEPTH * ROWS;
    for (int i = threadIdx.x; i < DEPTH * ROWS; i += blockDim.x) {
        const int m = row + i % ROWS;
        const Tap at = tap(k_tile, i / ROWS);
        filters[i] = m < M && is_tap(k_tile, i / ROWS) ? w[((size_t)m * C + at.c) * R * S + at.r * S + at.s] : 0;
    }
}

__device__ __forceinline__ size_t batch_pixels(long long N)
{
    return (size_t)N * PIXELS;
}

__device__ __forceinline__ size_t batch_tiles(long long N)
{
    return (batch_pixels(N) + COLUMNS - 1) / COLUMNS * TILES_DOWN;
}

// A tile: its row among TILES_DOWN, and its first pixel.  Tiles of the same pixels are consecutive, for L2 reuse.
struct BatchTile {
    int down;
    size_t pixel;

    __device__ __forceinline__ explicit BatchTile(size_t number)
        : down(number % TILES_DOWN), pixel(number / TILES_DOWN * COLUMNS)
    {
    }
};

// The first input of a pixel's window.  Pixels beyond the batch take its last one's; their accumulators are not stored.
__device__ __forceinline__ const float* window(const float* x,  // [N][C][H][W]
                                               size_t pixel, long long N)
{
    const size_t inside = min(pixel, batch_pixels(N) - 1);
    const int place = inside % PIXELS;
    return x + inside / PIXELS * C * H * W + place / F * U * W + place % F * U;
}

// The column of a pixel in shared memory.
__device__ __forceinline__ int column_of(int pixel)
{
    return pixel / GROUP * GROUP + pixel % LANES_ACROSS * VECTOR + pixel % GROUP / LANES_ACROSS;
}

// The lane's place in the warp.  Lanes of one shared-memory phase form two rows of four: they read six different
// vectors of a tap's operands, where one row of eight would read nine.
__device__ __forceinline__ int lane_down()
{
    return threadIdx.x % PHASE_LANES / PHASE_ACROSS +
           threadIdx.x % WARP / LANES_SIDE_BY_SIDE * (PHASE_LANES / PHASE_ACROSS);
}

__device__ __forceinline__ int lane_across()
{
    return threadIdx.x % PHASE_ACROSS + threadIdx.x % LANES_SIDE_BY_SIDE / PHASE_LANES * PHASE_ACROSS;
}

// The thread's first row and first column in shared memory, and its first pixel.
__device__ __forceinline__ int thread_row()
{
    return threadIdx.x / WARP % WARPS_DOWN * LANES_DOWN * THREAD_ROWS + lane_down() * VECTOR;
}

__device__ __forceinline__ int warp_column()
{
    return threadIdx.x / (WARP * WARPS_DOWN) * LANES_ACROSS * THREAD_COLUMNS;
}

__device__ __forceinline__ int thread_column()
{
    return warp_column() + lane_across() * VECTOR;
}

__device__ __forceinline__ int thread_pixel()
{
    return warp_column() + lane_across();
}

// A thread's operands at one tap, in registers.
struct Fragments {
    float filters[THREAD_ROWS];
    float inputs[THREAD_COLUMNS];

    __device__ __forceinline__ void load(const float* filter_row,  // of [ROWS], from the thread's first on
                                         const float* input_row)   // of [COLUMNS], likewise
    {
        load_vectors(filters, filter_row, VECTOR * LANES_DOWN);
        load_vectors(inputs, input_row, GROUP);
    }

private:
    template <int count>
    __device__ __forceinline__ static void load_vectors(float (&to)[count], const float* from, int pitch)
    {
#pragma unroll
        for (int i = 0; i < count; i += VECTOR) {
            const float4 vector = *reinterpret_cast<const float4*>(from + i / VECTOR * pitch);
            to[i] = vector.x, to[i + 1] = vector.y, to[i + 2] = vector.z, to[i + 3] = vector.w;
        }
    }
};

// The thread's outputs.
struct Accumulators {
    float at[THREAD_ROWS][THREAD_COLUMNS] = {};

    // Goes down one column and up the next, so that each FMA shares an operand with the one before: the register file
    // delivers two of an instruction's three operands per cycle, and the third comes from the operand reuse cache.
    __device__ __forceinline__ void multiply_add(const Fragments& fragments)
    {
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j)
#pragma unroll
            for (int k = 0; k < THREAD_ROWS; ++k) {
                const int i = j % 2 ? THREAD_ROWS - 1 - k : k;
                at[i][j] += fragments.filters[i] * fragments.inputs[j];
            }
    }
};

// The epilogue: stores `rows` rows of the thread's outputs, from `first` on.
template <int rows>
__device__ __forceinline__ void store_rows(const float (&accumulators)[rows][THREAD_COLUMNS], int first,
                                           float* __restrict__ y,  // [N][M][PIXELS]
                                           BatchTile tile, long long N)
{
#pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; ++j) {
        const size_t pixel = tile.pixel + thread_pixel() + j / VECTOR * GROUP + j % VECTOR * LANES_ACROSS;
        if (pixel >= batch_pixels(N)) continue;
        const int m = tile.down * ROWS + thread_row();
        float* const column = y + (pixel / PIXELS * M + m) * PIXELS + pixel % PIXELS;
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            const int row = (first + i) / VECTOR * VECTOR * LANES_DOWN + (first + i) % VECTOR;
            if (M % ROWS == 0 || m + row < M) column[(size_t)row * PIXELS] = accumulators[i][j];
        }
    }
}
