// persistent: a network of convolutions, poolings and linear layers as one kernel, for one image.
//
// Technique: persistent cooperative kernel; split-K over the warps of a block; weights streamed ahead by the TMA into a
// ring of each warp; arrival counters in memory between stages; mma.sync on fragments stored in order.
// Read next: stages/network.cuh, stages/weight_stream.cuh.
// Run: alexconv run --network alexnet-torchvision --precision fp16 --schedule persistent --N 1
//
// Parent: a kernel for each stage.  With one image a stage takes a few microseconds, of which most are latencies: of
// the launch, of weights from memory, of the last block.  Here blocks stay, one on each multiprocessor, and a stage
// begins when a counter says that the tiles of the one before are complete.  Weights wait for nothing: they arrive
// while earlier stages run, and the memory, which the linear layers keep busy alone, has no pause between them.
//
// A linear layer is a convolution of one pixel, and pooling is part of the epilogue: a tile has all outputs under its
// windows, those at its border computed twice.  Each of a block's warps multiplies a part of the depth; their sums are
// added in order, so results do not depend on timing.  No block waits before all of its work on earlier stages is
// complete, and all blocks are resident (a cooperative launch), so none waits for ever.
//
// A block computes every gridDim.x-th tile of each stage, a warp a WARPS-th of the depth, in the first stage some
// pixels.
#include "../arch/ampere.cuh"
#include "../arch/resident_blocks.cuh"
#include "values.cuh"
#include "weight_stream.cuh"

constexpr int LANES_OF_PIXEL = 4;                              // of a product
constexpr int FLOATS = 4, TILE_FLOATS = FLOATS * WARP;         // sums of a lane, of a product
constexpr int AT_ONCE = THREADS / TILE_FLOATS;                 // products whose sums are added at once, one a thread
constexpr int PARTIAL_BYTES = WARPS * THREADS * int(sizeof(float));
constexpr int RING_BYTES = WARPS * SLOTS * SLOT_BYTES;
constexpr int BARRIER_BYTES = quotient_up(WARPS * SLOTS * int(sizeof(Mbarrier)), 128) * 128;
constexpr int LINE = 128;                                      // bytes of a cache line

// Where a fragment's sum `i` of a lane lies: its filter and its pixel.
__device__ __forceinline__ int filter_of(int lane, int i)
{
    return lane / LANES_OF_PIXEL + i / 2 * 8;
}
__device__ __forceinline__ int pixel_of(int lane, int i)
{
    return lane % LANES_OF_PIXEL * 2 + i % 2;
}

// The biases of a lane's two filters in each ROWS of a tile's; loaded before they are asked for.
template <int s>
struct Biases {
    static constexpr Stage OF = STAGES[s];
    float of[OF.FILTER_ROWS][2];

    __device__ __forceinline__ Biases(const Half* __restrict__ biases, int filter)  // of all stages; the tile's first
    {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < OF.FILTER_ROWS * 2; ++i) {
            const int m = filter + i / 2 * ROWS + filter_of(lane, i % 2 * 2);
            of[i / 2][i % 2] = float(biases[OF.BIASES + min(m, OF.M - 1)]);
        }
    }
};

// Bias and ReLU of a stage's sum.
template <int s>
__device__ __forceinline__ Half activated(float sum, float bias)
{
    sum += bias;
    return Half(STAGES[s].RELU && sum < 0 ? 0.0f : sum);
}

