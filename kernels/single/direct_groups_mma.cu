// direct-groups-mma: narrow groups in tf32 on tensor cores, without zeros between them, NHWC.
//
// Technique: implicit GEMM with mma.sync, tf32 with fp32 accumulation; the K axis packs taps and channels of a group;
// window in shared memory by cp.async, filters in registers; implicit padding; programmatic dependent launch.
// Read next: arch/ampere.cuh, then wgmma/products.cuh.
// Run: alexconv run --rungs direct-groups-mma --workload resnext-regnet --layers 3
//
// Parent: direct-groups, whose products on CUDA cores take longer than the layer's bytes.  wgmma-floats multiplies 64
// channels at a time, most of them with the zeros between groups, and loads each input once for each tap.  The smallest
// instruction of the tensor cores takes eight filters and eight values of K: a group of eight channels fills it.  A lane
// holds the filters of its columns for all taps, so that it reads only pixels, two neighbouring channels at a time: K is
// numbered so that these are its two values of an instruction.
//
// A block computes the filters of BLOCK_GROUPS groups at TILE_ROWS rows of an image's outputs; a warp those of one group
// at 16 pixels after the other, every GROUP_WARPS-th.  order_group_filters: a thread writes a lane's two words.
#include "../arch/ampere.cuh"
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "../common/padding.cuh"

constexpr int LANES = 32, WARPS = 8, THREADS = WARPS * LANES, GROUP_WARPS = WARPS / BLOCK_GROUPS;
constexpr int MMA_PIXELS = 16, MMA_FILTERS = 8, MMA_K = 8;  // of an instruction
constexpr int FILTER_TILES = (GROUP_M + MMA_FILTERS - 1) / MMA_FILTERS;
constexpr int K = R * S * GROUP_C, STEPS = (K + MMA_K - 1) / MMA_K;
constexpr int LANE_WORDS = STEPS * FILTER_TILES * 2, RESIDENT = LANE_WORDS > 48 ? 2 : 3;  // blocks of a multiprocessor
constexpr int CHUNK = 4;                                                                  // floats of a copy
constexpr int CHANNELS = BLOCK_GROUPS * GROUP_C, CHUNKS = CHANNELS / CHUNK;               // of a pixel in the window
constexpr int FILTERS = GROUPS * STEPS * FILTER_TILES * LANES;  // of all lanes, two words each
constexpr int TILES = (E + TILE_ROWS - 1) / TILE_ROWS, TILE_PIXELS = TILE_ROWS * F;
constexpr int WINDOW_ROWS = (TILE_ROWS - 1) * U + PATCH_ROWS, WINDOW_COLUMNS = (F - 1) * V + PATCH_COLUMNS;
static_assert(GROUPS % BLOCK_GROUPS == 0 && WARPS % BLOCK_GROUPS == 0 && GROUP_C % CHUNK == 0);

// Floats from a pixel in the window to the next: four neighbouring outputs read all banks, 32 bytes each.
constexpr int padded_pixel()
{
    for (int pitch = CHANNELS; pitch < CHANNELS + 32; pitch += CHUNK)
        if (pitch * V % 32 == 8 || pitch * V % 32 == 24) return pitch;
    return CHANNELS + CHUNK;
}
constexpr int PITCH = padded_pixel(), WINDOW = WINDOW_ROWS * WINDOW_COLUMNS * PITCH;

extern "C" __global__ void order_group_filters(const float* __restrict__ w,  // [M][GROUP_C][R][S]
                                               uint2* __restrict__ filters)  // [GROUPS][STEPS][FILTER_TILES][LANES]
{
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= FILTERS) return;
    const int lane = index % LANES, tile = index / LANES % FILTER_TILES, step = index / (LANES * FILTER_TILES) % STEPS;
    const int group = index / (LANES * FILTER_TILES * STEPS), m = tile * MMA_FILTERS + lane / 4;
    unsigned words[2] = {};  // zeros beyond the last filter and tap
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int k = step * MMA_K + lane % 4 * 2 + i, c = k % GROUP_C;
        if (m < GROUP_M && k < K) words[i] = to_tf32(w[((group * GROUP_M + m) * GROUP_C + c) * (R * S) + k / GROUP_C]);
    }
    filters[index] = make_uint2(words[0], words[1]);
}

