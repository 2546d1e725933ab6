// Narrow groups on tensor cores, NHWC: K packs taps and channels of a group, pixels in shared memory, filters in registers.
//
// Gives: multiply_groups; the kernel order_group_filters; GROUP_THREADS, GROUP_RESIDENT, GROUP_BYTES, GROUP_TILES.
//
// The smallest instruction of the tensor cores takes eight filters and 32 bytes of K: a group of as many channels fills
// it, and fewer channels are packed with those of the next taps.  A lane holds the filters of its columns for all taps, so
// that it reads pixels only.  K is numbered so that a lane's values of an instruction are neighbouring channels, eight
// bytes of a pixel.
//
//     multiply_groups(x, filters, y, BIAS);
//
// Needs: BLOCK_GROUPS and TILE_ROWS, constants of the rung; Operands: Value, of inputs and outputs; words, from a lane's
// neighbouring values of a filter, and rounded, from a pixel's eight bytes: what multiply_add takes of each.
//
// A block computes the filters of BLOCK_GROUPS groups at TILE_ROWS rows of an image's outputs; a warp those of one group
// at 16 pixels after the other, every GROUP_WARPS-th.  order_group_filters: a thread writes a lane's two words of an
// instruction.
#pragma once
#include "../arch/ampere.cuh"
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "../common/padding.cuh"
#include "../common/vector.cuh"

using Value = Operands::Value;
constexpr int LANE_VALUES = 8 / sizeof(Value);  // of K, a lane's in an instruction
constexpr int LANES = 32, WARPS = 8, GROUP_THREADS = WARPS * LANES, GROUP_WARPS = WARPS / BLOCK_GROUPS;
constexpr int MMA_PIXELS = 16, MMA_FILTERS = 8, MMA_K = 4 * LANE_VALUES;  // of an instruction
constexpr int FILTER_TILES = (GROUP_M + MMA_FILTERS - 1) / MMA_FILTERS;
constexpr int K = R * S * GROUP_C, STEPS = (K + MMA_K - 1) / MMA_K;
constexpr int LANE_WORDS = STEPS * FILTER_TILES * 2, GROUP_RESIDENT = LANE_WORDS > 48 ? 2 : 3;  // blocks at a time
constexpr int GROUP_FILTERS = GROUPS * STEPS * FILTER_TILES * LANES;                            // two words each
constexpr int CHUNK = 2 * LANE_VALUES;                                                          // values of a copy
constexpr int CHANNELS = BLOCK_GROUPS * GROUP_C, CHUNKS = CHANNELS / CHUNK;                     // of a pixel
constexpr int GROUP_TILES = (E + TILE_ROWS - 1) / TILE_ROWS, TILE_PIXELS = TILE_ROWS * F;
constexpr int WINDOW_ROWS = (TILE_ROWS - 1) * U + PATCH_ROWS, WINDOW_COLUMNS = (F - 1) * V + PATCH_COLUMNS;
static_assert(GROUPS % BLOCK_GROUPS == 0 && WARPS % BLOCK_GROUPS == 0);
static_assert(GROUP_C % LANE_VALUES == 0 && CHANNELS % CHUNK == 0);

// Copies from a pixel in the window to the next: four neighbouring outputs read all banks, 32 bytes each.
constexpr int padded_pixel()
{
    for (int pitch = CHUNKS; pitch < CHUNKS + 8; ++pitch)
        if (pitch * V % 8 == 2 || pitch * V % 8 == 6) return pitch;
    return CHUNKS + 1;
}
constexpr int PITCH = padded_pixel() * CHUNK, WINDOW = WINDOW_ROWS * WINDOW_COLUMNS * PITCH;
constexpr int GROUP_BYTES = WINDOW / CHUNK * 16;

// Zeros beyond the last filter and tap.
extern "C" __global__ void order_group_filters(const Value* __restrict__ w,  // [M][GROUP_C][R][S]
                                               uint2* __restrict__ filters)  // [GROUPS][STEPS][FILTER_TILES][LANES]
{
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= GROUP_FILTERS) return;
    const int lane = index % LANES, tile = index / LANES % FILTER_TILES, step = index / (LANES * FILTER_TILES) % STEPS;
    const int group = index / (LANES * FILTER_TILES * STEPS), m = tile * MMA_FILTERS + lane / 4;
    Value values[LANE_VALUES] = {};
#pragma unroll
    for (int i = 0; i < LANE_VALUES; ++i) {
        const int k = step * MMA_K + lane % 4 * LANE_VALUES + i, c = k % GROUP_C;
        if (m < GROUP_M && k < K) values[i] = w[((group * GROUP_M + m) * GROUP_C + c) * (R * S) + k / GROUP_C];
    }
    filters[index] = Operands::words(values);
}

