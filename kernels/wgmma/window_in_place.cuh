// Implicit GEMM from a window of the unprepared input in shared memory; resident filters; ping-pong consumers.
//
// Gives: multiply_in_place; InPlacePositions; order_packed_filters; IN_PLACE_SHARED_BYTES, PACKED_FILTER_ELEMENTS.
//
// As in window.cuh, rows of the product are neighbouring positions of the padded input, some of which are no outputs,
// and a tap is an offset into a tile's window.  Here no kernel writes that input: an im2col map whose window is one
// pixel runs through the padded plane, and the TMA fills the padding with zeros.  A tile's positions are of one image,
// and end with the image's last output: rows below are no positions.
//
// Filters are packed: K has the channels of one tap after the other, each in whole steps of MMA_K, and a stage of
// filters is 64 values of K.  So 25 taps of 16 channels are 7 stages, not 25, and stay in shared memory for the block's
// lifetime.  More filters than fit are divided among blocks: every TILES_OF_FILTERS-th block has the same tile of them.
//
// Two consumers, each with its own tiles, alternate on the tensor cores (ping-pong schedule): while one multiplies, the
// other stores.
//
// Where a layer has groups, a tile of filters is of one product (products.cuh), and a window has its channels.
//
// A row in shared memory has 64 channels; a window of more is several planes of rows, one for each slice of 64.
//
//     multiply_in_place(position_map, filter_map, images, epilogue);
//
// Needs: TILE_PIXELS, TILE_FILTERS, STAGES and GRID_BLOCKS, constants of the rung.
#pragma once
#include "blocked.cuh"
#include "warpgroups.cuh"

constexpr int TAPS = R * S, STEPS_OF_TAP = (PRODUCT_C + MMA_K - 1) / MMA_K, STEPS = TAPS * STEPS_OF_TAP;
constexpr int PACKED_C = STEPS_OF_TAP * MMA_K, PACKED_K = TAPS * PACKED_C;
constexpr int STEPS_OF_STAGE = STAGE_TAPS / MMA_K;
constexpr int FILTER_STAGES = (STEPS + STEPS_OF_STAGE - 1) / STEPS_OF_STAGE;
constexpr int PACKED_FILTER_ELEMENTS = M * PACKED_K;

constexpr int PLANE_POSITIONS = BLOCKED_H * BLOCKED_W, IMAGE_POSITIONS = (E - 1) * BLOCKED_W + F;  // all; of outputs
constexpr int TILE_POSITIONS = WGMMAS * WGMMA_ROWS;                                                // of a consumer
constexpr int IMAGE_TILES = (IMAGE_POSITIONS + TILE_POSITIONS - 1) / TILE_POSITIONS;
constexpr int FURTHEST = (R - 1) * BLOCKED_W + S - 1;

// A window in boxes of equal size, of whole swizzle atoms.
constexpr int MOST_OF_BOX = 256, ATOM_ROWS = ATOM_BYTES / ROW_BYTES;
constexpr int BOXES = (TILE_POSITIONS + FURTHEST + MOST_OF_BOX - 1) / MOST_OF_BOX;
constexpr int BOX = (TILE_POSITIONS + FURTHEST + BOXES * ATOM_ROWS - 1) / (BOXES * ATOM_ROWS) * ATOM_ROWS;
constexpr int SLICES = (PRODUCT_C + STAGE_TAPS - 1) / STAGE_TAPS, PLANE_BYTES = BOXES * BOX * ROW_BYTES;
constexpr int WINDOW_BYTES = SLICES * PLANE_BYTES;
static_assert(STAGES > 1, "with one stage a consumer, which skips every other phase, could not tell two phases apart");
static_assert(SIDE == 1 && !GATHERS && C % CHUNK == 0, "TMA brings positions as they lie");
static_assert(WGMMAS_ACROSS == 1 && CONSUMERS == 2 && GRID_BLOCKS >= TILES_OF_FILTERS);

// Rows of the product are positions, those of each tile from one image.
struct InPlacePositions {
    static constexpr int IMAGE_ROWS = IMAGE_TILES * TILE_POSITIONS;

    int images;

    // The pixel of a row, or -1.
    __device__ __forceinline__ int pixel(int row) const
    {
        const int n = row / IMAGE_ROWS, e = row % IMAGE_ROWS / BLOCKED_W, f = row % IMAGE_ROWS % BLOCKED_W;
        return n < images && e < E && f < F ? n * PIXELS + e * F + f : -1;
    }
};

