// Implicit GEMM by warpgroups straight from NHWC floats: no pass over the input before the product.
//
// Gives: FloatProblem, FloatFilters; multiply_floats; RoundToTf32, SplitIntoTf32; FLOAT_SHARED_BYTES; ASSERT_FLOAT_MAP,
// ASSERT_FLOAT_FILTER_MAP.
//
// The TMA copies floats to shared memory, a stage of 32 values of K at a time.  wgmma takes tf32 from there, but
// truncates the bits that tf32 lacks, and cannot split a float into two terms.  So consumers load the pixels' floats
// into registers, round or split them, and multiply from there; filters are rounded when they are prepared, and stay in
// shared memory.
//
// A lane loads four neighbouring values of K at once, its share of two steps.  The order of K does not matter to a
// wgmma: filters are prepared in the lanes' order (FloatFilters).  Rows of an accumulator tile are not in the order of
// pixels either (pixel_of_row): that would cause bank conflicts.
//
// Stages and boxes, which multiply_tiles counts in fp16 values, hold half as many floats: FloatProblem.
//
//     multiply_floats<FloatProblem, Mainloop>(pixel_map, filter_maps, work, epilogue);
//
// Mainloop: how consumers accumulate, and the number of TERMS of a value (RoundToTf32, SplitIntoTf32).  Work as in
// warpgroups.cuh.  Epilogue: store(accumulators, first row, first filter), seen(first row, unsafe) (FloatEpilogue).
//
// Needs: TILE_PIXELS, TILE_FILTERS, STAGES, SPLITS and GRID_BLOCKS, constants of the rung.
#pragma once
#include "../arch/ampere.cuh"
#include "../arch/tensor_map.cuh"
#include "../arch/wgmma_tf32.cuh"
#include "../common/bias.cuh"
#include "../common/range.cuh"
#include "blocked.cuh"
#include "own_channels.cuh"
#include "split_tiles.cuh"

constexpr int FLOAT_HALVES = sizeof(float) / sizeof(__half);
constexpr int VECTOR = 4;                                       // floats in 16 bytes
constexpr int GROUP = 16, GROUPS_OF_STAGE = STAGE_TAPS / FLOAT_HALVES / GROUP;  // values of K that four lanes load
constexpr int STEP_VALUES = 8, STAGE_STEPS = STAGE_TAPS / MMA_K;                // of one wgmma; of a stage
constexpr int WARP_ROWS = 16;                                                   // of a wgmma
static_assert(SIDE == 1 && WGMMAS_ACROSS == 1, "TMA gathers the input in place");
#ifndef DYNAMIC_SHAPE
static_assert(C % CHUNK == 0, "TMA gathers the input in place");
#endif

// The layer over unprepared floats.  A run of filters is zero-padded to a whole group.
struct FloatProblem : BlockedProblem {
    MEMBER_SIZE(VALUES, OF(BlockedProblem, RUN));
    MEMBER_SIZE(FILTER_VALUES, (OF(FloatProblem, VALUES) + GROUP - 1) / GROUP * GROUP);
    MEMBER_SIZE(RUN, OF(FloatProblem, FILTER_VALUES) * FLOAT_HALVES);
};


// The lanes' order of K: in a group of 16, place 8 step + 4 half + quarter has value 4 quarter + 2 step + half.
__device__ __forceinline__ int value_at(int place)
{
    return place / GROUP * GROUP + place % 4 * 4 + place / STEP_VALUES % 2 * 2 + place / 4 % 2;
}

// tf32 filters in that order: the Taps of own_channels.cuh.
struct FloatTaps {
    using Prepared = unsigned;
    MEMBER_SIZE(TAP_C, OF(FloatProblem, FILTER_VALUES));

    static __device__ __forceinline__ int place(int value)
    {
        return value / GROUP * GROUP + value % 4 / 2 * STEP_VALUES + value % 2 * 4 + value % GROUP / 4;
    }
    static __device__ __forceinline__ float value(unsigned tap) { return __uint_as_float(tap); }
};
SIZE(FLOAT_FILTER_ELEMENTS, M * OF(FloatProblem, RUNS) * OF(FloatProblem, FILTER_VALUES));

