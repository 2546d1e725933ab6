// Implicit GEMM by warpgroups: y[pixel][filter] = sum over taps of blocked input times blocked filters, on tensor cores.
//
// Taps come in blocks of 64, rows of 128 bytes: those of TILE_PIXELS output pixels, which the copy engine gathers
// (im2col), and those of TILE_FILTERS filters.  One thread, the producer, keeps a ring of STAGES such blocks filled; two
// or three warpgroups, the consumers, multiply them, each for its share of the pixels.  Producer and consumers meet at
// two barriers for each stage: `full`, when the bytes have come, and `empty`, when all consumers have read them.
//
// A block of the grid stays and computes one tile after the other, so that the producer fetches the next tile while the
// consumers store the last.  Of the tiles of the same pixels, those of different filters follow each other.
//
// A file that includes this has said what an image is: PIXELS rows of the product, ROW_PIXELS of which lie side by side;
// RUNS runs of RUN taps meet each.  And it names the type of the work of a block: which tiles it has, and of each which
// stages (Tiles is the usual one).
#pragma once
#include "halves.cuh"
#include "../arch/ptx.cuh"

constexpr int TAPS = 64, STEP = 16;  // of a stage, and of one product of a warpgroup
constexpr int UNIT = 64;  // pixels in one product of a warpgroup
constexpr int WARPGROUP = 128, CONSUMERS = TILE_PIXELS % (2 * UNIT) == 0 ? 2 : 3;
constexpr int THREADS = WARPGROUP * (1 + CONSUMERS);
// A product has all filters of the tile, or half of them where a third consumer leaves too few registers for one
// instruction with all.
constexpr int UNIT_FILTERS = CONSUMERS == 3 && TILE_FILTERS == 256 ? 128 : TILE_FILTERS;
constexpr int FILTER_UNITS = TILE_FILTERS / UNIT_FILTERS;
constexpr int UNITS = TILE_PIXELS / (UNIT * CONSUMERS) * FILTER_UNITS;  // of a consumer
constexpr int SUMS = UNIT_FILTERS / 2;                                  // a thread's, of one unit
static_assert(TILE_PIXELS % (UNIT * CONSUMERS) == 0);

constexpr int STAGES_PER_RUN = (RUN + TAPS - 1) / TAPS, STAGES_PER_TILE = RUNS * STAGES_PER_RUN;
constexpr int ALL_STEPS = TAPS / STEP;
constexpr int LAST_STEPS = (RUN - (STAGES_PER_RUN - 1) * TAPS + STEP - 1) / STEP;  // of a run's last stage
constexpr int TILES_OF_FILTERS = (M + TILE_FILTERS - 1) / TILE_FILTERS;

constexpr int PIXEL_BYTES = TILE_PIXELS * ROW_BYTES, FILTER_BYTES = TILE_FILTERS * ROW_BYTES;

// Registers of a thread: the producer needs few, and leaves the others' to the consumers.
constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32, CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : 160;

// The maps of the two factors, each in so many parts.
template <int parts>
struct Maps {
    const TensorMap* pixels[parts];   // of [images][PIXELS / ROW_PIXELS + RUNS - 1][ROW_PIXELS][RUN], im2col
    const TensorMap* filters[parts];  // of [filters][RUNS][RUN]
};

template <int parts>
struct Stage {
    unsigned char pixels[parts][PIXEL_BYTES];
    unsigned char filters[parts][FILTER_BYTES];
};

// Shared memory, from an address that is a multiple of an atom's bytes.
template <int parts, int output_bytes>
struct Ring {
    Stage<parts> stages[STAGES];
    unsigned char output[output_bytes];  // for what stores the sums
    Barrier full[STAGES], empty[STAGES];
};

// Rows of the sums are the pixels of the batch, and in the last tile some more.
struct EveryRow {
    int images;

    // The pixel of a row, or -1.
    __device__ __forceinline__ int pixel(int row) const { return row < images * PIXELS ? row : -1; }
};

// Where a thread is in a ring: the stage, and the parity of its phase.
template <int stages>
struct Place {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance()
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }

    // As if it had advanced so often.
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

