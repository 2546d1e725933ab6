// Implicit GEMM of hi and lo terms whose filters stay in shared memory; ping-pong consumers.
//
// Gives: multiply_resident; prepare_resident_filters; ResidentStorage, ResidentTile, ResidentPositions.
//
// The im2col gather of warpgroups.cuh fetches the filters again with every tile, and a pixel once for each tap that
// uses it.  Here a block keeps all filters, both terms, for its lifetime, and a stage is one row of the filter in 16
// channels: as the rows of a tile are neighbouring positions of the blocked input's rows, the inputs under the next tap
// lie one row further, so that a stage serves all taps of its filter row.
//
// Nothing is swizzled: eight channels of a pixel are 16 bytes, those of neighbouring pixels follow each other in global
// and in shared memory, and an operand may begin with any of them.
//
// Two consumers, each with its own tiles, alternate on the tensor cores (ping-pong schedule): while one multiplies, the
// other runs its epilogue.
//
// Needs: TILE_FILTERS, STAGES and GRID_BLOCKS, constants of the rung.
#pragma once
#include "../common/shape.cuh"

constexpr int TILE_PIXELS = 128;  // positions of two tiles, one per consumer; for warpgroups.cuh

#include "study_epilogue.cuh"

constexpr int TERMS = 2, SLICE_CHUNKS = MMA_K / CHUNK;  // of an operand, hi and lo; of the channels of one wgmma
constexpr int SLICES = (BLOCKED_C + MMA_K - 1) / MMA_K;
constexpr int STAGES_OF_TILE = BLOCKED_R * SLICES;
constexpr int POSITIONS = E * BLOCKED_W;          // of an image; those beyond the outputs of their row are no outputs
constexpr int STAGE_ROWS = WGMMA_ROWS + BLOCKED_S - 1;  // the inputs under the taps of a row
constexpr int FILTER_ROWS = TERMS * TILE_FILTERS;
constexpr int STAGE_PLANE = STAGE_ROWS * sizeof(Chunk), FILTER_PLANE = FILTER_ROWS * sizeof(Chunk);
static_assert(M <= TILE_FILTERS && WGMMAS == 1 && CONSUMERS == 2);

// A tensor core truncates when it accumulates: so products of hi terms have separate accumulators, a set for each half
// of a tile's stages.
constexpr int HALVES = 2, FIRST_STAGES = (STAGES_OF_TILE + 1) / HALVES;

using ResidentTile = BlockedTile<TERMS, ChunkPlanes>;

// The inputs under one row of the filter, in 16 channels.
struct ResidentStage {
    Chunk planes[TERMS * SLICE_CHUNKS][STAGE_ROWS];  // of each term, eight channels at a time
};

using FilterSlice = Chunk[SLICE_CHUNKS][FILTER_ROWS];  // of one tap: the hi terms of all filters, then the lo terms

struct ResidentStorage {
    FilterSlice filters[STAGES_OF_TILE][BLOCKED_S];
    ResidentStage stages[STAGES];
    alignas(sizeof(Chunk)) unsigned char epilogue[StudyEpilogue<EveryRow>::BYTES];
    Mbarrier full[STAGES], empty[STAGES], filters_full[STAGES_OF_TILE], ping_pong[CONSUMERS];
};

// Rows of the product are positions.
struct ResidentPositions {
    int images;

    // The pixel of a position, or -1.
    __device__ __forceinline__ int pixel(int row) const
    {
        const int n = row / POSITIONS, e = row % POSITIONS / BLOCKED_W, f = row % BLOCKED_W;
        return n < images && f < F ? n * PIXELS + e * F + f : -1;
    }
};

// Each warp of the producer fetches a plane of every stage, eight channels of one term; the first warp also fetches
// each stage's filters, before that stage of its first tile.
constexpr int PRODUCERS = TERMS * SLICE_CHUNKS;
static_assert(PRODUCERS == WARPGROUP / LANES);

