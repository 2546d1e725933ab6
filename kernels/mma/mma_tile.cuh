// Implicit GEMM on tensor cores by single warps (mma.sync), for batches too small to fill a GPU.
//
// Gives: compute_tile; prepare_fragments; Sizes (extents of shared memory); Fp16; Unscaled.
//
// Rows of the GEMM are filters, columns pixels of an image, and K runs over the taps.  The im2col matrix exists
// nowhere, not even in shared memory: a block copies the input rows under its pixels' windows, CHANNELS channels (a K
// tile) at a time, and addresses a pixel's input under a tap by the sum of a tap offset and a pixel offset.  So an
// input is copied once for all taps that use it.
//
// Everything is counted in words of 32 bits: a float, or two fp16 values of neighbouring channels.  A warp's product is
// 16 filters times 8 pixels, MMA_WORDS words deep (a step), and its fragments have the same layout for both types.
// Filters are prepared as fragments: a lane's four words are contiguous, and each lane copies to shared memory only
// what it reads itself, STAGES - 1 steps ahead.  So filters need no barriers, and warps synchronize once per K tile.
//
// Where a layer has groups, each is a product of its own: a tile has filters of one group, and K runs over the taps of
// that group's channels.
//
// A tile's filters are divided among WARPS_DOWN warps and K among the others (sliced-K), so no two warps of a block
// read the same fragment.  Where an image has fewer tiles than the GPU has multiprocessors, K is also divided among
// SPLIT_BLOCKS blocks (split-K).  Warps' accumulators are added in shared memory, blocks' sums in `partial`: the warp
// that arrives last adds all of them, always in the order of the blocks.  Where those blocks are a cluster, they
// store their sums to each other's shared memory instead: each block adds and stores a share of the tile, in the same
// order.
//
// With programmatic dependent launch a block copies its first filters while the previous launch still runs.  Until that
// has ended it touches prepared arrays only.
//
//     compute_tile<Layout, Arithmetic>(x, fragments, partial, arrived, y, range, added);
//
// Layout: the order of operands and outputs (WORDS of K per K tile, INPUT_WORDS of a K tile's input rows, offsets of
// words and pixels, placement and store of outputs): Planes, Pairs, Pixels.  Arithmetic: the products (TERMS into which
// each operand is split, stored side by side; multiply_add): Fp16 here, others in the rungs.  Range: loads filters'
// factors and a K tile's inputs into shared memory (prepare, write_factors; begin, complete), tells whether inputs
// exceeded the operands' range (beyond) and unscales sums (outside): Unscaled here, Scaled in mma_pairs.cuh.
//
// Needs: TILE_PIXELS, TILE_FILTERS, CHANNELS, STAGES, SPLITS, WARPS, WARPS_DOWN and CLUSTER, constants of the rung.
#pragma once
#include "../arch/ampere.cuh"
#include "../arch/cluster.cuh"
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "../common/filter_tap.cuh"
#include "../common/padding.cuh"
#include "../common/product.cuh"

#ifdef DYNAMIC_SHAPE
NUMBER(CHANNELS, );
NUMBER(SPLITS, );
#endif
DIVISOR(FILTER_TAPS, R * S);  // of a channel

constexpr int WARP = 32, THREADS = WARPS * WARP;
constexpr int MMA_WORDS = 8;         // words of K in a warp's product
#ifdef DYNAMIC_SHAPE
constexpr int UNROLLED_COPIES = 4;  // whose addresses are in registers
#else
constexpr int UNROLLED_COPIES = 16;  // so that most addresses differ by immediate offsets
#endif
constexpr int FRAGMENT_ROWS = 16, FRAGMENT_COLUMNS = 8, LANE_WORDS = 4, FRAGMENT = WARP * LANE_WORDS;
constexpr int TILE_FRAGMENTS = TILE_FILTERS / FRAGMENT_ROWS;

