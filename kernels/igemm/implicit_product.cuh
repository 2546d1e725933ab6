// A layer as one product of matrices for the whole batch, its unrolled input never written: what the igemm rungs share.
//
// Rows of the product are filters, columns the N*PIXELS output pixels of all images, one after the other, so that only
// the batch's last blocks have columns to spare.  A block computes a tile of ROWS x COLUMNS outputs, DEPTH taps at a
// time.
//
// Order of the taps.  Where DEPTH divides C, the taps of a step are DEPTH channels at one place (r, s) of the filter;
// steps go over all places before they go on to the next channels, whose inputs the L1 cache keeps meanwhile.  Where a
// row of the filter has DEPTH taps or a little less, that row is a step.  In both cases the addresses that a thread
// reads in a step differ by numbers that the instructions hold, so that a step costs one addition to a pointer and no
// other index arithmetic.  Elsewhere taps come in the order of w, and their places are found by divisions by numbers
// that the compiler knows.
//
// Lanes of a warp stand in LANES_DOWN rows and LANES_ACROSS columns.  A thread takes THREAD_ROWS filters, in vectors
// that lie LANES_DOWN vectors apart, and THREAD_COLUMNS pixels, so every vector load of a warp from shared memory is
// one row of at most 32 banks.  Among GROUP pixels the columns are permuted: the vector of a thread holds pixels
// LANES_ACROSS apart, and the lanes' stores of one output are neighbours without an exchange.
// (Thakkar et al., CUTLASS, 2017, hold the same hierarchy of tiles; Chetlur et al., "cuDNN: efficient primitives for
// deep learning", 2014, the unrolled input that exists in shared memory only.)
#pragma once
#include "../common/product.cuh"

constexpr int WARP = 32, LANES_DOWN = 4, LANES_ACROSS = 8;
constexpr int SERVED = 8, SERVED_ACROSS = 4;  // lanes whose vectors shared memory delivers together, and their columns
constexpr int LANES_SIDE_BY_SIDE = SERVED * LANES_ACROSS / SERVED_ACROSS;
constexpr int VECTOR = 4;  // floats in the widest load
constexpr int VECTOR_BYTES = 16;
constexpr int GROUP = VECTOR * LANES_ACROSS;

constexpr int THREADS = WARP * WARPS_DOWN * WARPS_ACROSS;
constexpr int ROWS = WARPS_DOWN * LANES_DOWN * THREAD_ROWS;
constexpr int COLUMNS = WARPS_ACROSS * LANES_ACROSS * THREAD_COLUMNS;
constexpr int TILES_DOWN = (M + ROWS - 1) / ROWS;

constexpr bool CHANNELS_TOGETHER = C % DEPTH == 0;
constexpr bool ROW_TOGETHER = !CHANNELS_TOGETHER && S <= DEPTH && 4 * S >= 3 * DEPTH;
constexpr bool REGULAR = CHANNELS_TOGETHER || ROW_TOGETHER;
constexpr int TAP_PITCH = CHANNELS_TOGETHER ? H * W : 1;  // inputs from one tap of a regular step to the next
constexpr int STEPS = ROW_TOGETHER ? C * R : (K + DEPTH - 1) / DEPTH;

// How the threads share the inputs of a step: each takes COPIED_PIXELS columns, THREADS apart, at every COPIED_TAPS-th
// tap.
constexpr int COPIED_PIXELS = COLUMNS > THREADS ? COLUMNS / THREADS : 1;
constexpr int COPIED_TAPS = COLUMNS < THREADS ? THREADS / COLUMNS : 1;

struct Tap {
    int c, r, s;
};

// The tap in row i of a step.
__device__ __forceinline__ Tap tap(int step, int i)
{
    if (CHANNELS_TOGETHER) return {step / (R * S) * DEPTH + i, step / S % R, step % S};
    if (ROW_TOGETHER) return {step / R, step % R, i};
    const int k = step * DEPTH + i;
    return {k / (R * S), k / S % R, k % S};
}