// The tiles of a block of the grid, in its order, each from its first stage to its last.
struct Tiles {
    int tile, count;

    __device__ __forceinline__ explicit Tiles(int images)
        : tile(blockIdx.x), count((images * PIXELS + TILE_PIXELS - 1) / TILE_PIXELS * TILES_OF_FILTERS)
    {
    }

    __device__ __forceinline__ bool more() const { return tile < count; }
    __device__ __forceinline__ void next() { tile += BLOCKS; }
    __device__ __forceinline__ int first_stage() const { return 0; }
    __device__ __forceinline__ int end_stage() const { return STAGES_PER_TILE; }
    __device__ __forceinline__ int filter() const { return tile % TILES_OF_FILTERS * TILE_FILTERS; }
    __device__ __forceinline__ int pixel() const { return tile / TILES_OF_FILTERS * TILE_PIXELS; }

    // What the copy engine counts: images and filters.
    __device__ __forceinline__ int image() const { return pixel() / PIXELS; }
    __device__ __forceinline__ int mapped_filter() const { return filter(); }

    // Where the sums of a consumer belong, from a row of the tile on: the pixel of the batch.
    __device__ __forceinline__ int rows_from(int row) const { return pixel() + row; }
};

template <int parts, int output_bytes, class Work>
__device__ __forceinline__ void produce(Ring<parts, output_bytes>& ring, const Maps<parts>& maps, Work work)
{
    Place<STAGES> place;
    for (; work.more(); work.next()) {
        const int pixel = work.pixel() % PIXELS, row = pixel / ROW_PIXELS, column = pixel % ROW_PIXELS;
        const int image = work.image(), filter = work.mapped_filter();
        const int first_stage = work.first_stage(), end_stage = work.end_stage();
        for (int i = first_stage; i < end_stage; ++i) {
            const int run = i / STAGES_PER_RUN, tap = i % STAGES_PER_RUN * TAPS;
            Barrier* full = &ring.full[place.stage];
            barrier_wait(&ring.empty[place.stage], place.parity ^ 1);  // all consumers have read the stage
            barrier_arrive_expecting(full, sizeof(Stage<parts>));
            Stage<parts>& stage = ring.stages[place.stage];
#pragma unroll
            for (int part = 0; part < parts; ++part) {
                load_im2col(stage.pixels[part], maps.pixels[part], full, tap, column, row, image, 0, run);
                load_box(stage.filters[part], maps.filters[part], full, tap, run, filter);
            }
            place.advance();
        }
    }
}

// Whether a stage has all its steps: mostly known when the kernel is compiled.
__device__ __forceinline__ bool has_all_steps(int stage)
{
    return LAST_STEPS == ALL_STEPS || stage % STAGES_PER_RUN < STAGES_PER_RUN - 1;
}

// This warp has read a stage.
__device__ __forceinline__ void release(Barrier* empty)
{
    if (threadIdx.x % LANES == 0) barrier_arrive(empty);
}

// The products of one stage for one unit of pixels: d = or += pixels times filters, big parts times small ones too.
template <int parts, int steps>
__device__ __forceinline__ void multiply_stage(float (&d)[SUMS], const Stage<parts>& stage, int unit, bool add)
{
    constexpr int STEP_BYTES = STEP * sizeof(__half);
    const MatrixDescriptor pixels = describe_matrix(stage.pixels[0] + unit / FILTER_UNITS * UNIT * ROW_BYTES);
    const MatrixDescriptor filters = describe_matrix(stage.filters[0] + unit % FILTER_UNITS * UNIT_FILTERS * ROW_BYTES);
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int a = parts - 1; a >= 0; --a)
#pragma unroll
            for (int b = parts - 1 - a; b >= 0; --b) {  // the product of two small parts is below the sum's precision
                multiply_half(d, shift_matrix(pixels, a * PIXEL_BYTES + step * STEP_BYTES),
                              shift_matrix(filters, b * FILTER_BYTES + step * STEP_BYTES), add);
                add = true;
            }
}

