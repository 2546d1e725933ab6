// wgrad by warpgroups: dw as a matrix product over the pixels of the batch, on Hopper's tensor cores, by stream-K.
//
// Gives: multiply_stream; reduce_stream; GRADIENT_C; SHARED_BYTES, PARTIAL_ELEMENTS; ASSERT_STREAM; pixel_runs.cuh.
//
// Both operands have the pixels, which are the product's K, along rows: a pixel's filters and a pixel's channels lie
// side by side in NHWC. wgmma takes fp16 operands from shared memory transposed (arch/wgmma_transposed.cuh), so nothing
// is reordered: a stage is TILE_PIXELS consecutive pixels of the batch, for which the TMA brings dy, 64 filters at a
// time, and x under a tap, 64 channels at a time (im2col mode, which fills in zeros for padding).  A tile has
// TILE_FILTERS filters and UNITS units of UNIT_TAPS neighbouring taps of a run; 64 divides a unit, and all of a tile's
// units are columns of the same wgmma, or each unit has a wgmma of its own.
//
// The CLUSTER blocks of a cluster have the same filters and pixels, at neighbouring taps: each brings a part of the
// planes of dy, to all of them, so that the L2 cache is read once for a cluster.
//
// Tiles are few and their sums long.  So the stages of all tiles, tile by tile, are one sequence, and each cluster
// takes an equal part of it: a fragment of one tile, or of several.  Each fragment leaves its sums in `partial`, and a
// second kernel adds those of a tile in the order of their pixels.  The parts follow from the grid alone: the same bits
// in every run.
//
// Tensor cores truncate when they accumulate, so they do it over RUN_STAGES stages only, whose sums are then promoted
// to others in registers, which round to nearest.  No product takes part in more additions than the classes allow,
// however many images there are (docs/precision.md).
//
//     multiply_stream<terms>(maps, partial, N);
//
// Needs: TILE_PIXELS, TILE_FILTERS, UNIT_TAPS, UNITS, STAGES, CLUSTER and GRID_BLOCKS, constants of the rung;
// PROMOTED_PLANES, for how many planes of outputs tensor cores accumulate, or none.
#pragma once
#include "../arch/multicast.cuh"
#include "../arch/wgmma_transposed.cuh"
#include "../common/vector.cuh"
#include "pixel_runs.cuh"

constexpr int PLANE_VALUES = 64, MMA_K = 16, WGMMA_ROWS = 64;  // values of a row of 128 bytes; K and M of a wgmma
constexpr int WARPGROUP = 128, CONSUMERS = TILE_FILTERS / WGMMA_ROWS, THREADS = WARPGROUP * (1 + CONSUMERS);
constexpr int TILE_TAPS = UNITS * UNIT_TAPS, UNIT_PLANES = (UNIT_TAPS + PLANE_VALUES - 1) / PLANE_VALUES;
constexpr bool TOGETHER = UNIT_TAPS % PLANE_VALUES == 0;  // whether all units are columns of the same wgmma
constexpr int WGMMA_TAPS = TOGETHER ? TILE_TAPS : UNIT_TAPS, WGMMAS = TILE_TAPS / WGMMA_TAPS;
constexpr int WGMMA_PLANES = TOGETHER ? UNITS * UNIT_PLANES : UNIT_PLANES;
constexpr int ACCUMULATORS = WGMMA_TAPS / 2;  // of a thread, of one wgmma
#define IN_CLUSTERS CLUSTER_DIMS(CLUSTER)
constexpr int CLUSTER_UNITS = CLUSTER * UNITS;
static_assert(TILE_FILTERS % WGMMA_ROWS == 0 && TILE_PIXELS % MMA_K == 0);
static_assert(CONSUMERS % CLUSTER == 0 && GRID_BLOCKS % CLUSTER == 0);

constexpr int GRADIENT_C = (M + CHUNK - 1) / CHUNK * CHUNK;  // filters of a pixel of dy, with padding
constexpr int UNITS_OF_RUN = (RUN + UNIT_TAPS - 1) / UNIT_TAPS, ALL_UNITS = RUNS * UNITS_OF_RUN;
constexpr int TILES_DOWN = (M + TILE_FILTERS - 1) / TILE_FILTERS;
constexpr int TILES = TILES_DOWN * ((ALL_UNITS + CLUSTER_UNITS - 1) / CLUSTER_UNITS);  // of a cluster
constexpr int TILE_WEIGHTS = TILE_FILTERS * TILE_TAPS;
constexpr int CLUSTERS = GRID_BLOCKS / CLUSTER, SLOTS = (CLUSTERS + TILES - 1) * CLUSTER;  // of fragments, at most
constexpr long long PARTIAL_ELEMENTS = 1ll * SLOTS * TILE_WEIGHTS;

