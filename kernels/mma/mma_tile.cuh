// A tile of a layer's output by products of single warps (mma), for batches that are too small to fill a GPU.
//
// Rows of the product of matrices are filters, columns pixels of an image, and its depth has the taps.  The unrolled
// input is nowhere, not even in shared memory: a block copies the input rows that its pixels' windows lie in, CHANNELS
// channels (a chunk) at a time, and finds what a tap meets at a pixel where an offset of the tap and one of the pixel
// add up to.  So an input is copied once for all of the taps that meet it.
//
// Everything is counted in words of 32 bits: a float, or two halves of neighbouring channels.  A warp's product is 16
// filters times 8 pixels, 8 words deep (a step), and its fragments lie alike for both types.  Filters are prepared as
// fragments: the four words of a lane are neighbours, and a lane copies to shared memory what it alone will read, some
// steps ahead.  So filters need no barriers, and warps meet once a chunk.
//
// A tile's filters are divided among WARPS_DOWN warps and the depth among the others, so that no two warps of a block
// read the same fragment, and among SPLIT_BLOCKS blocks where the tiles of one image are fewer than the
// multiprocessors.  Warps' sums meet in shared memory; blocks' sums meet in `partial`, where the warp that comes last
// adds all of them, always in the blocks' order.
//
// A kernel that is launched while the one before still runs (early) copies its first filters meanwhile.  Whatever is
// not prepared once and for all it touches only when that one has ended.
//
// A file that includes this names two types.  Input: how the input lies (WORDS of depth in a chunk, INPUT_WORDS of a
// chunk's input rows, offsets of words and pixels, place and store of outputs).  Arithmetic: what is multiplied
// (PARTS that a factor is split into, which lie beside each other; multiply).  And it passes an object that brings a
// chunk's inputs to shared memory (begin, complete) and knows what the sums are multiples of.
#pragma once
#include "../common/product.cuh"
#include "../arch/ptx.cuh"

constexpr int WARP = 32, THREADS = WARPS * WARP;
constexpr int STEP = 8;              // words of depth in a warp's product
constexpr int UNROLLED_COPIES = 16;  // so that most addresses differ by constants
constexpr int FRAGMENT_ROWS = 16, FRAGMENT_COLUMNS = 8, LANE_WORDS = 4, FRAGMENT = WARP * LANE_WORDS;
constexpr int TILE_FRAGMENTS = TILE_FILTERS / FRAGMENT_ROWS;

// Of a warp: how many have other steps, and its fragments of filters and of pixels.
constexpr int WARPS_ALONG = WARPS / WARPS_DOWN;
constexpr int FRAGMENTS_DOWN = TILE_FRAGMENTS / WARPS_DOWN, FRAGMENTS_ACROSS = TILE_PIXELS / FRAGMENT_COLUMNS;
static_assert(WARPS % WARPS_DOWN == 0 && TILE_FRAGMENTS % WARPS_DOWN == 0);

__host__ __device__ constexpr int divide_up(int count, int unit)
{
    return (count + unit - 1) / unit;
}

__host__ __device__ constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

constexpr int FILTER_TILES = divide_up(M, TILE_FILTERS), PIXEL_TILES = divide_up(PIXELS, TILE_PIXELS);
constexpr int CHUNKS = divide_up(C, CHANNELS), SPLIT_BLOCKS = smaller(SPLITS, CHUNKS);
constexpr int BUFFERS = smaller(2, divide_up(CHUNKS, SPLIT_BLOCKS));  // of input rows: no more than a block has chunks
constexpr int TILE_OUTPUTS = TILE_FILTERS * TILE_PIXELS;
constexpr int VECTOR = 4;  // outputs that a thread handles together
constexpr int THREAD_VECTORS = divide_up(TILE_OUTPUTS, THREADS * VECTOR);

