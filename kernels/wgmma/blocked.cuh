// A layer in the form that tensor cores take: NHWC, a multiple of eight channels, and stride 1 (space-to-depth).
//
// A stride of U becomes channels: U x U neighbouring pixels are one, with U*U times the channels, and the filter
// shrinks by U along each axis.  Blocked channel (c*U + i)*U + j of the pixel in row h, column w is input channel c at
// row h*U + i, column w*U + j; beyond the input and the filter everything is zero.  With U = 1 only the order of the
// axes changes.
//
// Gives: BlockedProblem (for warpgroups.cuh), BlockedTile and BlockedFilters (for scaling.cuh), EveryRow (for the
// epilogues).
// Padding is written into the planes, as zeros.
//
// With groups, each product (products.cuh) is a layer of its own: a prepared input has an image for each product, all
// images of a product together, and blocked channels, runs and filters are those of a product.  In an unprepared input
// the products' channels lie side by side, and the TMA gathers from the product's first on.
//
// Two kinds of layers keep their channels.  For 1 x 1 filters, only the pixels that they use are taken, which leaves a
// plain matrix product.  And where GATHERS, the TMA gathers single taps by its traversal strides from unpadded planes,
// and fills in zeros outside of them.  That pays where a stride would make many taps beyond the filter, and where taps
// fill stages (GATHER_WHERE_IT_PAYS); it is the only way for stride pairs, dilation, strides of groups that share a
// product, and unprepared inputs (GATHER_AS_IT_LIES), with groups too.  Windows and resident filters need whole rows
// (GATHER_NEVER).
#pragma once
#include "../arch/basics.cuh"
#include "../common/filter_tap.cuh"
#include "../common/pooling.cuh"
#include "../common/range.cuh"
#include "preparation.cuh"
#include "products.cuh"

#define GATHER_NEVER 0
#define GATHER_WHERE_IT_PAYS 1
#define GATHER_AS_IT_LIES 2
#ifndef GATHER
#define GATHER GATHER_WHERE_IT_PAYS
#endif

#ifdef DYNAMIC_SHAPE
constexpr int SIDE = LADDER_SIDE;  // a build for each
#endif
#if defined DYNAMIC_SHAPE && LADDER_SIDE > 1
constexpr bool POINTWISE = false;
#else
FLAG(POINTWISE, R == 1 && S == 1 && GATHER != GATHER_AS_IT_LIES);
#endif
FLAG(NEEDS_GATHER, U != V || DILATION_ROWS > 1 || DILATION_COLUMNS > 1);
FLAG(IN_PADDING, TOP > 0 || BOTTOM > 0 || LEFT > 0 || RIGHT > 0);  // HAS_PADDING, of the shape at hand
constexpr int FULL_STAGE = 64, LEAST_GATHERED = 16;  // channels of a stage; least for which a stride is gathered
#if defined DYNAMIC_SHAPE && LADDER_SIDE > 1
constexpr bool GATHERS = false;
#elif defined DYNAMIC_SHAPE
NUMBER(GATHERS, );
#else
FLAG(GATHERS, GATHER == GATHER_AS_IT_LIES
                  ? NEEDS_GATHER || IN_PADDING || U > 1 || GROUPS > 1
                  : GATHER == GATHER_WHERE_IT_PAYS && !POINTWISE &&
                        (NEEDS_GATHER || (U > 1 ? PRODUCT_C >= LEAST_GATHERED || GROUPS_TOGETHER > 1
                                                : IN_PADDING && PRODUCT_C % FULL_STAGE == 0)));
#endif

// The side of the squares of pixels that become one, and the steps between the pixels that a 1 x 1 filter uses.
SIZE(STEP_ROWS, POINTWISE ? U : 1); SIZE(STEP_COLUMNS, POINTWISE ? V : 1);
#ifndef DYNAMIC_SHAPE
constexpr int SIDE = GATHERS || POINTWISE ? 1 : U;
static_assert(GATHERS || POINTWISE || !NEEDS_GATHER, "squares are blocked for one stride and no dilation");
#endif

