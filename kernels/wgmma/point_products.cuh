// The products of Winograd's points: sums[point][row][filter], rows for the tiles of all images; and the outputs from them.
//
// Tiles of these products are many and alike, but they do not fill the last round of a grid.  So the last two rounds are
// one, in which every block has the same number of stages and may begin or end inside of a tile (stream-K: Osama et al.,
// "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU", 2023).  No block has
// less than a tile there, so a tile has two blocks at most; the second leaves its sums in `tails`, and nobody waits: what
// makes outputs of the sums adds them.
#pragma once
#include "winograd.cuh"

#include "scaling.cuh"
#include "warpgroups.cuh"

static_assert(FILTER_UNITS == 1);
constexpr int PITCH = (M + CHUNK - 1) / CHUNK * CHUNK;  // filters of a row of sums

__device__ __forceinline__ int tiles_of_rows(int images)
{
    return (images * PIXELS + TILE_PIXELS - 1) / TILE_PIXELS;
}

__device__ __forceinline__ int all_tiles(int images)
{
    return tiles_of_rows(images) * POINTS * TILES_OF_FILTERS;
}

// How many tiles have one block each: those before the last two rounds.
__device__ __forceinline__ int whole_tiles(int images)
{
    return max(0, all_tiles(images) / BLOCKS - 1) * BLOCKS;
}

// Tiles are counted by bands of BAND tiles of rows, the last rows first, in a band by points, and at a point by rows
// and filters.  So blocks that run together share filters, and the sums of the first rows, which are written last, are
// still in the L2 cache when outputs are made of them.  A point of a band is half a round of tiles.
constexpr int BAND = BLOCKS / (2 * TILES_OF_FILTERS) > 0 ? BLOCKS / (2 * TILES_OF_FILTERS) : 1;

struct Band {
    int before, rows;  // tiles of rows before it, and its own

    // The band of a tile of rows, counted from the last one.
    __device__ __forceinline__ Band(int images, int from_last)
        : before(from_last / BAND * BAND), rows(min(BAND, tiles_of_rows(images) - before))
    {
    }

    // Of a tile of rows of the band at a point, the tile of the first filters.
    __device__ __forceinline__ int tile(int from_last, int point) const
    {
        return (before * POINTS + point * rows + from_last - before) * TILES_OF_FILTERS;
    }
};

// Rows of sums of one tile, from one of them on.
struct TileRows {
    int tile, point, row, filter;  // of all tiles; the row is one of the point's
    bool begins, ends;             // whether the block has the tile's first stage, and its last
    int row_of_tile;
};

// What a block of the grid computes: whole tiles, and then its stages of the others.  A step is a stage of the block's.
// Registers are few beside so many sums, so all that a step means is found anew for every tile.
struct Share {
    int images, step, steps;

    __device__ __forceinline__ explicit Share(int all_images)
        : images(all_images), step(0), steps(whole_steps() + shared_begin(blockIdx.x + 1) - shared_begin(blockIdx.x))
    {
    }

    __device__ __forceinline__ int whole() const { return whole_tiles(images); }
    __device__ __forceinline__ int whole_steps() const { return whole() / BLOCKS * STAGES_PER_TILE; }
    __device__ __forceinline__ bool has_whole() const { return step < whole_steps(); }

    // The first stage of a block's, counted through the tiles that are not whole.
    __device__ __forceinline__ int shared_begin(int block) const
    {
        const int tiles = all_tiles(images) - whole(), blocks = min(BLOCKS, tiles);
        return (long long)tiles * STAGES_PER_TILE * min(block, blocks) / blocks;
    }
    __device__ __forceinline__ int shared_stage() const { return shared_begin(blockIdx.x) + step - whole_steps(); }

    __device__ __forceinline__ bool more() const { return step < steps; }
    __device__ __forceinline__ void next() { step += end_stage() - first_stage(); }
    __device__ __forceinline__ int first_stage() const { return has_whole() ? 0 : shared_stage() % STAGES_PER_TILE; }
    __device__ __forceinline__ int end_stage() const { return min(STAGES_PER_TILE, first_stage() + steps - step); }