// Rows that a tile's pixels and their windows lie in.
constexpr int OUTPUT_ROWS = smaller(E, (TILE_PIXELS + F - 2) / F + 1), INPUT_ROWS = (OUTPUT_ROWS - 1) * U + R;

using Sums = float[FRAGMENTS_DOWN][FRAGMENTS_ACROSS][4];

// Words of a chunk's inputs in shared memory, and of the filters of a step.
template <class Input, int parts>
struct Sizes {
    static constexpr int STEPS = divide_up(Input::WORDS, STEP);
    static constexpr int INPUTS = divide_up(Input::INPUT_WORDS, LANE_WORDS) * LANE_WORDS;
    static constexpr int FILTERS = TILE_FRAGMENTS * parts * FRAGMENT, WARP_FILTERS = FILTERS / WARPS_DOWN;
    static constexpr int LATER_COPIES = smaller(STAGES - 1, STEPS / WARPS_ALONG);  // begun after those of a chunk
    static constexpr int TAPS = BUFFERS * INPUTS, RING = TAPS + STEPS * STEP;  // where they begin
};

// The image, first pixel and first filter of a block's tile, and the chunks of the depth that are the block's.
struct Part {
    int tile, split, n, pixel, filter_tile, first_chunk, end_chunk;

    __device__ __forceinline__ Part()
    {
        split = blockIdx.x % SPLIT_BLOCKS;
        tile = blockIdx.x / SPLIT_BLOCKS;
        filter_tile = tile % FILTER_TILES;
        pixel = tile / FILTER_TILES % PIXEL_TILES * TILE_PIXELS;
        n = tile / (FILTER_TILES * PIXEL_TILES);
        first_chunk = split * CHUNKS / SPLIT_BLOCKS;
        end_chunk = (split + 1) * CHUNKS / SPLIT_BLOCKS;
    }
};

// Writes the filters as fragments, words beyond the last filter or word of depth as zeros.  A thread writes a word,
// which make(m, chunk, k, part) gives it.
template <class Input, int parts, class Make>
__device__ __forceinline__ void prepare_fragments(unsigned* __restrict__ fragments, Make make)
// fragments [FILTER_TILES][CHUNKS][STEPS][TILE_FRAGMENTS][parts][WARP][LANE_WORDS]
{
    constexpr int STEPS = Sizes<Input, parts>::STEPS, FILTERS = Sizes<Input, parts>::FILTERS;
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= FILTER_TILES * CHUNKS * STEPS * FILTERS) return;
    const int word = index % LANE_WORDS, lane = index / LANE_WORDS % WARP;
    int fragment = index / FRAGMENT;
    const int part = fragment % parts;
    fragment /= parts;
    const int down = fragment % TILE_FRAGMENTS, step = fragment / TILE_FRAGMENTS % STEPS;
    const int chunk = fragment / (TILE_FRAGMENTS * STEPS) % CHUNKS;
    const int filter_tile = fragment / (TILE_FRAGMENTS * STEPS * CHUNKS);
    const int m = filter_tile * TILE_FILTERS + down * FRAGMENT_ROWS + lane / 4 + word % 2 * 8;
    const int k = step * STEP + lane % 4 + word / 2 * 4;
    fragments[index] = m < M && k < Input::WORDS ? make(m, chunk, k, part) : 0;
}

// The first of a warp's steps; the next come WARPS_ALONG further.
__device__ __forceinline__ int first_step()
{
    return threadIdx.x / (WARP * WARPS_DOWN);
}

// A lane's filters on their way: STAGES steps of its warp.
template <class Sizes>
struct Ring {
    unsigned* slots;       // in shared memory: this lane's words of the first slot
    const unsigned* next;  // this lane's words of the step that is copied next
    int steps, slot;       // that are still to be copied; the one that is read next

