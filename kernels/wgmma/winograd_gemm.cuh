// The products at Winograd's interpolation points, sums[point][row][filter] with rows for the tiles of all images, by a
// stream-K schedule; and the output transform.
//
// Gives: StreamKWork, PointEpilogue, PromoteAndDeferStores (for multiply_tiles); transform_outputs.
//
// These products have many equal tiles, but they do not fill the last wave of a grid.  So the last two waves are one,
// in which every block has the same number of stages and may begin or end inside a tile (stream-K: Osama et al.,
// "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU", 2023).  No block
// has less than a tile there, so a tile is cut in two at most; the second fragment goes to `tails`, and the output
// transform adds it, so that no block waits for another.
//
// Needs: TILE_OUTPUTS, TILE_PIXELS, TILE_FILTERS, STAGES and GRID_BLOCKS, constants of the rung.
#pragma once
#include "scaling.cuh"
#include "../common/bias.cuh"
#include "warpgroups.cuh"
#include "winograd.cuh"

static_assert(WGMMAS_ACROSS == 1);
constexpr int PITCH = (M + CHUNK - 1) / CHUNK * CHUNK;  // filters of a row of sums
constexpr int IMAGE_ROWS = WinogradProblem::IMAGE_ROWS, STAGES_PER_TILE = KStages<WinogradProblem>::PER_TILE;

__device__ __forceinline__ int tiles_of_rows(int images)
{
    return (images * IMAGE_ROWS + TILE_PIXELS - 1) / TILE_PIXELS;
}

__device__ __forceinline__ int all_tiles(int images)
{
    return tiles_of_rows(images) * POINTS * TILES_OF_FILTERS;
}

// The number of tiles with one block each: those before the last two waves.
__device__ __forceinline__ int whole_tiles(int images)
{
    return max(0, all_tiles(images) / GRID_BLOCKS - 1) * GRID_BLOCKS;
}

// Tiles are numbered by bands of BAND tiles of rows, the last rows first, in a band by point, and at a point by rows
// and filters.  So concurrent blocks share filters, and the sums of the first rows, which are written last, are still
// in the L2 cache for the output transform.  A point of a band is half a wave of tiles.
constexpr int BAND = GRID_BLOCKS / (2 * TILES_OF_FILTERS) > 0 ? GRID_BLOCKS / (2 * TILES_OF_FILTERS) : 1;

struct Band {
    int before, rows;  // tiles of rows before it, and in it

    // The band of a tile of rows, counted from the last one.
    __device__ __forceinline__ Band(int images, int from_last)
        : before(from_last / BAND * BAND), rows(min(BAND, tiles_of_rows(images) - before))
    {
    }

    // The number of the tile with the first filters, for a tile of rows of the band at a point.
    __device__ __forceinline__ int tile(int from_last, int point) const
    {
        return (before * POINTS + point * rows + from_last - before) * TILES_OF_FILTERS;
    }
};

// Rows of one tile, from a given row on.
struct TileRows {
    int tile, point, row, filter;  // tile: among all tiles; row: among the point's
    bool begins, ends;             // whether the block has the tile's first stage, and its last
    int row_of_tile;
};

// The Work of a block: whole tiles, then its stream-K work unit, stages of the other tiles.  A step is one of the
// block's stages.  Accumulators leave few registers, so the coordinates of a step are recomputed for every tile.
//
// Example: 11 tiles of STAGES_PER_TILE = 4, GRID_BLOCKS = 4.  The first 4 tiles have a block each; the other 7 have 28
// stages, 7 for each block.  Block 1 has steps 0 to 10: its whole tile 1 (steps 0 to 3), then stages 7 to 13 of the 28:
// the last stage of tile 5 (step 4), all of tile 6 (5 to 8) and the first two stages of tile 7 (9 and 10), whose others
// are block 2's.
struct StreamKWork {
    int images, step, steps;

    __device__ __forceinline__ explicit StreamKWork(int all_images)
        : images(all_images), step(0), steps(whole_steps() + shared_begin(blockIdx.x + 1) - shared_begin(blockIdx.x))
    {
    }

    __device__ __forceinline__ int whole() const { return whole_tiles(images); }
    __device__ __forceinline__ int whole_steps() const { return whole() / GRID_BLOCKS * STAGES_PER_TILE; }
    __device__ __forceinline__ bool has_whole() const { return step < whole_steps(); }

