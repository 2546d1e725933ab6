// direct-few-mma: few input channels in fp16 on tensor cores, NHWC.
//
// Technique: implicit GEMM with mma.sync, fp16 with fp32 accumulation; the K axis packs taps and channels; input window
// and filters in shared memory; 16-byte stores; programmatic dependent launch.
// Read next: arch/ampere.cuh, then single/direct_few_filters_half.cu.
// Run: alexconv run --rungs direct-few-mma --workload vgg16 --layers 1
//
// Parent: direct-few-half, which multiplies on CUDA cores: 27 products of an output take longer than writing it.  A
// tensor core takes 16 values of K at a time; for few channels these are of several taps.  A pixel in the window has
// two, four or eight channels, the last ones zeros, so that pairs of neighbours in K are words in shared memory.
//
// A block computes TILE_FILTERS filters at TILE_ROWS x TILE_COLUMNS outputs of an image, a warp one row of them, 16
// columns after the other.
#include <cuda_fp16.h>

#include "../arch/ampere.cuh"
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "../common/padding.cuh"
#include "../common/vector.cuh"

constexpr int LANES = 32, THREADS = TILE_ROWS * LANES;
constexpr int RESIDENT = (TILE_FILTERS == 32 ? 768 : 512) / THREADS;  // blocks of a multiprocessor
constexpr int TILE_COLUMNS = 32, MMA_PIXELS = 16, MMA_FILTERS = 8, MMA_K = 16;   // of a tile, of an instruction
constexpr int FILTER_TILES = TILE_FILTERS / MMA_FILTERS;
constexpr int TILES_DOWN = (E + TILE_ROWS - 1) / TILE_ROWS, TILES_ACROSS = (F + TILE_COLUMNS - 1) / TILE_COLUMNS;
constexpr int CHANNELS = C <= 2 ? 2 : C <= 4 ? 4 : 8;  // of a pixel in the window
constexpr int PAIRS = CHANNELS / 2;                    // of channels, a word each
constexpr int K = R * S * CHANNELS, STEPS = (K + MMA_K - 1) / MMA_K;
constexpr int WINDOW_ROWS = (TILE_ROWS - 1) * U + PATCH_ROWS, WINDOW_COLUMNS = (TILE_COLUMNS - 1) * V + PATCH_COLUMNS;
constexpr int FILTER_WORDS = STEPS * FILTER_TILES * LANES * 2, WINDOW_WORDS = WINDOW_ROWS * WINDOW_COLUMNS * PAIRS;
constexpr int STORED = 8;  // halves of a store
static_assert(C <= CHANNELS);