// Stages whose products tensor cores accumulate: of some planes' pixels.
constexpr int WHOLE_STAGES = PROMOTED_PLANES * PIXELS / TILE_PIXELS, RUN_STAGES = WHOLE_STAGES > 0 ? WHOLE_STAGES : 1;

// Registers per thread (setmaxnreg): the producer needs few and leaves the rest to the consumers.
constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32, CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : 160;
static_assert(CONSUMERS >= 1 && CONSUMERS <= 3);

// In shared memory: planes of 64 filters, or 64 taps, of the stage's pixels.
constexpr int PLANE_BYTES = TILE_PIXELS * ROW_BYTES;
constexpr int GRADIENT_BYTES = CONSUMERS * PLANE_BYTES, INPUT_BYTES = UNITS * UNIT_PLANES * PLANE_BYTES;

template <int terms>
struct Stage {
    unsigned char gradients[terms][GRADIENT_BYTES];
    unsigned char inputs[terms][INPUT_BYTES];
};

template <int terms>
struct SharedStorage {
    Stage<terms> stages[STAGES];
    Mbarrier full[STAGES], empty[STAGES];
};

// Dynamic shared memory, including slack for alignment.
template <int terms>
constexpr int SHARED_BYTES = sizeof(SharedStorage<terms>) + ATOM_BYTES;

template <int terms>
struct OperandMaps {
    const TensorMap* gradients[terms];  // of [N * PIXELS][GRADIENT_C]
    const TensorMap* inputs[terms];     // of [N][BLOCKED_H][BLOCKED_W][BLOCKED_C], im2col
};

// How the stages of all tiles are divided among the clusters.
struct Division {
    int k_stages;  // of a tile
    long long stages, clusters;

    __device__ __forceinline__ explicit Division(long long N)
        : k_stages(int((N * PIXELS + TILE_PIXELS - 1) / TILE_PIXELS)),
          stages((long long)TILES * k_stages),
          clusters(min((long long)CLUSTERS, stages))
    {
    }

    __device__ __forceinline__ long long first_of(long long cluster) const { return cluster * stages / clusters; }
    __device__ __forceinline__ int cluster_of(long long stage) const
    {
        return int(((stage + 1) * clusters - 1) / stages);
    }
};

// A block's fragments, which are its cluster's: of each tile the stages [first, end).
struct Fragments {
    int k_stages, cluster, rank, tile, first, end;
    int left;  // stages of the cluster from `first` on

    __device__ __forceinline__ explicit Fragments(const Division& all)
        : k_stages(all.k_stages), cluster(blockIdx.x / CLUSTER), rank(blockIdx.x % CLUSTER), left(0)
    {
        if (cluster >= all.clusters) return;
        const long long stage = all.first_of(cluster);
        left = int(all.first_of(cluster + 1) - stage);
        tile = int(stage / k_stages);
        begin(int(stage - (long long)tile * k_stages));
    }

    __device__ __forceinline__ bool more() const { return left > 0; }

    __device__ __forceinline__ void next()
    {
        left -= end - first;
        ++tile;
        begin(0);
    }

    __device__ __forceinline__ int filter() const { return tile % TILES_DOWN * TILE_FILTERS; }
    __device__ __forceinline__ int unit() const { return tile / TILES_DOWN * CLUSTER_UNITS + rank * UNITS; }

    // A fragment differs from the one before by its cluster or by its tile, or by both.
    __device__ __forceinline__ int slot() const { return (cluster + tile) * CLUSTER + rank; }

private:
    __device__ __forceinline__ void begin(int stage)
    {
        first = stage;
        end = min(k_stages, first + left);
    }
};