__device__ __forceinline__ void produce_planes(ResidentStorage& shared,
                                        // Both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]:
                                        const __half* const (&pixels)[TERMS],
                                        const __half* filters,  // [STAGES_OF_TILE][BLOCKED_S] slices
                                        int images, int tiles, int warp)
{
    const int chunk = warp % SLICE_CHUNKS;
    const __half* const plane = warp < SLICE_CHUNKS ? pixels[0] : pixels[1];
    PipelineState<STAGES> state;
    for (int tile = blockIdx.x; tile < tiles; tile += GRID_BLOCKS) {
        const int first = tile * WGMMA_ROWS, rows = min(STAGE_ROWS, images * POSITIONS - first);
        const int first_n = first / POSITIONS, first_position = first % POSITIONS;
        for (int i = 0; i < STAGES_OF_TILE; ++i) {
            if (warp == 0 && tile == blockIdx.x) {
                constexpr int BYTES = sizeof(shared.filters[i]);
                mbarrier_arrive_expect_tx(&shared.filters_full[i], BYTES);
                tma_load_bulk(shared.filters[i], filters + i * (BYTES / sizeof(__half)), &shared.filters_full[i],
                              BYTES);
            }
            // With an odd number of chunks the last is fetched twice, and multiplied by zeros.
            const int of_pixel = min(i % SLICES * SLICE_CHUNKS + chunk, CHUNKS - 1);
            Mbarrier* const full = &shared.full[state.stage];
            mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);  // a consumer has read the stage
            mbarrier_arrive_expect_tx(full, rows * sizeof(Chunk));
            int n = first_n, position = first_position;
            for (int row = 0; row < rows; ++n, position = 0) {  // each image that the tile has rows of
                const int together = min(rows - row, POSITIONS - position);
                const size_t from = ((size_t)n * CHUNKS + of_pixel) * (BLOCKED_H * BLOCKED_W) +
                                    i / SLICES * BLOCKED_W + position;
                tma_load_bulk(&shared.stages[state.stage].planes[warp][row], plane + from * CHUNK, full,
                           together * sizeof(Chunk));
                row += together;
            }
            state.advance();
        }
    }
}

// The wgmmas of a tap: `big` = or += hi times hi, `small` = or += hi times lo and lo times hi.  `pixels` and `filters`
// describe the hi terms.
__device__ __forceinline__ void multiply_tap(float (&big)[ACCUMULATORS], float (&small)[ACCUMULATORS],
                                             MatrixDescriptor pixels, MatrixDescriptor filters, bool add_big,
                                             bool add_small)
{
    const MatrixDescriptor lo_pixels = advance_descriptor(pixels, SLICE_CHUNKS * STAGE_PLANE);
    const MatrixDescriptor lo_filters = advance_descriptor(filters, TILE_FILTERS * int(sizeof(Chunk)));
    warpgroup_fence();
    wgmma_fp16(small, lo_pixels, filters, add_small);
    wgmma_fp16(small, pixels, lo_filters, true);
    wgmma_fp16(big, pixels, filters, add_big);  // lo times lo is below the precision of the sum
    warpgroup_commit_group();
}

// The mainloop.  wgmmas are short here, and few can be queued: all other work for a stage is interleaved with the taps
// of the previous stage.  Stages are fully unrolled, so that with a pipeline of exactly one tile's stages all addresses
// differ by immediate offsets.
__device__ __forceinline__ void consume_planes(ResidentStorage& shared,
                                               const StudyEpilogue<ResidentPositions>& epilogue, int tiles)
{
    const int consumer = warp_uniform(threadIdx.x / WARPGROUP) - 1;
    const MatrixDescriptor first_pixels = unswizzled_descriptor(shared.stages[0].planes[0], STAGE_PLANE);
    const MatrixDescriptor first_filters = unswizzled_descriptor(shared.filters[0][0][0], FILTER_PLANE);
    PipelineState<STAGES> state;
    if (consumer == 1) state.skip<STAGES_OF_TILE>();
    unsigned order_parity = consumer == 0 ? 1 : 0;  // the first consumer begins the ping-pong
    auto rows = epilogue.find((blockIdx.x + consumer * GRID_BLOCKS) * WGMMA_ROWS, 0);
    for (int tile = blockIdx.x + consumer * GRID_BLOCKS; tile < tiles; tile += CONSUMERS * GRID_BLOCKS) {
        const auto wait_for_stage = [&](int i) {
            if (tile < CONSUMERS * GRID_BLOCKS) mbarrier_wait(&shared.filters_full[i], 0);
            mbarrier_wait(&shared.full[state.stage], state.parity);  // the stage's bytes have arrived
            // The other consumer may begin: no stage of this tile is outstanding, so it cannot mistake one for its own.
            if (i == STAGES_OF_TILE - 1) release(&shared.ping_pong[1 - consumer]);
        };
        float big[HALVES][ACCUMULATORS], small[ACCUMULATORS];
        int current = 0, previous = 0;
        mbarrier_wait(&shared.ping_pong[consumer], order_parity);  // the other consumer has all its stages
        wait_for_stage(0);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const int first = half == 0 ? 0 : FIRST_STAGES, end = half == 0 ? FIRST_STAGES : STAGES_OF_TILE;
#pragma unroll
            for (int i = first; i < end; ++i) {
                current = state.stage;
                state.advance();
                const MatrixDescriptor pixels = advance_descriptor(first_pixels, current * int(sizeof(ResidentStage)));
                const MatrixDescriptor filters = advance_descriptor(first_filters, i * int(sizeof(shared.filters[0])));
#pragma unroll
                for (int s = 0; s < BLOCKED_S; ++s) {
                    multiply_tap(big[half], small, advance_descriptor(pixels, s * int(sizeof(Chunk))),
                                 advance_descriptor(filters, s * int(sizeof(FilterSlice))), i > first || s > 0,
                                 i > 0 || s > 0);
                    if (s == 0) {
                        warpgroup_wait_group<1>();
                        if (i > 0) release(&shared.empty[previous]);
                    }
                    if ((s == BLOCKED_S - 2 || BLOCKED_S == 1) && i < STAGES_OF_TILE - 1) wait_for_stage(i + 1);
                }
                previous = current;
            }
        }
        // Before this tile's stores: after them the loads of the next tile's exponents would wait long.
        const auto next_rows = epilogue.find((tile + CONSUMERS * GRID_BLOCKS) * WGMMA_ROWS, 0);
        warpgroup_wait_group<0>();
        release(&shared.empty[previous]);
        float accumulators[1][ACCUMULATORS];
#pragma unroll
        for (int i = 0; i < ACCUMULATORS; ++i) {
            accumulators[0][i] = big[0][i] + small[i];
            if (FIRST_STAGES < STAGES_OF_TILE) accumulators[0][i] += big[1][i];
        }
        epilogue.store(accumulators, rows, 0, shared.epilogue);
        rows = next_rows;
        state.skip<STAGES_OF_TILE>();
        order_parity ^= 1;
    }
}

