// Implicit GEMM by warpgroups: y[row][filter] = sum over K of input rows times filters, on Hopper's tensor cores.
//
// Gives: multiply_tiles; PersistentTiles; AccumulateInTensorCores, PromoteEachStage; PipelineState; SHARED_BYTES.
//
// A persistent, warp-specialized kernel.  K is cut into stages of STAGE_TAPS = 64 taps, rows of 128 bytes: one for each
// of TILE_PIXELS pixels, which the TMA gathers in im2col mode, and for each of TILE_FILTERS filters.  One thread of the
// producer warpgroup keeps a pipeline of STAGES stages filled; up to three consumer warpgroups multiply them, each for
// its part of the rows.  Producer and consumers synchronize at two mbarriers per stage: `full` completes a phase when
// the stage's bytes have arrived, `empty` when all consumers have read them.
//
// A block stays resident and computes one tile after the other, so the producer fetches the next tile during the
// consumers' epilogue.  Tiles of the same pixels and different filters follow each other.  Where a
// layer has groups, a tile has filters of one product (products.cuh), and K runs over its channels.
//
//     multiply_tiles<Problem, Mainloop>(maps, work, epilogue);
//
// Problem: an image as a matrix: IMAGE_ROWS rows, ADJACENT_ROWS of which lie side by side, and RUNS runs of RUN taps of
// K (BlockedProblem, WinogradProblem).  Mainloop: how consumers accumulate, and the number of TERMS of an operand
// (AccumulateInTensorCores, PromoteEachStage, PromoteAndDeferStores).  Work: a block's tiles, and the stages of each
// (PersistentTiles, StreamKWork).  Epilogue: find(rows, filter) locates a consumer's outputs before its products,
// store() writes them afterwards, through BYTES of shared memory (NativeEpilogue, StudyEpilogue, PointEpilogue).
//
// Needs: TILE_PIXELS, TILE_FILTERS, STAGES and GRID_BLOCKS, constants of the rung.
#pragma once
#include "../arch/hopper.cuh"
#include "preparation.cuh"
#include "products.cuh"

constexpr int STAGE_TAPS = 64, MMA_K = 16;  // taps of a stage, and of one wgmma
constexpr int WGMMA_ROWS = 64;              // M of one wgmma
constexpr int WARPGROUP = 128, CONSUMERS = TILE_PIXELS == WGMMA_ROWS ? 1 : TILE_PIXELS % (2 * WGMMA_ROWS) == 0 ? 2 : 3;
constexpr int THREADS = WARPGROUP * (1 + CONSUMERS);
// A wgmma takes all filters of the tile, or half of them where a third consumer leaves too few registers for all.
constexpr int WGMMA_FILTERS = CONSUMERS == 3 && TILE_FILTERS == 256 ? 128 : TILE_FILTERS;
constexpr int WGMMAS_ACROSS = TILE_FILTERS / WGMMA_FILTERS;
constexpr int WGMMAS = TILE_PIXELS / (WGMMA_ROWS * CONSUMERS) * WGMMAS_ACROSS;  // of a consumer, for MMA_K taps
constexpr int ACCUMULATORS = WGMMA_FILTERS / 2;  // a thread's, of an accumulator tile: WGMMA_ROWS x WGMMA_FILTERS sums
static_assert(TILE_PIXELS % (WGMMA_ROWS * CONSUMERS) == 0);

SIZE(PRODUCT_TILES, (PRODUCT_M + TILE_FILTERS - 1) / TILE_FILTERS);
DIVISOR(TILES_OF_FILTERS, PRODUCTS * PRODUCT_TILES);
#ifdef DYNAMIC_SHAPE
NUMBER(GRID_BLOCKS, );
#endif
constexpr int PIXEL_BYTES = TILE_PIXELS * ROW_BYTES, FILTER_BYTES = TILE_FILTERS * ROW_BYTES;

// Registers per thread (setmaxnreg): the producer needs few and leaves the rest to the consumers; a single consumer has
// enough.
constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32, CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : 160;