    __device__ __forceinline__ Ring(unsigned* ring, const unsigned* fragments, const Part& mine)
    {
        const int warp = threadIdx.x / WARP, lane_word = threadIdx.x % WARP * LANE_WORDS;
        slots = ring + warp * STAGES * Sizes::WARP_FILTERS + lane_word;
        const int first = (mine.filter_tile * CHUNKS + mine.first_chunk) * Sizes::STEPS + first_step();
        next = fragments + (size_t)first * Sizes::FILTERS + warp % WARPS_DOWN * Sizes::WARP_FILTERS + lane_word;
        steps = ((mine.end_chunk - mine.first_chunk) * Sizes::STEPS - first_step() + WARPS_ALONG - 1) / WARPS_ALONG;
        slot = 0;
    }

    // Starts the copies of the next step, if there is one, as a group.
    __device__ __forceinline__ void copy(int to)
    {
        if (steps > 0)
#pragma unroll
            for (int i = 0; i < Sizes::WARP_FILTERS; i += FRAGMENT)
                copy_async_16(slots + to * Sizes::WARP_FILTERS + i, next + i, true);
        copy_async_close_group();
        next += WARPS_ALONG * Sizes::FILTERS;
        --steps;
    }

    // Waits for the step that is read next.
    __device__ __forceinline__ const unsigned* wait()
    {
        copy_async_wait<STAGES - 2>();
        return slots + slot * Sizes::WARP_FILTERS;
    }

    // Gives back the slot before the one that was read, and goes on to the next.
    __device__ __forceinline__ void advance()
    {
        copy(slot == 0 ? STAGES - 1 : slot - 1);
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
};

// The factors of a warp's step, as a lane holds them.
template <int parts>
struct Factors {
    unsigned filters[parts][FRAGMENTS_DOWN][4], inputs[parts][FRAGMENTS_ACROSS][2];

    __device__ __forceinline__ void load(const unsigned* fragments, const unsigned* chunk, int2 tap, const int* pixels)
    {
#pragma unroll
        for (int i = 0; i < FRAGMENTS_DOWN * parts; ++i) {
            const uint4 words = *reinterpret_cast<const uint4*>(fragments + i * FRAGMENT);
            unsigned(&to)[4] = filters[i % parts][i / parts];
            to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
        }
        const char* const inputs_at = reinterpret_cast<const char*>(chunk);
        const char *const first = inputs_at + tap.x, *const second = inputs_at + tap.y;
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j) {
            load_input(j, 0, first + pixels[j]);
            load_input(j, 1, second + pixels[j]);
        }
    }

    __device__ __forceinline__ void load_input(int column, int word, const char* at)
    {
        if constexpr (parts == 1) {
            inputs[0][column][word] = *reinterpret_cast<const unsigned*>(at);
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

// The first output of a thread's vector in a tile, whose outputs are counted as memory has them.
__device__ __forceinline__ int vector_start(int vector)
{
    return (threadIdx.x + vector * THREADS) * VECTOR;
}

// Whether the tile has so many vectors.
__device__ __forceinline__ bool has_vector(int vector)
{
    return TILE_OUTPUTS % (THREADS * VECTOR) == 0 || vector_start(vector) < TILE_OUTPUTS;
}

// Adds the warps' sums; every thread gets some vectors of the tile.
template <class Input>
__device__ __forceinline__ void add_warps(float4 (&outputs)[THREAD_VECTORS], const Sums& sums,
                                          float* shared)  // [WARPS_ALONG][Input::TILE_WORDS]
{
    const int first_filter = threadIdx.x / WARP % WARPS_DOWN * FRAGMENTS_DOWN * FRAGMENT_ROWS + threadIdx.x % WARP / 4;
    const int first_pixel = threadIdx.x % 4 * 2;
    float* const own = shared + first_step() * Input::TILE_WORDS;
#pragma unroll
    for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                Input::put_neighbours(own, first_filter + i * FRAGMENT_ROWS + half * 8,
                                      first_pixel + j * FRAGMENT_COLUMNS,
                                      make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]));
    __syncthreads();  // all warps have written their sums before any thread reads them
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i) {
        outputs[i] = make_float4(0, 0, 0, 0);
        if (!has_vector(i)) continue;
        const int output = vector_start(i);
        const float* from = shared + Input::shared_place(Input::filter_of(output), Input::pixel_of(output));
#pragma unroll
        for (int other = 0; other < WARPS_ALONG; ++other)
            add(outputs[i], *reinterpret_cast<const float4*>(from + other * Input::TILE_WORDS));
    }
}