// The largest value of each window, of a tile in shared memory.
template <int s>
__device__ __forceinline__ void store_pooled(const Tiling<s>& tile, const Half* outputs,  // [pixels][TILE_FILTERS]
                                             Half* y)                                     // [POOLED_E][POOLED_F][M]
{
    using Tiles = Tiling<s>;
    constexpr Stage OF = STAGES[s];
    constexpr int WIDTH = Tiles::WIDTH, FILTERS = Tiles::TILE_FILTERS;
    for (int i = threadIdx.x; i < OF.ACROSS * OF.DOWN * FILTERS; i += THREADS) {
        const int filter = i % FILTERS, across = i / FILTERS % OF.ACROSS, down = i / FILTERS / OF.ACROSS;
        const Half* const window = outputs + (down * OF.STRIDE * WIDTH + across * OF.STRIDE) * FILTERS + filter;
        float largest = float(window[0]);
#pragma unroll
        for (int tap = 1; tap < OF.POOL * OF.POOL; ++tap)
            largest = max_nan(largest, float(window[(tap / OF.POOL * WIDTH + tap % OF.POOL) * FILTERS]));
        const int e = tile.pooled_row() + down, f = tile.pooled_column() + across, m = tile.filter + filter;
        if (e < OF.POOLED_E && f < OF.POOLED_F && m < OF.M) y[(e * OF.POOLED_F + f) * OF.M + m] = Half(largest);
    }
}

// ---- The first stage: few channels, rows of the image in shared memory ----------------------------------------------

template <int s>
struct FewChannels {
    using Tiles = Tiling<s>;
    static constexpr Stage OF = STAGES[s];
    static constexpr int QUAD = 4, QUADS = quotient_up(OF.S * OF.C, QUAD);  // values of a lane; of a filter's row
    static constexpr int STEPS = quotient_up(OF.R * QUADS, LANES_OF_PIXEL);
    static constexpr int IN_ROWS = (Tiles::HEIGHT - 1) * OF.U + OF.R;
    static constexpr int PITCH = quotient_up(((OF.F - 1) * OF.U) * OF.C + QUADS * QUAD, QUAD) * QUAD;
    static constexpr int IMAGE_BYTES = quotient_up(IN_ROWS * PITCH * int(sizeof(Half)), LINE) * LINE;
    static constexpr int FRAGMENTS = STEPS * OF.FILTER_ROWS * WARP;  // vectors of a tile's filters
    static constexpr int SHARE = quotient_up(OF.PIXEL_GROUPS, WARPS), TOGETHER = SHARE < 4 ? SHARE : 4;  // of a warp
    static_assert(Tiles::POOLS && Tiles::TILES_ACROSS == 1, "a tile has whole rows");
    static_assert(OF.U * OF.C % QUAD == 0 && OF.W * OF.C % QUAD == 0, "rows and windows are quads");

    static __device__ __forceinline__ void load_rows(const Tiles& tile, const Half* __restrict__ x,  // [H][W][C]
                                                     Half* image)  // [IN_ROWS][PITCH]
    {
        constexpr int ROW_QUADS = OF.W * OF.C / QUAD, BEFORE = OF.LEFT * OF.C, AT_ONCE = 8;
        const int first = tile.pooled_row() * OF.STRIDE * OF.U - OF.TOP;
#pragma unroll 1
        for (int begin = threadIdx.x; begin < IN_ROWS * ROW_QUADS; begin += AT_ONCE * THREADS) {
            uint2 values[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                const int i = begin + k * THREADS, h = first + i / ROW_QUADS;
                values[k] = make_uint2(0, 0);
                if (h >= 0 && h < OF.H && i < IN_ROWS * ROW_QUADS)
                    values[k] =
                        *reinterpret_cast<const uint2*>(x + ((size_t)h * OF.W * OF.C + i % ROW_QUADS * QUAD));
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                const int i = begin + k * THREADS, at = BEFORE + i % ROW_QUADS * QUAD;
                if (i >= IN_ROWS * ROW_QUADS) break;
                Half parts[QUAD];
                memcpy(parts, &values[k], sizeof values[k]);
#pragma unroll
                for (int j = 0; j < QUAD; ++j)
                    if (at + j < PITCH) image[i / ROW_QUADS * PITCH + at + j] = parts[j];
            }
        }
        constexpr int AFTER = BEFORE + OF.W * OF.C < PITCH ? PITCH - BEFORE - OF.W * OF.C : 0;
        for (int i = threadIdx.x; i < IN_ROWS * (BEFORE + AFTER); i += THREADS) {
            const int row = i / (BEFORE + AFTER), j = i % (BEFORE + AFTER);
            image[row * PITCH + (j < BEFORE ? j : PITCH - AFTER + j - BEFORE)] = Half(0.0f);
        }
    }