// A tile's stages along K, run by run; the last of each run may be partial.
template <class Problem>
struct KStages {
    MEMBER_DIVISOR(PER_RUN, STAGES_OF_RUN, (Problem::RUN + STAGE_TAPS - 1) / STAGE_TAPS);
    MEMBER_SIZE(PER_TILE, OF(Problem, RUNS) * OF(KStages, PER_RUN));
    static constexpr int ALL_STEPS = STAGE_TAPS / MMA_K;
#ifdef DYNAMIC_SHAPE  // a stage is always full: the TMA brings zeros for both operands beyond a run
    static constexpr int LAST_STEPS = ALL_STEPS;
#else
    static constexpr int LAST_STEPS = (Problem::RUN - (PER_RUN - 1) * STAGE_TAPS + MMA_K - 1) / MMA_K;
#endif

    // Whether a stage is full: mostly known at compile time.
    static __device__ __forceinline__ bool has_all_steps(int stage)
    {
        return LAST_STEPS == ALL_STEPS || stage % OF(KStages, PER_RUN) < OF(KStages, PER_RUN) - 1;
    }
};

// The maps of the two operands, one for each term: hi, or hi and lo.
template <int terms>
struct OperandMaps {
    const TensorMap* pixels[terms];   // of [images][IMAGE_ROWS / ADJACENT_ROWS + RUNS - 1][ADJACENT_ROWS][RUN], im2col
    const TensorMap* filters[terms];  // of [filters][RUNS][RUN]
};

template <int terms>
struct Stage {
    unsigned char pixels[terms][PIXEL_BYTES];
    unsigned char filters[terms][FILTER_BYTES];
};

// Shared memory, from an address aligned to a swizzle atom.
template <int terms, int epilogue_bytes>
struct SharedStorage {
    Stage<terms> stages[STAGES];
    unsigned char epilogue[epilogue_bytes];
    Mbarrier full[STAGES], empty[STAGES];
};

// Dynamic shared memory of multiply_tiles, including slack for alignment.
template <int terms, class Epilogue>
constexpr int SHARED_BYTES = sizeof(SharedStorage<terms, Epilogue::BYTES>) + ATOM_BYTES;

// Where a thread is in a pipeline: the stage, and the parity of its mbarriers' phase.
template <int stages>
struct PipelineState {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance()
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }

    // As advance(), `steps` times.
    template <int steps>
    __device__ __forceinline__ void skip()
    {
        stage += steps % stages;
        parity ^= steps / stages % 2;
        if (stage >= stages) {
            stage -= stages;
            parity ^= 1;
        }
    }
};

// The static tile scheduler of a persistent kernel: every GRID_BLOCKS-th tile, each from its first stage to its last.
template <class Problem>
struct PersistentTiles {
    int images, tile, count;

    __device__ __forceinline__ explicit PersistentTiles(int images)
        : images(images),
          tile(blockIdx.x),
          count((images * OF(Problem, IMAGE_ROWS) + TILE_PIXELS - 1) / TILE_PIXELS * TILES_OF_FILTERS)
    {
    }

    __device__ __forceinline__ bool more() const { return tile < count; }
    __device__ __forceinline__ void next() { tile += GRID_BLOCKS; }
    __device__ __forceinline__ int first_stage() const { return 0; }
    __device__ __forceinline__ int end_stage() const { return OF(KStages<Problem>, PER_TILE); }
    __device__ __forceinline__ int product() const
    {
        return PRODUCTS == 1 ? 0 : tile % TILES_OF_FILTERS / PRODUCT_TILES;
    }
    __device__ __forceinline__ int filter() const
    {
        return product() * PRODUCT_M + (tile % TILES_OF_FILTERS - product() * PRODUCT_TILES) * TILE_FILTERS;
    }
    __device__ __forceinline__ int pixel() const { return tile / TILES_OF_FILTERS * TILE_PIXELS; }