// Adds the blocks' sums of a tile, each warp for its own part: true in the warp that comes last, whose lanes then have
// the whole sums.
//
// Before a launch a counter is SPLIT_BLOCKS - 1 or more: all ones at first, as arrays are filled before they are used,
// and later what the launch before has left.  Counting starts again at zero there, so the last warp to come finds
// SPLIT_BLOCKS - 2 and leaves SPLIT_BLOCKS - 1.
__device__ __forceinline__ bool add_blocks(float4 (&outputs)[THREAD_VECTORS], const Part& mine,
                                           float* partial,     // [tiles][SPLIT_BLOCKS][TILE_OUTPUTS]
                                           unsigned* arrived)  // [tiles][WARPS]
{
    constexpr unsigned ALL_LANES = 0xffffffff;
    partial += (size_t)mine.tile * SPLIT_BLOCKS * TILE_OUTPUTS;
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i)
        if (has_vector(i))
            *reinterpret_cast<float4*>(partial + mine.split * TILE_OUTPUTS + vector_start(i)) = outputs[i];
    __syncwarp();  // all lanes have stored their sums before the warp counts as arrived
    unsigned before = 0;
    if (threadIdx.x % WARP == 0)
        before = count_in_order(arrived + mine.tile * WARPS + threadIdx.x / WARP, SPLIT_BLOCKS - 1);
    before = __shfl_sync(ALL_LANES, before, 0);
    if (before != SPLIT_BLOCKS - 2u) return false;
    __syncwarp();  // the other blocks' sums, which lane 0 now sees, are seen by all lanes
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i) outputs[i] = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int split = 0; split < SPLIT_BLOCKS; ++split)
#pragma unroll
        for (int i = 0; i < THREAD_VECTORS; ++i)
            if (has_vector(i))
                add(outputs[i],
                    __ldcg(reinterpret_cast<const float4*>(partial + split * TILE_OUTPUTS + vector_start(i))));
    return true;
}

// For inputs that are multiplied in their own range, copied asynchronously.
struct Unscaled {
    // Starts the copies of a chunk.
    template <class Input>
    __device__ __forceinline__ void begin(unsigned* inputs, const typename Input::Value* x, int first_row, int chunk)
    {
        Input::copy(inputs, x, first_row, chunk);
        copy_async_close_group();
    }

    // Waits for a chunk, with a barrier at its end; returns what the sums so far have to be multiplied by.  After the
    // copies of a chunk, unless it is the first, at least `later` groups of copies were begun.
    template <class Input, int later>
    __device__ __forceinline__ float complete(unsigned* inputs, const typename Input::Value*, int, int, bool first)
    {
        if (first)
            copy_async_wait<0>();
        else
            copy_async_wait<later>();
        Input::round(inputs);
        __syncthreads();  // all inputs of the chunk are there, and nobody still reads those before
        return 1;
    }

    // A sum in the outputs' own range.
    __device__ __forceinline__ float outside(float sum) const
    {
        return sum;
    }
};

__device__ __forceinline__ void scale(Sums& sums, float factor)
{
#pragma unroll
    for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[i][j][k] *= factor;
}