    // The first stage of a block's work unit, counted over the tiles that are not whole.
    __device__ __forceinline__ int shared_begin(int block) const
    {
        const int tiles = all_tiles(images) - whole(), blocks = min(GRID_BLOCKS, tiles);
        return (long long)tiles * STAGES_PER_TILE * min(block, blocks) / blocks;
    }
    __device__ __forceinline__ int shared_stage() const { return shared_begin(blockIdx.x) + step - whole_steps(); }

    __device__ __forceinline__ bool more() const { return step < steps; }
    __device__ __forceinline__ void next() { step += end_stage() - first_stage(); }
    __device__ __forceinline__ int first_stage() const { return has_whole() ? 0 : shared_stage() % STAGES_PER_TILE; }
    __device__ __forceinline__ int end_stage() const { return min(STAGES_PER_TILE, first_stage() + steps - step); }

    // Counted over all bands.
    __device__ __forceinline__ int tile() const
    {
        return has_whole() ? step / STAGES_PER_TILE * GRID_BLOCKS + blockIdx.x
                           : whole() + shared_stage() / STAGES_PER_TILE;
    }
    __device__ __forceinline__ Band band() const { return Band(images, tile() / (POINTS * TILES_OF_FILTERS)); }
    __device__ __forceinline__ int tile_of_band() const { return tile() / TILES_OF_FILTERS - band().before * POINTS; }
    __device__ __forceinline__ int filter() const { return tile() % TILES_OF_FILTERS * TILE_FILTERS; }
    __device__ __forceinline__ int point() const { return tile_of_band() / band().rows; }
    __device__ __forceinline__ int pixel() const
    {
        return (tiles_of_rows(images) - 1 - band().before - tile_of_band() % band().rows) * TILE_PIXELS;
    }
    __device__ __forceinline__ int image() const { return point() * images + pixel() / IMAGE_ROWS; }
    __device__ __forceinline__ int mapped_filter() const { return point() * M + filter(); }

    __device__ __forceinline__ TileRows rows_from(int row) const
    {
        const bool begins = first_stage() == 0, ends = end_stage() == STAGES_PER_TILE;
        return {tile(), point(), pixel() + row, filter(), begins, ends, row};
    }
};

// The Epilogue that stores accumulators as they are, straight from registers.
struct PointEpilogue {
    static constexpr int BYTES = CHUNK;  // of shared memory: none, but an array cannot be empty

    float* sums;   // [POINTS][N * IMAGE_ROWS][PITCH]
    float* tails;  // [GRID_BLOCKS][TILE_PIXELS][TILE_FILTERS]: of tiles that another block began
    int* tail_of;  // [2 * GRID_BLOCKS]: the block whose tail belongs to a tile, or -1; for cut tiles
    int images;

    struct Rows {
        float* first;
        int pitch, rows, filters;  // from here to the end
    };

    __device__ __forceinline__ Rows find(const TileRows& at) const
    {
        const int shared_tile = at.tile - whole_tiles(images);
        if (threadIdx.x == WARPGROUP && shared_tile >= 0) {  // the first consumer thread
            if (!at.begins)
                tail_of[shared_tile] = blockIdx.x;
            else if (at.ends)
                tail_of[shared_tile] = -1;
        }
        const int rows = images * IMAGE_ROWS;
        if (at.begins)
            return {sums + ((size_t)at.point * rows + at.row) * PITCH + at.filter, PITCH, rows - at.row,
                    PITCH - at.filter};
        return {tails + ((size_t)blockIdx.x * TILE_PIXELS + at.row_of_tile) * TILE_FILTERS, TILE_FILTERS,
                rows - at.row, TILE_FILTERS};
    }

    // A thread holds pairs of neighbouring filters, and its neighbour the adjacent pairs: they exchange one of two by a
    // shuffle, so that a store has four filters.
    __device__ __forceinline__ void store(const float (&values)[ACCUMULATORS], const Rows& to, int tile) const
    {
        const int lane = threadIdx.x % LANES, first_row = threadIdx.x % WARPGROUP / LANES * 16 + lane / 4;
        const bool odd = lane % 2 != 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = tile * WGMMA_ROWS + first_row + 8 * half;
            float* const out = to.first + (size_t)row * to.pitch + lane % 4 / 2 * 4 + (odd ? CHUNK : 0);
#pragma unroll
            for (int j = 0; j < ACCUMULATORS / 4; j += 2) {
                const float* const pair = &values[4 * j + 2 * half];  // of chunk j; the next chunk's is four further
                const float x = give(odd ? pair[0] : pair[4]), y = give(odd ? pair[1] : pair[5]);
                const float4 four = odd ? make_float4(x, y, pair[4], pair[5]) : make_float4(pair[0], pair[1], x, y);
                if (row < to.rows && (PITCH % TILE_FILTERS == 0 || CHUNK * (j + odd) < to.filters))
                    *reinterpret_cast<float4*>(out + CHUNK * j) = four;
            }
        }
    }

    // Exchanges a value with the neighbouring lane.
    static __device__ __forceinline__ float give(float value) { return __shfl_xor_sync(0xffffffff, value, 1); }
};