    // Coordinates of the maps: image, first channel and filter.
    __device__ __forceinline__ int image() const
    {
        return Problem::image(product(), pixel() / OF(Problem, IMAGE_ROWS), images);
    }
    __device__ __forceinline__ int first_channel() const { return Problem::first_channel(product()); }
    __device__ __forceinline__ int mapped_filter() const { return filter(); }

    // The pixel of the batch at a row of the tile, where a consumer's outputs begin.
    __device__ __forceinline__ int rows_from(int row) const { return pixel() + row; }
};

// The producer: fills stages in order, each as soon as all consumers have released it.  With filters_first it loads the
// first stages' filters, which are prepared, before it waits for the launches that may write the pixels.
template <class Problem, bool filters_first, int terms, int epilogue_bytes, class Work>
__device__ __forceinline__ void produce(SharedStorage<terms, epilogue_bytes>& shared, const OperandMaps<terms>& maps,
                                        Work work)
{
    PipelineState<STAGES> state;
    int ahead = 0;  // stages whose filters are in flight
    if constexpr (filters_first) {
        const int stages = work.more() ? min(STAGES, work.end_stage() - work.first_stage()) : 0;
        for (; ahead < stages; ++ahead) {
            const int i = work.first_stage() + ahead;
            const int run = i / OF(KStages<Problem>, PER_RUN), tap = i % OF(KStages<Problem>, PER_RUN) * STAGE_TAPS;
            Mbarrier* full = &shared.full[ahead];
            mbarrier_arrive_expect_tx(full, sizeof(Stage<terms>));
#pragma unroll
            for (int term = 0; term < terms; ++term)
                tma_load_box(shared.stages[ahead].filters[term], maps.filters[term], full, tap, run,
                             work.mapped_filter());
        }
        wait_for_primary_launches();  // which may write the pixels
    }
    for (; work.more(); work.next()) {
        const int pixel = work.pixel() % OF(Problem, IMAGE_ROWS);
        const int row = Problem::first_row(pixel / OF(Problem, ADJACENT_ROWS));
        const int column = Problem::first_column(pixel % OF(Problem, ADJACENT_ROWS));
        const int image = work.image(), filter = work.mapped_filter();
        const int first_stage = work.first_stage(), end_stage = work.end_stage();
        for (int i = first_stage; i < end_stage; ++i) {
            const int run = i / OF(KStages<Problem>, PER_RUN), tap = i % OF(KStages<Problem>, PER_RUN) * STAGE_TAPS;
            Mbarrier* full = &shared.full[state.stage];
            const bool has_filters = filters_first && ahead > 0;
            if (!has_filters) {
                mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);  // all consumers have read the stage
                mbarrier_arrive_expect_tx(full, sizeof(Stage<terms>));
            }
            Stage<terms>& stage = shared.stages[state.stage];
            int channel = tap;
            if constexpr (PRODUCTS > 1) channel += work.first_channel();
#pragma unroll
            for (int term = 0; term < terms; ++term) {
                tma_load_im2col(stage.pixels[term], maps.pixels[term], full, channel, column, row, image,
                                Problem::columns_to(run), Problem::rows_to(run));
                if (!has_filters) tma_load_box(stage.filters[term], maps.filters[term], full, tap, run, filter);
            }
            if (has_filters) --ahead;
            state.advance();
        }
    }
}

// One arrival per warp: it has read a stage, or lets the other consumer begin (ping-pong).
__device__ __forceinline__ void release(Mbarrier* barrier)
{
    if (threadIdx.x % LANES == 0) mbarrier_arrive(barrier);
}