constexpr int SPACE_TO_DEPTH = SIDE * SIDE;  // blocked channels of one channel
DIVISOR(BLOCKED_C, (PRODUCT_C * SPACE_TO_DEPTH + CHUNK - 1) / CHUNK * CHUNK);
SIZE(BLOCKED_R, (R + SIDE - 1) / SIDE); SIZE(BLOCKED_S, (S + SIDE - 1) / SIDE);
SIZE(BLOCKED_H, GATHERS ? H : E + BLOCKED_R - 1); DIVISOR(BLOCKED_W, GATHERS ? W : F + BLOCKED_S - 1);
DIVISOR(PIXELS, E * F);
// The input that the TMA reads: channels of a pixel and images of one image, and elements of each.
SIZE(MAPPED_CHANNELS, GATHER == GATHER_AS_IT_LIES ? C : BLOCKED_C);
constexpr int MAPPED_IMAGES = GATHER == GATHER_AS_IT_LIES ? 1 : PRODUCTS;
SIZE(MAPPED_ELEMENTS, BLOCKED_H * BLOCKED_W * MAPPED_CHANNELS);
SIZE(BLOCKED_ELEMENTS, MAPPED_IMAGES * MAPPED_ELEMENTS);
SIZE(BLOCKED_FILTER_ELEMENTS, M * BLOCKED_R * BLOCKED_S * BLOCKED_C);

// A blocked layer as a matrix product, the Problem of warpgroups.cuh: a row for each output pixel, K in runs.
// Neighbouring pixels of a row are neighbours in memory, so one row of a filter is one run of taps; where taps are
// gathered, each is a run.
struct BlockedProblem {
    MEMBER_DIVISOR(IMAGE_ROWS, PIXELS, ::PIXELS);
    MEMBER_DIVISOR(ADJACENT_ROWS, F, F);
    MEMBER_SIZE(RUNS, GATHERS ? R * S : BLOCKED_R);
    MEMBER_SIZE(RUN, GATHERS ? BLOCKED_C : BLOCKED_S * BLOCKED_C);

    // Where the first run of an output's inputs begins, and the offset of another run, in the map's coordinates.
    static __device__ __forceinline__ int first_row(int row) { return GATHERS ? row * U - TOP : row; }
    static __device__ __forceinline__ int first_column(int column) { return GATHERS ? column * V - LEFT : column; }
    static __device__ __forceinline__ int rows_to(int run) { return GATHERS ? run / S * DILATION_ROWS : run; }
    static __device__ __forceinline__ int columns_to(int run) { return GATHERS ? run % S * DILATION_COLUMNS : 0; }

    // Where a product's inputs begin: its first channel, and its image of the n-th of some images.
    static __device__ __forceinline__ int first_channel(int product)
    {
        return MAPPED_IMAGES == 1 ? product * PRODUCT_C : 0;
    }
    static __device__ __forceinline__ int image(int product, int n, int images)
    {
        return MAPPED_IMAGES == 1 ? n : product * images + n;
    }
};

// Rows of the product are the pixels of the batch; those beyond it, in the last tile, are no outputs.
struct EveryRow {
    int images;

    // The pixel of a row, or -1.
    __device__ __forceinline__ int pixel(int row) const { return row < images * PIXELS ? row : -1; }
};

// Whether products of some taps take channels of other groups from an input whose groups lie side by side.
SHAPE_FUNCTION bool sees_others(int taps)
{
    return GROUPS > 1 && (GROUPS_TOGETHER > 1 || PRODUCT_C % taps != 0);
}

// Eight fp16 values, read or written in one access.
struct alignas(16) Chunk {
    unsigned pairs[CHUNK / 2];
};

// A block writes TILE_CHANNELS blocked channels of BLOCK_PIXELS neighbouring pixels of a row of one image.  Without
// squares a whole plane is one row, PLANE_H x PLANE_W = 1 x BLOCKED_H * BLOCKED_W: nothing depends on where its
// rows end.
constexpr int BLOCK_PIXELS = SIDE <= 4 ? 64 : 32;
constexpr int BLOCK_C = SIDE == 1 ? 64 : SIDE == 2 ? 16 : SIDE % 4 == 0 ? 4 : 8;
DIVISOR(INPUT_CHANNELS, PRODUCT_C < BLOCK_C ? PRODUCT_C : BLOCK_C);  // of a block at most
constexpr int TILE_CHANNELS = BLOCK_C * SPACE_TO_DEPTH, BLOCK_CHUNKS = TILE_CHANNELS / CHUNK;
SIZE(PLANE_H, SIDE == 1 ? 1 : BLOCKED_H); SIZE(PLANE_W, SIDE == 1 ? BLOCKED_H * BLOCKED_W : BLOCKED_W);
SIZE(INPUT_H, SIDE == 1 ? 1 : H); SIZE(INPUT_W, SIDE == 1 ? H * W : W);
DIVISOR(TILES_ACROSS, (PLANE_W + BLOCK_PIXELS - 1) / BLOCK_PIXELS);
// In shared memory a pixel's channels follow each other.  The pitch is an odd number of 4-byte words: no bank conflicts
// between lanes with neighbouring pixels, nor, in tiles of 64 channels, between lanes with neighbouring chunks.
constexpr int PIXEL_PITCH = TILE_CHANNELS + 2;
static_assert(TILE_CHANNELS % CHUNK == 0 && PIXEL_PITCH / 2 % 2 == 1);

