// Operands of wgrad as an implicit GEMM: dw [M][TAPS] is dy [M][pixels] times the im2col matrix [pixels][TAPS], whose sum
// runs over the pixels of all images in one sequence.
//
// Gives: SliceOfSum; PixelLoader; RUN; sum_k_tiles, the mainloop; reduce_slices, the second kernel; GROUP_TILES_DOWN,
// TILES_ACROSS, TILES.
// Needs: ROWS and COLUMNS, a block's tile of filters and taps; THREADS; DEPTH, the pixels of a K tile; SLICES, the parts
// into which the sum is cut; constants of the rung.  OPERAND, the type of x, dy and dw: float unless defined.
//
// A K tile is DEPTH consecutive pixels.  DEPTH neighbouring threads load its pixels, of every THREADS / DEPTH-th filter
// and tap: loads of dy are coalesced, and so are those of x where the stride is 1.  A thread's pixel moves on by DEPTH
// with each K tile, from image to image, without divisions but for its row.
//
// Runs of RUN pixels, about an image's, are summed in registers; then the runs of a slice, then slices: a chain of
// additions stays shorter than the classes allow (docs/precision.md).
#pragma once
#include "weights.cuh"

#ifndef OPERAND
#define OPERAND float
#endif

constexpr int GROUP_TILES_DOWN = (GROUP_M + ROWS - 1) / ROWS, TILES_ACROSS = (TAPS + COLUMNS - 1) / COLUMNS;
constexpr int TILES = GROUPS * GROUP_TILES_DOWN * TILES_ACROSS;
constexpr int LOADED_TOGETHER = THREADS / DEPTH;  // filters, or taps, that a block loads at once
constexpr int LOADED_ROWS = (ROWS + LOADED_TOGETHER - 1) / LOADED_TOGETHER;
constexpr int LOADED_COLUMNS = (COLUMNS + LOADED_TOGETHER - 1) / LOADED_TOGETHER;
constexpr int RUN = (PIXELS + DEPTH - 1) / DEPTH;  // K tiles of a run
static_assert(THREADS % DEPTH == 0);

// The K tiles of a slice: all slices have the same number, but for the last ones, which have less or none.
struct SliceOfSum {
    long long first, end;

    __device__ __forceinline__ SliceOfSum(int slice, long long N)
    {
        const long long k_tiles = (N * PIXELS + DEPTH - 1) / DEPTH, of_slice = (k_tiles + SLICES - 1) / SLICES;
        first = min(slice * of_slice, k_tiles);
        end = min(first + of_slice, k_tiles);
    }
};

// A thread's loads of K tiles: of its pixel's dy for LOADED_ROWS filters, and of the inputs under LOADED_COLUMNS taps.
template <class Value>
class PixelLoader {
public:
    // From a K tile on, for filters from m and taps from `tap` on, of a group.
    __device__ __forceinline__ PixelLoader(const Value* x,   // [N][C][H][W]
                                           const Value* dy,  // [N][M][PIXELS]
                                           long long N, long long k_tile, int group, int m, int tap)
        : rows_left(GROUP_M - m - own()), images_left(0)
    {
        const long long pixel = k_tile * DEPTH + threadIdx.x % DEPTH, n = pixel / PIXELS;
        place = pixel - n * PIXELS;
        images_left = N - n;
        inputs = x + ((size_t)n * C + group * GROUP_C) * H * W;
        gradients = dy + ((size_t)n * M + group * GROUP_M + m + own()) * PIXELS;
#pragma unroll
        for (int j = 0; j < LOADED_COLUMNS; ++j) {
            const int number = tap + own() + j * LOADED_TOGETHER;
            const int r = number / S % R * DILATION_ROWS - TOP, s = number % S * DILATION_COLUMNS - LEFT;
            // A tap beyond the last is as one far outside the plane: its inputs are zero.
            row[j] = number < TAPS ? r : -PADDED_H - H, column[j] = s;
            offset[j] = number / (R * S) * H * W + r * W + s;
        }
    }