// A mainloop like PromoteEachStage (warpgroups.cuh), but a tile's accumulators stay in registers until the next tile's
// first wgmmas are in flight, and are stored meanwhile: the tensor cores do not wait for the epilogue.
struct PromoteAndDeferStores {
    static constexpr int TERMS = 2;

    template <class Problem>
    static __device__ __forceinline__ void consume(SharedStorage<2, PointEpilogue::BYTES>& shared, StreamKWork work,
                                                   const PointEpilogue& epilogue)
    {
        const int consumer = threadIdx.x / WARPGROUP - 1;
        float accumulators[WGMMAS][ACCUMULATORS] = {};
        PointEpilogue::Rows rows = {};  // of the accumulators that are still to be stored: none at first
        PipelineState<STAGES> state;
        for (; work.more(); work.next()) {
            const int first_stage = work.first_stage(), end_stage = work.end_stage();
            for (int i = first_stage; i < end_stage; ++i) {
                mbarrier_wait(&shared.full[state.stage], state.parity);  // the stage's bytes have arrived
                const Stage<2>& stage = shared.stages[state.stage];
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u) {
                    float of_stage[ACCUMULATORS];
                    start_split_stage<Problem>(of_stage, stage, consumer * WGMMAS + u, i);
                    if (i == first_stage) {
                        epilogue.store(accumulators[u], rows, u);
#pragma unroll
                        for (int j = 0; j < ACCUMULATORS; ++j) accumulators[u][j] = 0;
                        if (u == WGMMAS - 1) rows = epilogue.find(work.rows_from(consumer * WGMMAS * WGMMA_ROWS));
                    }
                    warpgroup_wait_group<0>();
                    if (u == WGMMAS - 1) release(&shared.empty[state.stage]);
#pragma unroll
                    for (int j = 0; j < ACCUMULATORS; ++j) accumulators[u][j] += of_stage[j];
                }
                state.advance();
            }
        }
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u) epilogue.store(accumulators[u], rows, u);
    }
};

// The output transform.  A block makes the outputs of 64 filters, two per thread, in OUTPUT_ROWS rows of an image, of
// OUTPUT_TILES tiles each.
constexpr int OUTPUT_FILTERS = 2 * LANES;
constexpr int OUTPUT_SPAN = 128;  // outputs of a plane, at most
constexpr int OUTPUT_TILES = F <= OUTPUT_SPAN ? TILES_ACROSS : OUTPUT_SPAN / TILE_OUTPUTS;
constexpr int OUTPUT_COLUMNS = F <= OUTPUT_SPAN ? F : OUTPUT_TILES * TILE_OUTPUTS;
constexpr int MOST_OUTPUT_ROWS = OUTPUT_SPAN / OUTPUT_COLUMNS;
constexpr int SPANS_DOWN = (E + MOST_OUTPUT_ROWS - 1) / MOST_OUTPUT_ROWS;
constexpr int OUTPUT_ROWS = (E + SPANS_DOWN - 1) / SPANS_DOWN;
constexpr int SPAN_PITCH = OUTPUT_ROWS * OUTPUT_COLUMNS / 2 * 2 + 1;  // odd: at most two-way bank conflicts
constexpr int SPANS_ACROSS = (TILES_ACROSS + OUTPUT_TILES - 1) / OUTPUT_TILES;

// A quotient rounded to nearest, as by division, from the reciprocal; for finite values.
__device__ __forceinline__ float divide(float value, float by)
{
    const float reciprocal = 1 / by, quotient = value * reciprocal;
    return fmaf(fmaf(-quotient, by, value), reciprocal, quotient);
}

// Adds the stream-K fragments of a row's cut tiles; the tile at the next point comes `to_next` further.  All are loaded
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