// Layouts of a blocked image: the place of a chunk, counted in chunks, and the pixel and chunk of a tile to write i-th,
// so that neighbouring threads write neighbouring chunks.
SIZE(CHUNKS, BLOCKED_C / CHUNK);

// [N][PLANE_H][PLANE_W][BLOCKED_C]
struct ChannelsInnermost {
    static __device__ __forceinline__ int chunk(int i) { return i % BLOCK_CHUNKS; }
    static __device__ __forceinline__ int pixel(int i) { return i / BLOCK_CHUNKS; }

    static __device__ __forceinline__ size_t place(int n, int h, int w, int channel)
    {
        return (((size_t)n * PLANE_H + h) * PLANE_W + w) * CHUNKS + channel / CHUNK;
    }
};

// [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
struct ChunkPlanes {
    static __device__ __forceinline__ int chunk(int i) { return i / BLOCK_PIXELS; }
    static __device__ __forceinline__ int pixel(int i) { return i % BLOCK_PIXELS; }

    static __device__ __forceinline__ size_t place(int n, int h, int w, int channel)
    {
        return (((size_t)n * CHUNKS + channel / CHUNK) * PLANE_H + h) * PLANE_W + w;
    }
};

// A block's tile of the input, transposed through shared memory: the Tile of scaling.cuh.
template <int terms, class Layout = ChannelsInnermost>
struct BlockedTile {
    // Tiles of an image: slices of the channels of a product, and for each slice TILES along the pixels.
    MEMBER_SIZE(PRODUCT_SLICES, (BLOCKED_C + TILE_CHANNELS - 1) / TILE_CHANNELS);
    MEMBER_SIZE(SLICES, PRODUCTS * OF(BlockedTile, PRODUCT_SLICES));
    MEMBER_SIZE(TILES, TILES_ACROSS * PLANE_H);
    // Whether planes take pixels as they are in memory, without padding or steps; zeros only after the last.
    MEMBER_FLAG(PLAIN, GATHERS || (SIDE == 1 ? !IN_PADDING && STEP_ROWS == 1 && STEP_COLUMNS == 1 : KNOWN(!IN_PADDING)));
    static constexpr int BYTES = terms * BLOCK_PIXELS * PIXEL_PITCH * sizeof(__half);  // of shared memory
    // A line is a row of a channel.  A warp reads 32 neighbouring columns of it at a time, a segment; ABREAST lines are
    // read at a time, as many as there are warps for.
    static constexpr int SEGMENTS = BLOCK_PIXELS * SIDE / LANES;
    static constexpr int ABREAST = SEGMENTS < BLOCK_WARPS ? BLOCK_WARPS / SEGMENTS : 1;
    // With stride 1 warps share the channels of a segment's pixels; otherwise a thread reads all of a pixel's.
    static constexpr int SHARERS = SIDE == 1 ? ABREAST : 1, MASKS = SIDE == 1 ? SEGMENTS * GROUPS_TOGETHER : 1;
    static constexpr int ROWS = ABREAST == 1 ? SIDE : 1;  // of pixels that a thread reads
    // Whether squares, that is blocked pixels, are checked; every patch then has a whole one.  Neighbouring lanes have
    // the columns of one.
    MEMBER_FLAG(SQUARES, SIDE >= 4 && SIDE <= 8 && LANES % SIDE == 0 && PATCHES_HAVE_SQUARES && ROWS == SIDE);
    static_assert(BLOCK_PIXELS * SIDE % LANES == 0 && (ROWS == SIDE || ABREAST == SIDE || SIDE == 1));
    static_assert(GROUPS_TOGETHER == 1 || (SIDE == 1 && PRODUCT_C <= BLOCK_C), "a block has whole groups");

    __half* channels;  // [terms][BLOCK_PIXELS][PIXEL_PITCH], in shared memory
    int n, product, h, first_w, first_c;

