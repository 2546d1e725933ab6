// The operand layout of mma-tf32, the Layout of mma_tile.cuh: NCHW floats, channels in planes, a word is one input.
//
// Gives: Planes; PlaneOutput and for_batches, for mma_pairs.cuh; mma_tile.cuh.
//
// Needs: TILE_PIXELS, TILE_FILTERS, CHANNELS and WARPS, constants of the rung.
#pragma once
#include "mma_tile.cuh"

// NCHW outputs: a tile's layout in the epilogue's shared memory and in y.
struct PlaneOutput {
    // A row of pixels per filter, padded so that the pairs of pixels that half a warp writes have no bank conflicts.
    static constexpr int TILE_PITCH = TILE_PIXELS + (24 - TILE_PIXELS % 16) % 16;
    static constexpr int TILE_WORDS = TILE_FILTERS * TILE_PITCH;
    MEMBER_SIZE(NEXT_CHANNEL, H * W);  // values of x from a channel to the next

    static __device__ __forceinline__ int shared_place(int filter, int pixel)
    {
        return filter * TILE_PITCH + pixel;
    }

    // Writes two pixels' sums of a filter to shared memory.
    static __device__ __forceinline__ void put_neighbours(float* tile, int filter, int pixel, float2 sums)
    {
        *reinterpret_cast<float2*>(tile + shared_place(filter, pixel)) = sums;
    }

    static __device__ __forceinline__ int filter_of(int output)
    {
        return output / TILE_PIXELS;
    }

    static __device__ __forceinline__ int pixel_of(int output)
    {
        return output % TILE_PIXELS;
    }

    // Stores four pixels of a filter, one by one: planes of odd size misalign vectors.
    static __device__ __forceinline__ void store(float* y,  // [N][Y_CHANNELS][PIXELS]
                                                 int n, int group, int filter, int pixel, float4 outputs,
                                                 const Addends<float>& added)
    {
        if (filter >= GROUP_M) return;
        const int m = group * GROUP_M + filter;
        const size_t place = ((size_t)n * Y_CHANNELS + m) * PIXELS + pixel;
        const float values[4] = {outputs.x, outputs.y, outputs.z, outputs.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (pixel + i < PIXELS) y[place + i] = added.finished(values[i], m, place + i);
    }
};

// Words from a row of inputs to the next: with stride 1 padded so that 8 pixels and 4 taps have no bank conflicts.
SIZE(SPREAD_PITCH, V > 1 || (PADDED_W % 32 >= 12 && PADDED_W % 32 <= 20) ? PADDED_W
                                                                         : PADDED_W + (44 - PADDED_W % 32) % 32);

// How [planes][INPUT_ROWS][columns] inputs are divided among the threads.
//
// for_inputs calls body(plane, row, column) for the inputs of this thread.  for_batches loads and stores them in batches:
// all loads of a batch are in flight before the first is used.
#ifdef DYNAMIC_SHAPE
// Neighbouring threads take neighbouring inputs, one row after the other.
template <class planes, class columns>
struct InputPlace {
    int plane, row, column;

    static __device__ __forceinline__ int count() { return planes{} * INPUT_ROWS * columns{}; }

    __device__ __forceinline__ explicit InputPlace(int i)
    {
        const int line = i / columns{};
        plane = line / INPUT_ROWS, row = line - plane * INPUT_ROWS, column = i - line * columns{};
    }
};

template <class planes, class columns, int unrolled = UNROLLED_COPIES, class Body>
__device__ __forceinline__ void for_inputs(Body body)
{
    using Place = InputPlace<planes, columns>;
#pragma unroll unrolled
    for (int i = threadIdx.x; i < Place::count(); i += THREADS) {
        const Place place(i);
        body(place.plane, place.row, place.column);
    }
}

template <class planes, class columns, class Loaded, class Load, class Put>
__device__ __forceinline__ void for_batches(Load load, Put put)
{
    using Place = InputPlace<planes, columns>;
    const int count = Place::count();
    for (int first = threadIdx.x; first < count; first += UNROLLED_COPIES * THREADS) {
        Loaded loaded[UNROLLED_COPIES];
        const auto for_batch = [&](auto body) {
#pragma unroll
            for (int j = 0; j < UNROLLED_COPIES; ++j)
                if (first + j * THREADS < count) body(loaded[j], Place(first + j * THREADS));
        };
        for_batch([=](Loaded& to, const Place& place) { to = load(place.plane, place.row, place.column); });
        for_batch([=](Loaded& from, const Place& place) { put(place.plane, place.row, place.column, from); });
    }
}
#else
// A warp takes several rows of a plane at a time where they are short, otherwise a segment of a row.
template <int planes, int columns>
struct WarpRows {
    static constexpr bool SHORT = columns < WARP;
    static constexpr int WARP_ROWS = SHORT ? WARP / columns : 1;
    // The rows of a run, which a warp takes at a time, the number of runs, and the passes over one.
    static constexpr int RUN_ROWS = SHORT ? INPUT_ROWS : 1, RUNS = SHORT ? planes : planes * INPUT_ROWS;
    static constexpr int PASSES = SHORT ? divide_up(INPUT_ROWS, WARP_ROWS) : divide_up(columns, WARP);

    const int lane = threadIdx.x % WARP, lane_row = SHORT ? lane / columns : 0, lane_column = lane - lane_row * columns;