// A value as one tf32 number, or as two terms whose sum has twice the precision.
template <int terms>
__device__ __forceinline__ void split_into_tf32(float value, unsigned (&bits)[terms])
{
    bits[0] = to_tf32(value);
    if constexpr (terms == 2) bits[1] = to_tf32(value - __uint_as_float(bits[0]));
}

// Block (run, m) writes a run of filter m, times a power of two, in the lanes' order of K.
struct FloatFilters {
    template <int terms>
    static __device__ __forceinline__ void write(const float* __restrict__ w,       // [M][GROUP_C][R][S]
                                                 unsigned* const (&filters)[terms],  // [M][RUNS][FILTER_VALUES]
                                                 float power)
    {
        using Problem = FloatProblem;
        const int run = blockIdx.x, m = blockIdx.y;
        for (int i = threadIdx.x; i < OF(Problem, FILTER_VALUES); i += BLOCK_THREADS) {
            const int value = value_at(i), c = value % C - channel_of_product(m);
            const bool inside = value < OF(Problem, VALUES) && (GROUPS_TOGETHER == 1 || c >= 0) && c < GROUP_C;
            const int r = GATHERS ? run / S : run, s = GATHERS ? run % S : value / C;
            unsigned bits[terms];
            split_into_tf32<terms>(inside ? w[(((size_t)m * GROUP_C + c) * R + r) * S + s] * power : 0, bits);
#pragma unroll
            for (int term = 0; term < terms; ++term)
                filters[term][((size_t)m * OF(Problem, RUNS) + run) * OF(Problem, FILTER_VALUES) + i] = bits[term];
        }
    }
};

template <int terms>
struct FloatStage {
    unsigned char pixels[PIXEL_BYTES];  // [TILE_PIXELS][32] floats, swizzled
    unsigned char filters[terms][FILTER_BYTES];
};

template <int terms>
struct FloatStorage {
    FloatStage<terms> stages[STAGES];
    Mbarrier full[STAGES], empty[STAGES];
};

// Dynamic shared memory of multiply_floats, including slack for alignment.
template <int terms>
constexpr int FLOAT_SHARED_BYTES = sizeof(FloatStorage<terms>) + ATOM_BYTES;

template <int terms>
struct FilterMaps {
    const TensorMap* of[terms];  // of [M][RUNS][FILTER_VALUES]
};

// The pixel of each of eight rows, counted by lanes: neighbouring rows are four pixels apart, so that two of them have
// their chunks in different halves of the banks.
__device__ __forceinline__ int pixel_of_row(int row)
{
    return row / 2 + row % 2 * 4;
}

// A lane's floats of a stage at its two rows of an accumulator tile.
struct LaneValues {
    float4 values[2][GROUPS_OF_STAGE];

    __device__ __forceinline__ void load(const unsigned char* pixels, int tile)
    {
        const int lane = threadIdx.x % LANES, warp = threadIdx.x % WARPGROUP / LANES, quarter = lane % 4;
        const int eighth = pixel_of_row(lane / 4);
        const unsigned char* const row = pixels + (tile * WGMMA_ROWS + warp * WARP_ROWS + eighth) * ROW_BYTES;
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int group = 0; group < GROUPS_OF_STAGE; ++group) {
                const int chunk = (group * 4 + quarter) ^ eighth;
                values[half][group] =
                    *reinterpret_cast<const float4*>(row + half * 8 * ROW_BYTES + chunk * sizeof(float4));
            }
    }

    // Value `half` of K of a step, at the upper or lower row.
    __device__ __forceinline__ float at(int step, int half, int lower) const
    {
        const float4& four = values[lower][step / 2];
        if (step % 2 == 0) return half == 0 ? four.x : four.y;
        return half == 0 ? four.z : four.w;
    }
};

// The same, as operands of a stage's steps.
template <int terms>
struct LaneOperands {
    unsigned bits[terms][STAGE_STEPS][4];

    __device__ __forceinline__ void split(const LaneValues& values)
    {
#pragma unroll
        for (int step = 0; step < STAGE_STEPS; ++step)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                unsigned of_value[terms];
                split_into_tf32<terms>(values.at(step, i / 2, i % 2), of_value);
#pragma unroll
                for (int term = 0; term < terms; ++term) bits[term][step][i] = of_value[term];
            }
    }
};

