// Implicit GEMM from a window of the input in shared memory; ping-pong consumers.
//
// Gives: multiply_windows; WindowTensorCores, WindowPromoted; OutputPositions; WINDOW_SHARED_BYTES.
//
// The im2col gather of warpgroups.cuh fetches every input once for each tap that uses it.  Here the rows of a tile are
// neighbouring positions of the blocked input itself, some of which are no outputs: then the inputs under tap (r, s)
// lie r * BLOCKED_W + s rows further, for every row.  So a tile's inputs are fetched once, as one window, and each tap
// is an offset into it.  The filters stay in shared memory for the block's lifetime, so there must be few.
//
// Where a layer has groups, a block has the filters of one product (products.cuh), and the positions of its images.
//
// Rows have 128 bytes, of which BLOCKED_C fp16 values are used.  Two consumers, each with its own tiles, alternate on
// the tensor cores (ping-pong schedule): while one multiplies, the other runs its epilogue.
//
//     multiply_windows<Mainloop>(position_map, tap_map, images, epilogue);
//
// Mainloop: how a tile is accumulated (WindowTensorCores, WindowPromoted).
//
// Needs: TILE_FILTERS, STAGES and GRID_BLOCKS, constants of the rung.
#pragma once
#include "blocked.cuh"
#include "warpgroups.cuh"

constexpr int TAPS_OF_FILTER = BLOCKED_R * BLOCKED_S;
constexpr int STEPS_OF_TAP = (BLOCKED_C + MMA_K - 1) / MMA_K;
constexpr int POSITIONS = BLOCKED_H * BLOCKED_W;  // of an image
constexpr int TILE_POSITIONS = WGMMAS * WGMMA_ROWS;  // of a consumer
constexpr int BOX = 64;                            // rows of one TMA copy
constexpr int FURTHEST = (BLOCKED_R - 1) * BLOCKED_W + BLOCKED_S - 1;
constexpr int WINDOW_BYTES = (TILE_POSITIONS + FURTHEST + BOX - 1) / BOX * BOX * ROW_BYTES;
static_assert(STAGES > 1, "with one stage a consumer, which skips every other phase, could not tell two phases apart");
static_assert(BLOCKED_C <= STAGE_TAPS && PRODUCT_M <= TILE_FILTERS && GRID_BLOCKS >= PRODUCTS);
static_assert(WGMMAS_ACROSS == 1 && CONSUMERS == 2);

// Rows of the product are positions; those in the last columns and rows of the blocked input are no outputs.
struct OutputPositions {
    int images;

    // The pixel of a position, or -1.
    __device__ __forceinline__ int pixel(int row) const
    {
        const int n = row / POSITIONS, h = row % POSITIONS / BLOCKED_W, w = row % POSITIONS % BLOCKED_W;
        return n < images && h < E && w < F ? n * PIXELS + h * F + w : -1;
    }
};

template <int epilogue_bytes>
struct WindowStorage {
    unsigned char windows[STAGES][WINDOW_BYTES];
    unsigned char filters[TAPS_OF_FILTER][FILTER_BYTES];
    unsigned char epilogue[epilogue_bytes];
    Mbarrier full[STAGES], empty[STAGES], filters_full, ping_pong[CONSUMERS];
};

// Dynamic shared memory of multiply_windows, including slack for alignment.
template <class Epilogue>
constexpr int WINDOW_SHARED_BYTES = sizeof(WindowStorage<Epilogue::BYTES>) + ATOM_BYTES;

// Issues the wgmmas of a tap for one accumulator tile: d = or += the inputs under it times its filters.
__device__ __forceinline__ void multiply_tap(float (&d)[ACCUMULATORS], MatrixDescriptor window,
                                             MatrixDescriptor filters, int tile, int tap, bool add)
{
    constexpr int STEP_BYTES = MMA_K * sizeof(__half);
    const int row = tile * WGMMA_ROWS + tap / BLOCKED_S * BLOCKED_W + tap % BLOCKED_S;
#pragma unroll
    for (int step = 0; step < STEPS_OF_TAP; ++step)
        wgmma_fp16(d, advance_descriptor(window, row * ROW_BYTES + step * STEP_BYTES),
                      advance_descriptor(filters, tap * FILTER_BYTES + step * STEP_BYTES), add || step > 0);
}

// A tile's accumulators; the tensor cores accumulate over all taps, truncating each time.
struct WindowTensorCores {
    float accumulators[WGMMAS][ACCUMULATORS];

    // Issues all products.
    __device__ __forceinline__ void multiply(MatrixDescriptor window, MatrixDescriptor filters)
    {
        warpgroup_fence();
#pragma unroll
        for (int tap = 0; tap < TAPS_OF_FILTER; ++tap)
#pragma unroll
            for (int u = 0; u < WGMMAS; ++u) multiply_tap(accumulators[u], window, filters, u, tap, tap > 0);
        warpgroup_commit_group();
    }

    // Waits for the last of them.
    __device__ __forceinline__ void finish() { warpgroup_wait_group<0>(); }
};

// The same, but each tap's sums are promoted to accumulators in registers, which round to nearest: those of one
// accumulator tile while the next one's products are in flight.
struct WindowPromoted {
    static constexpr int LAST = TAPS_OF_FILTER * WGMMAS - 1;
    float accumulators[WGMMAS][ACCUMULATORS], of_tap[2][ACCUMULATORS];

    __device__ __forceinline__ void multiply(MatrixDescriptor window, MatrixDescriptor filters)
    {
#pragma unroll
        for (int i = 0; i <= LAST; ++i) {
            const int tap = i / WGMMAS, u = i % WGMMAS;
            warpgroup_fence();
            multiply_tap(tap == 0 ? accumulators[u] : of_tap[i % 2], window, filters, u, tap, false);
            warpgroup_commit_group();
            if (i > WGMMAS) {
                warpgroup_wait_group<1>();
                promote(i - 1);
            }
        }
    }