    __device__ __forceinline__ BlockedTile(float4* memory, int tile, int slice, int image)
        : channels(reinterpret_cast<__half*>(memory)),
          n(image),
          product(PRODUCTS == 1 ? 0 : slice / OF(BlockedTile, PRODUCT_SLICES)),
          h(tile / TILES_ACROSS),
          first_w(tile % TILES_ACROSS * BLOCK_PIXELS),
          first_c((slice - product * OF(BlockedTile, PRODUCT_SLICES)) * BLOCK_C)
    {
    }

    // Reads floats times `power`; returns what the thread has seen, or writes masks of it: pixels below `least` are too
    // faint.  A thread reads the same column of successive lines.
    __device__ __forceinline__ Seen read(const float* __restrict__ x,  // [N][C][H][W]
                                         float power, unsigned least,
                                         PixelMasks* masks) const  // [SHARERS][MASKS]
    {
        SHAPE_CONST int LINES = (PRODUCT_C < BLOCK_C ? PRODUCT_C : BLOCK_C) * SIDE;
#ifdef DYNAMIC_SHAPE
        constexpr int MOST_LINES = BLOCK_C * SIDE, UNROLLED = 1;  // addresses of more would spill
        constexpr bool LOADS_NOW = true;  // with one term a value would be loaded, converted, stored, and then the next
#else
        constexpr int MOST_LINES = LINES, UNROLLED = LINES;
        constexpr bool LOADS_NOW = false;
#endif
        constexpr int READS = (MOST_LINES + ABREAST - 1) / ABREAST;  // of a thread
        constexpr int TOGETHER = READS < 8 ? READS : 8;         // in flight at a time
        constexpr bool WHOLE_ROWS = TOGETHER % ROWS == 0;
        const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, first_line = warp / SEGMENTS;
        const int remaining =
            KNOWN(PRODUCT_C <= BLOCK_C || PRODUCT_C % BLOCK_C == 0) ? BLOCK_C : PRODUCT_C - first_c;
        Seen seen = {0, false, !OF(BlockedTile, SQUARES)};
        unsigned of_group[GROUPS_TOGETHER] = {};  // the largest magnitude of a pixel's channels of each group
        for (int segment = warp % SEGMENTS; segment < SEGMENTS && first_line < ABREAST; segment += BLOCK_WARPS) {
            const int column = segment * LANES + lane, in_w = first_w * SIDE + column;
            const size_t plane = (size_t)n * C + product * PRODUCT_C + first_c;
            const float* const in = x + plane * PLANE_ELEMENTS + h * SIDE * INPUT_W + place(in_w);
            __half* const out = channels + column / SIDE * PIXEL_PITCH + column % SIDE;
            unsigned of_row[ROWS] = {};  // the largest magnitude of a pixel's channels
            int channels_of[ROWS];      // that are read of a row: none where it is not in memory
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
                channels_of[i] = is_input((i * ABREAST + first_line) % SIDE, in_w) ? remaining : 0;
#pragma unroll UNROLLED
            for (int first = 0; first < READS && first * ABREAST < LINES; first += TOGETHER) {
                float values[TOGETHER];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const int line = (first + i) * ABREAST + first_line, c = line / SIDE, row = line % SIDE;
                    const bool there = line < MOST_LINES && c < channels_of[(WHOLE_ROWS ? i : first + i) % ROWS];
                    const float* const from = in + (size_t)c * PLANE_ELEMENTS + row * INPUT_W;
                    if constexpr (LOADS_NOW && terms == 1)
                        values[i] = there ? load_now(from) : 0;
                    else
                        values[i] = there ? load_input(from) : 0;
                }
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const int line = (first + i) * ABREAST + first_line;
                    unsigned& largest = of_row[(WHOLE_ROWS ? i : first + i) % ROWS];
                    largest = max(largest, magnitude(values[i]));
                    if constexpr (GROUPS_TOGETHER > 1) add_to_group(of_group, (first + i) * ABREAST, line, values[i]);
                    if (line < MOST_LINES && line / SIDE < remaining) put(out + line * SIDE, values[i] * power);
                }
            }
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                seen.largest = max(seen.largest, of_row[row]);
                if constexpr (SHARERS == 1) seen.faint |= of_row[row] != 0 && of_row[row] < least;
            }
            IF_SHAPE (OF(BlockedTile, SQUARES)) {
                unsigned of_square = 0;
#pragma unroll
                for (int row = 0; row < ROWS; ++row) of_square = max(of_square, of_row[row]);
#pragma unroll
                for (int distance = 1; distance < SIDE; distance *= 2)
                    of_square = max(of_square, __shfl_xor_sync(0xffffffff, of_square, distance));
                seen.weak |= of_square < least && first_w + column / SIDE < PLANE_W && is_square(in_w / SIDE * SIDE);
            }
        }
        if constexpr (SHARERS > 1 && GROUPS_TOGETHER > 1) {
#pragma unroll
            for (int group = 0; group < GROUPS_TOGETHER; ++group) {
                const PixelMasks own = {__ballot_sync(0xffffffff, of_group[group] != 0),
                                        __ballot_sync(0xffffffff, of_group[group] >= least)};
                if (lane == 0) masks[warp * GROUPS_TOGETHER + group] = own;
            }
        } else if constexpr (SHARERS > 1) {
            const PixelMasks own = {__ballot_sync(0xffffffff, seen.largest != 0),
                                    __ballot_sync(0xffffffff, seen.largest >= least)};
            if (lane == 0) masks[warp] = own;
        }
        return seen;
    }

    // Adds a channel's value to those of its group, which is known at compile time where the warps that share a pixel's
    // channels, from `first` on, read the same group at a time.
    static __device__ __forceinline__ void add_to_group(unsigned (&of_group)[GROUPS_TOGETHER], int first, int channel,
                                                        float value)
    {
        const int own = (GROUP_C % ABREAST == 0 ? first : channel) / GROUP_C;
#pragma unroll
        for (int group = 0; group < GROUPS_TOGETHER; ++group)
            if (group == own) of_group[group] = max(of_group[group], magnitude(value));
    }

    // Offset, in elements, from the tile's first line to the input of a column, which may be in the padding.
    __device__ __forceinline__ int place(int column) const
    {
        if constexpr (POOLS) {
            static_assert(!POOLS || SIDE == 1, "pools pixels, not squares of them");
            const int row = column / BLOCKED_W * STEP_ROWS, pixel = column % BLOCKED_W * STEP_COLUMNS;
            return GATHERS ? place_in_plane(row, pixel) : place_in_plane(row - TOP, pixel - LEFT);
        }
        IF_SHAPE (OF(BlockedTile, PLAIN)) return column;
        if constexpr (SIDE > 1) return column - (TOP * W + LEFT);
        return (column / BLOCKED_W * STEP_ROWS - TOP) * W + column % BLOCKED_W * STEP_COLUMNS - LEFT;
    }

    // Whether the input `row` rows below it is in memory.
    __device__ __forceinline__ bool is_input(int row, int column) const
    {
        IF_SHAPE (OF(BlockedTile, PLAIN)) return column < INPUT_W && h * SIDE + row < INPUT_H;
        if constexpr (SIDE > 1) return in_plane(h * SIDE + row, column);
        return column < PLANE_W && in_plane(column / BLOCKED_W * STEP_ROWS, column % BLOCKED_W * STEP_COLUMNS);
    }

    // Whether the square that begins at a column stays clear of the padding.
    __device__ __forceinline__ bool is_square(int column) const
    {
        return !HAS_PADDING || (in_plane(h * SIDE, column) && in_plane(h * SIDE + SIDE - 1, column + SIDE - 1));
    }

    __device__ __forceinline__ void put(__half* out, float value) const
    {
        __half halves[terms];
        split<terms>(value, halves);
#pragma unroll
        for (int term = 0; term < terms; ++term) out[term * BLOCK_PIXELS * PIXEL_PITCH] = halves[term];
    }

    // Reads NHWC fp16: a thread reads the same column and channel of successive rows.  Returns whether it has seen an
    // infinity or a NaN.
    __device__ __forceinline__ bool read(const __half* __restrict__ x) const  // [N][H][W][C]
    {
        constexpr unsigned INFINITE_HALF = 0x7c00;
        bool infinite = false;
#pragma unroll 4
        for (int i = threadIdx.x; i < BLOCK_PIXELS * SIDE * INPUT_CHANNELS; i += BLOCK_THREADS) {
            const int c = i % INPUT_CHANNELS, column = i / INPUT_CHANNELS, in_w = first_w * SIDE + column;
            const size_t pixel = ((size_t)n * INPUT_H + h * SIDE) * INPUT_W + place(in_w);
            const __half* const in = x + pixel * C + product * PRODUCT_C + first_c + c;
            __half* const out = channels + column / SIDE * PIXEL_PITCH + c * SPACE_TO_DEPTH + column % SIDE;
            if (first_c + c >= PRODUCT_C) continue;
            __half values[SIDE];
#pragma unroll
            for (int row = 0; row < SIDE; ++row) {
                values[row] = is_input(row, in_w) ? in[(size_t)row * INPUT_W * C] : __float2half_rn(0);
                infinite |= (__half_as_ushort(values[row]) & INFINITE_HALF) == INFINITE_HALF;
            }
#pragma unroll
            for (int row = 0; row < SIDE; ++row) out[row * SIDE] = values[row];
        }
        return infinite;
    }

    __device__ __forceinline__ void write(__half* const (&blocked)[terms]) const
    {
        const int image = BlockedProblem::image(product, n, gridDim.z);  // a block of the grid has one image
#pragma unroll
        for (int i = threadIdx.x; i < BLOCK_PIXELS * BLOCK_CHUNKS; i += BLOCK_THREADS) {
            const int chunk = Layout::chunk(i), pixel = Layout::pixel(i);
            const int w = first_w + pixel, channel = first_c * SPACE_TO_DEPTH + chunk * CHUNK;
            if (w >= PLANE_W || channel >= BLOCKED_C) continue;
#pragma unroll
            for (int term = 0; term < terms; ++term) {
                const __half* const from = channels + (term * BLOCK_PIXELS + pixel) * PIXEL_PITCH + chunk * CHUNK;
                Chunk halves;
#pragma unroll
                for (int pair = 0; pair < CHUNK / 2; ++pair) {
                    // undefined: channels beyond the last, which become zeros
                    halves.pairs[pair] = reinterpret_cast<const unsigned*>(from)[pair];
                    IF_SHAPE (BLOCKED_C > PRODUCT_C * SPACE_TO_DEPTH) {  // read() writes no channel beyond the last
                        const int inside = PRODUCT_C * SPACE_TO_DEPTH - channel - 2 * pair;
                        if (inside < 2) halves.pairs[pair] &= inside < 1 ? 0 : 0xffff;
                    }
                }
                // Indexed in chunks: indexed in fp16 values, the compiler would not merge the stores into one.
                reinterpret_cast<Chunk*>(blocked[term])[Layout::place(image, h, w, channel)] = halves;
            }
        }
    }
};