    // Calls body(plane, row, column) for a pass over a run of rows, if it has an input for this thread.
    template <class Body>
    __device__ __forceinline__ void at(int run, int pass, Body body) const
    {
        const int plane = run * RUN_ROWS / INPUT_ROWS, first = run * RUN_ROWS % INPUT_ROWS + lane_row;
        const int row = SHORT ? pass * WARP_ROWS : 0, column = SHORT ? 0 : pass * WARP;
        if (lane_row < WARP_ROWS && (row + WARP_ROWS <= RUN_ROWS || row + lane_row < RUN_ROWS) &&
            (SHORT || column + WARP <= columns || column + lane < columns))
            body(plane, first + row, lane_column + column);
    }
};

template <int planes, int columns, int unrolled = UNROLLED_COPIES, class Body>
__device__ __forceinline__ void for_inputs(Body body)
{
    using Mine = WarpRows<planes, columns>;
    const Mine mine;
    for (int run = threadIdx.x / WARP; run < Mine::RUNS; run += WARPS)
#pragma unroll unrolled
        for (int pass = 0; pass < Mine::PASSES; ++pass) mine.at(run, pass, body);
}

template <int planes, int columns, class Loaded, class Load, class Put>
__device__ __forceinline__ void for_batches(Load load, Put put)
{
    using Mine = WarpRows<planes, columns>;
    constexpr int MOST = 2 * UNROLLED_COPIES, PASSES = smaller(Mine::PASSES, MOST);
    constexpr int TOGETHER = smaller(divide_up(Mine::RUNS, WARPS), MOST / PASSES);
    const Mine mine;
    for (int first = threadIdx.x / WARP; first < Mine::RUNS; first += TOGETHER * WARPS)
        for (int start = 0; start < Mine::PASSES; start += PASSES) {
            Loaded loaded[TOGETHER][PASSES];
            const auto for_batch = [&](auto body) {
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
                    for (int j = 0; j < PASSES; ++j) {
                        const int run = first + i * WARPS;
                        if ((Mine::RUNS % (TOGETHER * WARPS) == 0 || run < Mine::RUNS) &&
                            (Mine::PASSES % PASSES == 0 || start + j < Mine::PASSES))
                            mine.at(run, start + j, [&](int plane, int row, int column) {
                                body(loaded[i][j], plane, row, column);
                            });
                    }
            };
            for_batch([=](Loaded& to, int plane, int row, int column) { to = load(plane, row, column); });
            for_batch([=](Loaded& from, int plane, int row, int column) { put(plane, row, column, from); });
        }
}
#endif

struct Planes : PlaneOutput {
    using Value = float;
    MEMBER_SIZE(PITCH, SPREAD_PITCH);
    MEMBER_SIZE(PLANE, INPUT_ROWS * OF(Planes, PITCH));
    MEMBER_SIZE(WORDS, CHANNELS * R * S);
    MEMBER_SIZE(INPUT_WORDS, CHANNELS * OF(Planes, PLANE));
    MEMBER_SIZE(FLAGS, 0);
    static constexpr int FACTORS = 0;  // of scaled operands
    static constexpr bool CARRIES_INFINITY = true;

    // Word k of a K tile's depth is tap (c, r, s), its inputs lie [CHANNELS][INPUT_ROWS][PITCH].
    static __device__ __forceinline__ int word(int k)
    {
        return k / FILTER_TAPS * OF(Planes, PLANE) + k / S % R * DILATION_ROWS * OF(Planes, PITCH) +
               k % S * DILATION_COLUMNS;
    }

    // The first input of a pixel's window, in the tile's `row` of outputs.
    static __device__ __forceinline__ int pixel(int row, int column)
    {
        return row * U * OF(Planes, PITCH) + column * V;
    }

    static __device__ __forceinline__ float filter(const float* w, int m, int k_tile, int k)  // w [M][GROUP_C][R][S]
    {
        const int c = k_tile * CHANNELS + k / FILTER_TAPS;
        return c < GROUP_C ? filter_tap(w, m, c, k % FILTER_TAPS) : 0;
    }

    // Issues the copies of the rows from `first_row` on; zeros beyond the last row or channel, and in the padding.
    static __device__ __forceinline__ void copy(unsigned* to, const float* x,  // x [GROUP_C][H][W]
                                                int first_row, int k_tile)
    {
        const int channels = GROUP_C - k_tile * CHANNELS, rows = H + TOP - first_row;
        x += ((size_t)k_tile * CHANNELS * H + first_row) * W;
        x -= TOP * W + LEFT;
        for_inputs<ARGUMENT(CHANNELS), ARGUMENT(PADDED_W)>([=](int c, int row, int column) {
            if constexpr (HAS_PADDING)
                copy_async_4(to + c * OF(Planes, PLANE) + row * OF(Planes, PITCH) + column, x + (c * H + row) * W + column,
                             c < channels && row < rows && clear_of_border(first_row + row, column));
            else
                copy_async_4(to + c * OF(Planes, PLANE) + row * OF(Planes, PITCH) + column, x + (c * H + row) * W + column,
                             c < channels && row < rows);
        });
    }

    // Rounds the inputs that this thread copied.
    static __device__ __forceinline__ void round(unsigned* inputs)
    {
        for_inputs<ARGUMENT(CHANNELS), ARGUMENT(PADDED_W)>([=](int c, int row, int column) {
            unsigned* const at = inputs + c * OF(Planes, PLANE) + row * OF(Planes, PITCH) + column;
            *at = to_tf32(__uint_as_float(*at));
        });
    }
};