    __device__ __forceinline__ void finish()
    {
        warpgroup_wait_group<0>();
        if (TAPS_OF_FILTER > 1) promote(LAST);
    }

    __device__ __forceinline__ void promote(int i)
    {
#pragma unroll
        for (int j = 0; j < ACCUMULATORS; ++j) accumulators[i % WGMMAS][j] += of_tap[i % 2][j];
    }
};

// A block's product and tiles: every PRODUCTS-th block has the same product, and shares its tiles with those.
__device__ __forceinline__ int product_of_block()
{
    return PRODUCTS == 1 ? 0 : blockIdx.x % PRODUCTS;
}

__device__ __forceinline__ unsigned first_tile()
{
    return blockIdx.x / PRODUCTS;
}

__device__ __forceinline__ int tile_stride()
{
    return PRODUCTS == 1 ? GRID_BLOCKS : (GRID_BLOCKS - 1 - product_of_block()) / PRODUCTS + 1;
}

// The whole kernel: prologue, then producer and consumers side by side.  Mainloop is one of the two above; Epilogue as
// in warpgroups.cuh.
template <class Mainloop, class Epilogue>
__device__ __forceinline__ void multiply_windows(const TensorMap* position_map,  // of [N * POSITIONS][BLOCKED_C]
                                                 const TensorMap* tap_map,       // of [M][TAPS_OF_FILTER][BLOCKED_C]
                                                 int images, Epilogue epilogue)
{
    DYNAMIC_SHARED(unsigned char, memory);
    const size_t address = reinterpret_cast<size_t>(memory);
    using Shared = WindowStorage<Epilogue::BYTES>;
    Shared& shared = *reinterpret_cast<Shared*>(memory + (ATOM_BYTES - address % ATOM_BYTES) % ATOM_BYTES);
    constexpr int WARPS = WARPGROUP / LANES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], WARPS);
        }
        for (int consumer = 0; consumer < CONSUMERS; ++consumer) mbarrier_init(&shared.ping_pong[consumer], WARPS);
        mbarrier_init(&shared.filters_full, 1);
        mbarrier_init_fence();
    }
    __syncthreads();  // the mbarriers are initialised before any thread uses one
    const int tiles = (images * POSITIONS + TILE_POSITIONS - 1) / TILE_POSITIONS;
    const int filter = product_of_block() * PRODUCT_M;
    PipelineState<STAGES> state;
    if (threadIdx.x < WARPGROUP) {
        warpgroup_reg_dealloc<PRODUCER_REGISTERS>();
        if (threadIdx.x > 0) return;
        mbarrier_arrive_expect_tx(&shared.filters_full, sizeof(shared.filters));
        for (int tap = 0; tap < TAPS_OF_FILTER; ++tap)
            tma_load_box(shared.filters[tap], tap_map, &shared.filters_full, 0, tap, filter);
        wait_for_primary_launches();  // which write the positions
        for (int tile = first_tile(); tile < tiles; tile += tile_stride()) {
            mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);  // its consumer has read the window
            mbarrier_arrive_expect_tx(&shared.full[state.stage], WINDOW_BYTES);
            for (int row = 0; row < WINDOW_BYTES / ROW_BYTES; row += BOX)
                tma_load_box(shared.windows[state.stage] + row * ROW_BYTES, position_map, &shared.full[state.stage], 0,
                         product_of_block() * images * POSITIONS + tile * TILE_POSITIONS + row, 0);
            state.advance();
        }
        return;
    }
    warpgroup_reg_alloc<CONSUMER_REGISTERS>();
    wait_for_primary_launches();  // which write what the epilogue reads
    const int consumer = warp_uniform(threadIdx.x / WARPGROUP) - 1;
    if (consumer == 1) state.advance();
    unsigned order_parity = consumer == 0 ? 1 : 0;  // the first consumer begins the ping-pong
    mbarrier_wait(&shared.filters_full, 0);
    for (int tile = first_tile() + consumer * tile_stride(); tile < tiles; tile += CONSUMERS * tile_stride()) {
        const auto rows = epilogue.find(tile * TILE_POSITIONS, filter);
        Mainloop mainloop;
        mbarrier_wait(&shared.full[state.stage], state.parity);    // the window has arrived
        mbarrier_wait(&shared.ping_pong[consumer], order_parity);  // the other consumer has issued all its products
        mainloop.multiply(swizzled_descriptor(shared.windows[state.stage]), swizzled_descriptor(shared.filters[0]));
        release(&shared.ping_pong[1 - consumer]);
        mainloop.finish();
        release(&shared.empty[state.stage]);
        epilogue.store(mainloop.accumulators, rows, filter, shared.epilogue);
        state.advance();
        state.advance();
        order_parity ^= 1;
    }
}

// The map of all images' positions as rows of channels; the map of the filters, a box of which has one tap of all.
#define ASSERT_POSITION_MAP(MAP) \
    ASSERT_MAP_3(MAP, BLOCKED_C, PRODUCTS * POSITIONS, 1, BLOCKED_C * sizeof(__half), \
                 PRODUCTS * POSITIONS * BLOCKED_C * sizeof(__half)); \
    ASSERT_BOX_3(MAP, STAGE_TAPS, BOX, 1)
#define ASSERT_TAP_MAP(MAP) \
    ASSERT_MAP_3(MAP, BLOCKED_C, TAPS_OF_FILTER, M, BLOCKED_C * sizeof(__half), \
                 TAPS_OF_FILTER * BLOCKED_C * sizeof(__half)); \
    ASSERT_BOX_3(MAP, STAGE_TAPS, 1, TILE_FILTERS)