// Issues the wgmmas of one stage for one accumulator tile: d = or += rows times filters, for all pairs of terms except
// lo times lo.
template <int terms, int steps>
__device__ __forceinline__ void multiply_stage(float (&d)[ACCUMULATORS], const Stage<terms>& stage, int tile, bool add)
{
    constexpr int STEP_BYTES = MMA_K * sizeof(__half);
    const MatrixDescriptor pixels =
        swizzled_descriptor(stage.pixels[0] + tile / WGMMAS_ACROSS * WGMMA_ROWS * ROW_BYTES);
    const MatrixDescriptor filters =
        swizzled_descriptor(stage.filters[0] + tile % WGMMAS_ACROSS * WGMMA_FILTERS * ROW_BYTES);
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int a = terms - 1; a >= 0; --a)
#pragma unroll
            for (int b = terms - 1 - a; b >= 0; --b) {  // lo times lo is below the precision of the sum
                wgmma_fp16(d, advance_descriptor(pixels, a * PIXEL_BYTES + step * STEP_BYTES),
                           advance_descriptor(filters, b * FILTER_BYTES + step * STEP_BYTES), add);
                add = true;
            }
}

// A mainloop for one term per operand: the tensor cores accumulate over all of K, and one stage's wgmmas stay in flight
// while the next stage's are issued.
struct AccumulateInTensorCores {
    static constexpr int TERMS = 1;

    template <class Problem, class Work, class Epilogue>
    static __device__ __forceinline__ void consume(SharedStorage<1, Epilogue::BYTES>& shared, Work work,
                                                   Epilogue epilogue)
    {
        using Stages = KStages<Problem>;
        const int consumer = threadIdx.x / WARPGROUP - 1;
        PipelineState<STAGES> state;
        for (; work.more(); work.next()) {
            const int first_row = consumer * (WGMMAS / WGMMAS_ACROSS) * WGMMA_ROWS;
            const auto rows = epilogue.find(work.rows_from(first_row), work.filter());
            float accumulators[WGMMAS][ACCUMULATORS];
            int previous = 0;
            const int first_stage = work.first_stage(), end_stage = work.end_stage();
            for (int i = first_stage; i < end_stage; ++i) {
                const bool first = i == first_stage;
                mbarrier_wait(&shared.full[state.stage], state.parity);  // the stage's bytes have arrived
                const Stage<1>& stage = shared.stages[state.stage];
                warpgroup_fence();
                if (Stages::has_all_steps(i)) {
#pragma unroll
                    for (int u = 0; u < WGMMAS; ++u)
                        multiply_stage<1, Stages::ALL_STEPS>(accumulators[u], stage, consumer * WGMMAS + u, !first);
                } else {
#pragma unroll
                    for (int u = 0; u < WGMMAS; ++u)
                        multiply_stage<1, Stages::LAST_STEPS>(accumulators[u], stage, consumer * WGMMAS + u, !first);
                }
                warpgroup_commit_group();
                warpgroup_wait_group<1>();
                if (!first) release(&shared.empty[previous]);
                previous = state.stage;
                state.advance();
            }
            warpgroup_wait_group<0>();
            release(&shared.empty[previous]);
            epilogue.store(accumulators, rows, work.filter(), shared.epilogue);
        }
    }
};

// Issues the wgmmas of one stage for one accumulator tile as a group; `i` is the stage's number in the tile.
template <class Problem>
__device__ __forceinline__ void start_split_stage(float (&of_stage)[ACCUMULATORS], const Stage<2>& stage, int tile,
                                                  int i)
{
    using Stages = KStages<Problem>;
    warpgroup_fence();
    if (Stages::has_all_steps(i))
        multiply_stage<2, Stages::ALL_STEPS>(of_stage, stage, tile, false);
    else
        multiply_stage<2, Stages::LAST_STEPS>(of_stage, stage, tile, false);
    warpgroup_commit_group();
}

// A mainloop for hi and lo terms, three products each.  Each stage's sums are promoted to accumulators in registers,
// which round to nearest: a tensor core truncates when it accumulates, and over thousands of taps that would cost more
// accuracy than the lo terms add.
struct PromoteEachStage {
    static constexpr int TERMS = 2;