template <int epilogue_bytes>
struct InPlaceStorage {
    unsigned char windows[STAGES][WINDOW_BYTES];
    unsigned char filters[FILTER_STAGES][FILTER_BYTES];
    unsigned char epilogue[epilogue_bytes];
    Mbarrier full[STAGES], empty[STAGES], filters_full[FILTER_STAGES], ping_pong[CONSUMERS];
};

// Dynamic shared memory of multiply_in_place, including slack for alignment.
template <class Epilogue>
constexpr int IN_PLACE_SHARED_BYTES = sizeof(InPlaceStorage<Epilogue::BYTES>) + ATOM_BYTES;

// A block's tiles of positions: every `stride`-th, which is the number of blocks with the same filters.
struct InPlaceTiles {
    int product, filter, first, stride, count;

    __device__ __forceinline__ explicit InPlaceTiles(int images)
        : product(PRODUCTS == 1 ? 0 : blockIdx.x % TILES_OF_FILTERS / PRODUCT_TILES),
          filter(product * PRODUCT_M + (blockIdx.x % TILES_OF_FILTERS - product * PRODUCT_TILES) * TILE_FILTERS),
          first(blockIdx.x / TILES_OF_FILTERS),
          stride((GRID_BLOCKS - 1 - int(blockIdx.x) % TILES_OF_FILTERS) / TILES_OF_FILTERS + 1),
          count(images * IMAGE_TILES)
    {
    }
};

// The producer: loads the filters, then a window for each tile; nothing in a block without tiles, which must not exit
// with copies in flight.
template <int epilogue_bytes>
__device__ __forceinline__ void produce_windows(InPlaceStorage<epilogue_bytes>& shared, const TensorMap* position_map,
                                                const TensorMap* filter_map, const InPlaceTiles& tiles)
{
    if (tiles.first >= tiles.count) return;
    for (int i = 0; i < FILTER_STAGES; ++i) {
        mbarrier_arrive_expect_tx(&shared.filters_full[i], FILTER_BYTES);
        tma_load_box(shared.filters[i], filter_map, &shared.filters_full[i], i * STAGE_TAPS, 0, tiles.filter);
    }
    wait_for_primary_launches();  // which may write the input
    PipelineState<STAGES> state;
    for (int tile = tiles.first; tile < tiles.count; tile += tiles.stride) {
        Mbarrier* const full = &shared.full[state.stage];
        mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);  // its consumer has read the window
        mbarrier_arrive_expect_tx(full, WINDOW_BYTES);
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            // No output uses the positions below the plane, where the box continues in the next image.
            const int position = tile % IMAGE_TILES * TILE_POSITIONS + box * BOX;
            const int image = tile / IMAGE_TILES + position / PLANE_POSITIONS, in_plane = position % PLANE_POSITIONS;
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice)
                tma_load_im2col(shared.windows[state.stage] + slice * PLANE_BYTES + box * BOX * ROW_BYTES, position_map,
                                full, tiles.product * PRODUCT_C + slice * STAGE_TAPS, in_plane % BLOCKED_W - LEFT,
                                in_plane / BLOCKED_W - TOP, image, 0, 0);
        }
        state.advance();
    }
}

// Issues all products of a tile, those of a stage of filters as soon as it has arrived.
__device__ __forceinline__ void multiply_window(float (&d)[WGMMAS][ACCUMULATORS], MatrixDescriptor window,
                                                MatrixDescriptor filters, Mbarrier* filters_full, bool filters_are_new)
{
    constexpr int STEP_BYTES = MMA_K * sizeof(__half);
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const int tap = step / STEPS_OF_TAP, of_tap = step % STEPS_OF_TAP, of_stage = step % STEPS_OF_STAGE;
        const int from = of_tap / STEPS_OF_STAGE * PLANE_BYTES + (tap / S * BLOCKED_W + tap % S) * ROW_BYTES +
                         of_tap % STEPS_OF_STAGE * STEP_BYTES;
        if (of_stage == 0 && filters_are_new) mbarrier_wait(&filters_full[step / STEPS_OF_STAGE], 0);
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
            wgmma_fp16(d[u], advance_descriptor(window, u * WGMMA_ROWS * ROW_BYTES + from),
                       advance_descriptor(filters, step / STEPS_OF_STAGE * FILTER_BYTES + of_stage * STEP_BYTES),
                       step > 0);
    }
    warpgroup_commit_group();
}

