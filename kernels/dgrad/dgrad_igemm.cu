// dgrad-igemm: implicit GEMM with register tiles, a product for each phase of the stride.
//
// Technique: implicit GEMM for dgrad; polyphase decomposition; block, warp and register tiling; register double buffering.
// Read next: phase_taps.cuh, igemm/implicit_gemm.cuh (fragments), then dgrad/dgrad_mma_split.cu.
// Run: alexconv run --rungs dgrad-igemm --layers 3
//
// Parent: dgrad-phases, whose threads load two values for every product.  The values of a phase share their taps, so they
// are a matrix product: filters, with the channels as rows, times the dy under each tap, with the phase's pixels of all
// images as columns; its sum runs over the taps of the phase and over the filters.  Here a thread computes THREAD_ROWS
// channels at THREAD_COLUMNS pixels, so that a tap's operands, loaded from shared memory in vectors of four, serve as many
// products.  The next K tile is loaded into registers while the current one is multiplied.
//
// A K tile is DEPTH filters under one tap; all taps of these filters come before the next filters, so that the lines of w
// and dy that a K tile reads stay in the L1 cache for the next.  A block computes ROWS channels of a group at COLUMNS
// pixels of a phase.
#include "../common/padding.cuh"
#include "../igemm/implicit_gemm.cuh"
#include "phase_taps.cuh"

constexpr int PHASE_PIXELS = PHASE_ROWS * PHASE_COLUMNS;
constexpr int GROUP_TILES = (GROUP_C + ROWS - 1) / ROWS, CHANNEL_TILES = GROUPS * GROUP_TILES;
constexpr int LOADED_TAPS = (DEPTH * ROWS + THREADS - 1) / THREADS;  // of filters, by a thread
static_assert(DEPTH % COPIED_TAPS == 0);

// Where a block is in its sum: the first filter of a K tile, and its tap.
struct KTile {
    int m, r, s;

    __device__ __forceinline__ explicit KTile(const PhaseTaps& taps)
        : m(taps.any ? 0 : GROUP_M), r(taps.first_r), s(taps.first_s)
    {
    }

    __device__ __forceinline__ bool more() const { return m < GROUP_M; }