// Warps that divide K among them, and a warp's fragments of filters and of pixels.
constexpr int WARPS_ALONG = WARPS / WARPS_DOWN;
constexpr int FRAGMENTS_DOWN = TILE_FRAGMENTS / WARPS_DOWN, FRAGMENTS_ACROSS = TILE_PIXELS / FRAGMENT_COLUMNS;
static_assert(WARPS % WARPS_DOWN == 0 && TILE_FRAGMENTS % WARPS_DOWN == 0);

__host__ __device__ constexpr int divide_up(int count, int divisor)
{
    return (count + divisor - 1) / divisor;
}

__host__ __device__ constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

__host__ __device__ constexpr int larger(int a, int b)
{
    return a > b ? a : b;
}

// Tiles of filters, those of a group after the other's; none has filters of two.
DIVISOR(GROUP_TILES, divide_up(GROUP_M, TILE_FILTERS));
DIVISOR(FILTER_TILES, GROUPS * GROUP_TILES);
DIVISOR(PIXEL_TILES, divide_up(PIXELS, TILE_PIXELS));
SIZE(K_TILES, divide_up(GROUP_C, CHANNELS));
DIVISOR(SPLIT_BLOCKS, smaller(SPLITS, K_TILES));
// Buffers of input rows: double buffering, if a block has two K tiles or more.
DIVISOR(BUFFERS, smaller(2, divide_up(K_TILES, SPLIT_BLOCKS)));
constexpr int TILE_ELEMENTS = TILE_FILTERS * TILE_PIXELS;
constexpr int VECTOR = 4;  // outputs that a thread handles together
constexpr int THREAD_VECTORS = divide_up(TILE_ELEMENTS, THREADS * VECTOR);

// Vectors of a tile that a block of a cluster adds and stores, and a thread of them.
constexpr int BLOCK_SHARE = TILE_ELEMENTS / (CLUSTER * VECTOR), THREAD_SHARE = divide_up(BLOCK_SHARE, THREADS);
constexpr int CLUSTER_WORDS = LANE_WORDS + TILE_ELEMENTS;  // of shared memory: an mbarrier, and sums to be added
static_assert(TILE_ELEMENTS % (CLUSTER * VECTOR) == 0);
#if CLUSTER > 1
#define IN_CLUSTERS CLUSTER_DIMS(CLUSTER)
static_assert(CLUSTER == SPLIT_BLOCKS, "a tile's blocks");
#else
#define IN_CLUSTERS
#endif

// Output rows of a tile's pixels, and input rows under their windows.
SIZE(OUTPUT_ROWS, smaller(E, (TILE_PIXELS + F - 2) / F + 1));
DIVISOR(INPUT_ROWS, (OUTPUT_ROWS - 1) * U + PATCH_ROWS);

DIVISOR(IMAGE_TILES, FILTER_TILES * PIXEL_TILES);
// Elements of the split-K arrays for one image; one where a tile has one block or one cluster.
SIZE(PARTIAL_SUMS, SPLIT_BLOCKS > 1 && CLUSTER == 1 ? IMAGE_TILES * SPLIT_BLOCKS * TILE_ELEMENTS : 1);
SIZE(ARRIVAL_COUNTERS, SPLIT_BLOCKS > 1 && CLUSTER == 1 ? IMAGE_TILES * WARPS : 1);

using Accumulators = float[FRAGMENTS_DOWN][FRAGMENTS_ACROSS][4];