// Copies the window of a tile's channels; zeros outside the plane.
__device__ __forceinline__ void copy_window(float* window,              // [WINDOW_ROWS][WINDOW_COLUMNS][PITCH]
                                            const float* __restrict__ x,  // [H][W][C], from the first channel on
                                            int first_row)
{
#pragma unroll 4
    for (int i = threadIdx.x; i < WINDOW_ROWS * WINDOW_COLUMNS * CHUNKS; i += THREADS) {
        const int place = i / CHUNKS, c = i % CHUNKS * CHUNK;
        const int row = first_row + place / WINDOW_COLUMNS, column = place % WINDOW_COLUMNS;
        const float* const from = x + ((size_t)(row - TOP) * W + column - LEFT) * C + c;
        copy_async_16(window + place * PITCH + c, from, in_plane(row, column));
    }
}

// Where the input of a pixel's first tap begins in the window.
__device__ __forceinline__ int place_of(int pixel)
{
    return (pixel / F * U * WINDOW_COLUMNS + pixel % F * V) * PITCH;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    direct_groups_mma(const float* __restrict__ x,        // [N][H][W][C]
                      const uint2* __restrict__ filters,  // [GROUPS][STEPS][FILTER_TILES][LANES]
                      float* __restrict__ y               // [N][E][F][M]
                      BIAS_PARAMETER(float))              // [M]
{
    DYNAMIC_SHARED(float, window);
    const int first_group = blockIdx.x % (GROUPS / BLOCK_GROUPS) * BLOCK_GROUPS;
    const int tile = blockIdx.x / (GROUPS / BLOCK_GROUPS) % TILES, n = blockIdx.x / (GROUPS / BLOCK_GROUPS * TILES);
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, row = lane / 4, quad = lane % 4;
    const int of_block = warp / GROUP_WARPS, group = first_group + of_block;
    allow_dependent_launch();
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
        const float* under[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
            under[half] = window + place_of(min(first + half * 8 + row, pixels - 1)) + of_block * GROUP_C;
        float sums[FILTER_TILES][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int k = step * MMA_K + quad * 2, tap = k / GROUP_C;
            const int at = (tap / S * DILATION_ROWS * WINDOW_COLUMNS + tap % S * DILATION_COLUMNS) * PITCH + k % GROUP_C;
            const bool beyond = (step + 1) * MMA_K > K && k >= K;  // zeros: an infinity times zero is NaN
            unsigned values[4];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float2 two = make_float2(0, 0);
                if (!beyond) two = *reinterpret_cast<const float2*>(under[half] + at);
                values[half] = to_tf32(two.x), values[2 + half] = to_tf32(two.y);
            }
#pragma unroll
            for (int i = 0; i < FILTER_TILES; ++i) {
                const unsigned both[2] = {taps[step][i].x, taps[step][i].y};
                warp_mma_tf32(sums[i], values, both);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int pixel = first + half * 8 + row;
            if (pixel >= pixels) continue;
#pragma unroll
            for (int i = 0; i < FILTER_TILES; ++i) {
                const int m = i * MMA_FILTERS + quad * 2;
                float* const out = y + (size_t)pixel * M + m;
                float two[2];
#pragma unroll
                for (int j = 0; j < 2; ++j)
                    two[j] = with_bias_and_relu<float>(sums[i][half * 2 + j], BIAS,
                                                       group * GROUP_M + min(m + j, GROUP_M - 1));
                if constexpr (GROUP_M % 2 == 0) {
                    if (m < GROUP_M) *reinterpret_cast<float2*>(out) = make_float2(two[0], two[1]);
                } else {
                    if (m < GROUP_M) out[0] = two[0];
                    if (m + 1 < GROUP_M) out[1] = two[1];
                }
            }
        }
    }
}

ASSERT_BLOCK(DIRECT_GROUPS_MMA, THREADS, 1);
ASSERT_GRID(DIRECT_GROUPS_MMA, GROUPS / BLOCK_GROUPS * TILES, 1, 1);
ASSERT_SHARED_BYTES(DIRECT_GROUPS_MMA, WINDOW * sizeof(float));
ASSERT_GRID(ORDER_GROUP_FILTERS, (FILTERS + LADDER_ORDER_GROUP_FILTERS_THREADS - 1) / LADDER_ORDER_GROUP_FILTERS_THREADS, 1,
            1);
ASSERT_ELEMENTS(FILTERS, FILTERS * 2);