// Where a thread is in the pipeline: the stage, and the parity of its mbarriers' phase.
struct PipelineState {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance()
    {
        if (++stage < STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

// The producer: fills stages in order, each as soon as all consumers of the cluster have released it.
template <int terms>
__device__ __forceinline__ void produce(SharedStorage<terms>& shared, const OperandMaps<terms>& maps, Fragments work)
{
    PipelineState state;
    for (; work.more(); work.next())
        for (int i = work.first; i < work.end; ++i, state.advance()) {
            const int pixel = i * TILE_PIXELS, n = pixel / PIXELS, place = pixel - n * PIXELS;
            const int row = first_row(place / F), column = first_column(place % F);
            Mbarrier* const full = &shared.full[state.stage];
            // All consumers have read the stage, those of the other blocks too, to which this one brings a part.
            mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);
            mbarrier_arrive_expect_tx(full, sizeof(Stage<terms>));
            Stage<terms>& stage = shared.stages[state.stage];
#pragma unroll
            for (int term = 0; term < terms; ++term) {
#pragma unroll
                for (int plane = 0; plane < CONSUMERS; ++plane) {
                    unsigned char* const to = stage.gradients[term] + plane * PLANE_BYTES;
                    const int filter = work.filter() + plane * PLANE_VALUES;
                    if constexpr (CLUSTER == 1)
                        tma_load_box(to, maps.gradients[term], full, filter, pixel, 0);
                    else if (brings(plane % CLUSTER, work.rank))
                        tma_multicast_box<CLUSTER>(to, maps.gradients[term], full, filter, pixel, 0);
                }
#pragma unroll
                for (int u = 0; u < UNITS; ++u) {
                    const int unit = min(work.unit() + u, ALL_UNITS - 1);  // none beyond the last
                    const int run = unit / UNITS_OF_RUN, tap = unit % UNITS_OF_RUN * UNIT_TAPS;
#pragma unroll
                    for (int plane = 0; plane < UNIT_PLANES; ++plane)
                        tma_load_im2col(stage.inputs[term] + (u * UNIT_PLANES + plane) * PLANE_BYTES, maps.inputs[term],
                                        full, tap + plane * PLANE_VALUES, column, row, n, columns_to(run), rows_to(run));
                }
            }
        }
}

// One arrival per warp, at each block of the cluster: it has read a stage.
__device__ __forceinline__ void release(Mbarrier* barrier)
{
    if (threadIdx.x % LANES > 0) return;
    if constexpr (CLUSTER == 1)
        mbarrier_arrive(barrier);
    else
        for (int rank = 0; rank < CLUSTER; ++rank) mbarrier_arrive_at(barrier, rank);
}

// Issues the wgmmas of one stage: d = or += a consumer's filters times taps, for all pairs of terms except lo times lo.
template <int terms>
__device__ __forceinline__ void multiply_stage(float (&d)[WGMMAS][ACCUMULATORS], const Stage<terms>& stage,
                                               int consumer, bool add)
{
    constexpr int STEP_BYTES = MMA_K * ROW_BYTES;
    const MatrixDescriptor gradients = transposed_descriptor(stage.gradients[0] + consumer * PLANE_BYTES, PLANE_BYTES);
    const MatrixDescriptor inputs = transposed_descriptor(stage.inputs[0], PLANE_BYTES);
#pragma unroll
    for (int step = 0; step < TILE_PIXELS / MMA_K; ++step)
#pragma unroll
        for (int a = terms - 1; a >= 0; --a)
#pragma unroll
            for (int b = terms - 1 - a; b >= 0; --b) {  // lo times lo is below the precision of the sum
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u) {
                    const int of_input = b * INPUT_BYTES + u * WGMMA_PLANES * PLANE_BYTES + step * STEP_BYTES;
                    wgmma_fp16_transposed(d[u],
                                          advance_descriptor(gradients, a * GRADIENT_BYTES + step * STEP_BYTES),
                                          advance_descriptor(inputs, of_input), add);
                }
                add = true;
            }
}

// A consumer's sums of a fragment: filter after filter, taps innermost.
__device__ __forceinline__ void store_fragment(const float (&sums)[WGMMAS][ACCUMULATORS],
                                               float* __restrict__ of_fragment,  // [TILE_FILTERS][TILE_TAPS]
                                               int consumer)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x % WARPGROUP / LANES;
    const int row = consumer * WGMMA_ROWS + warp * 16 + lane / 4;
    float* const own = of_fragment + row * TILE_TAPS + 2 * (lane % 4);
#pragma unroll
    for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
        for (int i = 0; i < ACCUMULATORS; i += 2)
            *reinterpret_cast<float2*>(own + i / 2 % 2 * 8 * TILE_TAPS + u * WGMMA_TAPS + i / 4 * 8) =
                make_float2(sums[u][i], sums[u][i + 1]);
}