// Words of a K tile's inputs in shared memory, and of the filters of a step.
template <class Layout, class Arithmetic>
struct Sizes {
    MEMBER_SIZE(STEPS, divide_up(OF(Layout, WORDS), MMA_WORDS));
    MEMBER_SIZE(INPUTS, divide_up(OF(Layout, INPUT_WORDS), LANE_WORDS) * LANE_WORDS);
    static constexpr int FILTERS = TILE_FRAGMENTS * Arithmetic::TERMS * FRAGMENT, WARP_FILTERS = FILTERS / WARPS_DOWN;
    // Groups of copies issued after a K tile's.
    MEMBER_SIZE(LATER_COPIES, smaller(STAGES - 1, OF(Sizes, STEPS) / WARPS_ALONG));
    // Where the parts of shared memory begin.
    MEMBER_SIZE(TAP_OFFSETS, BUFFERS * OF(Sizes, INPUTS));
    MEMBER_SIZE(FILTER_STAGES, OF(Sizes, TAP_OFFSETS) + OF(Sizes, STEPS) * MMA_WORDS);
    MEMBER_SIZE(PIXEL_FLAGS, OF(Sizes, FILTER_STAGES) + WARPS * STAGES * WARP_FILTERS);
    MEMBER_SIZE(MAINLOOP_WORDS, OF(Sizes, PIXEL_FLAGS) + OF(Layout, FLAGS));
    static constexpr int EPILOGUE_WORDS = WARPS_ALONG * Layout::TILE_WORDS;  // reuses the mainloop's memory
    MEMBER_SIZE(FILTER_FACTORS, larger(OF(Sizes, MAINLOOP_WORDS), EPILOGUE_WORDS));
    MEMBER_SIZE(CLUSTER_SUMS, divide_up(OF(Sizes, FILTER_FACTORS) + Layout::FACTORS, LANE_WORDS) * LANE_WORDS);
    MEMBER_SIZE(SHARED_BYTES,
                (CLUSTER > 1 ? OF(Sizes, CLUSTER_SUMS) + CLUSTER_WORDS : OF(Sizes, FILTER_FACTORS) + Layout::FACTORS) *
                    sizeof(unsigned));
    MEMBER_SIZE(FRAGMENT_WORDS, FILTER_TILES * K_TILES * OF(Sizes, STEPS) * FILTERS);  // of all filters
};

// The image, group, first pixel and first filter of a block's tile, and the block's split-K slice: its range of K tiles.
// Channels and filters are counted from the group's first.
struct SplitKSlice {
    int tile, split, n, pixel, filter_tile, first_k_tile, end_k_tile, group;

    __device__ __forceinline__ SplitKSlice()
    {
        split = blockIdx.x % SPLIT_BLOCKS;
        tile = blockIdx.x / SPLIT_BLOCKS;
        filter_tile = tile % FILTER_TILES;
        group = GROUPS == 1 ? 0 : filter_tile / GROUP_TILES;
        pixel = tile / FILTER_TILES % PIXEL_TILES * TILE_PIXELS;
        n = tile / IMAGE_TILES;
        first_k_tile = split * K_TILES / SPLIT_BLOCKS;
        end_k_tile = (split + 1) * K_TILES / SPLIT_BLOCKS;
    }

    __device__ __forceinline__ int filter() const { return (filter_tile - group * GROUP_TILES) * TILE_FILTERS; }
};

// Writes the filters as fragments, zeros beyond the last filter or word of K.  A thread writes one word:
// make(m, k_tile, k, term).
template <class Layout, class Arithmetic, class Make>
__device__ __forceinline__ void prepare_fragments(unsigned* __restrict__ fragments, Make make)
// fragments [FILTER_TILES][K_TILES][STEPS][TILE_FRAGMENTS][TERMS][WARP][LANE_WORDS]
{
    constexpr int TERMS = Arithmetic::TERMS;
    using Sizes = Sizes<Layout, Arithmetic>;
    SHAPE_CONST int STEPS = OF(Sizes, STEPS);
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= OF(Sizes, FRAGMENT_WORDS)) return;
    const int word = index % LANE_WORDS, lane = index / LANE_WORDS % WARP;
    int fragment = index / FRAGMENT;
    const int term = fragment % TERMS;
    fragment /= TERMS;
    const int down = fragment % TILE_FRAGMENTS, step = fragment / TILE_FRAGMENTS % STEPS;
    const int k_tile = fragment / (TILE_FRAGMENTS * STEPS) % K_TILES;
    const int filter_tile = fragment / (TILE_FRAGMENTS * STEPS * K_TILES);
    const int group = GROUPS == 1 ? 0 : filter_tile / GROUP_TILES;
    const int first = (filter_tile - group * GROUP_TILES) * TILE_FILTERS;
    const int m = first + down * FRAGMENT_ROWS + lane / 4 + word % 2 * 8;
    const int k = step * MMA_WORDS + lane % 4 + word / 2 * 4;
    fragments[index] = m < GROUP_M && k < OF(Layout, WORDS) ? make(group * GROUP_M + m, k_tile, k, term) : 0;
}