    template <class Problem, class Work, class Epilogue>
    static __device__ __forceinline__ void consume(SharedStorage<2, Epilogue::BYTES>& shared, Work work,
                                                   Epilogue epilogue)
    {
        const int consumer = threadIdx.x / WARPGROUP - 1;
        PipelineState<STAGES> state;
        for (; work.more(); work.next()) {
            const auto rows = epilogue.find(work.rows_from(consumer * WGMMAS * WGMMA_ROWS), work.filter());
            float accumulators[WGMMAS][ACCUMULATORS] = {};
            const int first_stage = work.first_stage(), end_stage = work.end_stage();
            for (int i = first_stage; i < end_stage; ++i) {
                mbarrier_wait(&shared.full[state.stage], state.parity);  // the stage's bytes have arrived
                const Stage<2>& stage = shared.stages[state.stage];
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u) {
                    float of_stage[ACCUMULATORS];
                    start_split_stage<Problem>(of_stage, stage, consumer * WGMMAS + u, i);
                    warpgroup_wait_group<0>();
                    if (u == WGMMAS - 1) release(&shared.empty[state.stage]);
#pragma unroll
                    for (int j = 0; j < ACCUMULATORS; ++j) accumulators[u][j] += of_stage[j];
                }
                state.advance();
            }
            epilogue.store(accumulators, rows, work.filter(), shared.epilogue);
        }
    }
};

// The whole kernel: prologue, then producer and consumers side by side.  With filters_first these wait for the primary
// launches; otherwise the caller has.
template <class Problem, class Mainloop, bool filters_first = false, class Work, class Epilogue>
__device__ __forceinline__ void multiply_tiles(const OperandMaps<Mainloop::TERMS>& maps, Work work, Epilogue epilogue)
{
    DYNAMIC_SHARED(unsigned char, memory);
    const size_t address = reinterpret_cast<size_t>(memory);
    using Shared = SharedStorage<Mainloop::TERMS, Epilogue::BYTES>;
    Shared& shared = *reinterpret_cast<Shared*>(memory + (ATOM_BYTES - address % ATOM_BYTES) % ATOM_BYTES);
    if (threadIdx.x == 0) {
        constexpr int CONSUMER_WARPS = CONSUMERS * WARPGROUP / LANES;
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], CONSUMER_WARPS);
        }
        mbarrier_init_fence();
    }
    __syncthreads();  // the mbarriers are initialised before any thread uses one
    if (threadIdx.x < WARPGROUP) {
        if constexpr (CONSUMERS > 1) warpgroup_reg_dealloc<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce<Problem, filters_first>(shared, maps, work);
    } else {
        if constexpr (CONSUMERS > 1) warpgroup_reg_alloc<CONSUMER_REGISTERS>();
        if constexpr (filters_first) wait_for_primary_launches();  // which may use what the epilogue reads and writes
        Mainloop::template consume<Problem>(shared, work, epilogue);
    }
}

// For BlockedProblem: the im2col map of the pixels, which are rows of a filter and overlap, or single pixels where taps
// are gathered; and the map of the filters.
#define ASSERT_PIXEL_MAP(MAP) \
    ASSERT_MAP_4(MAP, GATHERS ? MAPPED_CHANNELS : BlockedProblem::RUN, GATHERS ? W : F, BLOCKED_H, MAPPED_IMAGES, \
                 MAPPED_CHANNELS * sizeof(__half), BLOCKED_W * MAPPED_CHANNELS * sizeof(__half), \
                 MAPPED_ELEMENTS * sizeof(__half)); \
    ASSERT_BOX_2(MAP, STAGE_TAPS, TILE_PIXELS)
#define ASSERT_FILTER_MAP(MAP) \
    ASSERT_MAP_3(MAP, BlockedProblem::RUN, BlockedProblem::RUNS, M, BlockedProblem::RUN * sizeof(__half), \
                 BlockedProblem::RUNS * BlockedProblem::RUN * sizeof(__half)); \
    ASSERT_BOX_3(MAP, STAGE_TAPS, 1, TILE_FILTERS)