template <int terms>
__device__ __forceinline__ void consume(SharedStorage<terms>& shared, Fragments work,
                                        float* __restrict__ partial)  // [SLOTS][TILE_FILTERS][TILE_TAPS]
{
    const int consumer = threadIdx.x / WARPGROUP - 1;
    PipelineState state;
    for (; work.more(); work.next()) {
        float sums[WGMMAS][ACCUMULATORS] = {};
        for (int i = work.first; i < work.end;) {
            float of_run[WGMMAS][ACCUMULATORS];
            const int end = min(i + RUN_STAGES, work.end);
            int previous = 0;
            for (bool add = false; i < end; ++i, add = true) {
                mbarrier_wait(&shared.full[state.stage], state.parity);  // the stage's bytes have arrived
                warpgroup_fence();
                multiply_stage<terms>(of_run, shared.stages[state.stage], consumer, add);
                warpgroup_commit_group();
                warpgroup_wait_group<1>();
                if (add) release(&shared.empty[previous]);
                previous = state.stage;
                state.advance();
            }
            warpgroup_wait_group<0>();
            release(&shared.empty[previous]);
#pragma unroll
            for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
                for (int j = 0; j < ACCUMULATORS; ++j) sums[u][j] += of_run[u][j];
        }
        store_fragment(sums, partial + (size_t)work.slot() * TILE_WEIGHTS, consumer);
    }
}

// The whole kernel: prologue, then producer and consumers side by side.
template <int terms>
__device__ __forceinline__ void multiply_stream(const OperandMaps<terms>& maps,
                                                float* __restrict__ partial,  // [SLOTS][TILE_FILTERS][TILE_TAPS]
                                                long long N)
{
    DYNAMIC_SHARED(unsigned char, memory);
    using Shared = SharedStorage<terms>;
    const size_t address = reinterpret_cast<size_t>(memory);
    Shared& shared = *reinterpret_cast<Shared*>(memory + (ATOM_BYTES - address % ATOM_BYTES) % ATOM_BYTES);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], CLUSTER * CONSUMERS * WARPGROUP / LANES);
        }
        mbarrier_init_fence();
    }
    __syncthreads();  // the mbarriers are initialised before any thread uses one
    if constexpr (CLUSTER > 1) cluster_barrier();  // the same, of the cluster's other blocks
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the operands, and may read partial sums
    const Fragments work((Division(N)));
    if (threadIdx.x < WARPGROUP) {
        if constexpr (CONSUMERS > 1) warpgroup_reg_dealloc<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce<terms>(shared, maps, work);
    } else {
        if constexpr (CONSUMERS > 1) warpgroup_reg_alloc<CONSUMER_REGISTERS>();
        consume<terms>(shared, work, partial);
    }
    if constexpr (CLUSTER > 1) cluster_barrier();  // no block ends while others bring parts to it or arrive there
}

// The sums of SUMMED weights, neighbouring taps of a run from `place` on: of their fragments, in the order of pixels.
template <int SUMMED>
__device__ __forceinline__ void stream_sums(float (&sums)[SUMMED],
                                            const float* __restrict__ partial,  // [SLOTS][TILE_FILTERS][TILE_TAPS]
                                            int filter, const Place& place, const Division& all)
{
    const int unit = place.run * UNITS_OF_RUN + place.tap / UNIT_TAPS;
    const int tile = unit / CLUSTER_UNITS * TILES_DOWN + filter / TILE_FILTERS;
    const int column = unit % UNITS * UNIT_TAPS + place.tap % UNIT_TAPS;
    const long long first_stage = (long long)tile * all.k_stages;
    const int first = all.cluster_of(first_stage), last = all.cluster_of(first_stage + all.k_stages - 1);
    const int rank = unit / UNITS % CLUSTER, row = filter % TILE_FILTERS;
    const size_t slot = (size_t)(first + tile) * CLUSTER + rank;
    const float* of_slot = partial + slot * TILE_WEIGHTS + row * TILE_TAPS + column;
#pragma unroll 4
    for (int cluster = first; cluster <= last; ++cluster, of_slot += CLUSTER * TILE_WEIGHTS) {
        const auto of_fragment = load_or_zeros<SUMMED>(of_slot, true);
#pragma unroll
        for (int i = 0; i < SUMMED; ++i) sums[i] += of_fragment.values[i];
    }
}

// The second kernel: block (i, m) computes the weights of the i-th REDUCED_C channels of filter m.  Neighbouring
// threads add neighbouring channels, REDUCED_TOGETHER each where these lie side by side in fragments; dw has taps
// innermost, so the block transposes through shared memory.  Finish: load(own, m, first, count) loads what the sums of
// FACTORS blocked channels are multiplied by, from `first` on; finish(sum, weight, factor) gives a weight, factor that of
// its channel.
constexpr int MOST_REDUCED_C = 64 * R * S <= 10240 ? 64 : 8, REDUCED_C = C < MOST_REDUCED_C ? C : MOST_REDUCED_C;
constexpr int REDUCED_TOGETHER = SIDE == 1 && REDUCED_C % 4 == 0 ? 4 : 1;
constexpr int REDUCED_PARTS = REDUCED_C / REDUCED_TOGETHER * R * S;  // of a block's weights, those of a thread at a time
constexpr int REDUCED_THREADS = REDUCED_PARTS < 512 ? (REDUCED_PARTS + LANES - 1) / LANES * LANES : 512;
constexpr int REDUCED_BLOCKS = 1280 / REDUCED_THREADS < 32 ? 1280 / REDUCED_THREADS : 32;  // resident: 48 registers a thread
static_assert(UNIT_TAPS % 4 == 0 && CHUNK % 4 == 0);