// A warp's first step; its steps are WARPS_ALONG apart.
__device__ __forceinline__ int first_step()
{
    return threadIdx.x / (WARP * WARPS_DOWN);
}

// A lane's cp.async pipeline of filter fragments: STAGES steps of its warp.
template <class Sizes>
struct FilterPipeline {
    unsigned* stages;      // in shared memory: this lane's words of the first stage
    const unsigned* next;  // this lane's words of the step that is copied next
    int steps, stage;      // steps still to be copied; the stage that is read next

    __device__ __forceinline__ FilterPipeline(unsigned* shared, const unsigned* fragments, const SplitKSlice& slice)
    {
        const int warp = threadIdx.x / WARP, lane_word = threadIdx.x % WARP * LANE_WORDS;
        stages = shared + warp * STAGES * Sizes::WARP_FILTERS + lane_word;
        const int first = (slice.filter_tile * K_TILES + slice.first_k_tile) * OF(Sizes, STEPS) + first_step();
        next = fragments + (size_t)first * Sizes::FILTERS + warp % WARPS_DOWN * Sizes::WARP_FILTERS + lane_word;
        steps = ((slice.end_k_tile - slice.first_k_tile) * OF(Sizes, STEPS) - first_step() + WARPS_ALONG - 1) / WARPS_ALONG;
        stage = 0;
    }

    // Issues the copies of the next step, if there is one, as a group.
    __device__ __forceinline__ void issue(int to)
    {
        if (steps > 0)
#pragma unroll
            for (int i = 0; i < Sizes::WARP_FILTERS; i += FRAGMENT)
                copy_async_16(stages + to * Sizes::WARP_FILTERS + i, next + i, true);
        copy_async_commit_group();
        next += WARPS_ALONG * Sizes::FILTERS;
        --steps;
    }

    // Waits for the copies of the next step to read.
    __device__ __forceinline__ const unsigned* wait()
    {
        copy_async_wait_group<STAGES - 2>();
        return stages + stage * Sizes::WARP_FILTERS;
    }

    // Refills the stage before the one just read, and advances to the next.
    __device__ __forceinline__ void advance()
    {
        issue(stage == 0 ? STAGES - 1 : stage - 1);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
};

// A lane's operands of a step, in registers.
template <int terms>
struct Fragments {
    unsigned filters[terms][FRAGMENTS_DOWN][4], inputs[terms][FRAGMENTS_ACROSS][2];

    // With `masked`, the inputs of a tap whose offset is negative are zero.
    template <bool masked>
    __device__ __forceinline__ void load(const unsigned* fragments, const unsigned* k_tile, int2 tap, const int* pixels)
    {
#pragma unroll
        for (int i = 0; i < FRAGMENTS_DOWN * terms; ++i) {
            const uint4 words = *reinterpret_cast<const uint4*>(fragments + i * FRAGMENT);
            unsigned(&to)[4] = filters[i % terms][i / terms];
            to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
        }
        const char* const inputs_at = reinterpret_cast<const char*>(k_tile);
        const char *const first = inputs_at + tap.x, *const second = inputs_at + tap.y;
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j) {
            load_input(j, 0, first + pixels[j], !masked || tap.x >= 0);
            load_input(j, 1, second + pixels[j], !masked || tap.y >= 0);
        }
    }

    __device__ __forceinline__ void load_input(int column, int word, const char* at, bool there)
    {
        if constexpr (terms == 1) {
            inputs[0][column][word] = there ? *reinterpret_cast<const unsigned*>(at) : 0;
        } else {
            const uint2 both = *reinterpret_cast<const uint2*>(at);
            inputs[0][column][word] = both.x, inputs[1][column][word] = both.y;
        }
    }
};