// Whether the filters have that tap.
__device__ __forceinline__ bool is_tap(int step, int i)
{
    return CHANNELS_TOGETHER || (ROW_TOGETHER ? i < S : step * DEPTH + i < K);
}

// From the first input of a pixel's window to the one that the tap meets.
__device__ __forceinline__ int tap_offset(int step, int i)
{
    const Tap at = tap(step, i);
    return (at.c * H + at.r) * W + at.s;
}

// Brings the filters into the order of the steps, with zeros beyond the last filter and the last tap.  A block writes
// one step of one tile.
__device__ __forceinline__ void order_filters(const float* __restrict__ w,   // [M][C][R][S]
                                              float* __restrict__ filters)  // [TILES_DOWN][STEPS][DEPTH][ROWS]
{
    const int row = blockIdx.x / STEPS * ROWS, step = blockIdx.x % STEPS;
    filters += (size_t)blockIdx.x * DEPTH * ROWS;
    for (int i = threadIdx.x; i < DEPTH * ROWS; i += blockDim.x) {
        const int m = row + i % ROWS;
        const Tap at = tap(step, i / ROWS);
        filters[i] = m < M && is_tap(step, i / ROWS) ? w[((size_t)m * C + at.c) * R * S + at.r * S + at.s] : 0;
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

// A tile: its number among TILES_DOWN, and its first pixel.  Tiles of the same pixels are neighbours, for the caches.
struct BatchTile {
    int down;
    size_t pixel;

    __device__ __forceinline__ explicit BatchTile(size_t number)
        : down(number % TILES_DOWN), pixel(number / TILES_DOWN * COLUMNS)
    {
    }
};

// The first input of a pixel's window; beyond the batch, that of its last pixel, whose sums nobody stores.
__device__ __forceinline__ const float* window(const float* x,  // [N][C][H][W]
                                               size_t pixel, long long N)
{
    const size_t inside = min(pixel, batch_pixels(N) - 1);
    const int place = inside % PIXELS;
    return x + inside / PIXELS * C * H * W + place / F * U * W + place % F * U;
}

// Where a pixel's column stands in shared memory.
__device__ __forceinline__ int column_of(int pixel)
{
    return pixel / GROUP * GROUP + pixel % LANES_ACROSS * VECTOR + pixel % GROUP / LANES_ACROSS;
}

// The lane's place in the warp.  Lanes whose vector loads shared memory serves together stand in two rows of four: they
// read six different vectors of a tap's factors, where one row of eight would read nine.
__device__ __forceinline__ int lane_down()
{
    return threadIdx.x % SERVED / SERVED_ACROSS + threadIdx.x % WARP / LANES_SIDE_BY_SIDE * (SERVED / SERVED_ACROSS);
}

__device__ __forceinline__ int lane_across()
{
    return threadIdx.x % SERVED_ACROSS + threadIdx.x % LANES_SIDE_BY_SIDE / SERVED * SERVED_ACROSS;
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

// A thread's factors at one tap.
struct Factors {
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
struct Sums {
    float at[THREAD_ROWS][THREAD_COLUMNS] = {};

    // Goes down one column and up the next, so that each product shares a factor with the one before: the register
    // file delivers two of an instruction's three operands in a cycle, and the third is then still at hand.
    __device__ __forceinline__ void add(const Factors& factors)
    {
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j)
#pragma unroll
            for (int k = 0; k < THREAD_ROWS; ++k) {
                const int i = j % 2 ? THREAD_ROWS - 1 - k : k;
                at[i][j] += factors.filters[i] * factors.inputs[j];
            }
    }
};

// Stores `rows` rows of the thread's outputs, from `first` on.
template <int rows>
__device__ __forceinline__ void store_rows(const float (&sums)[rows][THREAD_COLUMNS], int first,
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
            if (M % ROWS == 0 || m + row < M) column[(size_t)row * PIXELS] = sums[i][j];
        }
    }
}