template <class Finish>
constexpr int REDUCED_BYTES = (REDUCED_C * R * S + Finish::FACTORS) * sizeof(float);

// Sums that are the weights.
struct AsTheyAre {
    static constexpr int FACTORS = 0;

    __device__ __forceinline__ void load(int*, int, int, int) {}
    __device__ __forceinline__ float finish(float sum, const Weight&, const int*) const { return sum; }
};

template <class Value, class Finish>
__device__ __forceinline__ void reduce_stream(const float* __restrict__ partial,  // [SLOTS][TILE_FILTERS][TILE_TAPS]
                                              Value* __restrict__ dw,             // [M][C][R][S]
                                              long long N, Finish finish)
{
    DYNAMIC_SHARED(float, sums);  // [REDUCED_C][R][S], then factors
    int* const factors = reinterpret_cast<int*>(sums + REDUCED_C * R * S);
    wait_for_primary_launches();  // which write the partial sums
    const Division all(N);
    const int first_c = blockIdx.x * REDUCED_C, m = blockIdx.y, channels = min(REDUCED_C, C - first_c);
    finish.load(factors, m, first_c * SQUARE, channels * SQUARE);
    for (int i = threadIdx.x; i < REDUCED_PARTS; i += REDUCED_THREADS) {
        const int c = i * REDUCED_TOGETHER % REDUCED_C, tap = i * REDUCED_TOGETHER / REDUCED_C;
        if (c >= channels) continue;
        float of_weights[REDUCED_TOGETHER] = {};
        stream_sums(of_weights, partial, m, Place(Weight(m, first_c + c, tap / S, tap % S)), all);
#pragma unroll
        for (int j = 0; j < REDUCED_TOGETHER; ++j)
            if (c + j < channels) sums[(c + j) * (R * S) + tap] = of_weights[j];
    }
    __syncthreads();  // all sums and factors of the block are in shared memory
    dw += ((size_t)m * C + first_c) * (R * S);
    for (int i = threadIdx.x; i < channels * R * S; i += REDUCED_THREADS) {
        const Weight weight(m, first_c + i / (R * S), i / S % R, i % S);
        dw[i] = Value(finish.finish(sums[i], weight, factors + Place(weight).channel() - first_c * SQUARE));
    }
}

#define ASSERT_INPUT_MAP(MAP)                                                                                     \
    ASSERT_MAP_4(MAP, SIDE == 1 ? BLOCKED_C : RUN, SIDE == 1 ? W : F, BLOCKED_H, 1, BLOCKED_C * sizeof(__half),   \
                 BLOCKED_W * BLOCKED_C * sizeof(__half), BLOCKED_H * BLOCKED_W * BLOCKED_C * sizeof(__half));     \
    ASSERT_BOX_2(MAP, PLANE_VALUES, TILE_PIXELS)
#define ASSERT_GRADIENT_MAP(MAP)                                                                                  \
    ASSERT_MAP_3(MAP, GRADIENT_C, PIXELS, 1, GRADIENT_C * sizeof(__half), PIXELS * GRADIENT_C * sizeof(__half));  \
    ASSERT_BOX_3(MAP, PLANE_VALUES, TILE_PIXELS, 1)
// The launches and arrays that all rungs share.
#define ASSERT_STREAM(terms, Finish)                         \
    ASSERT_BLOCK(MULTIPLY, THREADS, 1);                      \
    ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);                \
    ASSERT_SHARED_BYTES(MULTIPLY, SHARED_BYTES<terms>);      \
    ASSERT_ELEMENTS(PARTIAL, PARTIAL_ELEMENTS);              \
    ASSERT_BLOCK(REDUCE_FRAGMENTS, REDUCED_THREADS, 1);      \
    ASSERT_GRID(REDUCE_FRAGMENTS, (C + REDUCED_C - 1) / REDUCED_C, M, 1); \
    ASSERT_SHARED_BYTES(REDUCE_FRAGMENTS, REDUCED_BYTES<Finish>)