// A consumer: every other tile of the block.
template <class Epilogue>
__device__ __forceinline__ void consume_windows(InPlaceStorage<Epilogue::BYTES>& shared, const InPlaceTiles& tiles,
                                                const Epilogue& epilogue)
{
    const int consumer = warp_uniform(threadIdx.x / WARPGROUP) - 1;
    const MatrixDescriptor filters = swizzled_descriptor(shared.filters[0]);
    PipelineState<STAGES> state;
    if (consumer == 1) state.advance();
    unsigned order_parity = consumer == 0 ? 1 : 0;  // the first consumer begins the ping-pong
    bool filters_are_new = true;
    for (int tile = tiles.first + consumer * tiles.stride; tile < tiles.count; tile += CONSUMERS * tiles.stride) {
        const auto rows = epilogue.find(tile * TILE_POSITIONS, tiles.filter);
        float accumulators[WGMMAS][ACCUMULATORS];
        mbarrier_wait(&shared.full[state.stage], state.parity);    // the window has arrived
        mbarrier_wait(&shared.ping_pong[consumer], order_parity);  // the other consumer has issued all its products
        multiply_window(accumulators, swizzled_descriptor(shared.windows[state.stage]), filters, shared.filters_full,
                        filters_are_new);
        release(&shared.ping_pong[1 - consumer]);
        filters_are_new = false;
        warpgroup_wait_group<0>();
        release(&shared.empty[state.stage]);
        epilogue.store(accumulators, rows, tiles.filter, shared.epilogue);
        state.advance();
        state.advance();
        order_parity ^= 1;
    }
}

// The whole kernel: prologue, then producer and consumers side by side; these wait for the primary launches.
template <class Epilogue>
__device__ __forceinline__ void multiply_in_place(const TensorMap* position_map,  // of x [N][H][W][C], im2col
                                                  const TensorMap* filter_map,    // of filters [M][PACKED_K]
                                                  int images, const Epilogue& epilogue)
{
    DYNAMIC_SHARED(unsigned char, memory);
    const size_t address = reinterpret_cast<size_t>(memory);
    using Shared = InPlaceStorage<Epilogue::BYTES>;
    Shared& shared = *reinterpret_cast<Shared*>(memory + (ATOM_BYTES - address % ATOM_BYTES) % ATOM_BYTES);
    if (threadIdx.x == 0) {
        constexpr int WARPS = WARPGROUP / LANES;
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], WARPS);
        }
        for (int i = 0; i < FILTER_STAGES; ++i) mbarrier_init(&shared.filters_full[i], 1);
        for (int consumer = 0; consumer < CONSUMERS; ++consumer) mbarrier_init(&shared.ping_pong[consumer], WARPS);
        mbarrier_init_fence();
    }
    __syncthreads();  // the mbarriers are initialised before any thread uses one
    const InPlaceTiles tiles(images);
    if (threadIdx.x < WARPGROUP) {
        warpgroup_reg_dealloc<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce_windows(shared, position_map, filter_map, tiles);
    } else {
        warpgroup_reg_alloc<CONSUMER_REGISTERS>();
        wait_for_primary_launches();  // which may use what the epilogue reads and writes
        consume_windows(shared, tiles, epilogue);
    }
}

// Block (r, m) packs row r of filter m, with zeros beyond its channels.
__device__ __forceinline__ void order_packed_filters(const __half* __restrict__ w,  // [M][GROUP_C][R][S]
                                                     __half* __restrict__ filters)  // [M][R][S][PACKED_C]
{
    const int r = blockIdx.x, m = blockIdx.y;
    for (int i = threadIdx.x; i < S * PACKED_C; i += BLOCK_THREADS) {
        const int c = i % PACKED_C - channel_of_product(m), s = i / PACKED_C;
        const bool inside = (GROUPS_TOGETHER == 1 || c >= 0) && c < GROUP_C;
        filters[((size_t)m * R + r) * (S * PACKED_C) + i] =
            inside ? w[(((size_t)m * GROUP_C + c) * R + r) * S + s] : __float2half_rn(0);
    }
}

#define ASSERT_IN_PLACE_MAP(MAP) \
    ASSERT_MAP_4(MAP, C, W, H, 1, C * sizeof(__half), W * C * sizeof(__half), H * W * C * sizeof(__half)); \
    ASSERT_BOX_2(MAP, STAGE_TAPS, BOX)
#define ASSERT_PACKED_FILTER_MAP(MAP) \
    ASSERT_MAP_3(MAP, PACKED_K, 1, M, PACKED_K * sizeof(__half), PACKED_K * sizeof(__half)); \
    ASSERT_BOX_3(MAP, STAGE_TAPS, 1, TILE_FILTERS)