    // Counted through all bands.
    __device__ __forceinline__ int tile() const
    {
        return has_whole() ? step / STAGES_PER_TILE * BLOCKS + blockIdx.x : whole() + shared_stage() / STAGES_PER_TILE;
    }
    __device__ __forceinline__ Band band() const { return Band(images, tile() / (POINTS * TILES_OF_FILTERS)); }
    __device__ __forceinline__ int tile_of_band() const { return tile() / TILES_OF_FILTERS - band().before * POINTS; }
    __device__ __forceinline__ int filter() const { return tile() % TILES_OF_FILTERS * TILE_FILTERS; }
    __device__ __forceinline__ int point() const { return tile_of_band() / band().rows; }
    __device__ __forceinline__ int pixel() const
    {
        return (tiles_of_rows(images) - 1 - band().before - tile_of_band() % band().rows) * TILE_PIXELS;
    }
    __device__ __forceinline__ int image() const { return point() * images + pixel() / PIXELS; }
    __device__ __forceinline__ int mapped_filter() const { return point() * M + filter(); }

    __device__ __forceinline__ TileRows rows_from(int row) const
    {
        const bool begins = first_stage() == 0, ends = end_stage() == STAGES_PER_TILE;
        return {tile(), point(), pixel() + row, filter(), begins, ends, row};
    }
};

// Stores sums as they are.
struct PointSums {
    static constexpr int BYTES = CHUNK;  // of shared memory: none, but an array cannot be empty

    float* sums;   // [POINTS][N * PIXELS][PITCH]
    float* tails;  // [BLOCKS][TILE_PIXELS][TILE_FILTERS]: of tiles that another block began
    int* tail_of;  // [2 * BLOCKS]: the block whose tail belongs to a tile, or -1; for those that are not whole
    int images;

    struct Rows {
        float* first;
        int pitch, rows, filters;  // that there are from here on
    };

    __device__ __forceinline__ Rows find(const TileRows& at) const
    {
        const int shared_tile = at.tile - whole_tiles(images);
        if (threadIdx.x == WARPGROUP && shared_tile >= 0) {  // the first of all consumers
            if (!at.begins)
                tail_of[shared_tile] = blockIdx.x;
            else if (at.ends)
                tail_of[shared_tile] = -1;
        }
        const int rows = images * PIXELS;
        if (at.begins)
            return {sums + ((size_t)at.point * rows + at.row) * PITCH + at.filter, PITCH, rows - at.row,
                    PITCH - at.filter};
        return {tails + ((size_t)blockIdx.x * TILE_PIXELS + at.row_of_tile) * TILE_FILTERS, TILE_FILTERS,
                rows - at.row, TILE_FILTERS};
    }

    // A thread has pairs of neighbouring filters, and its neighbour the pairs beside them: each gives one of two, so that
    // a store has four filters.
    __device__ __forceinline__ void store(const float (&values)[SUMS], const Rows& to, int unit) const
    {
        const int lane = threadIdx.x % LANES, first_row = threadIdx.x % WARPGROUP / LANES * 16 + lane / 4;
        const bool odd = lane % 2 != 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = unit * UNIT + first_row + 8 * half;
            float* const out = to.first + (size_t)row * to.pitch + lane % 4 / 2 * 4 + (odd ? CHUNK : 0);
#pragma unroll
            for (int j = 0; j < SUMS / 4; j += 2) {
                const float* const pair = &values[4 * j + 2 * half];  // of chunk j; four further that of the next
                const float x = give(odd ? pair[0] : pair[4]), y = give(odd ? pair[1] : pair[5]);
                const float4 four = odd ? make_float4(x, y, pair[4], pair[5]) : make_float4(pair[0], pair[1], x, y);
                if (row < to.rows && (PITCH % TILE_FILTERS == 0 || CHUNK * (j + odd) < to.filters))
                    *reinterpret_cast<float4*>(out + CHUNK * j) = four;
            }
        }
    }

    // What the neighbour gives for this.
    static __device__ __forceinline__ float give(float value) { return __shfl_xor_sync(0xffffffff, value, 1); }
};