// Block (tile, slice, n) writes a tile of blocked image n, from fp16, and whether it has an infinity or a NaN.
__device__ __forceinline__ void block_native_input(const __half* __restrict__ x,  // [N][H][W][C]
                                                   int* __restrict__ infinite,    // [N][SLICES][TILES]
                                                   __half* __restrict__ pixels)
// pixels [PRODUCTS][N][PLANE_H][PLANE_W][BLOCKED_C]
{
    DYNAMIC_SHARED(float4, tile_memory);
    const BlockedTile<1> tile(tile_memory, blockIdx.x, blockIdx.y, blockIdx.z);
    const bool any = __syncthreads_or(tile.read(x));  // the tile is complete before it is read transposed
    if (threadIdx.x == 0) infinite[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = any;
    tile.write({pixels});
}

// Block (r, m) writes row r of blocked filter m: the Filters of scaling.cuh.
struct BlockedFilters {
    template <class Filter, int terms>
    static __device__ __forceinline__ void write(const Filter* __restrict__ w,     // [M][GROUP_C][R][S]
                                                 __half* const (&blocked)[terms],  // [M][BLOCKED_R][RUN]
                                                 float power)
    {
        const int m = blockIdx.y, blocked_r = blockIdx.x;
        const size_t row = ((size_t)m * BLOCKED_R + blocked_r) * (BLOCKED_S * BLOCKED_C);
        for (int channel = threadIdx.x; channel < BLOCKED_C; channel += BLOCK_THREADS) {
            const int c = channel / SPACE_TO_DEPTH - channel_of_product(m), r = blocked_r * SIDE + channel / SIDE % SIDE;
            const bool inside = (GROUPS_TOGETHER == 1 || c >= 0) && c < GROUP_C && r < R;
#pragma unroll 8
            for (int column = 0; column < BLOCKED_S; ++column) {  // neighbours in w
                const int s = column * SIDE + channel % SIDE;
                __half halves[terms];
                split<terms>(inside && s < S ? float(filter_tap(w, m, c, r * S + s)) * power : 0.0f, halves);
#pragma unroll
                for (int term = 0; term < terms; ++term) blocked[term][row + column * BLOCKED_C + channel] = halves[term];
            }
        }
    }
};