__device__ __forceinline__ void add(float4& sum, const float4& more)
{
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
}

// The first output of a thread's vector; a tile's outputs are numbered in memory order.
__device__ __forceinline__ int vector_start(int vector)
{
    return (threadIdx.x + vector * THREADS) * VECTOR;
}

// Whether that vector of the thread lies in the tile.
__device__ __forceinline__ bool has_vector(int vector)
{
    return TILE_ELEMENTS % (THREADS * VECTOR) == 0 || vector_start(vector) < TILE_ELEMENTS;
}

// Likewise of a vector of the thread in the share of the block of this rank.
__device__ __forceinline__ int share_start(int vector, int rank)
{
    return (rank * BLOCK_SHARE + threadIdx.x + vector * THREADS) * VECTOR;
}

__device__ __forceinline__ bool in_share(int vector)
{
    return BLOCK_SHARE % THREADS == 0 || (int)threadIdx.x + vector * THREADS < BLOCK_SHARE;
}

// Adds the warps' accumulators through shared memory; every thread gets some vectors of the tile.
template <class Layout>
__device__ __forceinline__ void add_warps(float4 (&outputs)[THREAD_VECTORS], const Accumulators& accumulators,
                                          float* shared)  // [WARPS_ALONG][Layout::TILE_WORDS]
{
    const int first_filter = threadIdx.x / WARP % WARPS_DOWN * FRAGMENTS_DOWN * FRAGMENT_ROWS + threadIdx.x % WARP / 4;
    const int first_pixel = threadIdx.x % 4 * 2;
    float* const own = shared + first_step() * Layout::TILE_WORDS;
#pragma unroll
    for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                Layout::put_neighbours(own, first_filter + i * FRAGMENT_ROWS + half * 8,
                                      first_pixel + j * FRAGMENT_COLUMNS,
                                      make_float2(accumulators[i][j][2 * half], accumulators[i][j][2 * half + 1]));
    __syncthreads();  // all warps have written their sums before any thread reads them
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i) {
        outputs[i] = make_float4(0, 0, 0, 0);
        if (!has_vector(i)) continue;
        const int output = vector_start(i);
        const float* from = shared + Layout::shared_place(Layout::filter_of(output), Layout::pixel_of(output));
#pragma unroll
        for (int other = 0; other < WARPS_ALONG; ++other)
            add(outputs[i], *reinterpret_cast<const float4*>(from + other * Layout::TILE_WORDS));
    }
}

// The split-K reduction: adds the blocks' sums of a tile, each warp those of its part.  True in the warp that arrives
// last, whose lanes then hold the complete sums.
//
// Before a launch a counter is SPLIT_BLOCKS - 1 or more: all ones at first, as scratch arrays are filled with 0xFF,
// then what the previous launch left.  The increment wraps to zero there, so the last warp to arrive finds
// SPLIT_BLOCKS - 2 and leaves SPLIT_BLOCKS - 1.
__device__ __forceinline__ bool add_blocks(float4 (&outputs)[THREAD_VECTORS], const SplitKSlice& slice,
                                           float* partial,     // [tiles][SPLIT_BLOCKS][TILE_ELEMENTS]
                                           unsigned* arrived)  // [tiles][WARPS]
{
    constexpr unsigned ALL_LANES = 0xffffffff;
    partial += (size_t)slice.tile * SPLIT_BLOCKS * TILE_ELEMENTS;
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i)
        if (has_vector(i))
            *reinterpret_cast<float4*>(partial + slice.split * TILE_ELEMENTS + vector_start(i)) = outputs[i];
    __syncwarp();  // all lanes have stored their sums before the warp counts as arrived
    unsigned before = 0;
    if (threadIdx.x % WARP == 0)
        before = atomic_inc_acq_rel(arrived + slice.tile * WARPS + threadIdx.x / WARP, SPLIT_BLOCKS - 1);
    before = __shfl_sync(ALL_LANES, before, 0);
    if (before != SPLIT_BLOCKS - 2u) return false;
    __syncwarp();  // the other blocks' sums, which lane 0 has observed, are visible to all lanes
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i) outputs[i] = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int split = 0; split < SPLIT_BLOCKS; ++split)
#pragma unroll
        for (int i = 0; i < THREAD_VECTORS; ++i)
            if (has_vector(i))
                add(outputs[i],
                    __ldcg(reinterpret_cast<const float4*>(partial + split * TILE_ELEMENTS + vector_start(i))));
    return true;
}