// As in warpgroups.cuh, but a tile's sums stay in registers until the next tile's first products are under way, and
// leave while these are: the tensor cores do not wait for stores.
__device__ __forceinline__ void consume(Ring<2, PointSums::BYTES>& ring, Share work, const PointSums& output)
{
    const int consumer = threadIdx.x / WARPGROUP - 1;
    float sums[UNITS][SUMS] = {};
    PointSums::Rows rows = {};  // of the sums that are still to be stored: none at first
    Place<STAGES> place;
    for (; work.more(); work.next()) {
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
                if (i == first_stage) {
                    output.store(sums[u], rows, u);
#pragma unroll
                    for (int j = 0; j < SUMS; ++j) sums[u][j] = 0;
                    if (u == UNITS - 1) rows = output.find(work.rows_from(consumer * UNITS * UNIT));
                }
                warpgroup_wait<0>();
                if (u == UNITS - 1) release(&ring.empty[place.stage]);
#pragma unroll
                for (int j = 0; j < SUMS; ++j) sums[u][j] += of_stage[j];
            }
            place.advance();
        }
    }
#pragma unroll
    for (int u = 0; u < UNITS; ++u) output.store(sums[u], rows, u);
}

// A block makes the outputs of 64 filters, two of a thread, in OUTPUT_ROWS rows of an image, of OUTPUT_TILES tiles each.
constexpr int OUTPUT_FILTERS = 2 * LANES;
constexpr int OUTPUT_SPAN = 128;  // of a plane's outputs, at most
constexpr int OUTPUT_TILES = F <= OUTPUT_SPAN ? TILES_ACROSS : OUTPUT_SPAN / OUTPUTS;
constexpr int OUTPUT_COLUMNS = F <= OUTPUT_SPAN ? F : OUTPUT_TILES * OUTPUTS;
constexpr int MOST_OUTPUT_ROWS = OUTPUT_SPAN / OUTPUT_COLUMNS;
constexpr int SPANS_DOWN = (E + MOST_OUTPUT_ROWS - 1) / MOST_OUTPUT_ROWS;
constexpr int OUTPUT_ROWS = (E + SPANS_DOWN - 1) / SPANS_DOWN;
constexpr int SPANS_ACROSS = (TILES_ACROSS + OUTPUT_TILES - 1) / OUTPUT_TILES;

// A quotient rounded to nearest, as a division gives it, from the reciprocal: for what is no infinity.
__device__ __forceinline__ float divide(float value, float by)
{
    const float reciprocal = 1 / by, quotient = value * reciprocal;
    return fmaf(fmaf(-quotient, by, value), reciprocal, quotient);
}

// Adds the tails of a row's tiles that blocks share; the tile at the next point comes `to_next` further.  All are loaded
// before any is added.
__device__ __forceinline__ void add_tails(float2 (&products)[POINTS], const float* __restrict__ tails,
                                          const int* __restrict__ tail_of, int first_shared, int to_next, int place,
                                          int filter)
{
    int blocks[POINTS];
    float2 of_point[POINTS];
#pragma unroll
    for (int point = 0; point < POINTS; ++point) {
        const int shared_tile = first_shared + point * to_next;
        blocks[point] = shared_tile < 0 ? -1 : tail_of[shared_tile];
    }
#pragma unroll
    for (int point = 0; point < POINTS; ++point) {
        const size_t row = (size_t)blocks[point] * TILE_PIXELS + place % TILE_PIXELS;
        of_point[point] = blocks[point] < 0 ? make_float2(0, 0)
                                            : *reinterpret_cast<const float2*>(tails + row * TILE_FILTERS +
                                                                               filter % TILE_FILTERS);
    }
#pragma unroll
    for (int point = 0; point < POINTS; ++point) {
        products[point].x += of_point[point].x;
        products[point].y += of_point[point].y;
    }
}