    // The network's first loads: the weights of later stages, which fill the memory's queues, are to come after them.
    static __device__ __forceinline__ void run(const Half* __restrict__ x,        // [H][W][C]
                                               const char* __restrict__ weights,  // of all stages
                                               const Half* __restrict__ biases,   // likewise
                                               Half* y,                           // [POOLED_E][POOLED_F][M]
                                               Stream& stream, char* work)
    {
        uint4* const fragments = reinterpret_cast<uint4*>(work);  // [STEPS][FILTER_ROWS][WARP]
        work += FRAGMENTS * sizeof(uint4);
        Half* const image = reinterpret_cast<Half*>(work);                  // [IN_ROWS][PITCH]
        Half* const outputs = reinterpret_cast<Half*>(work + IMAGE_BYTES);  // [TILE_PIXELS][TILE_FILTERS]
        for (int number = blockIdx.x; number < Tiles::TILES; number += gridDim.x) {
            const Tiles tile(number);
            const Biases<s> bias(biases, tile.filter);
            const uint4* const filters =
                reinterpret_cast<const uint4*>(weights) + OF.WEIGHTS + tile.filter / ROWS * STEPS * WARP;
            for (int i = threadIdx.x; i < FRAGMENTS; i += THREADS) copy_async_16(fragments + i, filters + i, true);
            copy_async_commit_group();
            load_rows(tile, x, image);
            copy_async_wait_group<0>();
            __syncthreads();  // the rows are in `image`, the filters in `fragments`
            if (number == blockIdx.x) stream.begin();
            for (int first = threadIdx.x / WARP; first < OF.PIXEL_GROUPS; first += WARPS * TOGETHER)
                multiply(first, image, fragments, bias, outputs);
            __syncthreads();  // the tile is in `outputs`
            store_pooled<s>(tile, outputs, y);
        }
        if (blockIdx.x >= Tiles::TILES) stream.begin();
    }