// Issues the wgmmas of one stage for one accumulator tile: d = or += rows times filters, for all pairs of terms except
// lo times lo.
template <int terms, int steps>
__device__ __forceinline__ void multiply_floats_stage(float (&d)[ACCUMULATORS], const LaneOperands<terms>& rows,
                                                      const FloatStage<terms>& stage, bool add)
{
    constexpr int STEP_BYTES = STEP_VALUES * sizeof(float);
    const MatrixDescriptor filters = swizzled_descriptor(stage.filters[0]);
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int a = terms - 1; a >= 0; --a)
#pragma unroll
            for (int b = terms - 1 - a; b >= 0; --b) {  // lo times lo is below the precision of the sum
                wgmma_tf32(d, rows.bits[a][step], advance_descriptor(filters, b * FILTER_BYTES + step * STEP_BYTES),
                           add);
                add = true;
            }
}

// One arrival per warp: all its lanes, and the warpgroup's wgmmas, have read a stage.
__device__ __forceinline__ void release_floats(Mbarrier* barrier)
{
    __syncwarp();  // all lanes have loaded their values before one of them arrives
    release(barrier);
}

// A mainloop for floats rounded to tf32: the tensor cores accumulate over all of K.  The next stage's floats are loaded
// and rounded while one stage's wgmmas are in flight.
struct RoundToTf32 {
    static constexpr int TERMS = 1;

    template <class Problem, class Work, class Epilogue>
    static __device__ __forceinline__ void consume(FloatStorage<1>& shared, Work work, Epilogue epilogue)
    {
        using Stages = KStages<Problem>;
        const int consumer = threadIdx.x / WARPGROUP - 1;
        PipelineState<STAGES> state;
        for (; work.more(); work.next()) {
            float accumulators[WGMMAS][ACCUMULATORS];
            LaneOperands<1> rows[WGMMAS];
            int previous = 0;
            const int first_stage = work.first_stage(), end_stage = work.end_stage();
#pragma unroll 2
            for (int i = first_stage; i < end_stage; ++i) {
                const bool first = i == first_stage;
                mbarrier_wait(&shared.full[state.stage], state.parity);  // the stage's bytes have arrived
                const FloatStage<1>& stage = shared.stages[state.stage];
                LaneOperands<1> next[WGMMAS];
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u) {
                    LaneValues values;
                    values.load(stage.pixels, consumer * WGMMAS + u);
                    next[u].split(values);
                }
                warpgroup_wait_group<0>();
                if (!first) release_floats(&shared.empty[previous]);
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u) rows[u] = next[u];
                warpgroup_fence();
                if (Stages::has_all_steps(i)) {
#pragma unroll
                    for (int u = 0; u < WGMMAS; ++u)
                        multiply_floats_stage<1, Stages::ALL_STEPS>(accumulators[u], rows[u], stage, !first);
                } else {
#pragma unroll
                    for (int u = 0; u < WGMMAS; ++u)
                        multiply_floats_stage<1, Stages::LAST_STEPS>(accumulators[u], rows[u], stage, !first);
                }
                warpgroup_commit_group();
                previous = state.stage;
                state.advance();
            }
            warpgroup_wait_group<0>();
            release_floats(&shared.empty[previous]);
            epilogue.store(accumulators, work.rows_from(consumer * WGMMAS * WGMMA_ROWS), work.filter());
        }
    }
};

// Magnitudes whose two terms tf32 holds in full, and whose products with scaled filters stay in the range of floats.
constexpr unsigned LEAST_SAFE = bits_of_power(-100), MOST_SAFE = bits_of_power(100);

// A mainloop for two tf32 terms, three products: each stage's sums are promoted to accumulators in registers, which
// round to nearest (PromoteEachStage says why).  Reports rows with unsafe values to the epilogue.
struct SplitIntoTf32 {
    static constexpr int TERMS = 2;