// Block (span, group of filters, n); a span is some rows and columns of outputs.
__device__ __forceinline__ void
transform_outputs(const float* __restrict__ sums,              // [POINTS][N * IMAGE_ROWS][PITCH]
                     const float* __restrict__ tails,          // [GRID_BLOCKS][TILE_PIXELS][TILE_FILTERS]
                     const int* __restrict__ tail_of,          // [2 * GRID_BLOCKS]
                     const int* __restrict__ exponents,         // [N]
                     const int* __restrict__ filter_exponents,  // [M]
                     float* __restrict__ y,                     // [N][M][E][F]
                     const float* __restrict__ bias)            // [M]
{
    DYNAMIC_SHARED(float, outputs);  // [OUTPUT_FILTERS][SPAN_PITCH]
    constexpr Transforms transforms;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n = blockIdx.z, images = gridDim.z;
    const int first_e = blockIdx.x / SPANS_ACROSS * OUTPUT_ROWS, first_tile = blockIdx.x % SPANS_ACROSS * OUTPUT_TILES;
    const int rows = min(OUTPUT_ROWS, E - first_e), tiles = min(OUTPUT_TILES, TILES_ACROSS - first_tile);
    const int first_filter = blockIdx.y * OUTPUT_FILTERS, filter = min(first_filter + 2 * lane, PITCH - 2);
    const int whole = whole_tiles(images);
    const size_t of_point = (size_t)images * IMAGE_ROWS * PITCH;
    for (int i = warp; i < tiles * OUTPUT_ROWS; i += BLOCK_WARPS) {
        const int tile = i / OUTPUT_ROWS, row = i % OUTPUT_ROWS;
        if (row >= rows) continue;
        const int place = n * IMAGE_ROWS + (first_tile + tile) * E + first_e + row;
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
        float* const out = outputs + 2 * lane * SPAN_PITCH + row * OUTPUT_COLUMNS + tile * TILE_OUTPUTS;
#pragma unroll
        for (int k = 0; k < TILE_OUTPUTS; ++k) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int point = 0; point < POINTS; ++point) {
                const float factor = transforms.outputs[k][point];
                if (factor == 0) continue;
                sum.x += factor * products[point].x;
                sum.y += factor * products[point].y;
            }
            if ((first_tile + tile) * TILE_OUTPUTS + k >= F) continue;
            out[k] = divide(sum.x, transforms.denominator);
            out[SPAN_PITCH + k] = divide(sum.y, transforms.denominator);
        }
    }
    __syncthreads();  // all outputs of the block are in shared memory before they are read transposed
    const int count = SPANS_ACROSS == 1 ? rows * F : min(OUTPUT_COLUMNS, F - first_tile * TILE_OUTPUTS);
    // The image's power as two factors, with the filter's applied between them: no product leaves a float's range
    // unless the output does.
    const int exponent = -exponents[n];
    const float first = power_of_two(exponent / 2), second = power_of_two(exponent - exponent / 2);
    for (int other = warp; other < OUTPUT_FILTERS && first_filter + other < M; other += BLOCK_WARPS) {
        const float factor = power_of_two(-filter_exponents[first_filter + other]);
        const float* const from = outputs + other * SPAN_PITCH;
        float* const to = y + (((size_t)n * M + first_filter + other) * E + first_e) * F + first_tile * TILE_OUTPUTS;
        for (int i = lane; i < count; i += LANES)
            to[i] = with_bias_and_relu(from[i] * first * factor * second, bias, first_filter + other);
    }
}

// The maps of the transformed inputs, a column of the image for each tile and point, and of the transformed filters.
#define ASSERT_VALUE_MAP(MAP) \
    ASSERT_MAP_4(MAP, R * PADDED_C, E, VALUE_TILES, POINTS, PADDED_C * sizeof(__half), \
                 PADDED_H * PADDED_C * sizeof(__half), VALUE_TILES * PADDED_H * PADDED_C * sizeof(__half)); \
    ASSERT_BOX_2(MAP, STAGE_TAPS, TILE_PIXELS)
#define ASSERT_POINT_FILTER_MAP(MAP) \
    ASSERT_MAP_3(MAP, R * PADDED_C, SEGMENTS, POINTS * M, R * PADDED_C * sizeof(__half), \
                 SEGMENTS * R * PADDED_C * sizeof(__half)); \
    ASSERT_BOX_3(MAP, STAGE_TAPS, 1, TILE_FILTERS)