    // Outputs of TOGETHER groups of pixels, WARPS apart.
    static __device__ __forceinline__ void multiply(int first, const Half* image, const uint4* fragments,
                                                    const Biases<s>& bias, Half* outputs)
    {
        const int lane = threadIdx.x % WARP, t = lane % LANES_OF_PIXEL;
        const Half* windows[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) {
            const int n = min((first + k * WARPS) * PIXELS + lane / LANES_OF_PIXEL, Tiles::WIDTH * Tiles::HEIGHT - 1);
            windows[k] = image + n / Tiles::WIDTH * OF.U * PITCH + n % Tiles::WIDTH * OF.U * OF.C;
        }
        float sums[TOGETHER][OF.FILTER_ROWS][FLOATS] = {};
#pragma unroll 5
        for (int step = 0; step < STEPS; ++step) {
            const int q = step * LANES_OF_PIXEL + t, row = q / QUADS, quad = q % QUADS;
            unsigned inputs[TOGETHER][2];
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
                uint2 b = make_uint2(0, 0);
                if (row < OF.R) b = *reinterpret_cast<const uint2*>(windows[k] + row * PITCH + quad * QUAD);
                // Beyond the window other pixels follow, which may be infinite.
                constexpr int REST = OF.S * OF.C % QUAD;
                if (REST && quad == QUADS - 1) {
                    b.x &= REST == 1 ? 0xffffu : 0xffffffffu;
                    b.y &= REST < 3 ? 0u : 0xffffu;
                }
                inputs[k][0] = b.x;
                inputs[k][1] = b.y;
            }
#pragma unroll
            for (int i = 0; i < OF.FILTER_ROWS; ++i) {
                const uint4 a = fragments[(step * OF.FILTER_ROWS + i) * WARP + lane];
                const unsigned words[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
                for (int k = 0; k < TOGETHER; ++k) warp_mma_fp16(sums[k][i], words, inputs[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) {
            const int group = first + k * WARPS;
            if (group >= OF.PIXEL_GROUPS) break;
#pragma unroll
            for (int i = 0; i < OF.FILTER_ROWS * FLOATS; ++i) {
                const int row = i / FLOATS, filter = row * ROWS + filter_of(lane, i % FLOATS);
                outputs[(group * PIXELS + pixel_of(lane, i % FLOATS)) * Tiles::TILE_FILTERS + filter] =
                    activated<s>(sums[k][row][i % FLOATS], bias.of[row][i % FLOATS / 2]);
            }
        }
    }
};

// ---- The other stages -----------------------------------------------------------------------------------------------

template <int s>
struct Products {
    using Tiles = Tiling<s>;
    static constexpr Stage OF = STAGES[s];
    static constexpr int STEPS = steps_of(s), CHANNEL_STEPS = OF.C / DEPTH, GROUPS = OF.PIXEL_GROUPS;
    static constexpr int STEPS_OF_SLOT = SLOT_BYTES / (OF.FILTER_ROWS * FRAGMENT_BYTES);
    static constexpr int ALL = OF.FILTER_ROWS * GROUPS;  // products of a step
    static_assert(STEPS_OF_SLOT >= 1, "a slot has whole steps");

    // The patch of the input under a tile.  A pixel's channels are padded, for neighbours in different banks.
    static constexpr int COLUMNS = (Tiles::OUT_COLUMNS - 1) * OF.U + OF.S, PITCH = OF.C + DEPTH;
    static constexpr int PATCH_PIXELS = ((Tiles::OUT_ROWS - 1) * OF.U + OF.R) * COLUMNS;
    static constexpr int VECTOR = 8, VECTORS = OF.C / VECTOR, PATCH_VECTORS = PATCH_PIXELS * VECTORS;
    static constexpr int ROUNDS = quotient_up(PATCH_VECTORS, THREADS), LOADED = ROUNDS < 8 ? ROUNDS : 8;  // at once
    static constexpr int PATCH_BYTES = quotient_up(PATCH_PIXELS * PITCH * int(sizeof(Half)), LINE) * LINE;
    static constexpr int OUTPUTS_AT = PATCH_BYTES > PARTIAL_BYTES ? PATCH_BYTES : PARTIAL_BYTES;

    static __device__ __forceinline__ void load_patch(const Tiles& tile, const Half* x,  // [H][W][C]
                                                      Half* patch)  // [PATCH_PIXELS][PITCH]
    {
        const int top = tile.first_row() * OF.U - OF.TOP, left = tile.first_column() * OF.U - OF.LEFT;
#pragma unroll 1
        for (int begin = threadIdx.x; begin < PATCH_VECTORS; begin += LOADED * THREADS) {
            uint4 values[LOADED];
#pragma unroll
            for (int k = 0; k < LOADED; ++k) {
                const int i = begin + k * THREADS, n = i / VECTORS;
                const int h = top + n / COLUMNS, w = left + n % COLUMNS;
                values[k] = make_uint4(0, 0, 0, 0);
                if (i < PATCH_VECTORS && h >= 0 && h < OF.H && w >= 0 && w < OF.W)
                    values[k] =
                        *reinterpret_cast<const uint4*>(x + ((h * OF.W + w) * OF.C + i % VECTORS * VECTOR));
            }
#pragma unroll
            for (int k = 0; k < LOADED; ++k) {
                const int i = begin + k * THREADS;
                if (i < PATCH_VECTORS)
                    *reinterpret_cast<uint4*>(patch + (i / VECTORS * PITCH + i % VECTORS * VECTOR)) = values[k];
            }
        }
    }

    // The sums of this warp's steps.  The warps take slots by turns, so that a block reads its weights in sequence.
    static __device__ __forceinline__ void multiply(const Tiles& tile, const Half* patch,  // [PATCH_PIXELS][PITCH]
                                                    Stream& stream, float (&sums)[ALL][FLOATS])
    {
        const int lane = threadIdx.x % WARP;
        const Half* windows[GROUPS];  // of a lane's pixel in each group, 8 channels of its first tap
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            const int2 pixel = tile.nearest(i * PIXELS + lane / LANES_OF_PIXEL);
            const int n = (pixel.x - tile.first_row()) * OF.U * COLUMNS + (pixel.y - tile.first_column()) * OF.U;
            windows[i] = patch + (n * PITCH + lane % LANES_OF_PIXEL * (DEPTH / LANES_OF_PIXEL));
        }
        for (int slot = stream.warp; slot * STEPS_OF_SLOT < STEPS; slot += WARPS) {
            const uint4* const fragments = stream.take() + lane;
#pragma unroll
            for (int i = 0; i < STEPS_OF_SLOT; ++i) {
                const int step = slot * STEPS_OF_SLOT + i, tap = step / CHANNEL_STEPS;
                if (step >= STEPS) break;
                const int at = (tap / OF.S * COLUMNS + tap % OF.S) * PITCH + step % CHANNEL_STEPS * DEPTH;
                uint4 inputs[GROUPS];
#pragma unroll
                for (int j = 0; j < GROUPS; ++j) inputs[j] = *reinterpret_cast<const uint4*>(windows[j] + at);
#pragma unroll
                for (int row = 0; row < OF.FILTER_ROWS; ++row)
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const uint4 a = fragments[((i * OF.FILTER_ROWS + row) * 2 + half) * WARP];
                        const unsigned words[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
                        for (int j = 0; j < GROUPS; ++j) {
                            const uint4& b = inputs[j];
                            const unsigned pair[2] = {half ? b.z : b.x, half ? b.w : b.y};
                            warp_mma_fp16(sums[row * GROUPS + j], words, pair);
                        }
                    }
            }
            stream.give_back();
        }
    }

    static __device__ __forceinline__ void run(const Half* x,                    // [H][W][C]
                                               const Half* __restrict__ biases,  // of all stages
                                               Biases<s> bias,                   // of the block's first tile
                                               Half* y,                          // [POOLED_E][POOLED_F][M]
                                               Stream& stream, char* work)
    {
        Half* const patch = reinterpret_cast<Half*>(work);                 // [PATCH_PIXELS][PITCH], and then
        float* const partial = reinterpret_cast<float*>(work);             // [WARPS][THREADS]
        Half* const outputs = reinterpret_cast<Half*>(work + OUTPUTS_AT);  // [TILE_PIXELS][TILE_FILTERS]
        const int lane = threadIdx.x % WARP, mine = threadIdx.x / TILE_FLOATS, i = threadIdx.x / WARP % FLOATS;
        for (int number = blockIdx.x; number < Tiles::TILES; number += gridDim.x) {
            const Tiles tile(number);
            if (number != blockIdx.x) {
                __syncthreads();  // no thread still reads the sums of the tile before
                bias = Biases<s>(biases, tile.filter);
            }
            load_patch(tile, x, patch);
            __syncthreads();  // the patch is complete
            float sums[ALL][FLOATS] = {};
            multiply(tile, patch, stream, sums);
#pragma unroll
            for (int first = 0; first < ALL; first += AT_ONCE) {
                __syncthreads();  // no thread still reads the patch, or sums that are in its place
#pragma unroll
                for (int j = 0; j < AT_ONCE * FLOATS; ++j)
                    if (first + j / FLOATS < ALL)
                        partial[stream.warp * THREADS + j * WARP + lane] = sums[first + j / FLOATS][j % FLOATS];
                __syncthreads();  // the sums of all warps are in `partial`
                const int product = first + mine;
                if (product >= ALL) continue;
                float sum = 0;
#pragma unroll
                for (int warp = 0; warp < WARPS; ++warp) sum += partial[warp * THREADS + threadIdx.x];
                const int row = product / GROUPS, filter = row * ROWS + filter_of(lane, i), m = tile.filter + filter;
                const int n = product % GROUPS * PIXELS + pixel_of(lane, i);
                float of_filter = 0;
#pragma unroll
                for (int r = 0; r < OF.FILTER_ROWS; ++r)
                    if (r == row) of_filter = i < 2 ? bias.of[r][0] : bias.of[r][1];
                const Half value = activated<s>(sum, of_filter);
                if constexpr (Tiles::POOLS) {
                    outputs[n * Tiles::TILE_FILTERS + filter] = value;
                } else {
                    const int2 pixel = tile.pixel(n);
                    if (pixel.x < OF.E && m < OF.M) y[(pixel.x * OF.F + pixel.y) * OF.M + m] = value;
                }
            }
            if constexpr (Tiles::POOLS) {
                __syncthreads();  // the tile is in `outputs`
                store_pooled<s>(tile, outputs, y);
            }
        }
    }
};

// ---- All stages -----------------------------------------------------------------------------------------------------

struct Arguments {
    const Half* x;
    const char* weights;
    const Half* biases;
    Half *y, *activations;
    unsigned* counters;
    unsigned long long* times;
    char* work;
};

template <int s>
__device__ __forceinline__ void run_stage(const Arguments& all, Stream& stream)
{
    unsigned long long* const times = all.times + blockIdx.x * (COUNT + 1) + s;
    Half* const y = s + 1 < COUNT ? all.activations + STAGES[s].OUTPUT : all.y;
    if constexpr (Tiling<s>::FEW_CHANNELS) {
        if (threadIdx.x == 0) *times = nanoseconds();
        FewChannels<s>::run(all.x, all.weights, all.biases, y, stream, all.work);
    } else {
        const Biases<s> bias(all.biases, Tiling<s>(blockIdx.x).filter);
        if (threadIdx.x == 0) wait_for_arrivals(all.counters + s - 1, Tiling<s - 1>::TILES);
        __syncthreads();  // the stage before is complete
        if (threadIdx.x == 0) *times = nanoseconds();
        Products<s>::run(all.activations + STAGES[s - 1].OUTPUT, all.biases, bias, y, stream, all.work);
    }
    __syncthreads();  // all outputs of the block's tiles are stored
    if (s + 1 < COUNT && threadIdx.x == 0)
        for (int number = blockIdx.x; number < Tiling<s>::TILES; number += gridDim.x) arrive_at(all.counters + s);
}

template <int... s>
__device__ __forceinline__ void run_stages(const Arguments& all, Stream& stream, std::integer_sequence<int, s...>)
{
    (run_stage<s>(all, stream), ...);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    persistent(const Half* x,                      // [H][W][C]
               const char* __restrict__ weights,   // of all stages, in fragments
               const Half* __restrict__ biases,    // of all stages
               const Segment* __restrict__ segments,  // [gridDim.x][LADDER_SEGMENTS]
               Half* y,                            // [M]
               Half* activations,                  // outputs of all stages but the last
               unsigned* counters,                 // [COUNT]
               unsigned long long* times)          // [gridDim.x][COUNT + 1]
{
    DYNAMIC_SHARED(char, shared);  // the rings of the warps, their barriers, then what a stage needs
    const int warp = warp_uniform(threadIdx.x / WARP);
    Mbarrier* const arrived = reinterpret_cast<Mbarrier*>(shared + RING_BYTES);
    Stream stream(weights, segments + blockIdx.x * LADDER_SEGMENTS, shared + warp * SLOTS * SLOT_BYTES,
                  arrived + warp * SLOTS, warp);
    char* const work = shared + RING_BYTES + BARRIER_BYTES;
    const Arguments all{x, weights, biases, y, activations, counters, times, work};
    run_stages(all, stream, std::make_integer_sequence<int, COUNT>());
    if (threadIdx.x != 0) return;
    times[blockIdx.x * (COUNT + 1) + COUNT] = nanoseconds();
    if (arrives_last(counters + COUNT - 1, gridDim.x))
        for (int i = 0; i < COUNT; ++i) counters[i] = ~0u;  // as they were: no block waits any more
}

ASSERT_SHARED_BYTES(PERSISTENT, RING_BYTES + BARRIER_BYTES + LADDER_WORK_BYTES);