// Block (span, group of filters, n): the span is one of rows and columns.
__device__ __forceinline__ void
make_rows_of_outputs(const float* __restrict__ sums,           // [POINTS][N * PIXELS][PITCH]
                     const float* __restrict__ tails,          // [BLOCKS][TILE_PIXELS][TILE_FILTERS]
                     const int* __restrict__ tail_of,          // [2 * BLOCKS]
                     const int* __restrict__ exponents,        // [N]
                     const int* __restrict__ filter_exponent,  // [1]
                     float* __restrict__ y)                    // [N][M][E][F]
{
    constexpr int SPAN_PITCH = OUTPUT_ROWS * OUTPUT_COLUMNS / 2 * 2 + 1;  // odd: two lanes at most share a bank
    DYNAMIC_SHARED(float, outputs);                                       // [OUTPUT_FILTERS][SPAN_PITCH]
    constexpr Transforms transforms;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n = blockIdx.z, images = gridDim.z;
    const int first_e = blockIdx.x / SPANS_ACROSS * OUTPUT_ROWS, first_tile = blockIdx.x % SPANS_ACROSS * OUTPUT_TILES;
    const int rows = min(OUTPUT_ROWS, E - first_e), tiles = min(OUTPUT_TILES, TILES_ACROSS - first_tile);
    const int first_filter = blockIdx.y * OUTPUT_FILTERS, filter = min(first_filter + 2 * lane, PITCH - 2);
    const int exponent = -exponents[n] - *filter_exponent;
    const float scale = power_of_two(exponent / 2), more_scale = power_of_two(exponent - exponent / 2);
    const int whole = whole_tiles(images);
    const size_t of_point = (size_t)images * PIXELS * PITCH;
    for (int i = warp; i < tiles * OUTPUT_ROWS; i += BLOCK_WARPS) {
        const int tile = i / OUTPUT_ROWS, row = i % OUTPUT_ROWS;
        if (row >= rows) continue;
        const int place = n * PIXELS + (first_tile + tile) * E + first_e + row;
        const float* const from = sums + (size_t)place * PITCH + filter;
        float2 products[POINTS];
#pragma unroll
        for (int point = 0; point < POINTS; ++point)
            products[point] = *reinterpret_cast<const float2*>(from + point * of_point);
        const int from_last = tiles_of_rows(images) - 1 - place / TILE_PIXELS;
        const Band band(images, from_last);
        const int first_shared = band.tile(from_last, 0) + filter / TILE_FILTERS - whole;  // at point 0
        if (first_shared + (POINTS - 1) * band.rows * TILES_OF_FILTERS >= 0)
            add_tails(products, tails, tail_of, first_shared, band.rows * TILES_OF_FILTERS, place, filter);
        float* const out = outputs + 2 * lane * SPAN_PITCH + row * OUTPUT_COLUMNS + tile * OUTPUTS;
#pragma unroll
        for (int k = 0; k < OUTPUTS; ++k) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int point = 0; point < POINTS; ++point) {
                const float factor = transforms.outputs[k][point];
                if (factor == 0) continue;
                sum.x += factor * products[point].x;
                sum.y += factor * products[point].y;
            }
            if ((first_tile + tile) * OUTPUTS + k >= F) continue;
            out[k] = divide(sum.x, transforms.denominator) * scale * more_scale;
            out[SPAN_PITCH + k] = divide(sum.y, transforms.denominator) * scale * more_scale;
        }
    }
    __syncthreads();  // all outputs of the block are there before they are read across
    const int count = SPANS_ACROSS == 1 ? rows * F : min(OUTPUT_COLUMNS, F - first_tile * OUTPUTS);
    for (int other = warp; other < OUTPUT_FILTERS && first_filter + other < M; other += BLOCK_WARPS) {
        const float* const from = outputs + other * SPAN_PITCH;
        float* const to = y + (((size_t)n * M + first_filter + other) * E + first_e) * F + first_tile * OUTPUTS;
        for (int i = lane; i < count; i += LANES) to[i] = from[i];
    }
}