    // Loads the K tile's values, and moves on to the next.
    __device__ __forceinline__ void load(Value (&of_rows)[LOADED_ROWS], Value (&of_columns)[LOADED_COLUMNS])
    {
        const bool is_pixel = images_left > 0;
        const int h = place / F * U, w = place % F * V;
#pragma unroll
        for (int i = 0; i < LOADED_ROWS; ++i)
            of_rows[i] = is_pixel && i * LOADED_TOGETHER < rows_left
                             ? gradients[(size_t)i * LOADED_TOGETHER * PIXELS + place]
                             : Value(0);
#pragma unroll
        for (int j = 0; j < LOADED_COLUMNS; ++j) {
            const bool inside =
                is_pixel && unsigned(h + row[j]) < unsigned(H) && unsigned(w + column[j]) < unsigned(W);
            of_columns[j] = inside ? inputs[h * W + w + offset[j]] : Value(0);
        }
        for (place += DEPTH; place >= PIXELS; place -= PIXELS) {
            --images_left;
            inputs += (size_t)C * H * W;
            gradients += (size_t)M * PIXELS;
        }
    }

    // The first of the thread's filters, and taps, in the block's tile.
    __device__ __forceinline__ static int own()
    {
        return threadIdx.x / DEPTH;
    }

private:
    int rows_left;          // filters of the group from the thread's first on
    long long images_left;  // from the pixel's image on
    int place;              // of the pixel in its plane
    const Value *inputs, *gradients;
    int row[LOADED_COLUMNS], column[LOADED_COLUMNS], offset[LOADED_COLUMNS];  // of taps, from a window's first input
};

// The mainloop over a slice's K tiles: double-buffered in shared memory, the next K tile's values in registers meanwhile.
// put_row(stage, row, value) and put_column store a value of a stage, multiply(stage) adds a stage's products, and
// promote(is_first) a run's sums.
template <class Value, class PutRow, class PutColumn, class Multiply, class Promote>
__device__ __forceinline__ void sum_k_tiles(PixelLoader<Value>& loader, const SliceOfSum& k_tiles, PutRow put_row,
                                            PutColumn put_column, Multiply multiply, Promote promote)
{
    Value of_rows[LOADED_ROWS], of_columns[LOADED_COLUMNS];
    const int own = loader.own();
    const auto store = [&](int stage) {
#pragma unroll
        for (int i = 0; i < LOADED_ROWS; ++i)
            if (ROWS % LOADED_TOGETHER == 0 || own + i * LOADED_TOGETHER < ROWS)
                put_row(stage, own + i * LOADED_TOGETHER, of_rows[i]);
#pragma unroll
        for (int j = 0; j < LOADED_COLUMNS; ++j)
            if (COLUMNS % LOADED_TOGETHER == 0 || own + j * LOADED_TOGETHER < COLUMNS)
                put_column(stage, own + j * LOADED_TOGETHER, of_columns[j]);
    };
    bool is_first = true;
    int left_of_run = RUN, stage = 0;
    if (k_tiles.first < k_tiles.end) {
        loader.load(of_rows, of_columns);
        store(0);
    }
    for (long long k_tile = k_tiles.first; k_tile < k_tiles.end; ++k_tile, stage ^= 1) {
        __syncthreads();  // this K tile's values are in shared memory, and no thread still reads those of the one before
        const bool has_next = k_tile + 1 < k_tiles.end;
        if (has_next) loader.load(of_rows, of_columns);
        multiply(stage);
        if (has_next) store(stage ^ 1);
        if (--left_of_run == 0) {
            promote(is_first);
            is_first = false;
            left_of_run = RUN;
        }
    }
    if (left_of_run < RUN || is_first) promote(is_first);
}

extern "C" __global__ void __launch_bounds__(REDUCTION_THREADS)
    reduce_slices(const float* __restrict__ partial,  // [SLICES][WEIGHTS]
                  OPERAND* __restrict__ dw)           // [M][GROUP_C][R][S]
{
    add_slices(partial, dw, SLICES);
}

ASSERT_ELEMENTS(PARTIAL, 1ll * SLICES * WEIGHTS);
ASSERT_BLOCK(REDUCE_SLICES, REDUCTION_THREADS, 1);
ASSERT_GRID(REDUCE_SLICES, (WEIGHTS + REDUCTION_THREADS - 1) / REDUCTION_THREADS, 1, 1);