    __device__ __forceinline__ void next(const PhaseTaps& taps)
    {
        if ((s += COLUMN_STEP) < S) return;
        s = taps.first_s;
        if ((r += ROW_STEP) < R) return;
        r = taps.first_r;
        m += DEPTH;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    dgrad_igemm(const float* __restrict__ dy,  // [N][M][E][F]
                const float* __restrict__ w,   // [M][GROUP_C][R][S]
                float* __restrict__ dx,        // [N][C][H][W]
                long long N)
{
    __shared__ __align__(VECTOR_BYTES) float shared_filters[2][DEPTH][ROWS];
    __shared__ __align__(VECTOR_BYTES) float shared_gradients[2][DEPTH][COLUMNS];
    const PhaseTaps taps(blockIdx.y);
    const int tile = blockIdx.x % CHANNEL_TILES, group = tile / GROUP_TILES, first_c = tile % GROUP_TILES * ROWS;
    const long long first_pixel = (long long)(blockIdx.x / CHANNEL_TILES) * COLUMNS, pixels = N * PHASE_PIXELS;
    const int first_tap = threadIdx.x / COLUMNS, own_pixel = threadIdx.x % COLUMNS;
    const float* planes[COPIED_PIXELS];  // of the pixel's image and the group's first filter
    int down[COPIED_PIXELS], across[COPIED_PIXELS];  // the pixel in the padded plane
#pragma unroll
    for (int j = 0; j < COPIED_PIXELS; ++j) {
        const long long pixel = first_pixel + own_pixel + j * THREADS, n = pixel / PHASE_PIXELS;
        const int place = pixel - n * PHASE_PIXELS;
        planes[j] = dy + ((size_t)n * M + group * GROUP_M) * (E * F);
        // Pixels beyond the batch are as if above all outputs.
        down[j] = pixel < pixels ? place / PHASE_COLUMNS * U + taps.row + TOP : -U * (PATCH_ROWS + 1);
        across[j] = place % PHASE_COLUMNS * V + taps.column + LEFT;
    }
    w += ((size_t)group * GROUP_M * GROUP_C + first_c) * (R * S);

    float filters[LOADED_TAPS], gradients[DEPTH / COPIED_TAPS][COPIED_PIXELS];
    const auto load = [&](const KTile& at) {
#pragma unroll
        for (int i = 0; i < LOADED_TAPS; ++i) {
            const int c = (threadIdx.x + i * THREADS) % ROWS, m = at.m + (threadIdx.x + i * THREADS) / ROWS;
            const bool inside = m < min(GROUP_M, at.m + DEPTH) && first_c + c < GROUP_C;
            filters[i] = inside ? w[((size_t)m * GROUP_C + c) * (R * S) + at.r * S + at.s] : 0;
        }
#pragma unroll
        for (int j = 0; j < COPIED_PIXELS; ++j) {
            const int e = (down[j] - at.r * DILATION_ROWS) / U, f = (across[j] - at.s * DILATION_COLUMNS) / V;
            const bool inside = down[j] >= at.r * DILATION_ROWS && e < E && across[j] >= at.s * DILATION_COLUMNS && f < F;
#pragma unroll
            for (int i = 0; i < DEPTH / COPIED_TAPS; ++i) {
                const int m = at.m + i * COPIED_TAPS + first_tap;
                gradients[i][j] = inside && m < GROUP_M ? planes[j][(size_t)m * (E * F) + e * F + f] : 0;
            }
        }
    };
    const auto store = [&](int stage) {
#pragma unroll
        for (int i = 0; i < LOADED_TAPS; ++i) {
            const int at = threadIdx.x + i * THREADS;
            if (DEPTH * ROWS % THREADS == 0 || at < DEPTH * ROWS) shared_filters[stage][0][at] = filters[i];
        }
#pragma unroll
        for (int j = 0; j < COPIED_PIXELS; ++j)
#pragma unroll
            for (int i = 0; i < DEPTH / COPIED_TAPS; ++i)
                shared_gradients[stage][i * COPIED_TAPS + first_tap][column_of(own_pixel + j * THREADS)] = gradients[i][j];
    };

    Accumulators accumulators;
    KTile k_tile(taps);
    if (k_tile.more()) {
        load(k_tile);
        store(0);
    }
    for (int stage = 0; k_tile.more(); stage ^= 1) {
        __syncthreads();  // this K tile is in shared memory, and no thread still reads the one before
        k_tile.next(taps);
        const bool has_next = k_tile.more();
        if (has_next) load(k_tile);
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            Fragments fragments;
            fragments.load(shared_filters[stage][k] + thread_row(), shared_gradients[stage][k] + thread_column());
            accumulators.multiply_add(fragments);
        }
        if (has_next) store(stage ^ 1);
    }

#pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; ++j) {
        const long long pixel = first_pixel + thread_pixel() + j / VECTOR * GROUP + j % VECTOR * LANES_ACROSS;
        const long long n = pixel / PHASE_PIXELS;
        const int place = pixel - n * PHASE_PIXELS;
        const int h = place / PHASE_COLUMNS * U + taps.row, column = place % PHASE_COLUMNS * V + taps.column;
        if (pixel >= pixels || h >= H || column >= W) continue;
        float* const of_group = dx + ((size_t)n * C + group * GROUP_C) * (H * W) + h * W + column;
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i) {
            const int c = first_c + thread_row() + i / VECTOR * VECTOR * LANES_DOWN + i % VECTOR;
            if (c < GROUP_C) of_group[(size_t)c * (H * W)] = accumulators.at[i][j];
        }
    }
}

ASSERT_BLOCK(DGRAD_IGEMM, THREADS, 1);
ASSERT_GRID(DGRAD_IGEMM, (PHASE_PIXELS + COLUMNS - 1) / COLUMNS * CHANNEL_TILES, PHASES, 1);
ASSERT_SHARED_BYTES(DGRAD_IGEMM, 0);