// One factor's part each: a stage's products stay under way while the next are started.
template <class Work, class Output>
__device__ __forceinline__ void consume(Ring<1, Output::BYTES>& ring, Work work, Output output)
{
    const int consumer = threadIdx.x / WARPGROUP - 1;
    Place<STAGES> place;
    for (; work.more(); work.next()) {
        const auto rows = output.find(work.rows_from(consumer * (UNITS / FILTER_UNITS) * UNIT));
        float sums[UNITS][SUMS];
        int previous = 0;
        const int first_stage = work.first_stage(), end_stage = work.end_stage();
        for (int i = first_stage; i < end_stage; ++i) {
            const bool first = i == first_stage;
            barrier_wait(&ring.full[place.stage], place.parity);  // the stage's bytes have come
            const Stage<1>& stage = ring.stages[place.stage];
            warpgroup_fence();
            if (has_all_steps(i)) {
#pragma unroll
                for (int u = 0; u < UNITS; ++u)
                    multiply_stage<1, ALL_STEPS>(sums[u], stage, consumer * UNITS + u, !first);
            } else {
#pragma unroll
                for (int u = 0; u < UNITS; ++u)
                    multiply_stage<1, LAST_STEPS>(sums[u], stage, consumer * UNITS + u, !first);
            }
            warpgroup_close_group();
            warpgroup_wait<1>();
            if (!first) release(&ring.empty[previous]);
            previous = place.stage;
            place.advance();
        }
        warpgroup_wait<0>();
        release(&ring.empty[previous]);
        output.store(sums, rows, work.filter(), ring.output);
    }
}

// Two parts each, three products.  The sums of a stage are added up in registers, to nearest: a tensor core truncates
// when it adds, and over thousands of taps that would cost more than the small parts bring.
template <class Work, class Output>
__device__ __forceinline__ void consume(Ring<2, Output::BYTES>& ring, Work work, Output output)
{
    const int consumer = threadIdx.x / WARPGROUP - 1;
    Place<STAGES> place;
    for (; work.more(); work.next()) {
        const auto rows = output.find(work.rows_from(consumer * UNITS * UNIT));
        float sums[UNITS][SUMS] = {};
        const int first_stage = work.first_stage(), end_stage = work.end_stage();
        for (int i = first_stage; i < end_stage; ++i) {
            barrier_wait(&ring.full[place.stage], place.parity);  // the stage's bytes have come
            const Stage<2>& stage = ring.stages[place.stage];
#pragma unroll
            for (int u = 0; u < UNITS; ++u) {
                float of_stage[SUMS];
                warpgroup_fence();
                if (has_all_steps(i))
                    multiply_stage<2, ALL_STEPS>(of_stage, stage, consumer * UNITS + u, false);
                else
                    multiply_stage<2, LAST_STEPS>(of_stage, stage, consumer * UNITS + u, false);
                warpgroup_close_group();
                warpgroup_wait<0>();
                if (u == UNITS - 1) release(&ring.empty[place.stage]);
#pragma unroll
                for (int j = 0; j < SUMS; ++j) sums[u][j] += of_stage[j];
            }
            place.advance();
        }
        output.store(sums, rows, work.filter(), ring.output);
    }
}

// The whole kernel.  `output` finds where a consumer's rows go and later stores its sums, by way of BYTES of shared
// memory.
template <int parts, class Work, class Output>
__device__ __forceinline__ void multiply_tiles(const Maps<parts>& maps, Work work, Output output)
{
    DYNAMIC_SHARED(unsigned char, memory);
    const size_t address = reinterpret_cast<size_t>(memory);
    using Memory = Ring<parts, Output::BYTES>;
    Memory& ring = *reinterpret_cast<Memory*>(memory + (ATOM_BYTES - address % ATOM_BYTES) % ATOM_BYTES);
    if (threadIdx.x == 0) {
        constexpr int CONSUMER_WARPS = CONSUMERS * WARPGROUP / LANES;
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&ring.full[stage], 1);
            barrier_init(&ring.empty[stage], CONSUMER_WARPS);
        }
        barrier_init_fence();
    }
    __syncthreads();  // the barriers are ready before anybody uses one
    if (threadIdx.x < WARPGROUP) {
        warpgroup_give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(ring, maps, work);
    } else {
        warpgroup_take_registers<CONSUMER_REGISTERS>();
        consume(ring, work, output);
    }
}