// The same reduction through the shared memory of a cluster: each block gets all blocks' sums of its share of the tile.
struct ClusterSums {
    Mbarrier* arrived;  // counts the sums' bytes
    float4* sums;       // [CLUSTER][BLOCK_SHARE]
    int rank;

    __device__ __forceinline__ ClusterSums(unsigned* shared, int rank)
        : arrived(reinterpret_cast<Mbarrier*>(shared)), sums(reinterpret_cast<float4*>(shared + LANE_WORDS)), rank(rank)
    {
    }

    // Before other blocks send sums.
    __device__ __forceinline__ void begin() const
    {
        if (threadIdx.x == 0) {
            mbarrier_init(arrived, 1);
            cluster_init_fence();
            mbarrier_arrive_expect_tx(arrived, TILE_ELEMENTS * sizeof(float));
        }
        cluster_arrive();
    }

    // Sends the thread's vectors of the tile to the blocks that have them in their shares.
    __device__ __forceinline__ void send(const float4 (&outputs)[THREAD_VECTORS]) const
    {
        cluster_wait();  // the other blocks' mbarriers are initialised before any thread sends to them
#pragma unroll
        for (int i = 0; i < THREAD_VECTORS; ++i) {
            if (!has_vector(i)) continue;
            const int vector = vector_start(i) / VECTOR, to = vector / BLOCK_SHARE;
            store_to_block(sums + sender(rank, to) * BLOCK_SHARE + vector % BLOCK_SHARE, outputs[i], arrived, to);
        }
    }

    // Adds what has arrived, in the order of the blocks.  A block may end then: nothing comes any more.
    __device__ __forceinline__ void add_all(float4 (&outputs)[THREAD_SHARE]) const
    {
        mbarrier_wait(arrived, 0);  // all sums of the share have arrived
#pragma unroll
        for (int i = 0; i < THREAD_SHARE; ++i) {
            outputs[i] = make_float4(0, 0, 0, 0);
            if (in_share(i))
#pragma unroll
                for (int split = 0; split < CLUSTER; ++split)
                    add(outputs[i], sums[split * BLOCK_SHARE + threadIdx.x + i * THREADS]);
        }
    }
};

// Waits until all but LATER_COPIES groups of copies have arrived.
template <class Sizes>
__device__ __forceinline__ void wait_for_inputs()
{
#ifdef DYNAMIC_SHAPE
    copy_async_wait_all_but<STAGES - 1>(OF(Sizes, LATER_COPIES));
#else
    copy_async_wait_group<Sizes::LATER_COPIES>();
#endif
}

// Inputs that need no scaling, copied asynchronously.
struct Unscaled {
    // Issues the copies of a K tile.
    template <class Layout>
    __device__ __forceinline__ void begin(unsigned* inputs, const typename Layout::Value* x, int first_row, int k_tile)
    {
        Layout::copy(inputs, x, first_row, k_tile);
        copy_async_commit_group();
    }

    // Waits for a K tile and ends with a barrier; returns the factor to multiply the accumulators by.  At least
    // LATER_COPIES groups of copies have been issued after the K tile's, unless it is the first.
    template <class Layout, class Sizes>
    __device__ __forceinline__ float complete(unsigned* inputs, unsigned*, const typename Layout::Value*, int, int,
                                              bool first)
    {
        if (first)
            copy_async_wait_group<0>();
        else
            wait_for_inputs<Sizes>();
        Layout::round(inputs);
        __syncthreads();  // all inputs of the K tile are in place, and no thread still reads the previous one
        return 1;
    }