ASSERT_GRID(ORDER_GROUP_FILTERS,
            (GROUP_FILTERS + LADDER_ORDER_GROUP_FILTERS_THREADS - 1) / LADDER_ORDER_GROUP_FILTERS_THREADS, 1, 1);
ASSERT_ELEMENTS(FILTERS, GROUP_FILTERS * 2);

// Copies the window of a tile's channels; zeros outside the plane.
__device__ __forceinline__ void copy_window(Value* window,                // [WINDOW_ROWS][WINDOW_COLUMNS][PITCH]
                                            const Value* __restrict__ x,  // [H][W][C], from the first channel on
                                            int first_row)
{
#pragma unroll 4
    for (int i = threadIdx.x; i < WINDOW_ROWS * WINDOW_COLUMNS * CHUNKS; i += GROUP_THREADS) {
        const int place = i / CHUNKS, c = i % CHUNKS * CHUNK;
        const int row = first_row + place / WINDOW_COLUMNS, column = place % WINDOW_COLUMNS;
        const Value* const from = x + ((size_t)(row - TOP) * W + column - LEFT) * C + c;
        copy_async_16(window + place * PITCH + c, from, in_plane(row, column));
    }
}

// Where the input of a pixel's first tap begins in the window.
__device__ __forceinline__ int place_of(int pixel)
{
    return (pixel / F * U * WINDOW_COLUMNS + pixel % F * V) * PITCH;
}

// The whole kernel.
__device__ __forceinline__ void multiply_groups(const Value* __restrict__ x,        // [N][H][W][C]
                                                const uint2* __restrict__ filters,  // [GROUPS][STEPS][FILTER_TILES][LANES]
                                                Value* __restrict__ y,              // [N][E][F][M]
                                                const Value* __restrict__ bias)     // [M]
{
    DYNAMIC_SHARED(uint4, memory);
    Value* const window = reinterpret_cast<Value*>(memory);
    constexpr int BLOCKS = GROUPS / BLOCK_GROUPS;  // of a tile
    const int first_group = blockIdx.x % BLOCKS * BLOCK_GROUPS, tile = blockIdx.x / BLOCKS % GROUP_TILES;
    const int n = blockIdx.x / (BLOCKS * GROUP_TILES);
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, row = lane / 4, quad = lane % 4;
    const int of_block = warp / GROUP_WARPS, group = first_group + of_block;
    uint2 taps[STEPS][FILTER_TILES];
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
#pragma unroll
        for (int i = 0; i < FILTER_TILES; ++i)
            taps[step][i] = filters[((group * STEPS + step) * FILTER_TILES + i) * LANES + lane];
    wait_for_primary_launches();  // which may write x, and still read y
    copy_window(window, x + (size_t)n * H * W * C + first_group * GROUP_C, tile * TILE_ROWS * U);
    copy_async_commit_group();
    copy_async_wait_group<0>();
    __syncthreads();  // the window is complete before any thread reads it

    const int pixels = min(TILE_PIXELS, (E - tile * TILE_ROWS) * F);
    y += ((size_t)n * E + tile * TILE_ROWS) * F * M + group * GROUP_M;
#pragma unroll 1
    for (int first = warp % GROUP_WARPS * MMA_PIXELS; first < pixels; first += GROUP_WARPS * MMA_PIXELS) {
        const Value* under[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
            under[half] = window + place_of(min(first + half * 8 + row, pixels - 1)) + of_block * GROUP_C;
        float sums[FILTER_TILES][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int k = step * MMA_K + quad * LANE_VALUES, tap = k / GROUP_C;
            const int at = (tap / S * DILATION_ROWS * WINDOW_COLUMNS + tap % S * DILATION_COLUMNS) * PITCH + k % GROUP_C;
            const bool beyond = (step + 1) * MMA_K > K && k >= K;  // zeros: an infinity times zero is NaN
            unsigned values[4];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint2 two = Operands::rounded(load_or_zeros<LANE_VALUES>(under[half] + at, !beyond).word);
                values[half] = two.x, values[2 + half] = two.y;
            }
#pragma unroll
            for (int i = 0; i < FILTER_TILES; ++i) {
                const unsigned both[2] = {taps[step][i].x, taps[step][i].y};
                Operands::multiply_add(sums[i], values, both);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int pixel = first + half * 8 + row;
            if (pixel >= pixels) continue;
#pragma unroll
            for (int i = 0; i < FILTER_TILES; ++i) {
                const int m = i * MMA_FILTERS + quad * 2;
                Value* const out = y + (size_t)pixel * M + m;
                Vector<Value, 2> two;
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int filter = group * GROUP_M + min(m + j, GROUP_M - 1);
                    two.values[j] = Value(with_bias_and_relu<Value>(sums[i][half * 2 + j], bias, filter));
                    if (GROUP_M % 2 != 0 && m + j < GROUP_M) out[j] = two.values[j];
                }
                if (GROUP_M % 2 == 0 && m < GROUP_M) store(out, two);
            }
        }
    }
}