// The whole kernel: prologue, then producer and consumers side by side.
__device__ __forceinline__ void multiply_resident(const __half* const (&pixels)[TERMS],
                                                  const __half* filters, int images,
                                                  const StudyEpilogue<ResidentPositions>& epilogue)
{
    DYNAMIC_SHARED(ResidentStorage, resident);
    ResidentStorage& shared = *resident;
    if (threadIdx.x == 0) {
        constexpr int WARPS = WARPGROUP / LANES;
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], PRODUCERS);
            mbarrier_init(&shared.empty[stage], WARPS);
        }
        for (int i = 0; i < STAGES_OF_TILE; ++i) mbarrier_init(&shared.filters_full[i], 1);
        for (int consumer = 0; consumer < CONSUMERS; ++consumer) mbarrier_init(&shared.ping_pong[consumer], WARPS);
        mbarrier_init_fence();
    }
    __syncthreads();  // the mbarriers are initialised before any thread uses one
    const int tiles = (images * POSITIONS + WGMMA_ROWS - 1) / WGMMA_ROWS;
    if (threadIdx.x < WARPGROUP) {
        warpgroup_reg_dealloc<PRODUCER_REGISTERS>();
        const int warp = warp_uniform(threadIdx.x / LANES);
        if (threadIdx.x % LANES == 0) produce_planes(shared, pixels, filters, images, tiles, warp);
    } else {
        warpgroup_reg_alloc<CONSUMER_REGISTERS>();
        consume_planes(shared, epilogue, tiles);
    }
}

// Block (i, s) writes all filters at tap s of stage i, each scaled by its power of two, with zeros beyond the last
// filter and channel.
__device__ __forceinline__ void prepare_resident_filters(const float* __restrict__ w,        // [M][C][R][S]
                                                         const int* __restrict__ exponents,  // [M]
                                                         // [STAGES_OF_TILE][BLOCKED_S] slices:
                                                         __half* __restrict__ filters)
{
    const int blocked_r = blockIdx.x / SLICES, slice = blockIdx.x % SLICES, blocked_s = blockIdx.y;
    __half* const to = filters + (size_t)(blockIdx.x * BLOCKED_S + blocked_s) * (sizeof(FilterSlice) / sizeof(__half));
    for (int i = threadIdx.x; i < MMA_K * TILE_FILTERS; i += BLOCK_THREADS) {
        const int k = i % CHUNK, m = i / CHUNK % TILE_FILTERS, chunk = i / (CHUNK * TILE_FILTERS);
        const int channel = slice * MMA_K + chunk * CHUNK + k, c = channel / SPACE_TO_DEPTH;
        const int r = blocked_r * SIDE + channel / SIDE % SIDE, s = blocked_s * SIDE + channel % SIDE;
        __half halves[TERMS];
        const bool inside = m < M && c < C && r < R && s < S;
        split<TERMS>(inside ? w[(((size_t)m * C + c) * R + r) * S + s] * power_of_two(exponents[m]) : 0.0f, halves);
#pragma unroll
        for (int term = 0; term < TERMS; ++term)
            to[(chunk * FILTER_ROWS + term * TILE_FILTERS + m) * CHUNK + k] = halves[term];
    }
}