// The filter of a column of the instruction's result: that the columns of a thread in four tiles neighbour each other.
__device__ __forceinline__ int filter_of(int tile, int column)
{
    return tile / 4 * 32 + column / 2 * STORED + tile % 4 * 2 + column % 2;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    direct_few_mma(const __half* __restrict__ x,  // [N][H][W][C]
                   const __half* __restrict__ w,  // [M][C][R][S]
                   __half* __restrict__ y         // [N][E][F][M]
                   BIAS_PARAMETER(__half))        // [M]
{
    allow_dependent_launch();
    DYNAMIC_SHARED(uint2, memory);
    uint2* const filters = memory;                                    // [STEPS][FILTER_TILES][LANES]
    unsigned* const words = reinterpret_cast<unsigned*>(memory);      // the same: two words of a lane
    unsigned* const window = words + FILTER_WORDS;                    // [WINDOW_ROWS][WINDOW_COLUMNS][PAIRS]
    const int n = blockIdx.x / (TILES_DOWN * TILES_ACROSS), first_filter = blockIdx.y * TILE_FILTERS;
    const int first_row = blockIdx.x / TILES_ACROSS % TILES_DOWN * TILE_ROWS;
    const int first_column = blockIdx.x % TILES_ACROSS * TILE_COLUMNS;
    wait_for_primary_launches();  // which may write x, and still read y

    // Filters as the instruction's lanes hold them, zeros beyond the last tap, channel and filter; a word of a thread has
    // the same place in each.
    const int part = threadIdx.x % 2, holder = threadIdx.x / 2 % LANES;
#pragma unroll
    for (int i = 0; i < STEPS * FILTER_TILES; i += THREADS / (2 * LANES)) {
        const int product = i + threadIdx.x / (2 * LANES), tile = product % FILTER_TILES;
        const int k = product / FILTER_TILES * MMA_K + part * 8 + holder % 4 * 2, tap = k / CHANNELS, c = k % CHANNELS;
        const int m = first_filter + filter_of(tile, holder / 4);
        Vector<__half, 2> pair = {};
        if (m < M && k < K) {
            if (c < C) pair.values[0] = w[(m * C + c) * (R * S) + tap];
            if (c + 1 < C) pair.values[1] = w[(m * C + c + 1) * (R * S) + tap];
        }
        if (product < STEPS * FILTER_TILES) words[i * (2 * LANES) + threadIdx.x] = pair.word;
    }
    x += (size_t)n * H * W * C;
    const int c = threadIdx.x % PAIRS * 2;
#pragma unroll 4
    for (int i = threadIdx.x / PAIRS; i < WINDOW_ROWS * WINDOW_COLUMNS; i += THREADS / PAIRS) {
        const int row = first_row * U + i / WINDOW_COLUMNS, column = first_column * V + i % WINDOW_COLUMNS;
        const __half* const pixel = x + ((row - TOP) * W + column - LEFT) * C + c;
        Vector<__half, 2> pair = {};
        if (in_plane(row, column)) {
            if constexpr (C % 2 == 0) {
                if (c < C) pair = load_or_zeros<2>(pixel, true);
            } else {
                if (c < C) pair.values[0] = pixel[0];
                if (c + 1 < C) pair.values[1] = pixel[1];
            }
        }
        window[i * PAIRS + c / 2] = pair.word;
    }
    __syncthreads();  // filters and window are complete before any thread reads them

    const int lane = threadIdx.x % LANES, group = lane / 4, quad = lane % 4, row = threadIdx.x / LANES;
    const int e = first_row + row;
    if (e >= E) return;
    y += (size_t)n * E * F * M;
    // One tile of pixels after the other: fewer registers, so that more blocks hide each other's loads and stores.
#pragma unroll 1
    for (int column = 0; column < TILE_COLUMNS; column += MMA_PIXELS) {
        float sums[FILTER_TILES][4] = {};
        const unsigned* const under = window + (row * U * WINDOW_COLUMNS + (column + group) * V) * PAIRS;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            unsigned pixels[4];
#pragma unroll
            for (int part = 0; part < 2; ++part) {
                const int k = step * MMA_K + part * 8 + quad * 2, tap = k / CHANNELS;
                const int at =
                    (tap / S * DILATION_ROWS * WINDOW_COLUMNS + tap % S * DILATION_COLUMNS) * PAIRS + k / 2 % PAIRS;
                const bool beyond = (step + 1) * MMA_K > K && k >= K;  // zeros: an infinity times zero is NaN
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    pixels[part * 2 + half] = beyond ? 0 : under[at + half * 8 * V * PAIRS];
            }
#pragma unroll
            for (int tile = 0; tile < FILTER_TILES; ++tile) {
                const uint2 taps = filters[(step * FILTER_TILES + tile) * LANES + lane];
                const unsigned both[2] = {taps.x, taps.y};
                warp_mma_fp16(sums[tile], pixels, both);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int f = first_column + column + half * 8 + group;
            if (f >= F) continue;
            const int out = (e * F + f) * M;
#pragma unroll
            for (int tile = 0; tile < FILTER_TILES; tile += 4) {
                const int m = first_filter + filter_of(tile, 2 * quad);
                Vector<__half, STORED> values;
#pragma unroll
                for (int i = 0; i < STORED; ++i) {
                    const float sum = sums[tile + i / 2][half * 2 + i % 2];
                    values.values[i] = __float2half_rn(with_bias_and_relu<__half>(sum, BIAS, min(m + i, M - 1)));
                    if (M % STORED != 0 && m + i < M) y[out + m + i] = values.values[i];
                }
                if (M % STORED == 0 && m < M) store(y + (out + m), values);
            }
        }
    }
}

ASSERT_BLOCK(DIRECT_FEW_MMA, THREADS, 1);
ASSERT_GRID(DIRECT_FEW_MMA, TILES_DOWN * TILES_ACROSS, (M + TILE_FILTERS - 1) / TILE_FILTERS, 1);
ASSERT_SHARED_BYTES(DIRECT_FEW_MMA, (FILTER_WORDS + WINDOW_WORDS) * sizeof(unsigned));