    template <class Problem, class Work, class Epilogue>
    static __device__ __forceinline__ void consume(FloatStorage<2>& shared, Work work, Epilogue epilogue)
    {
        using Stages = KStages<Problem>;
        const int consumer = threadIdx.x / WARPGROUP - 1;
        PipelineState<STAGES> state;
        for (; work.more(); work.next()) {
            float accumulators[WGMMAS][ACCUMULATORS] = {};
            bool unsafe[WGMMAS][2] = {};
            const int first_stage = work.first_stage(), end_stage = work.end_stage();
            for (int i = first_stage; i < end_stage; ++i) {
                mbarrier_wait(&shared.full[state.stage], state.parity);  // the stage's bytes have arrived
                const FloatStage<2>& stage = shared.stages[state.stage];
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u) {
                    LaneValues values;
                    values.load(stage.pixels, consumer * WGMMAS + u);
                    LaneOperands<2> rows;
                    rows.split(values);
                    float of_stage[ACCUMULATORS];
                    warpgroup_fence();
                    if (Stages::has_all_steps(i))
                        multiply_floats_stage<2, Stages::ALL_STEPS>(of_stage, rows, stage, false);
                    else
                        multiply_floats_stage<2, Stages::LAST_STEPS>(of_stage, rows, stage, false);
                    warpgroup_commit_group();
                    find_unsafe(values, unsafe[u]);
                    warpgroup_wait_group<0>();
                    if (u == WGMMAS - 1) release_floats(&shared.empty[state.stage]);
#pragma unroll
                    for (int j = 0; j < ACCUMULATORS; ++j) accumulators[u][j] += of_stage[j];
                }
                state.advance();
            }
            const int first_row = work.rows_from(consumer * WGMMAS * WGMMA_ROWS);
            epilogue.seen(first_row, unsafe);
            epilogue.store(accumulators, first_row, work.filter());
        }
    }

    static __device__ __forceinline__ void find_unsafe(const LaneValues& values, bool (&unsafe)[2])
    {
#pragma unroll
        for (int lower = 0; lower < 2; ++lower)
#pragma unroll
            for (int i = 0; i < 2 * STAGE_STEPS; ++i) {
                const unsigned size = magnitude(values.at(i / 2, i % 2, lower));
                unsafe[lower] |= size != 0 && size - LEAST_SAFE >= MOST_SAFE - LEAST_SAFE;
            }
    }
};

// Outputs y [N][E][F][M], straight from registers.  Exponents: filters' powers of two (FilterExponents), or none.
template <class Exponents, class Others = NoOthers>
struct FloatEpilogue {
    float* y;  // [N][E][F][Y_CHANNELS]
    Addends<float> added;
    int images;
    SplitKSums slices;
    Exponents exponents;
    Others own = {};

    __device__ __forceinline__ int row_of(int first_row, int u, int lower) const
    {
        const int lane = threadIdx.x % LANES, warp = threadIdx.x % WARPGROUP / LANES;
        return first_row + u * WGMMA_ROWS + warp * WARP_ROWS + lower * 8 + pixel_of_row(lane / 4);
    }