    __device__ __forceinline__ void prepare(const SplitKSlice&) const {}
    __device__ __forceinline__ void write_factors(float*) const {}

    // Whether inputs exceeded the operands' range: floats do not.  Also a barrier.
    template <class Layout>
    __device__ __forceinline__ bool beyond(const unsigned*, int) const
    {
        __syncthreads();
        return false;
    }

    // Removes the scaling from sums: there is none.
    template <class Layout>
    __device__ __forceinline__ void outside(float4 (&)[THREAD_VECTORS], const float*, const SplitKSlice&, bool,
                                            const typename Layout::Value*) const
    {
    }
};

__device__ __forceinline__ void scale(Accumulators& accumulators, float factor)
{
#pragma unroll
    for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int k = 0; k < 4; ++k) accumulators[i][j][k] *= factor;
}

// One fp16 term per operand.
struct Fp16 {
    static constexpr int TERMS = 1;

    static __device__ __forceinline__ void multiply_add(Accumulators& accumulators, const Fragments<1>& operands)
    {
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
                warp_mma_fp16(accumulators[i][j], operands.filters[0][i], operands.inputs[0][j]);
    }
};

// The whole kernel: prologue, mainloop over the block's K tiles, epilogue.
template <class Layout, class Arithmetic, class Range>
__device__ __forceinline__ void compute_tile(const typename Layout::Value* __restrict__ x,  // in the layout's order
                                             const unsigned* __restrict__ fragments,        // from prepare_fragments
                                             // [tiles][SPLIT_BLOCKS][TILE_ELEMENTS]:
                                             float* partial,
                                             unsigned* arrived,                             // [tiles][WARPS]
                                             typename Layout::Value* __restrict__ y,        // in the layout's order
                                             Range range,
                                             const Addends<typename Layout::Value>& added)
{
    using Sizes = Sizes<Layout, Arithmetic>;
    DYNAMIC_SHARED(uint4, memory);  // inputs [BUFFERS][INPUTS], tap offsets, filters; in the epilogue the warps' sums
    unsigned* const inputs = reinterpret_cast<unsigned*>(memory);
    int2* const taps = reinterpret_cast<int2*>(inputs + OF(Sizes, TAP_OFFSETS));  // [STEPS][4]: of words k and k + 4
    // Filters are zero beyond the last word of K; so are inputs that may be infinite: zero times infinity is NaN.
#ifdef DYNAMIC_SHAPE
    constexpr bool MASKED = Layout::CARRIES_INFINITY;
#else
    constexpr bool MASKED = Layout::CARRIES_INFINITY && Layout::WORDS % MMA_WORDS != 0;
#endif
    constexpr int BEYOND = MASKED ? -1 : 0;
    allow_dependent_launch();
    const SplitKSlice slice;
    const ClusterSums cluster_sums(inputs + OF(Sizes, CLUSTER_SUMS), slice.split);
    if constexpr (CLUSTER > 1) cluster_sums.begin();
    FilterPipeline<Sizes> pipeline(inputs + OF(Sizes, FILTER_STAGES), fragments, slice);

    // Prologue: the first filters are in flight, offsets of taps and pixels computed, the first inputs issued.
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) pipeline.issue(i);
    constexpr int BYTES = sizeof(unsigned);  // from a word of the inputs to the next
#pragma unroll 1
    for (int i = threadIdx.x; i < OF(Sizes, STEPS) * 4; i += THREADS) {
        const int k = i / 4 * MMA_WORDS + i % 4;
        taps[i] = make_int2(k < OF(Layout, WORDS) ? Layout::word(k) * BYTES : BEYOND,
                            k + 4 < OF(Layout, WORDS) ? Layout::word(k + 4) * BYTES : BEYOND);
    }
    int pixels[FRAGMENTS_ACROSS];  // offsets of this lane's column in every fragment, clamped to the last pixel
