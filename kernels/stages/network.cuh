// A network's stages as a table: a convolution, or a linear layer as one of a single pixel, and the pooling after it.
//
// Gives: Stage, STAGES, COUNT; for a stage's tiles Tiling<s>; Half; PIXELS, ROWS and DEPTH, those of a product.
// Needs: LADDER_STAGE_COUNT and, for each of MOST stages, LADDER_STAGE<i>_..., as `kernels/stages/persistent.py` has
// them.
//
// A tile is TILE_FILTERS filters at the output pixels that a rectangle of pooled pixels needs; without pooling, at as
// many pixels in a row, on from the end of a row to the next one.
#pragma once
#include <cuda_fp16.h>

#include "../common/shape.cuh"

using Half = __half;

constexpr int MOST = 12;                           // stages
constexpr int ROWS = 16, PIXELS = 8, DEPTH = 32;  // of a product: filters, pixels, channels of two instructions

struct Stage {
    int C, H, W, M, R, S, U, TOP, LEFT, E, F;  // the convolution
    int RELU, POOL, STRIDE, POOLED_E, POOLED_F;  // after it; without pooling windows of one pixel
    int FILTER_ROWS, ACROSS, DOWN;               // of a tile: ROWS of filters; pooled pixels, if there is pooling
    int PIXEL_GROUPS;                            // of PIXELS, of a tile
    int WEIGHTS, BIASES, OUTPUT;                 // where each begins: bytes / 16; values; values
};

#define STAGE_OF(i)                                                                                                   \
    {                                                                                                                 \
        LADDER_STAGE##i##_C, LADDER_STAGE##i##_H, LADDER_STAGE##i##_W, LADDER_STAGE##i##_M, LADDER_STAGE##i##_R,      \
            LADDER_STAGE##i##_S, LADDER_STAGE##i##_U, LADDER_STAGE##i##_TOP, LADDER_STAGE##i##_LEFT,                  \
            LADDER_STAGE##i##_E, LADDER_STAGE##i##_F, LADDER_STAGE##i##_RELU, LADDER_STAGE##i##_POOL,                 \
            LADDER_STAGE##i##_STRIDE, LADDER_STAGE##i##_POOLED_E, LADDER_STAGE##i##_POOLED_F,                         \
            LADDER_STAGE##i##_FILTER_ROWS, LADDER_STAGE##i##_ACROSS, LADDER_STAGE##i##_DOWN,                          \
            LADDER_STAGE##i##_PIXEL_GROUPS, LADDER_STAGE##i##_WEIGHTS, LADDER_STAGE##i##_BIASES,                      \
            LADDER_STAGE##i##_OUTPUT                                                                                  \
    }
constexpr int COUNT = LADDER_STAGE_COUNT;
constexpr Stage STAGES[MOST] = {STAGE_OF(0), STAGE_OF(1), STAGE_OF(2), STAGE_OF(3), STAGE_OF(4),  STAGE_OF(5),
                                STAGE_OF(6), STAGE_OF(7), STAGE_OF(8), STAGE_OF(9), STAGE_OF(10), STAGE_OF(11)};
static_assert(COUNT >= 1 && COUNT <= MOST);

constexpr int quotient_up(int a, int b)
{
    return (a + b - 1) / b;
}

template <int s>
struct Tiling {
    static constexpr Stage OF = STAGES[s];
    static constexpr bool POOLS = OF.POOL > 1, FEW_CHANNELS = OF.C % DEPTH != 0;
    static constexpr int TILE_FILTERS = OF.FILTER_ROWS * ROWS, TILE_PIXELS = OF.PIXEL_GROUPS * PIXELS;
    static constexpr int FILTER_TILES = quotient_up(OF.M, TILE_FILTERS);
    // Of a tile with pooling: output pixels across and down.
    static constexpr int WIDTH = (OF.ACROSS - 1) * OF.STRIDE + OF.POOL, HEIGHT = (OF.DOWN - 1) * OF.STRIDE + OF.POOL;
    static constexpr int TILES_ACROSS = POOLS ? quotient_up(OF.POOLED_F, OF.ACROSS) : 1;
    static constexpr int PIXEL_TILES = POOLS ? TILES_ACROSS * quotient_up(OF.POOLED_E, OF.DOWN)
                                             : quotient_up(OF.E * OF.F, TILE_PIXELS);
    static constexpr int TILES = FILTER_TILES * PIXEL_TILES;
    static_assert(!POOLS || WIDTH * HEIGHT <= TILE_PIXELS, "a tile has all pixels that it pools");
    // Of the rectangle of output pixels in which a tile lies.
    static constexpr int FULL_ROWS = quotient_up(TILE_PIXELS - 1, OF.F) + 1;
    static constexpr int OUT_COLUMNS = POOLS ? WIDTH : OF.F;
    static constexpr int OUT_ROWS = POOLS ? HEIGHT : FULL_ROWS < OF.E ? FULL_ROWS : OF.E;

    // A tile's first filter; its first pooled pixel, and the first output pixel under it.
    int filter, pixel_tile;
    __device__ __forceinline__ explicit Tiling(int tile)
        : filter(tile % FILTER_TILES * TILE_FILTERS), pixel_tile(tile / FILTER_TILES)
    {
    }
    __device__ __forceinline__ int pooled_row() const { return pixel_tile / TILES_ACROSS * OF.DOWN; }
    __device__ __forceinline__ int pooled_column() const { return pixel_tile % TILES_ACROSS * OF.ACROSS; }

    __device__ __forceinline__ int first_row() const
    {
        return POOLS ? pooled_row() * OF.STRIDE : pixel_tile * TILE_PIXELS / OF.F;
    }
    __device__ __forceinline__ int first_column() const { return POOLS ? pooled_column() * OF.STRIDE : 0; }

    // Row and column of the tile's pixel n, or of its last one, in the output plane, which a tile that pools may leave.
    __device__ __forceinline__ int2 nearest(int n) const
    {
        if constexpr (POOLS) {
            n = n < WIDTH * HEIGHT ? n : WIDTH * HEIGHT - 1;
            return make_int2(first_row() + n / WIDTH, first_column() + n % WIDTH);
        }
        const int p = pixel_tile * TILE_PIXELS + n, last = OF.E * OF.F - 1;
        return make_int2((p < last ? p : last) / OF.F, (p < last ? p : last) % OF.F);
    }

    // Row and column of pixel n of a tile that does not pool, in the output plane; beyond it for none.
    __device__ __forceinline__ int2 pixel(int n) const
    {
        const int p = pixel_tile * TILE_PIXELS + n;
        return make_int2(p / OF.F, p % OF.F);
    }
};