    __device__ __forceinline__ void seen(int first_row, const bool (&unsafe)[WGMMAS][2]) const
    {
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
            for (int lower = 0; lower < 2; ++lower)
                if (unsafe[u][lower]) exponents.refuse(row_of(first_row, u, lower) / PIXELS);
    }

    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], int first_row,
                                          int first_filter) const
    {
        IF_SHAPE (SPLITS == 1) {
            store_sums(accumulators, first_row, first_filter);
        } else {
            float sums[WGMMAS][ACCUMULATORS];
            if (slices.add(accumulators, sums)) store_sums(sums, first_row, first_filter);
        }
    }

    // Computes the warp's outputs in an accumulator tile from their own channels.
    __device__ __forceinline__ void store_again(int first_row, int first_filter) const
    {
        __syncwarp();  // the warp's other lanes have stored the outputs that this one overwrites
        const int last_filter = min(first_filter + TILE_FILTERS, end_of_product(first_filter));
        first_row += threadIdx.x % WARPGROUP / LANES * WARP_ROWS;
#pragma unroll 1
        for (int row = first_row; row < min(first_row + WARP_ROWS, images * PIXELS); ++row)
#pragma unroll 1
            for (int filter = first_filter + threadIdx.x % LANES; filter < last_filter; filter += LANES) {
                const size_t place = (size_t)row * Y_CHANNELS + filter;
                y[place] = added.finished(own.sum(row, filter), filter, place);
            }
    }

    // A thread holds, for j = 0, 1, ..., columns 8 j + 2 q and the next of two rows, q being its place among the four
    // threads of these rows.  Pairs of threads exchange pairs of columns, so that each stores four adjacent ones.
    __device__ __forceinline__ void store_sums(const float (&accumulators)[WGMMAS][ACCUMULATORS], int first_row,
                                               int first_filter) const
    {
        const int quarter = threadIdx.x % 4, odd = quarter % 2;
#pragma unroll
        for (int j = 0; j < ACCUMULATORS / 4; j += 2) {
            const int filter = first_filter + (j + odd) * 8 + quarter / 2 * VECTOR;
            float factors[VECTOR], biases[VECTOR] = {};
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                factors[i] = exponents.factor(min(filter + i, M - 1));
                if constexpr (HAS_BIAS) biases[i] = bias_of(added.bias, min(filter + i, M - 1));
            }
#pragma unroll
            for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
                for (int lower = 0; lower < 2; ++lower) {
                    const float* const even_pair = &accumulators[u][j * 4 + 2 * lower];
                    const float* const odd_pair = &accumulators[u][j * 4 + 4 + 2 * lower];
                    float four[VECTOR];
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const float own = odd ? odd_pair[i] : even_pair[i];
                        const float other = __shfl_xor_sync(0xffffffff, odd ? even_pair[i] : odd_pair[i], 1);
                        four[i] = odd ? other : own;
                        four[2 + i] = odd ? own : other;
                    }
                    const int row = row_of(first_row, u, lower), end = end_of_product(first_filter);
                    const size_t place = (size_t)row * Y_CHANNELS + filter;
                    float residual[VECTOR] = {};
                    if constexpr (HAS_RESIDUAL)
                        if (row < images * PIXELS) get(residual, added.residual + place, filter, end);
#pragma unroll
                    for (int i = 0; i < VECTOR; ++i) four[i] = output(four[i] * factors[i], biases[i], residual[i]);
                    if (row < images * PIXELS) put(y + place, four, filter, end);
                }
        }
        if constexpr (Others::SEEN)
#pragma unroll
            for (int u = 0; u < WGMMAS; ++u)
                if (Others::any_infinite(accumulators[u])) store_again(first_row + u * WGMMA_ROWS, first_filter);
    }

    static __device__ __forceinline__ float output(float sum, float bias, float residual)
    {
        if constexpr (HAS_BIAS) sum += bias;
        if constexpr (HAS_RESIDUAL) sum += residual;
        return activated(sum);
    }

    static __device__ __forceinline__ void get(float (&four)[VECTOR], const float* from, int filter, int end)
    {
        IF_SHAPE (PRODUCT_M % VECTOR == 0) {
            if (filter >= end) return;
            const float4 loaded = __ldg(reinterpret_cast<const float4*>(from));
            four[0] = loaded.x, four[1] = loaded.y, four[2] = loaded.z, four[3] = loaded.w;
        } else {
#pragma unroll
            for (int i = 0; i < VECTOR; ++i)
                if (filter + i < end) four[i] = __ldg(from + i);
        }
    }

    static __device__ __forceinline__ void put(float* out, const float (&four)[VECTOR], int filter, int end)
    {
        IF_SHAPE (PRODUCT_M % VECTOR == 0) {
            if (filter < end) *reinterpret_cast<float4*>(out) = make_float4(four[0], four[1], four[2], four[3]);
        } else {
#pragma unroll
            for (int i = 0; i < VECTOR; ++i)
                if (filter + i < end) out[i] = four[i];
        }
    }
};

// Unscaled filters.
struct NoExponents {
    __device__ __forceinline__ float factor(int) const { return 1; }
    __device__ __forceinline__ void refuse(int) const {}
};