template <class Input, class Arithmetic, class Range>
__device__ __forceinline__ void compute_tile(const typename Input::Value* __restrict__ x,
                                             const unsigned* __restrict__ fragments, float* partial, unsigned* arrived,
                                             typename Input::Value* __restrict__ y, Range range)
{
    using Sizes = Sizes<Input, Arithmetic::PARTS>;
    DYNAMIC_SHARED(uint4, memory);  // inputs [BUFFERS][INPUTS], offsets of taps, ring; at the end the warps' sums
    unsigned* const inputs = reinterpret_cast<unsigned*>(memory);
    int2* const taps = reinterpret_cast<int2*>(inputs + Sizes::TAPS);  // [STEPS][4]: of words k and k + 4 of a step
    let_next_launch_start();
    const Part mine;
    Ring<Sizes> ring(inputs + Sizes::RING, fragments, mine);
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) ring.copy(i);
    constexpr int BYTES = sizeof(unsigned);  // from a word of the inputs to the next
#pragma unroll 1
    for (int i = threadIdx.x; i < Sizes::STEPS * 4; i += THREADS) {
        const int k = i / 4 * STEP + i % 4;
        taps[i] = make_int2(k < Input::WORDS ? Input::word(k) * BYTES : 0,
                            k + 4 < Input::WORDS ? Input::word(k + 4) * BYTES : 0);
    }
    int pixels[FRAGMENTS_ACROSS];  // offsets of this lane's column in every fragment; at most the last pixel's
#pragma unroll
    for (int j = 0; j < FRAGMENTS_ACROSS; ++j) {
        const int pixel = min(mine.pixel + j * FRAGMENT_COLUMNS + (int)threadIdx.x % WARP / 4, PIXELS - 1);
        pixels[j] = Input::pixel(pixel / F - mine.pixel / F, pixel % F) * BYTES;
    }
    const int first_row = mine.pixel / F * U;
    x += (size_t)mine.n * C * H * W;
    wait_for_launches_before();  // which may write x, and still use partial and y
    range.template begin<Input>(inputs, x, first_row, mine.first_chunk);
    Sums sums = {};
    int step = first_step();
    for (int chunk = mine.first_chunk; chunk < mine.end_chunk; ++chunk, step -= Sizes::STEPS) {
        unsigned* const buffer = inputs + (chunk - mine.first_chunk) % BUFFERS * Sizes::INPUTS;
        const bool first = chunk == mine.first_chunk;
        const float factor = range.template complete<Input, Sizes::LATER_COPIES>(buffer, x, first_row, chunk, first);
        if (factor != 1) scale(sums, factor);
        if (BUFFERS > 1 && chunk + 1 < mine.end_chunk) {
            unsigned* const other = inputs + (chunk + 1 - mine.first_chunk) % BUFFERS * Sizes::INPUTS;
            range.template begin<Input>(other, x, first_row, chunk + 1);
        }
        for (; step < Sizes::STEPS; step += WARPS_ALONG) {
            Factors<Arithmetic::PARTS> factors;
            factors.load(ring.wait(), buffer, taps[step * 4 + threadIdx.x % 4], pixels);
            ring.advance();
            Arithmetic::multiply(sums, factors);
        }
    }
    copy_async_wait<0>();
    __syncthreads();  // nobody still reads inputs or filters, which the warps' sums now overwrite
    float4 outputs[THREAD_VECTORS];
    add_warps<Input>(outputs, sums, reinterpret_cast<float*>(memory));
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i)
        outputs[i] = make_float4(range.outside(outputs[i].x), range.outside(outputs[i].y), range.outside(outputs[i].z),
                                 range.outside(outputs[i].w));
    if constexpr (SPLIT_BLOCKS > 1)
        if (!add_blocks(outputs, mine, partial, arrived)) return;
#pragma unroll
    for (int i = 0; i < THREAD_VECTORS; ++i) {
        const int output = vector_start(i);
        const int m = mine.filter_tile * TILE_FILTERS + Input::filter_of(output);
        if (has_vector(i)) Input::store(y, mine.n, m, mine.pixel + Input::pixel_of(output), outputs[i]);
    }
}