#pragma unroll
    for (int j = 0; j < FRAGMENTS_ACROSS; ++j) {
        const int pixel = min(slice.pixel + j * FRAGMENT_COLUMNS + (int)threadIdx.x % WARP / 4, PIXELS - 1);
        pixels[j] = Layout::pixel(pixel / F - slice.pixel / F, pixel % F) * BYTES;
    }
    unsigned* const flags = inputs + OF(Sizes, PIXEL_FLAGS);
    float* const factors = reinterpret_cast<float*>(inputs + OF(Sizes, FILTER_FACTORS));
    range.prepare(slice);
    for (int i = threadIdx.x; i < OF(Layout, FLAGS); i += THREADS) flags[i] = 0;  // set after the first K tile's barrier
    const int first_row = slice.pixel / F * U;
    x += (size_t)slice.n * C * H * W + slice.group * GROUP_C * OF(Layout, NEXT_CHANNEL);
    wait_for_primary_launches();  // which may write x, and still use partial and y
    range.template begin<Layout>(inputs, x, first_row, slice.first_k_tile);

    // Mainloop: a K tile's inputs, then this warp's steps of the K tile.
    Accumulators accumulators = {};
    int step = first_step();
    for (int k_tile = slice.first_k_tile; k_tile < slice.end_k_tile; ++k_tile, step -= OF(Sizes, STEPS)) {
        unsigned* const buffer = inputs + (k_tile - slice.first_k_tile) % BUFFERS * OF(Sizes, INPUTS);
        const bool first = k_tile == slice.first_k_tile;
        const float factor =
            range.template complete<Layout, Sizes>(buffer, flags, x, first_row, k_tile, first);
        if (factor != 1) scale(accumulators, factor);
        if (BUFFERS > 1 && k_tile + 1 < slice.end_k_tile) {
            unsigned* const other = inputs + (k_tile + 1 - slice.first_k_tile) % BUFFERS * OF(Sizes, INPUTS);
            range.template begin<Layout>(other, x, first_row, k_tile + 1);
        }
        for (; step < OF(Sizes, STEPS); step += WARPS_ALONG) {
            Fragments<Arithmetic::TERMS> operands;
            operands.template load<MASKED>(pipeline.wait(), buffer, taps[step * 4 + threadIdx.x % 4], pixels);
            pipeline.advance();
            Arithmetic::multiply_add(accumulators, operands);
        }
    }

    // Epilogue: the warps' sums are added, then the blocks' (split-K), and the tile is stored.
    copy_async_wait_group<0>();
    // No thread still reads inputs or filters, which the warps' sums now overwrite.
    const bool beyond = range.template beyond<Layout>(flags, first_row);
    range.write_factors(factors);  // read after the next barrier
    float4 outputs[THREAD_VECTORS];
    add_warps<Layout>(outputs, accumulators, reinterpret_cast<float*>(memory));
    range.template outside<Layout>(outputs, factors, slice, beyond, x);
    const auto store = [&](int output, const float4& sums) {
        const int m = slice.filter() + Layout::filter_of(output);
        Layout::store(y, slice.n, slice.group, m, slice.pixel + Layout::pixel_of(output), sums, added);
    };
    if constexpr (CLUSTER > 1) {
        cluster_sums.send(outputs);
        float4 shares[THREAD_SHARE];
        cluster_sums.add_all(shares);
#pragma unroll
        for (int i = 0; i < THREAD_SHARE; ++i)
            if (in_share(i)) store(share_start(i, slice.split), shares[i]);
    } else {
        IF_SHAPE (SPLIT_BLOCKS > 1)
            if (!add_blocks(outputs, slice, partial, arrived)) return;
#pragma unroll
        for (int i = 0; i < THREAD_VECTORS; ++i)
            if (has_vector(i)) store(vector_start(i), outputs[i]);
    }
}