// The producer: fills stages in order, each as soon as all consumers have released it.  It loads the first stages'
// filters, which are prepared, before it waits for the launches that may write the pixels.
template <class Problem, int terms, class Work>
__device__ __forceinline__ void produce_floats(FloatStorage<terms>& shared, const TensorMap* pixel_map,
                                               const FilterMaps<terms>& filter_maps, Work work)
{
    PipelineState<STAGES> state;
    int ahead = 0;  // stages whose filters are in flight
    const int stages = work.more() ? min(STAGES, work.end_stage() - work.first_stage()) : 0;
    for (; ahead < stages; ++ahead) {
        const int i = work.first_stage() + ahead;
        const int run = i / OF(KStages<Problem>, PER_RUN), tap = i % OF(KStages<Problem>, PER_RUN) * STAGE_TAPS;
        Mbarrier* full = &shared.full[ahead];
        mbarrier_arrive_expect_tx(full, sizeof(FloatStage<terms>));
#pragma unroll
        for (int term = 0; term < terms; ++term)
            tma_load_box(shared.stages[ahead].filters[term], filter_maps.of[term], full, tap, run,
                         work.mapped_filter());
    }
    wait_for_primary_launches();  // which may write x
    for (; work.more(); work.next()) {
        const int pixel = work.pixel() % OF(Problem, IMAGE_ROWS);
        const int row = Problem::first_row(pixel / OF(Problem, ADJACENT_ROWS));
        const int column = Problem::first_column(pixel % OF(Problem, ADJACENT_ROWS));
        const int image = work.image(), filter = work.mapped_filter();
        const int first_stage = work.first_stage(), end_stage = work.end_stage();
        for (int i = first_stage; i < end_stage; ++i) {
            const int run = i / OF(KStages<Problem>, PER_RUN), tap = i % OF(KStages<Problem>, PER_RUN) * STAGE_TAPS;
            Mbarrier* full = &shared.full[state.stage];
            const bool has_filters = ahead > 0;
            if (!has_filters) {
                mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);  // all consumers have read the stage
                mbarrier_arrive_expect_tx(full, sizeof(FloatStage<terms>));
            }
            FloatStage<terms>& stage = shared.stages[state.stage];
            int value = tap;
            if constexpr (PRODUCTS > 1) value += work.first_channel() * FLOAT_HALVES;
            tma_load_im2col(stage.pixels, pixel_map, full, value, column, row, image, Problem::columns_to(run),
                            Problem::rows_to(run));
#pragma unroll
            for (int term = 0; term < terms; ++term)
                if (!has_filters) tma_load_box(stage.filters[term], filter_maps.of[term], full, tap, run, filter);
            if (has_filters) --ahead;
            state.advance();
        }
    }
}

// The whole kernel: prologue, then producer and consumers side by side; these wait for the primary launches.
template <class Problem, class Mainloop, class Work, class Epilogue>
__device__ __forceinline__ void multiply_floats(const TensorMap* pixel_map,
                                                const FilterMaps<Mainloop::TERMS>& filter_maps, Work work,
                                                Epilogue epilogue)
{
    DYNAMIC_SHARED(unsigned char, memory);
    const size_t address = reinterpret_cast<size_t>(memory);
    using Shared = FloatStorage<Mainloop::TERMS>;
    Shared& shared = *reinterpret_cast<Shared*>(memory + (ATOM_BYTES - address % ATOM_BYTES) % ATOM_BYTES);
    if (threadIdx.x == 0) {
        prefetch_tensor_map(pixel_map);
#pragma unroll
        for (int term = 0; term < Mainloop::TERMS; ++term) prefetch_tensor_map(filter_maps.of[term]);
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
        if (threadIdx.x > 0) return;
        produce_floats<Problem>(shared, pixel_map, filter_maps, work);
    } else {
        if constexpr (CONSUMERS > 1) warpgroup_reg_alloc<CONSUMER_REGISTERS>();
        wait_for_primary_launches();  // which may use the arrays that the epilogue writes
        Mainloop::template consume<Problem>(shared, work, epilogue);
    }
}

// The maps count a float as two fp16 values.
#define ASSERT_FLOAT_MAP(MAP)                                                                                      \
    ASSERT_MAP_4(MAP, (GATHERS ? C : FloatProblem::VALUES) * FLOAT_HALVES, GATHERS ? W : F, BLOCKED_H, 1,          \
                 C * sizeof(float), BLOCKED_W * C * sizeof(float), BLOCKED_H * BLOCKED_W * C * sizeof(float));     \
    ASSERT_BOX_2(MAP, STAGE_TAPS, TILE_PIXELS)
#define ASSERT_FLOAT_FILTER_MAP(MAP)                                                                               \
    ASSERT_MAP_3(MAP, FloatProblem::RUN, FloatProblem::RUNS, M, FloatProblem::FILTER_VALUES * sizeof(float),       \
                 FloatProblem::RUNS * FloatProblem::FILTER_VALUES * sizeof(float));                                \
    ASSERT_BOX_3(MAP, STAGE_TAPS, 1, TILE_FILTERS)
